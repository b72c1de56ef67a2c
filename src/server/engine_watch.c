/* server/engine_watch.c - see server/engine_watch.h. */
#include "server/engine_watch.h"

#include <string.h>
#include <uv.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "engine/record_json.h"
#include "server/engine_paths.h"
#include "server/http_request.h"
#include "server/registry.h"

enum {
    WATCHERS_MAX = 64,
    TURN_MS = 50,
    BUSY_TURN_MS = 10,      /* while a watcher has more to be sent */
    PING_MS = 10000,        /* a comment after so long without an event */
    PIECE_BYTES = 64 << 10, /* of records that become text at a time */
    PIECES_A_TURN = 4,      /* for one watcher */
    BACKLOG_BYTES = 64 << 10,
    LAG_MAX = 4096,     /* records that a watcher may be behind once it has reached the newest */
    SLOW_LAG_MAX = 256, /* the same, if its client was slow */
    TEXT_BYTES_MAX = 64 << 20,
};

struct watcher {
    struct engine_watch *watch;
    struct http_request *http;
    struct served_model *model;
    struct record_cursor cursor;
    bool is_live;  /* it has reached the newest record */
    bool was_slow; /* since it was last sent records, bytes have waited for its client */
    uint64_t written_ms;
    struct list_link in_watch;
};

/* Text of the records [from, to) of one model. */
struct piece {
    const struct served_model *model; /* NULL: none */
    uint64_t from, to;
    struct record_cursor cursor; /* at `to` */
    struct buf text;
};

struct engine_watch {
    struct server *server;
    uv_timer_t timer;
    struct list watchers;
    uint64_t *records; /* of one piece */
    size_t records_bytes;
    struct piece piece; /* the last one: the next watcher often needs the same */
};

static void on_turn(uv_timer_t *timer);

enum status engine_watch_create(struct server *s, struct engine_watch **out) {
    struct engine_watch *w = mem_zalloc(sizeof(*w));
    if (!w) return ST_NOMEM;
    w->server = s;
    buf_init(&w->piece.text, TEXT_BYTES_MAX);
    CHECK(uv_timer_init(&s->loop, &w->timer) == 0);
    w->timer.data = w;
    *out = w;
    return ST_OK;
}

void engine_watch_close(struct engine_watch *w) {
    if (w) uv_close((uv_handle_t *)&w->timer, NULL);
}

void engine_watch_destroy(struct engine_watch *w) {
    if (!w) return;
    CHECK(!w->watchers.first);
    buf_deinit(&w->piece.text);
    mem_free(w->records);
    mem_free(w);
}

/* ---- text ---- */

static void put_event(struct buf *out, uint64_t id, const char *event) {
    if (id > 0) {
        buf_put_text(out, "id: ");
        buf_put_uint(out, id);
        buf_put_char(out, '\n');
    }
    buf_put_text(out, "event: ");
    buf_put_text(out, event);
    buf_put_text(out, "\ndata: ");
}

/* Room for a piece, and for the longest record of any model. */
static bool make_room(struct engine_watch *w, const struct record_ring *ring) {
    size_t bytes = record_bytes_max(ring);
    if (bytes < PIECE_BYTES) bytes = PIECE_BYTES;
    if (bytes <= w->records_bytes) return true;
    uint64_t *grown = mem_realloc(w->records, bytes);
    if (!grown) return false;
    w->records = grown;
    w->records_bytes = bytes;
    return true;
}

/* The piece that begins where the watcher is, or later if the engine has meanwhile dropped the
 * records there. False: out of memory. */
static bool make_piece(struct engine_watch *w, const struct watcher *t) {
    struct piece *p = &w->piece;
    if (p->model == t->model && p->from == t->cursor.next && p->to > p->from) return true;
    struct record_ring *ring = engine_records(t->model->engine);
    p->model = NULL;
    buf_clear(&p->text);
    if (!make_room(w, ring)) return false;
    p->from = t->cursor.next;
    p->cursor = t->cursor;
    size_t used = record_read(ring, &p->cursor, w->records, w->records_bytes);
    const void *at = w->records, *end = (const char *)w->records + used;
    if (used > 0) p->from = ((const struct record_head *)at)->number;
    for (struct record r; record_next(&at, end, &r);) {
        put_event(&p->text, r.head->number, "step");
        record_put_step(&r, &p->text);
        buf_put_text(&p->text, "\n\n");
    }
    p->to = p->cursor.next;
    p->model = t->model;
    return buf_status(&p->text) == ST_OK;
}

/* ---- one watcher ---- */

static void flush(struct watcher *t) {
    http_stream_flush(t->http->x);
    t->written_ms = uv_now(&t->watch->server->loop);
}

/* Has the client still to read what it was sent? */
static bool is_waiting(struct watcher *t) {
    bool is = http_backlog(t->http->x) > BACKLOG_BYTES;
    t->was_slow |= is;
    return is;
}

static void forget(struct watcher *t) {
    struct engine_watch *w = t->watch;
    list_remove(&w->watchers, &t->in_watch);
    if (!w->watchers.first) {
        uv_timer_stop(&w->timer);
        w->piece.model = NULL;
    }
    mem_free(t);
}

static void end_stream(struct watcher *t, bool is_aborted) {
    struct http_request *req = t->http;
    forget(t);
    if (is_aborted)
        respond_abort(req);
    else
        respond_end(req);
}

static void skip_to(struct watcher *t, uint64_t number) {
    struct buf *out = http_stream_buf(t->http->x);
    put_event(out, 0, "skipped");
    buf_put_text(out, "{\"from\":");
    buf_put_uint(out, t->cursor.next);
    buf_put_text(out, ",\"to\":");
    buf_put_uint(out, number - 1);
    buf_put_text(out, "}\n\n");
    t->cursor = (struct record_cursor){.next = number};
}

/* Records that are no longer kept, or that a slow reader is too far behind to be sent. */
static void skip_if_behind(struct watcher *t, const struct record_span *span) {
    uint64_t lag = span->next - t->cursor.next;
    if (t->is_live && lag > (t->was_slow ? SLOW_LAG_MAX : LAG_MAX))
        skip_to(t, span->next);
    else if (t->cursor.next < span->first)
        skip_to(t, span->first);
    t->was_slow = false;
}

/* Sends what is new, within limits; *has_more: there is more to send now. False: out of memory. */
static bool send_new(struct watcher *t, bool *has_more) {
    struct engine_watch *w = t->watch;
    for (uint32_t n = 0; n < PIECES_A_TURN; n++) {
        if (is_waiting(t)) return true;
        struct record_span span = record_span(engine_records(t->model->engine));
        if (t->cursor.next == span.next) {
            t->is_live = true;
            return true;
        }
        skip_if_behind(t, &span);
        if (t->cursor.next < span.next) {
            if (!make_piece(w, t)) return false;
            if (w->piece.from > t->cursor.next) skip_to(t, w->piece.from);
            http_stream_put(t->http->x, buf_str(&w->piece.text));
            t->cursor = w->piece.cursor;
        }
        flush(t);
    }
    *has_more = true;
    return true;
}

static void ping(struct watcher *t, uint64_t now_ms) {
    if (now_ms - t->written_ms < PING_MS || is_waiting(t)) return;
    http_stream_put(t->http->x, STR(": idle\n\n"));
    flush(t);
}

static void on_turn(uv_timer_t *timer) {
    struct engine_watch *w = timer->data;
    const uint64_t now_ms = uv_now(&w->server->loop);
    bool has_more = false;
    for (struct list_link *l = w->watchers.first, *next; l; l = next) {
        struct watcher *t = LIST_ITEM(l, struct watcher, in_watch);
        next = l->next;
        if (send_new(t, &has_more))
            ping(t, now_ms);
        else
            end_stream(t, true);
    }
    if (w->watchers.first) uv_timer_start(timer, on_turn, has_more ? BUSY_TURN_MS : TURN_MS, 0);
}

static void on_gone(struct http_request *req) { forget(req->owner); }

/* ---- entry points ---- */

static void put_hello(struct watcher *t) {
    const struct served_model *m = t->model;
    struct buf *out = http_stream_buf(t->http->x);
    struct record_hello hello = {.model = str_of(m->name),
                                 .epoch_ms = engine_epoch_ms(),
                                 .seats = m->knobs.max_seqs,
                                 .blocks = m->knobs.kv_blocks,
                                 .block_tokens = m->knobs.block_size};
    put_event(out, 0, "hello");
    record_put_hello(&hello, out);
    buf_put_text(out, "\n\n");
}

void engine_watch_add(struct engine_watch *w, struct http_request *req, struct served_model *m,
                      uint64_t from) {
    static const struct http_header headers[] = {
        {{"cache-control", 13}, {"no-store", 8}},
        {{"x-accel-buffering", 17}, {"no", 2}},
    };
    const struct response response = {.status = 200,
                                      .type = "text/event-stream; charset=utf-8",
                                      .headers = headers,
                                      .header_count = 2};
    struct api_error e = {0};
    if (req->head->method == HTTP_HEAD) {
        respond(req, &response);
        return;
    }
    if (w->watchers.count == WATCHERS_MAX) {
        api_refuse(&e, 503, NULL, "too_many_watchers",
                   "%d clients watch the engines of this server already; close one of them",
                   WATCHERS_MAX);
        respond_error(req, &e);
        return;
    }
    struct watcher *t = mem_zalloc(sizeof(*t));
    if (!t) {
        respond_out_of_memory(req);
        return;
    }
    *t = (struct watcher){.watch = w, .http = req, .model = m, .cursor = {.next = from}};
    req->owner = t;
    req->on_gone = on_gone;
    list_push_last(&w->watchers, &t->in_watch);
    respond_begin(req, &response);
    put_hello(t);
    flush(t);
    uv_timer_start(&w->timer, on_turn, 0, 0);
}

void engine_watch_drain(struct engine_watch *w) {
    while (w->watchers.first)
        end_stream(LIST_ITEM(w->watchers.first, struct watcher, in_watch), false);
}

void engine_watch_check_keys(struct engine_watch *w) {
    for (struct list_link *l = w->watchers.first, *next; l; l = next) {
        struct watcher *t = LIST_ITEM(l, struct watcher, in_watch);
        struct api_error e = {0};
        next = l->next;
        if (access_recheck(w->server->keys, t->http->grant.key, ACCESS_ADMIN, &e) != ST_OK)
            end_stream(t, false);
    }
}
