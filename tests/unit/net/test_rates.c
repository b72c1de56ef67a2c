/* Goal:   nobody holds a connection, a stream or memory by sending or reading a little now and
 *         then, on any protocol; a client that keeps the least rate is served, however long it
 *         takes.
 * Method: connections without sockets; the test moves the clock, and says what the kernel takes.
 *         Returning memory to the system is counted.
 * wrap: mem_trim */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"

enum {
    SECOND = 1000,
    RATE = 1024, /* the defaults of net/http.h */
    WRITE_S = 60,
    BODY_S = 30,
    BODY = 1 << 20,
};

static char text[BODY + 1];

static bool has(const struct fake *f, const char *word) {
    return f->out.len && strstr(f->out.ptr, word) != NULL;
}

static void begin(struct fake *f) {
    memset(text, 'x', BODY);
    assert_int_equal(fake_init(f, NULL), ST_OK);
    assert_true(fake_connect(f));
}

/* ---- readers ---- */

/* A response of BODY bytes, of which the kernel takes `bytes` every second; how long does the
 * connection live, in seconds? At most `max_s`. */
static int read_at(struct fake *f, size_t bytes, int max_s) {
    fake_send(f, STR(HOLD));
    f->room = 0;
    http_reply(f->held[0], &(struct http_reply){.status = 200, .body = {text, BODY}});
    for (int s = 0; s < max_s; s++) {
        fake_pass_ms(f, SECOND);
        if (!f->conn) return s;
        fake_take(f, bytes);
    }
    return max_s;
}

static void test_a_reader_below_the_least_rate_is_disconnected(void **state) {
    (void)state;
    static const size_t rates[] = {0, 1, RATE / 2, RATE - 20};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct fake f;
        begin(&f);
        const int lived_s = read_at(&f, rates[i], 3 * WRITE_S);
        assert_in_range(lived_s, WRITE_S - 2, WRITE_S + 2);
        assert_int_equal(f.server->replies_bytes, 0);
        fake_deinit(&f);
    }
}

static void test_a_reader_at_the_least_rate_gets_everything(void **state) {
    (void)state;
    struct fake f;
    begin(&f);
    assert_int_equal(read_at(&f, RATE + 20, 10 * WRITE_S), 10 * WRITE_S);
    fake_drain(&f);
    assert_true(f.out.len > BODY);
    fake_deinit(&f);
}

/* As for a unix socket: a byte is read and the kernel takes a buffer, which counts for more than
 * its bytes. */
static void test_a_kernel_queue_that_grows_is_no_progress(void **state) {
    (void)state;
    struct fake f;
    int s = 0;
    begin(&f);
    fake_send(&f, STR(HOLD));
    f.room = 0;
    http_reply(f.held[0], &(struct http_reply){.status = 200, .body = {text, BODY}});
    for (; s < 3 * WRITE_S && f.conn; s++) {
        f.kernel_bytes += 1000;
        fake_take(&f, 900);
        fake_pass_ms(&f, SECOND);
    }
    assert_in_range(s, WRITE_S - 2, WRITE_S + 2);
    fake_deinit(&f);
}

/* Ten a second are allowed for ever, at whatever times they come. */
static void test_a_bucket_loses_no_fraction(void **state) {
    (void)state;
    static const int64_t steps_ms[] = {1, 7, 66, 99, 150, 333};
    for (size_t i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
        struct bucket b = {0};
        uint32_t added = 0;
        for (int64_t t = 0; t < 100 * SECOND; t += steps_ms[i])
            for (; added * SECOND < t * 10; added++) assert_false(bucket_add(&b, t, 10, 8));
        for (int k = 0; k < 8; k++) (void)bucket_add(&b, 100 * SECOND, 10, 8);
        assert_true(bucket_add(&b, 100 * SECOND, 10, 8));
    }
}

static uint32_t trims;
void __wrap_mem_trim(void);
void __wrap_mem_trim(void) { trims++; }

static void pass_half_seconds(struct fake *f, int count) {
    for (int i = 0; i < count; i++) {
        fake_pass_ms(f, SECOND / 2);
        while (f->server->is_trimming) uv_run(f->server->loop, UV_RUN_ONCE);
    }
}

/* It is work, and threads that need memory wait for it: so not while clients fill and empty buffers
 * again and again, but once after the last peak, also when no connection is left. */
static void test_memory_goes_back_once_after_a_peak(void **state) {
    (void)state;
    enum { PEAK = 8 << 20, HALF_SECONDS = 4 };
    struct fake f;
    begin(&f);
    trims = 0;
    for (int i = 0; i < 10; i++) {
        f.server->peak_bytes = PEAK;
        pass_half_seconds(&f, HALF_SECONDS - 1);
        f.server->replies_bytes += PEAK; /* held again, before the two seconds are over */
        pass_half_seconds(&f, 2);
        f.server->replies_bytes -= PEAK;
    }
    assert_int_equal(trims, 0);
    pass_half_seconds(&f, HALF_SECONDS);
    assert_int_equal(trims, 0);
    pass_half_seconds(&f, 10);
    assert_int_equal(trims, 1);
    assert_true(f.server->peak_bytes < 1 << 20);
    f.server->peak_bytes = PEAK;
    pass_half_seconds(&f, 1);
    fake_disconnect(&f);
    pass_half_seconds(&f, 10);
    assert_int_equal(trims, 2);
    assert_true(f.server->peak_bytes < 1 << 20);
    fake_deinit(&f);
}

/* New bytes (heartbeats, tokens) do not start the time again. */
static void test_heartbeats_do_not_keep_a_slow_reader(void **state) {
    (void)state;
    struct fake f;
    begin(&f);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    f.room = 0;
    http_stream_begin(x, 200, NULL, 0);
    for (int i = 0; i < 400; i++) http_stream_put(x, STR("data: something that waits\n\n"));
    int lived_s = 0;
    for (; f.conn && lived_s < 3 * WRITE_S; lived_s++) {
        http_stream_put(x, STR(": ping\n\n"));
        http_stream_flush(x);
        fake_pass_ms(&f, SECOND);
        if (f.conn && lived_s % 10 == 0) fake_take(&f, 100);
    }
    assert_in_range(lived_s, WRITE_S - 2, WRITE_S + 2);
    assert_int_equal(f.gones, 1);
    fake_deinit(&f);
}

/* The kernel has taken all of the write under way; the next one has what was put meanwhile. */
static void complete_write(struct fake *f) {
    assert_true(f->is_writing);
    f->is_writing = false;
    f->taken = 0;
    conn_sent(f->conn, 0);
    fake_run_loop(f);
}

/* The time does not start again with a write either. 100 bytes a second are put. In the first
 * window the client reads the first write, which is all that it has to. The second one begins with
 * some 6,000 bytes due, of which the client reads 5,000: writes begin after 50, 70, 125 ... s. */
static void test_the_end_of_a_write_does_not_start_the_time_again(void **state) {
    (void)state;
    struct fake f;
    begin(&f);
    fake_send(&f, STR(HOLD));
    struct http_exchange *x = f.held[0];
    f.room = 0;
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, (struct str){text, 8000});
    int lived_s = 0;
    for (; f.conn && lived_s < 6 * WRITE_S; lived_s++) {
        if (lived_s == 50 || (lived_s >= 70 && (lived_s - 70) % 55 == 0)) complete_write(&f);
        http_stream_put(x, (struct str){text, 90}); /* and the head and end of a chunk */
        http_stream_flush(x);
        fake_pass_ms(&f, SECOND);
    }
    assert_in_range(lived_s, 2 * WRITE_S - 2, 2 * WRITE_S + 2);
    assert_int_equal(f.server->stats.slow, 1);
    fake_deinit(&f);
}

/* ---- HTTP/2 windows ---- */

/* A stream whose window the client opens by `bytes` every second: when is it reset? */
static int open_window_by(int32_t bytes, uint32_t streams, int max_s) {
    struct fake f;
    struct h2_client c;
    const nghttp2_settings_entry shut = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    int s = 0;
    begin(&f);
    h2_client_init(&c, &f, true);
    assert_int_equal(nghttp2_submit_settings(c.session, 0, &shut, 1), 0);
    assert_int_equal(nghttp2_session_set_local_window_size(c.session, 0, 0, 1 << 30), 0);
    for (uint32_t i = 0; i < streams; i++) h2_ask(&c, "GET", "/hold", NULL);
    h2_pump(&c);
    while (f.held_count)
        http_reply(f.held[0], &(struct http_reply){.status = 200, .body = {text, BODY / 4}});
    h2_pump(&c);
    for (; s < max_s && !c.streams[0].is_closed && f.conn; s++) {
        for (uint32_t i = 0; bytes && i < streams; i++)
            nghttp2_submit_window_update(c.session, 0, c.streams[i].id, bytes);
        h2_pump(&c);
        fake_pass_ms(&f, SECOND);
        conns_verify(f.server);
        h2_pump(&c);
    }
    h2_client_deinit(&c);
    fake_deinit(&f);
    return s;
}

static void test_a_window_opened_byte_by_byte_resets_its_stream(void **state) {
    (void)state;
    assert_in_range(open_window_by(0, 1, 3 * WRITE_S), WRITE_S - 1, WRITE_S + 2);
    assert_in_range(open_window_by(1, 1, 3 * WRITE_S), WRITE_S - 1, WRITE_S + 2);
    assert_in_range(open_window_by(RATE / 2, 1, 3 * WRITE_S), WRITE_S - 1, WRITE_S + 2);
    assert_int_equal(open_window_by(RATE + 30, 1, 3 * WRITE_S), 3 * WRITE_S);
}

/* A connection with many streams need not be faster than one with few. */
static void test_streams_share_the_least_rate_of_their_connection(void **state) {
    (void)state;
    assert_int_equal(open_window_by(RATE / 4 + 20, 4, 3 * WRITE_S), 3 * WRITE_S);
    assert_in_range(open_window_by(RATE / 8, 4, 3 * WRITE_S), WRITE_S - 1, WRITE_S + 2);
}

/* ---- bodies ---- */

/* A body of which `bytes` arrive every `every_s` seconds: when is it refused? 0: it is answered. */
static int send_body_at(uint32_t bytes, int every_s, bool is_chunked) {
    struct fake f;
    struct buf piece;
    int s = 0;
    begin(&f);
    buf_init(&piece, BODY);
    if (is_chunked) buf_printf(&piece, "%x\r\n", bytes);
    buf_put(&piece, text, bytes);
    if (is_chunked) buf_put_text(&piece, "\r\n");
    fake_send(&f, is_chunked ? STR("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                                   "chunked\r\n\r\n")
                             : STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200000"
                                   "\r\n\r\n"));
    for (; f.conn && !has(&f, "HTTP/1.1 ") && s < 400; s += every_s) {
        fake_send(&f, buf_str(&piece));
        fake_pass_ms(&f, every_s * SECOND);
    }
    const bool is_answered = has(&f, "HTTP/1.1 200");
    if (!is_answered) assert_true(has(&f, "HTTP/1.1 408"));
    buf_deinit(&piece);
    fake_deinit(&f);
    return is_answered ? 0 : s;
}

static void test_a_body_below_the_least_rate_is_refused(void **state) {
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        assert_in_range(send_body_at(1, 2, chunked), BODY_S, BODY_S + 3);
        assert_in_range(send_body_at(RATE / 2, 1, chunked), BODY_S, BODY_S + 3);
    }
    assert_int_equal(send_body_at(RATE + 10, 1, false), 0);      /* takes 193 seconds */
    assert_in_range(send_body_at(RATE + 10, 1, true), 300, 303); /* never ends: body_total_ms */
}

static void test_a_body_on_http2_below_the_least_rate_is_refused(void **state) {
    (void)state;
    struct fake f;
    struct h2_client c;
    begin(&f);
    h2_client_init(&c, &f, false);
    struct h2_seen *slow = h2_ask(&c, "POST", "/echo", "x");
    struct h2_seen *quick = h2_ask(&c, "POST", "/echo", "x");
    slow->is_held = quick->is_held = true;
    h2_pump(&c);
    for (int s = 0; s < 2 * BODY_S; s++) {
        assert_int_equal(slow->status, s <= BODY_S + 1 ? slow->status : 408);
        if (s < BODY_S - 1) assert_int_equal(slow->status, 0);
        slow->request = STR("y");
        quick->request = (struct str){text, RATE + 50};
        if (!slow->status) nghttp2_session_resume_data(c.session, slow->id);
        nghttp2_session_resume_data(c.session, quick->id);
        h2_pump(&c);
        fake_pass_ms(&f, SECOND);
        h2_pump(&c);
    }
    assert_int_equal(slow->status, 408);
    assert_int_equal(quick->status, 0);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

/* Twice the least rate for 35 s, then a byte a second: the second window of 30 s is too slow,
 * whatever the first one was. */
static struct str piece_at(int s) {
    return s < BODY_S + 5 ? (struct str){text, 2 * RATE} : STR("y");
}

static void test_a_body_on_http2_cannot_be_slow_after_it_was_fast(void **state) {
    (void)state;
    struct fake f;
    struct h2_client c;
    int s = 0;
    begin(&f);
    h2_client_init(&c, &f, false);
    struct h2_seen *body = h2_ask(&c, "POST", "/echo", "x");
    body->is_held = true;
    h2_pump(&c);
    for (; s < 5 * BODY_S && !body->status; s++) {
        body->request = piece_at(s);
        nghttp2_session_resume_data(c.session, body->id);
        h2_pump(&c);
        fake_pass_ms(&f, SECOND);
        h2_pump(&c);
    }
    assert_int_equal(body->status, 408);
    assert_in_range(s, 2 * BODY_S - 1, 2 * BODY_S + 3);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

static void test_a_body_cannot_be_slow_after_it_was_fast(void **state) {
    (void)state;
    struct fake f;
    int s = 0;
    begin(&f);
    fake_send(&f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n"));
    for (; s < 5 * BODY_S && f.conn && !has(&f, "HTTP/1.1 "); s++) {
        fake_send(&f, piece_at(s));
        fake_pass_ms(&f, SECOND);
    }
    assert_true(has(&f, "HTTP/1.1 408"));
    assert_in_range(s, 2 * BODY_S - 1, 2 * BODY_S + 3);
    fake_deinit(&f);
}

/* A connection is kept for hours: what one request took does not count for the next. In pieces, so
 * that each body has its time checked. */
static void test_each_body_of_a_connection_has_its_own_time_and_rate(void **state) {
    (void)state;
    enum { REQUESTS = 20, PIECES = 40, BYTES = 4000 };
    struct fake f;
    begin(&f);
    for (int i = 0; i < REQUESTS; i++) {
        const bool is_chunked = i % 2;
        buf_clear(&f.out);
        fake_send(&f,
                  is_chunked
                      ? STR("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                      : STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 160000\r\n\r\n"));
        for (int k = 0; k < PIECES; k++) {
            fake_pass_ms(&f, SECOND);
            if (is_chunked) fake_send(&f, STR("fa0\r\n"));
            fake_send(&f, (struct str){text, BYTES});
            if (is_chunked) fake_send(&f, STR("\r\n"));
        }
        if (is_chunked) fake_send(&f, STR("0\r\n\r\n"));
        assert_true(has(&f, "HTTP/1.1 200"));
    }
    fake_deinit(&f);
}

/* All of it is due; the kernel takes twice the least rate for 65 s, then a byte a second. */
static void test_a_reader_cannot_be_slow_after_it_was_fast(void **state) {
    (void)state;
    struct fake f;
    int s = 0;
    begin(&f);
    fake_send(&f, STR(HOLD));
    f.room = 0;
    http_reply(f.held[0], &(struct http_reply){.status = 200, .body = {text, BODY}});
    for (; s < 5 * WRITE_S && f.conn; s++) {
        fake_take(&f, s < WRITE_S + 5 ? 2 * RATE : 1);
        fake_pass_ms(&f, SECOND);
    }
    assert_in_range(s, 2 * WRITE_S - 1, 2 * WRITE_S + 3);
    assert_int_equal(f.server->stats.slow, 1);
    fake_deinit(&f);
}

/* Who reads one stream at the least rate, without end, has to send bodies all the same. */
static void test_a_reader_of_http2_does_not_evade_the_rate_of_its_bodies(void **state) {
    (void)state;
    struct fake f;
    struct h2_client c;
    begin(&f);
    h2_client_init(&c, &f, false);
    assert_int_equal(nghttp2_session_set_local_window_size(c.session, 0, 0, 1 << 30), 0);
    const nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30};
    assert_int_equal(nghttp2_submit_settings(c.session, 0, &wide, 1), 0);
    h2_ask(&c, "POST", "/echo", "x")->is_held = true;
    h2_ask(&c, "GET", "/hold", NULL);
    h2_pump(&c);
    f.room = 0;
    http_reply(f.held[0], &(struct http_reply){.status = 200, .body = {text, BODY}});
    for (int s = 0; s < 3 * WRITE_S && f.incompletes == 0; s++) {
        fake_pass_ms(&f, SECOND);
        assert_non_null(f.conn);
        assert_true(f.is_writing);
        if (f.conn->sending.len - f.taken > 2 * RATE) {
            fake_take(&f, 2 * RATE);
        } else { /* the write ends, and the next one begins */
            f.is_writing = false;
            f.taken = 0;
            conn_sent(f.conn, 0);
        }
    }
    assert_int_equal(f.incompletes, 1);
    assert_int_equal(f.server->stats.slow, 1);
    h2_client_deinit(&c);
    fake_deinit(&f);
}

/* ---- WebSocket ---- */

enum { TEXT_PART = 0x01, MORE = 0x00, PING = 0x89, PONG = 0x8a };

static void begin_ws(struct ws_bench *b) {
    memset(text, 'x', BODY);
    assert_int_equal(ws_bench_init(b, NULL), ST_OK);
    b->options.message_bytes = BODY;
    assert_true(fake_connect(&b->f));
    fake_send(&b->f, STR(WS_HELLO_TO("/")));
    assert_non_null(b->ws);
}

/* When is a message refused of which `bytes` bytes arrive every second? */
static int send_message_at(uint32_t bytes, int max_s) {
    struct ws_bench b;
    int s = 0;
    begin_ws(&b);
    ws_say(&b, TEXT_PART, STR("x"));
    for (; !b.closed && s < max_s; s++) {
        ws_say(&b, MORE, (struct str){text, bytes});
        fake_pass_ms(&b.f, SECOND);
    }
    if (b.closed) assert_int_equal(b.code, WS_POLICY_VIOLATION);
    ws_bench_deinit(&b);
    return s;
}

static void test_a_message_below_the_least_rate_is_refused(void **state) {
    (void)state;
    assert_in_range(send_message_at(1, 3 * BODY_S), BODY_S - 1, BODY_S + 2);
    assert_in_range(send_message_at(RATE / 2, 3 * BODY_S), BODY_S - 1, BODY_S + 2);
    assert_int_equal(send_message_at(RATE + 10, 3 * BODY_S), 3 * BODY_S);
}

static void test_a_reader_on_a_websocket_does_not_evade_the_rate_of_its_message(void **state) {
    (void)state;
    struct ws_bench b;
    begin_ws(&b);
    ws_say(&b, TEXT_PART, STR("x"));
    b.f.room = 0;
    ws_send(b.ws, (struct str){text, BODY / 4});
    ws_flush(b.ws);
    int s = 0;
    for (; !b.closed && b.code == 0 && s < 3 * BODY_S; s++) {
        fake_pass_ms(&b.f, SECOND);
        fake_take(&b.f, 2 * RATE);
        ws_say(&b, MORE, STR("x"));
    }
    assert_in_range(s, BODY_S - 1, BODY_S + 2);
    assert_int_equal(b.f.server->stats.slow, 1);
    ws_bench_deinit(&b);
}

static void test_pings_without_end_close_a_websocket(void **state) {
    (void)state;
    static const uint8_t kinds[] = {PING, PONG, MORE};
    for (size_t k = 0; k < sizeof(kinds); k++) {
        struct ws_bench b;
        begin_ws(&b);
        if (kinds[k] == MORE) ws_say(&b, TEXT_PART, STR("x"));
        for (int i = 0; i < 3000 && !b.closed; i++) {
            ws_say(&b, kinds[k], STR(""));
            if (i % 90 == 89) fake_pass_ms(&b.f, SECOND); /* 90 a second are fine */
            assert_int_equal(b.closed, 0);
            if (i == 2000) break;
        }
        for (int i = 0; i < 1100; i++) ws_say(&b, kinds[k], STR(""));
        assert_int_equal(b.closed, 1);
        assert_int_equal(b.code, WS_POLICY_VIOLATION);
        ws_bench_deinit(&b);
    }
}

static void test_a_websocket_that_reads_a_byte_now_and_then_is_disconnected(void **state) {
    (void)state;
    struct ws_bench b;
    begin_ws(&b);
    b.f.room = 0;
    ws_send(b.ws, (struct str){text, BODY / 4});
    ws_flush(b.ws);
    int lived_s = 0;
    for (; !b.closed && lived_s < 3 * WRITE_S; lived_s++) {
        fake_pass_ms(&b.f, SECOND);
        if (!b.closed) fake_take(&b.f, 1);
        if (!b.closed && b.f.is_reading) ws_say(&b, PONG, STR("")); /* it is alive */
    }
    assert_in_range(lived_s, WRITE_S - 1, WRITE_S + 2);
    ws_bench_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_below_the_least_rate_is_disconnected),
        cmocka_unit_test(test_a_reader_at_the_least_rate_gets_everything),
        cmocka_unit_test(test_a_kernel_queue_that_grows_is_no_progress),
        cmocka_unit_test(test_a_bucket_loses_no_fraction),
        cmocka_unit_test(test_memory_goes_back_once_after_a_peak),
        cmocka_unit_test(test_heartbeats_do_not_keep_a_slow_reader),
        cmocka_unit_test(test_the_end_of_a_write_does_not_start_the_time_again),
        cmocka_unit_test(test_a_window_opened_byte_by_byte_resets_its_stream),
        cmocka_unit_test(test_streams_share_the_least_rate_of_their_connection),
        cmocka_unit_test(test_a_body_below_the_least_rate_is_refused),
        cmocka_unit_test(test_a_body_on_http2_below_the_least_rate_is_refused),
        cmocka_unit_test(test_a_body_on_http2_cannot_be_slow_after_it_was_fast),
        cmocka_unit_test(test_a_body_cannot_be_slow_after_it_was_fast),
        cmocka_unit_test(test_each_body_of_a_connection_has_its_own_time_and_rate),
        cmocka_unit_test(test_a_reader_cannot_be_slow_after_it_was_fast),
        cmocka_unit_test(test_a_reader_of_http2_does_not_evade_the_rate_of_its_bodies),
        cmocka_unit_test(test_a_message_below_the_least_rate_is_refused),
        cmocka_unit_test(test_a_reader_on_a_websocket_does_not_evade_the_rate_of_its_message),
        cmocka_unit_test(test_pings_without_end_close_a_websocket),
        cmocka_unit_test(test_a_websocket_that_reads_a_byte_now_and_then_is_disconnected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
