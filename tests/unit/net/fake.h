/* unit/net/fake.h - a connection without a socket: a test sends and receives its bytes.
 *
 * The handler responds by path: /echo describes the request, /hold responds when the test calls
 * fake_answer, /early is refused before its body arrives, /stream responds in three pieces,
 * /document sends the test's document. The header x-owner is the request's owner. Shared by the
 * unit, fault and fuzz programs of net/.
 */
#ifndef UNIT_NET_FAKE_H
#define UNIT_NET_FAKE_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "net/http_int.h"

enum { FAKE_OUT_MAX = 64 << 20, FAKE_HELD_MAX = 8 };

struct fake {
    uv_loop_t loop;
    struct http_server *server;
    struct conn *conn;   /* NULL once it is closed */
    struct buf out;      /* what the client has received */
    size_t taken;        /* bytes of the write under way that the kernel has taken */
    size_t room;         /* bytes that the kernel takes before it returns UV_EAGAIN */
    size_t kernel_bytes; /* in the kernel's send queue, as it says */
    bool is_writing, is_shut, is_closed, is_reading;
    struct http_exchange *held[FAKE_HELD_MAX]; /* /hold, without a response yet */
    uint32_t held_count;
    uint32_t heads, requests, incompletes, gones, writables, ends, error_bodies;
    uint32_t last_status; /* the status of the last on_end */
    uint64_t body_bytes;  /* of all responses, as on_end has said */
    uint64_t address;     /* of the client; 0: none, as of a unix socket */
    struct http_document *document;
    bool checks_room; /* requests without http_room, or in the reserve, get 429 or 503 */
    bool is_inside;   /* a public call is running: no callback except on_end is allowed */
};

/* ---- the transport ---- */

static inline struct fake *fake_of(const struct conn *c) { return c->uv.handle.data; }

static inline ssize_t fake_try_write(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    struct fake *f = fake_of(c);
    size_t taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        const size_t n = bufs[i].len < f->room ? bufs[i].len : f->room;
        buf_put(&f->out, bufs[i].base, n);
        f->room -= n;
        taken += n;
    }
    return taken ? (ssize_t)taken : UV_EAGAIN;
}

static inline int fake_write(struct conn *c) {
    fake_of(c)->is_writing = true;
    return 0;
}

static inline size_t fake_unsent(const struct conn *c) {
    return fake_of(c)->is_writing ? c->sending.len - fake_of(c)->taken : 0;
}

static inline size_t fake_queued(const struct conn *c) { return fake_of(c)->kernel_bytes; }

static inline void fake_read(struct conn *c, bool on) { fake_of(c)->is_reading = on; }

static inline int fake_shutdown(struct conn *c) {
    fake_of(c)->is_shut = true;
    return 0;
}

static inline void fake_close(struct conn *c) { fake_of(c)->is_closed = true; }

static const struct transport fake_transport = {
    .name = "fake",
    .try_write = fake_try_write,
    .write = fake_write,
    .unsent = fake_unsent,
    .queued = fake_queued,
    .read = fake_read,
    .shutdown = fake_shutdown,
    .close = fake_close,
};

/* ---- the handler ---- */

static inline void fake_answer(struct fake *f, struct http_exchange *x) {
    const struct http_head *h = http_head(x);
    struct buf text;
    buf_init(&text, FAKE_OUT_MAX);
    buf_printf(&text, "%s %.*s ? %.*s @ %.*s v%u %u: ", http_method_name(h->method),
               STR_ARG(h->path), STR_ARG(h->query), STR_ARG(h->host), h->version, h->header_count);
    buf_put_str(&text, http_body(x));
    const struct http_header type = {STR("content-type"), STR("text/plain")};
    const struct http_reply reply = {
        .status = 200, .headers = &type, .header_count = 1, .body = buf_str(&text)};
    f->is_inside = true;
    http_reply(x, &reply);
    f->is_inside = false;
    buf_deinit(&text);
}

static inline void fake_stream(struct fake *f, struct http_exchange *x) {
    const struct http_header type = {STR("content-type"), STR("text/event-stream")};
    f->is_inside = true;
    http_stream_begin(x, 200, &type, 1);
    http_stream_put(x, STR("one,"));
    http_stream_put(x, STR("two,"));
    http_stream_flush(x);
    http_stream_flush(x);
    http_stream_put(x, STR("three"));
    http_stream_end(x);
    f->is_inside = false;
}

static inline void fake_on_head(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    CHECK(!f->is_inside);
    f->heads++;
    const struct str path = http_head(x)->path;
    uint64_t owner;
    if (str_to_u64(http_find(http_head(x), "x-owner"), &owner)) http_set_owner(x, (uint32_t)owner);
    if (str_is(path, "/small")) http_set_body_max(x, 4);
    const enum http_room room = f->checks_room ? http_room(x) : HTTP_ROOM;
    const bool is_full = f->checks_room && http_is_reserved(x) && !str_is(path, "/probe");
    const uint32_t status = room == HTTP_ROOM_SHARE             ? 429
                            : room == HTTP_ROOM_NONE || is_full ? 503
                                                                : 401;
    if (!str_is(path, "/early") && room == HTTP_ROOM && !is_full) return;
    const struct http_reply refusal = {.status = status, .body = STR("no")};
    f->is_inside = true;
    http_reply(x, &refusal);
    f->is_inside = false;
}

static inline void fake_on_request(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    CHECK(!f->is_inside);
    f->requests++;
    const struct str path = http_head(x)->path;
    if (str_is(path, "/hold") && f->held_count < FAKE_HELD_MAX)
        f->held[f->held_count++] = x;
    else if (str_is(path, "/stream"))
        fake_stream(f, x);
    else if (str_is(path, "/document") && f->document)
        http_reply(x, &(struct http_reply){.status = 200, .document = f->document});
    else
        fake_answer(f, x);
}

static inline void fake_remove_held(struct fake *f, const struct http_exchange *x) {
    for (uint32_t i = 0; i < f->held_count; i++)
        if (f->held[i] == x) f->held[i--] = f->held[--f->held_count];
}

static inline void fake_on_incomplete(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    (void)x;
    f->incompletes++;
}

static inline void fake_on_gone(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    CHECK(!f->is_inside);
    CHECK(http_backlog(x) < FAKE_OUT_MAX); /* may still be called */
    f->gones++;
    fake_remove_held(f, x);
}

static inline void fake_on_writable(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    (void)x;
    CHECK(!f->is_inside);
    f->writables++;
}

static inline void fake_put_error_body(void *ctx, uint32_t status, const char *sentence,
                                       struct buf *body) {
    struct fake *f = ctx;
    CHECK(!f->is_inside);
    f->error_bodies++;
    buf_printf(body, "{\"status\":%u,\"message\":", status);
    buf_put_json_string(body, str_of(sentence));
    buf_put_char(body, '}');
}

static inline void fake_on_end(void *ctx, struct http_exchange *x, uint32_t status,
                               uint64_t body_bytes) {
    struct fake *f = ctx;
    CHECK(body_bytes < FAKE_OUT_MAX);
    CHECK(http_backlog(x) < FAKE_OUT_MAX);
    f->ends++;
    f->last_status = status;
    f->body_bytes += body_bytes;
    fake_remove_held(f, x);
}

static const struct http_handler fake_handler = {
    .on_head = fake_on_head,
    .on_request = fake_on_request,
    .on_incomplete = fake_on_incomplete,
    .on_gone = fake_on_gone,
    .on_writable = fake_on_writable,
    .put_error_body = fake_put_error_body,
    .on_end = fake_on_end,
};

/* ---- create and destroy ---- */

/* The loop has always just begun its turn, unless a test says otherwise. */
static inline uint64_t fake_clock(void) { return 0; }

static inline enum status fake_init(struct fake *f, const struct http_limits *limits) {
    *f = (struct fake){.room = SIZE_MAX};
    struct http_options options = {.handler = &fake_handler, .ctx = f};
    if (limits) options.limits = *limits;
    buf_init(&f->out, FAKE_OUT_MAX);
    CHECK(uv_loop_init(&f->loop) == 0);
    const enum status st = http_server_create(&f->loop, &options, &f->server, NULL);
    if (st != ST_OK) CHECK(uv_loop_close(&f->loop) == 0);
    if (st == ST_OK) f->server->clock_ns = fake_clock;
    return st;
}

/* False: out of memory. */
static inline bool fake_connect(struct fake *f) {
    CHECK(!f->conn);
    buf_clear(&f->out);
    f->room = SIZE_MAX;
    f->is_writing = f->is_shut = f->is_closed = false;
    f->taken = 0;
    f->conn = conn_create(f->server, &fake_transport);
    if (!f->conn) return false;
    f->conn->uv.handle.data = f;
    memcpy(f->conn->peer, "fake", sizeof("fake"));
    struct account *a =
        f->address ? accounts_get(&f->server->peers, (struct account_id){1, f->address}) : NULL;
    if (a) conn_set_account(f->conn, a);
    conn_open(f->conn, NULL);
    return true;
}

/* What the loop would do: deferred calls, and freeing closed connections. */
static inline void fake_run_loop(struct fake *f) {
    for (int i = 0; i < 100 && f->server->deferred.first; i++)
        uv_run(f->server->loop, UV_RUN_NOWAIT);
    if (!f->is_closed) return;
    if (f->is_writing) conn_sent(f->conn, UV_ECANCELED);
    conn_closed(f->conn);
    f->conn = NULL;
    f->is_closed = f->is_writing = false;
}

/* The client sends. Bytes are lost while the server does not read: see is_reading. */
static inline void fake_send(struct fake *f, struct str bytes) {
    if (f->conn && !f->is_closed && f->is_reading) conn_received(f->conn, bytes);
    fake_run_loop(f);
}

/* The kernel takes the pending bytes. */
static inline void fake_drain(struct fake *f) {
    while (f->conn && f->is_writing) {
        f->is_writing = false;
        buf_put(&f->out, f->conn->sending.ptr + f->taken, f->conn->sending.len - f->taken);
        f->taken = 0;
        conn_sent(f->conn, 0);
        fake_run_loop(f);
    }
}

/* The kernel takes some of the pending bytes: fewer than the write under way has. */
static inline void fake_take(struct fake *f, size_t bytes) {
    CHECK(f->is_writing && bytes < f->conn->sending.len - f->taken);
    buf_put(&f->out, f->conn->sending.ptr + f->taken, bytes);
    f->taken += bytes;
}

static inline void fake_end_input(struct fake *f, int status) {
    if (f->conn && !f->is_closed) conn_eof(f->conn, status);
    fake_run_loop(f);
}

/* Respond to the held requests, in the order of arrival. */
static inline void fake_answer_held(struct fake *f) {
    while (f->held_count) {
        fake_answer(f, f->held[0]); /* on_end removes it from `held` */
        fake_run_loop(f);
    }
}

static inline void fake_disconnect(struct fake *f) {
    if (f->conn && !f->is_closed) conn_close(f->conn);
    fake_run_loop(f);
}

static inline void fake_deinit(struct fake *f) {
    fake_disconnect(f);
    http_server_close(f->server);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    CHECK(f->server->stats.exchanges == 0);
    CHECK(f->server->stats.connections == 0);
    CHECK(f->server->bodies_bytes == 0);
    CHECK(f->server->heads_bytes == 0);
    CHECK(f->server->replies_bytes == 0);
    http_server_destroy(f->server);
    CHECK(uv_loop_close(&f->loop) == 0);
    buf_deinit(&f->out);
}

/* What was received, without lines that differ from run to run. */
static inline void fake_received(const struct fake *f, struct buf *out) {
    struct str rest = buf_str(&f->out);
    buf_clear(out);
    while (rest.len) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        const struct str line = str_take(rest, end ? (size_t)(end - rest.ptr) + 1 : rest.len);
        if (!str_starts(line, STR("date: "))) buf_put_str(out, line);
        rest = str_skip(rest, line.len);
    }
}

/* Let time pass for the server and have it check its deadlines, if its timer runs. */
static inline void fake_pass_ms(struct fake *f, int64_t ms) {
    const int64_t step = f->server->wait_ms[WAIT_TICK];
    for (int64_t done = 0; done < ms; done += step) {
        f->loop.time += (uint64_t)(ms - done < step ? ms - done : step);
        if (uv_is_active((uv_handle_t *)&f->server->sweep)) conns_sweep(&f->server->sweep);
    }
    fake_run_loop(f);
}

#endif
