/* Goal:   exchanges keep the contract of net/http.h: limits, early responses, streams, slow
 *         readers, disconnects, drains.
 * Method: a connection without sockets (fake.h), so that the test sets the time of each event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/fake.h"

#define HOLD "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
#define NEXT "GET /echo?next HTTP/1.1\r\nHost: a\r\n\r\n"

static void begin(struct fake *f, const struct http_limits *limits) {
    assert_int_equal(fake_init(f, limits), ST_OK);
    assert_true(fake_connect(f));
}

static bool has(const struct fake *f, const char *text) {
    return f->out.len && strstr(f->out.ptr, text);
}

static uint32_t count_of(const struct fake *f, const char *text) {
    uint32_t count = 0;
    for (const char *at = f->out.len ? strstr(f->out.ptr, text) : NULL; at;
         at = strstr(at + 1, text))
        count++;
    return count;
}

/* ---- limits ---- */

/* A request whose head has exactly `bytes` bytes, by one long header or a long target. */
static void send_head_of(struct fake *f, size_t bytes, bool in_target) {
    const char *start = in_target ? "GET /" : "GET /echo HTTP/1.1\r\nHost: a\r\nX: ";
    const char *end = in_target ? " HTTP/1.1\r\nHost: a\r\n\r\n" : "\r\n\r\n";
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_put_text(&text, start);
    while (text.len + strlen(end) < bytes) buf_put_char(&text, 'x');
    buf_put_text(&text, end);
    assert_int_equal(text.len, bytes);
    fake_send(f, buf_str(&text));
    buf_deinit(&text);
}

static void test_a_head_may_be_as_long_as_the_limit_and_no_longer(void **state) {
    (void)state;
    const struct http_limits limits = {.head_bytes = 1000};
    for (int in_target = 0; in_target < 2; in_target++) {
        for (size_t bytes = 998; bytes < 1003; bytes++) {
            struct fake f;
            begin(&f, &limits);
            send_head_of(&f, bytes, in_target);
            assert_int_equal(has(&f, "HTTP/1.1 200"), bytes <= 1000);
            assert_int_equal(has(&f, "HTTP/1.1 431"), bytes > 1000);
            fake_deinit(&f);
        }
    }
    struct fake f;
    begin(&f, &limits);
    send_head_of(&f, 100000, true);
    assert_true(has(&f, "HTTP/1.1 414"));
    assert_true(has(&f, "application/json"));
    assert_true(has(&f, "{\"status\":414,"));
    fake_deinit(&f);
}

static void test_a_request_may_have_as_many_headers_as_the_limit(void **state) {
    (void)state;
    const struct http_limits limits = {.headers = 20};
    for (uint32_t count = 18; count < 23; count++) {
        struct fake f;
        struct buf text;
        begin(&f, &limits);
        buf_init(&text, 1 << 20);
        buf_put_text(&text, "GET /echo HTTP/1.1\r\nHost: a\r\n");
        for (uint32_t i = 1; i < count; i++) buf_printf(&text, "X-%u: %u\r\n", i, i);
        buf_put_text(&text, "\r\n");
        fake_send(&f, buf_str(&text));
        assert_int_equal(has(&f, "HTTP/1.1 200"), count <= 20);
        assert_int_equal(has(&f, "HTTP/1.1 431"), count > 20);
        buf_deinit(&text);
        fake_deinit(&f);
    }
}

static void test_a_body_may_be_as_long_as_the_limit(void **state) {
    (void)state;
    const struct http_limits limits = {.body_bytes = 100};
    for (uint32_t bytes = 99; bytes < 103; bytes++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            struct fake f;
            struct buf text;
            begin(&f, &limits);
            buf_init(&text, 1 << 20);
            buf_put_text(&text, "POST /echo HTTP/1.1\r\nHost: a\r\n");
            if (chunked)
                buf_printf(&text, "Transfer-Encoding: chunked\r\n\r\n%x\r\n", bytes);
            else
                buf_printf(&text, "Content-Length: %u\r\n\r\n", bytes);
            for (uint32_t i = 0; i < bytes; i++) buf_put_char(&text, 'b');
            if (chunked) buf_put_text(&text, "\r\n0\r\n\r\n");
            fake_send(&f, buf_str(&text));
            assert_int_equal(has(&f, "HTTP/1.1 200"), bytes <= 100);
            assert_int_equal(has(&f, "HTTP/1.1 413"), bytes > 100);
            assert_int_equal(f.error_bodies, bytes > 100);
            buf_deinit(&text);
            fake_deinit(&f);
        }
    }
}

static void test_a_body_announced_as_too_long_is_refused_before_it_arrives(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\n"
                      "Expect: 100-continue\r\n\r\n"));
    assert_true(has(&f, "HTTP/1.1 413"));
    assert_false(has(&f, "100 Continue"));
    assert_int_equal(f.heads, 1);
    assert_int_equal(f.requests, 0);
    fake_deinit(&f);
}

/* One more connection; its output is discarded. */
static ssize_t swallow(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    (void)c;
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += bufs[i].len;
    return (ssize_t)total;
}
static void read_nothing(struct conn *c, bool on) { (void)c, (void)on; }
static void close_silently(struct conn *c) { (void)c; }
static const struct transport sink_transport = {
    .name = "sink", .try_write = swallow, .read = read_nothing, .close = close_silently};

static void test_all_bodies_together_have_a_limit(void **state) {
    (void)state;
    const struct http_limits limits = {.body_bytes = 100, .bodies_bytes = 150};
    struct fake f;
    begin(&f, &limits);
    struct conn *other = conn_create(f.server, &sink_transport);
    conn_open(other, NULL);
    struct buf text;
    buf_init(&text, 1000);
    buf_put_text(&text, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
    for (int i = 0; i < 80; i++) buf_put_char(&text, 'x');
    conn_received(other, buf_str(&text));
    fake_send(&f, buf_str(&text));
    assert_true(has(&f, "HTTP/1.1 503"));
    assert_int_equal(f.server->bodies_bytes, 80);
    conn_close(other);
    conn_closed(other);
    assert_int_equal(f.server->bodies_bytes, 0);
    fake_disconnect(&f);
    assert_true(fake_connect(&f)); /* there is room again */
    fake_send(&f, buf_str(&text));
    fake_send(&f, str_take(str_skip(buf_str(&text), text.len - 20), 20));
    assert_true(has(&f, "HTTP/1.1 200"));
    assert_int_equal(f.server->bodies_bytes, 0);
    buf_deinit(&text);
    fake_deinit(&f);
}

/* ---- order ---- */

static void test_100_continue_is_sent_after_the_handler_has_seen_the_head(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                      "Expect: 100-Continue\r\n\r\n"));
    assert_string_equal(f.out.ptr, "HTTP/1.1 100 Continue\r\n\r\n");
    fake_send(&f, STR("hi"));
    assert_true(has(&f, "HTTP/1.1 200"));
    assert_true(has(&f, "3: hi"));
    fake_deinit(&f);
}

static void test_pipelined_requests_are_handled_one_after_the_other(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD NEXT HOLD));
    assert_int_equal(f.heads, 1);
    assert_int_equal(f.out.len, 0);
    fake_answer(&f, f.held[0]);
    assert_int_equal(f.heads, 1); /* the others are parsed by a deferred call */
    fake_run_loop(&f);
    assert_int_equal(f.heads, 3);
    assert_int_equal(f.held_count, 1);
    assert_int_equal(count_of(&f, "HTTP/1.1 200"), 2);
    fake_answer_held(&f);
    assert_int_equal(count_of(&f, "HTTP/1.1 200"), 3);
    assert_int_equal(f.ends, 3);
    assert_int_equal(f.conn->wait, WAIT_IDLE);
    fake_deinit(&f);
}

static void test_a_client_that_pipelines_many_requests_lets_others_in_between(void **state) {
    (void)state;
    enum { REQUESTS = 100 };
    struct fake f;
    struct buf text;
    begin(&f, NULL);
    buf_init(&text, 1 << 20);
    for (int i = 0; i < REQUESTS; i++) buf_put_text(&text, NEXT);
    conn_received(f.conn, buf_str(&text));
    assert_in_range(f.requests, 1, REQUESTS / 4);
    const uint32_t share = f.requests;
    uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(f.requests, 2 * share);
    fake_run_loop(&f);
    assert_int_equal(f.requests, REQUESTS);
    assert_int_equal(count_of(&f, "HTTP/1.1 200"), REQUESTS);
    assert_int_equal(f.conn->wait, WAIT_IDLE);
    buf_deinit(&text);
    fake_deinit(&f);
}

static void test_a_client_that_sends_too_far_ahead_is_not_read_from(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    uint32_t sent = 0;
    while (f.is_reading && sent < 10000) {
        fake_send(&f, STR(NEXT));
        sent++;
    }
    assert_true(sent * (sizeof(NEXT) - 1) >= CONN_HELD_BYTES);
    assert_true(sent * (sizeof(NEXT) - 1) < CONN_HELD_BYTES + 100);
    fake_answer_held(&f);
    assert_true(f.is_reading);
    assert_int_equal(count_of(&f, "HTTP/1.1 200"), sent + 1);
    fake_deinit(&f);
}

static void test_a_request_that_was_refused_early_gets_no_second_response(void **state) {
    (void)state;
    const struct http_limits limits = {.body_total_ms = 1};
    for (int is_total = 0; is_total < 2; is_total++) {
        struct fake f;
        begin(&f, &limits);
        fake_send(&f, STR("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"));
        assert_true(has(&f, "HTTP/1.1 401"));
        assert_int_equal(f.conn->wait, WAIT_BODY);
        f.loop.time += 10;
        if (is_total)
            fake_send(&f, STR("a"));
        else
            proto_http1.on_deadline(f.conn, WAIT_BODY);
        assert_false(has(&f, "HTTP/1.1 408"));
        assert_true(f.is_shut);
        fake_deinit(&f);
    }
}

/* ---- responses ---- */

static void test_head_gets_the_length_and_no_body(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(has(&f, "content-length: "));
    assert_true(str_ends(buf_str(&f.out), STR("\r\n\r\n")));
    fake_send(&f, STR("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\nGET\n")); /* no HEAD any more */
    assert_int_equal(count_of(&f, "HTTP/1.1 400"), 1);
    assert_true(has(&f, "{\"status\":400"));
    fake_deinit(&f);
}

static void test_a_header_value_cannot_start_another_line(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    const struct http_header evil = {STR("x-id"), STR("a\r\nset-cookie: b\0c")};
    const struct http_reply reply = {.status = 204, .headers = &evil, .header_count = 1};
    http_reply(f.held[0], &reply);
    assert_true(has(&f, "x-id: a  set-cookie: b c\r\n"));
    assert_false(has(&f, "content-length"));
    fake_deinit(&f);
}

static void test_each_flush_is_one_write_and_the_first_carries_the_head(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    const uint64_t before = http_stats(f.server).writes;
    http_stream_begin(x, 200, NULL, 0);
    assert_int_equal(f.out.len, 0);
    for (int i = 0; i < 10; i++) {
        http_stream_put(x, STR("data: "));
        http_stream_put(x, STR("x\n\n"));
        http_stream_flush(x);
        http_stream_flush(x); /* nothing to send */
    }
    assert_int_equal(http_stats(f.server).writes - before, 10);
    http_stream_put(x, STR("end"));
    http_stream_end(x);
    assert_int_equal(http_stats(f.server).writes - before, 11);
    assert_int_equal(count_of(&f, "9\r\ndata: x\n\n\r\n"), 10);
    assert_true(str_ends(buf_str(&f.out), STR("3\r\nend\r\n0\r\n\r\n")));
    assert_int_equal(f.last_status, 200);
    fake_deinit(&f);
}

static void test_an_aborted_stream_lacks_its_last_chunk(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, STR("half"));
    http_stream_flush(x);
    http_stream_abort(x);
    fake_run_loop(&f);
    assert_true(f.is_shut);
    assert_true(str_ends(buf_str(&f.out), STR("4\r\nhalf\r\n")));
    assert_int_equal(f.gones, 0);
    fake_deinit(&f);

    begin(&f, NULL);
    fake_send(&f, STR("GET /hold HTTP/1.0\r\n\r\n"));
    x = f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, STR("half"));
    http_stream_flush(x);
    struct conn *c = f.conn;
    http_stream_abort(x);
    assert_true(c->is_reset); /* the end of the bytes would look like the end of the response */
    fake_run_loop(&f);
    assert_null(f.conn);
    fake_deinit(&f);
}

/* ---- slow readers ---- */

static void test_a_slow_reader_fills_its_own_backlog_and_on_writable_follows(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 1000};
    struct fake f;
    begin(&f, &limits);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    f.room = 100;
    http_stream_begin(x, 200, NULL, 0);
    while (http_backlog(x) <= 1000) {
        http_stream_put(x, STR("0123456789"));
        http_stream_flush(x);
    }
    assert_int_equal(f.out.len, 100);
    assert_int_equal(f.conn->wait, WAIT_WRITE);
    assert_int_equal(f.writables, 0);
    fake_drain(&f);
    assert_int_equal(f.writables, 1);
    assert_int_equal(http_backlog(x), 0);
    assert_int_equal(f.conn->wait, WAIT_NONE);
    f.room = 0; /* a small backlog: on_writable is not due */
    http_stream_put(x, STR("0123456789"));
    http_stream_flush(x);
    fake_drain(&f);
    assert_int_equal(f.writables, 1);
    f.room = SIZE_MAX;
    http_stream_end(x);
    assert_true(str_ends(buf_str(&f.out), STR("a\r\n0123456789\r\n0\r\n\r\n")));
    assert_int_equal(f.writables, 1);
    fake_deinit(&f);
}

static void test_a_large_response_arrives_whole_through_a_small_window(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    struct fake f;
    struct buf body;
    begin(&f, NULL);
    buf_init(&body, BYTES);
    for (uint32_t i = 0; i < BYTES; i++) buf_put_char(&body, (char)('a' + i % 23));
    fake_send(&f, STR(HOLD));
    f.room = 4000;
    const struct http_reply reply = {.status = 200, .body = buf_str(&body)};
    http_reply(f.held[0], &reply);
    assert_int_equal(f.ends, 1);
    assert_int_equal(f.out.len, 4000);
    fake_send(&f, STR(NEXT)); /* answered behind it */
    fake_drain(&f);
    const struct str got = buf_str(&f.out);
    const char *start = strstr(got.ptr, "\r\n\r\n");
    assert_non_null(start);
    assert_memory_equal(start + 4, body.ptr, BYTES);
    assert_true(str_starts((struct str){start + 4 + BYTES, 8}, STR("HTTP/1.1")));
    buf_deinit(&body);
    fake_deinit(&f);
}

static void test_a_client_that_pipelines_and_does_not_read_fills_one_backlog(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 1000};
    struct fake f;
    begin(&f, &limits);
    f.room = 0;
    uint32_t sent = 0;
    for (; f.is_reading && sent < 10000; sent++) fake_send(&f, STR(NEXT));
    assert_false(f.is_reading);
    assert_true(conn_backlog(f.conn) > 1000);
    assert_true(conn_backlog(f.conn) < 1500); /* one response more */
    assert_int_equal(f.conn->wait, WAIT_WRITE);
    fake_drain(&f);
    assert_true(f.is_reading);
    assert_int_equal(f.requests, sent);
    assert_int_equal(count_of(&f, "HTTP/1.1 200"), sent);
    assert_int_equal(f.conn->wait, WAIT_IDLE);
    fake_deinit(&f);
}

/* ---- disconnects ---- */

static void test_a_disconnect_is_noticed_while_the_response_is_produced(void **state) {
    (void)state;
    static const int ways[] = {UV_EOF, UV_ECONNRESET};
    for (int i = 0; i < 2; i++) {
        struct fake f;
        begin(&f, NULL);
        fake_send(&f, STR(HOLD NEXT));
        assert_int_equal(f.held_count, 1);
        fake_end_input(&f, ways[i]);
        assert_int_equal(f.gones, 1);
        assert_int_equal(f.ends, 0);
        assert_null(f.conn);
        assert_int_equal(http_stats(f.server).exchanges, 0);
        fake_deinit(&f);
    }
}

static void test_a_disconnect_before_the_body_is_complete_calls_on_incomplete(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh"));
    fake_end_input(&f, UV_EOF);
    assert_int_equal(f.heads, 1);
    assert_int_equal(f.requests + f.gones, 0);
    assert_int_equal(f.incompletes, 1);
    fake_deinit(&f);
}

static void test_a_disconnect_during_a_stream_is_reported_once(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    f.room = 0;
    http_stream_put(x, STR("x"));
    http_stream_flush(x);
    f.is_writing = false;
    conn_sent(f.conn, UV_EPIPE);
    fake_run_loop(&f);
    assert_int_equal(f.gones, 1);
    assert_null(f.conn);
    fake_deinit(&f);
}

static void test_an_error_is_still_sent_to_a_client_that_has_ended_its_output(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    f.room = 10;
    fake_send(&f, STR("nonsense\r\n\r\n"));
    fake_end_input(&f, UV_EOF);
    assert_non_null(f.conn);
    fake_drain(&f);
    assert_true(has(&f, "HTTP/1.1 400"));
    assert_null(f.conn);
    fake_deinit(&f);
}

/* ---- other protocols ---- */

static void test_the_preface_of_http2_switches_the_protocol(void **state) {
    (void)state;
    const struct str preface = STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for (size_t step = 1; step <= preface.len; step++) {
        struct fake f;
        begin(&f, NULL);
        for (struct str rest = preface; rest.len;) {
            const struct str piece = str_take(rest, step);
            assert_ptr_equal(f.conn->proto, &proto_http1);
            fake_send(&f, piece);
            rest = str_skip(rest, piece.len);
        }
        assert_ptr_equal(f.conn->proto, &proto_http2);
        fake_deinit(&f);
    }
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR("PRI * HTTP/2.0\r\n\r\nXX"));
    assert_true(has(&f, "HTTP/1.1 505"));
    fake_deinit(&f);
    begin(&f, NULL);
    fake_send(&f, STR("P"));
    assert_int_equal(f.conn->wait, WAIT_HEAD);
    fake_send(&f, STR("OST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
    assert_true(has(&f, "HTTP/1.1 200"));
    fake_send(&f, preface); /* only the first bytes of a connection can be one */
    assert_true(has(&f, "HTTP/1.1 505"));
    fake_deinit(&f);
}

/* ---- closing the server ---- */

static void test_a_drain_closes_idle_connections_and_lets_others_finish(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(NEXT));
    http_server_drain(f.server);
    assert_true(f.is_shut);
    fake_end_input(&f, UV_EOF);
    assert_null(f.conn);
    fake_deinit(&f);

    begin(&f, NULL);
    fake_send(&f, STR(HOLD NEXT));
    http_server_drain(f.server);
    assert_false(f.is_shut);
    fake_answer_held(&f);
    assert_true(has(&f, "connection: close\r\n"));
    assert_int_equal(f.requests, 1);
    assert_true(f.is_shut);
    fake_deinit(&f);

    assert_int_equal(fake_init(&f, NULL), ST_OK);
    http_server_drain(f.server);
    assert_true(fake_connect(&f)); /* a connection opened during the drain gets one response */
    fake_send(&f, STR(NEXT NEXT));
    assert_int_equal(f.requests, 1);
    assert_true(f.is_shut);
    fake_deinit(&f);
}

static void test_closing_the_server_reports_open_exchanges_by_deferred_calls(void **state) {
    (void)state;
    struct fake f;
    begin(&f, NULL);
    fake_send(&f, STR(HOLD));
    http_server_close(f.server);
    assert_int_equal(f.gones, 0);
    fake_run_loop(&f);
    assert_int_equal(f.gones, 1);
    assert_null(f.conn);
    fake_deinit(&f);
}

static void test_queries_are_decoded(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 100);
    const struct str query = STR("a=1&b=x%20y+z&%63=%41&d&e=%4&f=%zz&a=2&=empty");
    assert_true(http_query_find(query, "a", &out));
    assert_string_equal(buf_text(&out), "1");
    assert_true(http_query_find(query, "b", &out));
    assert_string_equal(buf_text(&out), "x y z");
    assert_true(http_query_find(query, "c", &out));
    assert_string_equal(buf_text(&out), "A");
    assert_true(http_query_find(query, "d", &out));
    assert_string_equal(buf_text(&out), "");
    assert_false(http_query_find(query, "e", &out));
    assert_false(http_query_find(query, "f", &out));
    assert_false(http_query_find(query, "g", &out));
    assert_false(http_query_find(STR(""), "a", &out));
    assert_true(http_query_find(STR("a=%41"), "a", &out));
    assert_string_equal(buf_text(&out), "A");
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_may_be_as_long_as_the_limit_and_no_longer),
        cmocka_unit_test(test_a_request_may_have_as_many_headers_as_the_limit),
        cmocka_unit_test(test_a_body_may_be_as_long_as_the_limit),
        cmocka_unit_test(test_a_body_announced_as_too_long_is_refused_before_it_arrives),
        cmocka_unit_test(test_all_bodies_together_have_a_limit),
        cmocka_unit_test(test_100_continue_is_sent_after_the_handler_has_seen_the_head),
        cmocka_unit_test(test_pipelined_requests_are_handled_one_after_the_other),
        cmocka_unit_test(test_a_client_that_pipelines_many_requests_lets_others_in_between),
        cmocka_unit_test(test_a_client_that_sends_too_far_ahead_is_not_read_from),
        cmocka_unit_test(test_a_request_that_was_refused_early_gets_no_second_response),
        cmocka_unit_test(test_head_gets_the_length_and_no_body),
        cmocka_unit_test(test_a_header_value_cannot_start_another_line),
        cmocka_unit_test(test_each_flush_is_one_write_and_the_first_carries_the_head),
        cmocka_unit_test(test_an_aborted_stream_lacks_its_last_chunk),
        cmocka_unit_test(test_a_slow_reader_fills_its_own_backlog_and_on_writable_follows),
        cmocka_unit_test(test_a_large_response_arrives_whole_through_a_small_window),
        cmocka_unit_test(test_a_client_that_pipelines_and_does_not_read_fills_one_backlog),
        cmocka_unit_test(test_a_disconnect_is_noticed_while_the_response_is_produced),
        cmocka_unit_test(test_a_disconnect_before_the_body_is_complete_calls_on_incomplete),
        cmocka_unit_test(test_a_disconnect_during_a_stream_is_reported_once),
        cmocka_unit_test(test_an_error_is_still_sent_to_a_client_that_has_ended_its_output),
        cmocka_unit_test(test_the_preface_of_http2_switches_the_protocol),
        cmocka_unit_test(test_a_drain_closes_idle_connections_and_lets_others_finish),
        cmocka_unit_test(test_closing_the_server_reports_open_exchanges_by_deferred_calls),
        cmocka_unit_test(test_queries_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
