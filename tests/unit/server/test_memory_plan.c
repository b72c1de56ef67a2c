/* Goal:   --memory-max is divided without a rest that no budget counts, its default follows the
 *         machine, and settings that do not fit together are refused with the numbers.
 * Method: plans of settings that were read as from a command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "config/settings.h"
#include "server/memory_plan.h"

static const uint64_t GIB = 1ull << 30, MIB = 1ull << 20;

/* With the settings of a config file. */
static enum status plan(const char *text, uint64_t machine_bytes, struct memory_plan *out,
                        struct err *err) {
    struct settings settings;
    assert_int_equal(settings_init(&settings), ST_OK);
    assert_int_equal(settings_read_text(&settings, str_of(text), "f.conf", err), ST_OK);
    enum status st = memory_plan_make(&settings, machine_bytes, out, err);
    settings_deinit(&settings);
    return st;
}

static uint64_t sum(const struct memory_plan *p) {
    return p->bodies + p->replies + p->answers + p->work + p->embeddings;
}

static void test_the_budgets_add_up_to_the_bound(void **state) {
    struct memory_plan p;
    struct err err = {0};
    (void)state;
    assert_int_equal(plan("memory-max = 512M", GIB, &p, &err), ST_OK);
    assert_int_equal(p.total, 512 * MIB);
    assert_int_equal(sum(&p), p.total);
    assert_int_equal(p.bodies, 128 * MIB);
    assert_int_equal(p.work, 64 * MIB);
}

static void test_the_default_is_an_eighth_of_the_machine(void **state) {
    struct memory_plan p;
    struct err err = {0};
    (void)state;
    assert_int_equal(plan("", 32 * GIB, &p, &err), ST_OK);
    assert_int_equal(p.total, 4 * GIB);
    assert_int_equal(plan("", GIB / 4, &p, &err), ST_OK); /* eight of the largest bodies */
    assert_int_equal(p.total, 64 * MIB);
    assert_int_equal(plan("body-max = 64M", GIB, &p, &err), ST_OK);
    assert_int_equal(p.total, 512 * MIB);
    assert_int_equal(plan("keep-memory = 1G", GIB, &p, &err), ST_OK);
    assert_int_equal(p.answers, GIB);
}

static void test_grammars_have_their_own(void **state) {
    struct memory_plan p;
    struct err err = {0};
    (void)state;
    assert_int_equal(plan("memory-max = 512M", GIB, &p, &err), ST_OK);
    assert_int_equal(p.grammars, 64 * MIB);
    assert_int_equal(plan("memory-max = 512M\ngrammar-memory = 3M", GIB, &p, &err), ST_OK);
    assert_int_equal(p.grammars, 3 * MIB);
    assert_int_equal(sum(&p), p.total);
}

static void test_what_is_too_small_is_refused_with_the_numbers(void **state) {
    struct memory_plan p;
    struct err err = {0};
    (void)state;
    assert_int_equal(plan("memory-max = 15M\nbody-max = 1M", GIB, &p, &err), ST_BAD);
    assert_non_null(strstr(err.text, "15728640"));
    assert_non_null(strstr(err.text, "16777216"));
    assert_int_equal(plan("memory-max = 63M", GIB, &p, &err), ST_BAD);
    assert_non_null(strstr(err.text, "--body-max is 8388608"));
    assert_non_null(strstr(err.text, "at least 67108864"));
    assert_int_equal(plan("memory-max = 64M", GIB, &p, &err), ST_OK);
    assert_int_equal(plan("memory-max = 64M\nkeep-memory = 17M", GIB, &p, &err), ST_BAD);
    assert_non_null(strstr(err.text, "--keep-memory is 17825792"));
    assert_non_null(strstr(err.text, "at most 16777216"));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_the_budgets_add_up_to_the_bound),
        cmocka_unit_test(test_the_default_is_an_eighth_of_the_machine),
        cmocka_unit_test(test_grammars_have_their_own),
        cmocka_unit_test(test_what_is_too_small_is_refused_with_the_numbers),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
