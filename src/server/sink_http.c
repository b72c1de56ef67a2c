/* server/sink_http.c - an answer over its own exchange: whole, streamed, or promised for later.
 *
 * An answer with log-probabilities may be a hundred times its text, so a long one is written in the
 * pool; its sink stays with the generation until that is done, even if the client does not.
 *
 * A stream is server-sent events or lines, as its codec says. A wake-up of the generation puts all
 * events that are ready into one write. When a reader is slow the encoder is simply not run until
 * there is room: the log waits, and nobody else does.
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "server/task_int.h"
#include "server/server_int.h"
#include "server/sink.h"

enum {
    EVENTS_A_RUN = 64,
    NUMBER_BYTES = 16,
    POOL_FROM_ENTRIES = 4096, /* of log-probabilities; writing one takes about a microsecond */
};
static const size_t WHOLE_BYTES_MAX = (size_t)1 << 28;

/* ---- whole ---- */

struct plain_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct whole *whole;       /* being written in the pool, or written; NULL: not begun */
};

struct whole {
    struct task base;
    struct plain_sink *sink;
    struct buf body;
    bool is_written;
};

static bool plain_begin(struct sink *s) {
    (void)s;
    return false;
}

static bool is_much(const struct answer *a) {
    const struct api_request *q = a->request;
    uint64_t tokens = answer_completion_tokens(a) + (q->prompt_logprobs ? a->prompt_tokens : 0);
    return q->logprobs && tokens * (1 + q->top_logprobs) >= POOL_FROM_ENTRIES;
}

/* On any thread: the answer does not change any more. */
static void write_whole(struct task *c) {
    struct whole *w = (struct whole *)c;
    const struct answer *a = &w->sink->base.generation->answer;
    a->request->codec->whole(a, &w->body);
}

static void whole_is_written(struct task *c) {
    struct whole *w = (struct whole *)c;
    w->is_written = true;
    generation_wake(w->sink->base.generation, &w->sink->base);
}

static bool begin_whole(struct plain_sink *p) {
    struct whole *w = mem_zalloc(sizeof(*w));
    if (!w) return false;
    *w = (struct whole){.base = {.work = write_whole, .done = whole_is_written}, .sink = p};
    buf_init(&w->body, WHOLE_BYTES_MAX);
    p->whole = w;
    task_run_alone(&w->base, p->http->server, true);
    return true;
}

static void reply_whole(struct http_request *v, const struct answer *a) {
    struct buf body;
    buf_init(&body, WHOLE_BYTES_MAX);
    a->request->codec->whole(a, &body);
    http_request_reply_json(v, &body);
    buf_deinit(&body);
}

static bool plain_advance(struct sink *s) {
    struct plain_sink *p = (struct plain_sink *)s;
    const struct answer *a = &s->generation->answer;
    if (!answer_is_done(a) || (p->whole && !p->whole->is_written)) return false;
    bool is_fine = a->failure.status == 0;
    if (is_fine && !p->whole && is_much(a) && begin_whole(p)) return false;
    struct http_request *v = p->http;
    p->http = NULL;
    if (!v) return true;
    if (!is_fine)
        http_request_refuse(v, &a->failure);
    else if (p->whole)
        http_request_reply_json(v, &p->whole->body);
    else
        reply_whole(v, a);
    return true;
}

static void plain_refuse(struct sink *s, const struct api_error *e) {
    struct plain_sink *p = (struct plain_sink *)s;
    struct http_request *v = p->http;
    p->http = NULL;
    http_request_refuse(v, e);
}

static void plain_destroy(struct sink *s) {
    struct plain_sink *p = (struct plain_sink *)s;
    if (p->whole) buf_deinit(&p->whole->body);
    mem_free(p->whole);
    mem_free(p);
}

static void plain_gone(struct http_request *v) {
    struct plain_sink *p = v->owner;
    p->http = NULL;
    http_request_free(v);
    if (!p->whole) generation_detach(p->base.generation, &p->base); /* else when it is written */
}

static const struct sink_kind plain_kind = {.name = "plain",
                                            .begin = plain_begin,
                                            .advance = plain_advance,
                                            .refuse = plain_refuse,
                                            .destroy = plain_destroy};

static struct plain_sink *plain_create(struct http_request *v, const struct sink_kind *kind) {
    struct plain_sink *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->base.kind = kind;
    p->http = v;
    v->owner = p;
    v->on_gone = plain_gone;
    return p;
}

struct sink *sink_plain_create(struct http_request *v) {
    struct plain_sink *p = plain_create(v, &plain_kind);
    return p ? &p->base : NULL;
}

/* ---- for later: 202, and where to ask ---- */

static bool later_begin(struct sink *s) {
    struct plain_sink *p = (struct plain_sink *)s;
    const struct generation *r = s->generation;
    struct http_request *v = p->http;
    char body[GENERATION_ID_BYTES + 64], place[GENERATION_ID_BYTES + 32];
    p->http = NULL;
    int len = snprintf(body, sizeof(body), "{\"id\":\"%s\",\"status\":\"%s\"}", r->answer.id,
                       generation_stage_name(r->stage));
    int place_len = snprintf(place, sizeof(place), "/v1/requests/%s", r->answer.id);
    struct http_header headers[] = {
        {STR("location"), {place, (size_t)place_len}},
        {STR("preference-applied"), STR("respond-async")},
    };
    http_request_reply(
        v, &(struct reply){
               .status = 202, .body = {body, (size_t)len}, .headers = headers, .header_count = 2});
    return true;
}

static bool later_advance(struct sink *s) {
    (void)s;
    return true;
}

static const struct sink_kind later_kind = {.name = "later",
                                            .begin = later_begin,
                                            .advance = later_advance,
                                            .refuse = plain_refuse,
                                            .destroy = plain_destroy};

struct sink *sink_later_create(struct http_request *v) {
    struct plain_sink *p = plain_create(v, &later_kind);
    return p ? &p->base : NULL;
}

/* ---- streamed ---- */

struct stream_sink {
    struct sink base;
    struct http_request *http; /* NULL: it has ended */
    struct encoder encoder;
    bool is_sse, has_put;
    bool is_waiting; /* for the reader */
    bool is_listed;  /* for heartbeats */
    uint64_t spoke_ms;
    struct stream_sink *ping_next, *ping_prev;
};

static void unlist(struct stream_sink *t) {
    struct server *s = t->http->server;
    if (!t->is_listed) return;
    if (t->ping_prev)
        t->ping_prev->ping_next = t->ping_next;
    else
        s->pings_first = t->ping_next;
    if (t->ping_next)
        t->ping_next->ping_prev = t->ping_prev;
    else
        s->pings_last = t->ping_prev;
    t->is_listed = false;
}

/* Behind all the others: it has just said something. */
static void list_last(struct stream_sink *t) {
    struct server *s = t->http->server;
    if (!t->is_sse) return;
    unlist(t);
    t->spoke_ms = uv_now(&s->loop);
    t->ping_next = NULL;
    t->ping_prev = s->pings_last;
    if (s->pings_last)
        s->pings_last->ping_next = t;
    else
        s->pings_first = t;
    s->pings_last = t;
    t->is_listed = true;
}

static void flush(struct stream_sink *t) {
    http_stream_flush(t->http->x);
    t->has_put = false;
    list_last(t);
}

void sink_streams_ping(struct server *s) {
    uint64_t every_ms = (uint64_t)(s->settings.ping_s * 1000), now_ms = uv_now(&s->loop);
    if (every_ms == 0) return;
    while (s->pings_first && s->pings_first->spoke_ms + every_ms <= now_ms) {
        struct stream_sink *t = s->pings_first;
        if (!t->is_waiting) http_stream_put(t->http->x, STR(": ping\n\n"));
        flush(t);
    }
}

/* "id: N\n" without the cost of printf: this is done for every token. */
static void put_number(struct http_exchange *x, uint32_t number) {
    char text[NUMBER_BYTES];
    size_t at = sizeof(text);
    text[--at] = '\n';
    do text[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    http_stream_put(x, STR("id: "));
    http_stream_put(x, (struct str){text + at, sizeof(text) - at});
}

static void put_event(void *ctx, uint32_t number, struct str name, struct str data) {
    struct stream_sink *t = ctx;
    struct http_exchange *x = t->http->x;
    t->has_put = true;
    if (!t->is_sse) {
        http_stream_put(x, data);
        http_stream_put(x, STR("\n"));
        return;
    }
    put_number(x, number);
    if (name.len > 0) {
        http_stream_put(x, STR("event: "));
        http_stream_put(x, name);
        http_stream_put(x, STR("\n"));
    }
    http_stream_put(x, STR("data: "));
    http_stream_put(x, data);
    http_stream_put(x, STR("\n\n"));
}

static bool stream_begin(struct sink *s) {
    struct stream_sink *t = (struct stream_sink *)s;
    static const struct http_header headers[] = {
        {{"cache-control", 13}, {"no-store", 8}},
        {{"x-accel-buffering", 17}, {"no", 2}},
    };
    const char *type = t->is_sse ? "text/event-stream; charset=utf-8" : "application/x-ndjson";
    http_request_stream(
        t->http,
        &(struct reply){.status = 200, .type = type, .headers = headers, .header_count = 2});
    flush(t);
    return false;
}

/* The end of a stream that was told nothing wrong. */
static bool end_stream(struct stream_sink *t) {
    struct http_request *v = t->http;
    unlist(t);
    t->http = NULL;
    http_request_end(v);
    return true;
}

/* Memory lacks for the next event: the client must see that something is missing. */
static bool abort_stream(struct stream_sink *t) {
    struct http_request *v = t->http;
    unlist(t);
    t->http = NULL;
    http_request_abort(v);
    return true;
}

static bool stream_advance(struct sink *s) {
    struct stream_sink *t = (struct stream_sink *)s;
    while (!t->is_waiting) {
        bool is_all = encoder_run(&t->encoder, EVENTS_A_RUN);
        if (t->encoder.status != ST_OK) return abort_stream(t);
        if (t->encoder.has_ended) return end_stream(t);
        if (t->has_put) flush(t);
        t->is_waiting = http_backlog(t->http->x) > STREAM_BACKLOG_BYTES;
        if (is_all) break;
    }
    return false;
}

static void stream_refuse(struct sink *s, const struct api_error *e) {
    struct stream_sink *t = (struct stream_sink *)s;
    struct http_request *v = t->http;
    t->http = NULL;
    http_request_refuse(v, e);
}

static void stream_destroy(struct sink *s) {
    struct stream_sink *t = (struct stream_sink *)s;
    CHECK(!t->http);
    encoder_deinit(&t->encoder);
    mem_free(t);
}

static void stream_gone(struct http_request *v) {
    struct stream_sink *t = v->owner;
    unlist(t);
    t->http = NULL;
    http_request_free(v);
    generation_detach(t->base.generation, &t->base);
}

static void stream_room(struct http_request *v) {
    struct stream_sink *t = v->owner;
    t->is_waiting = false;
    generation_wake(t->base.generation, &t->base);
}

static const struct sink_kind stream_kind = {.name = "stream",
                                             .begin = stream_begin,
                                             .advance = stream_advance,
                                             .refuse = stream_refuse,
                                             .destroy = stream_destroy};

struct sink *sink_stream_create(struct http_request *v, const struct generation *r,
                                uint32_t after) {
    struct stream_sink *t = mem_zalloc(sizeof(*t));
    if (!t) return NULL;
    const struct codec *codec = r->request.codec;
    t->base.kind = &stream_kind;
    t->http = v;
    t->is_sse = codec->framing == FRAMING_SSE;
    encoder_init(&t->encoder, codec, &r->answer, after, put_event, t);
    v->owner = t;
    v->on_gone = stream_gone;
    v->on_room = stream_room;
    return &t->base;
}
