/* Goal:   WebSockets follow RFC 6455: frames that chapters 5 and 7 allow are accepted however they
 *         are split; frames that they forbid close the connection with the right code, once.
 * Method: a table of hand-written frames, sent in pieces of several sizes, on a connection without
 *         sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/ws_client.h"

enum { TEXT = 0x81, TEXT_PART = 0x01, MORE = 0x00, LAST = 0x80, BINARY = 0x82 };
enum { CLOSE = 0x88, PING = 0x89, PONG = 0x8a };

#define LONG_10 "0123456789"
#define LONG_50 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10
#define LONG_125 LONG_50 LONG_50 LONG_10 LONG_10 "01234"
#define LONG_250 LONG_125 LONG_125
#define LONG_1000 LONG_250 LONG_250 LONG_250 LONG_250

struct made {
    uint8_t first;
    struct str payload;
    int how;
};

struct row {
    const char *fact;
    struct made frames[5]; /* up to one without a payload pointer */
    uint32_t code;         /* of the server's close and of on_closed; 0: it stays open */
    const char *received;
    const char *pongs;
};

#define F(first_, text)                                                                            \
    { first_, {"" text, sizeof(text) - 1}, 0 }
#define G(first_, text, how_)                                                                      \
    { first_, {"" text, sizeof(text) - 1}, how_ }

static const struct row rows[] = {
    {"a text", {F(TEXT, "hello")}, 0, "hello|", ""},
    {"an empty text", {F(TEXT, "")}, 0, "|", ""},
    {"two texts", {F(TEXT, "a"), F(TEXT, "b")}, 0, "a|b|", ""},
    {"a zero byte is a character", {F(TEXT, "a\0b")}, 0, "a\0b|", ""},
    {"fragments", {F(TEXT_PART, "he"), F(MORE, "l"), F(LAST, "lo")}, 0, "hello|", ""},
    {"empty fragments", {F(TEXT_PART, ""), F(MORE, ""), F(LAST, "")}, 0, "|", ""},
    {"a ping", {F(PING, "p")}, 0, "", "p|"},
    {"an empty ping", {F(PING, "")}, 0, "", "|"},
    {"a long ping", {F(PING, LONG_125)}, 0, "", LONG_125 "|"},
    {"pings in order", {F(PING, "1"), F(PING, "2")}, 0, "", "1|2|"},
    {"a pong that nobody asked for", {F(PONG, "x"), F(TEXT, "a")}, 0, "a|", ""},
    {"a ping between fragments", {F(TEXT_PART, "a"), F(PING, "p"), F(LAST, "b")}, 0, "ab|", "p|"},
    {"a close between fragments", {F(TEXT_PART, "a"), F(CLOSE, "\x03\xe8")}, 1000, "", ""},
    {"a message as long as may be", {F(TEXT, LONG_1000)}, 0, LONG_1000 "|", ""},
    {"the same in fragments",
     {F(TEXT_PART, LONG_250), F(MORE, LONG_250), F(MORE, LONG_250), F(LAST, LONG_250)},
     0,
     LONG_1000 "|",
     ""},
    {"a limit for each message", {F(TEXT, LONG_1000), F(TEXT, "a")}, 0, LONG_1000 "|a|", ""},

    {"a character cut in two", {F(TEXT_PART, "\xce"), F(LAST, "\xba")}, 0, "\xce\xba|", ""},
    {"a character cut in four",
     {F(TEXT_PART, "\xf0"), F(MORE, "\x9f"), F(MORE, "\x98"), F(LAST, "\x80")},
     0,
     "\xf0\x9f\x98\x80|",
     ""},
    {"a character around a ping",
     {F(TEXT_PART, "\xce"), F(PING, "\xff"), F(LAST, "\xba")},
     0,
     "\xce\xba|",
     "\xff|"},
    {"the last character", {F(TEXT, "\xf4\x8f\xbf\xbf")}, 0, "\xf4\x8f\xbf\xbf|", ""},
    {"no character", {F(TEXT, "a\xff")}, 1007, "", ""},
    {"an overlong one", {F(TEXT, "\xc0\x80")}, 1007, "", ""},
    {"a surrogate", {F(TEXT, "\xed\xa0\x80")}, 1007, "", ""},
    {"past the last", {F(TEXT, "\xf4\x90\x80\x80")}, 1007, "", ""},
    {"a tail without a head", {F(TEXT, "\xba")}, 1007, "", ""},
    {"a head without a tail", {F(TEXT, "a\xce")}, 1007, "", ""},
    {"a head without a tail at the last fragment",
     {F(TEXT_PART, "\xce"), F(LAST, "")},
     1007,
     "",
     ""},
    {"bad text is refused before its end", {F(TEXT_PART, "\xce"), F(MORE, "(")}, 1007, "", ""},
    {"texts before it count", {F(TEXT, "a"), F(TEXT, "\xff")}, 1007, "a|", ""},

    {"binary", {F(BINARY, "x")}, 1003, "", ""},
    {"empty binary", {F(BINARY, "")}, 1003, "", ""},
    {"binary in fragments", {F(0x02, "x")}, 1003, "", ""},
    {"too long", {F(TEXT, LONG_1000 "x")}, 1009, "", ""},
    {"too long by its last fragment", {F(TEXT_PART, LONG_1000), F(LAST, "x")}, 1009, "", ""},

    {"RSV1", {F(TEXT | 0x40, "x")}, 1002, "", ""},
    {"RSV2", {F(TEXT | 0x20, "x")}, 1002, "", ""},
    {"RSV3", {F(TEXT | 0x10, "x")}, 1002, "", ""},
    {"RSV1 on a ping", {F(PING | 0x40, "x")}, 1002, "", ""},
    {"RSV1 on a continuation", {F(TEXT_PART, "x"), F(LAST | 0x40, "x")}, 1002, "", ""},
    {"opcode 3", {F(0x83, "x")}, 1002, "", ""},
    {"opcode 4", {F(0x84, "x")}, 1002, "", ""},
    {"opcode 5", {F(0x85, "x")}, 1002, "", ""},
    {"opcode 6", {F(0x86, "x")}, 1002, "", ""},
    {"opcode 7", {F(0x87, "")}, 1002, "", ""},
    {"opcode 11", {F(0x8b, "x")}, 1002, "", ""},
    {"opcode 12", {F(0x8c, "x")}, 1002, "", ""},
    {"opcode 13", {F(0x8d, "x")}, 1002, "", ""},
    {"opcode 14", {F(0x8e, "x")}, 1002, "", ""},
    {"opcode 15", {F(0x8f, "")}, 1002, "", ""},
    {"an unknown opcode between fragments", {F(TEXT_PART, "x"), F(0x83, "x")}, 1002, "", ""},
    {"no mask", {G(TEXT, "x", WS_BARE)}, 1002, "", ""},
    {"no mask on an empty frame", {G(TEXT, "", WS_BARE)}, 1002, "", ""},
    {"no mask on a ping", {G(PING, "x", WS_BARE)}, 1002, "", ""},
    {"no mask on a close", {G(CLOSE, "\x03\xe8", WS_BARE)}, 1002, "", ""},
    {"a continuation of nothing", {F(LAST, "x")}, 1002, "", ""},
    {"a continuation of nothing, to be continued", {F(MORE, "x")}, 1002, "", ""},
    {"a continuation of what has ended", {F(TEXT, "x"), F(LAST, "y")}, 1002, "x|", ""},
    {"a text within a text", {F(TEXT_PART, "x"), F(TEXT, "y")}, 1002, "", ""},
    {"a first fragment within a text", {F(TEXT_PART, "x"), F(TEXT_PART, "y")}, 1002, "", ""},
    {"binary within a text", {F(TEXT_PART, "x"), F(BINARY, "y")}, 1002, "", ""},
    {"a ping in fragments", {F(0x09, "x")}, 1002, "", ""},
    {"a pong in fragments", {F(0x0a, "x")}, 1002, "", ""},
    {"a close in fragments", {F(0x08, "\x03\xe8")}, 1002, "", ""},
    {"a ping of 126 bytes", {F(PING, LONG_125 "x")}, 1002, "", ""},
    {"a close of 126 bytes", {F(CLOSE, "\x03\xe8" LONG_125)}, 1002, "", ""},
    {"a longer length than need be", {G(TEXT, "x", WS_LEN16)}, 1002, "", ""},
    {"a much longer length than need be", {G(TEXT, "x", WS_LEN64)}, 1002, "", ""},
    {"a longer length than need be, of 126", {G(TEXT, LONG_125 "x", WS_LEN64)}, 1002, "", ""},
    {"a length past the last", {G(TEXT, "x", WS_LEN_HUGE)}, 1002, "", ""},
    {"a long length on a ping", {G(PING, "x", WS_LEN16)}, 1002, "", ""},

    {"a close without a code", {F(CLOSE, "")}, 1005, "", ""},
    {"a close with a reason", {F(CLOSE, "\x03\xe9 bye")}, 1001, "", ""},
    {"a close with half a code", {F(CLOSE, "\x03")}, 1002, "", ""},
    {"a close with a bad reason", {F(CLOSE, "\x03\xe8\xff")}, 1007, "", ""},
    {"a close with half a character", {F(CLOSE, "\x03\xe8\xce")}, 1007, "", ""},
    {"a close with a whole character", {F(CLOSE, "\x03\xe8\xce\xba")}, 1000, "", ""},
    {"nothing counts after a close", {F(CLOSE, "\x03\xe8"), F(TEXT, "x")}, 1000, "", ""},
    {"nothing counts after a breach", {F(0x83, "x"), F(TEXT, "x")}, 1002, "", ""},
};

static void begin(struct ws_bench *b, const struct http_limits *limits) {
    assert_int_equal(ws_bench_init(b, limits), ST_OK);
    assert_true(fake_connect(&b->f));
    fake_send(&b->f, STR(WS_HELLO_TO("/")));
    assert_true(ws_skip_hello(b));
    assert_non_null(b->ws);
}

static void send_pieces(struct ws_bench *b, struct str bytes, size_t piece) {
    while (bytes.len) {
        const struct str part = str_take(bytes, piece);
        fake_send(&b->f, part);
        bytes = str_skip(bytes, part.len);
    }
}

/* Everything that the server sent: pongs as text; the code of its close, 1005 for none. */
static uint32_t read_answers(struct ws_bench *b, struct buf *pongs) {
    struct ws_frame frame;
    uint32_t code = 0;
    while (ws_next(b, &frame)) {
        assert_int_equal(code, 0); /* a close is the last */
        if (frame.first == PONG) {
            buf_put_str(pongs, frame.payload);
            buf_put_char(pongs, '|');
            continue;
        }
        assert_int_equal(frame.first, CLOSE);
        const uint8_t *p = (const uint8_t *)frame.payload.ptr;
        code = frame.payload.len ? (uint32_t)p[0] << 8 | p[1] : 1005;
    }
    assert_int_equal(b->read, b->f.out.len);
    return code;
}

static void check_text(const struct buf *got, const char *expected) {
    /* `expected` may hold a zero byte; every text ends with a bar. */
    assert_memory_equal(got->len ? got->ptr : "", expected, got->len);
    assert_int_equal(expected[got->len], 0);
}

static void run_row(const struct row *row, size_t piece) {
    struct ws_bench b;
    struct buf bytes, pongs;
    begin(&b, NULL);
    buf_init(&bytes, 1 << 20);
    buf_init(&pongs, 1 << 20);
    for (size_t i = 0; i < 5 && row->frames[i].payload.ptr; i++)
        ws_put(&bytes, row->frames[i].first, row->frames[i].payload, row->frames[i].how);
    send_pieces(&b, buf_str(&bytes), piece);
    check_text(&b.received, row->received);
    assert_int_equal(read_answers(&b, &pongs), row->code);
    check_text(&pongs, row->pongs);
    assert_int_equal(b.closed, row->code != 0);
    assert_int_equal(b.code, row->code);
    assert_int_equal(b.f.is_shut, row->code != 0);
    buf_deinit(&bytes);
    buf_deinit(&pongs);
    ws_bench_deinit(&b);
}

static void test_frames_are_checked_as_the_standard_requires(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 2, 3, 5, 7, 64, SIZE_MAX};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].fact); /* the last one printed is the one that failed */
        for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++)
            run_row(&rows[i], pieces[k]);
    }
}

static bool may_be_given(uint32_t code) {
    static const uint32_t ok[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010,
                                  1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999};
    for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++)
        if (ok[i] == code) return true;
    return false;
}

static void test_close_codes_that_must_not_be_sent_are_a_protocol_error(void **state) {
    (void)state;
    static const uint32_t codes[] = {0,    1,    999,  1000, 1001, 1002, 1003, 1004, 1005, 1006,
                                     1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016,
                                     1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 9999, 65535};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct ws_bench b;
        struct buf none;
        const char payload[] = {(char)(codes[i] >> 8), (char)codes[i]};
        begin(&b, NULL);
        buf_init(&none, 0);
        ws_say(&b, CLOSE, (struct str){payload, 2});
        assert_int_equal(read_answers(&b, &none), may_be_given(codes[i]) ? codes[i] : 1002);
        assert_int_equal(b.closed, 1);
        ws_bench_deinit(&b);
    }
}

/* ---- the handshake ---- */

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define UPGRADE "Connection: Upgrade\r\nUpgrade: websocket\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define KEY "Sec-WebSocket-Key: " WS_KEY "\r\n"

static void test_a_handshake_must_be_complete(void **state) {
    (void)state;
    static const struct {
        const char *request;
        bool is_fine;
    } cases[] = {
        {GET UPGRADE VERSION KEY "\r\n", true},
        {GET "connection: keep-alive ,UPGRADE\r\nupgrade: h2c, WebSocket\r\n" VERSION KEY "\r\n",
         true},
        {GET "Connection: keep-alive\r\n" UPGRADE VERSION KEY "\r\n", true},
        {GET VERSION KEY "\r\n", false},
        {GET "Connection: Upgrade\r\n" VERSION KEY "\r\n", false},
        {GET "Upgrade: websocket\r\n" VERSION KEY "\r\n", false},
        {GET "Connection: Upgrade\r\nUpgrade: websockets\r\n" VERSION KEY "\r\n", false},
        {GET UPGRADE KEY "\r\n", false},
        {GET UPGRADE "Sec-WebSocket-Version: 8\r\n" KEY "\r\n", false},
        {GET UPGRADE VERSION VERSION KEY "\r\n", false},
        {GET UPGRADE VERSION "\r\n", false},
        {GET UPGRADE VERSION KEY KEY "\r\n", false},
        {GET UPGRADE VERSION "Sec-WebSocket-Key: \r\n\r\n", false},
        {GET UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n\r\n", false},
        {GET UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ===\r\n\r\n", false},
        {GET UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQAA\r\n\r\n", false},
        {GET UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBs!SBub25jZQ==\r\n\r\n", false},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" UPGRADE VERSION KEY "\r\n", false},
        {GET "Content-Length: 1\r\n" UPGRADE VERSION KEY "\r\nx", false},
        {"GET / HTTP/1.0\r\nHost: a\r\n" UPGRADE VERSION KEY "\r\n", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ws_bench b;
        assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
        assert_true(fake_connect(&b.f));
        fake_send(&b.f, str_of(cases[i].request));
        assert_int_equal(b.ws != NULL, cases[i].is_fine);
        assert_int_equal(b.refused, !cases[i].is_fine);
        assert_int_equal(strstr(b.f.out.ptr, "sec-websocket-accept: " WS_PROOF "\r\n") != NULL,
                         cases[i].is_fine);
        ws_bench_deinit(&b);
    }
}

static void test_frames_may_follow_the_handshake_at_once(void **state) {
    (void)state;
    const struct str hello = STR(WS_HELLO_TO("/"));
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    buf_put_str(&bytes, hello);
    ws_put(&bytes, TEXT, STR("first"), 0);
    ws_put(&bytes, TEXT, STR("second"), 0);
    for (size_t piece = 1; piece < bytes.len + 2; piece += piece < 8 ? 1 : 13) {
        struct ws_bench b;
        assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
        assert_true(fake_connect(&b.f));
        send_pieces(&b, buf_str(&bytes), piece);
        check_text(&b.received, "first|second|");
        ws_bench_deinit(&b);
    }
    buf_deinit(&bytes);
}

static void test_an_upgrade_may_be_accepted_later(void **state) {
    (void)state;
    struct ws_bench b;
    assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
    assert_true(fake_connect(&b.f));
    fake_send(&b.f, STR(WS_HELLO_TO("/later")));
    assert_non_null(b.waiting);
    ws_say(&b, TEXT, STR("early"));
    assert_int_equal(b.received.len, 0);
    ws_bench_accept(&b, b.waiting);
    assert_int_equal(b.received.len, 0); /* not from within the call */
    fake_run_loop(&b.f);
    check_text(&b.received, "early|");
    ws_say(&b, TEXT, STR("later"));
    check_text(&b.received, "early|later|");
    ws_bench_deinit(&b);
}

/* ---- sending ---- */

static void test_a_flush_is_one_write_of_all_texts(void **state) {
    (void)state;
    struct ws_bench b;
    struct ws_frame frame;
    begin(&b, NULL);
    const uint64_t writes = b.f.server->stats.writes;
    ws_send(b.ws, STR("one"));
    ws_send(b.ws, STR("two"));
    assert_int_equal(b.f.server->stats.writes, writes);
    ws_flush(b.ws);
    ws_flush(b.ws);
    assert_int_equal(b.f.server->stats.writes, writes + 1);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, TEXT);
    assert_true(str_is(frame.payload, "one"));
    assert_true(ws_next(&b, &frame));
    assert_true(str_is(frame.payload, "two"));
    ws_bench_deinit(&b);
}

static void test_texts_of_any_length_are_sent(void **state) {
    (void)state;
    static const size_t lens[] = {0, 1, 125, 126, 127, 4096, 65535, 65536, 1000000};
    struct ws_bench b;
    struct ws_frame frame;
    struct buf text;
    begin(&b, NULL);
    buf_init(&text, 1 << 20);
    while (text.len < 1000000) buf_put_char(&text, (char)('a' + text.len % 26));
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        ws_send(b.ws, str_take(buf_str(&text), lens[i]));
        ws_flush(b.ws);
        assert_true(ws_next(&b, &frame));
        assert_int_equal(frame.payload.len, lens[i]);
        assert_memory_equal(frame.payload.ptr, text.ptr, lens[i]);
    }
    buf_deinit(&text);
    ws_bench_deinit(&b);
}

static void test_long_texts_are_received(void **state) {
    (void)state;
    static const size_t lens[] = {1001, 4095, 4096, 4097, 65535, 65536, 1000000};
    struct ws_bench b;
    struct buf text;
    assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
    b.options.message_bytes = 0;
    assert_true(fake_connect(&b.f));
    fake_send(&b.f, STR(WS_HELLO_TO("/")));
    buf_init(&text, 1 << 20);
    while (text.len < 1000000) buf_put_char(&text, (char)('a' + text.len % 26));
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        buf_clear(&b.received);
        ws_say(&b, TEXT, str_take(buf_str(&text), lens[i]));
        assert_int_equal(b.received.len, lens[i] + 1);
        assert_memory_equal(b.received.ptr, text.ptr, lens[i]);
    }
    buf_deinit(&text);
    ws_bench_deinit(&b);
}

static void test_a_slow_reader_fills_the_backlog_and_on_writable_follows(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 10000};
    struct ws_bench b;
    begin(&b, &limits);
    b.f.room = 100;
    for (int i = 0; i < 11; i++) {
        ws_send(b.ws, STR(LONG_1000));
        ws_flush(b.ws);
    }
    assert_in_range(ws_backlog(b.ws), 10001, 12000);
    assert_int_equal(b.ws_writables, 0);
    b.f.room = SIZE_MAX;
    fake_drain(&b.f);
    assert_int_equal(ws_backlog(b.ws), 0);
    assert_int_equal(b.ws_writables, 1);
    ws_bench_deinit(&b);
}

static void test_a_peer_that_pings_and_never_reads_is_not_read_from(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 10000};
    struct ws_bench b;
    begin(&b, &limits);
    b.f.room = 0;
    int pings = 0;
    for (; pings < 100000 && b.f.is_reading; pings++) ws_say(&b, PING, STR(LONG_125));
    assert_in_range(pings, 100, 200);
    assert_in_range(ws_backlog(b.ws), 20000, 20500);
    b.f.room = SIZE_MAX;
    fake_drain(&b.f);
    assert_true(b.f.is_reading);
    ws_say(&b, TEXT, STR("back"));
    check_text(&b.received, "back|");
    ws_bench_deinit(&b);
}

/* ---- closing ---- */

static void test_our_close_waits_for_the_peers(void **state) {
    (void)state;
    struct ws_bench b;
    struct ws_frame frame;
    begin(&b, NULL);
    ws_close(b.ws, WS_GOING_AWAY, "restart");
    ws_close(b.ws, WS_NORMAL, "again");
    ws_send(b.ws, STR("too late"));
    ws_flush(b.ws);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, CLOSE);
    assert_true(str_is(frame.payload, "\x03\xe9restart"));
    assert_false(ws_next(&b, &frame));
    assert_int_equal(b.closed, 0);
    ws_say(&b, TEXT, STR("crossed"));
    ws_say(&b, PING, STR("crossed"));
    assert_int_equal(b.received.len, 0);
    ws_say(&b, CLOSE, STR("\x03\xe9"));
    assert_false(ws_next(&b, &frame));
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.code, 1001);
    assert_true(b.f.is_shut);
    ws_bench_deinit(&b);
}

static void test_a_close_reason_is_cut_between_characters(void **state) {
    (void)state;
    struct ws_bench b;
    struct ws_frame frame;
    struct buf reason;
    begin(&b, NULL);
    buf_init(&reason, 1000);
    while (reason.len < 300) buf_put_text(&reason, "\xce\xba");
    ws_close(b.ws, WS_NORMAL, buf_text(&reason));
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.payload.len, 2 + 122);
    buf_deinit(&reason);
    ws_bench_deinit(&b);
}

static void test_a_handler_may_close_within_on_text(void **state) {
    (void)state;
    struct ws_bench b;
    struct buf bytes;
    begin(&b, NULL);
    b.closes = true;
    buf_init(&bytes, 1000);
    ws_put(&bytes, TEXT, STR("a"), 0);
    ws_put(&bytes, TEXT, STR("b"), 0);
    ws_put(&bytes, CLOSE, STR("\x03\xe8"), 0);
    fake_send(&b.f, buf_str(&bytes));
    check_text(&b.received, "a|");
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.code, 1000);
    buf_deinit(&bytes);
    ws_bench_deinit(&b);
}

static void test_a_lost_connection_is_reported_as_abnormal(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct ws_bench b;
        begin(&b, NULL);
        ws_say(&b, TEXT_PART, STR("half"));
        fake_end_input(&b.f, how ? UV_ECONNRESET : UV_EOF);
        assert_int_equal(b.closed, 1);
        assert_int_equal(b.code, 1006);
        ws_bench_deinit(&b);
    }
}

static void pass_ms(struct ws_bench *b, int64_t ms) {
    const int64_t step = b->f.server->wait_ms[WAIT_TICK];
    for (int64_t done = 0; done < ms; done += step) {
        b->f.loop.time += (uint64_t)step;
        conns_sweep(&b->f.server->sweep);
    }
    fake_run_loop(&b->f);
}

static void test_a_silent_peer_is_pinged_and_then_disconnected(void **state) {
    (void)state;
    struct ws_bench b;
    struct ws_frame frame;
    begin(&b, NULL);
    pass_ms(&b, 29000);
    assert_false(ws_next(&b, &frame));
    pass_ms(&b, 2000);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, PING);
    ws_say(&b, PONG, STR(""));
    pass_ms(&b, 31000);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, PING);
    pass_ms(&b, 28000);
    assert_false(ws_next(&b, &frame));
    assert_int_equal(b.closed, 0);
    pass_ms(&b, 3000);
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.code, 1006);
    assert_null(b.f.conn);
    ws_bench_deinit(&b);
}

static void test_a_slow_reader_is_not_disconnected_before_it_was_pinged(void **state) {
    (void)state;
    struct ws_bench b;
    struct ws_frame frame;
    begin(&b, NULL);
    b.f.room = 0;
    ws_send(b.ws, STR("long"));
    ws_flush(b.ws);
    pass_ms(&b, 59000); /* the kernel takes it now */
    fake_drain(&b.f);
    b.f.room = SIZE_MAX;
    pass_ms(&b, 5000);
    assert_int_equal(b.closed, 0);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, TEXT);
    assert_true(ws_next(&b, &frame));
    assert_int_equal(frame.first, PING);
    pass_ms(&b, 31000);
    assert_int_equal(b.closed, 1);
    ws_bench_deinit(&b);
}

/* The kernel's send queue, in place of the transport's. */
static size_t kernel_bytes;
static size_t kernel_queued(const struct conn *c) {
    (void)c;
    return kernel_bytes;
}

static void test_a_peer_that_still_reads_what_precedes_the_ping_stays_connected(void **state) {
    (void)state;
    struct ws_bench b;
    begin(&b, NULL);
    struct transport transport = fake_transport;
    transport.queued = kernel_queued;
    b.f.conn->transport = &transport;
    kernel_bytes = 1000;
    for (int i = 0; i < 5; i++) {
        pass_ms(&b, 31000);
        assert_int_equal(b.closed, 0);
        kernel_bytes -= 100;
    }
    pass_ms(&b, 70000);
    assert_int_equal(b.closed, 1);
    ws_bench_deinit(&b);
}

static void test_a_message_interrupted_by_our_close_is_not_an_error(void **state) {
    (void)state;
    struct ws_bench b;
    begin(&b, NULL);
    ws_say(&b, TEXT_PART, STR("a\xce"));
    ws_close(b.ws, WS_GOING_AWAY, "");
    ws_say(&b, LAST, STR("\xba"));
    assert_int_equal(b.closed, 0);
    assert_int_equal(http_stats(b.f.server).protocol_errors, 0);
    ws_say(&b, CLOSE, STR("\x03\xe9"));
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.received.len, 0);
    ws_bench_deinit(&b);
}

static void test_a_close_that_is_not_answered_ends_after_its_time_limit(void **state) {
    (void)state;
    struct ws_bench b;
    begin(&b, NULL);
    ws_close(b.ws, WS_NORMAL, "");
    pass_ms(&b, 4000);
    assert_int_equal(b.closed, 0);
    pass_ms(&b, 2000);
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.code, 1000);
    ws_bench_deinit(&b);
}

static void test_a_message_that_never_ends_is_refused(void **state) {
    (void)state;
    const struct http_limits limits = {.body_total_ms = 60000, .rate = 1};
    struct ws_bench b;
    struct buf none;
    begin(&b, &limits);
    buf_init(&none, 0);
    ws_say(&b, TEXT_PART, STR(LONG_50));
    for (int i = 0; i < 5; i++) {
        pass_ms(&b, 10000);
        ws_say(&b, MORE, STR(LONG_50));
        assert_int_equal(b.closed, 0);
    }
    pass_ms(&b, 11000);
    assert_int_equal(b.closed, 1);
    assert_int_equal(read_answers(&b, &none), 1008);
    ws_bench_deinit(&b);
}

static void test_messages_count_towards_the_limit_of_all_bodies(void **state) {
    (void)state;
    const struct http_limits limits = {.bodies_bytes = 100};
    struct ws_bench b;
    struct buf none;
    begin(&b, &limits);
    buf_init(&none, 0);
    for (int i = 0; i < 5; i++) ws_say(&b, TEXT, STR(LONG_50)); /* one after the other is fine */
    assert_int_equal(b.f.server->bodies_bytes, 0);
    ws_say(&b, TEXT_PART, STR(LONG_50));
    assert_int_equal(b.f.server->bodies_bytes, 50);
    ws_say(&b, MORE, STR(LONG_50));
    assert_int_equal(b.closed, 0);
    ws_say(&b, LAST, STR("x"));
    assert_int_equal(b.closed, 1);
    assert_int_equal(read_answers(&b, &none), 1013);
    ws_bench_deinit(&b);
}

static void test_a_drain_does_not_close_websockets(void **state) {
    (void)state;
    struct ws_bench b;
    begin(&b, NULL);
    b.echoes = true;
    http_server_drain(b.f.server);
    ws_say(&b, TEXT, STR("still here"));
    check_text(&b.received, "still here|");
    assert_int_equal(b.closed, 0);
    ws_bench_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_are_checked_as_the_standard_requires),
        cmocka_unit_test(test_close_codes_that_must_not_be_sent_are_a_protocol_error),
        cmocka_unit_test(test_a_handshake_must_be_complete),
        cmocka_unit_test(test_frames_may_follow_the_handshake_at_once),
        cmocka_unit_test(test_an_upgrade_may_be_accepted_later),
        cmocka_unit_test(test_a_flush_is_one_write_of_all_texts),
        cmocka_unit_test(test_texts_of_any_length_are_sent),
        cmocka_unit_test(test_long_texts_are_received),
        cmocka_unit_test(test_a_slow_reader_fills_the_backlog_and_on_writable_follows),
        cmocka_unit_test(test_a_peer_that_pings_and_never_reads_is_not_read_from),
        cmocka_unit_test(test_our_close_waits_for_the_peers),
        cmocka_unit_test(test_a_close_reason_is_cut_between_characters),
        cmocka_unit_test(test_a_handler_may_close_within_on_text),
        cmocka_unit_test(test_a_lost_connection_is_reported_as_abnormal),
        cmocka_unit_test(test_a_silent_peer_is_pinged_and_then_disconnected),
        cmocka_unit_test(test_a_slow_reader_is_not_disconnected_before_it_was_pinged),
        cmocka_unit_test(test_a_peer_that_still_reads_what_precedes_the_ping_stays_connected),
        cmocka_unit_test(test_a_message_interrupted_by_our_close_is_not_an_error),
        cmocka_unit_test(test_a_close_that_is_not_answered_ends_after_its_time_limit),
        cmocka_unit_test(test_a_message_that_never_ends_is_refused),
        cmocka_unit_test(test_messages_count_towards_the_limit_of_all_bodies),
        cmocka_unit_test(test_a_drain_does_not_close_websockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
