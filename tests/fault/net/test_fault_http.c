/* Goal:   if any allocation fails while requests are served, nothing leaks and the server serves
 *         the next client.
 * Method: the same requests again and again, each time with a later allocation failing, until none
 *         fails. The address sanitizer reports leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "net/http_listen.h"
#include "unit/net/client.h"

enum { ALLOCATIONS_MAX = 500, ALLOCATIONS_MIN = 10 };

#define GET "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"

/* Heads and bodies in pieces, chunks, pipelining, a stream to a slow reader, a fault. */
static void talk(struct fake *f) {
    if (!fake_connect(f)) return;
    fake_send(f, STR("P"));
    fake_send(f, STR("OST /echo HTTP/1.1\r\nHo"));
    fake_send(f, STR("st: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab"));
    fake_send(f, STR("c\r\n0\r\n\r\n" HOLD GET GET));
    fake_answer_held(f);
    fake_send(f, STR(HOLD));
    f->room = 50;
    if (f->held_count) {
        struct http_exchange *x = f->held[0];
        http_stream_begin(x, 200, NULL, 0);
        http_stream_put(x, STR("one"));
        http_stream_flush(x);
        http_stream_put(x, STR("two"));
        http_stream_flush(x);
        assert_true(x->body_sent <= 6);
        fake_run_loop(f);
        if (f->held_count) http_stream_end(x);
    }
    fake_run_loop(f);
    fake_drain(f);
    fake_send(f, STR("nonsense\r\n\r\n"));
    fake_drain(f);
    fake_disconnect(f);
}

/* An error response is complete or absent, and the rest of a lost request is not parsed as another
 * request. */
static void check_received(struct fake *f) {
    const char *got = buf_text(&f->out);
    assert_null(strstr(got, "HTTP/1.1 405"));
    if (strstr(got, "HTTP/1.1 400")) assert_true(str_ends(buf_str(&f->out), STR("\"}")));
}

static void test_requests_survive_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct fake f;
        fail_alloc_at(n);
        if (fake_init(&f, NULL) != ST_OK) {
            assert_true(fail_alloc_stop());
            continue;
        }
        talk(&f);
        const bool has_failed = fail_alloc_stop();
        check_received(&f);
        assert_int_equal(http_stats(f.server).exchanges, 0);
        assert_int_equal(http_stats(f.server).connections, 0);
        assert_true(fake_connect(&f));
        fake_send(&f, STR(GET));
        assert_non_null(strstr(buf_text(&f.out), "HTTP/1.1 200"));
        fake_deinit(&f);
        if (has_failed) continue;
        assert_true(n >= ALLOCATIONS_MIN);
        return;
    }
    fail_msg("the conversation does not come to an end");
}

static void test_a_connection_that_failed_to_open_survives_a_drain(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct fake f;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        fail_alloc_at(n);
        const bool is_open = fake_connect(&f);
        if (is_open) http_server_drain(f.server);
        const bool has_failed = fail_alloc_stop();
        fake_run_loop(&f);
        if (has_failed) assert_null(f.conn);
        fake_deinit(&f);
        if (!has_failed) return;
    }
    fail_msg("a connection needs too many allocations");
}

static void test_listening_and_accepting_survive_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct fake f;
        struct client first, second;
        struct err err = {0};
        uint16_t port = 0;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        fail_alloc_at(n);
        const enum status st = http_listen_tcp(f.server, "127.0.0.1", &port, NULL, &err);
        bool has_failed = false;
        if (st == ST_OK) {
            client_connect(&first, port);
            client_send(&f, &first,
                        STR("GET /echo HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n"));
            assert_true(client_wait(&f, &first, NULL));
            has_failed = fail_alloc_stop();
            client_connect(&second, port);
            client_send(&f, &second, STR(GET));
            assert_true(client_wait(&f, &second, "HTTP/1.1 200"));
            client_close(&first);
            client_close(&second);
        } else {
            assert_int_equal(st, ST_NOMEM);
            has_failed = fail_alloc_stop();
        }
        fake_deinit(&f);
        if (!has_failed) return;
    }
    fail_msg("accepting does not come to an end");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_survive_any_failed_allocation),
        cmocka_unit_test(test_a_connection_that_failed_to_open_survives_a_drain),
        cmocka_unit_test(test_listening_and_accepting_survive_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
