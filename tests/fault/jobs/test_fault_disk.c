/* Goal:   whatever call to the disk fails, once or from then on, the store neither crashes nor
 *         leaks; what it gave back as done is there, what it did not is there as a whole or not at
 *         all; and when the fault ends it works again, with and without a restart.
 * Method: a life of a store that uses every verb (scenario.h), on a VFS whose k-th call of a kind
 *         fails, for k from 0 until no call is left. Without JITNEY_FAULTS=full only every few k,
 *         beginning at a random one: JITNEY_SEED repeats it. */
#define _DEFAULT_SOURCE
#include "unit/jobs/store_lib.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "fault/jobs/fault_vfs.h"
#include "fault/jobs/scenario.h"

static struct {
    uint64_t seed;
    bool is_full;
    uint64_t points;
} run;

static int learn(void **state) {
    (void)state;
    const char *seed = getenv("JITNEY_SEED"), *full = getenv("JITNEY_FAULTS");
    run.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_us();
    run.is_full = full && strcmp(full, "full") == 0;
    printf("JITNEY_SEED=%llu%s\n", (unsigned long long)run.seed,
           run.is_full ? " JITNEY_FAULTS=full" : "");
    fault_vfs_register();
    scenario_learn();
    return 0;
}
static int forget(void **state) {
    (void)state;
    scenario_forget();
    printf("%llu faults were exercised\n", (unsigned long long)run.points);
    return 0;
}

static void describe(const struct fault_plan *p, bool restarts, char out[128]) {
    snprintf(out, 128, "%s %llu %s %s, %s", fault_kind_name(p->kind), (unsigned long long)p->at,
             fault_result_name(p->result), p->stays ? "and all later ones" : "once",
             restarts ? "then a restart" : "then healed");
}

static void reopen(struct test_store *t, const char *what) {
    if (test_reopen(t) != ST_OK) fail_msg("%s: cannot open again: %s", what, t->err.text);
}

static void expect_failure(struct test_store *t, enum status st, const char *what) {
    bool is_known = st == ST_IO || st == ST_FULL || st == ST_NOMEM || st == ST_BAD;
    if (!is_known || !t->err.text[0])
        fail_msg("%s: status %s, \"%s\"", what, status_name(st), t->err.text);
}

/* Run the scenario with one plan; false if the fault was never reached. */
static bool try_plan(const struct fault_plan *plan, bool restarts) {
    struct test_store t;
    char what[128];
    describe(plan, restarts, what);
    test_make_dir_in(&t, test_quick_parent());
    t.options.vfs = FAULT_VFS_NAME;
    t.options.log_pages = LOG_PAGES;
    reopen(&t, what);
    fault_vfs_plan(plan);
    size_t step = 0;
    enum status st = ST_OK;
    for (; step < scenario_count; step++) {
        st = scenario_steps[step].run(&t);
        if (st != ST_OK) break;
    }
    if (st != ST_OK) expect_failure(&t, st, what);
    if (restarts) test_shut(&t);
    bool fired = fault_vfs_heal();
    if (restarts) reopen(&t, what);
    step = scenario_judge(&t, step, what);
    scenario_complete(&t, step);
    test_shut(&t);
    reopen(&t, what);
    scenario_complete(&t, scenario_count); /* and it is all there */
    test_close(&t);
    return fired;
}

static uint64_t stride_of(enum fault_kind kind, bool is_full) {
    if (is_full) return 1;
    uint64_t stride = kind == FAULT_WRITE || kind == FAULT_SHM_LOCK ? 97 : 7;
    if (kind == FAULT_SYNC) stride = 13;
    return stride * FEWER;
}

static void exercise(enum fault_kind kind, enum fault_result result, bool stays) {
    struct rng rng = {.seed = run.seed, .index = (uint64_t)kind * 1000 + result * 10 + stays};
    const uint64_t stride = stride_of(kind, run.is_full);
    bool fired = true;
    for (uint64_t at = rng_below(&rng, stride); fired; at += stride) {
        const struct fault_plan plan = {.kind = kind, .result = result, .at = at, .stays = stays};
        bool restarts = run.is_full ? false : rng_below(&rng, 2);
        fired = try_plan(&plan, restarts);
        if (run.is_full && fired) fired = try_plan(&plan, true);
        run.points += fired ? 1 + run.is_full : 0;
    }
}

static void exercise_kind(enum fault_kind kind, enum fault_result result) {
    exercise(kind, result, false);
    exercise(kind, result, true);
}

static void test_reads_that_fail(void **state) {
    (void)state;
    exercise_kind(FAULT_READ, FAULT_IOERR);
}
static void test_writes_that_fail(void **state) {
    (void)state;
    exercise_kind(FAULT_WRITE, FAULT_IOERR);
    exercise_kind(FAULT_WRITE, FAULT_SHORT);
}
static void test_writes_that_find_no_space(void **state) {
    (void)state;
    exercise_kind(FAULT_WRITE, FAULT_FULL);
}
static void test_syncs_that_fail(void **state) {
    (void)state;
    exercise_kind(FAULT_SYNC, FAULT_IOERR);
    exercise_kind(FAULT_SYNC, FAULT_FULL);
}
static void test_truncations_that_fail(void **state) {
    (void)state;
    exercise_kind(FAULT_TRUNCATE, FAULT_IOERR);
}
static void test_other_calls_that_fail(void **state) {
    (void)state;
    exercise_kind(FAULT_SIZE, FAULT_IOERR);
    exercise_kind(FAULT_LOCK, FAULT_IOERR);
    exercise_kind(FAULT_SHM_MAP, FAULT_IOERR);
    exercise_kind(FAULT_SHM_LOCK, FAULT_IOERR);
    exercise_kind(FAULT_ACCESS, FAULT_IOERR);
    exercise_kind(FAULT_OPEN, FAULT_IOERR);
    exercise_kind(FAULT_DELETE, FAULT_IOERR);
}

/* ---- opening ---- */

static void copy_file(const char *from, const char *to, const char *name) {
    char source[256], target[256], block[65536];
    snprintf(source, sizeof(source), "%s/%s", from, name);
    snprintf(target, sizeof(target), "%s/%s", to, name);
    FILE *in = fopen(source, "rb"), *out = fopen(target, "wb");
    assert_true(in && out);
    for (size_t got; (got = fread(block, 1, sizeof(block), in)) > 0;)
        assert_int_equal(fwrite(block, 1, got, out), got);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A store whose server ended without closing it: the log has all of it. */
static size_t make_crashed(struct test_store *crashed) {
    struct test_store t;
    const size_t step = 17;
    test_make_dir_in(&t, test_quick_parent());
    test_make_dir_in(crashed, test_quick_parent());
    assert_int_equal(test_reopen(&t), ST_OK);
    for (size_t i = 0; i < step; i++) assert_int_equal(scenario_steps[i].run(&t), ST_OK);
    copy_file(t.dir, crashed->dir, "jitney.db");
    copy_file(t.dir, crashed->dir, "jitney.db-wal");
    test_close(&t);
    return step;
}

/* `from`: a folder to begin with, or NULL for an empty one. */
static bool try_open(const struct fault_plan *plan, const char *from, size_t step) {
    struct test_store t;
    char what[128];
    describe(plan, true, what);
    test_make_dir_in(&t, test_quick_parent());
    if (from) copy_file(from, t.dir, "jitney.db");
    if (from) copy_file(from, t.dir, "jitney.db-wal");
    t.options.vfs = FAULT_VFS_NAME;
    t.options.log_pages = LOG_PAGES;
    fault_vfs_plan(plan);
    enum status st = test_reopen(&t);
    if (st != ST_OK) expect_failure(&t, st, what);
    test_shut(&t);
    bool fired = fault_vfs_heal();
    reopen(&t, what);
    assert_int_equal(scenario_judge(&t, step, what), step);
    scenario_complete(&t, step);
    test_close(&t);
    return fired;
}

static void open_with_faults(const char *from, size_t step) {
    for (enum fault_kind kind = FAULT_READ; kind < FAULT_KINDS; kind++) {
        for (int variant = 0; variant < 4; variant++) {
            const uint64_t stride = run.is_full ? 1 : (kind == FAULT_WRITE ? 23 : 5) * FEWER;
            struct rng rng = {.seed = run.seed, .index = (uint64_t)kind * 100 + (uint64_t)variant};
            bool fired = true;
            for (uint64_t at = rng_below(&rng, stride); fired; at += stride) {
                const struct fault_plan plan = {.kind = kind,
                                                .result = variant & 1 ? FAULT_FULL : FAULT_IOERR,
                                                .at = at,
                                                .stays = variant & 2};
                fired = try_open(&plan, from, step);
                run.points += fired;
            }
        }
    }
}

static void test_a_new_store_that_cannot_be_made_can_be_made_later(void **state) {
    (void)state;
    open_with_faults(NULL, 0);
}

static void test_a_store_that_cannot_be_opened_loses_nothing(void **state) {
    (void)state;
    struct test_store crashed;
    const size_t step = make_crashed(&crashed);
    open_with_faults(crashed.dir, step);
    test_close(&crashed);
}

/* ---- groups, and a disk that is slow ---- */

enum { GROUP = 40 };

static enum status insert_one(struct store_db *db, void *ctx, struct err *err) {
    const struct answer_row row = {.id = str_of(ctx), .body = STR("{}")};
    return answers_insert(db, &row, err);
}
static enum status find_one(struct store_db *db, void *ctx, struct err *err) {
    struct answer_row row;
    TRY(answers_find(db, STR(""), str_of(ctx), false, &row, err));
    answer_row_deinit(&row);
    return ST_OK;
}

/* Many operations at once, while some calls fail: each status is true. */
static void test_the_status_of_each_operation_of_a_group_is_true(void **state) {
    (void)state;
    static char ids[GROUP][16];
    for (uint64_t at = 0; at < (run.is_full ? 200 : 40); at++) {
        struct test_store t;
        struct test_op ops[GROUP];
        test_make_dir_in(&t, test_quick_parent());
        t.options.vfs = FAULT_VFS_NAME;
        t.options.log_pages = LOG_PAGES;
        reopen(&t, "group");
        const struct fault_plan plan = {.kind = at % 2 ? FAULT_SYNC : FAULT_WRITE,
                                        .result = at % 4 < 2 ? FAULT_IOERR : FAULT_FULL,
                                        .at = at % 2 ? at / 8 : at,
                                        .stays = at % 3 == 0};
        fault_vfs_plan(&plan);
        for (int i = 0; i < GROUP; i++) {
            snprintf(ids[i], sizeof(ids[i]), "a%d", i);
            test_push(&t, &ops[i], insert_one, ids[i]);
        }
        for (int i = 0; i < GROUP; i++) (void)test_await(&t, &ops[i]);
        test_shut(&t);
        run.points += fault_vfs_heal();
        reopen(&t, "group");
        for (int i = 0; i < GROUP; i++) {
            enum status found = test_read(&t, find_one, ids[i]);
            bool is_fine =
                ops[i].op.status == ST_OK ? found == ST_OK : found == ST_OK || found == ST_MISSING;
            if (!is_fine) fail_msg("at %llu: %s", (unsigned long long)at, ids[i]);
        }
        test_check(&t);
        test_close(&t);
    }
}

static void test_a_slow_disk_does_not_hold_up_the_caller(void **state) {
    (void)state;
    struct test_store t;
    struct test_op ops[GROUP];
    static char ids[GROUP][16];
    test_make_dir_in(&t, test_quick_parent());
    t.options.vfs = FAULT_VFS_NAME;
    t.options.log_pages = LOG_PAGES;
    reopen(&t, "slow");
    const struct fault_plan plan = {.kind = FAULT_SYNC, .result = FAULT_LATE, .stays = true};
    fault_vfs_plan(&plan);
    int64_t begin_us = clock_now(&clock_real);
    for (int i = 0; i < GROUP; i++) {
        snprintf(ids[i], sizeof(ids[i]), "a%d", i);
        test_push(&t, &ops[i], insert_one, ids[i]);
    }
    assert_true(clock_now(&clock_real) - begin_us < 15000); /* shorter than one sync */
    for (int i = 0; i < GROUP; i++) assert_int_equal(test_await(&t, &ops[i]), ST_OK);
    assert_true(store_stats(t.store).commit_us_max >= 20000);
    assert_true(store_stats(t.store).commits < GROUP);
    fault_vfs_heal();
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_reads_that_fail),
        cmocka_unit_test(test_writes_that_fail),
        cmocka_unit_test(test_writes_that_find_no_space),
        cmocka_unit_test(test_syncs_that_fail),
        cmocka_unit_test(test_truncations_that_fail),
        cmocka_unit_test(test_other_calls_that_fail),
        cmocka_unit_test(test_a_new_store_that_cannot_be_made_can_be_made_later),
        cmocka_unit_test(test_a_store_that_cannot_be_opened_loses_nothing),
        cmocka_unit_test(test_the_status_of_each_operation_of_a_group_is_true),
        cmocka_unit_test(test_a_slow_disk_does_not_hold_up_the_caller),
    };
    return cmocka_run_group_tests(cases, learn, forget);
}
