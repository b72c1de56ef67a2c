/* server/tokenize.c - /tokenize, /detokenize, /apply-template and /v1/messages/count_tokens. */
#include "api/tokenize.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"
#include "server/task_int.h"
#include "text/chat_prompt.h"

/* An answer is larger than its text: a token of one byte may take 40 bytes of JSON. */
enum { ANSWER_FACTOR = 64, COUNT_BYTES_MAX = 1 << 16 };

typedef enum status token_read_fn(struct json *body, struct tokenize_request *r,
                                  struct api_error *e);

struct token_task {
    struct task base;
    struct served_model *model;
    struct tokenize_request request;
    token_read_fn *read;
    void (*make)(struct task *task); /* the answer */
    struct buf body;
    uint64_t text_max; /* bytes of the text to be tokenised; as in the settings */
};

/* ---- the work, on any thread ---- */

static enum status encode_text(struct token_task *t, struct tokens *out) {
    const struct tokenize_request *r = &t->request;
    struct encode_options options = {.add_special = !r->text.raw_prompt,
                                     .plain_special = r->no_special};
    return tokenizer_encode(t->model->tokenizer, r->text.prompts[0].text, options, out);
}

static void put_tokens(struct token_task *t, const struct tokens *ids) {
    enum status st = tokenize_answer_put(&t->request, t->model->tokenizer, ids->ids,
                                         (uint32_t)ids->count, t->model->ctx_tokens, &t->body);
    if (st != ST_OK) t->body.status = st;
}

static void tokenize_chat(struct token_task *t) {
    struct prompts prompts = {.text_bytes_max = t->text_max};
    t->base.status = prompts_prepare(t->model, &t->request.text, &prompts, &t->base.error);
    if (t->base.status == ST_OK) put_tokens(t, &prompts.list[0]);
    prompts_deinit(&prompts);
}

static void tokenize(struct task *task) {
    struct token_task *t = (struct token_task *)task;
    struct tokens ids = {0};
    if (t->request.text.is_chat) {
        tokenize_chat(t);
        return;
    }
    uint64_t bytes = t->request.text.prompts[0].text.len;
    task->status = prompt_check_text(bytes, t->text_max, &task->error);
    if (task->status != ST_OK) return;
    if (encode_text(t, &ids) != ST_OK) t->body.status = ST_NOMEM;
    put_tokens(t, &ids);
    tokens_deinit(&ids);
}

static void detokenize(struct task *task) {
    struct token_task *t = (struct token_task *)task;
    enum status st = detokenize_answer_put(&t->request, t->model->tokenizer, t->text_max, &t->body,
                                           &task->error);
    if (st == ST_BAD) task->status = st;
    if (st == ST_NOMEM) t->body.status = st;
}

static void apply_template(struct task *task) {
    struct token_task *t = (struct token_task *)task;
    struct buf text;
    buf_init(&text, CHAT_PROMPT_BYTES_MAX);
    task->status = prompt_render(t->model, &t->request.text, &text, &task->error);
    if (task->status == ST_OK)
        task->status = prompt_check_text(text.len, t->text_max, &task->error);
    if (task->status == ST_OK) template_answer_put(buf_str(&text), &t->body);
    buf_deinit(&text);
}

/* ---- on the I/O thread ---- */

static void drop(struct token_task *t) {
    tokenize_request_deinit(&t->request);
    buf_deinit(&t->body);
    mem_free(t);
}

static void finish(struct task *task) {
    struct token_task *t = (struct token_task *)task;
    keys_end(task->server->keys, task->key, 0, 0, clock_now(&clock_real));
    if (task->http && task->status != ST_OK)
        respond_error(task->http, &task->error);
    else if (task->http)
        respond_json(task->http, &t->body);
    drop(t);
}

static enum status read_body(struct task *task, struct json *doc) {
    struct token_task *t = (struct token_task *)task;
    api_request_init(&t->request.text, task->codec);
    TRY(t->read(doc, &t->request, &task->error));
    TRY(api_request_drop_body(&t->request.text));
    task->bytes = api_request_bytes(&t->request.text);
    return ST_OK;
}

/* The model that is named, and the key's limits. ST_OK: keys_end must follow. */
static enum status check(struct task *task, struct str name, struct served_model **model) {
    const struct http_request *req = task->http;
    struct server *s = task->server;
    TRY(task->status);
    TRY(registry_find_ready(s->registry, name, model, &task->error));
    return access_begin(s->keys, task->key, req->arrived_us, &task->error);
}

static void on_body_read(struct task *task) {
    struct token_task *t = (struct token_task *)task;
    struct http_request *req = task->http;
    if (req && check(task, t->request.text.model, &t->model) == ST_OK) {
        task->work = t->make;
        task->done = finish;
        task_run(task, req, true);
        return;
    }
    if (req) respond_error(req, &task->error);
    drop(t);
}

static void run(struct http_request *req, token_read_fn *read, void (*make)(struct task *task)) {
    struct token_task *t = task_create(req, sizeof(*t), read_body, on_body_read);
    if (!t) return;
    t->text_max = req->server->settings.text_max;
    buf_init(&t->body, ANSWER_FACTOR * t->text_max);
    t->read = read;
    t->make = make;
    task_read_body(&t->base);
}

void handle_tokenize(struct http_request *req) { run(req, tokenize_request_read, tokenize); }
void handle_detokenize(struct http_request *req) { run(req, detokenize_request_read, detokenize); }
void handle_template(struct http_request *req) { run(req, template_request_read, apply_template); }

/* ---- /v1/messages/count_tokens: an answer that has a prompt and nothing else ---- */

struct count_task {
    struct task base;
    uint64_t text_max;
    struct served_model *model;
    struct api_request request;
    struct answer answer;
};

static void count_prompt(struct task *task) {
    struct count_task *t = (struct count_task *)task;
    struct prompts prompts = {.text_bytes_max = t->text_max};
    task->status = prompts_prepare(t->model, &t->request, &prompts, &task->error);
    if (task->status == ST_OK) t->answer.prompt_tokens = (uint32_t)prompts.list[0].count;
    prompts_deinit(&prompts);
}

static void finish_count(struct task *task) {
    struct count_task *t = (struct count_task *)task;
    struct buf body;
    keys_end(task->server->keys, task->key, 0, 0, clock_now(&clock_real));
    buf_init(&body, COUNT_BYTES_MAX);
    if (task->status == ST_OK) t->request.codec->whole(&t->answer, &body);
    if (task->http && task->status != ST_OK)
        respond_error(task->http, &task->error);
    else if (task->http)
        respond_json(task->http, &body);
    buf_deinit(&body);
    api_request_deinit(&t->request);
    mem_free(t);
}

static enum status read_count_body(struct task *task, struct json *doc) {
    struct count_task *t = (struct count_task *)task;
    task->bytes = json_memory(doc);
    return codec_read_body(task->codec, doc, false, &t->request, &task->error);
}

static void on_count_body_read(struct task *task) {
    struct count_task *t = (struct count_task *)task;
    struct http_request *req = task->http;
    if (req && check(task, t->request.model, &t->model) == ST_OK) {
        task->work = count_prompt;
        task->done = finish_count;
        task_run(task, req, true);
        return;
    }
    if (req) respond_error(req, &task->error);
    api_request_deinit(&t->request);
    mem_free(t);
}

void handle_count_tokens(struct http_request *req) {
    struct count_task *t = task_create(req, sizeof(*t), read_count_body, on_count_body_read);
    if (!t) return;
    t->text_max = req->server->settings.text_max;
    t->answer.request = &t->request;
    task_read_body(&t->base);
}
