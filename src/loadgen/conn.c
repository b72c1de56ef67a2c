/* loadgen/conn.c - see loadgen/conn.h. */
#include "loadgen/conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "loadgen/delta.h"
#include "loadgen/tls.h"

enum { HTTP_OK = 200 };

void conn_init(struct conn *c, const struct target *target, const struct clock *clock, int epoll) {
    *c = (struct conn){.target = target, .clock = clock, .epoll = epoll, .fd = -1};
    buf_init(&c->request, CONN_REQUEST_BYTES);
    buf_init(&c->body, CONN_BODY_BYTES);
    sse_init(&c->sse);
    loadgen_response_reset(&c->response);
}

static void close_socket(struct conn *c) {
    loadgen_tls_close(c->tls);
    c->tls = NULL;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->is_kept = false;
}

void conn_deinit(struct conn *c) {
    close_socket(c);
    buf_deinit(&c->request);
    buf_deinit(&c->body);
    sse_deinit(&c->sse);
}

static void watch(struct conn *c, bool out, int op) {
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data = {.ptr = c}};
    CHECK(epoll_ctl(c->epoll, op, c->fd, &e) == 0);
    c->watches_out = out;
}

/* ---- the end of a request ---- */

static bool end(struct conn *c, enum status st) {
    c->status = st;
    c->phase = CONN_IDLE;
    if (st != ST_OK || c->response.state != RESPONSE_DONE || !c->response.keeps_alive)
        close_socket(c);
    c->is_kept = c->fd >= 0;
    return true;
}

static bool end_with_errno(struct conn *c, const char *what, int code) {
    return end(c, err_set(&c->why, ST_UNAVAILABLE, "%s: %s", what, strerror(code)));
}

void conn_abort(struct conn *c, const char *why) {
    CHECK(c->phase != CONN_IDLE);
    close_socket(c);
    end(c, err_set(&c->why, ST_UNAVAILABLE, "%s", why));
}

/* ---- the response ---- */

static void note_delta(struct conn *c, const struct delta *d) {
    struct request_result *t = &c->result;
    if (d->has_usage) {
        t->has_usage = true;
        t->prompt_tokens = d->prompt_tokens;
        t->output_tokens = d->output_tokens;
        t->cached_tokens = d->cached_tokens;
    }
    if (d->has_text) {
        if (t->first_us == 0)
            t->first_us = c->now_us;
        else if (c->gaps)
            hist_add(c->gaps, c->now_us - t->last_us);
        t->text_events++;
    }
    if (d->has_choice) t->last_us = c->now_us;
}

static enum status on_event(void *ctx, struct str data) {
    struct conn *c = ctx;
    struct delta d;
    if (str_is(data, "[DONE]")) return ST_OK;
    TRY(delta_read(data, &d, &c->why));
    note_delta(c, &d);
    return ST_OK;
}

static enum status on_body(void *ctx, struct str bytes) {
    struct conn *c = ctx;
    if (c->streams && c->response.status == HTTP_OK)
        return sse_feed(&c->sse, bytes, &c->why, on_event, c);
    buf_put_str(&c->body, bytes);
    enum status st = buf_status(&c->body);
    return st == ST_OK
               ? ST_OK
               : err_set(&c->why, st, "the response is longer than %d bytes", CONN_BODY_BYTES);
}

/* The error message of a response that is not 200: from its JSON, else its first bytes. */
static enum status read_error(struct conn *c) {
    struct delta d;
    struct str text = buf_str(&c->body);
    if (delta_read(text, &d, &c->why) != ST_UNAVAILABLE)
        err_set(&c->why, ST_UNAVAILABLE, "%.*s", STR_ARG(str_take(text, MEASUREMENT_WHY_BYTES)));
    return ST_UNAVAILABLE;
}

static bool end_response(struct conn *c) {
    struct delta d;
    if (c->response.status != HTTP_OK) return end(c, read_error(c));
    if (!c->streams) {
        enum status st = delta_read(buf_str(&c->body), &d, &c->why);
        if (st != ST_OK) return end(c, st);
        note_delta(c, &d);
    }
    return end(c, ST_OK);
}

/* ---- the connection ---- */

static bool open_socket(struct conn *c) {
    const struct sockaddr *to = (const struct sockaddr *)(const void *)c->target->address;
    int on = 1;
    CHECK(c->target->address_bytes > 0);
    c->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return end_with_errno(c, "cannot create a socket", errno);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(c->fd, to, c->target->address_bytes) != 0 && errno != EINPROGRESS)
        return end_with_errno(c, "cannot connect", errno);
    c->phase = CONN_CONNECTING;
    watch(c, true, EPOLL_CTL_ADD);
    return false;
}

static bool send_some(struct conn *c) {
    struct str rest = str_skip(buf_str(&c->request), c->sent_bytes);
    int64_t sent = c->tls ? loadgen_tls_send(c->tls, rest.ptr, rest.len, &c->why)
                          : send(c->fd, rest.ptr, rest.len, MSG_NOSIGNAL);
    if (sent < 0 && errno == EPROTO && c->tls) return end(c, ST_UNAVAILABLE);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        /* Read first what the server sent before it closed. */
        c->phase = CONN_READING;
        if (c->watches_out) watch(c, false, EPOLL_CTL_MOD);
        return false;
    }
    c->sent_bytes += sent > 0 ? (size_t)sent : 0;
    bool is_sent = c->sent_bytes == c->request.len;
    c->phase = is_sent ? CONN_READING : CONN_SENDING;
    /* In a handshake it waits for the server. */
    bool wants_out = !is_sent && !(c->tls && sent < 0 && loadgen_tls_wants_input(c->tls));
    if (c->watches_out != wants_out) watch(c, wants_out, EPOLL_CTL_MOD);
    return false;
}

static void reset_request(struct conn *c) {
    c->sent_bytes = 0;
    loadgen_response_reset(&c->response);
    sse_reset(&c->sse);
    buf_clear(&c->body);
    c->why.text[0] = 0;
}

static bool is_silent(const struct conn *c) {
    return c->response.state == RESPONSE_STATUS && c->response.line_bytes == 0;
}

/* The other side has closed; `code` is 0 for an orderly end. */
static bool take_close(struct conn *c, int code) {
    if (c->is_kept && is_silent(c)) {
        close_socket(c);
        reset_request(c);
        return open_socket(c);
    }
    if (code) return end_with_errno(c, "the connection was lost", code);
    enum status st = loadgen_response_close(&c->response, &c->why);
    return st == ST_OK ? end_response(c) : end(c, st);
}

static bool read_some(struct conn *c) {
    char bytes[CONN_READ_BYTES];
    size_t used = 0;
    int64_t got = c->tls ? loadgen_tls_receive(c->tls, bytes, sizeof(bytes), &c->why)
                         : recv(c->fd, bytes, sizeof(bytes), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got < 0 && errno == EPROTO && c->tls) return end(c, ST_UNAVAILABLE);
    if (got <= 0) return take_close(c, got < 0 ? errno : 0);
    c->now_us = clock_now(c->clock);
    struct str piece = {bytes, (size_t)got};
    enum status st = loadgen_response_feed(&c->response, piece, &used, &c->why, on_body, c);
    c->result.status = c->response.status;
    if (st != ST_OK) return end(c, st);
    if (c->response.state != RESPONSE_DONE) return false;
    /* The server sent extra bytes, or responded before it had received the whole request. */
    if (used < piece.len || c->sent_bytes < c->request.len) c->response.keeps_alive = false;
    return end_response(c);
}

static bool take_connected(struct conn *c) {
    int code = 0;
    socklen_t len = sizeof(code);
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &len);
    if (code) return end_with_errno(c, "cannot connect", code);
    const struct target *t = c->target;
    if (t->tls && !(c->tls = loadgen_tls_open(t->tls, c->fd, t->host)))
        return end(c, err_set(&c->why, ST_NOMEM, "out of memory for TLS"));
    return send_some(c);
}

bool conn_begin(struct conn *c, bool streams, int64_t begun_us) {
    CHECK(c->phase == CONN_IDLE);
    CHECK(buf_status(&c->request) == ST_OK);
    reset_request(c);
    c->streams = streams;
    c->result = (struct request_result){.begun_us = begun_us};
    return c->fd < 0 ? open_socket(c) : send_some(c);
}

bool conn_on_ready(struct conn *c) {
    switch (c->phase) {
    case CONN_IDLE: /* the server closed the connection, or sent bytes without a request */
        close_socket(c);
        return false;
    case CONN_CONNECTING:
        return take_connected(c);
    case CONN_SENDING: /* the server may respond before it has the whole request */
        return send_some(c) || read_some(c);
    default:
        return read_some(c);
    }
}
