/* Goal:   of an op's work every unit is claimed and every piece is taken by exactly one thread, in
 *         every op of every run, also where threads are late or there are more of them than pieces.
 * Method: a tape of a few ops is walked many times by a team that only counts what it gets; some
 *         thread gives its processor away now and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/pool.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/workspace.h"

enum { THREADS = 5, OPS = 4, UNITS = 23, PIECES_MAX = 4, RUNS = 400 };

struct walk {
    struct workspace *workspace;
    struct pool *pool;
    uint32_t run;
    atomic_uint wrong; /* said that something was left when all was done */
    atomic_uint claimed[OPS][UNITS], taken[OPS][THREADS][PIECES_MAX];
};

static struct tape *make_tape(void) {
    static const struct tape_sizes sizes = {.rows_max = 2, .outputs_max = 1, .seqs_max = 1};
    struct tape *t;
    struct err err = {{0}};
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand a = tape_all(t, tape_value(t, "a", ROWS_TOKENS, VALUE_F32, 32));
    struct operand b = tape_all(t, tape_value(t, "b", ROWS_TOKENS, VALUE_F32, 32));
    for (int i = 0; i < OPS; i++)
        tape_push(t, &(struct op){.kind = OP_ADD, .add = {.src = a, .dst = b}});
    tape_set_output(t, 1);
    if (tape_finish(t, &sizes, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tape_op_count(t), OPS);
    return t;
}

/* Shares have 0 .. PIECES_MAX pieces, another number in every op and run. Every other few runs
 * only the last op has any, as in a prompt, whose products but the last have many rows. */
static uint32_t pieces_of(const struct walk *w, uint32_t op, uint32_t owner) {
    if (w->run / 4 % 2 && op + 1 < OPS) return 0;
    return (w->run + op + owner) % (PIECES_MAX + 1);
}

/* Those that have any. */
static uint32_t shares_of(const struct walk *w, uint32_t op) {
    uint32_t shares = 0;
    for (uint32_t owner = 0; owner < THREADS; owner++) shares += pieces_of(w, op, owner) > 0;
    return shares;
}

static void walk_ops(void *ctx, uint32_t ith, uint32_t nth) {
    struct walk *w = ctx;
    for (uint32_t op = 0; op < OPS; op++) {
        if ((w->run + op) % 3 == ith) sched_yield();
        for (uint32_t u = workspace_claim(w->workspace, op); u < UNITS;
             u = workspace_claim(w->workspace, op))
            atomic_fetch_add(&w->claimed[op][u], 1);
        for (uint32_t i = 0; i < nth && workspace_has_left(w->workspace, op, shares_of(w, op));
             i++) {
            uint32_t owner = (ith + i) % nth, pieces = pieces_of(w, op, owner), piece;
            while ((piece = workspace_take(w->workspace, op, owner, pieces)) < pieces)
                atomic_fetch_add(&w->taken[op][owner][piece], 1);
        }
        pool_barrier(w->pool);
        if (workspace_has_left(w->workspace, op, shares_of(w, op))) atomic_fetch_add(&w->wrong, 1);
    }
}

static void check_counts(struct walk *w) {
    for (uint32_t op = 0; op < OPS; op++) {
        for (uint32_t u = 0; u < UNITS; u++)
            assert_int_equal(atomic_exchange(&w->claimed[op][u], 0), 1);
        for (uint32_t owner = 0; owner < THREADS; owner++)
            for (uint32_t i = 0; i < PIECES_MAX; i++)
                assert_int_equal(atomic_exchange(&w->taken[op][owner][i], 0),
                                 i < pieces_of(w, op, owner));
    }
}

static void test_all_work_is_done_once(void **state) {
    (void)state;
    static struct walk w;
    struct err err = {{0}};
    struct tape *t = make_tape();
    const struct cpu_kernels *k = cpu_table_find("portable")->kernels;
    assert_int_equal(pool_create(&w.pool, THREADS, &err), ST_OK);
    assert_int_equal(workspace_create(&w.workspace, t, k, THREADS, &err), ST_OK);
    for (w.run = 0; w.run < RUNS; w.run++) {
        workspace_reset_claims(w.workspace);
        pool_run(w.pool, walk_ops, &w);
        check_counts(&w);
        assert_int_equal(w.wrong, 0);
    }
    workspace_destroy(w.workspace);
    pool_destroy(w.pool);
    tape_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_work_is_done_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
