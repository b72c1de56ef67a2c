/* net/h2_send.c - responses on HTTP/2 streams; see net/h2_int.h.
 *
 * A flush of the handler moves its bytes to the stream's queue. nghttp2 takes bytes from the queue
 * when the windows of the stream and of the connection are open, so a peer that does not read one
 * stream holds back that stream only. All frames that nghttp2 builds are gathered and written at
 * once. While the socket has a backlog of BACKLOG_MAX nghttp2 is not called: bytes in a stream's
 * queue can still be counted and dropped, bytes in the socket's queue cannot.
 *
 * Entry points: h2_flush, h2_refuse, h2_reset, h2_continue, h2_queued, h2_stream_free;
 * h2_send_head, h2_send_data, h2_send_end, h2_send_abort, h2_backlog; h2_on_frame_send.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "net/h2_int.h"

enum {
    BACKLOG_MAX = 64 << 10,    /* of the socket; with more, bytes stay in the streams' queues */
    QUEUE_KEEP_BYTES = 16384,  /* a larger queue is freed when it is empty */
    QUEUE_SHIFT_BYTES = 65536, /* sent bytes at the front of a queue before the rest is moved */
    STREAM_BYTES = 1024,       /* of a stream that waits, beside what is queued */
    HEADERS_MAX = 64,          /* of a response */
    OWN_HEADERS = 3,           /* :status, date, content-length */
    ERROR_BODY_MAX = 65536,
    DATA_CREDIT = 2, /* frames that a peer may send for each DATA frame: two window updates */
};

static struct str all_of(const struct h2_stream *st) {
    return st->document ? http_document_bytes(st->document) : buf_str(&st->queue);
}

size_t h2_queued(const struct h2_stream *st) { return all_of(st).len - st->sent; }

/* The memory of a document does not grow with the streams that send it; the streams themselves
 * count. */
static void charge(struct h2_stream *st) {
    const size_t queued = h2_queued(st);
    const size_t bytes = STREAM_BYTES + (st->document ? 0 : queued);
    conn_charge(st->h2->conn, st->owner, &st->charged, queued ? bytes : 0);
}

/* Bytes wait where none did: from now on the peer must let them pass at the least rate. */
void h2_start_rate(struct h2_stream *st) {
    st->mark_ms = h2_now_ms(st->h2);
    st->mark_out = st->out;
    st->mark_due = h2_queued(st);
}

void h2_stream_free(struct h2_stream *st) {
    conn_charge(st->h2->conn, st->owner, &st->charged, 0);
    list_remove(&st->h2->streams, &st->link);
    http_document_unpin(st->document);
    buf_deinit(&st->queue);
    mem_free(st);
}

/* ---- callbacks of nghttp2 ---- */

static void empty_queue(struct h2_stream *st) {
    st->sent = 0;
    http_document_unpin(st->document);
    st->document = NULL;
    buf_clear(&st->queue);
    if (st->queue.cap > QUEUE_KEEP_BYTES) buf_deinit(&st->queue);
}

static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *out, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *ctx) {
    (void)source, (void)ctx;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, id);
    if (!st) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the connection is ending */
    const size_t len = h2_queued(st) < room ? h2_queued(st) : room;
    if (len == 0 && !st->is_last) {
        st->is_suspended = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (len) memcpy(out, all_of(st).ptr + st->sent, len);
    st->sent += len;
    st->out += len;
    charge(st);
    if (h2_queued(st) == 0) {
        empty_queue(st);
        if (st->is_last) *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)len;
}

/* nghttp2 ends a connection with broken frames by itself; end_session() has counted the others. */
static void count_fault(const struct h2 *h, uint32_t code) {
    if (code != NGHTTP2_NO_ERROR && !h->is_ending) h->conn->server->stats.protocol_errors++;
}

int h2_on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *ctx) {
    struct h2 *h = ctx;
    const bool is_data = frame->hd.type == NGHTTP2_DATA;
    if (frame->hd.type == NGHTTP2_GOAWAY) count_fault(h, frame->goaway.error_code);
    if (!is_data && frame->hd.type != NGHTTP2_HEADERS) return 0;
    if (is_data) h->frames.count -= h->frames.count < DATA_CREDIT ? h->frames.count : DATA_CREDIT;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!st) return 0;
    st->has_sent = true;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || st->has_request) return 0;
    /* The response is complete before the request. Clients that send everything before they read
     * would hang if the stream were reset, so the rest of the body is discarded (DISCARD_BYTES at
     * most). A client that waits for "100 Continue" sends no body and is reset at once. */
    st->is_discarding = true;
    if (st->resets_early) h2_reset(st, NGHTTP2_NO_ERROR);
    return 0;
}

/* ---- one write ---- */

/* Collect the frames that may be sent now; false: there are no more. */
static bool gather(struct h2 *h, struct buf *out) {
    buf_clear(out);
    while (conn_backlog(h->conn) + out->len < BACKLOG_MAX) {
        const uint8_t *bytes;
        const ssize_t len = nghttp2_session_mem_send(h->session, &bytes);
        if (len < 0) {
            conn_fail(h->conn);
            return false;
        }
        if (len == 0) return false;
        buf_put(out, bytes, (size_t)len);
    }
    return conn_backlog(h->conn) < BACKLOG_MAX;
}

void h2_flush(struct h2 *h) {
    if (h->is_receiving || h->is_over) return;
    struct buf *out = &h->conn->server->scratch;
    bool has_more = true;
    while (has_more) {
        has_more = gather(h, out);
        if (buf_status(out) != ST_OK) {
            conn_fail(h->conn);
            return;
        }
        if (out->len == 0) return;
        const uv_buf_t all = uv_buf_init(out->ptr, (unsigned)out->len);
        conn_write(h->conn, &all, 1);
        if (h->conn->has_failed) return;
    }
}

/* ---- heads ---- */

struct fields {
    nghttp2_nv list[HEADERS_MAX];
    size_t count;
};

/* nghttp2 copies both strings; its struct only lacks `const`. */
static void put_field(struct fields *f, struct str name, struct str value) {
    CHECK(f->count < HEADERS_MAX);
    f->list[f->count++] = (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name.ptr,
        .namelen = name.len,
        .value = (uint8_t *)(uintptr_t)value.ptr,
        .valuelen = value.len,
    };
}

/* Headers about the connection, which HTTP/2 forbids, and the length, which submit() adds. */
static bool is_hop_header(struct str name) {
    static const char *const names[] = {"connection", "keep-alive", "transfer-encoding", "upgrade",
                                        "content-length"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_is(name, names[i])) return true;
    return false;
}

static bool has_no_body(uint32_t status) { return status == 204 || status == 304; }

struct response {
    uint32_t status;
    const struct http_header *headers;
    uint32_t count;
    const struct str *body; /* NULL: the length is not known yet */
};

static void submit(struct h2_stream *st, const struct response *r) {
    struct http_server *s = st->h2->conn->server;
    char status[12], length[24];
    if (st->h2->is_over) return;
    CHECK(r->count <= HEADERS_MAX - OWN_HEADERS);
    struct fields f = {.count = 0};
    (void)snprintf(status, sizeof(status), "%u", r->status);
    put_field(&f, STR(":status"), str_of(status));
    for (uint32_t i = 0; i < r->count; i++) {
        const struct http_header *header = &r->headers[i];
        if (is_hop_header(header->name) || !text_is_value(header->value)) continue;
        put_field(&f, header->name, header->value);
    }
    put_field(&f, STR("date"), str_of(server_date(s)));
    if (r->body && !has_no_body(r->status)) {
        (void)snprintf(length, sizeof(length), "%zu", r->body->len);
        put_field(&f, STR("content-length"), str_of(length));
    }
    /* A response in pieces ends with a DATA frame, even if that is empty. */
    const bool has_body = !r->body || (!st->is_bodyless && r->body->len > 0);
    const nghttp2_data_provider data = {.read_callback = read_queue};
    const int rc =
        nghttp2_submit_response(st->h2->session, st->id, f.list, f.count, has_body ? &data : NULL);
    if (rc != 0) conn_fail(st->h2->conn);
}

void h2_continue(struct h2_stream *st) {
    if (st->h2->is_over) return;
    struct fields f = {.count = 0};
    st->resets_early = false;
    put_field(&f, STR(":status"), STR("100"));
    if (nghttp2_submit_headers(st->h2->session, NGHTTP2_FLAG_NONE, st->id, NULL, f.list, f.count,
                               NULL) != 0)
        conn_fail(st->h2->conn);
}

void h2_reset(struct h2_stream *st, uint32_t code) {
    if (st->is_reset || st->is_closed || st->h2->is_over) return;
    st->is_reset = true;
    if (nghttp2_submit_rst_stream(st->h2->session, NGHTTP2_FLAG_NONE, st->id, code) != 0)
        conn_fail(st->h2->conn);
}

/* ---- bodies ---- */

/* Remove sent bytes from the front if they are at least half of a long queue. */
static void shift_queue(struct h2_stream *st) {
    if (st->sent < QUEUE_SHIFT_BYTES || st->sent < st->queue.len / 2) return;
    memmove(st->queue.ptr, st->queue.ptr + st->sent, h2_queued(st));
    st->queue.len -= st->sent;
    st->sent = 0;
}

/* Move the handler's output to the queue; if the queue is empty the buffers are swapped. */
static void move_out(struct http_exchange *x, struct h2_stream *st) {
    x->body_sent += st->is_bodyless ? 0 : x->out.len;
    if (st->is_bodyless || x->out.len == 0) {
        buf_clear(&x->out);
        return;
    }
    if (h2_queued(st) == 0) {
        const struct buf swap = st->queue;
        st->queue = x->out;
        st->sent = 0;
        x->out = swap;
        h2_start_rate(st);
    } else {
        shift_queue(st);
        buf_put_str(&st->queue, buf_str(&x->out));
    }
    buf_clear(&x->out);
    if (buf_status(&st->queue) != ST_OK) h2_reset(st, NGHTTP2_INTERNAL_ERROR);
}

static void resume_stream(struct h2_stream *st) {
    if (!st->is_suspended || st->is_reset || st->h2->is_over) return;
    st->is_suspended = false;
    if (nghttp2_session_resume_data(st->h2->session, st->id) != 0) conn_fail(st->h2->conn);
}

/* End the exchange; the stream stays until its queue has been sent. */
static void end_exchange(struct http_exchange *x) {
    struct h2_stream *st = x->state;
    struct h2 *h = st->h2;
    st->x = NULL;
    charge(st);
    /* nghttp2's parser may be in a callback for this very stream: free it only outside. */
    if (st->is_closed || (h->is_over && !h->is_receiving))
        h2_stream_free(st);
    else
        h2_flush(h); /* may free it */
    x->state = NULL;
    exchange_end(x);
}

static bool cannot_send(const struct h2_stream *st) { return st->is_closed || st->h2->is_over; }

/* ---- entries of struct proto ---- */

void h2_send_head(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                  uint32_t count, const struct str *body) {
    struct h2_stream *st = x->state;
    const struct response r = {status, headers, count, body};
    st->is_bodyless = x->head.method == HTTP_HEAD || has_no_body(status);
    st->owner = x->owner;
    if (!cannot_send(st)) submit(st, &r);
    if (!body) return;
    st->is_last = true;
    if (!st->is_bodyless && x->document && !cannot_send(st))
        st->document = document_pin(x->document);
    else if (!st->is_bodyless)
        buf_put_str(&st->queue, *body);
    if (buf_status(&st->queue) != ST_OK) h2_reset(st, NGHTTP2_INTERNAL_ERROR);
    h2_start_rate(st);
    x->body_sent = st->is_bodyless ? 0 : body->len;
    end_exchange(x);
}

void h2_send_data(struct http_exchange *x) {
    struct h2_stream *st = x->state;
    if (cannot_send(st)) {
        buf_clear(&x->out);
        return;
    }
    move_out(x, st);
    resume_stream(st);
    h2_flush(st->h2);
    charge(st);
}

void h2_send_end(struct http_exchange *x) {
    struct h2_stream *st = x->state;
    st->is_last = true;
    if (!cannot_send(st)) {
        move_out(x, st);
        resume_stream(st);
    }
    end_exchange(x);
}

void h2_send_abort(struct http_exchange *x) {
    struct h2_stream *st = x->state;
    if (!cannot_send(st)) h2_reset(st, NGHTTP2_INTERNAL_ERROR);
    end_exchange(x);
}

uint64_t h2_backlog(const struct http_exchange *x) {
    const struct h2_stream *st = x->state;
    return x->out.len + (st ? h2_queued(st) : 0);
}

void h2_refuse(struct h2_stream *st, uint32_t status, const char *sentence) {
    struct http_server *s = st->h2->conn->server;
    const bool is_begun = st->x->is_answered;
    st->is_bodyless = str_is(st->method, "HEAD");
    exchange_gone(st->x);
    st->x = NULL;
    if (is_begun) {
        h2_reset(st, NGHTTP2_CANCEL);
        return;
    }
    struct buf body;
    buf_init(&body, ERROR_BODY_MAX);
    exchange_put_error(s, status, sentence, &body);
    const struct http_header headers[] = {{STR("content-type"), STR("application/json")},
                                          {STR("retry-after"), STR("1")}};
    const struct str text = buf_str(&body);
    submit(st, &(struct response){status, headers, status == 429 || status == 503 ? 2 : 1, &text});
    buf_deinit(&st->queue);
    buf_init(&st->queue, CONN_PENDING_MAX);
    if (!st->is_bodyless) buf_put_str(&st->queue, text);
    if (buf_status(&st->queue) != ST_OK) h2_reset(st, NGHTTP2_INTERNAL_ERROR);
    st->is_last = true;
    h2_start_rate(st);
    charge(st);
    buf_deinit(&body);
}
