/* Goal:   HTTP/2 serves the same exchanges as HTTP/1.1: requests, responses, streams that do not
 *         disturb each other, slow readers, disconnects, drains.
 * Method: nghttp2's client on a connection without sockets, so that the test decides when each
 *         thing happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"

struct bench {
    struct fake f;
    struct h2_client c;
};

static void begin_with(struct bench *b, const struct http_limits *limits, bool keeps_windows) {
    assert_int_equal(fake_init(&b->f, limits), ST_OK);
    assert_true(fake_connect(&b->f));
    h2_client_init(&b->c, &b->f, keeps_windows);
}

static void begin(struct bench *b) { begin_with(b, NULL, false); }

static void end(struct bench *b) {
    h2_client_deinit(&b->c);
    fake_deinit(&b->f);
}

static void check_body(const struct h2_seen *s, const char *expected) {
    assert_int_equal(s->body.len, strlen(expected));
    assert_memory_equal(s->body.ptr, expected, s->body.len);
}

static void fill(struct buf *text, size_t len) {
    for (size_t i = 0; i < len; i++) buf_put_char(text, (char)('a' + i % 23));
}

/* ---- requests and replies ---- */

static void test_the_preface_is_detected_from_its_first_byte(void **state) {
    (void)state;
    const char *preface = NGHTTP2_CLIENT_MAGIC;
    char text[64];
    bool needs_more;
    for (size_t len = 1; len <= 24; len++) {
        assert_true(http2_is_preface((struct str){preface, len}, &needs_more));
        assert_int_equal(needs_more, len < 24);
        memcpy(text, preface, len);
        text[len - 1] ^= 1;
        assert_false(http2_is_preface((struct str){text, len}, &needs_more));
    }
    assert_true(http2_is_preface(STR(NGHTTP2_CLIENT_MAGIC "more"), &needs_more));
    assert_false(needs_more);
    assert_false(http2_is_preface(STR("POST /v1/chat/completions HTTP/1.1"), &needs_more));
    assert_false(http2_is_preface(STR("PRI * HTTP/1.1\r\n"), &needs_more));
}

static void test_requests_are_parsed_however_their_bytes_are_split(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 40; piece++) {
        struct bench b;
        begin(&b);
        struct h2_seen *get = h2_ask(&b.c, "GET", "/echo?a=b&c", NULL);
        struct h2_seen *post = h2_ask(&b.c, "POST", "/echo", "hello");
        h2_pump_pieces(&b.c, piece);
        assert_int_equal(get->status, 200);
        check_body(get, "GET /echo ? a=b&c @ a v20 0: ");
        check_body(post, "POST /echo ?  @ a v20 0: hello");
        assert_string_equal(get->type, "text/plain");
        assert_string_equal(get->length, "29");
        assert_true(get->is_closed && post->is_closed);
        assert_int_equal(get->code, NGHTTP2_NO_ERROR);
        assert_int_equal(b.f.ends, 2);
        end(&b);
    }
}

static void test_host_and_authority_may_both_be_given_but_must_not_differ(void **state) {
    (void)state;
    static const struct {
        const char *headers[5];
        uint32_t status;
    } cases[] = {
        {{":authority", "x:80", NULL}, 200},
        {{"host", "x:80", NULL}, 200},
        {{":authority", "x", "host", "x", NULL}, 200},
        {{":authority", "x", "host", "y", NULL}, 400},
        {{"accept", "*/*", NULL}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        begin(&b);
        struct h2_seen *s = h2_ask_with(&b.c, "GET", "/echo", cases[i].headers, NULL);
        h2_pump(&b.c);
        assert_int_equal(s->status, cases[i].status);
        if (s->status == 200) assert_non_null(strstr(s->body.ptr, "@ x"));
        assert_int_equal(s->code, s->status ? NGHTTP2_NO_ERROR : NGHTTP2_PROTOCOL_ERROR);
        end(&b);
    }
}

static void test_a_head_request_gets_the_length_and_no_body(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "HEAD", "/echo", NULL);
    struct h2_seen *stream = h2_ask(&b.c, "HEAD", "/stream", NULL);
    h2_pump(&b.c);
    assert_int_equal(s->status, 200);
    assert_string_equal(s->length, "25");
    assert_int_equal(s->body.len, 0);
    assert_int_equal(stream->status, 200);
    assert_int_equal(stream->body.len, 0);
    assert_true(s->is_closed && stream->is_closed);
    assert_int_equal(b.f.gones, 0);
    assert_int_equal(b.f.ends, 2);
    end(&b);
}

static void test_a_long_body_arrives_whole_both_ways(void **state) {
    (void)state;
    struct bench b;
    struct buf body;
    begin(&b);
    buf_init(&body, 8 << 20);
    fill(&body, 3 << 20);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/echo", buf_text(&body));
    h2_pump(&b.c);
    const struct str head = STR("POST /echo ?  @ a v20 0: ");
    assert_int_equal(s->body.len, head.len + body.len);
    assert_memory_equal(s->body.ptr + head.len, body.ptr, body.len);
    assert_true(s->is_closed);
    buf_deinit(&body);
    end(&b);
}

static void test_trailers_of_a_request_are_ignored(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/echo", "x");
    s->is_held = true;
    h2_pump(&b.c);
    const nghttp2_nv trailer = h2_nv("x-sum", "1");
    assert_int_equal(nghttp2_submit_trailer(b.c.session, s->id, &trailer, 1), 0);
    h2_pump(&b.c);
    check_body(s, "POST /echo ?  @ a v20 0: x");
    end(&b);
}

static void test_a_client_that_expects_100_continue_gets_it(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    const char *const ask[] = {":authority", "a", "expect", "100-continue", NULL};
    const char *const other[] = {":authority", "a", "expect", "a miracle", NULL};
    struct h2_seen *s = h2_ask_with(&b.c, "POST", "/echo", ask, "hi");
    struct h2_seen *t = h2_ask_with(&b.c, "POST", "/echo", other, "hi");
    h2_pump(&b.c);
    assert_int_equal(s->infos, 1);
    assert_int_equal(s->status, 200);
    assert_int_equal(t->status, 417);
    end(&b);
}

/* ---- streams ---- */

static void test_each_flush_is_one_frame_and_one_write(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    struct http_exchange *x = b.f.held[0];
    const uint64_t writes = b.f.server->stats.writes;
    http_stream_begin(x, 200, NULL, 0);
    assert_int_equal(b.f.server->stats.writes, writes);
    for (uint32_t i = 1; i <= 5; i++) {
        http_stream_put(x, STR("a"));
        http_stream_put(x, STR("b"));
        http_stream_flush(x);
        http_stream_flush(x);
        assert_int_equal(b.f.server->stats.writes, writes + i);
        assert_int_equal(http_backlog(x), 0);
    }
    h2_pump(&b.c);
    assert_int_equal(s->data_frames, 5);
    check_body(s, "ababababab");
    assert_false(s->is_closed);
    http_stream_put(x, STR("!"));
    const uint64_t before_end = b.f.server->stats.writes;
    http_stream_end(x);
    assert_int_equal(b.f.server->stats.writes, before_end + 1);
    h2_pump(&b.c);
    assert_int_equal(s->data_frames, 6);
    assert_true(s->is_closed);
    end(&b);
}

static void test_replies_within_one_read_share_a_write(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    h2_pump(&b.c);
    struct buf asked;
    buf_init(&asked, 1 << 20);
    for (int i = 0; i < 16; i++) h2_ask(&b.c, "GET", "/echo", NULL);
    const uint8_t *bytes;
    ssize_t len;
    while ((len = nghttp2_session_mem_send(b.c.session, &bytes)) > 0)
        buf_put(&asked, bytes, (size_t)len);
    const uint64_t writes = b.f.server->stats.writes;
    fake_send(&b.f, buf_str(&asked));
    assert_int_equal(b.f.server->stats.writes, writes + 1);
    h2_pump(&b.c);
    for (uint32_t i = 0; i < b.c.count; i++) assert_int_equal(b.c.streams[i].status, 200);
    buf_deinit(&asked);
    end(&b);
}

static void test_responses_may_be_sent_in_any_order(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s[3];
    const char *bodies[] = {"0", "1", "2"};
    for (int i = 0; i < 3; i++) s[i] = h2_ask(&b.c, "POST", "/hold", bodies[i]);
    h2_pump(&b.c);
    assert_int_equal(b.f.held_count, 3);
    struct http_exchange *last = b.f.held[2];
    fake_answer(&b.f, last);
    h2_pump(&b.c);
    assert_true(s[2]->is_closed);
    assert_false(s[0]->is_closed || s[1]->is_closed);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    check_body(s[0], "POST /hold ?  @ a v20 0: 0");
    check_body(s[1], "POST /hold ?  @ a v20 0: 1");
    check_body(s[2], "POST /hold ?  @ a v20 0: 2");
    end(&b);
}

static void test_an_aborted_stream_is_reset_and_the_connection_stays_open(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "x");
    h2_pump(&b.c);
    struct http_exchange *x = b.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, STR("half"));
    http_stream_flush(x);
    http_stream_abort(x);
    h2_pump(&b.c);
    check_body(s, "half");
    assert_true(s->is_closed);
    assert_int_equal(s->code, NGHTTP2_INTERNAL_ERROR);
    struct h2_seen *next = h2_ask(&b.c, "GET", "/echo", NULL);
    h2_pump(&b.c);
    assert_int_equal(next->status, 200);
    assert_int_equal(b.f.gones, 0);
    end(&b);
}

/* ---- slow readers ---- */

static void put_many(struct http_exchange *x, struct str text, size_t bytes) {
    for (size_t done = 0; done < bytes; done += text.len) {
        http_stream_put(x, text);
        http_stream_flush(x);
    }
}

static void test_a_closed_window_holds_back_its_own_stream_only(void **state) {
    (void)state;
    const struct http_limits limits = {.backlog_bytes = 100000};
    struct bench b;
    struct buf text;
    begin_with(&b, &limits, true);
    assert_int_equal(nghttp2_session_set_local_window_size(b.c.session, 0, 0, 1 << 30), 0);
    struct h2_seen *slow = h2_ask(&b.c, "POST", "/hold", "slow");
    h2_pump(&b.c);
    struct http_exchange *x = b.f.held[0];
    buf_init(&text, 1 << 20);
    fill(&text, 1000);
    http_stream_begin(x, 200, NULL, 0);
    put_many(x, buf_str(&text), 400000);
    h2_pump(&b.c);
    assert_int_equal(slow->body.len, 65535); /* the window that a stream begins with */
    assert_int_equal(http_backlog(x), 400000 - 65535);
    for (int i = 0; i < 10; i++) {
        struct h2_seen *other = h2_ask(&b.c, "GET", "/echo", NULL);
        h2_pump(&b.c);
        assert_int_equal(other->status, 200);
        assert_true(other->is_closed);
    }
    assert_int_equal(b.f.writables, 0);
    nghttp2_submit_window_update(b.c.session, 0, slow->id, 250000);
    h2_pump(&b.c);
    assert_int_equal(slow->body.len, 65535 + 250000);
    assert_int_equal(b.f.writables, 0); /* 84465 bytes wait: above half of the mark */
    nghttp2_submit_window_update(b.c.session, 0, slow->id, 40000);
    h2_pump(&b.c);
    assert_int_equal(b.f.writables, 1);
    nghttp2_submit_window_update(b.c.session, 0, slow->id, 1 << 20);
    http_stream_end(x);
    h2_pump(&b.c);
    assert_int_equal(slow->body.len, 400000);
    assert_true(slow->is_closed);
    assert_int_equal(b.f.writables, 1);
    for (size_t i = 0; i < slow->body.len; i++)
        assert_int_equal(slow->body.ptr[i], text.ptr[i % 1000]);
    buf_deinit(&text);
    end(&b);
}

static void test_bytes_stay_in_their_streams_while_the_socket_is_full(void **state) {
    (void)state;
    struct bench b;
    struct buf text;
    begin(&b);
    nghttp2_session_set_local_window_size(b.c.session, 0, 0, 1 << 30);
    const nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30};
    nghttp2_submit_settings(b.c.session, 0, &wide, 1);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "1");
    struct h2_seen *t = h2_ask(&b.c, "POST", "/hold", "2");
    h2_pump(&b.c);
    buf_init(&text, 1 << 20);
    fill(&text, 1000);
    b.f.room = 5000;
    for (int i = 0; i < 2; i++) {
        http_stream_begin(b.f.held[i], 200, NULL, 0);
        put_many(b.f.held[i], buf_str(&text), 600000);
    }
    assert_in_range(conn_backlog(b.f.conn), 50000, 100000);
    assert_in_range(http_backlog(b.f.held[0]) + http_backlog(b.f.held[1]), 1000000, 1200000);
    b.f.room = SIZE_MAX;
    fake_drain(&b.f);
    assert_int_equal(http_backlog(b.f.held[0]), 0);
    assert_int_equal(b.f.writables, 2);
    http_stream_end(b.f.held[0]);
    http_stream_end(b.f.held[0]); /* on_end has moved the other to the front */
    h2_pump(&b.c);
    assert_int_equal(s->body.len, 600000);
    assert_int_equal(t->body.len, 600000);
    for (size_t i = 0; i < 600000; i++) assert_int_equal(t->body.ptr[i], text.ptr[i % 1000]);
    buf_deinit(&text);
    end(&b);
}

static void test_streams_send_in_turn_whatever_priority_they_ask_for(void **state) {
    (void)state;
    struct bench b;
    struct buf text;
    begin_with(&b, NULL, true);
    const nghttp2_settings_entry shut = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    const nghttp2_settings_entry open = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535};
    nghttp2_submit_settings(b.c.session, 0, &shut, 1);
    const char *const urgent[] = {":authority", "a", "priority", "u=0", NULL};
    const char *const humble[] = {":authority", "a", "priority", "u=7", NULL};
    struct h2_seen *s = h2_ask_with(&b.c, "POST", "/hold", urgent, "1");
    struct h2_seen *t = h2_ask_with(&b.c, "POST", "/hold", humble, "2");
    h2_pump(&b.c);
    buf_init(&text, 1 << 20);
    fill(&text, 65000);
    for (int i = 0; i < 2; i++) {
        http_stream_begin(b.f.held[i], 200, NULL, 0);
        put_many(b.f.held[i], buf_str(&text), 65000);
    }
    nghttp2_submit_settings(b.c.session, 0, &open, 1);
    h2_pump(&b.c);
    /* The connection's window of 65,535 bytes is shared out. */
    assert_in_range(s->body.len, 16000, 50000);
    assert_in_range(t->body.len, 15000, 50000);
    buf_deinit(&text);
    end(&b);
}

/* ---- disconnects ---- */

static void test_a_reset_stream_is_gone_at_once_and_others_stay(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "1");
    struct h2_seen *t = h2_ask(&b.c, "POST", "/hold", "2");
    struct h2_seen *u = h2_ask(&b.c, "POST", "/hold", "3");
    h2_pump(&b.c);
    http_stream_begin(b.f.held[0], 200, NULL, 0);
    put_many(b.f.held[0], STR("x"), 3);
    nghttp2_submit_rst_stream(b.c.session, 0, s->id, NGHTTP2_CANCEL);
    nghttp2_submit_rst_stream(b.c.session, 0, t->id, NGHTTP2_CANCEL);
    h2_pump(&b.c);
    assert_int_equal(b.f.gones, 2);
    assert_int_equal(b.f.held_count, 1);
    assert_int_equal(b.f.server->stats.exchanges, 1);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    assert_int_equal(u->status, 200);
    end(&b);
}

static void test_a_lost_connection_ends_all_its_exchanges(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct bench b;
        begin(&b);
        for (int i = 0; i < 5; i++) h2_ask(&b.c, "POST", "/hold", "x");
        struct h2_seen *held = h2_ask(&b.c, "POST", "/hold", "x");
        held->is_held = true;
        h2_pump(&b.c);
        assert_int_equal(b.f.held_count, 5);
        http_stream_begin(b.f.held[1], 200, NULL, 0);
        fake_end_input(&b.f, how ? UV_ECONNRESET : UV_EOF);
        assert_int_equal(b.f.gones, 5);
        assert_int_equal(b.f.incompletes, 1); /* the one whose body was held back */
        assert_int_equal(b.f.server->stats.exchanges, 0);
        assert_null(b.f.conn);
        end(&b);
    }
}

static void test_the_rest_of_a_request_with_an_early_response_is_discarded(void **state) {
    (void)state;
    struct bench b;
    struct buf rest;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/early", "some of it");
    s->is_held = true;
    h2_pump(&b.c);
    assert_int_equal(s->status, 401);
    check_body(s, "no");
    assert_int_equal(b.f.requests, 0);
    assert_int_equal(b.f.server->stats.exchanges, 0);
    /* A client that sends all before it reads is not stopped by a window. */
    buf_init(&rest, 32 << 20);
    fill(&rest, 5 << 20);
    s->request = buf_str(&rest);
    s->is_held = false;
    nghttp2_session_resume_data(b.c.session, s->id);
    h2_pump(&b.c);
    assert_int_equal(s->request.len, 0);
    assert_true(s->is_closed);
    assert_int_equal(s->code, NGHTTP2_NO_ERROR);
    buf_deinit(&rest);
    end(&b);
}

static void test_the_discarded_rest_of_a_request_is_bounded(void **state) {
    (void)state;
    struct bench b;
    struct buf rest;
    begin(&b);
    const char *const ask[] = {":authority", "a", "expect", "100-continue", NULL};
    struct h2_seen *asks = h2_ask_with(&b.c, "POST", "/early", ask, "");
    struct h2_seen *silent = h2_ask(&b.c, "POST", "/early", "x");
    struct h2_seen *endless = h2_ask(&b.c, "POST", "/early", "x");
    asks->is_held = silent->is_held = endless->is_held = true;
    h2_pump(&b.c);
    assert_true(asks->is_closed); /* it need not begin */
    assert_false(silent->is_closed || endless->is_closed);
    buf_init(&rest, 64 << 20);
    fill(&rest, 33 << 20);
    endless->request = buf_str(&rest);
    nghttp2_session_resume_data(b.c.session, endless->id);
    h2_pump(&b.c);
    assert_true(endless->is_closed);
    fake_pass_ms(&b.f, 31000);
    h2_pump(&b.c);
    assert_true(silent->is_closed);
    for (uint32_t i = 0; i < b.c.count; i++) {
        assert_int_equal(b.c.streams[i].status, 401);
        assert_int_equal(b.c.streams[i].code, NGHTTP2_NO_ERROR);
    }
    assert_false(b.c.has_goaway);
    buf_deinit(&rest);
    end(&b);
}

/* ---- drains ---- */

static void test_a_drain_lets_streams_finish_and_then_closes(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "1");
    struct h2_seen *t = h2_ask(&b.c, "POST", "/hold", "2");
    h2_pump(&b.c);
    http_server_drain(b.f.server);
    h2_pump(&b.c);
    assert_true(b.c.has_goaway);
    assert_int_equal(b.c.goaway_code, NGHTTP2_NO_ERROR);
    assert_int_equal(b.c.goaway_last, t->id);
    fake_answer(&b.f, b.f.held[0]);
    h2_pump(&b.c);
    assert_false(b.f.is_shut);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    assert_int_equal(s->status, 200);
    assert_int_equal(t->status, 200);
    fake_run_loop(&b.f);
    assert_true(b.f.is_shut);
    assert_int_equal(b.f.gones, 0);
    end(&b);
}

static void test_a_drain_closes_an_idle_connection_at_once(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    h2_ask(&b.c, "GET", "/echo", NULL);
    h2_pump(&b.c);
    http_server_drain(b.f.server);
    h2_pump(&b.c);
    assert_true(b.c.has_goaway);
    assert_true(b.f.is_shut);
    end(&b);
}

static void test_a_connection_opened_during_a_drain_gets_one_response(void **state) {
    (void)state;
    struct bench b;
    assert_int_equal(fake_init(&b.f, NULL), ST_OK);
    http_server_drain(b.f.server);
    assert_true(fake_connect(&b.f));
    h2_client_init(&b.c, &b.f, false);
    h2_pump(&b.c);
    assert_false(b.c.has_goaway);
    struct h2_seen *s = h2_ask(&b.c, "GET", "/echo", NULL);
    h2_pump(&b.c);
    assert_int_equal(s->status, 200);
    assert_true(b.c.has_goaway);
    assert_true(b.f.is_shut);
    end(&b);
}

static void test_a_client_that_sends_goaway_is_closed(void **state) {
    (void)state;
    struct bench b;
    begin(&b);
    struct h2_seen *s = h2_ask(&b.c, "POST", "/hold", "1");
    h2_pump(&b.c);
    nghttp2_submit_goaway(b.c.session, 0, 0, NGHTTP2_NO_ERROR, NULL, 0);
    h2_pump(&b.c);
    assert_false(b.f.is_shut);
    fake_answer_held(&b.f);
    h2_pump(&b.c);
    fake_run_loop(&b.f);
    assert_int_equal(s->status, 200);
    assert_true(b.f.is_shut);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_preface_is_detected_from_its_first_byte),
        cmocka_unit_test(test_requests_are_parsed_however_their_bytes_are_split),
        cmocka_unit_test(test_host_and_authority_may_both_be_given_but_must_not_differ),
        cmocka_unit_test(test_a_head_request_gets_the_length_and_no_body),
        cmocka_unit_test(test_a_long_body_arrives_whole_both_ways),
        cmocka_unit_test(test_trailers_of_a_request_are_ignored),
        cmocka_unit_test(test_a_client_that_expects_100_continue_gets_it),
        cmocka_unit_test(test_each_flush_is_one_frame_and_one_write),
        cmocka_unit_test(test_replies_within_one_read_share_a_write),
        cmocka_unit_test(test_responses_may_be_sent_in_any_order),
        cmocka_unit_test(test_an_aborted_stream_is_reset_and_the_connection_stays_open),
        cmocka_unit_test(test_a_closed_window_holds_back_its_own_stream_only),
        cmocka_unit_test(test_bytes_stay_in_their_streams_while_the_socket_is_full),
        cmocka_unit_test(test_streams_send_in_turn_whatever_priority_they_ask_for),
        cmocka_unit_test(test_a_reset_stream_is_gone_at_once_and_others_stay),
        cmocka_unit_test(test_a_lost_connection_ends_all_its_exchanges),
        cmocka_unit_test(test_the_rest_of_a_request_with_an_early_response_is_discarded),
        cmocka_unit_test(test_the_discarded_rest_of_a_request_is_bounded),
        cmocka_unit_test(test_a_drain_lets_streams_finish_and_then_closes),
        cmocka_unit_test(test_a_drain_closes_an_idle_connection_at_once),
        cmocka_unit_test(test_a_connection_opened_during_a_drain_gets_one_response),
        cmocka_unit_test(test_a_client_that_sends_goaway_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
