/* Goal:   every deadline of every protocol ends its connection or stream at its millisecond and
 *         not before; who keeps the least rate, to the byte, gets the same time again and not more;
 *         each end is counted once.
 * Method: a table of situations on connections without sockets, each run twice with the test's own
 *         clock: until one millisecond before the deadline, and until the deadline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

/* No two limits are equal, and none is a multiple of another one. */
enum {
    HEAD_MS = 1100,
    BODY_MS = 2300,
    TOTAL_MS = 7000,
    IDLE_MS = 3700,
    WRITE_MS = 4100,
    RATE = 1000, /* bytes a second: one for each millisecond */
    PING_MS = 5300,
    CLOSE_MS = 5000,
    LONG_BYTES = 200000,
    WINDOW = 65535,
};

static const struct http_limits limits = {.head_ms = HEAD_MS,
                                          .body_ms = BODY_MS,
                                          .body_total_ms = TOTAL_MS,
                                          .idle_ms = IDLE_MS,
                                          .write_ms = WRITE_MS,
                                          .rate = RATE,
                                          .handshake_ms = 6100};

struct desk {
    struct ws_bench b; /* first; b.f is the connection */
    struct h2_client h2;
    bool has_h2;
    uint64_t start_ms;
};

static char filler[LONG_BYTES];

static struct str fill(size_t bytes) {
    memset(filler, 'x', sizeof(filler));
    return (struct str){filler, bytes};
}

static void begin(struct desk *d, bool is_ws) {
    *d = (struct desk){0};
    if (is_ws) {
        assert_int_equal(ws_bench_init(&d->b, &limits), ST_OK);
        d->b.options.message_bytes = LONG_BYTES;
        d->b.options.ping_ms = PING_MS;
    } else {
        assert_int_equal(fake_init(&d->b.f, &limits), ST_OK);
    }
    d->b.f.address = 1;
    assert_true(fake_connect(&d->b.f));
    d->start_ms = d->b.f.loop.time;
}

static void end(struct desk *d, bool is_ws) {
    if (d->has_h2) h2_client_deinit(&d->h2);
    struct http_document *document = d->b.f.document;
    if (is_ws)
        ws_bench_deinit(&d->b);
    else
        fake_deinit(&d->b.f);
    http_document_unpin(document);
}

/* Let the time be `ms` after the start, and have the server look at its deadlines. */
static void pass_to(struct desk *d, int64_t ms) {
    struct fake *f = &d->b.f;
    f->loop.time = d->start_ms + (uint64_t)ms;
    if (uv_is_active((uv_handle_t *)&f->server->sweep)) conns_sweep(&f->server->sweep);
    fake_run_loop(f);
    conns_verify(f->server);
    if (d->has_h2 && f->conn) h2_pump(&d->h2);
}

/* ---- HTTP/1.1 ---- */

static void do_nothing(struct desk *d) { (void)d; }

static void answer_one(struct desk *d) {
    pass_to(d, 500);
    fake_send(&d->b.f, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
}

static void begin_head(struct desk *d) {
    pass_to(d, 500);
    fake_send(&d->b.f, STR("GET /ec"));
    pass_to(d, 1000);
    fake_send(&d->b.f, STR("ho HTTP/1.1\r\nHost: a\r\n")); /* does not start the time again */
}

/* A body in two pieces, of which the second brings it to `bytes`. */
static void send_body(struct desk *d, const char *head, size_t bytes) {
    fake_send(&d->b.f, str_of(head));
    pass_to(d, 700);
    if (bytes) fake_send(&d->b.f, fill(bytes / 2));
    pass_to(d, BODY_MS - 1);
    if (bytes) fake_send(&d->b.f, fill(bytes - bytes / 2));
}

#define POST_LONG "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n"

static void send_no_body(struct desk *d) { send_body(d, POST_LONG, 0); }
static void send_body_below_rate(struct desk *d) { send_body(d, POST_LONG, BODY_MS - 1); }
static void send_body_at_rate(struct desk *d) {
    send_body(d, POST_LONG, BODY_MS);
    pass_to(d, BODY_MS);
}

static void send_discarded_body(struct desk *d) {
    send_body(d, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", BODY_MS - 1);
}

/* A response of LONG_BYTES, of which the kernel takes `bytes` in the time of a write. */
static void read_response(struct desk *d, size_t bytes) {
    struct fake *f = &d->b.f;
    f->document = http_document_create(fill(LONG_BYTES));
    f->room = 0;
    fake_send(f, STR("GET /document HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(f->is_writing);
    pass_to(d, 700);
    fake_take(f, bytes / 2);
    pass_to(d, WRITE_MS - 1);
    fake_take(f, bytes - bytes / 2);
}

static void read_below_rate(struct desk *d) { read_response(d, WRITE_MS - 1); }
static void read_at_rate(struct desk *d) {
    read_response(d, WRITE_MS);
    pass_to(d, WRITE_MS);
}

static void linger(struct desk *d) {
    pass_to(d, 500);
    fake_send(&d->b.f, STR("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert_true(d->b.f.is_shut);
    d->b.f.is_shut = false; /* the next end is that of the connection */
}

/* ---- HTTP/2 ---- */

static void begin_h2(struct desk *d) {
    h2_client_init(&d->h2, &d->b.f, true);
    d->has_h2 = true;
}

static void send_preface(struct desk *d) { fake_send(&d->b.f, STR(NGHTTP2_CLIENT_MAGIC)); }

static void settle_h2(struct desk *d) {
    begin_h2(d);
    h2_pump(&d->h2);
    pass_to(d, HEAD_MS / 4); /* the tick: from here on it is idle */
}

static struct h2_seen *post_h2(struct desk *d, const char *path, size_t bytes) {
    static char body[LONG_BYTES + 1];
    memcpy(body, fill(bytes).ptr, bytes);
    body[bytes] = 0;
    begin_h2(d);
    struct h2_seen *s = h2_ask(&d->h2, "POST", path, body);
    s->is_held = true;
    h2_pump(&d->h2);
    return s;
}

static void post_nothing_h2(struct desk *d) { post_h2(d, "/echo", 0); }
static void post_below_rate_h2(struct desk *d) { post_h2(d, "/echo", BODY_MS - 1); }
static void post_at_rate_h2(struct desk *d) {
    post_h2(d, "/echo", BODY_MS);
    pass_to(d, BODY_MS);
}
static void discard_h2(struct desk *d) { post_h2(d, "/early", BODY_MS - 1); }

/* The window of the stream lets its first bytes pass; then it stays closed. */
static void read_window_h2(struct desk *d) {
    d->b.f.document = http_document_create(fill(LONG_BYTES));
    begin_h2(d);
    h2_ask(&d->h2, "GET", "/document", NULL);
    h2_pump(&d->h2);
    assert_int_equal(d->h2.streams[0].body.len, WINDOW);
    pass_to(d, WRITE_MS);
}

/* ---- WebSockets ---- */

static void open_ws(struct desk *d) {
    fake_send(&d->b.f, STR(WS_HELLO_TO("/now")));
    assert_non_null(d->b.ws);
}

static void ping_ws(struct desk *d) {
    open_ws(d);
    pass_to(d, PING_MS);
}

static void message_ws(struct desk *d, size_t bytes) {
    struct buf frame;
    open_ws(d);
    buf_init(&frame, 2 * (size_t)LONG_BYTES);
    ws_put(&frame, 0x01, fill(bytes), 0); /* more of it follows */
    fake_send(&d->b.f, buf_str(&frame));
    buf_deinit(&frame);
}

static void message_below_rate_ws(struct desk *d) { message_ws(d, BODY_MS - 1); }

/* Its mean rate counts, from the start. */
static void message_at_rate_ws(struct desk *d) { message_ws(d, BODY_MS + 200); }

static void message_fast_ws(struct desk *d) { message_ws(d, TOTAL_MS); }

static void close_ws(struct desk *d) {
    open_ws(d);
    ws_close(d->b.ws, WS_NORMAL, "");
}

/* ---- the table ---- */

struct situation {
    const char *name;
    void (*arrange)(struct desk *d);
    int64_t ends_ms;
    uint32_t slow, errors; /* that the end counts */
    bool is_ws, is_of_stream;
};

static const struct situation situations[] = {
    {"nothing was sent", do_nothing, IDLE_MS, 0, 0, false, false},
    {"idle after a response", answer_one, 500 + IDLE_MS, 0, 0, false, false},
    {"half a head", begin_head, 500 + HEAD_MS, 0, 1, false, false},
    {"no body", send_no_body, BODY_MS, 1, 1, false, false},
    {"a body below the rate", send_body_below_rate, BODY_MS, 1, 1, false, false},
    {"a body at the rate, then none", send_body_at_rate, 2 * BODY_MS, 1, 1, false, false},
    {"a discarded body", send_discarded_body, BODY_MS, 1, 0, false, false},
    {"a reader below the rate", read_below_rate, WRITE_MS, 1, 0, false, false},
    {"a reader at the rate, then none", read_at_rate, 2 * WRITE_MS, 1, 0, false, false},
    {"after our last byte", linger, 500 + CONN_LINGER_MS, 0, 0, false, false},
    {"a preface alone", send_preface, HEAD_MS, 0, 0, false, false},
    {"idle on HTTP/2", settle_h2, HEAD_MS / 4 + IDLE_MS, 0, 0, false, false},
    {"no body on HTTP/2", post_nothing_h2, BODY_MS, 1, 1, false, true},
    {"a body below the rate on HTTP/2", post_below_rate_h2, BODY_MS, 1, 1, false, true},
    {"a body at the rate on HTTP/2", post_at_rate_h2, 2 * BODY_MS, 1, 1, false, true},
    {"a discarded body on HTTP/2", discard_h2, BODY_MS, 0, 0, false, true},
    {"a closed window", read_window_h2, 2 * WRITE_MS, 1, 0, false, true},
    {"a ping without an answer", ping_ws, 2 * PING_MS, 0, 0, true, false},
    {"a message below the rate", message_below_rate_ws, BODY_MS, 1, 1, true, false},
    {"a message at the rate, then none", message_at_rate_ws, BODY_MS + 200 + 1, 1, 1, true, false},
    {"a message that takes long", message_fast_ws, TOTAL_MS, 1, 1, true, false},
    {"a close without an answer", close_ws, CLOSE_MS, 0, 0, true, false},
};

static bool has_ended(const struct desk *d, const struct situation *s) {
    if (s->is_of_stream) return d->h2.streams[0].is_closed;
    return !d->b.f.conn || d->b.f.is_shut || d->h2.has_goaway;
}

static void run_until(const struct situation *s, int64_t ms, bool ends) {
    struct desk d;
    begin(&d, s->is_ws);
    s->arrange(&d);
    const struct http_stats before = http_stats(d.b.f.server);
    assert_false(has_ended(&d, s));
    pass_to(&d, ms);
    const struct http_stats after = http_stats(d.b.f.server);
    if (has_ended(&d, s) != ends) fail_msg("%s: %s", s->name, ends ? "goes on" : "has ended");
    if (ends && after.slow - before.slow != s->slow)
        fail_msg("%s: %d are slow", s->name, (int)(after.slow - before.slow));
    if (ends && after.protocol_errors - before.protocol_errors != s->errors)
        fail_msg("%s: %d errors", s->name, (int)(after.protocol_errors - before.protocol_errors));
    end(&d, s->is_ws);
}

static void test_every_deadline_is_kept_to_the_millisecond(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++) {
        run_until(&situations[i], situations[i].ends_ms - 1, false);
        run_until(&situations[i], situations[i].ends_ms, true);
    }
}

/* A body that arrives at the rate all the time: it is refused at the first byte after its time. */
static void test_a_body_has_a_total_time_to_the_millisecond(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct desk d;
        begin(&d, false);
        fake_send(&d.b.f, STR(POST_LONG));
        for (int64_t ms = 1000; ms < TOTAL_MS; ms += 1000) {
            pass_to(&d, ms);
            fake_send(&d.b.f, fill(2000));
        }
        d.b.f.loop.time = d.start_ms + TOTAL_MS + (uint64_t)late; /* the sweep comes later */
        fake_send(&d.b.f, fill(1));
        assert_int_equal(d.b.f.is_shut, late);
        assert_int_equal(http_stats(d.b.f.server).slow, late);
        end(&d, false);
    }
}

/* ---- what is not given ---- */

static void test_limits_that_are_not_given_have_their_documented_values(void **state) {
    (void)state;
    static const struct {
        uint32_t connections, peer, reserve;
    } cases[] = {{1, 1, 0},   {2, 1, 0},   {3, 1, 0},    {8, 4, 1},       {15, 7, 1},
                 {63, 31, 7}, {64, 32, 8}, {100, 50, 8}, {10000, 5000, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        assert_int_equal(fake_init(&f, &(struct http_limits){.connections = cases[i].connections}),
                         ST_OK);
        const struct http_limits l = f.server->limits;
        assert_int_equal(l.peer_connections, cases[i].peer);
        assert_int_equal(l.reserve, cases[i].reserve);
        assert_int_equal(l.head_bytes, 16384);
        assert_int_equal(l.headers, 100);
        assert_int_equal(l.body_bytes, 8 << 20);
        assert_int_equal(l.bodies_bytes, 512 << 20);
        assert_int_equal(l.heads_bytes, 64 << 20);
        assert_int_equal(l.replies_bytes, 256 << 20);
        assert_int_equal(l.share, 4);
        assert_int_equal(l.queue_bytes, 4 << 20);
        assert_int_equal(l.streams, 100);
        assert_int_equal(l.backlog_bytes, 256 << 10);
        assert_int_equal(l.head_ms, 10000);
        assert_int_equal(l.rate, 1024);
        assert_int_equal(l.body_ms, 30000);
        assert_int_equal(l.body_total_ms, 300000);
        assert_int_equal(l.idle_ms, 75000);
        assert_int_equal(l.write_ms, 60000);
        assert_int_equal(l.handshake_ms, 10000);
        assert_int_equal(f.server->wait_ms[WAIT_TICK], 1000);
        fake_deinit(&f);
    }
}

/* A quarter of the shortest of three limits: a second at most, and a millisecond at least. */
static void test_the_tick_is_a_quarter_of_the_shortest_limit(void **state) {
    (void)state;
    static const int64_t cases[][4] = {{9000, 9000, 9000, 1000}, {400, 9000, 9000, 100},
                                       {9000, 400, 9000, 100},   {9000, 9000, 400, 100},
                                       {4000, 4001, 4002, 1000}, {3999, 4001, 4002, 999},
                                       {9000, 9000, 8, 2},       {9000, 9000, 7, 1},
                                       {9000, 9000, 3, 1},       {1, 9000, 9000, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        const struct http_limits l = {
            .head_ms = cases[i][0], .body_ms = cases[i][1], .write_ms = cases[i][2]};
        assert_int_equal(fake_init(&f, &l), ST_OK);
        assert_int_equal(f.server->wait_ms[WAIT_TICK], cases[i][3]);
        fake_deinit(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_deadline_is_kept_to_the_millisecond),
        cmocka_unit_test(test_a_body_has_a_total_time_to_the_millisecond),
        cmocka_unit_test(test_limits_that_are_not_given_have_their_documented_values),
        cmocka_unit_test(test_the_tick_is_a_quarter_of_the_shortest_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
