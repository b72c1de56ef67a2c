/* Goal:   a program that uses the library survives the failure of any one allocation: it gets
 *         JITNEY_NOMEM or an answer that ended in error, nothing is lost, and the model goes on.
 * Method: opening, submitting and reading, each with the first allocation failing, then the second,
 *         until no more are needed; leaks show under the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "unit/embed/embed_rig.h"

enum { ALLOCATIONS_MAX = 20000 };

static struct jitney_request request(void) {
    static const char *const stops[] = {"surely not in it", NULL};
    struct jitney_request r = steady("Hello", 8, 1);
    r.stop = stops;
    r.n = 2;
    r.top_logprobs = 2;
    return r;
}

static void test_any_allocation_of_opening_may_fail(void **state) {
    (void)state;
    struct jitney_options o = jitney_options_default();
    o.threads = 1;
    o.ctx_tokens = 64;
    o.set = (const char *const[]){"max_seqs=2", "queue_max=4", NULL};
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct jitney *j;
        char why[JITNEY_ERROR_BYTES] = "";
        fail_alloc_at(n);
        enum jitney_status st = jitney_open(LLAMA, &o, &j, why);
        bool failed = fail_alloc_stop();
        if (st != JITNEY_OK && (st != JITNEY_NOMEM || !why[0] || j))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, why);
        jitney_close(j);
        if (!failed) break;
    }
    assert_in_range(n, 10, ALLOCATIONS_MAX - 1);
}

static void check_answers(struct jitney *j) {
    struct jitney_request r = request();
    struct received received[2] = {0};
    uint64_t id;
    assert_int_equal(jitney_submit(j, &r, &id, NULL), JITNEY_OK);
    assert_int_equal(read_all_of(j, id, received), JITNEY_IDLE);
    for (int i = 0; i < 2; i++) assert_int_equal(received[i].count, 8);
}

static void test_any_allocation_of_submitting_may_fail(void **state) {
    struct jitney *j = *state;
    const struct jitney_request r = request();
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        uint64_t id;
        char why[JITNEY_ERROR_BYTES] = "";
        fail_alloc_at(n);
        enum jitney_status st = jitney_submit(j, &r, &id, why);
        bool failed = fail_alloc_stop();
        if (st != JITNEY_OK && (st != JITNEY_NOMEM || !why[0]))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, why);
        struct received received[2] = {0};
        if (st == JITNEY_OK) read_all_of(j, id, received);
        if (!failed) break;
    }
    assert_in_range(n, 5, ALLOCATIONS_MAX - 1);
    check_answers(j);
}

/* Reads both answers with the n-th allocation failing; whether one did fail. */
static bool read_with_failure(struct jitney *j, uint64_t id, long n, struct received received[2]) {
    struct jitney_event ev = jitney_event_default();
    bool failed = false;
    enum jitney_status st;
    fail_alloc_at(n);
    do {
        st = jitney_next_of(j, id, &ev, -1);
        if (st == JITNEY_NOMEM) failed = fail_alloc_stop() || failed;
        if (st != JITNEY_OK) continue;
        received_add(&received[ev.choice], &ev);
        if (ev.finish != JITNEY_ERROR) continue;
        assert_non_null(strstr(ev.error, "out of memory"));
        failed = fail_alloc_stop() || failed;
    } while (st == JITNEY_OK || st == JITNEY_NOMEM);
    assert_int_equal(st, JITNEY_IDLE);
    jitney_event_clear(&ev);
    return fail_alloc_stop() || failed;
}

static void test_any_allocation_of_reading_may_fail(void **state) {
    struct jitney *j = *state;
    const struct jitney_request r = request();
    bool failed = true;
    long n = 0;
    for (; n < ALLOCATIONS_MAX && failed; n++) {
        struct received received[2] = {0};
        uint64_t id;
        assert_int_equal(jitney_submit(j, &r, &id, NULL), JITNEY_OK);
        failed = read_with_failure(j, id, n, received);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(received[i].last_count, 1);
            assert_true(received[i].finish == JITNEY_LENGTH ||
                        (failed && received[i].finish == JITNEY_ERROR));
        }
    }
    assert_in_range(n, 3, ALLOCATIONS_MAX - 1);
    check_answers(j);
}

static int setup(void **state) {
    *state = open_with(LLAMA, NULL);
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    jitney_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_allocation_of_opening_may_fail),
        cmocka_unit_test(test_any_allocation_of_submitting_may_fail),
        cmocka_unit_test(test_any_allocation_of_reading_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
