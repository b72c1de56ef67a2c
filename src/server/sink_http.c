/* server/sink_http.c - an answer as an HTTP response: whole, as a stream, or "202 Accepted".
 *
 * A whole answer with log-probabilities may be a hundred times its text, so a long one is written
 * in libuv's pool; its sink stays with the generation until that is done, even if the client has
 * gone away.
 *
 * A stream is server-sent events or lines of JSON, as its codec says. All events that are ready go
 * into one write. Back-pressure: while more than STREAM_BACKLOG_BYTES wait for a slow client, its
 * encoder is not run; the events stay in the generation's log, and other clients are not affected.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "server/http_request.h"
#include "server/local_request.h"
#include "server/sink.h"
#include "server/task_int.h"

enum {
    EVENTS_A_RUN = 64,
    POOL_FROM_ENTRIES = 4096, /* of log-probabilities; writing one takes about a microsecond */
    ENTRY_BYTES = 64,         /* of the response that an entry takes, about */
};
static const size_t WHOLE_BYTES_MAX = (size_t)1 << 28;

/* ---- whole ---- */

struct whole_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct whole_task *whole;  /* being written in the pool, or written; NULL: not begun */
};

struct whole_task {
    struct task base;
    struct whole_sink *sink;
    struct buf body;
    bool is_starting; /* begin_whole has not returned: its caller goes on with the sink */
    bool is_written;
};

/* Of log-probabilities. */
static uint64_t entries_of(const struct answer *a) {
    const struct api_request *q = a->request;
    uint64_t tokens = answer_completion_tokens(a) + (q->prompt_logprobs ? a->prompt_tokens : 0);
    return q->logprobs ? tokens * (1 + q->top_logprobs) : 0;
}

static bool is_long(const struct answer *a) { return entries_of(a) >= POOL_FROM_ENTRIES; }

/* On any thread: the answer is done and does not change. */
static void write_whole(struct task *task) {
    struct whole_task *w = (struct whole_task *)task;
    const struct answer *a = &w->sink->base.generation->answer;
    a->request->codec->whole(a, &w->body);
}

static void whole_is_written(struct task *task) {
    struct whole_task *w = (struct whole_task *)task;
    w->is_written = true;
    if (!w->is_starting) generation_resume_sink(w->sink->base.generation, &w->sink->base);
}

/* False: there is nothing to wait for. */
static bool begin_whole(struct whole_sink *p) {
    struct whole_task *w = mem_zalloc(sizeof(*w));
    if (!w) return false;
    const struct generation *gen = p->base.generation;
    *w = (struct whole_task){.base = {.key = gen->key,
                                      .item = {.is_continuing = true},
                                      .bytes = entries_of(&gen->answer) * ENTRY_BYTES,
                                      .work = write_whole,
                                      .done = whole_is_written},
                             .sink = p,
                             .is_starting = true};
    buf_init(&w->body, WHOLE_BYTES_MAX);
    p->whole = w;
    task_run_alone(&w->base, p->http->server, true);
    w->is_starting = false;
    return !w->is_written; /* refused: its error is known already */
}

static void respond_whole(struct http_request *req, const struct answer *a) {
    struct buf body;
    buf_init(&body, WHOLE_BYTES_MAX);
    a->request->codec->whole(a, &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

/* The next process answers the request. An error would say that nothing was done, and a client that
 * repeats the request would have it done twice; so the connection breaks, as in a crash. */
static void break_off(struct http_request *req) {
    respond_begin(req, &(struct response){.status = 503});
    respond_abort(req);
}

static bool whole_advance(struct sink *s) {
    struct whole_sink *p = (struct whole_sink *)s;
    const struct answer *a = &s->generation->answer;
    if (!answer_is_done(a) || (p->whole && !p->whole->is_written)) return false;
    bool is_fine = a->failure.status == 0;
    if (is_fine && !p->whole && is_long(a) && begin_whole(p)) return false;
    struct http_request *req = p->http;
    p->http = NULL;
    if (!req) return true;
    req->warning = a->warning;
    if (req->is_local)
        local_request_count(req, a->prompt_tokens, a->cached_tokens, answer_completion_tokens(a));
    if (generation_is_left_open(s->generation))
        break_off(req);
    else if (!is_fine)
        respond_error(req, &a->failure);
    else if (p->whole && p->whole->base.status != ST_OK)
        respond_error(req, &p->whole->base.error); /* the pool did not take it */
    else if (p->whole)
        respond_json(req, &p->whole->body);
    else
        respond_whole(req, a);
    return true;
}

static void whole_refuse(struct sink *s, const struct api_error *e) {
    struct whole_sink *p = (struct whole_sink *)s;
    struct http_request *req = p->http;
    p->http = NULL;
    respond_error(req, e);
}

static void whole_destroy(struct sink *s) {
    struct whole_sink *p = (struct whole_sink *)s;
    if (p->whole) buf_deinit(&p->whole->body);
    mem_free(p->whole);
    mem_free(p);
}

static void whole_gone(struct http_request *req) {
    struct whole_sink *p = req->owner;
    p->http = NULL;
    if (!p->whole)
        generation_detach_sink(p->base.generation, &p->base); /* else when it is written */
}

static const struct sink_kind whole_kind = {
    .name = "plain", .advance = whole_advance, .refuse = whole_refuse, .destroy = whole_destroy};

static struct whole_sink *whole_create(struct http_request *req, const struct sink_kind *kind) {
    struct whole_sink *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->base.kind = kind;
    p->http = req;
    req->owner = p;
    req->on_gone = whole_gone;
    return p;
}

struct sink *sink_whole_create(struct http_request *req) {
    struct whole_sink *p = whole_create(req, &whole_kind);
    return p ? &p->base : NULL;
}

/* ---- "202 Accepted" with the location of the answer ---- */

static bool async_advance(struct sink *s) {
    struct whole_sink *p = (struct whole_sink *)s;
    const struct generation *gen = s->generation;
    struct http_request *req = p->http;
    char body[GENERATION_ID_BYTES + 64], location[GENERATION_ID_BYTES + 32];
    p->http = NULL;
    int len = snprintf(body, sizeof(body), "{\"id\":\"%s\",\"status\":\"%s\"}", gen->answer.id,
                       generation_stage_name(gen->stage));
    int location_len = snprintf(location, sizeof(location), "/v1/requests/%s", gen->answer.id);
    struct http_header headers[] = {
        {STR("location"), {location, (size_t)location_len}},
        {STR("preference-applied"), STR("respond-async")},
    };
    respond(req,
            &(struct response){
                .status = 202, .body = {body, (size_t)len}, .headers = headers, .header_count = 2});
    return true;
}

static const struct sink_kind async_kind = {
    .name = "later", .advance = async_advance, .refuse = whole_refuse, .destroy = whole_destroy};

struct sink *sink_async_create(struct http_request *req) {
    struct whole_sink *p = whole_create(req, &async_kind);
    return p ? &p->base : NULL;
}

/* ---- the object of an answer that has just been accepted ---- */

static bool queued_advance(struct sink *s) {
    struct whole_sink *p = (struct whole_sink *)s;
    const struct answer *a = &s->generation->answer;
    struct http_request *req = p->http;
    struct buf body;
    p->http = NULL;
    buf_init(&body, WHOLE_BYTES_MAX);
    a->request->codec->state(a, "queued", &body);
    respond_json(req, &body);
    buf_deinit(&body);
    return true;
}

static const struct sink_kind queued_kind = {
    .name = "queued", .advance = queued_advance, .refuse = whole_refuse, .destroy = whole_destroy};

struct sink *sink_queued_create(struct http_request *req) {
    struct whole_sink *p = whole_create(req, &queued_kind);
    return p ? &p->base : NULL;
}

/* ---- streamed ---- */

struct stream_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct encoder encoder;
    bool is_sse;
    bool is_waiting;           /* for the client to read */
    struct list_link in_pings; /* SSE only: heartbeats */
    uint64_t written_ms;
};

static void stop_pings(struct stream_sink *t) {
    struct list *pings = &t->http->server->pings;
    if (list_has(pings, &t->in_pings)) list_remove(pings, &t->in_pings);
}

/* It was just written to, so its next heartbeat is the last to come. */
static void delay_ping(struct stream_sink *t) {
    struct server *s = t->http->server;
    if (!t->is_sse) return;
    stop_pings(t);
    t->written_ms = uv_now(&s->loop);
    list_push_last(&s->pings, &t->in_pings);
}

static void flush(struct stream_sink *t) {
    http_stream_flush(t->http->x);
    delay_ping(t);
}

void sink_streams_ping(struct server *s) {
    uint64_t every_ms = (uint64_t)(s->settings.ping_s * 1000), now_ms = uv_now(&s->loop);
    if (every_ms == 0) return;
    while (s->pings.first) {
        struct stream_sink *t = LIST_ITEM(s->pings.first, struct stream_sink, in_pings);
        if (t->written_ms + every_ms > now_ms) return;
        if (!t->is_waiting) http_stream_put(t->http->x, STR(": ping\n\n"));
        flush(t);
    }
}

static void begin_stream(struct stream_sink *t) {
    static const struct http_header headers[] = {
        {{"cache-control", 13}, {"no-store", 8}},
        {{"x-accel-buffering", 17}, {"no", 2}},
    };
    t->http->warning = t->base.generation->answer.warning;
    const char *type = t->is_sse ? "text/event-stream; charset=utf-8" : "application/x-ndjson";
    respond_begin(t->http, &(struct response){
                               .status = 200, .type = type, .headers = headers, .header_count = 2});
    flush(t);
}

static bool end_stream(struct stream_sink *t) {
    struct http_request *req = t->http;
    stop_pings(t);
    t->http = NULL;
    respond_end(req);
    return true;
}

/* The client must see that something is missing: there is no memory for the next event, or the next
 * process goes on with the answer. */
static bool abort_stream(struct stream_sink *t) {
    struct http_request *req = t->http;
    stop_pings(t);
    t->http = NULL;
    respond_abort(req);
    return true;
}

static bool stream_advance(struct sink *s) {
    struct stream_sink *t = (struct stream_sink *)s;
    if (!s->has_begun) begin_stream(t);
    if (generation_is_left_open(s->generation)) return abort_stream(t);
    while (!t->is_waiting) {
        const uint32_t pieces = t->encoder.pieces;
        bool is_all = encoder_run(&t->encoder, EVENTS_A_RUN, http_stream_buf(t->http->x));
        if (t->encoder.status != ST_OK) return abort_stream(t);
        if (t->encoder.has_ended) return end_stream(t);
        if (t->encoder.pieces > pieces) flush(t);
        t->is_waiting = http_backlog(t->http->x) > STREAM_BACKLOG_BYTES;
        if (is_all) break;
    }
    return false;
}

static void stream_refuse(struct sink *s, const struct api_error *e) {
    struct stream_sink *t = (struct stream_sink *)s;
    struct http_request *req = t->http;
    t->http = NULL;
    respond_error(req, e);
}

static void stream_destroy(struct sink *s) {
    struct stream_sink *t = (struct stream_sink *)s;
    CHECK(!t->http);
    encoder_deinit(&t->encoder);
    mem_free(t);
}

static void stream_gone(struct http_request *req) {
    struct stream_sink *t = req->owner;
    stop_pings(t);
    t->http = NULL;
    generation_detach_sink(t->base.generation, &t->base);
}

static void stream_writable(struct http_request *req) {
    struct stream_sink *t = req->owner;
    t->is_waiting = false;
    generation_resume_sink(t->base.generation, &t->base);
}

static const struct sink_kind stream_kind = {.name = "stream",
                                             .advance = stream_advance,
                                             .refuse = stream_refuse,
                                             .destroy = stream_destroy};

struct sink *sink_stream_create(struct http_request *req, const struct generation *gen,
                                uint32_t after) {
    struct stream_sink *t = mem_zalloc(sizeof(*t));
    if (!t) return NULL;
    const struct codec *codec = gen->request.codec;
    t->base.kind = &stream_kind;
    t->http = req;
    t->is_sse = codec->framing == FRAMING_SSE;
    encoder_init(&t->encoder, codec, &gen->answer, after, codec->framing);
    req->owner = t;
    req->on_gone = stream_gone;
    req->on_writable = stream_writable;
    return &t->base;
}
