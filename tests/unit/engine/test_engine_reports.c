/* Goal:   what an engine reports is whole: a reader that sees the end of a choice sees all its
 *         tokens, in whatever order their loads and the engine's stores meet; and every stall is
 *         reported, once.
 * Method: a choice whose fields lie on two pages, one of which faults: the handler publishes
 *         between the reader's two loads. The engine's side at the call that follows its stores.
 *         A real engine whose steps take longer than the watchdog allows.
 * wrap: mailbox_post_output */
#define _GNU_SOURCE /* memfd_create */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "unit/engine/rig.h"

/* ---- the reader ---- */

enum { TOTAL = 77 };

/* One choice, seen through two mappings: the reader's second or first page can be closed. */
static struct {
    char *reader, *writer;
    size_t page;
    struct choice *read, *write;
    void *closed;
    bool is_published;
} pages;

/* The engine's stores, in its order. */
static void publish_all(void) {
    atomic_store_explicit(&pages.write->ready, TOTAL, memory_order_release);
    atomic_store(&pages.write->finish, FINISH_LENGTH);
    pages.is_published = true;
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    char *at = info->si_addr, *closed = pages.closed;
    if (!closed || at < closed || at >= closed + pages.page) {
        signal(signal_number, SIG_DFL); /* another fault: die of it */
        return;
    }
    publish_all();
    mprotect(pages.closed, pages.page, PROT_READ | PROT_WRITE);
    pages.closed = NULL;
}

/* The second page begins here: behind `ready`, at or before `finish`, aligned as the struct is. */
enum {
    SPLIT = offsetof(struct choice, finish) / _Alignof(struct choice) * _Alignof(struct choice)
};

static void open_pages(void) {
    pages.page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = memfd_create("choice", 0);
    assert_int_equal(ftruncate(fd, (off_t)(2 * pages.page)), 0);
    pages.reader = mmap(NULL, 2 * pages.page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pages.writer = mmap(NULL, 2 * pages.page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(pages.reader != MAP_FAILED && pages.writer != MAP_FAILED);
    close(fd);
    size_t at = pages.page - SPLIT;
    _Static_assert(offsetof(struct choice, ready) < SPLIT, "two pages");
    pages.read = (struct choice *)(void *)(pages.reader + at);
    pages.write = (struct choice *)(void *)(pages.writer + at);
    pages.is_published = false;
    atomic_store(&pages.write->ready, TOTAL - 1);
    atomic_store(&pages.write->finish, FINISH_NONE);
}

static void test_a_reader_that_sees_the_end_sees_all_tokens(void **state) {
    (void)state;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    for (int closed = 0; closed < 2; closed++) { /* the page of `ready`, that of `finish` */
        open_pages();
        pages.closed = pages.reader + (closed ? pages.page : 0);
        assert_int_equal(mprotect(pages.closed, pages.page, PROT_NONE), 0);
        uint32_t ready = 0;
        enum finish_reason finish = choice_poll(pages.read, &ready);
        assert_true(pages.is_published); /* it has read both fields */
        if (finish != FINISH_NONE) assert_int_equal(ready, TOTAL);
        assert_int_equal(choice_poll(pages.read, &ready), FINISH_LENGTH);
        assert_int_equal(ready, TOTAL);
        munmap(pages.reader, 2 * pages.page);
        munmap(pages.writer, 2 * pages.page);
    }
    sigaction(SIGSEGV, &before, NULL);
}

/* ---- the engine ---- */

void __real_mailbox_post_output(struct mailbox *m, struct choice *c);
void __wrap_mailbox_post_output(struct mailbox *m, struct choice *c);

static uint32_t ends_seen;

/* Called after the stores; nothing that belongs to the end may come later. */
void __wrap_mailbox_post_output(struct mailbox *m, struct choice *c) {
    enum finish_reason finish = (enum finish_reason)atomic_load(&c->finish);
    if (finish == FINISH_LENGTH) {
        assert_int_equal(atomic_load(&c->ready), c->total_max);
        assert_true(c->finished_us > 0 && c->first_token_us > 0);
        ends_seen++;
    }
    __real_mailbox_post_output(m, c);
}

static void test_the_end_of_a_choice_is_published_with_its_last_token(void **state) {
    (void)state;
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        ends_seen = 0;
        rig_open_depth(&rig, &k, NULL, false, 0, depth, 5);
        struct request *r = rig_submit(&rig, 1, 20, 9, 3);
        rig_run(&rig, r);
        assert_int_equal(ends_seen, 3);
        request_unref(r);
        engine_destroy(rig.engine);
    }
}

/* ---- stalls ---- */

static void count_stall(void *ctx, int64_t stalled_us) {
    assert_true(stalled_us > 20000);
    atomic_fetch_add((atomic_uint *)ctx, 1);
}

static void sleep_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Each of four steps takes five times as long as is allowed. */
static void test_every_stall_is_reported_once(void **state) {
    (void)state;
    enum { STEPS = 4 };
    struct rig rig;
    struct knobs k = rig_knobs();
    struct err err = {0};
    atomic_uint stalls = 0;
    rig_open(&rig, &k, NULL, true, 100000);
    engine_watch(rig.engine, 20000, count_stall, &stalls);
    assert_int_equal(engine_start(rig.engine, &err), ST_OK);
    struct request *r = rig_submit(&rig, 1, 10, STEPS, 1);
    for (int i = 0; i < 5000 && rig_finish(r, 0) == FINISH_NONE; i++) sleep_ms(2);
    assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
    assert_int_equal(atomic_load(&stalls), STEPS);
    request_unref(r);
    engine_destroy(rig.engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_that_sees_the_end_sees_all_tokens),
        cmocka_unit_test(test_the_end_of_a_choice_is_published_with_its_last_token),
        cmocka_unit_test(test_every_stall_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
