/* Goal:   if any allocation of our code or of nghttp2 fails, nothing leaks and the server
 *         serves the next client.
 * Method: the same requests again and again, each time with a later allocation failing, until none
 *         fails. The address sanitizer reports leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "unit/net/h2_client.h"

enum { ALLOCATIONS_MAX = 2000, ALLOCATIONS_MIN = 25 };

/* Frames: 24 bits of length, type, flags, stream. Heads in HPACK without a table. */
#define BEGIN NGHTTP2_CLIENT_MAGIC "\0\0\0\x04\0\0\0\0\0"
#define HEAD(path)                                                                                 \
    "\x82\x86\x44\x05" path "\x41\x01"                                                             \
    "a"                                                                                            \
    "\x40\x01x\x01y"
#define GET(id, path) "\0\0\x11\x01\x05\0\0\0" id HEAD(path)
#define POST(id, path) "\0\0\x11\x01\x04\0\0\0" id HEAD(path)
#define DATA(id) "\0\0\x02\0\x01\0\0\0" id "hi"
#define RESET(id) "\0\0\x04\x03\0\0\0\0" id "\0\0\0\x08"
#define NO_WINDOW                                                                                  \
    "\0\0\x06\x04\0\0\0\0\0"                                                                       \
    "\0\x04\0\0\0\0"
#define WINDOW(id) "\0\0\x04\x08\0\0\0\0" id "\0\0\xff\xff"

static void stream_held(struct fake *f) {
    struct http_exchange *x = f->held_count ? f->held[0] : NULL;
    if (!x) return;
    http_stream_begin(x, 200, NULL, 0);
    for (int i = 0; i < 3; i++) {
        http_stream_put(x, STR("some words, "));
        http_stream_flush(x);
    }
    fake_run_loop(f);
    if (f->held_count && f->held[0] == x) http_stream_end(x);
    fake_run_loop(f);
}

/* Requests whole and in pieces, a slow reader, resets, refusals, a full socket, deadlines. */
static void talk(struct fake *f) {
    if (!fake_connect(f)) return;
    fake_send(f, STR(BEGIN GET("\x01", "/echo") POST("\x03", "/hold") DATA("\x03")));
    fake_answer_held(f);
    fake_send(f, STR(NO_WINDOW POST("\x05", "/hold")));
    fake_send(f, STR(DATA("\x05")));
    stream_held(f);
    fake_send(f, STR(WINDOW("\x05") GET("\x07", "/hold") GET("\x09", "/hold") RESET("\x07")));
    fake_send(f, STR(WINDOW("\0") WINDOW("\x09") POST("\x0b", "/none") DATA("\x0b")));
    f->room = 10;
    stream_held(f);
    fake_send(f, STR(GET("\x0d", "/#not") POST("\x0f", "/echo")));
    fake_drain(f);
    fake_pass_ms(f, 40000);
    fake_drain(f);
    fake_disconnect(f);
}

static void talk_nonsense(struct fake *f) {
    if (!fake_connect(f)) return;
    fake_send(f, STR(BEGIN GET("\x01", "/hold") "\0\0\x01\0\0\0\0\0\0x"));
    fake_drain(f);
    fake_disconnect(f);
}

static void talk_and_drain(struct fake *f) {
    if (!fake_connect(f)) return;
    fake_send(f, STR(BEGIN GET("\x01", "/hold")));
    if (f->conn) f->conn->proto->drain(f->conn);
    fake_run_loop(f);
    fake_answer_held(f);
    fake_disconnect(f);
}

static void check_next_client(struct fake *f) {
    assert_int_equal(http_stats(f->server).exchanges, 0);
    assert_int_equal(http_stats(f->server).connections, 0);
    const uint32_t ends = f->ends;
    assert_true(fake_connect(f));
    fake_send(f, STR(BEGIN GET("\x01", "/echo")));
    assert_int_equal(f->ends, ends + 1);
}

static void try_all(void (*conversation)(struct fake *f)) {
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct fake f;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        fail_alloc_at(n);
        conversation(&f);
        const bool has_failed = fail_alloc_stop();
        assert_int_equal(f.held_count, 0);
        check_next_client(&f);
        fake_deinit(&f);
        if (has_failed) continue;
        print_message("%ld allocations\n", n);
        assert_true(n >= ALLOCATIONS_MIN);
        return;
    }
    fail_msg("the conversation does not come to an end");
}

static void test_requests_survive_any_failed_allocation(void **state) {
    (void)state;
    try_all(talk);
}

static void test_a_protocol_error_survives_any_failed_allocation(void **state) {
    (void)state;
    try_all(talk_nonsense);
}

static void test_a_drain_survives_any_failed_allocation(void **state) {
    (void)state;
    try_all(talk_and_drain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_survive_any_failed_allocation),
        cmocka_unit_test(test_a_protocol_error_survives_any_failed_allocation),
        cmocka_unit_test(test_a_drain_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
