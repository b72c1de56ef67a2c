/* server/embeddings.c - embeddings: texts in, vectors out, through the model's embedder.
 *
 * A request's texts are tokenised (in libuv's pool if they are long) and become jobs of the
 * embedder, which batches them with those of other requests; tenants take turns there. When the
 * client goes away, the deadline has passed or a text has failed, the texts that are not computed
 * yet are dropped.
 */
#include "engine/embedder.h"

#include "api/embeddings.h"
#include "api/ollama.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/accounts.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/local_request.h"
#include "server/registry.h"
#include "server/shortage.h"
#include "server/task_int.h"
#include "server/text_request.h"

static const size_t BODY_BYTES_MAX = (size_t)1 << 28;
enum {
    EMBED_RETRY_MS = 1000,       /* until a pass has shown how long one takes */
    POOL_FROM_FLOATS = 32 << 10, /* writing one takes about 100 ns */
    FLOAT_TEXT_BYTES = 13,       /* in an answer */
};

struct embedding;
typedef enum status embed_read_fn(struct json *body, struct embed_request *r, struct api_error *e);
typedef void embed_put_fn(const struct embedding *t, const struct embed_answer *a, struct buf *out);

struct embedding {
    struct task base;
    struct server *server;
    struct served_model *model;
    struct embed_request request;
    struct prompts prompts;
    uint64_t text_max;      /* bytes of a text; as in the settings */
    struct embed_job *jobs; /* [prompts.count] */
    float *floats;
    const float **vectors;
    uint32_t left; /* jobs that the embedder has */
    bool was_submitted;
    bool is_batch;      /* a line of a batch: without limits and deadline */
    uint64_t reserved;  /* tokens of its key's limit */
    int64_t expires_us; /* 0: never */
    embed_read_fn *read;
    embed_put_fn *put;
    struct buf body;
    int64_t began_us;
    struct account *account; /* NULL: nothing is charged */
    uint64_t charged_bytes;
};

static void destroy(struct embedding *t) {
    t->server->embeds--;
    if (t->account) share_give(&t->server->embeddings, &t->account->embeddings, t->charged_bytes);
    embed_request_deinit(&t->request);
    prompts_deinit(&t->prompts);
    buf_deinit(&t->body);
    mem_free(t->jobs);
    mem_free(t->floats);
    mem_free(t->vectors);
    mem_free(t);
}

static uint64_t tokens_of(const struct embedding *t) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < t->prompts.count; i++) tokens += t->prompts.list[i].count;
    return tokens;
}

/* On any thread. */
static void write_body(struct task *task) {
    struct embedding *t = (struct embedding *)task;
    struct embed_answer answer = {.model = str_of(t->model->name),
                                  .vectors = t->vectors,
                                  .count = t->prompts.count,
                                  .dims = embedder_dims(t->model->embedder),
                                  .prompt_tokens = tokens_of(t)};
    t->put(t, &answer, &t->body);
}

static void send_answer(struct task *task) {
    struct embedding *t = (struct embedding *)task;
    if (task->http && task->status != ST_OK)
        respond_error(task->http, &task->error); /* the pool did not take it */
    else if (task->http)
        respond_json(task->http, &t->body);
    destroy(t);
}

/* Of the texts that were computed, whether the client is still there or not. */
static uint64_t computed_tokens(const struct embedding *t) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; t->was_submitted && i < t->prompts.count; i++)
        if (t->jobs[i].status == ST_OK) tokens += t->jobs[i].count;
    return tokens;
}

/* One that was refused before the model got it is counted by its response alone. */
static void count(const struct embedding *t, uint64_t tokens, int64_t now_us) {
    const struct task *task = &t->base;
    enum finish_reason finish = FINISH_STOP;
    if (!task->http || task->error.status == 499 || task->error.status == 504)
        finish = FINISH_CANCELLED;
    else if (task->status != ST_OK)
        finish = FINISH_ERROR;
    server_metrics_embedding(t->server->metrics,
                             &(struct metrics_generation){.model = t->model->metrics_idx,
                                                          .finish = finish,
                                                          .prompt_tokens = (uint32_t)tokens,
                                                          .arrived_us = t->began_us,
                                                          .finished_us = now_us});
}

/* Every job has its result. */
static void finish(struct embedding *t) {
    struct task *task = &t->base;
    const uint64_t tokens = computed_tokens(t);
    const int64_t now_us = clock_now(&clock_real);
    if (!t->is_batch) keys_end(t->server->keys, task->key, t->reserved, tokens, now_us);
    if (t->is_batch && task->http) local_request_count(task->http, tokens, 0, 0);
    if (t->was_submitted) count(t, tokens, now_us);
    if (task->http && task->status == ST_OK) {
        uint64_t floats = (uint64_t)t->prompts.count * embedder_dims(t->model->embedder);
        task->work = write_body;
        task->item.is_long = true; /* its numbers take longer than its few bytes say */
        task->done = send_answer;
        task_run(task, task->http, floats >= POOL_FROM_FLOATS);
        return;
    }
    if (task->http) respond_error(task->http, &task->error);
    destroy(t);
}

/* The first text that was not computed decides the answer; the others are dropped. */
static void fail(struct embedding *t, const struct embed_job *job) {
    t->base.status = job->status;
    if (job->has_expired)
        api_refuse(&t->base.error, 504, NULL, "deadline_exceeded",
                   "the request exceeded its deadline");
    else if (job->status == ST_CANCELLED)
        api_refuse(&t->base.error, 499, NULL, "request_cancelled", "the request was cancelled");
    else
        api_refuse(&t->base.error, job->status == ST_BAD ? 400 : 500,
                   job->status == ST_BAD ? "input" : NULL, NULL, "%s", job->err.text);
    embedder_cancel(t->model->embedder, t);
}

void embeddings_on_done(uv_async_t *handle) {
    const struct served_model *m = handle->data;
    for (struct embed_job *job; (job = embedder_next(m->embedder));) {
        struct embedding *t = job->user;
        if (job->status != ST_OK && t->base.status == ST_OK) fail(t, job);
        CHECK(t->left > 0);
        if (--t->left == 0) finish(t);
    }
}

static void on_client_gone(struct http_request *req) {
    struct embedding *t = req->owner;
    t->base.http = NULL;
    embedder_cancel(t->model->embedder, t); /* embeddings_on_done takes them */
}

/* ---- the work, on any thread ---- */

static enum status check_lengths(struct embedding *t) {
    uint32_t max = embedder_tokens_max(t->model->embedder);
    for (uint32_t i = 0; i < t->prompts.count; i++) {
        size_t count = t->prompts.list[i].count;
        if (count == 0)
            return api_refuse(&t->base.error, 400, "input", NULL, "input %u is empty", i);
        if (count > max)
            return api_refuse(&t->base.error, 400, "input", "context_length_exceeded",
                              "This model's maximum context length is %u tokens, but input %u has "
                              "%zu tokens",
                              max, i, count);
    }
    return ST_OK;
}

static void prepare(struct task *task) {
    struct embedding *t = (struct embedding *)task;
    t->prompts.text_bytes_max = t->text_max;
    task->status = prompts_prepare(t->model, &t->request.text, &t->prompts, &task->error);
    if (task->status == ST_OK) task->status = check_lengths(t);
}

/* ---- submission ---- */

static enum status make_jobs(struct embedding *t) {
    uint32_t count = t->prompts.count, dims = embedder_dims(t->model->embedder);
    t->jobs = mem_zalloc_array(count, sizeof(t->jobs[0]));
    t->vectors = mem_zalloc_array(count, sizeof(t->vectors[0]));
    t->floats = mem_alloc_array(count, dims * sizeof(float));
    if (!t->jobs || !t->vectors || !t->floats)
        return api_refuse(&t->base.error, 503, NULL, "out_of_memory", "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        float *out = t->floats + (size_t)i * dims;
        t->vectors[i] = out;
        t->jobs[i] = (struct embed_job){.ids = t->prompts.list[i].ids,
                                        .count = (uint32_t)t->prompts.list[i].count,
                                        .out = out,
                                        .user = t,
                                        .tenant = t->base.key ? t->base.key->tenant : 0,
                                        .expires_us = t->expires_us};
    }
    return ST_OK;
}

/* Of its body, tokens, vectors and answer. */
static uint64_t bytes_of(const struct embedding *t) {
    uint64_t floats = (uint64_t)t->prompts.count * embedder_dims(t->model->embedder);
    return t->base.bytes + tokens_of(t) * sizeof(int32_t) +
           t->prompts.count * (sizeof(t->jobs[0]) + sizeof(t->vectors[0])) +
           floats * (sizeof(float) + FLOAT_TEXT_BYTES);
}

static enum status reserve_memory(struct embedding *t) {
    struct server *s = t->server;
    struct account *account = accounts_find(s->accounts, t->base.key);
    uint64_t bytes = bytes_of(t);
    if (!account || !share_take(&s->embeddings, &account->embeddings, bytes)) {
        enum status st = account ? shortage_status(&s->embeddings, bytes, bytes) : ST_NOMEM;
        shortage_put(SHORTAGE_EMBEDDINGS, st, bytes, share_most(&s->embeddings), &t->base.error);
        return st;
    }
    t->account = account;
    t->charged_bytes = bytes;
    return ST_OK;
}

/* All texts, or none. */
static void submit(struct embedding *t) {
    struct task *task = &t->base;
    struct embedder *embedder = t->model->embedder;
    struct err err = {0};
    enum status st = embedder_submit(embedder, t->jobs, t->prompts.count, &err);
    if (st == ST_OK) {
        t->left = t->prompts.count;
        t->was_submitted = true;
        task->http->on_gone = on_client_gone;
        return;
    }
    task->status = st;
    if (st != ST_FULL) {
        api_refuse(&task->error, st == ST_BAD ? 400 : 503, NULL,
                   st == ST_BAD ? NULL : "out_of_memory", "%s", err.text);
        return;
    }
    int64_t wait_us = embedder_queue(embedder, t->jobs[0].tenant).wait_us;
    api_refuse(&task->error, 429, NULL, "queue_full",
               "the queue of the embedder is full; try again later");
    task->error.retry_after_ms = wait_us > 0 ? wait_us / 1000 + 1 : EMBED_RETRY_MS;
}

static enum status reserve_tokens(struct embedding *t) {
    struct key_claim claim = {.prompt_tokens = tokens_of(t)};
    if (t->is_batch) return ST_OK;
    TRY(access_reserve(t->server->keys, t->base.key, &claim, clock_now(&clock_real),
                       &t->base.error));
    t->reserved = claim.reserved;
    return ST_OK;
}

static void on_prepared(struct task *task) {
    struct embedding *t = (struct embedding *)task;
    bool is_wanted = task->http && t->prompts.count > 0; /* Ollama's clients may send no text */
    if (task->status == ST_OK && is_wanted) task->status = reserve_tokens(t);
    if (task->status == ST_OK && is_wanted) task->status = reserve_memory(t);
    if (task->status == ST_OK && is_wanted) task->status = make_jobs(t);
    if (task->status == ST_OK && is_wanted) submit(t);
    if (t->left == 0) finish(t);
}

/* ---- the request ---- */

/* The client's own deadline, and the server's for every request. */
static enum status read_deadline(const struct http_request *req, struct embedding *t,
                                 struct api_error *e) {
    int64_t own_us = 0, limit_us = (int64_t)(req->server->settings.request_timeout_s * 1e6);
    TRY(header_read_ms(req->head, "x-jitney-deadline-ms", &own_us, e));
    if (own_us > 0 && (limit_us == 0 || own_us < limit_us)) limit_us = own_us;
    t->expires_us = limit_us > 0 ? t->began_us + limit_us : 0;
    return ST_OK;
}

static enum status check(struct http_request *req, struct embedding *t, struct api_error *e) {
    TRY(registry_find_embedder(req->server->registry, t->request.text.model, &t->model, e));
    TRY(embed_request_check(&t->request, embedder_dims(t->model->embedder), e));
    if (t->is_batch) return ST_OK;
    TRY(read_deadline(req, t, e));
    return access_begin(req->server->keys, req->grant.key, req->arrived_us, e);
}

static enum status read_body(struct task *task, struct json *doc) {
    struct embedding *t = (struct embedding *)task;
    api_request_init(&t->request.text, task->codec);
    TRY(t->read(doc, &t->request, &task->error));
    t->request.format = str_is(t->request.format, "base64") ? STR("base64") : STR("");
    TRY(api_request_drop_body(&t->request.text));
    task->bytes = api_request_bytes(&t->request.text);
    return ST_OK;
}

static void on_body_read(struct task *task) {
    struct embedding *t = (struct embedding *)task;
    struct http_request *req = task->http;
    if (req && task->status == ST_OK) task->status = check(req, t, &task->error);
    if (req && task->status == ST_OK) {
        task->work = prepare;
        task->done = on_prepared;
        task_run(task, req, true);
        return;
    }
    if (req) respond_error(req, &task->error);
    destroy(t);
}

static void run(struct http_request *req, embed_read_fn *read, embed_put_fn *put) {
    struct embedding *t = task_create(req, sizeof(*t), read_body, on_body_read);
    if (!t) return;
    t->server = req->server;
    t->is_batch = req->is_local;
    t->server->embeds++;
    t->read = read;
    t->put = put;
    t->began_us = req->arrived_us;
    t->text_max = req->server->settings.text_max;
    buf_init(&t->body, BODY_BYTES_MAX);
    task_read_body(&t->base);
}

static void put_openai(const struct embedding *t, const struct embed_answer *a, struct buf *out) {
    embed_answer_put(&t->request, a, out);
}

static void put_ollama(const struct embedding *t, const struct embed_answer *a, struct buf *out) {
    ollama_embed_put(&t->request, a, clock_now(&clock_real) - t->began_us, out);
}

static void put_ollama_one(const struct embedding *t, const struct embed_answer *a,
                           struct buf *out) {
    ollama_embeddings_put(&t->request, a, out);
}

void handle_embeddings(struct http_request *req) { run(req, embed_request_read, put_openai); }
void handle_ollama_embed(struct http_request *req) { run(req, ollama_embed_read, put_ollama); }
void handle_ollama_embedding(struct http_request *req) {
    run(req, ollama_embeddings_read, put_ollama_one);
}
