/* Goal:   every knob can be set by name and shows what was set; what cannot be is refused with its
 *         range or the nearest name.
 * Method: the table itself is walked; sentences are looked at for the names and numbers. */
#include "unit/sched/world.h"

static const char *const required[] = {"kv_blocks",       "block_size",     "max_seqs",
                                       "max_step_tokens", "step_target_ms", "prefix_cache",
                                       "kv_type",         "preempt",        "threads"};

static enum status set(struct knobs *k, const char *name, const char *value, struct err *err) {
    return knobs_set(k, str_of(name), str_of(value), err);
}

static void refused(const char *name, const char *value, const char *part) {
    struct knobs k = knobs_default(), before = k;
    struct err err = {0};
    assert_int_equal(set(&k, name, value, &err), ST_BAD);
    assert_memory_equal(&k, &before, sizeof(k));
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_every_row_shows_its_default_and_takes_it_back(void **state) {
    (void)state;
    struct knobs k = knobs_default();
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        struct err err = {0};
        knobs_show(&k, i, &row);
        assert_string_equal(row.value, row.fallback);
        assert_true(row.range[0] != 0);
        assert_true(strlen(row.help) > 10);
        if (row.policy) assert_non_null(sched_policy_find(row.policy));
        if (set(&k, row.name, row.fallback, &err) != ST_OK) fail_msg("%s", err.text);
    }
}

static void test_the_public_knob_names_exist(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof(required) / sizeof(required[0]); n++) {
        bool found = false;
        struct knobs k = knobs_default();
        struct knob_row row;
        for (uint32_t i = 0; i < knobs_count(); i++) {
            knobs_show(&k, i, &row);
            found = found || strcmp(row.name, required[n]) == 0;
        }
        if (!found) fail_msg("no knob %s", required[n]);
    }
}

static void test_values_reach_their_fields(void **state) {
    (void)state;
    struct knobs k = knobs_default();
    struct err err = {0};
    assert_int_equal(knobs_set_pair(&k, STR("max_seqs=17"), &err), ST_OK);
    assert_int_equal(knobs_set_pair(&k, STR("step_target_ms=12.5"), &err), ST_OK);
    assert_int_equal(knobs_set_pair(&k, STR("prefix_cache=false"), &err), ST_OK);
    assert_int_equal(knobs_set_pair(&k, STR("kv_type=int8"), &err), ST_OK);
    assert_int_equal(knobs_set_pair(&k, STR("preempt=swap"), &err), ST_OK);
    assert_int_equal(k.max_seqs, 17);
    assert_true(k.step_target_ms == 12.5);
    assert_false(k.prefix_cache);
    assert_int_equal(k.kv_type, 2);
    assert_int_equal(knobs_set_pair(&k, STR("kv_type=fp8"), &err), ST_OK);
    assert_int_equal(k.kv_type, 3);
    assert_int_equal(knobs_set_pair(&k, STR("kv_type=int4"), &err), ST_OK);
    assert_int_equal(k.kv_type, 4);
    assert_int_equal(k.preempt, PREEMPT_SWAP);
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        knobs_show(&k, i, &row);
        if (strcmp(row.name, "preempt") == 0) assert_string_equal(row.value, "swap");
        if (strcmp(row.name, "step_target_ms") == 0) assert_string_equal(row.value, "12.5");
    }
}

static void test_what_cannot_be_set_is_refused_with_a_reason(void **state) {
    (void)state;
    refused("max_seq", "8", "'max_seqs'");
    refused("", "8", "unknown knob");
    refused("max_seqs", "0", "1 to 4096");
    refused("max_seqs", "4097", "1 to 4096");
    refused("max_seqs", "-1", "not a whole number");
    refused("max_seqs", "1.5", "not a whole number");
    refused("max_seqs", "", "not a whole number");
    refused("max_seqs", "99999999999999999999", "not a whole number");
    refused("block_size", "1025", "1 to 1024");
    refused("step_target_ms", "nan", "not a number");
    refused("step_target_ms", "soon", "not a number");
    refused("step_target_ms", "-1", "0 to 60000");
    refused("preempt", "both", "swap|recompute|auto");
    refused("kv_type", "5", "f16|f32|int8|fp8|int4");
    refused("prefix_cache", "maybe", "off|on");
    struct knobs k = knobs_default();
    struct err err = {0};
    assert_int_equal(knobs_set_pair(&k, STR("max_seqs"), &err), ST_BAD);
    assert_non_null(strstr(err.text, "NAME=VALUE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_shows_its_default_and_takes_it_back),
        cmocka_unit_test(test_the_public_knob_names_exist),
        cmocka_unit_test(test_values_reach_their_fields),
        cmocka_unit_test(test_what_cannot_be_set_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
