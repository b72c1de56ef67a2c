/* net/http1.c - HTTP/1.1 and 1.0 on a connection: one request after the other.
 *
 *     IDLE -> HEAD -> BODY or CHUNKS -> ANSWER -> IDLE
 *
 * The next request is parsed only after the response to this one has ended. Input that arrives
 * meanwhile is held by the connection (conn_hold), which keeps reading so that it notices at once
 * when the client disconnects. The next request also waits while more than backlog_bytes of earlier
 * responses are unsent, so that a client that pipelines requests and does not read cannot fill the
 * memory.
 *
 * If a response ends before the body of its request has arrived (a refusal), the state stays BODY
 * with no exchange. The rest of the body is read and discarded if it is at most DISCARD_BYTES;
 * otherwise the connection is closed.
 *
 * A request that two parsers could read in two ways is refused with 400 and the connection is
 * closed, because request smuggling depends on such differences. net/README.md lists the rules.
 *
 * Entry points: proto_http1, http1_upgrade.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "net/h1_int.h"
#include "net/http_int.h"

enum {
    DISCARD_BYTES = 65536, /* of a refused body that are read to keep the connection open */
    ERROR_BODY_MAX = 65536,
    CHUNK_HEAD_BYTES = 24,
    REQUESTS_PER_READ = 16, /* pipelined requests in a row before other connections are served */
};

enum h1_state { H1_IDLE, H1_HEAD, H1_BODY, H1_CHUNKS, H1_ANSWER, H1_OVER };

struct h1 {
    enum h1_state state;
    struct http_exchange *x; /* of the current request; NULL once its response has ended */
    struct h1_scan scan;
    struct buf text; /* the first part of a head that arrives in several reads */
    uint64_t body_left;
    struct h1_chunks chunks;
    int64_t body_began_ms;
    uint64_t body_arrived;     /* bytes since WAIT_BODY began */
    uint32_t requests_started; /* started since on_bytes was called */
    bool is_parsing; /* parse() is running; it takes the next request when a response has ended */
    bool may_be_h2;  /* the bytes so far are also the start of HTTP/2's preface */
    bool closes;     /* the connection, after this response */
    bool is_http10;
    bool is_head;        /* the method is HEAD */
    bool is_chunked;     /* the response has chunked transfer encoding */
    bool wants_continue; /* the client waits for "100 Continue" before it sends the body */
    bool is_backlogged;  /* the next request waits until the peer has read some responses */
};

static int64_t now_ms(const struct conn *c) { return (int64_t)uv_now(c->server->loop); }

/* ---- responses ---- */

static void put_header(struct buf *out, struct str name, struct str value) {
    buf_put_str(out, name);
    buf_put(out, ": ", 2);
    if (text_is_value(value)) {
        buf_put_str(out, value);
    } else {
        /* A value that came from a client must not start a new header line. */
        for (size_t i = 0; i < value.len; i++)
            buf_put_char(out, text_is_value((struct str){value.ptr + i, 1}) ? value.ptr[i] : ' ');
    }
    buf_put(out, "\r\n", 2);
}

static bool has_no_body(uint32_t status) { return status < 200 || status == 204 || status == 304; }

/* The head without its empty line and without the header that frames the body. */
static void put_head(struct buf *out, struct conn *c, uint32_t status,
                     const struct http_header *headers, uint32_t count) {
    struct h1 *h = c->state;
    buf_put_text(out, "HTTP/1.1 ");
    buf_put_uint(out, status);
    buf_put_char(out, ' ');
    buf_put_text(out, http_status_text(status));
    buf_put(out, "\r\n", 2);
    for (uint32_t i = 0; i < count; i++) {
        if (str_is(headers[i].name, "connection"))
            h->closes = h->closes || str_is(headers[i].value, "close");
        else
            put_header(out, headers[i].name, headers[i].value);
    }
    put_header(out, STR("date"), str_of(server_date(c->server)));
    if (h->closes)
        put_header(out, STR("connection"), STR("close"));
    else if (h->is_http10)
        put_header(out, STR("connection"), STR("keep-alive"));
}

/* Is the response early, and the rest of the request too long to be read and discarded? */
static bool must_close_early(const struct h1 *h) {
    if (h->wants_continue) return true;
    return h->state == H1_CHUNKS || (h->state == H1_BODY && h->body_left > DISCARD_BYTES);
}

static void become_idle(struct conn *c) {
    struct h1 *h = c->state;
    h->state = H1_IDLE;
    h->scan = (struct h1_scan){0};
    h->is_head = false;
    buf_deinit(&h->text);
    if (!h->is_parsing && c->held.len) {
        conn_release(c);
        return;
    }
    conn_wait(c, WAIT_IDLE);
    if (c->is_draining && !h->is_parsing) conn_finish(c);
}

/* All of the response has been passed to conn_write. */
static void end_response(struct http_exchange *x) {
    struct conn *c = x->conn;
    struct h1 *h = c->state;
    CHECK(h->x == x);
    h->x = NULL;
    exchange_end(x);
    if (h->closes) {
        h->state = H1_OVER;
        conn_finish(c);
    } else if (h->state == H1_ANSWER) {
        become_idle(c);
    }
}

static uv_buf_t part(const char *bytes, size_t len) {
    return (uv_buf_t){.base = (char *)(uintptr_t)bytes, .len = len};
}

static void send_whole(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                       uint32_t count, struct str body) {
    struct conn *c = x->conn;
    const struct h1 *h = c->state;
    struct buf *head = &c->server->scratch;
    buf_clear(head);
    put_head(head, c, status, headers, count);
    if (!has_no_body(status)) buf_printf(head, "content-length: %zu\r\n", body.len);
    buf_put(head, "\r\n", 2);
    const bool is_bodyless = h->is_head || has_no_body(status);
    x->body_sent = is_bodyless ? 0 : body.len;
    const uv_buf_t parts[] = {part(head->ptr, head->len), part(body.ptr, body.len)};
    if (buf_status(head) == ST_OK)
        conn_write(c, parts, is_bodyless || body.len == 0 ? 1 : 2);
    else
        conn_fail(c);
    end_response(x);
}

static void send_head(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                      uint32_t count, const struct str *body) {
    struct conn *c = x->conn;
    struct h1 *h = c->state;
    if (must_close_early(h) || c->is_draining) h->closes = true;
    if (body) {
        send_whole(x, status, headers, count, *body);
        return;
    }
    const bool is_bodyless = h->is_head || has_no_body(status);
    h->is_chunked = !h->is_http10 && !is_bodyless;
    if (h->is_http10 && !is_bodyless) h->closes = true;
    put_head(&x->out, c, status, headers, count);
    if (h->is_chunked) put_header(&x->out, STR("transfer-encoding"), STR("chunked"));
    buf_put(&x->out, "\r\n", 2);
    x->out_head = x->out.len;
}

/* "1f\r\n", written backwards to the end of `text`. */
static uv_buf_t chunk_head(char text[CHUNK_HEAD_BYTES], size_t len) {
    size_t at = CHUNK_HEAD_BYTES;
    text[--at] = '\n';
    text[--at] = '\r';
    do {
        text[--at] = "0123456789abcdef"[len & 15];
        len >>= 4;
    } while (len);
    return part(text + at, CHUNK_HEAD_BYTES - at);
}

/* Everything that was put since the last flush, then `tail`, in one write. */
static void send_out(struct http_exchange *x, struct str tail) {
    const struct h1 *h = x->conn->state;
    char text[CHUNK_HEAD_BYTES];
    uv_buf_t parts[5];
    uint32_t count = 0;
    const size_t data = h->is_head || has_no_body(x->status) ? 0 : x->out.len - x->out_head;
    if (x->out_head) parts[count++] = part(x->out.ptr, x->out_head);
    if (data && h->is_chunked) parts[count++] = chunk_head(text, data);
    if (data) parts[count++] = part(x->out.ptr + x->out_head, data);
    if (data && h->is_chunked) parts[count++] = part("\r\n", 2);
    if (tail.len) parts[count++] = part(tail.ptr, tail.len);
    conn_write(x->conn, parts, count);
    x->body_sent += data;
    x->out_head = 0;
    buf_clear(&x->out);
}

static void send_data(struct http_exchange *x) { send_out(x, (struct str){"", 0}); }

static void send_end(struct http_exchange *x) {
    const struct h1 *h = x->conn->state;
    send_out(x, h->is_chunked ? STR("0\r\n\r\n") : (struct str){"", 0});
    end_response(x);
}

static void send_abort(struct http_exchange *x) {
    struct conn *c = x->conn;
    struct h1 *h = c->state;
    h->closes = true;
    if (h->is_chunked) { /* the client sees that the last chunk is missing */
        end_response(x);
        return;
    }
    c->is_reset = true;
    h->x = NULL;
    h->state = H1_OVER;
    exchange_end(x);
    conn_fail(c);
}

static uint64_t backlog(const struct http_exchange *x) {
    return x->out.len + conn_backlog(x->conn);
}

/* Answer a malformed or too large request with an error, and close the connection. */
static void refuse(struct conn *c, uint32_t status, const char *sentence) {
    struct h1 *h = c->state;
    const bool is_begun = h->x && h->x->is_answered;
    if (h->x) exchange_gone(h->x);
    h->x = NULL;
    h->state = H1_OVER;
    if (is_begun) {
        conn_close(c);
        return;
    }
    h->closes = true;
    struct buf body;
    buf_init(&body, ERROR_BODY_MAX);
    exchange_put_error(c->server, status, sentence, &body);
    struct buf *head = &c->server->scratch;
    buf_clear(head);
    const struct http_header headers[] = {
        {STR("content-type"), STR("application/json")},
        /* sent with 405, 429 and 503 only */
        status == 405 ? (struct http_header){STR("allow"), STR("GET, HEAD, POST, DELETE, OPTIONS")}
                      : (struct http_header){STR("retry-after"), STR("1")},
    };
    put_head(head, c, status, headers, status == 405 || status == 429 || status == 503 ? 2 : 1);
    buf_printf(head, "content-length: %zu\r\n\r\n", body.len);
    const uv_buf_t parts[] = {part(head->ptr, head->len), part(body.ptr, body.len)};
    if (buf_status(head) == ST_OK && buf_status(&body) == ST_OK)
        conn_write(c, parts, h->is_head || body.len == 0 ? 1 : 2);
    buf_deinit(&body);
    conn_finish(c);
}

/* A request that has its response already gets no second one. */
static void refuse_slow_body(struct conn *c) {
    struct h1 *h = c->state;
    c->server->stats.slow++;
    if (h->x) {
        refuse(c, 408, "timeout while reading the request body");
        return;
    }
    h->state = H1_OVER;
    conn_finish(c);
}

/* ---- heads ---- */

/* What the headers of one request say about its framing, and what is wrong with them. */
struct framing {
    struct conn *conn;
    struct http_exchange *x;
    struct str host;
    uint64_t length;
    uint32_t host_count, length_count, coding_count;
    bool is_chunked, closes, keeps, wants_continue;
    const char *sentence;
};

static uint32_t set_error(struct framing *f, uint32_t status, const char *sentence) {
    f->sentence = sentence;
    return status;
}

static uint32_t read_length(struct framing *f, struct str value) {
    if (++f->length_count > 1) return set_error(f, 400, "duplicate Content-Length header");
    if (!str_to_u64(value, &f->length) || f->length > INT64_MAX)
        return set_error(f, 400, "invalid Content-Length: expected one decimal number of bytes");
    return 0;
}

static uint32_t read_coding(struct framing *f, struct str value) {
    if (++f->coding_count > 1) return set_error(f, 400, "duplicate Transfer-Encoding header");
    f->is_chunked = text_is_nocase(value, "chunked");
    if (f->is_chunked) return 0;
    const char *comma = memchr(value.ptr, ',', value.len);
    const struct str first = str_take(value, comma ? (size_t)(comma - value.ptr) : 0);
    const bool is_other = comma && !text_is_nocase(str_trim(first), "chunked");
    return set_error(f, is_other ? 501 : 400, "Transfer-Encoding must be exactly \"chunked\"");
}

static uint32_t read_expect(struct framing *f, struct str value) {
    if (!text_is_nocase(value, "100-continue"))
        return set_error(f, 417, "unsupported Expect header: expected \"100-continue\"");
    f->wants_continue = true;
    return 0;
}

static uint32_t on_header(void *ctx, struct str name, struct str value) {
    struct framing *f = ctx;
    value = str_trim(value);
    uint32_t status = exchange_add_header(f->x, name, value);
    if (status == 431) return set_error(f, status, "the headers are too many or too large");
    if (status == 400) return set_error(f, status, "malformed header name or value");
    if (status) return set_error(f, 503, "out of memory");
    const struct str lower = f->x->headers[f->x->head.header_count - 1].name;
    if (str_is(lower, "host")) {
        if (++f->host_count > 1) status = set_error(f, 400, "duplicate Host header");
        f->host = value;
    } else if (str_is(lower, "content-length")) {
        status = read_length(f, value);
    } else if (str_is(lower, "transfer-encoding")) {
        status = read_coding(f, value);
    } else if (str_is(lower, "expect")) {
        status = read_expect(f, value);
    } else if (str_is(lower, "connection")) {
        f->closes = f->closes || text_list_has(value, "close");
        f->keeps = f->keeps || text_list_has(value, "keep-alive");
    }
    return status;
}

/* The target "http://host/path" means "/path" on that host; a Host header must name it too. */
static uint32_t split_absolute(struct framing *f, struct str *target) {
    const bool is_http = target->len > 7 && text_is_nocase(str_take(*target, 7), "http://");
    const bool is_https = target->len > 8 && text_is_nocase(str_take(*target, 8), "https://");
    if (!is_http && !is_https) return 0;
    const struct str rest = str_skip(*target, is_http ? 7 : 8);
    size_t host_len = 0;
    while (host_len < rest.len && rest.ptr[host_len] != '/' && rest.ptr[host_len] != '?')
        host_len++;
    const struct str host = str_take(rest, host_len);
    if (f->host_count && !str_eq(host, f->host))
        return set_error(f, 400, "the Host header and the request target name different hosts");
    f->host = host;
    f->host_count = 1;
    *target = str_skip(rest, host_len);
    if (target->len == 0) *target = STR("/");
    return target->ptr[0] == '/' ? 0 : set_error(f, 400, "the request target has no path");
}

static uint32_t check_line(struct framing *f, const struct h1_line *line) {
    if (str_is(line->method, "CONNECT")) return set_error(f, 501, "this server is not a proxy");
    if (f->host_count == 0 && line->version == 11)
        return set_error(f, 400, "the Host header is missing");
    struct str target = line->target;
    uint32_t status = split_absolute(f, &target);
    if (status) return status;
    status = exchange_set_target(f->x, line->method, target);
    if (status)
        return set_error(f, status == 500 ? 503 : status,
                         "malformed request target: expected a path that starts with \"/\"");
    if (f->host_count == 0) return 0;
    status = exchange_set_host(f->x, f->host);
    return status ? set_error(f, status == 500 ? 503 : status, "malformed Host header") : 0;
}

static uint32_t check_framing(struct framing *f, const struct h1_line *line) {
    if (f->coding_count && f->length_count)
        return set_error(f, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (f->coding_count && line->version == 10)
        return set_error(f, 400, "Transfer-Encoding is not part of HTTP/1.0; send Content-Length");
    return 0;
}

static uint32_t read_head(struct framing *f, struct str text) {
    struct h1_line line = {0};
    uint32_t status = h1_parse_line(text, &line, &f->sentence);
    if (status) return status;
    if (!text_is_token(line.method)) return set_error(f, 400, "malformed method name");
    status = h1_parse_headers(text, on_header, f, &f->sentence);
    if (status == 0) status = check_framing(f, &line);
    if (status == 0) status = check_line(f, &line);
    if (status) return status;
    struct h1 *h = f->conn->state;
    f->x->head.version = line.version;
    h->is_http10 = line.version == 10;
    h->is_head = f->x->head.method == HTTP_HEAD;
    h->closes = f->closes || (h->is_http10 && !f->keeps);
    return 0;
}

/* The request is complete. */
static void finish_body(struct conn *c) {
    struct h1 *h = c->state;
    if (!h->x) { /* its response has ended already; this was the discarded rest */
        become_idle(c);
        return;
    }
    h->state = H1_ANSWER;
    conn_wait(c, WAIT_NONE);
    if (h->x->is_answered) return;
    h->x->is_handled = true;
    c->server->handler->on_request(c->server->ctx, h->x);
}

/* The handler has seen the head. If it has not responded, prepare to receive the body. */
static void begin_body(struct conn *c, bool has_more) {
    struct h1 *h = c->state;
    const bool is_open = h->x && !h->x->is_answered;
    const uint32_t status = is_open ? exchange_admit(h->x) : 0;
    if (status) {
        refuse(c, status, exchange_body_sentence(h->x, status));
        return;
    }
    if (is_open && h->state == H1_BODY && h->body_left > h->x->body_max) {
        refuse(c, 413, exchange_body_sentence(h->x, 413));
        return;
    }
    if (is_open && h->wants_continue && !has_more && h->state != H1_ANSWER) {
        const uv_buf_t interim = part("HTTP/1.1 100 Continue\r\n\r\n", 25);
        conn_write(c, &interim, 1);
    }
    if (is_open) h->wants_continue = false;
    h->body_began_ms = now_ms(c);
    h->body_arrived = 0;
    if (h->state == H1_BODY && h->body_left == 0)
        finish_body(c);
    else
        conn_wait(c, WAIT_BODY);
}

/* `text` is a complete head. `has_more`: bytes that follow it have been read already. */
static void take_head(struct conn *c, struct str text, bool has_more) {
    struct h1 *h = c->state;
    h->is_head = h->is_http10 = h->is_chunked = h->wants_continue = h->closes = false;
    struct framing f = {.conn = c, .x = exchange_create(c), .sentence = "bad request"};
    if (!f.x) {
        refuse(c, 503, "out of memory");
        return;
    }
    const uint32_t status = read_head(&f, text);
    if (status) {
        exchange_destroy(f.x);
        refuse(c, status, f.sentence);
        return;
    }
    buf_deinit(&h->text); /* `text` may point into it and is not used from here on */
    h->x = f.x;
    h->state = f.is_chunked ? H1_CHUNKS : H1_BODY;
    h->body_left = f.length;
    h->chunks = (struct h1_chunks){0};
    h->wants_continue = f.wants_continue && !h->is_http10 && (f.is_chunked || f.length > 0);
    conn_wait(c, WAIT_NONE);
    exchange_head_done(f.x);
    if (c->server->handler->on_head) c->server->handler->on_head(c->server->ctx, f.x);
    if (h->state != H1_OVER) begin_body(c, has_more);
}

static void refuse_long_head(struct conn *c) {
    const struct h1 *h = c->state;
    if (h->scan.lines == 0)
        refuse(c, 414, "the request line is too long");
    else
        refuse(c, 431, "the request headers are too large");
}

/* Take bytes of a head; returns how many. */
static size_t take_head_bytes(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    const uint32_t max = c->server->limits.head_bytes;
    size_t used;
    if (h->state == H1_IDLE) {
        h->state = H1_HEAD;
        conn_wait(c, WAIT_HEAD);
    }
    const enum h1_step step = h1_scan(&h->scan, str_take(bytes, max - h->scan.bytes + 1), &used);
    const struct str piece = str_take(bytes, used);
    if (step == H1_BAD) {
        refuse(c, 400,
               "malformed request head: a line does not end in CR LF, or it contains a control "
               "character");
    } else if (h->scan.bytes > max) {
        refuse_long_head(c);
    } else if (step == H1_END && h->text.len == 0) {
        take_head(c, piece, bytes.len > used);
    } else {
        if (!h->text.ptr) buf_init(&h->text, max);
        buf_put_str(&h->text, piece);
        if (buf_status(&h->text) != ST_OK)
            refuse(c, 503, "out of memory");
        else if (step == H1_END)
            take_head(c, buf_str(&h->text), bytes.len > used);
    }
    return used;
}

/* ---- bodies ---- */

/* False: refused. */
static bool add_body(struct conn *c, struct str bytes) {
    const struct h1 *h = c->state;
    if (!h->x || h->x->is_answered) return true;
    const uint32_t status = exchange_body_add(h->x, bytes);
    if (status) refuse(c, status, exchange_body_sentence(h->x, status));
    return status == 0;
}

static size_t take_body_bytes(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    const struct str piece =
        str_take(bytes, h->body_left < bytes.len ? (size_t)h->body_left : bytes.len);
    h->body_left -= piece.len;
    if (add_body(c, piece) && h->body_left == 0) finish_body(c);
    return piece.len;
}

static size_t take_chunk_bytes(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    struct str rest = bytes;
    enum h1_step step;
    do {
        struct str data = {"", 0};
        step = h1_chunks_next(&h->chunks, &rest, &data);
        if (step == H1_DATA && !add_body(c, data)) return bytes.len;
    } while (step == H1_DATA);
    if (step == H1_BAD) refuse(c, 400, "malformed chunk in the request body");
    if (step == H1_END) finish_body(c);
    return bytes.len - rest.len;
}

static size_t take_body(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    if (now_ms(c) - h->body_began_ms > c->server->limits.body_total_ms) {
        refuse_slow_body(c);
        return bytes.len;
    }
    h->body_arrived += bytes.len;
    return h->state == H1_BODY ? take_body_bytes(c, bytes) : take_chunk_bytes(c, bytes);
}

/* ---- a connection ---- */

static bool is_http1_active(const struct conn *c) {
    return !c->is_closing && !c->is_finishing && !c->has_failed && c->proto == &proto_http1;
}

/* May the next request start? Not while more than backlog_bytes of earlier responses are unsent:
 * a client that pipelines and does not read holds that much memory and one response. And not after
 * REQUESTS_PER_READ in a row or when the turn is over, so that other connections are served. */
static bool may_start_request(struct conn *c) {
    struct h1 *h = c->state;
    h->is_backlogged = conn_backlog(c) > c->server->limits.backlog_bytes;
    if (h->is_backlogged) return false;
    const uint32_t started = h->requests_started++;
    if (started == 0) return true;
    if (started < REQUESTS_PER_READ && !conns_turn_is_over(c->server)) return true;
    conn_release(c);
    return false;
}

/* Parse the front of `bytes` by the current state; returns how many bytes it has used. */
static size_t parse_some(struct conn *c, struct str bytes) {
    const struct h1 *h = c->state;
    switch (h->state) {
    case H1_IDLE:
        if (may_start_request(c)) return take_head_bytes(c, bytes);
        conn_hold(c, bytes);
        return bytes.len;
    case H1_HEAD:
        return take_head_bytes(c, bytes);
    case H1_BODY:
    case H1_CHUNKS:
        return take_body(c, bytes);
    case H1_ANSWER:
        conn_hold(c, bytes);
        return bytes.len;
    case H1_OVER:
        break;
    }
    return bytes.len;
}

static void parse(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    h->is_parsing = true;
    h->requests_started = 0;
    while (bytes.len && is_http1_active(c)) bytes = str_skip(bytes, parse_some(c, bytes));
    if (c->proto != &proto_http1) { /* upgraded: the rest belongs to the new protocol */
        if (bytes.len && !c->is_closing) c->proto->on_bytes(c, bytes);
        return;
    }
    if (c->is_closing) return;
    h->is_parsing = false;
    if (is_http1_active(c) && h->state == H1_IDLE && c->is_draining) conn_finish(c);
}

/* Keep the start of HTTP/2's preface until the rest of it arrives. */
static void keep_preface(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    if (c->wait != WAIT_HEAD) conn_wait(c, WAIT_HEAD);
    buf_init(&h->text, READ_BUFFER_BYTES * 2); /* less than a preface, and one read */
    buf_put_str(&h->text, bytes);
    if (buf_status(&h->text) != ST_OK) conn_fail(c);
}

/* The first bytes of a plaintext connection: HTTP/1.1, or HTTP/2 with prior knowledge? */
static void detect_protocol(struct conn *c, struct str bytes) {
    struct h1 *h = c->state;
    struct buf all = h->text; /* what keep_preface has kept, then the new bytes */
    bool needs_more = false;
    h->text = (struct buf){0};
    if (all.len) {
        buf_put_str(&all, bytes);
        bytes = buf_str(&all);
    }
    const bool is_h2 = http2_is_preface(bytes, &needs_more);
    h->may_be_h2 = is_h2 && needs_more;
    if (buf_status(&all) != ST_OK)
        conn_fail(c);
    else if (h->may_be_h2)
        keep_preface(c, bytes);
    else if (is_h2)
        conn_switch(c, &proto_http2, NULL, bytes);
    else
        parse(c, bytes);
    buf_deinit(&all);
}

static void on_bytes(struct conn *c, struct str bytes) {
    const struct h1 *h = c->state;
    if (h->may_be_h2)
        detect_protocol(c, bytes);
    else
        parse(c, bytes);
}

static enum status open_h1(struct conn *c) {
    struct h1 *h = mem_zalloc(sizeof(*h));
    if (!h) return ST_NOMEM;
    h->may_be_h2 = c->tls == NULL;
    c->state = h;
    conn_wait(c, WAIT_IDLE);
    return ST_OK;
}

static void close_h1(struct conn *c) {
    struct h1 *h = c->state;
    if (!h) return;
    if (h->x) exchange_gone(h->x);
    buf_deinit(&h->text);
    mem_free(h);
}

static void on_written(struct conn *c) {
    struct h1 *h = c->state;
    if (h->is_backlogged && conn_backlog(c) <= c->server->limits.backlog_bytes / 2) {
        h->is_backlogged = false;
        conn_release(c);
    }
    if (h->x) exchange_written(h->x);
}

/* body_ms have passed: has as much arrived as the least rate asks for? */
static void check_body(struct conn *c) {
    const struct http_limits *l = &c->server->limits;
    struct h1 *h = c->state;
    if (h->body_arrived < rate_bytes(l, l->body_ms)) {
        refuse_slow_body(c);
        return;
    }
    h->body_arrived = 0;
    conn_wait(c, WAIT_BODY);
}

static void on_deadline(struct conn *c, enum wait_kind kind) {
    if (kind == WAIT_HEAD)
        refuse(c, 408, "timeout while reading the request head");
    else if (kind == WAIT_BODY)
        check_body(c);
    else
        conn_finish(c);
}

static void drain(struct conn *c) {
    const struct h1 *h = c->state;
    if (h->state == H1_IDLE && !h->is_parsing && c->held.len == 0) conn_finish(c);
}

static uint64_t charged(const struct conn *c, bool is_owned) {
    const struct h1 *h = c->state;
    return h && h->x && (h->x->owner || !is_owned) ? h->x->charged : 0;
}

void http1_upgrade(struct http_exchange *x, const struct proto *to, void *state) {
    struct conn *c = x->conn;
    struct h1 *h = c->state;
    CHECK(h->x == x);
    h->x = NULL;
    exchange_destroy(x);
    conn_switch(c, to, state, (struct str){"", 0});
    if (c->held.len) conn_release(c);
}

const struct proto proto_http1 = {
    .name = "http/1.1",
    .open = open_h1,
    .close = close_h1,
    .on_bytes = on_bytes,
    .on_written = on_written,
    .on_deadline = on_deadline,
    .drain = drain,
    .send_head = send_head,
    .send_data = send_data,
    .send_end = send_end,
    .send_abort = send_abort,
    .backlog = backlog,
    .charged = charged,
};
