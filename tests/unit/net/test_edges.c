/* Goal:   every limit of net/ lets exactly its number of bytes through; what a connection is told
 *         about its bytes and errors is exact; nothing of a request stays for the next one.
 * Method: connections without sockets; amounts one below, at and one above each limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

enum { BACKLOG = 1000, LONG_BYTES = 100000 };

static char filler[LONG_BYTES];

static struct str fill(size_t bytes) {
    memset(filler, 'x', sizeof(filler));
    return (struct str){filler, bytes};
}

static void begin(struct fake *f, const struct http_limits *limits, uint64_t address) {
    assert_int_equal(fake_init(f, limits), ST_OK);
    f->address = address;
    assert_true(fake_connect(f));
}

static bool has(const struct fake *f, const char *text) {
    return f->out.len && strstr(f->out.ptr, text) != NULL;
}

/* ---- shares ---- */

/* A budget of 400 with a share of a quarter: for a peer, an owner, and a peer without limits. */
static void test_responses_may_fill_a_share_and_no_byte_more(void **state) {
    (void)state;
    static const struct {
        uint64_t address;
        bool has_owner;
        uint64_t queued;
        enum http_room room;
    } cases[] = {
        {1, false, 99, HTTP_ROOM},        {1, false, 100, HTTP_ROOM_SHARE},
        {1, false, 399, HTTP_ROOM_SHARE}, {1, false, 400, HTTP_ROOM_NONE},
        {1, true, 99, HTTP_ROOM},         {1, true, 100, HTTP_ROOM_SHARE},
        {0, false, 399, HTTP_ROOM},       {0, false, 400, HTTP_ROOM_NONE},
        {0, true, 99, HTTP_ROOM},         {0, true, 100, HTTP_ROOM_SHARE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        uint64_t charged = 0;
        begin(&f, &(struct http_limits){.replies_bytes = 400}, cases[i].address);
        struct account *owner = accounts_get(&f.server->owners, (struct account_id){.low = 5});
        struct account *other = accounts_get(&f.server->owners, (struct account_id){.low = 6});
        conn_charge(f.conn, cases[i].has_owner ? owner : NULL, &charged, cases[i].queued);
        assert_int_equal(replies_room(f.conn, cases[i].has_owner ? owner : NULL), cases[i].room);
        if (cases[i].queued < 400) assert_int_equal(replies_room(f.conn, other), HTTP_ROOM);
        conn_charge(f.conn, cases[i].has_owner ? owner : NULL, &charged, 0);
        fake_deinit(&f);
    }
}

static void test_bodies_may_fill_a_share_and_no_byte_more(void **state) {
    (void)state;
    static const struct {
        uint64_t body_bytes, first, second;
        bool is_other; /* the second is another owner's */
        uint32_t status;
    } cases[] = {
        {50, 99, 1, false, 0},     {50, 100, 1, false, 429},   {50, 0, 101, false, 429},
        {150, 100, 50, false, 0},  {150, 100, 51, false, 429}, {50, 100, 100, true, 0},
        {50, 100, 101, true, 429},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        const struct http_limits limits = {.bodies_bytes = 400, .body_bytes = cases[i].body_bytes};
        begin(&f, &limits, 1);
        struct account *a = accounts_get(&f.server->owners, (struct account_id){.low = 5});
        struct account *b =
            cases[i].is_other ? accounts_get(&f.server->owners, (struct account_id){.low = 6}) : a;
        assert_int_equal(bodies_charge(f.conn, a, cases[i].first), 0);
        const uint32_t status = bodies_charge(f.conn, b, cases[i].second);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(http_stats(f.server).bodies_refused, status != 0);
        if (!status) bodies_release(f.conn, b, cases[i].second);
        bodies_release(f.conn, a, cases[i].first);
        fake_deinit(&f);
    }
}

/* A peer without limits may have all of them, and then nobody any. */
static void test_all_bodies_together_end_at_the_limit(void **state) {
    (void)state;
    struct fake f;
    begin(&f, &(struct http_limits){.bodies_bytes = 400, .body_bytes = 50}, 0);
    assert_int_equal(bodies_charge(f.conn, NULL, 400), 0);
    assert_int_equal(bodies_charge(f.conn, NULL, 0), 0);
    assert_int_equal(bodies_charge(f.conn, NULL, 1), 503);
    struct account *owner = accounts_get(&f.server->owners, (struct account_id){.low = 5});
    assert_int_equal(bodies_charge(f.conn, owner, 1), 503);
    assert_int_equal(http_stats(f.server).bodies_refused, 2);
    bodies_release(f.conn, NULL, 400);
    fake_deinit(&f);
}

/* A head of 1,034 bytes: 5 of its header, 5 of its target, 1,024 of its exchange. */
static void test_heads_may_fill_a_share_and_no_byte_more(void **state) {
    (void)state;
    static const struct {
        uint64_t address, heads_bytes;
        const char *status;
    } cases[] = {
        {1, 4 * 1034, "200 OK"},
        {1, 4 * 1034 - 1, "429 "},
        {0, 1034, "200 OK"},
        {0, 1033, "503 "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        begin(&f, &(struct http_limits){.heads_bytes = cases[i].heads_bytes}, cases[i].address);
        fake_send(&f, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_true(has(&f, cases[i].status));
        assert_int_equal(http_stats(f.server).bodies_refused, cases[i].status[0] != '2');
        assert_int_equal(f.server->heads_bytes, 0);
        fake_deinit(&f);
    }
}

/* ---- back-pressure ---- */

/* A stream whose head was read; `bytes` of it are unread. */
static void test_a_writer_is_told_when_half_of_its_backlog_is_read(void **state) {
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        struct fake f;
        begin(&f, &(struct http_limits){.backlog_bytes = BACKLOG}, 1);
        fake_send(&f, STR("GET /hold HTTP/1.0\r\n\r\n"));
        struct http_exchange *x = f.held[0];
        http_stream_begin(x, 200, NULL, 0);
        http_stream_flush(x);
        f.room = 0;
        http_stream_put(x, fill(BACKLOG + more));
        http_stream_flush(x);
        assert_int_equal(http_backlog(x), BACKLOG + more);
        assert_int_equal(x->is_writable_due, more);
        if (more) {
            http_stream_put(x, fill(BACKLOG / 2 + 1)); /* waits behind the write under way */
            http_stream_flush(x);
        }
        for (uint32_t left = BACKLOG / 2 + 1; more && left + 1 > BACKLOG / 2; left--) {
            f.is_writing = false;
            f.taken = 0;
            conn_sent(f.conn, 0); /* the next write has what was pending */
            fake_run_loop(&f);
            assert_int_equal(http_backlog(x), left);
            assert_int_equal(f.writables, left <= BACKLOG / 2);
            http_stream_put(x, fill(BACKLOG / 2));
            if (left > BACKLOG / 2) http_stream_flush(x);
        }
        fake_deinit(&f);
    }
}

/* Up to 16 KiB wait for the response to the request before; then the client must wait, too. */
static void test_a_client_that_sent_too_far_ahead_is_read_from_again(void **state) {
    (void)state;
    enum { MORE = 700 };
    struct fake f;
    const struct str next = STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    begin(&f, NULL, 1);
    fake_send(&f, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"));
    uint32_t sent = 0;
    for (; f.is_reading && sent < MORE; sent++) fake_send(&f, next);
    assert_int_equal(sent, (CONN_HELD_BYTES + next.len - 1) / next.len);
    fake_answer_held(&f);
    assert_int_equal(f.ends, 1 + sent);
    assert_true(f.is_reading);
    fake_send(&f, next);
    assert_int_equal(f.ends, 2 + sent);
    fake_deinit(&f);
}

/* The same with one request, of whose body the rest follows when the client may send again. */
static void test_a_body_that_was_held_goes_on(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL, 1);
    fake_send(&f, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"));
    fake_send(&f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n"));
    fake_send(&f, fill(20000));
    assert_false(f.is_reading);
    fake_answer_held(&f);
    assert_true(f.is_reading);
    assert_int_equal(http_stats(f.server).bodies_bytes, 20000);
    fake_send(&f, fill(20000));
    assert_int_equal(f.ends, 2);
    fake_deinit(&f);
}

/* ---- numbers ---- */

static void ask_h1(struct fake *f, const char *method, const char *path) {
    struct buf text;
    buf_init(&text, 1000);
    buf_printf(&text, "%s %s HTTP/1.1\r\nHost: a\r\n\r\n", method, path);
    fake_send(f, buf_str(&text));
    buf_deinit(&text);
}

/* The bytes of a body, which on_end gets: what the client has received of it. */
static void test_the_end_of_a_response_names_the_bytes_of_its_body(void **state) {
    (void)state;
    static const struct {
        const char *method, *path;
        uint64_t bytes;
    } cases[] = {
        {"GET", "/stream", 13}, {"HEAD", "/stream", 0},   {"GET", "/document", LONG_BYTES},
        {"HEAD", "/echo", 0},   {"GET", "/early", 2},     {"HEAD", "/early", 0},
        {"GET", "/echo", 24},   {"HEAD", "/document", 0},
    };
    for (int is_h2 = 0; is_h2 < 2; is_h2++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct fake f;
            struct h2_client c;
            begin(&f, NULL, 1);
            f.document = http_document_create(fill(LONG_BYTES));
            if (is_h2) h2_client_init(&c, &f, false);
            if (is_h2) h2_ask(&c, cases[i].method, cases[i].path, NULL);
            if (is_h2) h2_pump(&c);
            if (!is_h2) ask_h1(&f, cases[i].method, cases[i].path);
            assert_int_equal(f.ends, 1);
            if (is_h2 && str_is(str_of(cases[i].path), "/echo") && cases[i].bytes)
                assert_int_equal(f.body_bytes, c.streams[0].body.len);
            else
                assert_int_equal(f.body_bytes, cases[i].bytes);
            if (is_h2) assert_int_equal(f.body_bytes, c.streams[0].body.len);
            if (is_h2) h2_client_deinit(&c);
            struct http_document *document = f.document;
            fake_deinit(&f);
            http_document_unpin(document);
        }
}

static void test_bytes_and_writes_are_counted(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL, 1);
    const struct str request = STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    fake_send(&f, request);
    struct http_stats n = http_stats(f.server);
    assert_int_equal(n.bytes_in, request.len);
    assert_int_equal(n.bytes_out, f.out.len);
    assert_int_equal(n.writes, 1);
    f.room = 10;
    fake_send(&f, request);
    n = http_stats(f.server);
    assert_int_equal(n.bytes_in, 2 * request.len);
    assert_int_equal(n.writes, 3); /* an attempt, and the rest */
    fake_drain(&f);
    assert_int_equal(http_stats(f.server).bytes_out, f.out.len);
    fake_deinit(&f);
}

/* ---- errors are counted once ---- */

static void break_h1(struct fake *f) {
    fake_send(f, STR("GET nothing HTTP/1.1\r\nHost: a\r\n\r\n"));
}

static void break_frames(struct fake *f) {
    struct h2_client c;
    struct buf frame;
    h2_client_init(&c, f, false);
    h2_pump(&c);
    buf_init(&frame, 100);
    h2_put_frame(&frame, NGHTTP2_DATA, 0, 1, STR("of a stream that was never opened"));
    fake_send(f, buf_str(&frame));
    buf_deinit(&frame);
    h2_client_deinit(&c);
}

static void flood_h2(struct fake *f) {
    static const struct str priority = {"\0\0\0\0\x10", 5};
    struct h2_client c;
    struct buf frame;
    h2_client_init(&c, f, false);
    h2_pump(&c);
    buf_init(&frame, 1 << 20);
    for (int i = 0; i < 5000; i++) h2_put_frame(&frame, NGHTTP2_PRIORITY, 0, 1, priority);
    fake_send(f, buf_str(&frame));
    buf_deinit(&frame);
    h2_client_deinit(&c);
}

static void ask_h2_badly(struct fake *f) {
    static const char *const extra[] = {":authority", "a", "expect", "something", NULL};
    struct h2_client c;
    h2_client_init(&c, f, false);
    h2_ask_with(&c, "POST", "/echo", extra, "body");
    h2_pump(&c);
    assert_int_equal(c.streams[0].status, 417);
    h2_client_deinit(&c);
}

static void test_an_error_of_the_protocol_is_counted_once(void **state) {
    (void)state;
    static void (*const breaks[])(struct fake * f) = {break_h1, break_frames, flood_h2,
                                                      ask_h2_badly};
    for (size_t i = 0; i < sizeof(breaks) / sizeof(breaks[0]); i++) {
        struct fake f;
        begin(&f, NULL, 1);
        breaks[i](&f);
        assert_int_equal(http_stats(f.server).protocol_errors, 1);
        fake_deinit(&f);
    }
}

static void test_an_error_of_a_websocket_is_counted_once(void **state) {
    (void)state;
    struct ws_bench b;
    assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
    assert_true(fake_connect(&b.f));
    fake_send(&b.f, STR(WS_HELLO_TO("/now")));
    ws_say(&b, 0x82, STR("binary"));
    assert_int_equal(http_stats(b.f.server).protocol_errors, 1);
    assert_int_equal(b.code, WS_UNSUPPORTED_DATA);
    ws_bench_deinit(&b);
}

/* ---- the next request of a connection ---- */

static void test_nothing_of_a_request_stays_for_the_next(void **state) {
    (void)state;
    static const struct {
        const char *first, *second;
        const char *expected; /* in the response to the second */
        const char *absent;
    } cases[] = {
        {"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
         "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", "transfer-encoding: chunked", "keep-alive"},
        {"HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n", "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
         "three", "connection"},
        {"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
         "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive", "chunked"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
         "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\ncd", ": cd", "100 Continue"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
         "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\ncd", ": cd", "ab"},
        {"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd",
         "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", "200 OK", "413"},
        {"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
         "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n"
         "Content-Length: 2\r\n\r\n",
         "", "100 Continue"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake f;
        begin(&f, NULL, 1);
        fake_send(&f, str_of(cases[i].first));
        assert_int_equal(f.ends, 1);
        buf_clear(&f.out);
        buf_put_char(&f.out, ' ');
        fake_send(&f, str_of(cases[i].second));
        if (!has(&f, cases[i].expected) || has(&f, cases[i].absent))
            fail_msg("%s after %s: %s", cases[i].second, cases[i].first, f.out.ptr);
        assert_false(f.is_shut);
        fake_deinit(&f);
    }
}

/* On HTTP/2 the heads together may be many times the limit of one. */
static void test_heads_of_one_connection_are_not_added_up(void **state) {
    (void)state;
    enum { REQUESTS = 60 };
    struct fake f;
    struct h2_client c;
    begin(&f, &(struct http_limits){.head_bytes = 200, .headers = 4}, 1);
    h2_client_init(&c, &f, false);
    for (int i = 0; i < REQUESTS; i++) {
        const struct h2_seen *s = h2_ask(&c, "GET", "/echo", NULL);
        h2_pump(&c);
        assert_int_equal(s->status, 200);
    }
    assert_int_equal(f.ends, REQUESTS);
    assert_false(c.has_goaway);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

/* The same for the bytes of a share: the second request of a connection may have another owner. */
static void test_unread_bytes_count_for_the_owner_of_the_last_request(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL, 1);
    f.room = 0;
    fake_send(&f, STR("GET /echo HTTP/1.1\r\nHost: a\r\nx-owner: 5\r\n\r\n"));
    const struct account *a = accounts_get(&f.server->owners, (struct account_id){.low = 5});
    const struct account *b = accounts_get(&f.server->owners, (struct account_id){.low = 6});
    const uint64_t first = a->replies_bytes;
    assert_true(first > 0);
    fake_send(&f, STR("GET /echo HTTP/1.1\r\nHost: a\r\nx-owner: 6\r\n\r\n"));
    assert_int_equal(a->replies_bytes, 0);
    assert_true(b->replies_bytes > first);
    assert_int_equal(b->replies_bytes, http_stats(f.server).replies_bytes);
    conns_verify(f.server);
    fake_drain(&f);
    assert_int_equal(b->replies_bytes, 0);
    fake_deinit(&f);
}

/* ---- responses before the body ---- */

static void stream_at_head(void *ctx, struct http_exchange *x) {
    struct fake *f = ctx;
    f->heads++;
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, STR("early"));
    http_stream_flush(x);
}

/* Its handler has a stream: it is told that the client has gone, and only that. */
static void test_a_stream_that_began_before_the_body_ends_once(void **state) {
    (void)state;
    struct http_handler handler = fake_handler;
    handler.on_head = stream_at_head;
    for (int is_h2 = 0; is_h2 < 2; is_h2++) {
        struct fake f;
        struct h2_client c;
        begin(&f, NULL, 1);
        f.server->handler = &handler;
        if (is_h2) {
            h2_client_init(&c, &f, false);
            h2_ask(&c, "POST", "/echo", "part")->is_held = true;
            h2_pump(&c);
        } else {
            fake_send(&f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart"));
        }
        assert_int_equal(f.heads, 1);
        fake_end_input(&f, UV_ECONNRESET);
        assert_int_equal(f.gones, 1);
        assert_int_equal(f.incompletes + f.ends + f.requests, 0);
        if (is_h2) h2_client_deinit(&c);
        fake_deinit(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_responses_may_fill_a_share_and_no_byte_more),
        cmocka_unit_test(test_bodies_may_fill_a_share_and_no_byte_more),
        cmocka_unit_test(test_all_bodies_together_end_at_the_limit),
        cmocka_unit_test(test_heads_may_fill_a_share_and_no_byte_more),
        cmocka_unit_test(test_a_writer_is_told_when_half_of_its_backlog_is_read),
        cmocka_unit_test(test_a_client_that_sent_too_far_ahead_is_read_from_again),
        cmocka_unit_test(test_a_body_that_was_held_goes_on),
        cmocka_unit_test(test_the_end_of_a_response_names_the_bytes_of_its_body),
        cmocka_unit_test(test_bytes_and_writes_are_counted),
        cmocka_unit_test(test_an_error_of_the_protocol_is_counted_once),
        cmocka_unit_test(test_an_error_of_a_websocket_is_counted_once),
        cmocka_unit_test(test_nothing_of_a_request_stays_for_the_next),
        cmocka_unit_test(test_heads_of_one_connection_are_not_added_up),
        cmocka_unit_test(test_unread_bytes_count_for_the_owner_of_the_last_request),
        cmocka_unit_test(test_a_stream_that_began_before_the_body_ends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
