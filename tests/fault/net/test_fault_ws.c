/* Goal:   if any allocation fails while a WebSocket is used, on_closed is called
 *         exactly once, nothing leaks, and the next WebSocket works.
 * Method: the same messages again and again, each time with a later allocation failing, until none
 *         fails. The address sanitizer reports leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "unit/net/ws_client.h"

enum { ALLOCATIONS_MAX = 500, ALLOCATIONS_MIN = 10 };

/* Frames with a mask of zeros: first byte, length, mask, payload. */
#define MASKED(first, len, text) first len "\0\0\0\0" text

/* A text, fragments around a ping, texts to a slow reader, a close. */
static void talk(struct ws_bench *b) {
    if (!fake_connect(&b->f)) return;
    fake_send(&b->f, STR(WS_HELLO_TO("/")));
    fake_send(&b->f, STR(MASKED("\x81", "\x85", "hello")));
    fake_send(&b->f, STR(MASKED("\x01", "\x82", "he") MASKED("\x89", "\x81", "p")));
    fake_send(&b->f, STR(MASKED("\x80", "\x83", "llo")));
    b->f.room = 10;
    for (int i = 0; i < 3 && b->ws; i++) {
        ws_send(b->ws, STR("some words that are longer than what the socket takes"));
        ws_flush(b->ws);
        fake_run_loop(&b->f);
    }
    fake_drain(&b->f);
    if (b->ws) ws_close(b->ws, WS_NORMAL, "done");
    fake_run_loop(&b->f);
    fake_send(&b->f, STR(MASKED("\x88", "\x82", "\x03\xe8")));
    fake_disconnect(&b->f);
}

static void test_requests_survive_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct ws_bench b;
        assert_int_equal(ws_bench_init(&b, NULL), ST_OK);
        b.echoes = true;
        fail_alloc_at(n);
        talk(&b);
        const bool has_failed = fail_alloc_stop();
        assert_null(b.ws);
        assert_true(b.closed <= 1);
        const uint32_t closed = b.closed;
        b.f.is_closed = false;
        assert_true(fake_connect(&b.f));
        fake_send(&b.f, STR(WS_HELLO_TO("/")));
        assert_non_null(b.ws);
        ws_bench_deinit(&b);
        assert_int_equal(b.closed, closed + 1);
        if (has_failed) continue;
        print_message("%ld allocations\n", n);
        assert_int_equal(closed, 1);
        assert_true(n >= ALLOCATIONS_MIN);
        return;
    }
    fail_msg("the conversation does not come to an end");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_survive_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
