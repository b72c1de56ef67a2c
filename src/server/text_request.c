/* server/text_request.c - POSTs that ask for text: admission, and which sink receives the answer.
 *
 * What costs nothing is looked at first: is there such a model, is it there, is there room in its
 * queue, may the key ask. Only then is the prompt made into tokens.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/handlers.h"
#include "report/log.h"
#include "server/registry.h"
#include "server/server_int.h"
#include "server/sink.h"
#include "server/text_request.h"

enum { SEED_SHIFT = 11, LOADING_RETRY_MS = 1000, DRAIN_RETRY_MS = 5000 };

static enum status refuse_loading(const struct server *s, const struct served_model *m,
                                  struct api_error *e) {
    struct load_progress p = registry_progress(s->registry);
    api_refuse(e, 503, NULL, "model_loading", "Loading model \"%s\": %s %.0f %%", m->name,
               p.model == m ? p.stage : load_state_name(m->state),
               p.model == m ? p.share * 100 : 0.0);
    e->retry_after_ms = LOADING_RETRY_MS;
    return ST_BAD;
}

enum status text_find_model(struct server *s, struct str name, struct served_model **out,
                            struct api_error *e) {
    struct served_model *m =
        name.ptr ? registry_find(s->registry, name) : registry_default(s->registry);
    if (!m)
        return api_refuse(e, 404, "model", "model_not_found",
                          "the model \"%.*s\" is not one that this server has; GET /v1/models "
                          "lists them",
                          STR_ARG(name));
    if (m->state == LOAD_FAILED)
        return api_refuse(e, 503, "model", "model_failed",
                          "the model \"%s\" could not be loaded; the server's log says why",
                          m->name);
    if (m->state != LOAD_READY) return refuse_loading(s, m, e);
    *out = m;
    return ST_OK;
}

static enum status refuse_draining(struct api_error *e) {
    api_refuse(e, 503, NULL, "shutting_down", "the server is shutting down");
    e->retry_after_ms = DRAIN_RETRY_MS;
    return ST_BAD;
}

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

/* The queue's limit, before any work is put into the prompt; the engine has the last word. */
static enum status check_room(const struct caller *a, const struct served_model *m,
                              const struct api_request *q, struct api_error *e) {
    uint32_t places = m->knobs.max_seqs + m->knobs.queue_max, wanted = choices_of(q);
    if (wanted > places)
        return api_refuse(e, 400, "n", NULL, "%u answers are asked for; at most %u can wait here",
                          wanted, places);
    if (m->live_choices + wanted > places)
        return refuse_queue(m, "queue_full", "too many requests wait already", e);
    if (wanted > keys_share(a->server->keys, a->key, places))
        return refuse_queue(m, "queue_share_full",
                            "as many requests of this API key wait already as is its share", e);
    return ST_OK;
}

static enum status check_choices(const struct server *s, const struct api_request *q,
                                 struct api_error *e) {
    if (q->n > (uint32_t)s->settings.n_max)
        return api_refuse(e, 400, "n", NULL, "n is %u; this server makes at most %" PRId64, q->n,
                          s->settings.n_max);
    return ST_OK;
}

/* ---- what headers say ---- */

static struct str header(const struct caller *a, const char *name) {
    return a->head ? http_find(a->head, name) : (struct str){0};
}

static enum status read_ms(const struct caller *a, const char *name, int64_t *us,
                           struct api_error *e) {
    struct str text = header(a, name);
    double ms;
    if (!text.ptr) return ST_OK;
    if (!str_to_f64(str_trim(text), &ms) || !(ms >= 0 && ms <= 86400000))
        return api_refuse(e, 400, name, NULL,
                          "%s is \"%.*s\"; it must be milliseconds, up to a day", name,
                          STR_ARG(text));
    *us = (int64_t)(ms * 1000);
    return ST_OK;
}

static enum status read_priority(const struct caller *a, struct urgency *u, struct api_error *e) {
    struct str text = header(a, "x-jitney-priority");
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

static enum status read_headers(const struct caller *a, struct api_request *q,
                                struct api_error *e) {
    int64_t smooth_us = q->smooth_ms * 1000;
    if (a->key && q->urgency.priority == 0) q->urgency.priority = a->key->priority;
    TRY(read_ms(a, "x-jitney-ttft-ms", &q->urgency.ttft_target_us, e));
    TRY(read_ms(a, "x-jitney-tpot-ms", &q->urgency.tpot_target_us, e));
    TRY(read_ms(a, "x-jitney-deadline-ms", &q->urgency.expires_us, e));
    TRY(read_ms(a, "x-jitney-smooth-ms", &smooth_us, e));
    q->smooth_ms = q->stream ? smooth_us / 1000 : 0;
    return read_priority(a, &q->urgency, e);
}

/* ---- admission ---- */

enum status text_begin_key(struct server *s, const struct key *key, int64_t arrived_us,
                           struct api_error *e) {
    int64_t wait_ms = 0;
    const char *limit = "";
    if (keys_begin(s->keys, key, 0, arrived_us, &wait_ms, &limit)) return ST_OK;
    api_refuse(e, 429, NULL, "rate_limit_exceeded", "the limit of %s of this API key is reached",
               limit);
    e->retry_after_ms = wait_ms > 0 ? wait_ms : 1;
    return ST_BAD;
}

static enum status check_all(const struct caller *a, struct api_request *q, struct served_model **m,
                             struct api_error *e) {
    struct server *s = a->server;
    if (s->is_draining) return refuse_draining(e);
    TRY(text_find_model(s, q->model, m, e));
    CHECK(*m);
    if (!(*m)->engine)
        return api_refuse(e, 400, "model", NULL,
                          "the model \"%s\" gives embeddings and writes no text", (*m)->name);
    TRY(check_choices(s, q, e));
    TRY(check_room(a, *m, q, e));
    TRY(read_headers(a, q, e));
    return text_begin_key(s, a->key, a->arrived_us, e);
}

/* 53 bits, so that every reader of JSON keeps it whole. */
static void draw_seed(struct api_request *q) {
    uint64_t seed;
    if (q->has_seed) return;
    CHECK(getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed));
    q->sample.seed = seed >> SEED_SHIFT;
}

enum status text_admit(const struct caller *a, struct api_request *q, struct generation **out,
                       struct api_error *e) {
    struct server *s = a->server;
    struct served_model *m = NULL;
    enum status st = check_all(a, q, &m, e);
    if (st != ST_OK) {
        api_request_deinit(q);
        return st;
    }
    draw_seed(q);
    struct generation_spec spec = {.model = m,
                                   .key = a->key,
                                   .route = a->route,
                                   .id = str_of(a->id),
                                   .request_id = str_of(a->request_id),
                                   .request = q,
                                   .arrived_us = a->arrived_us,
                                   .body_bytes = a->body_bytes};
    if (generation_create(s->generations, &spec, out) != ST_OK) {
        keys_end(s->keys, a->key, 0, a->arrived_us);
        return api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this");
    }
    struct generation *gen = *out;
    keys_hold(s->keys, a->key, gen->answer.choice_count);
    gen->timeout_us = (int64_t)(s->settings.request_timeout_s * 1e6);
    gen->survives = str_is(header(a, "x-jitney-keep"), "true");
    gen->is_findable = gen->survives || gen->request.stream;
    trace_id_read(header(a, "traceparent"), &gen->trace);
    return ST_OK;
}

static bool wants_later(const struct http_request *req) {
    struct str prefer = http_find(req->head, "prefer");
    for (size_t i = 0; i < prefer.len; i++)
        if (str_starts(str_skip(prefer, i), STR("respond-async"))) return true;
    return false;
}

static struct sink *choose_sink(struct http_request *req, struct generation *gen) {
    if (wants_later(req)) {
        gen->survives = gen->is_findable = true;
        return sink_async_create(req);
    }
    return gen->request.stream ? sink_stream_create(req, gen, 0) : sink_whole_create(req);
}

enum status text_decode(const struct codec *codec, struct json *doc, struct api_request *q,
                        struct api_error *e) {
    api_request_init(q, codec);
    enum status st = codec->decode(doc, q, e);
    if (st != ST_OK && st != ST_BAD)
        api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this request");
    return st;
}

static struct caller caller_of(const struct http_request *req) {
    return (struct caller){.server = req->server,
                           .key = req->key,
                           .route = req->route->path,
                           .id = req->id,
                           .request_id = req->request_id,
                           .head = req->head,
                           .arrived_us = req->arrived_us,
                           .body_bytes = http_body(req->x).len};
}

/* A request that is being read. */
struct reading {
    const struct codec *codec;
    struct api_request request;
};

static enum status read_request(void *self, struct json *body, struct api_error *e) {
    struct reading *t = self;
    return text_decode(t->codec, body, &t->request, e);
}

static void go(struct http_request *req, struct api_request *q) {
    struct api_error e = {0};
    struct generation *gen;
    struct caller caller = caller_of(req);
    if (text_admit(&caller, q, &gen, &e) != ST_OK) {
        respond_error(req, &e);
        return;
    }
    struct sink *sink = choose_sink(req, gen);
    if (sink)
        generation_add_sink(gen, sink);
    else
        respond_out_of_memory(req);
    if (!sink) gen->survives = false;
    generation_start(gen); /* without a sink it ends at once */
}

static void was_read(void *self, struct http_request *req, enum status st,
                     const struct api_error *e) {
    struct reading *t = self;
    if (req && st == ST_OK)
        go(req, &t->request);
    else if (req)
        respond_error(req, e);
    api_request_deinit(&t->request);
    mem_free(t);
}

void handle_text(struct http_request *req) {
    struct reading *t = mem_zalloc(sizeof(*t));
    if (!t) {
        respond_out_of_memory(req);
        return;
    }
    t->codec = req->codec;
    api_request_init(&t->request, req->codec);
    http_request_read(
        req, &(struct http_request_reader){.self = t, .read = read_request, .done = was_read});
}

/* ---- the end of a generation ---- */

static int64_t wall_us(int64_t at_us) {
    if (at_us == 0) return 0;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return now_us - (clock_now(&clock_real) - at_us);
}

static enum finish_reason finish_of(const struct generation *gen) {
    switch (gen->answer.failure.status) {
    case 0:
        return gen->answer.choices[0].finish;
    case 499:
        return FINISH_CANCELLED;
    case 504:
        return FINISH_EXPIRED;
    case 400:
    case 429:
        return FINISH_REFUSED;
    default:
        return FINISH_ERROR;
    }
}

static void log_generation(struct server *s, const struct generation *gen) {
    const struct answer *a = &gen->answer;
    uint32_t status = a->failure.status ? a->failure.status : 200;
    enum log_level level = status >= 500 ? LOG_WARN : LOG_INFO;
    if (!log_wants(s->log, level)) return;
    double ttft_ms = a->first_token_us ? (double)(a->first_token_us - a->arrived_us) / 1e3 : 0;
    struct log_field fields[] = {
        log_text("id", str_of(gen->request_id)),
        log_text("answer", str_of(a->id)),
        log_text("route", str_of(gen->route)),
        log_text("model", a->model),
        log_text("key", str_of(gen->key ? gen->key->name : "")),
        log_int("status", status),
        log_text("finish", str_of(finish_name(finish_of(gen)))),
        log_int("prompt_tokens", a->prompt_tokens),
        log_int("cached_tokens", a->cached_tokens),
        log_int("completion_tokens", answer_completion_tokens(a)),
        log_real("ttft_ms", ttft_ms),
        log_real("total_ms", (double)(a->finished_us - a->arrived_us) / 1e3),
        log_text("error", str_of(a->failure.message.text)),
    };
    uint32_t count = sizeof(fields) / sizeof(fields[0]);
    log_line(s->log, level, "request", fields, a->failure.status ? count : count - 1);
}

static void log_prompt(struct server *s, const struct generation *gen) {
    struct buf text;
    if (!s->settings.log_prompts || !log_wants(s->log, LOG_INFO)) return;
    buf_init(&text, 1 << 16);
    json_put(gen->request.doc, &text);
    struct log_field fields[] = {log_text("id", str_of(gen->request_id)),
                                 log_text("body", buf_str(&text))};
    log_line(s->log, LOG_INFO, "prompt", fields, 2);
    buf_clear(&text);
    for (uint32_t i = 0; i < event_log_count(gen->answer.log); i++)
        buf_put_str(&text, event_log_at(gen->answer.log, i).text);
    fields[1] = log_text("text", buf_str(&text));
    log_line(s->log, LOG_INFO, "answer", fields, 2);
    buf_deinit(&text);
}

static void trace_generation(struct server *s, const struct generation *gen) {
    const struct answer *a = &gen->answer;
    if (!s->tracer) return;
    struct trace_request t = {.id = gen->trace,
                              .request_id = gen->request_id,
                              .model = gen->model->name,
                              .route = gen->route,
                              .finish = finish_name(finish_of(gen)),
                              .status = a->failure.status ? a->failure.status : 200,
                              .prompt_tokens = a->prompt_tokens,
                              .completion_tokens = answer_completion_tokens(a),
                              .cached_tokens = a->cached_tokens,
                              .max_tokens = gen->request.max_tokens,
                              .n = gen->request.n,
                              .temperature = (double)gen->request.sample.temperature,
                              .top_p = (double)gen->request.sample.top_p,
                              .arrived_us = wall_us(a->arrived_us),
                              .started_us = wall_us(gen->started_us),
                              .first_token_us = wall_us(a->first_token_us),
                              .finished_us = wall_us(a->finished_us)};
    tracer_add(s->tracer, &t);
}

static uint32_t longest_of(const struct answer *a) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < a->choice_count; i++)
        if (a->choices[i].answer_tokens > longest) longest = a->choices[i].answer_tokens;
    return longest;
}

void text_ended(struct server *s, struct generation *gen) {
    const struct answer *a = &gen->answer;
    uint32_t tokens = answer_completion_tokens(a);
    struct metrics_generation m = {.model = gen->model->metrics_idx,
                                   .finish = finish_of(gen),
                                   .prompt_tokens = a->prompt_tokens,
                                   .completion_tokens = tokens,
                                   .max_tokens =
                                       gen->request.has_max_tokens ? gen->request.max_tokens : 0,
                                   .n = gen->request.n,
                                   .longest_tokens = longest_of(a),
                                   .arrived_us = a->arrived_us,
                                   .started_us = gen->started_us,
                                   .first_token_us = a->first_token_us,
                                   .finished_us = a->finished_us};
    server_metrics_generation(s->metrics, &m);
    keys_end(s->keys, gen->key, tokens + a->prompt_tokens, clock_now(&clock_real));
    keys_drop(s->keys, gen->key, a->choice_count);
    log_generation(s, gen);
    log_prompt(s, gen);
    trace_generation(s, gen);
}
