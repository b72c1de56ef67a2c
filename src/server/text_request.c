/* server/text_request.c - requests for text: read, check, choose a sink, start.
 *
 * The cheap checks come first: is the model known and loaded, has its queue room, is the key within
 * its limits. The prompt is rendered and tokenised only after all of them.
 */
#include "server/text_request.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"
#include "server/routes.h"
#include "server/sink.h"
#include "server/task_int.h"

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

/* ---- checks ---- */

static enum status check_all(struct server *s, const struct http_head *head,
                             struct generation_spec *spec, struct api_error *e) {
    TRY(server_check_draining(s, e));
    TRY(registry_find_ready(s->registry, spec->request->model, &spec->model, e));
    if (!spec->model->engine)
        return api_refuse(e, 400, "model", NULL,
                          "the model \"%s\" gives embeddings and writes no text",
                          spec->model->name);
    TRY(check_choices(s, spec->request, e));
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
    st = generation_create(s->generations, spec, out, e);
    if (st != ST_OK) {
        keys_end(s->keys, spec->key, 0, 0, spec->arrived_us);
        return ST_BAD;
    }
    struct generation *gen = *out;
    keys_hold(s->keys, spec->key, gen->model->metrics_idx, gen->answer.choice_count);
    gen->timeout_us = (int64_t)(s->settings.request_timeout_s * 1e6);
    gen->survives = str_is(header(head, "x-jitney-keep"), "true");
    gen->is_findable = gen->survives || gen->request.stream;
    if (s->tracer) trace_id_read(header(head, "traceparent"), &gen->trace);
    return ST_OK;
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
    return gen->request.stream ? sink_stream_create(req, gen, 0) : sink_whole_create(req);
}

static void start_generation(struct http_request *req, struct api_request *q) {
    struct api_error e = {0};
    struct generation *gen;
    struct generation_spec spec = {.key = req->grant.key,
                                   .route = req->route->path,
                                   .id = str_of(req->id),
                                   .request_id = str_of(req->request_id),
                                   .request = q,
                                   .arrived_us = req->arrived_us};
    if (text_generation_create(req->server, req->head, &spec, &gen, &e) != ST_OK) {
        respond_error(req, &e);
        return;
    }
    struct sink *sink = choose_sink(req, gen);
    if (!sink) {
        gen->survives = false;
        respond_out_of_memory(req);
    }
    generation_start(gen, sink);
}

/* A body while it is read. */
struct text_task {
    struct task base;
    struct api_request request;
};

static enum status read_text_body(struct task *task, struct json *doc) {
    struct text_task *t = (struct text_task *)task;
    return codec_read_body(task->codec, doc, task->logs_body, &t->request, &task->error);
}

static void on_body_read(struct task *task) {
    struct text_task *t = (struct text_task *)task;
    if (task->http && task->status == ST_OK)
        start_generation(task->http, &t->request);
    else if (task->http)
        respond_error(task->http, &task->error);
    api_request_deinit(&t->request);
    mem_free(t);
}

void handle_text(struct http_request *req) {
    struct text_task *t = task_create(req, sizeof(*t), read_text_body, on_body_read);
    if (t) task_read_body(&t->base);
}
