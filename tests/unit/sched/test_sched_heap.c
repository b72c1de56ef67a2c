/* Goal:   the heap gives the smallest first, ties in order, and loses no entry when entries are
 *         taken from its middle or change their keys.
 * Method: a seeded random walk against a plain array, heap_verify after every step. */
#include "unit/sched/world.h"

#include "sched/heap.h"

enum { CAP = 37, STEPS = 20000 };

static void check_top(const struct seq_heap *h, const int64_t *keys, const bool *in) {
    seq_idx best = SEQ_NONE;
    for (seq_idx i = 0; i < CAP; i++)
        if (in[i] && (best == SEQ_NONE || keys[i] < keys[best])) best = i; /* tie: its number */
    assert_int_equal(heap_top(h), best);
}

static void test_random_walk_agrees_with_an_array(void **state) {
    (void)state;
    struct seq_heap h;
    struct rng rng = {.seed = 7};
    int64_t keys[CAP] = {0};
    bool in[CAP] = {0};
    assert_int_equal(heap_init(&h, CAP), ST_OK);
    for (int n = 0; n < STEPS; n++) {
        seq_idx i = (seq_idx)rng_below(&rng, CAP);
        int64_t key = (int64_t)rng_below(&rng, 20) - 10;
        if (!in[i]) {
            heap_push(&h, i, key, i);
            in[i] = true;
            keys[i] = key;
        } else if (rng_below(&rng, 2)) {
            heap_remove(&h, i);
            in[i] = false;
        } else {
            heap_change(&h, i, key, i);
            keys[i] = key;
        }
        assert_int_equal(heap_has(&h, i), in[i]);
        if (in[i]) assert_int_equal(heap_key(&h, i), keys[i]);
        heap_verify(&h);
        check_top(&h, keys, in);
    }
    heap_clear(&h);
    heap_verify(&h);
    assert_int_equal(heap_top(&h), SEQ_NONE);
    heap_deinit(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_walk_agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
