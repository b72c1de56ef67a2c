/* server/sink_poll.c - an answer by polling: GET and DELETE /v1/requests/ID.
 *
 * A poll names the last event that the client has and gets the events after it: at once if there
 * are any or the answer is done, else when one comes or the poll's time is over. The encoder of
 * the last poll stays with the generation, so that polling event by event costs no more than a
 * stream.
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "server/generations.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/sink.h"
#include "server/stored_paths.h"

enum { EVENTS_A_RUN = 64, EVENTS_A_POLL = 512, WAIT_MS_MAX = 60000 };
static const size_t POLL_BYTES_MAX = (size_t)1 << 28;

struct poll_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct buf events;         /* JSON, with commas between them */
    uv_timer_t timer;
    bool is_time_over; /* it answers with what there is */
};

static const char *status_of(const struct generation *gen) {
    uint32_t failure = gen->answer.failure.status;
    if (failure != 0) return failure == 499 ? "cancelled" : "failed";
    return answer_is_done(&gen->answer) ? "completed" : generation_stage_name(gen->stage);
}

/* The number of the last event that was written or left out. */
static uint32_t next_of(const struct encoder *enc) {
    return enc->pieces > enc->after ? enc->pieces : enc->after;
}

static void send_events(struct poll_sink *p) {
    const struct generation *gen = p->base.generation;
    const struct encoder *enc = gen->poll;
    struct http_request *req = p->http;
    struct buf body;
    uint32_t next = next_of(enc);
    buf_init(&body, POLL_BYTES_MAX);
    buf_printf(&body, "{\"id\":\"%s\",\"status\":\"%s\",\"events\":[", gen->answer.id,
               status_of(gen));
    buf_put_str(&body, buf_str(&p->events));
    buf_printf(&body, "],\"next\":%u,\"done\":%s}", next, enc->has_ended ? "true" : "false");
    if (buf_status(&p->events) != ST_OK) body.status = buf_status(&p->events);
    p->http = NULL;
    respond_json(req, &body);
    buf_deinit(&body);
}

static void poll_refuse(struct sink *s, const struct api_error *e) {
    struct poll_sink *p = (struct poll_sink *)s;
    struct http_request *req = p->http;
    p->http = NULL;
    respond_error(req, e);
}

/* The generation's encoder writes to the poll that is open. */
static bool poll_advance(struct sink *s) {
    struct poll_sink *p = (struct poll_sink *)s;
    struct encoder *enc = s->generation->poll;
    bool is_all = false;
    if (generation_is_left_open(s->generation)) {
        poll_refuse(s, &s->generation->answer.failure);
        return true;
    }
    const uint32_t first = next_of(enc);
    while (!is_all && next_of(enc) - first < EVENTS_A_POLL && enc->status == ST_OK)
        is_all = encoder_run(enc, EVENTS_A_RUN, &p->events);
    if (enc->status != ST_OK) p->events.status = enc->status;
    if (p->events.len == 0 && !enc->has_ended && !p->is_time_over && enc->status == ST_OK)
        return false;
    send_events(p);
    return true;
}

static void free_poll(uv_handle_t *timer) { mem_free(timer->data); }

static void poll_destroy(struct sink *s) {
    struct poll_sink *p = (struct poll_sink *)s;
    buf_deinit(&p->events);
    uv_close((uv_handle_t *)&p->timer, free_poll);
}

static void poll_gone(struct http_request *req) {
    struct poll_sink *p = req->owner;
    p->http = NULL;
    generation_detach_sink(p->base.generation, &p->base);
}

static void on_poll_timer(uv_timer_t *timer) {
    struct poll_sink *p = timer->data;
    p->is_time_over = true;
    generation_resume_sink(p->base.generation, &p->base);
}

static const struct sink_kind poll_kind = {
    .name = "poll", .advance = poll_advance, .refuse = poll_refuse, .destroy = poll_destroy};

/* Position the generation's encoder after event `after`. False: no memory. */
static bool place_encoder(struct generation *gen, uint32_t after) {
    bool fits = gen->poll && gen->poll->pieces == after && gen->poll->after <= after;
    if (fits && gen->poll->status == ST_OK) return true;
    if (!gen->poll) gen->poll = mem_zalloc(sizeof(*gen->poll));
    if (!gen->poll) return false;
    if (gen->poll->codec) encoder_deinit(gen->poll);
    encoder_init(gen->poll, gen->request.codec, &gen->answer, after, FRAMING_LIST);
    return true;
}

/* Two polls at a time would take each other's events: the earlier one is answered now. */
static void end_other_polls(struct generation *gen) {
    for (struct list_link *l = gen->sinks.first, *next; l; l = next) {
        struct sink *s = LIST_ITEM(l, struct sink, in_generation);
        next = l->next;
        if (s->kind != &poll_kind) continue;
        send_events((struct poll_sink *)s);
        generation_remove_sink(gen, s);
    }
}

static void start_poll(struct http_request *req, struct generation *gen, uint32_t after,
                       uint64_t wait_ms) {
    struct poll_sink *p = mem_zalloc(sizeof(*p));
    if (p) end_other_polls(gen);
    if (!p || !place_encoder(gen, after)) {
        mem_free(p);
        respond_out_of_memory(req);
        return;
    }
    p->base.kind = &poll_kind;
    p->http = req;
    buf_init(&p->events, POLL_BYTES_MAX);
    req->owner = p;
    req->on_gone = poll_gone;
    CHECK(uv_timer_init(&req->server->loop, &p->timer) == 0);
    p->timer.data = p;
    p->is_time_over = wait_ms == 0 || req->server->is_draining;
    if (wait_ms > WAIT_MS_MAX) wait_ms = WAIT_MS_MAX;
    if (!p->is_time_over) uv_timer_start(&p->timer, on_poll_timer, wait_ms, 0);
    generation_join_sink(gen, &p->base);
}

/* ---- the handlers ---- */

/* A generation is found with the key that started it, and no other. NULL: it is not in memory. */
static struct generation *find_own(struct http_request *req) {
    struct generation *gen = generation_find(req->server->generations, req->grant.key, req->arg);
    return gen && generation_is_visible(gen) ? gen : NULL;
}

static void refuse_unknown(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 404, NULL, "request_not_found",
               "unknown request \"%.*s\"; finished ones are kept for %.0f s", STR_ARG(req->arg),
               req->server->settings.keep_s);
    respond_error(req, &e);
}

static bool accepts_events(const struct http_request *req) {
    struct str accept = http_find(req->head, "accept");
    return str_starts(accept, STR("text/event-stream"));
}

/* The header Last-Event-ID has precedence over ?after=N. False: it was answered with 400. */
static bool read_after(struct http_request *req, uint32_t *out) {
    uint64_t after;
    if (!http_request_query_u64(req, "after", 0, &after)) return false;
    struct str last = str_trim(http_find(req->head, "last-event-id"));
    if (accepts_events(req) && last.len > 0 && !str_to_u64(last, &after)) {
        struct api_error e = {0};
        api_refuse(&e, 400, "last-event-id", NULL,
                   "last-event-id is \"%.*s\"; it must be a whole number", STR_ARG(last));
        respond_error(req, &e);
        return false;
    }
    *out = after > UINT32_MAX ? UINT32_MAX : (uint32_t)after;
    return true;
}

static void resume_stream(struct http_request *req, struct generation *gen, uint32_t after) {
    struct sink *s = sink_stream_create(req, gen, after);
    if (s)
        generation_join_sink(gen, s);
    else
        respond_out_of_memory(req);
}

void handle_generation_get(struct http_request *req) {
    uint64_t wait_ms;
    uint32_t after;
    struct generation *gen = find_own(req);
    if (!gen && !req->server->store) {
        refuse_unknown(req);
        return;
    }
    if (!read_after(req, &after)) return;
    if (!http_request_query_u64(req, "wait_ms", 0, &wait_ms)) return;
    if (!gen)
        stored_request_get(req, after, accepts_events(req));
    else if (accepts_events(req))
        resume_stream(req, gen, after);
    else
        start_poll(req, gen, after, wait_ms);
}

void handle_generation_delete(struct http_request *req) {
    struct generation *gen = find_own(req);
    if (gen ? gen->is_durable : req->server->store != NULL) {
        stored_request_delete(req, gen);
        return;
    }
    if (!gen) {
        refuse_unknown(req);
        return;
    }
    char body[GENERATION_ID_BYTES + 64];
    struct api_error e = {0};
    const bool is_live = !answer_is_done(&gen->answer);
    int len = snprintf(body, sizeof(body), "{\"id\":\"%s\",\"status\":\"%s\"}", gen->answer.id,
                       is_live ? "cancelled" : status_of(gen));
    api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    if (is_live)
        generation_fail(gen, &e); /* it may be freed here, and below */
    else
        generation_forget(gen);
    respond(req, &(struct response){.status = 200, .body = {body, (size_t)len}});
}
