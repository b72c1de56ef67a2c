/* server/text_request.c - requests for text: read, check, choose a sink, start.
 *
 * The cheap checks come first: is the model known and loaded, has its queue room, is the key within
 * its limits. The prompt is rendered and tokenised only after all of them.
 */
#include "server/text_request.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/conversation_items.h"
#include "api/stored_objects.h"
#include "base/json.h"
#include "base/mem.h"
#include "jobs/answers.h"
#include "jobs/store.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/local_request.h"
#include "server/registry.h"
#include "server/routes.h"
#include "server/sink.h"
#include "server/storage.h"
#include "server/stored_answer.h"
#include "server/task_int.h"
#include "spec/drafter.h"
#include "spec/spec.h"

enum { EARLIER_ID_BYTES = 160 };
static const size_t MERGED_BYTES_MAX = (size_t)64 << 20; /* of a body with its earlier items */

static enum status refuse_queue(const struct served_model *m, const char *code,
                                const char *sentence, struct api_error *e) {
    struct engine_stats stats = engine_stats(m->engine);
    api_refuse(e, 429, NULL, code, "%s; try again later", sentence);
    e->retry_after_ms = (int64_t)(stats.predicted_wait_us / 1000) + 1;
    return ST_BAD;
}

static uint32_t choices_of(const struct api_request *q) {
    return q->n * (q->is_chat ? 1 : q->prompt_count);
}

/* The queue's limit, before any work is put into the prompt; the engine checks it again. */
static enum status check_room(const struct server *s, const struct generation_spec *spec,
                              struct api_error *e) {
    const struct served_model *m = spec->model;
    uint32_t places = engine_places(m->engine), wanted = choices_of(spec->request);
    uint32_t most = keys_share_max(s->keys, spec->key, places);
    if (wanted > most)
        return api_refuse(e, 400, "n", NULL,
                          "%u choices are requested; the queue holds at most %u%s", wanted, most,
                          most < places ? " of one API key" : "");
    if (m->live_choices + wanted > places)
        return refuse_queue(m, "queue_full", "the queue is full", e);
    if (wanted > keys_share(s->keys, spec->key, m->metrics_idx, places))
        return refuse_queue(m, "queue_share_full",
                            "this API key has used up its share of the queue", e);
    return ST_OK;
}

/* A line of a batch that could never run; one that has to wait is run again. */
static enum status check_line_room(const struct generation_spec *spec, struct api_error *e) {
    uint32_t places = engine_batch_places(spec->model->engine), wanted = choices_of(spec->request);
    if (wanted <= places) return ST_OK;
    return api_refuse(e, 400, "n", NULL,
                      "%u choices are requested; a line of a batch may have at most %u (twice "
                      "max_seqs)",
                      wanted, places);
}

static enum status check_choices(const struct server *s, const struct api_request *q,
                                 struct api_error *e) {
    if (q->n > (uint32_t)s->settings.n_max)
        return api_refuse(e, 400, "n", NULL, "n is %u; this server accepts at most %" PRId64, q->n,
                          s->settings.n_max);
    return ST_OK;
}

/* ---- request headers ---- */

static struct str header(const struct http_head *head, const char *name) {
    return head ? http_find(head, name) : (struct str){0};
}

enum status header_read_ms(const struct http_head *head, const char *name, int64_t *us,
                           struct api_error *e) {
    struct str text = header(head, name);
    double ms;
    if (!text.ptr) return ST_OK;
    if (!str_to_f64(str_trim(text), &ms) || !(ms >= 0 && ms <= 86400000))
        return api_refuse(e, 400, name, NULL,
                          "%s is \"%.*s\"; it must be milliseconds, from 0 to 86400000 (a day)",
                          name, STR_ARG(text));
    *us = (int64_t)(ms * 1000);
    return ST_OK;
}

static enum status read_priority(const struct http_head *head, struct urgency *u,
                                 struct api_error *e) {
    struct str text = header(head, "x-jitney-priority");
    int64_t value;
    if (!text.ptr) return ST_OK;
    if (!str_to_i64(str_trim(text), &value) || value < -1000 || value > 1000)
        return api_refuse(e, 400, "x-jitney-priority", NULL,
                          "x-jitney-priority is \"%.*s\"; it must be a whole number from -1000 to "
                          "1000",
                          STR_ARG(text));
    u->priority = (int32_t)value;
    return ST_OK;
}

static enum status read_headers(const struct server *s, const struct http_head *head,
                                const struct generation_spec *spec, struct api_error *e) {
    struct api_request *q = spec->request;
    int64_t smooth_us = q->smooth_ms * 1000;
    if (spec->key && q->urgency.priority == 0) q->urgency.priority = spec->key->priority;
    TRY(header_read_ms(head, "x-jitney-ttft-ms", &q->urgency.ttft_target_us, e));
    TRY(header_read_ms(head, "x-jitney-tpot-ms", &q->urgency.tpot_target_us, e));
    TRY(header_read_ms(head, "x-jitney-deadline-ms", &q->urgency.expires_us, e));
    TRY(header_read_ms(head, "x-jitney-smooth-ms", &smooth_us, e));
    q->smooth_ms = q->stream ? smooth_us / 1000 : 0;
    TRY(read_priority(head, &q->urgency, e));
    q->urgency.priority = access_priority(s->keys, spec->key, q->urgency.priority);
    access_bound_targets(spec->key, &q->urgency.ttft_target_us, &q->urgency.tpot_target_us);
    return ST_OK;
}

/* ---- what is to be stored ---- */

static bool asks_durable(const struct http_head *head) {
    return str_is(header(head, "x-jitney-keep"), "durable");
}

/* Is its answer stored? One that only continues an earlier one is not. */
static bool is_durable(const struct api_request *q, const struct http_head *head) {
    const struct api_keeping *k = &q->keeping;
    return k->store || k->background || k->conversation.len > 0 || asks_durable(head);
}

/* What needs the store is refused by name where there is none. */
static enum status check_keeping(const struct server *s, const struct api_request *q,
                                 const struct http_head *head, struct api_error *e) {
    struct str keep = header(head, "x-jitney-keep");
    if (keep.ptr && !str_is(keep, "true") && !str_is(keep, "false") && !str_is(keep, "durable"))
        return api_refuse(e, 400, "x-jitney-keep", NULL,
                          "x-jitney-keep is \"%.*s\"; it must be true, false or durable",
                          STR_ARG(keep));
    if (s->store) return ST_OK;
    if (asks_durable(head))
        return api_refuse(e, 400, "x-jitney-keep", "data_dir_required",
                          "x-jitney-keep: durable needs a server that was started with --data-dir");
    return api_keeping_refuse(q, e);
}

/* A message of a WebSocket and a line of a batch have no object of their own that could be stored;
 * a batch stores its results itself. */
static enum status check_unkept(const struct generation_spec *spec, struct api_error *e) {
    const struct api_keeping *k = &spec->request->keeping;
    if (spec->body.len > 0) return ST_OK;
    const char *field = k->background             ? "background"
                        : k->conversation.len > 0 ? "conversation"
                        : k->store                ? "store"
                                                  : NULL;
    const bool continues = k->previous.len > 0 && (spec->is_batch || !spec->has_earlier);
    if (continues) field = "previous_response_id";
    const bool is_line = spec->is_batch && k->store && !k->background && k->conversation.len == 0;
    if (!field || (is_line && !continues)) return ST_OK;
    return api_refuse(e, 400, field, "unsupported_parameter", "'%s' is not supported %s", field,
                      spec->is_batch ? "in a batch" : "over a WebSocket");
}

/* ---- checks ---- */

/* What a drafter needs. */
static enum status check_speculation(const struct served_model *m, const struct api_request *q,
                                     struct api_error *e) {
    const struct api_speculation *s = &q->speculation;
    const char *field = "speculation.drafter";
    if (!s->is_chosen) return ST_OK;
    if (s->choice.kind == SPECULATE_MODEL && !spec_has_model(engine_spec(m->engine)))
        return api_refuse(
            e, 400, field, "invalid_value",
            "Invalid '%s': \"model\" needs a draft model, and this server was started "
            "without --speculate model:PATH; choose ngram, suffix, predicted or off.",
            field);
    if (s->choice.drafter == drafter_find("predicted") && !s->has_prediction)
        return api_refuse(e, 400, field, "invalid_value",
                          "Invalid '%s': \"predicted\" needs the field 'prediction', which is "
                          "missing; add it, or choose ngram, suffix, model or off.",
                          field);
    return ST_OK;
}

static enum status check_all(struct server *s, const struct http_head *head,
                             struct generation_spec *spec, struct api_error *e) {
    TRY(server_check_draining(s, e));
    TRY(registry_find_ready(s->registry, spec->request->model, &spec->model, e));
    if (!spec->model->engine)
        return api_refuse(e, 400, "model", NULL,
                          "the model \"%s\" gives embeddings and writes no text",
                          spec->model->name);
    TRY(check_choices(s, spec->request, e));
    TRY(check_speculation(spec->model, spec->request, e));
    TRY(check_unkept(spec, e));
    if (spec->is_batch) return check_line_room(spec, e);
    TRY(check_room(s, spec, e));
    TRY(read_headers(s, head, spec, e));
    return access_begin(s->keys, spec->key, spec->arrived_us, e);
}

enum status text_generation_create(struct server *s, const struct http_head *head,
                                   struct generation_spec *spec, struct generation **out,
                                   struct api_error *e) {
    enum status st = check_all(s, head, spec, e);
    if (st != ST_OK) {
        api_request_deinit(spec->request);
        return st;
    }
    if (!spec->request->has_seed) spec->request->sample.seed = server_make_seed(s);
    if (spec->body.len > 0) spec->request->smooth_ms = 0; /* it cuts events by the clock */
    st = generation_create(s->generations, spec, out, e);
    if (st != ST_OK) {
        if (!spec->is_batch) keys_end(s->keys, spec->key, 0, 0, spec->arrived_us);
        return ST_BAD;
    }
    struct generation *gen = *out;
    if (spec->is_batch) return ST_OK;
    keys_hold(s->keys, spec->key, gen->model->metrics_idx, gen->answer.choice_count);
    gen->timeout_us = (int64_t)(s->settings.request_timeout_s * 1e6);
    gen->survives = str_is(header(head, "x-jitney-keep"), "true");
    gen->is_findable = gen->survives || gen->request.stream;
    if (s->tracer) trace_id_read(header(head, "traceparent"), &gen->trace);
    if (spec->body.len == 0) return ST_OK;
    if (stored_answer_keep(s, gen, spec) == ST_OK) return ST_OK;
    gen->survives = false;
    generation_start(gen, NULL); /* frees it */
    return api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this request");
}

/* ---- the handler ---- */

static bool wants_async(const struct http_request *req) {
    struct str prefer = http_find(req->head, "prefer");
    for (size_t i = 0; i < prefer.len; i++)
        if (str_starts(str_skip(prefer, i), STR("respond-async"))) return true;
    return false;
}

static struct sink *choose_sink(struct http_request *req, struct generation *gen) {
    if (wants_async(req)) {
        gen->survives = gen->is_findable = true;
        return sink_async_create(req);
    }
    if (gen->request.stream) return sink_stream_create(req, gen, 0);
    return gen->request.keeping.background ? sink_queued_create(req) : sink_whole_create(req);
}

/* A line of a batch: one response, and nothing that only a client can ask for. */
static void fit_line(const struct http_request *req, struct generation_spec *spec) {
    struct api_request *q = spec->request;
    spec->is_batch = true;
    spec->created_s = local_request_created_s(req);
    q->stream = false;
    q->smooth_ms = 0;
    q->urgency = (struct urgency){0};
    if (!q->has_seed) q->sample.seed = local_request_seed(req);
    q->has_seed = true;
}

/* A body while it is read. */
struct text_task {
    struct task base;
    struct api_request request;
    bool asks_durable;  /* by its header */
    struct buf body;    /* of one that is durable, or continues an earlier answer; else empty */
    struct buf items;   /* of a durable one of /v1/responses: its own input */
    struct buf earlier; /* items of the conversation so far */
    struct conversation_mark read; /* of `conversation`, with these items */
    struct store_op op;            /* reads these */
    char id[SERVER_ID_BYTES];
    bool is_local;
    char previous[EARLIER_ID_BYTES], conversation[EARLIER_ID_BYTES]; /* of what it continues */
};

static void start_generation(struct http_request *req, struct text_task *t) {
    struct api_error e = {0};
    struct generation *gen;
    struct generation_spec spec = {.key = req->grant.key,
                                   .route = req->route->path,
                                   .id = str_of(req->id),
                                   .request_id = str_of(req->request_id),
                                   .request = &t->request,
                                   .arrived_us = req->arrived_us,
                                   .has_earlier = t->earlier.len > 0};
    if (req->is_local)
        fit_line(req, &spec);
    else if (is_durable(&t->request, req->head)) {
        spec.body = buf_str(&t->body);
        spec.items = buf_str(&t->items);
        spec.read = &t->read;
    }
    if (text_generation_create(req->server, req->head, &spec, &gen, &e) != ST_OK) {
        respond_error(req, &e);
        return;
    }
    struct sink *sink = choose_sink(req, gen);
    if (!sink) {
        gen->survives = gen->is_durable;
        respond_out_of_memory(req);
    }
    generation_start(gen, sink);
}

static void destroy_task(struct text_task *t) {
    api_request_deinit(&t->request);
    buf_deinit(&t->body);
    buf_deinit(&t->items);
    buf_deinit(&t->earlier);
    mem_free(t);
}

/* ---- reading, on any thread ---- */

static bool is_responses(const struct text_task *t) {
    return str_is(str_of(t->base.codec->name), "openai.responses");
}

/* Its own input as items, from the body that is kept. */
static enum status read_own_items(struct text_task *t, struct api_error *e) {
    struct json *doc;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = t->body.len;
    if (!is_responses(t)) return ST_OK;
    enum status st = json_parse(buf_str(&t->body), &limits, &doc, &err);
    if (st == ST_OK) {
        char seed[SERVER_ID_BYTES + 4]; /* apart from the ids of the output's items */
        snprintf(seed, sizeof(seed), "%s_in", t->id);
        st = responses_input_items(doc, str_of(seed), &t->items, e);
        json_destroy(doc);
    }
    return st;
}

/* Of a durable request, and of one that continues an earlier answer, the body is kept. */
static enum status keep_body(struct text_task *t) {
    const struct api_keeping *k = &t->request.keeping;
    bool continues = k->previous.len > 0 || k->conversation.len > 0;
    if (!k->store && !k->background && !continues && !t->asks_durable) return ST_OK;
    buf_put_str(&t->body, t->base.body);
    TRY(buf_status(&t->body));
    return read_own_items(t, &t->base.error);
}

static bool store_id(struct str sent, char out[EARLIER_ID_BYTES]) {
    if (sent.len == 0 || sent.len >= EARLIER_ID_BYTES) return false; /* the reader refuses it */
    str_store(sent, out, EARLIER_ID_BYTES);
    return true;
}

/* A body that continues an earlier answer is read when the earlier items are there: it may have
 * results of calls that only these have. Until then the request says only what it continues. */
static bool reads_later(struct text_task *t, const struct json *doc) {
    struct api_keeping *k = &t->request.keeping;
    if (t->is_local || !is_responses(t)) return false;
    const struct json *talk = json_get(doc, "conversation");
    if (json_kind(talk) == JS_MAP) talk = json_get(talk, "id");
    bool has_previous = store_id(json_str(json_get(doc, "previous_response_id")), t->previous);
    bool has_talk = store_id(json_str(talk), t->conversation);
    if (!has_previous && !has_talk) return false;
    api_request_init(&t->request, t->base.codec);
    k->previous = str_of(t->previous);
    k->conversation = str_of(t->conversation);
    return true;
}

static enum status read_request(struct task *task, struct json *doc) {
    struct text_task *t = (struct text_task *)task;
    if (reads_later(t, doc)) {
        json_destroy(doc);
        return ST_OK;
    }
    return codec_read_body(task->codec, doc, task->logs_body, &t->request, &task->error);
}

static enum status read_text_body(struct task *task, struct json *doc) {
    TRY(read_request(task, doc));
    return keep_body((struct text_task *)task);
}

/* ---- a request that continues an earlier answer or a conversation ---- */

static void on_complete(struct task *task);

/* On any thread: read the body again, with the earlier items in front of its own. */
static void read_merged(struct task *task) {
    struct text_task *t = (struct text_task *)task;
    struct buf merged;
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(&merged, MERGED_BYTES_MAX);
    enum status st =
        responses_merge(buf_str(&t->body), buf_str(&t->earlier), &merged, &task->error);
    struct json_limits limits = json_limits_request;
    limits.bytes_max = MERGED_BYTES_MAX;
    if (st == ST_OK) st = json_parse(buf_str(&merged), &limits, &doc, &err);
    if (st == ST_OK) {
        api_request_deinit(&t->request);
        st = codec_read_body(task->codec, doc, task->logs_body, &t->request, &task->error);
    }
    buf_deinit(&t->body);
    t->body = merged;
    task->status = st;
    if (st != ST_OK && task->error.status == 0)
        api_refuse(&task->error, 503, NULL, "out_of_memory",
                   "the server has no memory for this conversation");
}

static struct text_task *task_of(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct text_task, op.in_store);
}

static enum status read_earlier(struct store_op *op, struct store_db *db) {
    struct text_task *t = task_of(op);
    const struct api_keeping *k = &t->request.keeping;
    struct str items = {0}, id = k->previous, owner = str_of(t->base.key->owner);
    if (k->previous.len > 0 && !stored_id_read(k->previous, "resp_", &id)) return ST_MISSING;
    /* After a crash an answer that the client has seen may be generated once more. */
    if (k->previous.len == 0) {
        TRY(conversations_check_complete(db, owner, k->conversation, &op->err));
        TRY(conversations_mark(db, owner, k->conversation, &t->read, &op->err));
    }
    enum status st =
        k->previous.len > 0
            ? answers_items(db, owner, id, MERGED_BYTES_MAX, &items, &op->err)
            : conversations_items(db, owner, k->conversation, MERGED_BYTES_MAX, &items, &op->err);
    if (st != ST_OK) return st;
    buf_clear(&t->earlier); /* the operation may run twice */
    buf_put_str(&t->earlier, items);
    mem_free((char *)(uintptr_t)items.ptr);
    return buf_status(&t->earlier);
}

static void refuse_earlier(const struct text_task *t, enum status st, const struct err *err,
                           struct api_error *e) {
    bool is_answer = t->request.keeping.previous.len > 0;
    struct str id = is_answer ? t->request.keeping.previous : t->request.keeping.conversation;
    const char *param = is_answer ? "previous_response_id" : "conversation";
    if (st == ST_MISSING)
        api_refuse(e, 404, param, is_answer ? "previous_response_not_found" : "not_found",
                   is_answer
                       ? "Previous response with id '%.*s' not found, or a response before it "
                         "was deleted"
                       : "Conversation with id '%.*s' not found",
                   STR_ARG(id));
    else if (st == ST_BAD && is_answer)
        api_refuse(e, 409, param, "previous_response_not_complete",
                   "response '%.*s' cannot be continued: it, or one before it, is still running, "
                   "has failed, was cancelled, or is too long",
                   STR_ARG(id));
    else if (st == ST_BAD)
        api_refuse(e, 409, param, "conversation_locked", "%s", err->text);
    else
        storage_refuse(st, err, "conversation", e);
}

static void on_earlier(struct store_op *op) {
    struct text_task *t = task_of(op);
    struct http_request *req = t->base.http;
    if (!req) {
        destroy_task(t);
        return;
    }
    if (op->status != ST_OK) {
        struct api_error e = {0};
        refuse_earlier(t, op->status, &op->err, &e);
        respond_error(req, &e);
        destroy_task(t);
        return;
    }
    t->base.work = read_merged;
    t->base.done = on_complete;
    t->base.bytes = t->body.len + t->earlier.len;
    task_run(&t->base, req, t->base.bytes >= TASK_READ_FROM_BYTES);
}

static void on_left(struct http_request *req) {
    ((struct text_task *)req->owner)->base.http = NULL;
}

static void fetch_earlier(struct text_task *t) {
    struct http_request *req = t->base.http;
    req->owner = t;
    req->on_gone = on_left;
    t->op = (struct store_op){.run = read_earlier, .done = on_earlier, .is_read = true};
    storage_push(req->server, &t->op);
}

/* ---- the handler ---- */

static void on_complete(struct task *task) {
    struct text_task *t = (struct text_task *)task;
    if (task->http && task->status == ST_OK)
        start_generation(task->http, t);
    else if (task->http)
        respond_error(task->http, &task->error);
    destroy_task(t);
}

static void on_body_read(struct task *task) {
    struct text_task *t = (struct text_task *)task;
    struct http_request *req = task->http;
    const struct api_keeping *k = &t->request.keeping;
    if (req && task->status == ST_OK && !req->is_local)
        task->status = check_keeping(req->server, &t->request, req->head, &task->error);
    bool continues = k->previous.len > 0 || k->conversation.len > 0;
    if (req && task->status == ST_OK && continues && !req->is_local)
        fetch_earlier(t);
    else
        on_complete(task);
}

static struct text_task *text_task_create(struct http_request *req) {
    struct text_task *t = task_create(req, sizeof(*t), read_text_body, on_body_read);
    if (!t) return NULL;
    t->is_local = req->is_local;
    t->asks_durable = !req->is_local && asks_durable(req->head);
    str_store(str_of(req->id), t->id, sizeof(t->id));
    buf_init(&t->body, MERGED_BYTES_MAX);
    buf_init(&t->items, MERGED_BYTES_MAX);
    buf_init(&t->earlier, MERGED_BYTES_MAX);
    return t;
}

void handle_text(struct http_request *req) {
    struct text_task *t = text_task_create(req);
    if (t) task_read_body(&t->base);
}
