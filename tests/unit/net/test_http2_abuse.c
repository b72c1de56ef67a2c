/* Goal:   HTTP/2 keeps its limits and deadlines, and a peer that floods or stalls the server is
 *         disconnected without harm to other clients.
 * Method: nghttp2's client and hand-written frames on a connection without sockets; the test moves
 *         the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"

/* The head of GET /echo with an authority, in HPACK without a table. */
#define HEAD_ECHO                                                                                  \
    "\x82\x86\x44\x05/echo\x41\x01"                                                                \
    "a"
#define HEAD_HOLD                                                                                  \
    "\x82\x86\x44\x05/hold\x41\x01"                                                                \
    "a"

enum { END_STREAM = 1, END_HEADERS = 4 };

struct bench {
    struct fake f;
    struct h2_client c;
};

static void begin_with(struct bench *b, const struct http_limits *limits, bool keeps_windows) {
    assert_int_equal(fake_init(&b->f, limits), ST_OK);
    assert_true(fake_connect(&b->f));
    h2_client_init(&b->c, &b->f, keeps_windows);
    h2_pump(&b->c);
}

static void begin(struct bench *b, const struct http_limits *limits) {
    begin_with(b, limits, false);
}

static void end(struct bench *b) {
    h2_client_deinit(&b->c);
    fake_deinit(&b->f);
}

/* An error response was sent, and the connection stays open. */
static void check_refused(struct bench *b, const struct h2_seen *s, uint32_t status) {
    assert_int_equal(s->status, status);
    assert_string_equal(s->type, "application/json");
    assert_int_equal(strncmp(s->body.ptr, "{\"status\":", 10), 0);
    assert_true(s->is_closed);
    assert_int_equal(s->code, NGHTTP2_NO_ERROR);
    struct h2_seen *next = h2_ask(&b->c, "GET", "/echo", NULL);
    h2_pump(&b->c);
    assert_int_equal(next->status, 200);
}

/* ---- limits ---- */

static void test_heads_have_a_limit_of_bytes(void **state) {
    (void)state;
    const struct http_limits limits = {.head_bytes = 1000};
    for (size_t len = 900; len < 1100; len += 50) {
        struct bench b;
        struct buf value;
        begin(&b, &limits);
        buf_init(&value, 2000);
        while (value.len < len) buf_put_char(&value, 'x');
        const char *const extra[] = {":authority", "a", "x-long", buf_text(&value), NULL};
        struct h2_seen *s = h2_ask_with(&b.c, "GET", "/echo", extra, NULL);
        h2_pump(&b.c);
        /* Method, target, authority and the name take 15. */
        if (len + 15 <= 1000)
            assert_int_equal(s->status, 200);
        else
            check_refused(&b, s, 431);
        buf_deinit(&value);
        end(&b);
    }
}

static void test_heads_have_a_limit_of_headers(void **state) {
    (void)state;
    const struct http_limits limits = {.headers = 20};
    for (uint32_t count = 18; count < 23; count++) {
        struct bench b;
        const char *extra[64] = {":authority", "a"};
        begin(&b, &limits);
        for (uint32_t i = 0; i < count; i++) {
            extra[2 + 2 * i] = "x-some";
            extra[3 + 2 * i] = "1";
        }
        struct h2_seen *s = h2_ask_with(&b.c, "GET", "/echo", extra, NULL);
        h2_pump(&b.c);
        if (count <= 20)
            assert_int_equal(s->status, 200);
        else
            check_refused(&b, s, 431);
        end(&b);
    }
}

static void test_a_long_target_is_refused(void **state) {
    (void)state;
    const struct http_limits limits = {.head_bytes = 1000};
    struct bench b;
    struct buf path;
    begin(&b, &limits);
    buf_init(&path, 2000);
    buf_put_char(&path, '/');
    while (path.len < 1500) buf_put_char(&path, 'x');
    struct h2_seen *s = h2_ask(&b.c, "GET", buf_text(&path), NULL);
    h2_pump(&b.c);
    check_refused(&b, s, 414);
    buf_deinit(&path);
    end(&b);
}

static void test_bodies_have_a_limit(void **state) {
    (void)state;
    static const struct {
        const char *length; /* NULL: not said */
        const char *body;
        uint32_t status;
    } cases[] = {
        {NULL, "1234", 200},
        {"4", "1234", 200},
        {NULL, "12345", 413},
        {"5", "12345", 413},
        {"18446744073709551615", "12345", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        begin(&b, NULL);
        const char *extra[] = {":authority", "a", "content-length", cases[i].length, NULL};
        if (!cases[i].length) extra[2] = NULL;
        struct h2_seen *s = h2_ask_with(&b.c, "POST", "/small", extra, cases[i].body);
        h2_pump(&b.c);
        if (cases[i].status == 200)
            assert_int_equal(s->status, 200);
        else if (cases[i].status)
            check_refused(&b, s, 413);
        else
            assert_int_equal(s->code, NGHTTP2_PROTOCOL_ERROR);
        assert_int_equal(b.f.gones, 0);
        end(&b);
    }
}

static void test_a_body_that_is_refused_need_not_be_sent(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    const char *const extra[] = {":authority",   "a", "content-length", "1000000", "expect",
                                 "100-continue", NULL};
    struct h2_seen *s = h2_ask_with(&b.c, "POST", "/small", extra, "x");
    s->is_held = true;
    h2_pump(&b.c);
    check_refused(&b, s, 413);
    end(&b);
}

static void test_a_body_must_have_its_announced_length(void **state) {
    (void)state;
    static const char *const lengths[] = {"1", "3", "0", "x", "-2", "+2", "2, 2"};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct bench b;
        begin(&b, NULL);
        const char *const extra[] = {":authority", "a", "content-length", lengths[i], NULL};
        struct h2_seen *s = h2_ask_with(&b.c, "POST", "/echo", extra, "hi");
        h2_pump(&b.c);
        assert_true(s->is_closed);
        assert_int_equal(s->code, NGHTTP2_PROTOCOL_ERROR);
        assert_int_equal(b.f.requests, 0);
        struct h2_seen *next = h2_ask(&b.c, "GET", "/echo", NULL);
        h2_pump(&b.c);
        assert_int_equal(next->status, 200);
        end(&b);
    }
}

static void test_ambiguous_heads_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *method, *path;
        const char *headers[5];
        uint32_t status; /* 0: the stream is reset */
    } cases[] = {
        {"GET", "/echo", {":authority", "a", "bad name", "x", NULL}, 400},
        {"GET", "/echo", {":authority", "a", "x", "a\x01z", NULL}, 400},
        {"GET", "/echo", {":authority", "a", "x", "a\r\ny: z", NULL}, 400},
        {"GET", "/echo", {":authority", "a b", NULL}, 0},
        {"GET", "/echo", {":authority", "a/b", NULL}, 400},
        {"GET", "/echo", {":authority", "a", "connection", "close", NULL}, 0},
        {"GET", "/echo", {":authority", "a", "transfer-encoding", "chunked", NULL}, 0},
        {"GET", "/echo", {":authority", "a", "upgrade", "websocket", NULL}, 0},
        {"GET", "/echo", {":authority", "a", "te", "gzip", NULL}, 0},
        {"GET", "/echo", {":authority", "a", ":path", "/other", NULL}, 0},
        {"GET", "/echo", {":authority", "a", ":unknown", "x", NULL}, 0},
        {"GET", NULL, {":authority", "a", NULL}, 0},
        {"GET", "echo", {":authority", "a", NULL}, 0},
        {"GET", "", {":authority", "a", NULL}, 0},
        {"GET", "*", {":authority", "a", NULL}, 0},
        {"GET", "/a b", {":authority", "a", NULL}, 400},
        {"GET", "/a#b", {":authority", "a", NULL}, 400},
        {"G ET", "/echo", {":authority", "a", NULL}, 400},
        {"GET", "http://a/echo", {":authority", "a", NULL}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        begin(&b, NULL);
        struct h2_seen *s =
            h2_ask_with(&b.c, cases[i].method, cases[i].path, cases[i].headers, NULL);
        h2_pump(&b.c);
        print_message("%s %s: %u, %u\n", cases[i].method, cases[i].path ? cases[i].path : "none",
                      s->status, s->code);
        assert_int_equal(b.f.requests, 0);
        if (s->status && cases[i].status) check_refused(&b, s, 400);
        /* nghttp2 refuses more from one version to the next: a reset is as good. */
        if (!s->status) assert_int_equal(s->code, NGHTTP2_PROTOCOL_ERROR);
        if (!cases[i].status) assert_int_equal(s->status, 0);
        end(&b);
    }
}

static void test_names_must_be_in_lower_case(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin(&b, NULL);
    buf_init(&bytes, 1000);
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1,
                 STR(HEAD_ECHO "\x00\x01X\x01x"));
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 3,
                 STR(HEAD_ECHO "\x00\x01x\x01x"));
    fake_send(&b.f, buf_str(&bytes));
    assert_int_equal(b.f.requests, 1);
    buf_deinit(&bytes);
    end(&b);
}

static void test_connect_is_refused(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    struct h2_seen *s = &b.c.streams[b.c.count++];
    buf_init(&s->body, FAKE_OUT_MAX);
    const nghttp2_nv nv[] = {h2_nv(":method", "CONNECT"), h2_nv(":authority", "b:443")};
    s->id = nghttp2_submit_request(b.c.session, NULL, nv, 2, NULL, NULL);
    h2_pump(&b.c);
    check_refused(&b, s, 501);
    const nghttp2_nv ws[] = {h2_nv(":method", "CONNECT"), h2_nv(":authority", "a"),
                             h2_nv(":protocol", "websocket"), h2_nv(":scheme", "http"),
                             h2_nv(":path", "/")};
    struct h2_seen *t = &b.c.streams[b.c.count++];
    buf_init(&t->body, FAKE_OUT_MAX);
    t->id = nghttp2_submit_request(b.c.session, NULL, ws, 5, NULL, NULL);
    h2_pump(&b.c);
    assert_int_equal(t->code, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(b.f.heads, 1);
    end(&b);
}

static void test_streams_have_a_limit(void **state) {
    (void)state;
    const struct http_limits limits = {.streams = 5};
    struct bench b;
    begin(&b, &limits);
    for (int i = 0; i < 8; i++) h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    assert_int_equal(b.f.held_count, 5); /* the client keeps the others back */
    fake_answer(&b.f, b.f.held[0]);
    h2_pump(&b.c);
    assert_int_equal(b.f.held_count, 5);
    assert_int_equal(b.f.requests, 6);
    end(&b);
}

/* ---- floods ---- */

/* A connection whose client sends hand-written frames. */
static void begin_raw(struct bench *b, const struct http_limits *limits, struct buf *bytes) {
    begin(b, limits);
    buf_init(bytes, 64 << 20);
}

/* Sends in pieces of 16 KiB until the server closes or everything is sent. */
static void flood(struct bench *b, struct str bytes) {
    while (bytes.len && b->f.conn && !b->f.conn->is_finishing) {
        const struct str part = str_take(bytes, 16384);
        fake_send(&b->f, part);
        bytes = str_skip(bytes, part.len);
        h2_receive(&b->c);
    }
    h2_receive(&b->c);
}

static void check_sent_away(struct bench *b, uint32_t code) {
    assert_true(b->c.has_goaway);
    assert_int_equal(b->c.goaway_code, code);
    assert_true(b->f.is_shut || !b->f.conn);
    assert_int_equal(b->f.server->stats.exchanges, 0);
    assert_int_equal(b->f.held_count, 0);
}

static void test_rapid_resets_end_the_connection(void **state) {
    (void)state;
    for (int has_answers = 0; has_answers < 2; has_answers++) {
        struct bench b;
        struct buf bytes;
        begin_raw(&b, NULL, &bytes);
        for (int i = 0; i < 5000; i++) {
            const int32_t id = 1 + 2 * i;
            h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, id,
                         has_answers ? STR(HEAD_ECHO) : STR(HEAD_HOLD));
            h2_put_frame(&bytes, NGHTTP2_RST_STREAM, 0, id, STR("\0\0\0\x08"));
        }
        flood(&b, buf_str(&bytes));
        check_sent_away(&b, NGHTTP2_ENHANCE_YOUR_CALM);
        assert_in_range(b.f.requests, 100, 1000);
        buf_deinit(&bytes);
        end(&b);
    }
}

static void test_resets_after_some_of_the_response_are_allowed(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    for (int i = 0; i < 400; i++) {
        struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
        h2_pump(&b.c);
        http_stream_begin(b.f.held[0], 200, NULL, 0);
        http_stream_put(b.f.held[0], STR("x"));
        http_stream_flush(b.f.held[0]);
        h2_pump(&b.c);
        nghttp2_submit_rst_stream(b.c.session, 0, s->id, NGHTTP2_CANCEL);
        h2_pump(&b.c);
    }
    assert_int_equal(b.f.gones, 400);
    assert_false(b.c.has_goaway);
    end(&b);
}

static void test_resets_that_the_peer_provokes_count_too(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin_raw(&b, NULL, &bytes);
    for (int i = 0; i < 5000; i++) {
        const int32_t id = 1 + 2 * i;
        h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, id, STR(HEAD_HOLD));
        h2_put_frame(&bytes, NGHTTP2_WINDOW_UPDATE, 0, id, STR("\0\0\0\0"));
    }
    flood(&b, buf_str(&bytes));
    assert_true(b.c.has_goaway);
    assert_true(b.f.is_shut || !b.f.conn);
    assert_in_range(b.f.requests, 1, 1000);
    assert_int_equal(b.f.server->stats.exchanges, 0);
    buf_deinit(&bytes);
    end(&b);
}

static void test_a_flood_of_frames_without_content_ends_the_connection(void **state) {
    (void)state;
    static const struct {
        const char *fact;
        uint8_t type, flags;
        int32_t id;
        struct str payload;
        uint32_t code;
    } cases[] = {
        {"PING", NGHTTP2_PING, 0, 0, {"12345678", 8}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"PING ACK", NGHTTP2_PING, 1, 0, {"12345678", 8}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"SETTINGS", NGHTTP2_SETTINGS, 0, 0, {"", 0}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"PRIORITY", NGHTTP2_PRIORITY, 0, 1, {"\0\0\0\0\x10", 5}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"empty DATA", NGHTTP2_DATA, 0, 1, {"", 0}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"padded DATA", NGHTTP2_DATA, 8, 1, {"\x03\0\0\0", 4}, NGHTTP2_ENHANCE_YOUR_CALM},
        {"window", NGHTTP2_WINDOW_UPDATE, 0, 0, {"\0\0\0\x01", 4}, NGHTTP2_ENHANCE_YOUR_CALM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        struct buf bytes;
        print_message("%s\n", cases[i].fact);
        begin_raw(&b, NULL, &bytes);
        h2_put_frame(&bytes, NGHTTP2_HEADERS, END_HEADERS, 1, STR(HEAD_ECHO));
        for (int k = 0; k < 10000; k++)
            h2_put_frame(&bytes, cases[i].type, cases[i].flags, cases[i].id, cases[i].payload);
        flood(&b, buf_str(&bytes));
        check_sent_away(&b, cases[i].code);
        buf_deinit(&bytes);
        end(&b);
    }
}

static void test_unknown_frames_are_ignored(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin_raw(&b, NULL, &bytes);
    for (int k = 0; k < 10000; k++) h2_put_frame(&bytes, 0xf0, 0xff, k, STR("what"));
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, STR(HEAD_ECHO));
    flood(&b, buf_str(&bytes));
    assert_int_equal(b.f.requests, 1);
    assert_int_equal(b.f.ends, 1);
    assert_false(b.c.has_goaway);
    buf_deinit(&bytes);
    end(&b);
}

static void test_a_peer_that_does_not_read_acknowledgements_is_disconnected(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin_raw(&b, NULL, &bytes);
    b.f.room = 0;
    for (int k = 0; k < 1000; k++)
        for (int i = 0; i < 100; i++) h2_put_frame(&bytes, NGHTTP2_PING, 0, 0, STR("12345678"));
    flood(&b, buf_str(&bytes));
    assert_true(conn_backlog(b.f.conn) < 200000);
    fake_drain(&b.f);
    h2_receive(&b.c);
    check_sent_away(&b, NGHTTP2_ENHANCE_YOUR_CALM);
    buf_deinit(&bytes);
    end(&b);
}

static void test_a_head_without_end_is_bounded(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin_raw(&b, NULL, &bytes);
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM, 1, STR(HEAD_ECHO));
    for (int i = 0; i < 1000; i++) /* "x: x" without indexing, and so on */
        h2_put_frame(&bytes, NGHTTP2_CONTINUATION, 0, 1, STR("\0\x01x\x01x"));
    flood(&b, buf_str(&bytes));
    assert_true(b.c.has_goaway);
    assert_true(b.f.is_shut || !b.f.conn);
    assert_int_equal(b.f.requests, 0);
    assert_int_equal(b.f.server->stats.exchanges, 0);
    buf_deinit(&bytes);
    end(&b);
}

/* As a head, and as the trailer of a request that is under way. */
static void unpack_megabytes(bool is_trailer) {
    struct bench b;
    struct buf bytes, head;
    begin_raw(&b, NULL, &bytes);
    if (is_trailer) h2_put_frame(&bytes, NGHTTP2_HEADERS, END_HEADERS, 1, STR(HEAD_HOLD));
    buf_init(&head, 1 << 20);
    if (!is_trailer) buf_put_str(&head, STR(HEAD_ECHO));
    buf_put_str(&head, STR("\x40\x01x\x7f\x81\x1e")); /* "x" with 4,000 bytes, into the table */
    for (int i = 0; i < 4000; i++) buf_put_char(&head, 'a');
    for (int i = 0; i < 10000; i++) buf_put_char(&head, (char)0xbe); /* that entry again */
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, buf_str(&head));
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 3, STR(HEAD_ECHO));
    flood(&b, buf_str(&bytes));
    check_sent_away(&b, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(b.f.requests, 0); /* not the second either */
    buf_deinit(&head);
    buf_deinit(&bytes);
    end(&b);
}

static void test_a_head_that_unpacks_to_megabytes_ends_the_connection(void **state) {
    (void)state;
    unpack_megabytes(false);
    unpack_megabytes(true);
}

static void test_protocol_errors_end_the_connection_and_notify_the_handler(void **state) {
    (void)state;
    static const struct {
        const char *fact;
        uint8_t type, flags;
        int32_t id;
        struct str payload;
        uint32_t code;
    } cases[] = {
        {"DATA on stream 0", NGHTTP2_DATA, 0, 0, {"x", 1}, NGHTTP2_PROTOCOL_ERROR},
        {"HEADERS on stream 0", NGHTTP2_HEADERS, 5, 0, {HEAD_ECHO, 12}, NGHTTP2_PROTOCOL_ERROR},
        {"an even stream", NGHTTP2_HEADERS, 5, 2, {HEAD_ECHO, 12}, NGHTTP2_PROTOCOL_ERROR},
        {"PING of 7", NGHTTP2_PING, 0, 0, {"1234567", 7}, NGHTTP2_FRAME_SIZE_ERROR},
        {"SETTINGS of 5", NGHTTP2_SETTINGS, 0, 0, {"12345", 5}, NGHTTP2_FRAME_SIZE_ERROR},
        {"PUSH_PROMISE", NGHTTP2_PUSH_PROMISE, 4, 1, {"\0\0\0\x02", 4}, NGHTTP2_PROTOCOL_ERROR},
        {"a lone CONTINUATION", NGHTTP2_CONTINUATION, 4, 1, {"", 0}, NGHTTP2_PROTOCOL_ERROR},
        {"no HPACK", NGHTTP2_HEADERS, 5, 9, {"\xff\xff\xff\xff\xff", 5}, NGHTTP2_COMPRESSION_ERROR},
        {"a window past its maximum",
         NGHTTP2_WINDOW_UPDATE,
         0,
         0,
         {"\x7f\xff\xff\xff", 4},
         NGHTTP2_FLOW_CONTROL_ERROR},
        {"RST of an idle stream",
         NGHTTP2_RST_STREAM,
         0,
         99,
         {"\0\0\0\0", 4},
         NGHTTP2_PROTOCOL_ERROR},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        struct buf bytes;
        print_message("%s\n", cases[i].fact);
        begin_raw(&b, NULL, &bytes);
        h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, STR(HEAD_HOLD));
        fake_send(&b.f, buf_str(&bytes));
        assert_int_equal(b.f.held_count, 1);
        buf_clear(&bytes);
        h2_put_frame(&bytes, cases[i].type, cases[i].flags, cases[i].id, cases[i].payload);
        flood(&b, buf_str(&bytes));
        assert_int_equal(b.f.gones, 1);
        check_sent_away(&b, cases[i].code);
        assert_int_equal(http_stats(b.f.server).protocol_errors, 1);
        buf_deinit(&bytes);
        end(&b);
    }
}

static void test_a_preface_must_be_followed_by_settings(void **state) {
    (void)state;
    struct fake f;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    fake_send(&f, STR(NGHTTP2_CLIENT_MAGIC "GET / HTTP/1.1\r\n\r\n"));
    assert_true(f.is_shut || !f.conn);
    assert_int_equal(f.heads, 0);
    fake_deinit(&f);
}

/* ---- deadlines ---- */

static void test_an_idle_connection_is_closed_after_its_time_limit(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    struct h2_seen *s = h2_ask(&b.c, "GET", "/echo", NULL);
    h2_pump(&b.c);
    assert_true(s->is_closed);
    fake_pass_ms(&b.f, 74000);
    /* A ping does not make it busy. */
    nghttp2_submit_ping(b.c.session, 0, NULL);
    h2_pump(&b.c);
    assert_int_equal(b.c.pongs, 1);
    assert_false(b.f.is_shut);
    fake_pass_ms(&b.f, 3000);
    h2_pump(&b.c);
    check_sent_away(&b, NGHTTP2_NO_ERROR);
    end(&b);
}

static void test_an_idle_connection_can_be_used_again(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    for (int i = 0; i < 10; i++) {
        struct h2_seen *s = h2_ask(&b.c, "POST", "/echo", "text");
        h2_pump(&b.c);
        assert_int_equal(s->status, 200);
        assert_true(s->is_closed);
        fake_pass_ms(&b.f, 60000);
        assert_int_equal(b.f.conn->wait, WAIT_IDLE);
    }
    end(&b);
}

static void test_a_connection_with_a_stream_is_not_idle(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    fake_pass_ms(&b.f, 400000);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    assert_int_equal(s->status, 200);
    fake_pass_ms(&b.f, 77000);
    h2_pump(&b.c);
    check_sent_away(&b, NGHTTP2_NO_ERROR);
    end(&b);
}

static void test_a_client_that_is_silent_after_the_preface_is_disconnected(void **state) {
    (void)state;
    struct fake f;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    fake_send(&f, STR(NGHTTP2_CLIENT_MAGIC));
    fake_pass_ms(&f, 9000);
    assert_false(f.is_shut);
    fake_pass_ms(&f, 2000);
    assert_true(f.is_shut || !f.conn);
    fake_deinit(&f);
}

static void test_a_head_that_does_not_arrive_ends_the_connection(void **state) {
    (void)state;
    struct bench b;
    struct buf bytes;
    begin_raw(&b, NULL, &bytes);
    h2_put_frame(&bytes, NGHTTP2_HEADERS, END_STREAM, 1, STR(HEAD_ECHO));
    fake_send(&b.f, buf_str(&bytes));
    fake_pass_ms(&b.f, 9000);
    assert_false(b.f.is_shut);
    fake_pass_ms(&b.f, 2000);
    h2_receive(&b.c);
    check_sent_away(&b, NGHTTP2_ENHANCE_YOUR_CALM);
    buf_deinit(&bytes);
    end(&b);
}

static void test_a_body_that_stops_arriving_is_refused_and_others_are_not(void **state) {
    (void)state;
    struct bench b;
    begin(&b, NULL);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/echo", "x");
    struct h2_seen *hold = h2_ask(&b.c, "POST", "/hold", "x");
    s->is_held = true;
    h2_pump(&b.c);
    fake_pass_ms(&b.f, 29000);
    h2_pump(&b.c);
    assert_int_equal(s->status, 0);
    fake_pass_ms(&b.f, 2000);
    h2_pump(&b.c);
    check_refused(&b, s, 408);
    assert_false(hold->is_closed);
    end(&b);
}

static void test_a_body_that_arrives_too_slowly_is_refused(void **state) {
    (void)state;
    struct bench b;
    static char piece[31000]; /* enough for the least rate; the whole body takes too long */
    begin(&b, NULL);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/echo", "x");
    s->is_held = true;
    h2_pump(&b.c);
    for (int i = 0; i < 14; i++) {
        fake_pass_ms(&b.f, 21000);
        s->request = (struct str){piece, sizeof(piece)};
        nghttp2_session_resume_data(b.c.session, s->id);
        h2_pump(&b.c);
        assert_int_equal(s->status, 0);
    }
    fake_pass_ms(&b.f, 8000);
    h2_pump(&b.c);
    check_refused(&b, s, 408);
    end(&b);
}

static void test_a_window_that_stays_closed_resets_its_stream(void **state) {
    (void)state;
    struct bench b;
    begin_with(&b, NULL, true);
    nghttp2_session_set_local_window_size(b.c.session, 0, 0, 1 << 30);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
    struct h2_seen *other = h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    struct http_exchange *x = b.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    for (int i = 0; i < 8000; i++) http_stream_put(x, STR("0123456789"));
    http_stream_flush(x);
    h2_pump(&b.c);
    assert_int_equal(s->body.len, 65535);
    fake_pass_ms(&b.f, 50000);
    nghttp2_submit_window_update(b.c.session, 0, s->id, 1000);
    h2_pump(&b.c);
    fake_pass_ms(&b.f, 50000); /* it had moved within the first write_ms */
    assert_int_equal(b.f.gones, 0);
    fake_pass_ms(&b.f, 22000);
    h2_pump(&b.c);
    assert_int_equal(b.f.gones, 1);
    assert_true(s->is_closed);
    assert_int_equal(s->code, NGHTTP2_CANCEL);
    assert_false(other->is_closed);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    assert_int_equal(other->status, 200);
    end(&b);
}

static void test_the_rest_of_an_ended_response_has_a_deadline_too(void **state) {
    (void)state;
    struct bench b;
    begin_with(&b, NULL, true);
    nghttp2_session_set_local_window_size(b.c.session, 0, 0, 1 << 30);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    struct http_exchange *x = b.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    for (int i = 0; i < 8000; i++) http_stream_put(x, STR("0123456789"));
    http_stream_end(x);
    h2_pump(&b.c);
    assert_int_equal(b.f.server->stats.exchanges, 0);
    assert_false(s->is_closed);
    fake_pass_ms(&b.f, 122000); /* 64 KiB of it passed at once, in the first write_ms */
    h2_pump(&b.c);
    assert_true(s->is_closed);
    assert_int_equal(s->code, NGHTTP2_CANCEL);
    assert_int_equal(b.f.gones, 0);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_have_a_limit_of_bytes),
        cmocka_unit_test(test_heads_have_a_limit_of_headers),
        cmocka_unit_test(test_a_long_target_is_refused),
        cmocka_unit_test(test_bodies_have_a_limit),
        cmocka_unit_test(test_a_body_that_is_refused_need_not_be_sent),
        cmocka_unit_test(test_a_body_must_have_its_announced_length),
        cmocka_unit_test(test_ambiguous_heads_are_refused),
        cmocka_unit_test(test_names_must_be_in_lower_case),
        cmocka_unit_test(test_connect_is_refused),
        cmocka_unit_test(test_streams_have_a_limit),
        cmocka_unit_test(test_rapid_resets_end_the_connection),
        cmocka_unit_test(test_resets_after_some_of_the_response_are_allowed),
        cmocka_unit_test(test_resets_that_the_peer_provokes_count_too),
        cmocka_unit_test(test_a_flood_of_frames_without_content_ends_the_connection),
        cmocka_unit_test(test_unknown_frames_are_ignored),
        cmocka_unit_test(test_a_peer_that_does_not_read_acknowledgements_is_disconnected),
        cmocka_unit_test(test_a_head_without_end_is_bounded),
        cmocka_unit_test(test_a_head_that_unpacks_to_megabytes_ends_the_connection),
        cmocka_unit_test(test_protocol_errors_end_the_connection_and_notify_the_handler),
        cmocka_unit_test(test_a_preface_must_be_followed_by_settings),
        cmocka_unit_test(test_an_idle_connection_is_closed_after_its_time_limit),
        cmocka_unit_test(test_an_idle_connection_can_be_used_again),
        cmocka_unit_test(test_a_connection_with_a_stream_is_not_idle),
        cmocka_unit_test(test_a_client_that_is_silent_after_the_preface_is_disconnected),
        cmocka_unit_test(test_a_head_that_does_not_arrive_ends_the_connection),
        cmocka_unit_test(test_a_body_that_stops_arriving_is_refused_and_others_are_not),
        cmocka_unit_test(test_a_body_that_arrives_too_slowly_is_refused),
        cmocka_unit_test(test_a_window_that_stays_closed_resets_its_stream),
        cmocka_unit_test(test_the_rest_of_an_ended_response_has_a_deadline_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
