/* Goal:   no client keeps the loop for itself: when a turn has taken its time, the requests and
 *         messages that one read has brought, and the ends of connections, wait for the next turn.
 *         A client that has ended its output loses no response by that.
 * Method: connections without sockets and a clock that passes a whole turn each time it is read, so
 *         that one request is one turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

enum { ASKED = 5, MESSAGES = 40, IN_A_ROW = 16, TURN_NS = 2000000 };

static uint64_t now_ns;
static uint64_t turning_clock(void) { return now_ns += TURN_NS; }
static uint64_t standing_clock(void) { return now_ns; }

static void run_turn(struct http_server *s) {
    conns_verify(s);
    conns_run_deferred(&s->defer_idle);
}

static void test_pipelined_requests_wait_when_the_turn_is_over(void **state) {
    (void)state;
    struct fake f;
    struct buf asked;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    f.server->clock_ns = turning_clock;
    buf_init(&asked, 10000);
    for (int i = 0; i < ASKED; i++) buf_put_text(&asked, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    conn_received(f.conn, buf_str(&asked));
    for (uint32_t done = 1; done < ASKED; done++) {
        assert_int_equal(f.requests, done);
        run_turn(f.server);
    }
    assert_int_equal(f.requests, ASKED);
    assert_int_equal(f.conn->held.len, 0);
    buf_deinit(&asked);
    fake_deinit(&f);
}

static void test_http2_requests_wait_when_the_turn_is_over(void **state) {
    (void)state;
    struct fake f;
    struct h2_client c;
    struct buf asked;
    const uint8_t *bytes;
    ssize_t len;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    h2_client_init(&c, &f, false);
    h2_pump(&c);
    f.server->clock_ns = turning_clock;
    f.server->turn_ms = -1; /* a turn begins */
    buf_init(&asked, 1 << 16);
    for (int i = 0; i < ASKED; i++) h2_ask(&c, "GET", "/echo", NULL);
    while ((len = nghttp2_session_mem_send(c.session, &bytes)) > 0)
        buf_put(&asked, bytes, (size_t)len);
    conn_received(f.conn, buf_str(&asked));
    for (uint32_t done = 1; done < ASKED; done++) { /* the next one is cut at its first header */
        assert_int_equal(f.requests, done);
        run_turn(f.server);
    }
    assert_int_equal(f.requests, ASKED);
    h2_pump(&c);
    for (uint32_t i = 0; i < c.count; i++) assert_int_equal(c.streams[i].status, 200);
    buf_deinit(&asked);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

static void open_ws(struct ws_bench *b) {
    assert_int_equal(ws_bench_init(b, NULL), ST_OK);
    assert_true(fake_connect(&b->f));
    fake_send(&b->f, STR(WS_HELLO_TO("/")));
    assert_non_null(b->ws);
}

/* Messages "00|01|..." of `count`; each has `padding` blanks. */
static void put_messages(struct buf *out, int count, int padding) {
    char text[1000];
    for (int i = 0; i < count; i++) {
        const int len = snprintf(text, sizeof(text), "%02d%*s", i, padding, "");
        ws_put(out, 0x81, (struct str){text, (size_t)len}, 0);
    }
}

static uint32_t count_received(const struct ws_bench *b) {
    uint32_t count = 0;
    for (size_t i = 0; i < b->received.len; i++) count += b->received.ptr[i] == '|';
    return count;
}

/* Short ones: wslay has read all of them when the first is complete. Long ones: the connection
 * holds the rest. Both: in the order of their arrival. */
static void check_messages(int padding, uint32_t in_a_row) {
    struct ws_bench b;
    struct buf sent;
    open_ws(&b);
    b.f.server->clock_ns = in_a_row == 1 ? turning_clock : standing_clock;
    b.f.server->turn_ms = -1; /* a turn begins */
    buf_init(&sent, 1 << 20);
    put_messages(&sent, MESSAGES, padding);
    conn_received(b.f.conn, buf_str(&sent));
    for (uint32_t done = in_a_row; done < MESSAGES; done += in_a_row) {
        assert_int_equal(count_received(&b), done);
        run_turn(b.f.server);
    }
    assert_int_equal(count_received(&b), MESSAGES);
    run_turn(b.f.server);
    assert_null(b.f.server->deferred.first);
    for (int i = 0; i < MESSAGES; i++) {
        const char *at = b.received.ptr + (size_t)i * (size_t)(padding + 3);
        assert_int_equal((at[0] - '0') * 10 + at[1] - '0', i);
    }
    b.f.server->clock_ns = standing_clock;
    buf_clear(&b.received);
    ws_say(&b, 0x81, STR("after"));
    assert_true(str_is(buf_str(&b.received), "after|"));
    buf_deinit(&sent);
    fake_disconnect(&b.f);
    ws_bench_deinit(&b);
}

static void test_websocket_messages_wait_when_the_turn_is_over(void **state) {
    (void)state;
    check_messages(0, 1);
    check_messages(900, 1);
}

static void test_many_websocket_messages_let_others_pass(void **state) {
    (void)state;
    check_messages(0, IN_A_ROW);
    check_messages(900, IN_A_ROW);
}

/* More messages arrive while the first ones wait. */
static void test_websocket_messages_that_wait_keep_their_order(void **state) {
    (void)state;
    struct ws_bench b;
    struct buf sent;
    open_ws(&b);
    buf_init(&sent, 1 << 20);
    put_messages(&sent, MESSAGES, 0);
    const size_t half = sent.len / 2 + 3; /* within a frame */
    conn_received(b.f.conn, str_take(buf_str(&sent), half));
    conn_received(b.f.conn, str_skip(buf_str(&sent), half));
    fake_run_loop(&b.f);
    assert_int_equal(count_received(&b), MESSAGES);
    for (int i = 0; i < MESSAGES; i++) {
        const char *at = b.received.ptr + (size_t)i * 3;
        assert_int_equal((at[0] - '0') * 10 + at[1] - '0', i);
    }
    buf_deinit(&sent);
    fake_disconnect(&b.f);
    ws_bench_deinit(&b);
}

/* Each end costs some time, of the kernel and of the handler. */
static void test_ends_of_connections_wait_when_the_turn_is_over(void **state) {
    (void)state;
    enum { CLIENTS = 4 };
    struct fake root, clients[CLIENTS];
    assert_int_equal(fake_init(&root, NULL), ST_OK);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct fake){.server = root.server, .address = 1};
        buf_init(&clients[i].out, FAKE_OUT_MAX);
        assert_true(fake_connect(&clients[i]));
    }
    root.server->clock_ns = turning_clock;
    for (int i = 0; i < CLIENTS; i++) conn_eof(clients[i].conn, UV_EOF);
    for (int closed = 1; closed <= CLIENTS; closed++) {
        for (int i = 0; i < CLIENTS; i++) assert_int_equal(clients[i].is_closed, i < closed);
        run_turn(root.server);
    }
    for (int i = 0; i < CLIENTS; i++) {
        fake_run_loop(&clients[i]);
        buf_deinit(&clients[i].out);
    }
    root.server->clock_ns = standing_clock;
    fake_deinit(&root);
}

/* ---- clients that end their output (shutdown(SHUT_WR)) and then read ---- */

static uint32_t count_answers(const struct fake *f) {
    uint32_t count = 0;
    for (struct str rest = buf_str(&f->out); rest.len; rest = str_skip(rest, 1))
        count += str_starts(rest, STR("HTTP/1.1 200"));
    return count;
}

/* What arrived before the end is answered, however late the loop is. */
static void test_requests_before_the_end_of_input_are_answered(void **state) {
    (void)state;
    for (int asked = 1; asked <= ASKED; asked++) {
        struct fake f;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        assert_true(fake_connect(&f));
        f.server->clock_ns = turning_clock;
        f.server->turn_ms = (int64_t)uv_now(f.server->loop); /* a turn, which is over */
        for (int i = 0; i < asked; i++)
            conn_received(f.conn, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
        conn_eof(f.conn, UV_EOF);
        for (int done = 0; done < asked; done++) {
            assert_int_equal(f.requests, done);
            assert_false(f.is_closed);
            assert_false(f.is_reading);
            run_turn(f.server);
        }
        assert_int_equal(f.requests, asked);
        assert_int_equal(count_answers(&f), asked);
        assert_true(f.is_closed);
        fake_run_loop(&f);
        fake_deinit(&f);
    }
}

static void test_http2_requests_before_the_end_of_input_are_answered(void **state) {
    (void)state;
    struct fake f;
    struct h2_client c;
    const uint8_t *bytes;
    ssize_t len;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    h2_client_init(&c, &f, false);
    h2_pump(&c);
    f.server->clock_ns = turning_clock;
    f.server->turn_ms = (int64_t)uv_now(f.server->loop);
    for (int i = 0; i < ASKED; i++) h2_ask(&c, "GET", "/echo", NULL);
    while ((len = nghttp2_session_mem_send(c.session, &bytes)) > 0)
        conn_received(f.conn, (struct str){(const char *)bytes, (size_t)len});
    conn_eof(f.conn, UV_EOF);
    assert_int_equal(f.requests, 0);
    for (int turns = 0; turns < 3 * ASKED && !f.is_closed; turns++) run_turn(f.server);
    assert_int_equal(f.requests, ASKED);
    assert_int_equal(f.ends, ASKED);
    assert_true(f.is_closed);
    fake_run_loop(&f);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

/* The kernel has taken a part of the response when the end of the input is read. */
static void test_a_complete_response_is_sent_after_the_end_of_input(void **state) {
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        struct fake f;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        assert_true(fake_connect(&f));
        f.room = 20;
        fake_send(&f, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_true(f.is_writing);
        if (is_late) f.server->clock_ns = turning_clock;
        f.server->turn_ms = (int64_t)uv_now(f.server->loop);
        fake_end_input(&f, UV_EOF);
        assert_non_null(f.conn);
        fake_drain(&f);
        assert_int_equal(count_answers(&f), 1);
        assert_int_equal(f.out.ptr[f.out.len - 1], ' '); /* of "0: ", its last byte */
        assert_null(f.conn);
        fake_deinit(&f);
    }
}

/* A client that reads too slowly for its pipelined requests gets the rest of the answers, too. */
static void test_requests_behind_unread_responses_survive_the_end_of_input(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 100};
    struct fake f;
    assert_int_equal(fake_init(&f, &limits), ST_OK);
    assert_true(fake_connect(&f));
    f.room = 0;
    for (int i = 0; i < ASKED; i++) fake_send(&f, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_int_equal(f.requests, 1);
    fake_end_input(&f, UV_EOF);
    assert_non_null(f.conn);
    fake_drain(&f);
    assert_int_equal(count_answers(&f), ASKED);
    assert_null(f.conn);
    fake_deinit(&f);
}

/* A response that is still produced is for nobody: the end counts as a disconnect, at once. */
static void test_the_end_of_input_behind_a_slow_request_is_a_disconnect(void **state) {
    (void)state;
    struct fake f;
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    fake_send(&f, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
                      "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_int_equal(f.held_count, 1);
    f.server->clock_ns = turning_clock;
    f.server->turn_ms = (int64_t)uv_now(f.server->loop);
    conn_eof(f.conn, UV_EOF);
    run_turn(f.server);
    assert_int_equal(f.gones, 1);
    assert_int_equal(f.requests, 1);
    assert_true(f.is_closed);
    fake_run_loop(&f);
    fake_deinit(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelined_requests_wait_when_the_turn_is_over),
        cmocka_unit_test(test_http2_requests_wait_when_the_turn_is_over),
        cmocka_unit_test(test_websocket_messages_wait_when_the_turn_is_over),
        cmocka_unit_test(test_many_websocket_messages_let_others_pass),
        cmocka_unit_test(test_websocket_messages_that_wait_keep_their_order),
        cmocka_unit_test(test_ends_of_connections_wait_when_the_turn_is_over),
        cmocka_unit_test(test_requests_before_the_end_of_input_are_answered),
        cmocka_unit_test(test_http2_requests_before_the_end_of_input_are_answered),
        cmocka_unit_test(test_a_complete_response_is_sent_after_the_end_of_input),
        cmocka_unit_test(test_requests_behind_unread_responses_survive_the_end_of_input),
        cmocka_unit_test(test_the_end_of_input_behind_a_slow_request_is_a_disconnect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
