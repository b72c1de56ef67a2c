/* Goal:   work for libuv's pool is shared fairly: short work never waits behind long work, tenants
 *         take turns, limits hold for each tenant and in total, and sums stay right. A thread gets
 *         much short work at once, but not more than takes a millisecond.
 * Method: uv_queue_work is replaced, so that the test decides when a thread begins and when it has
 *         finished; the rules in small cases, then seeded random steps with `verify` after each.
 *
 * wrap: uv_queue_work
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "server/work_queue.h"

enum { THREADS = 4, LONG_BYTES = 100, ITEMS = 400, LANES = 5 };

/* ---- the pool: items that libuv was given, in order ---- */

static struct {
    uv_work_t *handle;
    uv_work_cb run; /* NULL: it ran */
    uv_after_work_cb done;
} given[ITEMS];
static uint32_t given_count;
static bool begins_late; /* a thread begins when the test says so, not at once */

static void begin(uint32_t i) {
    uv_work_cb run = given[i].run;
    assert_true(i < given_count);
    given[i].run = NULL;
    if (run) run(given[i].handle);
}

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *handle, uv_work_cb run, uv_after_work_cb done);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *handle, uv_work_cb run,
                         uv_after_work_cb done) {
    (void)loop;
    assert_true(given_count < THREADS);
    given[given_count].handle = handle;
    given[given_count].run = run;
    given[given_count].done = done;
    given_count++;
    if (!begins_late) begin(given_count - 1);
    return 0;
}

/* Thread i has finished. */
static void finish(uint32_t i) {
    begin(i);
    uv_work_t *handle = given[i].handle;
    uv_after_work_cb done = given[i].done;
    assert_true(i < given_count);
    given_count--;
    memmove(&given[i], &given[i + 1], (given_count - i) * sizeof(given[0]));
    done(handle, 0);
}

/* ---- items ---- */

struct item {
    struct work_item base;
    char name;
    bool has_run, is_done;
};

static char started[ITEMS + 1]; /* the names of items, in the order in which they ran */

static void run(struct work_item *w) {
    struct item *item = (struct item *)w;
    size_t len = strlen(started);
    item->has_run = true;
    if (len < ITEMS) started[len] = item->name;
}

static void done(struct work_item *w) { ((struct item *)w)->is_done = true; }

static struct item make(char name, uint64_t bytes) {
    return (struct item){.base = {.run = run, .done = done, .bytes = bytes}, .name = name};
}

/* With batches if options.batch_items is set: then threads begin late. */
static struct work_queue *open_queue(struct work_queue_options options) {
    struct work_queue *q;
    given_count = 0;
    begins_late = options.batch_items > 0;
    if (!begins_late) options.batch_items = 1;
    memset(started, 0, sizeof(started));
    options.threads = THREADS;
    if (!options.long_from_bytes) options.long_from_bytes = LONG_BYTES;
    if (!options.items_max) options.items_max = ITEMS;
    if (!options.bytes_max) options.bytes_max = 1 << 20;
    if (!options.long_threads) options.long_threads = 2;
    assert_int_equal(work_queue_create(&options, &q), ST_OK);
    return q;
}

static void finish_all(struct work_queue *q) {
    while (given_count > 0) finish(0);
    assert_int_equal(work_queue_stats(q).waiting, 0);
    assert_int_equal(work_queue_stats(q).bytes, 0);
    work_queue_destroy(q);
}

/* ---- cases ---- */

static void test_short_work_does_not_wait_behind_long_work(void **state) {
    struct work_queue *q = open_queue((struct work_queue_options){.is_single = true});
    struct work_lane lane = {0};
    struct item longs[12], chat = make('c', 10);
    (void)state;
    for (int i = 0; i < 12; i++) {
        longs[i] = make('L', 1000);
        assert_int_equal(work_queue_push(q, &lane, &longs[i].base), ST_OK);
    }
    assert_string_equal(started, "LL"); /* the others wait, although threads are free */
    assert_int_equal(work_queue_push(q, &lane, &chat.base), ST_OK);
    assert_string_equal(started, "LLc");
    finish_all(q);
    assert_int_equal(strlen(started), 13);
}

/* Even if all threads are allowed to it, one stays for short work. */
static void test_long_work_never_has_all_threads(void **state) {
    struct work_queue *q =
        open_queue((struct work_queue_options){.is_single = true, .long_threads = THREADS});
    struct work_lane lane = {0};
    struct item longs[8], chat = make('c', 10);
    (void)state;
    for (int i = 0; i < 8; i++) {
        longs[i] = make('L', LONG_BYTES); /* just long */
        assert_int_equal(work_queue_push(q, &lane, &longs[i].base), ST_OK);
    }
    assert_string_equal(started, "LLL");
    assert_int_equal(work_queue_push(q, &lane, &chat.base), ST_OK);
    assert_string_equal(started, "LLLc");
    finish_all(q);
}

/* Slow work has one thread, which is none of those for long work. */
static void test_slow_work_does_not_delay_long_work(void **state) {
    struct work_queue *q =
        open_queue((struct work_queue_options){.is_single = true, .long_threads = 1});
    struct work_lane lane = {0};
    struct item slow[5], text = make('L', 1000), chat = make('c', 10);
    (void)state;
    for (int i = 0; i < 5; i++) {
        slow[i] = make('S', 1000);
        slow[i].base.is_slow = true;
        assert_int_equal(work_queue_push(q, &lane, &slow[i].base), ST_OK);
    }
    assert_string_equal(started, "S");
    assert_int_equal(work_queue_push(q, &lane, &text.base), ST_OK);
    assert_int_equal(work_queue_push(q, &lane, &chat.base), ST_OK);
    assert_string_equal(started, "SLc");
    finish(0);
    assert_string_equal(started, "SLcS");
    finish_all(q);
    assert_string_equal(started, "SLcSSSS");
}

/* Long and slow work together leave a thread for short work, too. */
static void test_slow_and_long_work_leave_a_thread(void **state) {
    struct work_queue *q =
        open_queue((struct work_queue_options){.is_single = true, .long_threads = THREADS});
    struct work_lane lane = {0};
    struct item longs[6], slow = make('S', 10), chat = make('c', 10);
    (void)state;
    slow.base.is_slow = true;
    assert_int_equal(work_queue_push(q, &lane, &slow.base), ST_OK);
    for (int i = 0; i < 6; i++) {
        longs[i] = make('L', 1000);
        assert_int_equal(work_queue_push(q, &lane, &longs[i].base), ST_OK);
    }
    assert_int_equal(work_queue_push(q, &lane, &chat.base), ST_OK);
    assert_string_equal(started, "SLLc");
    finish_all(q);
}

static void test_long_work_is_not_starved_by_short_work(void **state) {
    struct work_queue *q = open_queue((struct work_queue_options){.is_single = true});
    struct work_lane lane = {0};
    struct item shorts[20], text = make('L', 1000);
    (void)state;
    for (int i = 0; i < 20; i++) {
        shorts[i] = make('s', 10);
        assert_int_equal(work_queue_push(q, &lane, &shorts[i].base), ST_OK);
    }
    assert_int_equal(work_queue_push(q, &lane, &text.base), ST_OK);
    assert_string_equal(started, "ssss");
    finish(0);
    assert_string_equal(started, "ssssL");
    finish_all(q);
}

static void test_tenants_take_turns_and_none_has_all_threads(void **state) {
    struct work_queue *q = open_queue((struct work_queue_options){0});
    struct work_lane one = {0}, two = {0}, three = {0};
    struct item many[10], b[2], c[2];
    (void)state;
    for (int i = 0; i < 10; i++) {
        many[i] = make('a', 1);
        assert_int_equal(work_queue_push(q, &one, &many[i].base), ST_OK);
    }
    assert_string_equal(started, "aaa"); /* one thread is left for others */
    for (int i = 0; i < 2; i++) {
        b[i] = make('b', 1);
        c[i] = make('c', 1);
        assert_int_equal(work_queue_push(q, &two, &b[i].base), ST_OK);
        assert_int_equal(work_queue_push(q, &three, &c[i].base), ST_OK);
    }
    assert_string_equal(started, "aaab");
    finish(0);
    finish(0);
    finish(0);
    assert_string_equal(started, "aaabacb");
    finish_all(q);
    assert_int_equal(strlen(started), 14);
}

static void test_limits_hold_for_a_tenant_and_in_total(void **state) {
    struct work_queue *q =
        open_queue((struct work_queue_options){.items_max = 8, .bytes_max = 1200});
    struct work_lane one = {0}, two = {0}, three = {0};
    struct item a[8], b[8], large = make('x', 601), rest = make('r', 1), other = make('o', 1);
    (void)state;
    assert_int_equal(work_queue_push(q, &one, &large.base), ST_BAD); /* half of the bytes */
    large = make('x', 600);
    for (int i = 0; i < 4; i++) {
        a[i] = make('a', 1);
        assert_int_equal(work_queue_push(q, &one, &a[i].base), ST_OK);
    }
    assert_int_equal(work_queue_push(q, &one, &rest.base), ST_FULL);  /* half of the items */
    assert_int_equal(work_queue_push(q, &one, &large.base), ST_FULL); /* of which it has some */
    b[0] = make('b', 300);
    assert_int_equal(work_queue_push(q, &two, &b[0].base), ST_OK);
    b[1] = make('b', 1);
    assert_int_equal(work_queue_push(q, &two, &b[1].base), ST_OK);
    b[2] = make('b', 1);
    assert_int_equal(work_queue_push(q, &two, &b[2].base), ST_FULL); /* a third of 8 items */
    assert_int_equal(work_queue_push(q, &three, &other.base), ST_OK);
    rest.base.is_continuing = true; /* a request that the pool has worked for is never refused */
    assert_int_equal(work_queue_push(q, &one, &rest.base), ST_OK);
    b[3] = make('d', 1);
    struct work_lane four = {0};
    assert_int_equal(work_queue_push(q, &four, &b[3].base), ST_UNAVAILABLE);
    assert_int_equal(work_queue_stats(q).refused, 5);
    assert_false(large.has_run);
    finish_all(q);
}

static void test_cancelled_work_does_not_run(void **state) {
    struct work_queue *q = open_queue((struct work_queue_options){.is_single = true});
    struct work_lane lane = {0};
    struct item items[6];
    const struct work_lane *const lanes[] = {&lane};
    (void)state;
    for (int i = 0; i < 6; i++) {
        items[i] = make((char)('0' + i), 1);
        assert_int_equal(work_queue_push(q, &lane, &items[i].base), ST_OK);
    }
    assert_false(work_queue_cancel(&items[0].base)); /* it is running */
    assert_true(work_queue_cancel(&items[4].base));
    work_queue_verify(q, lanes, 1);
    finish(0);
    assert_true(items[0].is_done);
    assert_true(work_queue_cancel(&items[0].base)); /* it is over */
    assert_string_equal(started, "01235");
    finish_all(q);
    assert_false(items[4].has_run);
    assert_false(items[4].is_done);
}

/* ---- batches ---- */

static void push_all(struct work_queue *q, struct work_lane *lane, struct item *items, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(work_queue_push(q, lane, &items[i].base), ST_OK);
}

static void count_batch(void *ctx) { *(uint32_t *)ctx += 1; }

static void test_short_work_joins_a_batch_whose_thread_has_not_begun(void **state) {
    uint32_t batches = 0;
    struct work_queue *q = open_queue((struct work_queue_options){
        .is_single = true, .batch_items = 3, .after_batch = count_batch, .ctx = &batches});
    struct work_lane lane = {0};
    struct item items[8], text = make('L', LONG_BYTES);
    (void)state;
    for (int i = 0; i < 8; i++) items[i] = make((char)('0' + i), 1);
    push_all(q, &lane, items, 1);
    push_all(q, &lane, &text, 1); /* it has a thread of its own */
    push_all(q, &lane, items + 1, 3);
    assert_int_equal(given_count, 3); /* "012", "L", "3" */
    begin(2);
    push_all(q, &lane, items + 4, 1);
    assert_int_equal(given_count, 4); /* too late for the third */
    push_all(q, &lane, items + 5, 3); /* the last one waits for a thread */
    assert_int_equal(work_queue_stats(q).waiting, 1);
    assert_int_equal(work_queue_stats(q).running, 8);
    begin(0);
    begin(1);
    begin(3);
    assert_string_equal(started, "3012L456");
    finish(0);
    for (int i = 0; i < 3; i++) assert_true(items[i].is_done);
    assert_false(items[3].is_done);
    assert_int_equal(batches, 1);
    finish_all(q);
    assert_int_equal(batches, 5);
    assert_string_equal(started, "3012L4567");
}

static struct item *to_cancel;
static bool is_cancelled;

static void cancel_next(struct work_item *w) {
    ((struct item *)w)->is_done = true;
    is_cancelled = work_queue_cancel(&to_cancel->base);
}

/* Both ran: the second one's `done` comes, so it cannot be cancelled by that of the first. */
static void test_done_of_a_batch_comes_for_each_item_that_ran(void **state) {
    struct work_queue *q = open_queue(
        (struct work_queue_options){.is_single = true, .batch_items = 8, .long_from_bytes = 10000});
    struct work_lane lane = {0};
    struct item items[2] = {make('a', 1), make('b', 1)};
    (void)state;
    items[0].base.done = cancel_next;
    to_cancel = &items[1];
    push_all(q, &lane, items, 2);
    assert_int_equal(given_count, 1);
    finish(0);
    assert_true(items[0].is_done);
    assert_false(is_cancelled);
    assert_true(items[1].is_done);
    finish_all(q);
}

static void test_a_batch_holds_few_bytes_unless_it_is_one_item(void **state) {
    enum { BATCH_BYTES = 16 << 10 };
    struct work_queue *q = open_queue((struct work_queue_options){
        .is_single = true, .batch_items = 32, .long_from_bytes = 4 * BATCH_BYTES});
    struct work_lane lane = {0};
    struct item large = make('x', 2 * BATCH_BYTES), half[3];
    (void)state;
    for (int i = 0; i < 3; i++) half[i] = make((char)('a' + i), BATCH_BYTES / 2);
    push_all(q, &lane, &large, 1);
    push_all(q, &lane, half, 3);
    assert_int_equal(given_count, 3); /* "x", "ab", "c" */
    begin(1);
    assert_string_equal(started, "ab");
    finish_all(q);
}

/* Each in turn also within a batch, which is filled when a thread becomes free. */
static void test_tenants_take_turns_in_a_batch(void **state) {
    struct work_queue *q = open_queue((struct work_queue_options){.batch_items = 6});
    struct work_lane one = {0}, two = {0}, three = {0};
    const struct work_lane *const lanes[] = {&one, &two, &three};
    struct item many[40], b[2], c[2];
    (void)state;
    for (int i = 0; i < 40; i++) many[i] = make('a', 1);
    for (int i = 0; i < 2; i++) b[i] = make('b', 1);
    for (int i = 0; i < 2; i++) c[i] = make('c', 1);
    push_all(q, &one, many, 40);
    assert_int_equal(given_count, 3); /* one thread is left for others */
    push_all(q, &two, b, 1);
    assert_int_equal(given_count, 4);
    push_all(q, &two, b + 1, 1);
    push_all(q, &three, c, 2); /* they wait: what waits already comes before them */
    work_queue_verify(q, lanes, 3);
    for (uint32_t i = 0; i < 4; i++) begin(i);
    memset(started, 0, sizeof(started));
    finish(0);
    begin(3);
    assert_string_equal(started, "abcaca");
    work_queue_verify(q, lanes, 3);
    finish_all(q);
}

/* Every item takes as long as `now_us` grows. */
static int64_t now_us;
static int64_t read_now(void *self) {
    (void)self;
    return now_us;
}
static const struct clock steps = {.name = "steps", .now_us = read_now};

static void run_slowly(struct work_item *w) {
    now_us += 400;
    run(w);
}

static void test_what_a_batch_has_no_time_for_is_next(void **state) {
    struct work_queue *q = open_queue(
        (struct work_queue_options){.is_single = true, .batch_items = 5, .clock = &steps});
    struct work_lane lane = {0};
    const struct work_lane *const lanes[] = {&lane};
    struct item items[21];
    (void)state;
    for (int i = 0; i < 21; i++) {
        items[i] = make((char)('a' + i), 1);
        items[i].base.run = run_slowly;
    }
    push_all(q, &lane, items, 21); /* four batches of five; "u" waits */
    begin(0);
    assert_string_equal(started, "abc"); /* 1,200 us */
    work_queue_verify(q, lanes, 1);
    finish(0); /* "d" and "e" are first; "u" is behind them, and so in their batch */
    assert_true(items[2].is_done);
    assert_false(items[3].is_done);
    work_queue_verify(q, lanes, 1);
    memset(started, 0, sizeof(started));
    begin(3);
    assert_string_equal(started, "deu");
    assert_false(work_queue_cancel(&items[5].base)); /* "f" has a thread */
    finish_all(q);
    for (int i = 0; i < 21; i++) assert_true(items[i].is_done);
}

/* ---- random steps ---- */

static void random_steps(struct work_queue_options options) {
    struct work_queue *q = open_queue(options);
    static struct work_lane lanes[LANES];
    static struct item items[ITEMS];
    const struct work_lane *list[LANES];
    struct rng rng = {.seed = 7};
    uint32_t refused = 0, cancelled = 0, finished = 0;
    for (int i = 0; i < LANES; i++) list[i] = &lanes[i];
    for (uint32_t step = 0; step < 20000; step++) {
        struct item *item = &items[rng_below(&rng, ITEMS)];
        uint32_t what = (uint32_t)rng_below(&rng, 10);
        if (what < 7 && item->base.state == WORK_IDLE) {
            *item = make('i', rng_below(&rng, 2 * LONG_BYTES));
            item->base.is_slow = rng_below(&rng, 8) == 0;
            if (options.clock) item->base.run = run_slowly;
            enum status st = work_queue_push(q, &lanes[rng_below(&rng, LANES)], &item->base);
            refused += st != ST_OK;
        } else if (what == 7) {
            cancelled += item->base.state == WORK_WAITING;
            assert_int_equal(work_queue_cancel(&item->base), item->base.state != WORK_RUNNING);
        } else if (given_count > 0) {
            uint32_t i = (uint32_t)rng_below(&rng, given_count);
            if (what == 8 && given[i].run) {
                begin(i);
            } else {
                finish(i);
                finished++;
            }
        }
        work_queue_verify(q, list, LANES);
        struct work_queue_stats stats = work_queue_stats(q);
        assert_true(stats.bytes <= stats.bytes_max);
        /* A thread is free only if what waits may not have it. */
        if (given_count == THREADS) continue;
        for (int i = 0; i < LANES; i++) {
            bool at_limit = lanes[i].threads + 1 >= THREADS;
            assert_true(at_limit || lanes[i].waiting[WORK_SHORT].count == 0);
        }
    }
    assert_true(refused > 100 && cancelled > 100 && finished > 1000);
    finish_all(q);
    for (int i = 0; i < LANES; i++) assert_int_equal(lanes[i].threads, 0);
}

static void test_random_steps_keep_every_sum(void **state) {
    (void)state;
    random_steps(
        (struct work_queue_options){.items_max = 60, .bytes_max = 5000, .bytes_least = 300});
}

static void test_random_steps_with_batches_keep_every_sum(void **state) {
    (void)state;
    random_steps((struct work_queue_options){
        .items_max = 60, .bytes_max = 5000, .bytes_least = 300, .batch_items = 8, .clock = &steps});
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_short_work_does_not_wait_behind_long_work),
        cmocka_unit_test(test_long_work_never_has_all_threads),
        cmocka_unit_test(test_slow_work_does_not_delay_long_work),
        cmocka_unit_test(test_slow_and_long_work_leave_a_thread),
        cmocka_unit_test(test_long_work_is_not_starved_by_short_work),
        cmocka_unit_test(test_tenants_take_turns_and_none_has_all_threads),
        cmocka_unit_test(test_limits_hold_for_a_tenant_and_in_total),
        cmocka_unit_test(test_cancelled_work_does_not_run),
        cmocka_unit_test(test_short_work_joins_a_batch_whose_thread_has_not_begun),
        cmocka_unit_test(test_done_of_a_batch_comes_for_each_item_that_ran),
        cmocka_unit_test(test_a_batch_holds_few_bytes_unless_it_is_one_item),
        cmocka_unit_test(test_tenants_take_turns_in_a_batch),
        cmocka_unit_test(test_what_a_batch_has_no_time_for_is_next),
        cmocka_unit_test(test_random_steps_keep_every_sum),
        cmocka_unit_test(test_random_steps_with_batches_keep_every_sum),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
