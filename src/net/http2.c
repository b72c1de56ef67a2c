/* net/http2.c - HTTP/2 (RFC 9113) on nghttp2: connections, requests, deadlines, floods.
 *
 * h2 by ALPN and h2c with prior knowledge. nghttp2 checks frames, HPACK, pseudo headers and
 * content-length. No push, no CONNECT, no priorities: streams send in round-robin order. Trailers
 * of requests are read and dropped.
 *
 * Deadlines. While streams are open a periodic tick (WAIT_TICK) checks each of them: its head must
 * arrive within head_ms, its body at the least rate, measured over body_ms, and within
 * body_total_ms (408); the peer must open its window at the least rate, measured over write_ms (the
 * stream is reset). While bytes wait to be sent WAIT_WRITE takes the place of the tick, so the
 * checks are also made after input and writes: a client that reads without end must not evade them.
 * From the first tick without streams on the connection is idle.
 *
 * Floods. Two leaky buckets count what a peer may not do too often. One counts streams that are
 * reset before any of their response was sent, by the peer (rapid reset) or by us because of an
 * error of the peer. The other counts frames that carry neither a request nor body bytes. A bucket
 * that overflows ends the connection with ENHANCE_YOUR_CALM. nghttp2 limits CONTINUATION frames,
 * settings in a frame, and acknowledgements that the peer does not read.
 *
 * Entry points: proto_http2, http2_is_preface.
 */
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "net/h2_int.h"

enum {
    STREAM_WINDOW_BYTES = 1 << 20, /* of a request body that the peer may send unacknowledged */
    CONNECTION_WINDOW_BYTES = 4 << 20,
    DISCARD_BYTES = 32 << 20, /* of the body of a request that has its response already */
    HEADER_OVERHEAD = 32,     /* bytes that the protocol counts for each header */
    HEAD_EXCESS = 4,          /* times the size that we announce: a client ignores it on purpose */
    RESET_BURST = 200,        /* resets without a response; honest clients make few */
    RESETS_PER_S = 20,
    FRAME_BURST = 2000, /* frames without a request or body: PING, SETTINGS, PRIORITY ... */
    FRAMES_PER_S = 500,
    ACKS_MAX = 200, /* waiting to be sent; nghttp2 treats more as a flood */
    SETTINGS_MAX = 32,
    CONTINUATIONS_MAX = 8,
    HEADER_BLOCK_MAX = 65536,
    REQUESTS_PER_READ = 16, /* in a row before other connections are served */
};

int64_t h2_now_ms(const struct h2 *h) { return (int64_t)uv_now(h->conn->server->loop); }

bool http2_is_preface(struct str bytes, bool *needs_more) {
    const struct str preface = STR(NGHTTP2_CLIENT_MAGIC);
    *needs_more = bytes.len < preface.len;
    return *needs_more ? str_starts(preface, bytes) : str_starts(bytes, preface);
}

/* ---- floods ---- */

static void end_session(struct h2 *h, uint32_t code) {
    if (code != NGHTTP2_NO_ERROR && !h->is_ending) h->conn->server->stats.protocol_errors++;
    h->is_ending = true;
    if (h->is_over) return;
    if (nghttp2_session_terminate_session(h->session, code) != 0) conn_fail(h->conn);
}

/* The return value of nghttp2's callbacks: the parser must stop after a failure. */
static int callback_result(const struct h2 *h) {
    return h->is_over ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *ctx) {
    (void)session, (void)hd;
    struct h2 *h = ctx;
    if (bucket_add(&h->frames, h2_now_ms(h), FRAMES_PER_S, FRAME_BURST))
        end_session(h, NGHTTP2_ENHANCE_YOUR_CALM);
    return callback_result(h);
}

/* ---- heads ---- */

static void set_error(struct h2_stream *st, uint32_t status, const char *sentence) {
    if (st->refusal) return;
    st->refusal = status;
    st->sentence = sentence;
}

static struct h2_stream *stream_create(struct h2 *h, int32_t id) {
    struct h2_stream *st = mem_zalloc(sizeof(*st));
    if (!st) return NULL;
    st->x = exchange_create(h->conn);
    if (!st->x) {
        mem_free(st);
        return NULL;
    }
    st->x->state = st;
    st->x->head.version = 20;
    st->h2 = h;
    st->id = id;
    st->since_ms = st->began_ms = h2_now_ms(h);
    buf_init(&st->queue, CONN_PENDING_MAX);
    list_push_first(&h->streams, &st->link);
    h->is_trimmed = false;
    return st;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx) {
    struct h2 *h = ctx;
    h->head_bytes = 0;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    const int32_t id = frame->hd.stream_id;
    struct h2_stream *st = stream_create(ctx, id);
    if (!st) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, id, st);
    /* All streams have the same priority and send in turn, whatever the peer asks for. */
    const nghttp2_extpri fair = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    if (nghttp2_session_change_extpri_stream_priority(session, id, &fair, 1) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return 0;
}

static void keep(struct h2_stream *st, struct str value, struct str *to) {
    struct http_exchange *x = st->x;
    if (x->head_bytes + value.len > x->conn->server->limits.head_bytes) {
        set_error(st, 431, "the request headers are too large");
        return;
    }
    x->head_bytes += (uint32_t)value.len;
    *to = arena_dup(x->arena, value);
    if (!to->ptr) set_error(st, 503, "out of memory");
}

static void take_pseudo(struct h2_stream *st, struct str name, struct str value) {
    if (str_is(name, ":method")) {
        keep(st, value, &st->method);
    } else if (str_is(name, ":path")) {
        if (value.len > st->h2->conn->server->limits.head_bytes)
            set_error(st, 414, "the request target is too long");
        else
            keep(st, value, &st->target);
    } else if (str_is(name, ":authority")) {
        keep(st, value, &st->authority);
    }
}

static void take_field(struct h2_stream *st, struct str name, struct str value) {
    const uint32_t status = exchange_add_header(st->x, name, value);
    if (status == 431)
        set_error(st, 431, "the headers are too many or too large");
    else if (status == 400)
        set_error(st, 400, "malformed header name or value");
    else if (status)
        set_error(st, 503, "out of memory");
    else if (str_is(name, "host"))
        st->host = st->x->headers[st->x->head.header_count - 1].value;
    else if (str_is(name, "expect"))
        st->resets_early = true;
}

static uint64_t head_list_max(const struct http_limits *l) {
    return (uint64_t)l->head_bytes + (uint64_t)l->headers * HEADER_OVERHEAD;
}

/* A few bytes of HPACK can name a long header again and again, and each time costs as much as its
 * length: such a head, or trailer, is not read to its end. */
static bool is_excessive(struct h2 *h, size_t header_bytes) {
    h->head_bytes += header_bytes + HEADER_OVERHEAD;
    return h->head_bytes > HEAD_EXCESS * head_list_max(&h->conn->server->limits);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *ctx) {
    (void)flags;
    if (is_excessive(ctx, name_len + value_len)) {
        end_session(ctx, NGHTTP2_ENHANCE_YOUR_CALM);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!st || !st->x || st->refusal) return 0;
    struct h2 *h = st->h2;
    const bool is_first = !st->has_header;
    st->has_header = true;
    const struct str n = {(const char *)name, name_len};
    const struct str v = {(const char *)value, value_len};
    if (n.len && n.ptr[0] == ':')
        take_pseudo(st, n, v);
    else
        take_field(st, n, v);
    if (!is_first || ++h->heads == 1) return 0;
    if (h->heads <= REQUESTS_PER_READ && !conns_turn_is_over(h->conn->server)) return 0;
    h->is_cut = true;
    return NGHTTP2_ERR_PAUSE; /* this header has been taken; the rest of the input comes later */
}

/* nghttp2 would skip a malformed header that does not disturb its parser. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_len, const uint8_t *value,
                             size_t value_len, uint8_t flags, void *ctx) {
    (void)name, (void)name_len, (void)value, (void)value_len, (void)flags, (void)ctx;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (st && !st->has_head) set_error(st, 400, "malformed header name or value");
    return 0;
}

/* Check target and host, which every request must have. */
static void check_head(struct h2_stream *st) {
    if (str_is(st->method, "CONNECT")) {
        set_error(st, 501, "this server is not a proxy");
        return;
    }
    uint32_t status = exchange_set_target(st->x, st->method, st->target);
    if (status)
        set_error(st, status == 500 ? 503 : status,
                  "malformed request target: expected a path that starts with \"/\"");
    const struct str host = st->authority.ptr ? st->authority : st->host;
    if (!host.ptr) {
        set_error(st, 400, "the :authority pseudo header is missing");
        return;
    }
    if (st->authority.ptr && st->host.ptr && !str_eq(st->authority, st->host))
        set_error(st, 400, "Host header and :authority name different hosts");
    status = exchange_set_host(st->x, host);
    if (status) set_error(st, status == 500 ? 503 : status, "malformed :authority or Host header");
}

/* The handler has seen the head and has not responded: check what is known of the body. */
static void expect_body(struct h2_stream *st) {
    const struct http_head *head = &st->x->head;
    const struct str length = http_find(head, "content-length");
    const struct str expect = http_find(head, "expect");
    uint64_t bytes;
    if (length.ptr && str_to_u64(length, &bytes) && bytes > st->x->body_max)
        h2_refuse(st, 413, exchange_body_sentence(st->x, 413));
    else if (expect.ptr && !text_is_nocase(expect, "100-continue"))
        h2_refuse(st, 417, "unsupported Expect header: expected \"100-continue\"");
    else if (expect.ptr)
        h2_continue(st);
}

/* Discard body bytes of a request that has its response, up to DISCARD_BYTES. */
static void discard(struct h2_stream *st, size_t bytes) {
    st->discarded += bytes;
    if (st->is_discarding && st->discarded > DISCARD_BYTES) h2_reset(st, NGHTTP2_NO_ERROR);
}

/* The handler may have ended the exchange in any callback. */
static bool is_unanswered(const struct h2_stream *st) { return st->x && !st->x->is_answered; }

static void finish_head(struct h2_stream *st, bool has_body) {
    if (!st->refusal) check_head(st);
    st->has_head = true;
    st->since_ms = st->began_ms = h2_now_ms(st->h2);
    if (st->h2->conn->queued >= st->h2->conn->server->limits.queue_bytes)
        set_error(st, 503, "the responses that wait on this connection must be read first");
    if (st->refusal) {
        h2_refuse(st, st->refusal, st->sentence);
        return;
    }
    exchange_head_done(st->x);
    const struct http_server *s = st->x->conn->server;
    if (s->handler->on_head) s->handler->on_head(s->ctx, st->x);
    const uint32_t status = is_unanswered(st) ? exchange_admit(st->x) : 0;
    if (status)
        h2_refuse(st, status, exchange_body_sentence(st->x, status));
    else if (has_body && is_unanswered(st))
        expect_body(st);
}

/* ---- bodies ---- */

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *ctx) {
    (void)flags;
    struct h2 *h = ctx;
    bucket_remove(&h->frames);
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, id);
    if (!st) return 0;
    st->arrived += len;
    if (!st->x || st->x->is_answered) {
        discard(st, len);
        return callback_result(h);
    }
    const uint32_t status = exchange_body_add(st->x, (struct str){(const char *)data, len});
    if (status) h2_refuse(st, status, exchange_body_sentence(st->x, status));
    return callback_result(h);
}

static void request_complete(struct h2_stream *st) {
    st->has_request = true;
    if (!is_unanswered(st)) return;
    const struct http_server *s = st->x->conn->server;
    st->x->is_handled = true;
    s->handler->on_request(s->ctx, st->x);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *ctx) {
    struct h2 *h = ctx;
    if (frame->hd.type == NGHTTP2_SETTINGS) h->has_settings = true;
    if (frame->hd.type == NGHTTP2_GOAWAY) h->has_goaway = true;
    const bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_headers && frame->hd.type != NGHTTP2_DATA) return 0;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!st) return 0;
    const bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (is_headers && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        bucket_remove(&h->frames);
        finish_head(st, !is_end);
    }
    if (is_end) request_complete(st);
    return callback_result(h);
}

/* ---- closing a stream ---- */

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx) {
    (void)code;
    struct h2 *h = ctx;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, id);
    const bool is_wasted = !st || (!st->has_sent && !st->is_reset);
    if (is_wasted && bucket_add(&h->resets, h2_now_ms(h), RESETS_PER_S, RESET_BURST))
        end_session(h, NGHTTP2_ENHANCE_YOUR_CALM);
    if (!st) return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    const bool is_notified = !st->x;
    if (is_notified)
        h2_stream_free(st);
    else
        st->is_closed = true;
    const bool may_be_done = !h->streams.first && (h->conn->is_draining || h->has_goaway);
    if (!h->is_receiving && (!is_notified || may_be_done)) conn_defer(h->conn);
    return callback_result(h);
}

/* Free the stream and notify the handler if its exchange is still open. */
static void stream_gone(struct h2_stream *st) {
    struct http_exchange *x = st->x;
    if (!st->h2->is_over) nghttp2_session_set_stream_user_data(st->h2->session, st->id, NULL);
    h2_stream_free(st);
    if (!x) return;
    x->state = NULL;
    exchange_gone(x);
}

static struct h2_stream *find_closed(const struct h2 *h) {
    struct h2_stream *st = h2_stream_at(h->streams.first);
    while (st && !st->is_closed) st = h2_stream_at(st->link.next);
    return st;
}

static struct h2_stream *find_writable(const struct h2 *h) {
    const uint64_t low = h->conn->server->limits.backlog_bytes / 2;
    struct h2_stream *st = h2_stream_at(h->streams.first);
    while (st && !(st->x && st->x->is_writable_due && h2_backlog(st->x) <= low))
        st = h2_stream_at(st->link.next);
    return st;
}

/* Any stream may be freed while the handler runs, so each search starts again at the front. */
static void notify_handler(struct h2 *h) {
    struct h2_stream *st;
    while ((st = find_closed(h))) stream_gone(st);
    while ((st = find_writable(h))) exchange_written(st->x);
}

/* ---- a connection ---- */

static void set_callbacks(nghttp2_session_callbacks *cb) {
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, h2_on_frame_send);
}

static void set_options(nghttp2_option *options) {
    nghttp2_option_set_max_outbound_ack(options, ACKS_MAX);
    nghttp2_option_set_max_settings(options, SETTINGS_MAX);
    nghttp2_option_set_max_continuations(options, CONTINUATIONS_MAX);
    nghttp2_option_set_max_send_header_block_length(options, HEADER_BLOCK_MAX);
    nghttp2_option_set_max_reserved_remote_streams(options, 0);
    nghttp2_option_set_no_closed_streams(options, 1);
}

static bool create_session(struct h2 *h) {
    nghttp2_mem mem = h2_mem_of(h);
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *options = NULL;
    bool is_fine = nghttp2_session_callbacks_new(&callbacks) == 0;
    is_fine = is_fine && nghttp2_option_new(&options) == 0;
    if (is_fine) {
        set_callbacks(callbacks);
        set_options(options);
        is_fine = nghttp2_session_server_new3(&h->session, callbacks, h, options, &mem) == 0;
    }
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(callbacks);
    return is_fine;
}

static bool submit_settings(struct h2 *h) {
    const struct http_limits *l = &h->conn->server->limits;
    const nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)head_list_max(l)},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    const size_t count = sizeof(entries) / sizeof(entries[0]);
    if (nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, entries, count) != 0) return false;
    return nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW_BYTES) == 0;
}

static enum status open_h2(struct conn *c) {
    struct h2 *h = mem_zalloc(sizeof(*h));
    if (!h) return ST_NOMEM;
    h->conn = c;
    c->state = h;
    if (!create_session(h) || !submit_settings(h)) return ST_NOMEM;
    h->resets.at_ms = h->frames.at_ms = h2_now_ms(h);
    conn_wait(c, WAIT_HEAD);
    return ST_OK;
}

static void all_streams_gone(struct h2 *h) {
    while (h->streams.first) stream_gone(h2_stream_at(h->streams.first));
}

static void close_h2(struct conn *c) {
    struct h2 *h = c->state;
    if (!h) return;
    h->is_over = true;
    all_streams_gone(h);
    if (!h->is_out_of_memory) nghttp2_session_del(h->session);
    h2_mem_free_all(h);
    mem_free(h);
}

static bool is_done(const struct h2 *h) {
    if (h->is_over) return true;
    return !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
}

/* Accept no new streams; streams that are open continue. */
static void send_goaway(struct h2 *h) {
    if (h->is_over) return;
    const int32_t last = nghttp2_session_get_last_proc_stream_id(h->session);
    h->has_sent_goaway = true;
    if (nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0) != 0)
        conn_fail(h->conn);
    h2_flush(h);
}

static void update_wait(struct h2 *h) {
    const enum wait_kind kind = h->streams.first || !h->is_trimmed ? WAIT_TICK : WAIT_IDLE;
    if (h->has_settings && h->conn->wait_wanted != kind) conn_wait(h->conn, kind);
}

/* ---- deadlines ---- */

/* Streams share their connection, so each must pass its part of the least rate. */
static bool is_read_too_slowly(struct h2_stream *st, const struct http_limits *l, int64_t now_ms) {
    if (!h2_queued(st) || now_ms - st->mark_ms < l->write_ms) return false;
    const uint64_t must = rate_bytes(l, l->write_ms) / st->h2->streams.count;
    if (st->out - st->mark_out < (st->mark_due < must ? st->mark_due : must)) return true;
    if (st->out == st->mark_out) return true;
    h2_start_rate(st);
    return false;
}

/* Has less arrived in body_ms than the least rate asks for, or took all of it too long? */
static bool is_sent_too_slowly(struct h2_stream *st, const struct http_limits *l, int64_t now_ms) {
    if (now_ms - st->began_ms >= l->body_total_ms) return true;
    if (now_ms - st->since_ms < l->body_ms) return false;
    if (st->arrived < rate_bytes(l, l->body_ms)) return true;
    st->since_ms = now_ms;
    st->arrived = 0;
    return false;
}

/* False: the connection must end. */
static bool check_stream(struct h2_stream *st, const struct http_limits *l, int64_t now_ms) {
    struct http_stats *stats = &st->h2->conn->server->stats;
    if (st->is_closed) return true; /* the handler is notified next */
    if (!st->has_head) return now_ms - st->since_ms < l->head_ms;
    const bool wants_body = !st->has_request && is_unanswered(st);
    if (wants_body) {
        st->resets_early = is_sent_too_slowly(st, l, now_ms);
        stats->slow += st->resets_early;
        if (st->resets_early) h2_refuse(st, 408, "timeout while reading the request body");
    } else if (!st->is_reset && is_read_too_slowly(st, l, now_ms)) {
        stats->slow++;
        h2_reset(st, NGHTTP2_CANCEL);
    } else if (st->is_discarding && is_sent_too_slowly(st, l, now_ms)) {
        h2_reset(st, NGHTTP2_NO_ERROR);
    }
    return true;
}

static void check_streams(struct h2 *h) {
    const struct http_limits *l = &h->conn->server->limits;
    const int64_t now_ms = h2_now_ms(h);
    bool is_fine = true;
    h->checked_ms = now_ms;
    for (struct list_link *at = h->streams.first; at; at = at->next)
        is_fine = check_stream(h2_stream_at(at), l, now_ms) && is_fine;
    /* A head that is not complete blocks all other frames, so the whole connection ends. */
    if (!is_fine) end_session(h, NGHTTP2_ENHANCE_YOUR_CALM);
    if (!h->streams.first && !nghttp2_session_want_write(h->session)) {
        h2_mem_trim(h);
        h->is_trimmed = true;
    }
    conn_wait(h->conn, WAIT_TICK);
}

/* The tick comes later or not at all while bytes wait to be sent. */
static bool is_check_due(const struct h2 *h) {
    if (!h->streams.first || h->is_ending || h->is_over) return false;
    return h2_now_ms(h) - h->checked_ms >= h->conn->server->wait_ms[WAIT_TICK];
}

/* ---- what the loop calls ---- */

/* The last step of everything that the loop calls: send, notify the handler, set the deadline. */
static void flush_and_notify(struct conn *c) {
    struct h2 *h = c->state;
    if (is_check_due(h)) check_streams(h);
    h2_flush(h);
    notify_handler(h);
    if (c->has_failed) return;
    const bool is_served = nghttp2_session_get_last_proc_stream_id(h->session) > 0;
    if (c->is_draining && !h->has_sent_goaway && !h->streams.first && is_served) send_goaway(h);
    if (h->is_ending || is_done(h)) all_streams_gone(h);
    if (is_done(h))
        conn_finish(c);
    else
        update_wait(h);
}

static uint32_t code_of(ssize_t error) {
    if (error == NGHTTP2_ERR_FLOODED) return NGHTTP2_ENHANCE_YOUR_CALM;
    return error == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_INTERNAL_ERROR;
}

/* Responses are written when the input has been read. After REQUESTS_PER_READ requests, or when the
 * turn is over, the rest of the input waits until other connections have been served. */
static void on_bytes(struct conn *c, struct str bytes) {
    struct h2 *h = c->state;
    h->is_receiving = true;
    h->heads = h->is_cut ? 1 : 0; /* the one at which the input was cut */
    h->is_cut = false;
    const ssize_t used =
        nghttp2_session_mem_recv(h->session, (const uint8_t *)bytes.ptr, bytes.len);
    h->is_receiving = false;
    if (used < 0) end_session(h, code_of(used));
    if (used >= 0 && h->is_cut) conn_hold(c, str_skip(bytes, (size_t)used));
    if (c->held.len) conn_release(c);
    flush_and_notify(c);
}

static void on_deadline(struct conn *c, enum wait_kind kind) {
    struct h2 *h = c->state;
    if (kind == WAIT_TICK)
        check_streams(h);
    else
        end_session(h, NGHTTP2_NO_ERROR);
    flush_and_notify(c);
}

/* The handler may be the caller, so no callback of it is called here. */
static void drain(struct conn *c) {
    struct h2 *h = c->state;
    if (!h->has_sent_goaway && !h->is_over) send_goaway(h);
    if (!h->is_receiving && !h->streams.first && is_done(h)) conn_finish(c);
}

/* Of a stream: is a response being produced, or read at the least rate? */
static bool is_stream_busy(const struct h2_stream *st, const struct http_limits *l) {
    const int64_t ms = h2_now_ms(st->h2) - st->mark_ms;
    if (!st->has_request && is_unanswered(st)) return false;
    if (!h2_queued(st)) return st->x != NULL;
    return st->out - st->mark_out >= rate_bytes(l, ms) || ms < CONN_SLOW_MS;
}

static enum conn_use use(const struct conn *c) {
    const struct h2 *h = c->state;
    if (!h->streams.first) return USE_IDLE;
    for (struct list_link *at = h->streams.first; at; at = at->next)
        if (is_stream_busy(h2_stream_at(at), &c->server->limits)) return USE_BUSY;
    return USE_SLOW;
}

static uint64_t charged(const struct conn *c, bool is_owned) {
    const struct h2 *h = c->state;
    uint64_t bytes = 0;
    for (struct list_link *at = h ? h->streams.first : NULL; at; at = at->next) {
        const struct h2_stream *st = h2_stream_at(at);
        if (st->owner || !is_owned) bytes += st->charged;
        if (st->x && (st->x->owner || !is_owned)) bytes += st->x->charged;
    }
    return bytes;
}

const struct proto proto_http2 = {
    .name = "h2",
    .open = open_h2,
    .close = close_h2,
    .on_bytes = on_bytes,
    .on_written = flush_and_notify,
    .on_deadline = on_deadline,
    .drain = drain,
    .send_head = h2_send_head,
    .send_data = h2_send_data,
    .send_end = h2_send_end,
    .send_abort = h2_send_abort,
    .backlog = h2_backlog,
    .on_deferred = flush_and_notify,
    .use = use,
    .charged = charged,
};
