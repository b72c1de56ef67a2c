/* server/tokenize.c - tokens and templates: /tokenize, /detokenize, /apply-template, and how many
 * tokens a conversation has.
 */
#include "api/tokenize.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/task_int.h"
#include "server/handlers.h"
#include "server/registry.h"
#include "server/server_int.h"
#include "server/text_request.h"

static const size_t BODY_BYTES_MAX = (size_t)1 << 28;

typedef enum status token_read_fn(struct json *body, struct tokenize_request *r,
                                  struct api_error *e);

struct token_task {
    struct task base;
    const struct key *key;
    struct served_model *model;
    struct tokenize_request request;
    token_read_fn *read;
    struct buf body;
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
    struct prompts prompts = {0};
    t->base.status = prompts_prepare(t->model, &t->request.text, &prompts, &t->base.error);
    if (t->base.status == ST_OK) put_tokens(t, &prompts.list[0]);
    prompts_deinit(&prompts);
}

static void tokenize(struct task *c) {
    struct token_task *t = (struct token_task *)c;
    struct tokens ids = {0};
    if (t->request.text.is_chat) {
        tokenize_chat(t);
        return;
    }
    if (encode_text(t, &ids) != ST_OK) t->body.status = ST_NOMEM;
    put_tokens(t, &ids);
    tokens_deinit(&ids);
}

static void detokenize(struct task *c) {
    struct token_task *t = (struct token_task *)c;
    enum status st = detokenize_answer_put(&t->request, t->model->tokenizer, &t->body, &c->error);
    if (st == ST_BAD) c->status = st;
    if (st == ST_NOMEM) t->body.status = st;
}

static void apply_template(struct task *c) {
    struct token_task *t = (struct token_task *)c;
    struct buf text;
    buf_init(&text, BODY_BYTES_MAX);
    c->status = prompt_render(t->model, &t->request.text, &text, &c->error);
    if (c->status == ST_OK) template_answer_put(buf_str(&text), &t->body);
    buf_deinit(&text);
}

/* ---- around it ---- */

static void drop(struct token_task *t) {
    tokenize_request_deinit(&t->request);
    buf_deinit(&t->body);
    mem_free(t);
}

static void finish(struct task *c) {
    struct token_task *t = (struct token_task *)c;
    keys_end(c->server->keys, t->key, 0, clock_now(&clock_real));
    if (c->http && c->status != ST_OK)
        respond_error(c->http, &c->error);
    else if (c->http)
        respond_json(c->http, &t->body);
    drop(t);
}

static enum status read_body(void *self, struct json *body, struct api_error *e) {
    struct token_task *t = self;
    return t->read(body, &t->request, e);
}

static void was_read(void *self, struct http_request *req, enum status st,
                     const struct api_error *e) {
    struct token_task *t = self;
    struct api_error error = *e;
    if (req && st == ST_OK)
        st = text_find_model(req->server, t->request.text.model, &t->model, &error);
    if (req && st == ST_OK) st = text_begin_key(req->server, req->key, req->arrived_us, &error);
    if (req && st == ST_OK) {
        task_run(&t->base, req, http_body(req->x).len >= TASK_POOL_FROM_BYTES);
        return;
    }
    if (req) respond_error(req, &error);
    drop(t);
}

static void run(struct http_request *req, token_read_fn *read, void (*work)(struct task *c)) {
    struct token_task *t = mem_zalloc(sizeof(*t));
    if (!t) {
        respond_out_of_memory(req);
        return;
    }
    buf_init(&t->body, BODY_BYTES_MAX);
    api_request_init(&t->request.text, req->codec);
    t->key = req->key;
    t->read = read;
    t->base.work = work;
    t->base.done = finish;
    http_request_read(
        req, &(struct http_request_reader){.self = t, .read = read_body, .done = was_read});
}

void handle_tokenize(struct http_request *req) { run(req, tokenize_request_read, tokenize); }
void handle_detokenize(struct http_request *req) { run(req, detokenize_request_read, detokenize); }
void handle_template(struct http_request *req) { run(req, template_request_read, apply_template); }

/* ---- Anthropic's count: an answer that is nothing but its prompt ---- */

struct count_task {
    struct task base;
    const struct key *key;
    struct served_model *model;
    struct api_request request;
    struct answer answer;
};

static void count_prompt(struct task *c) {
    struct count_task *t = (struct count_task *)c;
    struct prompts prompts = {0};
    c->status = prompts_prepare(t->model, &t->request, &prompts, &c->error);
    if (c->status == ST_OK) t->answer.prompt_tokens = (uint32_t)prompts.list[0].count;
    prompts_deinit(&prompts);
}

static void finish_count(struct task *c) {
    struct count_task *t = (struct count_task *)c;
    struct buf body;
    keys_end(c->server->keys, t->key, 0, clock_now(&clock_real));
    buf_init(&body, BODY_BYTES_MAX);
    if (c->status == ST_OK) t->request.codec->whole(&t->answer, &body);
    if (c->http && c->status != ST_OK)
        respond_error(c->http, &c->error);
    else if (c->http)
        respond_json(c->http, &body);
    buf_deinit(&body);
    api_request_deinit(&t->request);
    mem_free(t);
}

static enum status read_count(void *self, struct json *body, struct api_error *e) {
    struct count_task *t = self;
    return text_decode(t->request.codec, body, &t->request, e);
}

static void count_was_read(void *self, struct http_request *req, enum status st,
                           const struct api_error *e) {
    struct count_task *t = self;
    struct api_error error = *e;
    if (req && st == ST_OK) st = text_find_model(req->server, t->request.model, &t->model, &error);
    if (req && st == ST_OK) st = text_begin_key(req->server, req->key, req->arrived_us, &error);
    if (req && st == ST_OK) {
        task_run(&t->base, req, http_body(req->x).len >= TASK_POOL_FROM_BYTES);
        return;
    }
    if (req) respond_error(req, &error);
    api_request_deinit(&t->request);
    mem_free(t);
}

void handle_count_tokens(struct http_request *req) {
    struct count_task *t = mem_zalloc(sizeof(*t));
    if (!t) {
        respond_out_of_memory(req);
        return;
    }
    t->key = req->key;
    t->base.work = count_prompt;
    t->base.done = finish_count;
    t->answer.request = &t->request;
    api_request_init(&t->request, req->codec);
    http_request_read(
        req, &(struct http_request_reader){.self = t, .read = read_count, .done = count_was_read});
}
