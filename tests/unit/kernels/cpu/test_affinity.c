/* Goal: each thread of a team gets the processor that it should, and none where binding has no use.
 *
 * Method: machines that hwloc makes up from a line of text, whole and cut down to a mask, as an
 * affinity mask or a cpuset does; the expected processors are written out by hand. In hwloc's
 * made-up machines processors are numbered in order, so those of node 1 of "numa:2 core:4 pu:2"
 * are 8 to 15 and cores are pairs. Where hwloc is missing there is nothing to test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/cpu/affinity.h"

static struct cpu_machine machine;

static void read_machine(const char *synthetic, const char *allowed) {
    struct cpu_machine_source source = {.synthetic = synthetic, .allowed = allowed};
    if (!cpu_machine_read(&source, &machine)) skip();
}

static void expect(enum cpu_placement mode, uint32_t threads, const uint32_t *expected) {
    uint32_t cpus[POOL_THREADS_MAX];
    assert_true(affinity_assign(&machine, mode, threads, cpus));
    for (uint32_t i = 0; i < threads; i++) assert_int_equal(cpus[i], expected[i]);
}

static void expect_none(enum cpu_placement mode, uint32_t threads) {
    uint32_t cpus[POOL_THREADS_MAX];
    assert_false(affinity_assign(&machine, mode, threads, cpus));
}

#define EXPECT(mode, ...)                                                                          \
    do {                                                                                           \
        const uint32_t list[] = {__VA_ARGS__};                                                     \
        expect(mode, sizeof(list) / sizeof(list[0]), list);                                        \
    } while (0)

static void test_a_machine_is_read_with_its_cores_and_nodes(void **state) {
    (void)state;
    read_machine("numa:2 core:4 pu:2", NULL);
    assert_int_equal(machine.cpu_count, 16);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(machine.cpus[i].cpu, i);
        assert_int_equal(machine.cpus[i].core, i / 2);
        assert_int_equal(machine.cpus[i].node, i / 8);
    }
}

static void test_one_node_without_siblings_is_left_alone(void **state) {
    (void)state;
    read_machine("core:8 pu:1", NULL);
    for (uint32_t threads = 1; threads <= 9; threads++) expect_none(CPU_PLACE_AUTO, threads);
    EXPECT(CPU_PLACE_ON, 0, 1, 2);
    EXPECT(CPU_PLACE_ON, 0, 1, 2, 3, 4, 5, 6, 7);
}

static void test_every_core_gets_one_thread_before_any_gets_two(void **state) {
    (void)state;
    read_machine("core:4 pu:2", NULL);
    expect_none(CPU_PLACE_AUTO, 3); /* some core stays free to move to */
    EXPECT(CPU_PLACE_AUTO, 0, 2, 4, 6);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 4, 6);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(CPU_PLACE_ON, 0, 2);
}

static void test_nodes_get_even_shares_and_neighbours_stay_together(void **state) {
    (void)state;
    read_machine("numa:2 core:4 pu:1", NULL);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 3, 4, 5, 6); /* one core is left to others */
    expect_none(CPU_PLACE_AUTO, 6);
    EXPECT(CPU_PLACE_ON, 0, 1, 4, 5);
    EXPECT(CPU_PLACE_ON, 0, 1, 4);
    EXPECT(CPU_PLACE_ON, 0);
    read_machine("numa:2 core:2 pu:2", NULL);
    EXPECT(CPU_PLACE_AUTO, 0, 2, 4, 6);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 4, 5, 6);
}

static void test_only_processors_of_the_mask_are_used(void **state) {
    (void)state;
    read_machine("numa:2 core:4 pu:2", "0-5,8-9");
    assert_int_equal(machine.cpu_count, 8);
    EXPECT(CPU_PLACE_AUTO, 0, 2, 4, 8);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 4, 8, 9);
    read_machine("numa:2 core:4 pu:2", "9,11,13");
    expect_none(CPU_PLACE_AUTO, 3); /* one node, one thread of each core: nothing to win */
    EXPECT(CPU_PLACE_ON, 9, 11, 13);
    read_machine("numa:2 core:4 pu:2", "1,3,9");
    EXPECT(CPU_PLACE_AUTO, 1, 3, 9);
}

static void test_a_node_of_another_size_gives_what_it_has(void **state) {
    (void)state;
    read_machine("numa:2 core:8 pu:1", "0-7,15");
    EXPECT(CPU_PLACE_ON, 0, 1, 2, 15);
    EXPECT(CPU_PLACE_AUTO, 0, 1, 2, 3, 4, 5, 6, 7, 15);
}

static void test_a_team_larger_than_the_machine_is_never_bound(void **state) {
    (void)state;
    read_machine("numa:2 core:2 pu:2", NULL);
    expect_none(CPU_PLACE_ON, 9);
    expect_none(CPU_PLACE_AUTO, 9);
}

static void test_off_is_off(void **state) {
    (void)state;
    read_machine("numa:2 core:2 pu:2", NULL);
    expect_none(CPU_PLACE_OFF, 8);
    assert_null(affinity_create(CPU_PLACE_OFF, 1, NULL));
}

static void test_of_an_unknown_machine_nothing_is_bound(void **state) {
    (void)state;
    machine.cpu_count = 0;
    expect_none(CPU_PLACE_ON, 1);
    struct cpu_machine_source source = {.synthetic = "no such machine"};
    assert_false(cpu_machine_read(&source, &machine));
    assert_int_equal(machine.cpu_count, 0);
}

static void test_what_was_asked_for_and_is_not_done_has_a_reason(void **state) {
    (void)state;
    struct err why = {{0}};
    struct cpu_machine_source here = {.synthetic = NULL};
    if (cpu_machine_read(&here, &machine) && machine.cpu_count >= POOL_THREADS_MAX) skip();
    assert_null(affinity_create(CPU_PLACE_AUTO, POOL_THREADS_MAX, &why));
    assert_string_equal(why.text, "");
    assert_null(affinity_create(CPU_PLACE_ON, POOL_THREADS_MAX, &why));
    assert_non_null(strstr(why.text, "no thread is bound"));
}

static void test_threads_that_are_bound_here_say_where(void **state) {
    (void)state;
    struct pool *pool;
    struct affinity *p = affinity_create(CPU_PLACE_ON, 1, NULL);
    if (!p) skip();
    assert_true(affinity_text(p)[0] >= '0' && affinity_text(p)[0] <= '9');
    uint32_t before = pool_default_threads();
    assert_int_equal(pool_create(&pool, 1, NULL), ST_OK);
    affinity_bind_workers(p, pool);
    affinity_bind_caller(p);
    affinity_bind_caller(p);
    assert_int_equal(pool_default_threads(), 1);
    pool_destroy(pool);
    affinity_destroy(p);
    assert_int_equal(pool_default_threads(), before); /* the caller has its mask back */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_is_read_with_its_cores_and_nodes),
        cmocka_unit_test(test_one_node_without_siblings_is_left_alone),
        cmocka_unit_test(test_every_core_gets_one_thread_before_any_gets_two),
        cmocka_unit_test(test_nodes_get_even_shares_and_neighbours_stay_together),
        cmocka_unit_test(test_only_processors_of_the_mask_are_used),
        cmocka_unit_test(test_a_node_of_another_size_gives_what_it_has),
        cmocka_unit_test(test_a_team_larger_than_the_machine_is_never_bound),
        cmocka_unit_test(test_off_is_off),
        cmocka_unit_test(test_of_an_unknown_machine_nothing_is_bound),
        cmocka_unit_test(test_what_was_asked_for_and_is_not_done_has_a_reason),
        cmocka_unit_test(test_threads_that_are_bound_here_say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
