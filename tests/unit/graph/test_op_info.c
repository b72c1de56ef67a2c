/* Goal:   every op has a row, and what follows from the row is what the op does.
 * Method: all rows are walked; then single ops with operands that differ in their values, and
 *         operands that no value has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "graph/op_info.h"

static const struct tape_sizes sizes = {.rows_max = 8, .outputs_max = 4, .seqs_max = 2};
static const struct operand none = {.value = VALUE_NONE};

static uint32_t operand_count(const struct op_info *info) {
    uint32_t count = 0;
    while (count < OP_INFO_OPERANDS_MAX && info->operands[count].use != USE_NONE) count++;
    return count;
}

static void test_every_op_has_a_row_of_its_own(void **state) {
    (void)state;
    for (enum op_kind i = 0; i < OP_COUNT; i++) {
        assert_non_null(op_info(i)->name);
        for (enum op_kind j = 0; j < i; j++) assert_string_not_equal(op_name(i), op_name(j));
    }
}

static void test_operands_lie_inside_the_op_and_apart(void **state) {
    (void)state;
    for (enum op_kind kind = 0; kind < OP_COUNT; kind++) {
        const struct op_info *info = op_info(kind);
        uint32_t count = operand_count(info);
        assert_in_range(count, 1, OP_INFO_OPERANDS_MAX - 1); /* the end is marked */
        assert_false(info->operands[0].is_optional);         /* its columns say how wide a row is */
        for (uint32_t i = 0; i < count; i++) {
            assert_non_null(info->operands[i].name);
            assert_true(info->operands[i].offset >= offsetof(struct op, embed));
            assert_true(info->operands[i].offset + sizeof(struct operand) <= sizeof(struct op));
            for (uint32_t j = 0; j < i; j++)
                assert_int_not_equal(info->operands[i].offset, info->operands[j].offset);
        }
    }
}

/* Devices rely on it: workers go on to the next op without waiting only where a row is known to be
 * little work. */
static void test_only_ops_of_little_work_give_elements_of_a_row(void **state) {
    (void)state;
    struct op op = {.kind = OP_MATMUL};
    assert_int_equal(op_row_elements(&op), 0);
    op = (struct op){.kind = OP_ADD, .add = {.src = {0, 0, 64}, .dst = {1, 0, 64}}};
    assert_int_equal(op_row_elements(&op), 64);
    op = (struct op){.kind = OP_ACT, .act = {.segments = 3, .gate = {0, 0, 32}}};
    assert_int_equal(op_row_elements(&op), 96);
    op = (struct op){.kind = OP_KV_WRITE, .kv_write = {.k = {0, 0, 16}, .v = {1, 0, 16}}};
    assert_int_equal(op_row_elements(&op), 32);
}

static void test_a_sum_that_is_added_to_is_also_read(void **state) {
    (void)state;
    struct op op = {.kind = OP_MATMUL, .matmul = {.src = {3, 0, 64}, .dst = {4, 0, 64}}};
    struct op_access a = op_access(&op);
    assert_int_equal(a.read_count, 1);
    assert_int_equal(a.write_count, 1);
    assert_ptr_equal(a.writes[0], &op.matmul.dst);
    op.matmul.add = true;
    a = op_access(&op);
    assert_int_equal(a.read_count, 2);
    assert_ptr_equal(a.reads[0], &op.matmul.src);
    assert_ptr_equal(a.reads[1], &op.matmul.dst);
}

static void test_absent_operands_are_neither_read_nor_written(void **state) {
    (void)state;
    struct op op = {.kind = OP_ACT,
                    .act = {.gate = {1, 0, 32}, .up = none, .dst = none, .q8 = {2, 0, 32}}};
    struct op_access a = op_access(&op);
    assert_int_equal(a.read_count, 1);
    assert_int_equal(a.write_count, 1);
    assert_ptr_equal(a.writes[0], &op.act.q8);
}

static void test_results_are_found_where_an_op_can_quantise(void **state) {
    (void)state;
    struct op op = {.kind = OP_NORM};
    assert_ptr_equal(op_results(&op).f32, &op.norm.dst);
    assert_ptr_equal(op_results(&op).q8, &op.norm.q8);
    op.kind = OP_ADD;
    assert_null(op_results(&op).q8);
    op.kind = OP_QUANT;
    assert_null(op_results(&op).f32);
}

static void test_matrices_and_cache_are_named(void **state) {
    (void)state;
    static const struct weight w;
    const struct weight *found[OP_PARTS_MAX];
    struct op op = {.kind = OP_EXPERT_MATMUL,
                    .expert_matmul = {.parts = {{&w, NULL}, {&w, NULL}}, .part_count = 2}};
    assert_int_equal(op_matrices(&op, found), 2);
    assert_ptr_equal(found[1], &w);
    op = (struct op){.kind = OP_ATTENTION, .attention = {.layer = 1, .group = 5}};
    assert_int_equal(op_matrices(&op, found), 0);
    assert_int_equal(op_kv_group(&op), 5);
}

static void expect_refusal(const struct op *op, struct tape *t, const char *text) {
    struct err err = {0};
    tape_push(t, op);
    tape_set_output(t, 0);
    assert_int_equal(tape_finish(t, &sizes, &err), ST_BAD);
    if (!strstr(err.text, text)) fail_msg("'%s' does not say '%s'", err.text, text);
    tape_destroy(t);
}

static struct operand value(struct tape *t, enum value_type type, uint32_t cols) {
    return tape_all(t, tape_value(t, "v", ROWS_TOKENS, type, cols));
}

static void test_every_operand_must_be_a_value_of_its_type(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct op op = {.kind = OP_EXPERT_SUM, .expert_sum = {.used = 2}};
    op.expert_sum.weights = value(t, VALUE_F32, 2);
    op.expert_sum.dst = value(t, VALUE_F32, 64);
    op.expert_sum.src = (struct operand){.value = 9, .cols = 128};
    expect_refusal(&op, t, "(expert_sum, layer -1): src is 9, expected 2");

    assert_int_equal(tape_create(&t), ST_OK);
    op = (struct op){.kind = OP_ADD, .add = {value(t, VALUE_F32, 64), value(t, VALUE_I32, 64)}};
    expect_refusal(&op, t, "(add, layer -1): dst is 1, expected 0");

    assert_int_equal(tape_create(&t), ST_OK);
    op = (struct op){.kind = OP_KV_WRITE, .kv_write = {.k = value(t, VALUE_F32, 64)}};
    op.kv_write.v = value(t, VALUE_F32, 32);
    expect_refusal(&op, t, "(kv_write, layer -1): v is 32, expected 64");

    assert_int_equal(tape_create(&t), ST_OK);
    op = (struct op){.kind = OP_QUANT, .quant = {.src = value(t, VALUE_F32, 64), .q8 = none}};
    expect_refusal(&op, t, "count of results is 0, expected 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_row_of_its_own),
        cmocka_unit_test(test_operands_lie_inside_the_op_and_apart),
        cmocka_unit_test(test_only_ops_of_little_work_give_elements_of_a_row),
        cmocka_unit_test(test_a_sum_that_is_added_to_is_also_read),
        cmocka_unit_test(test_absent_operands_are_neither_read_nor_written),
        cmocka_unit_test(test_results_are_found_where_an_op_can_quantise),
        cmocka_unit_test(test_matrices_and_cache_are_named),
        cmocka_unit_test(test_every_operand_must_be_a_value_of_its_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
