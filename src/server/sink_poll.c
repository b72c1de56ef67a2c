/* server/sink_poll.c - an answer by asking for it: GET and DELETE /v1/requests/ID.
 *
 * A poller names the last event that it has and gets those behind it, at once if there are any or
 * the answer is done, else when one comes or its patience ends. The encoder of the last poll stays
 * with the generation, so that asking event by event costs no more than a stream.
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "server/handlers.h"
#include "server/server_int.h"
#include "server/sink.h"

enum { EVENTS_A_RUN = 64, EVENTS_A_POLL = 512, WAIT_MS_MAX = 60000 };
static const size_t POLL_BYTES_MAX = (size_t)1 << 28;

struct poll_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct buf events;         /* JSON, with commas between them */
    uint32_t count;
    uv_timer_t timer;
    bool is_late;
};

static void put_event(void *ctx, uint32_t number, struct str name, struct str data) {
    struct poll_sink *p = ctx;
    struct buf *b = &p->events;
    buf_printf(b, "%s{\"id\":%u,\"event\":", p->count ? "," : "", number);
    if (name.len > 0)
        buf_put_json_string(b, name);
    else
        buf_put_text(b, "null");
    buf_put_text(b, ",\"data\":");
    if (str_starts(data, STR("{")))
        buf_put_str(b, data);
    else
        buf_put_json_string(b, data); /* "[DONE]" */
    buf_put_char(b, '}');
    p->count++;
}

static const char *status_of(const struct generation *r) {
    uint32_t failure = r->answer.failure.status;
    if (failure != 0) return failure == 499 ? "cancelled" : "failed";
    return answer_is_done(&r->answer) ? "completed" : generation_stage_name(r->stage);
}

static void answer(struct poll_sink *p) {
    const struct generation *r = p->base.generation;
    const struct encoder *enc = r->poll;
    struct http_request *v = p->http;
    struct buf body;
    uint32_t next = enc->pieces > enc->after ? enc->pieces : enc->after;
    buf_init(&body, POLL_BYTES_MAX);
    buf_printf(&body, "{\"id\":\"%s\",\"status\":\"%s\",\"events\":[", r->answer.id, status_of(r));
    buf_put_str(&body, buf_str(&p->events));
    buf_printf(&body, "],\"next\":%u,\"done\":%s}", next, enc->has_ended ? "true" : "false");
    if (buf_status(&p->events) != ST_OK) body.status = buf_status(&p->events);
    p->http = NULL;
    http_request_reply_json(v, &body);
    buf_deinit(&body);
}

static bool poll_begin(struct sink *s) {
    (void)s;
    return false;
}

/* The generation's encoder writes to whoever polls at the moment. */
static bool poll_advance(struct sink *s) {
    struct poll_sink *p = (struct poll_sink *)s;
    struct encoder *enc = s->generation->poll;
    enc->ctx = p;
    bool is_all = false;
    while (!is_all && p->count < EVENTS_A_POLL && enc->status == ST_OK)
        is_all = encoder_run(enc, EVENTS_A_RUN);
    if (enc->status != ST_OK) p->events.status = enc->status;
    if (p->count == 0 && !enc->has_ended && !p->is_late && enc->status == ST_OK) return false;
    answer(p);
    return true;
}

static void poll_refuse(struct sink *s, const struct api_error *e) {
    struct poll_sink *p = (struct poll_sink *)s;
    struct http_request *v = p->http;
    p->http = NULL;
    http_request_refuse(v, e);
}

static void free_poll(uv_handle_t *timer) { mem_free(timer->data); }

static void poll_destroy(struct sink *s) {
    struct poll_sink *p = (struct poll_sink *)s;
    buf_deinit(&p->events);
    uv_close((uv_handle_t *)&p->timer, free_poll);
}

static void poll_gone(struct http_request *v) {
    struct poll_sink *p = v->owner;
    p->http = NULL;
    http_request_free(v);
    generation_detach(p->base.generation, &p->base);
}

static void poll_late(uv_timer_t *timer) {
    struct poll_sink *p = timer->data;
    p->is_late = true;
    generation_wake(p->base.generation, &p->base);
}

static const struct sink_kind poll_kind = {.name = "poll",
                                           .begin = poll_begin,
                                           .advance = poll_advance,
                                           .refuse = poll_refuse,
                                           .destroy = poll_destroy};

/* The generation's encoder, standing behind event `after`. */
static bool place_encoder(struct generation *r, uint32_t after) {
    bool fits = r->poll && r->poll->pieces == after && r->poll->after <= after;
    if (fits && r->poll->status == ST_OK) return true;
    if (!r->poll) r->poll = mem_zalloc(sizeof(*r->poll));
    if (!r->poll) return false;
    if (r->poll->codec) encoder_deinit(r->poll);
    encoder_init(r->poll, r->request.codec, &r->answer, after, put_event, NULL);
    return true;
}

/* Two pollers at a time would take each other's events: the earlier one gets what there is. */
static void end_other_polls(struct generation *r) {
    for (struct sink *s = r->sinks, *next; s; s = next) {
        next = s->next;
        if (s->kind != &poll_kind) continue;
        answer((struct poll_sink *)s);
        generation_over(r, s);
    }
}

void sink_poll(struct http_request *v, struct generation *r, uint32_t after, uint64_t wait_ms) {
    struct poll_sink *p = mem_zalloc(sizeof(*p));
    if (p) end_other_polls(r);
    if (!p || !place_encoder(r, after)) {
        mem_free(p);
        http_request_refuse_memory(v);
        return;
    }
    p->base.kind = &poll_kind;
    p->http = v;
    buf_init(&p->events, POLL_BYTES_MAX);
    v->owner = p;
    v->on_gone = poll_gone;
    CHECK(uv_timer_init(&v->server->loop, &p->timer) == 0);
    p->timer.data = p;
    p->is_late = wait_ms == 0 || v->server->is_draining;
    if (wait_ms > WAIT_MS_MAX) wait_ms = WAIT_MS_MAX;
    if (!p->is_late) uv_timer_start(&p->timer, poll_late, wait_ms, 0);
    generation_join(r, &p->base);
}

/* ---- the handlers ---- */

/* To others than whoever asked it does not exist. */
static struct generation *find_own(struct http_request *v) {
    struct generation *r = generation_find(v->server->generations, v->key, v->arg);
    if (r && (r->is_findable || !r->has_ended)) return r;
    struct api_error e = {0};
    api_refuse(&e, 404, NULL, "request_not_found",
               "there is no request \"%.*s\"; finished ones are kept for %.0f s", STR_ARG(v->arg),
               v->server->settings.keep_s);
    http_request_refuse(v, &e);
    return NULL;
}

static bool accepts_events(const struct http_request *v) {
    struct str accept = http_find(v->head, "accept");
    return str_starts(accept, STR("text/event-stream"));
}

/* The header outweighs ?after=N. */
static void resume_stream(struct http_request *v, struct generation *r, uint64_t after) {
    struct str last = str_trim(http_find(v->head, "last-event-id"));
    if (last.len > 0 && !str_to_u64(last, &after)) {
        struct api_error e = {0};
        api_refuse(&e, 400, "last-event-id", NULL,
                   "last-event-id is \"%.*s\"; it must be a whole number", STR_ARG(last));
        http_request_refuse(v, &e);
        return;
    }
    struct sink *s = sink_stream_create(v, r, after > UINT32_MAX ? UINT32_MAX : (uint32_t)after);
    if (s)
        generation_join(r, s);
    else
        http_request_refuse_memory(v);
}

void handle_generation_get(struct http_request *v) {
    uint64_t after, wait_ms;
    struct generation *r = find_own(v);
    if (!r) return;
    if (!http_request_query_u64(v, "after", 0, &after)) return;
    if (!http_request_query_u64(v, "wait_ms", 0, &wait_ms)) return;
    if (accepts_events(v))
        resume_stream(v, r, after);
    else
        sink_poll(v, r, after > UINT32_MAX ? UINT32_MAX : (uint32_t)after, wait_ms);
}

void handle_generation_delete(struct http_request *v) {
    struct generation *r = find_own(v);
    if (!r) return;
    char body[GENERATION_ID_BYTES + 64];
    bool was_live = !answer_is_done(&r->answer);
    int len = snprintf(body, sizeof(body), "{\"id\":\"%s\",\"status\":\"%s\"}", r->answer.id,
                       was_live ? "cancelled" : status_of(r));
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    if (was_live)
        generation_fail(r, &e);
    else
        generation_forget(r);
    http_request_reply(v, &(struct reply){.status = 200, .body = {body, (size_t)len}});
}
