/* Goal:   shapes are checked, neighbours are fused only where that is safe, and no two values
 *         that live at the same time share memory.
 * Method: small tapes built by hand; then seeded random tapes, their plans checked pair by pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "graph/tape.h"

static const struct tape_sizes sizes = {.rows_max = 8, .outputs_max = 4, .seqs_max = 2};

static const struct weight square = {
    .name = {"w", 1}, .type = DTYPE_Q8_0, .rows = 64, .cols = 64, .experts = 1, .bytes = 64 * 68};

static struct operand value(struct tape *t, enum value_type type, uint32_t cols) {
    return tape_all(t, tape_value(t, "v", ROWS_TOKENS, type, cols));
}

static void push_norm(struct tape *t, struct operand src, struct operand dst) {
    static const float floats[64];
    static const struct weight weight = {.name = {"norm", 4},
                                         .use = WEIGHT_VECTOR,
                                         .type = DTYPE_F32,
                                         .rows = 1,
                                         .cols = 64,
                                         .experts = 1,
                                         .data = floats,
                                         .bytes = sizeof(floats)};
    tape_push(t, &(struct op){.kind = OP_NORM,
                              .norm = {.kind = NORM_RMS,
                                       .group = src.cols,
                                       .weight = &weight,
                                       .src = src,
                                       .dst = dst,
                                       .q8 = operand_none}});
}

static void push_product(struct tape *t, struct operand q8, struct operand dst) {
    tape_push(t,
              &(struct op){
                  .kind = OP_MATMUL,
                  .matmul = {.parts = {{&square, NULL}}, .part_count = 1, .src = q8, .dst = dst}});
}

static void push_quant(struct tape *t, struct operand src, struct operand q8) {
    tape_push(t, &(struct op){.kind = OP_QUANT, .quant = {.src = src, .q8 = q8}});
}

static void push_add(struct tape *t, struct operand src, struct operand dst) {
    tape_push(t, &(struct op){.kind = OP_ADD, .add = {.src = src, .dst = dst}});
}

static void test_norm_quant_product_and_add_become_two_ops(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = value(t, VALUE_F32, 64), n = value(t, VALUE_F32, 64);
    struct operand q = value(t, VALUE_Q8, 64), y = value(t, VALUE_F32, 64);
    push_norm(t, x, n);
    push_quant(t, n, q);
    push_product(t, q, y);
    push_add(t, y, x);
    tape_set_output(t, x.value);
    assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
    assert_int_equal(tape_op_count(t), 2);
    assert_int_equal(tape_op(t, 0)->norm.dst.value, VALUE_NONE);
    assert_int_equal(tape_op(t, 0)->norm.q8.value, q.value);
    assert_true(tape_op(t, 1)->matmul.add);
    assert_int_equal(tape_op(t, 1)->matmul.dst.value, x.value);
    tape_destroy(t);
}

static void test_floats_are_kept_while_another_op_reads_them(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = value(t, VALUE_F32, 64), n = value(t, VALUE_F32, 64);
    struct operand q = value(t, VALUE_Q8, 64), y = value(t, VALUE_F32, 64);
    push_norm(t, x, n);
    push_quant(t, n, q);
    push_product(t, q, y);
    push_add(t, n, x);
    push_add(t, y, x);
    push_add(t, y, n);
    tape_set_output(t, n.value);
    assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
    assert_int_equal(tape_op_count(t), 5);
    assert_int_equal(tape_op(t, 0)->norm.dst.value, n.value);
    assert_false(tape_op(t, 1)->matmul.add);
    tape_destroy(t);
}

/* The product cannot go straight into the residual: its own result is wanted once more. */
/* What the engine reads after a run: its floats are made, and nothing takes their place. */
static void test_a_kept_value_lives_to_the_end(void **state) {
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        struct tape *t;
        struct operand v[5];
        assert_int_equal(tape_create(&t), ST_OK);
        for (int i = 0; i < 5; i++)
            v[i] = tape_all(t, tape_value(t, "v", ROWS_OUTPUTS, i == 2 ? VALUE_Q8 : VALUE_F32, 64));
        push_norm(t, v[0], v[1]);
        push_quant(t, v[1], v[2]);
        push_product(t, v[2], v[3]);
        push_norm(t, v[3], v[4]);
        tape_set_output(t, v[4].value);
        assert_int_equal(tape_kept(t), VALUE_NONE);
        if (keeps) tape_set_kept(t, v[1].value);
        assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
        assert_int_equal(tape_op_count(t), 3);
        assert_int_equal(tape_op(t, 0)->norm.dst.value, keeps ? v[1].value : VALUE_NONE);
        const struct tape_value *kept = tape_value_at(t, v[1].value);
        for (int i = 0; i < 5 && keeps; i++) {
            const struct tape_value *other = tape_value_at(t, v[i].value);
            bool is_apart = kept->offset + 4 * kept->row_bytes <= other->offset ||
                            other->offset + 4 * other->row_bytes <= kept->offset;
            assert_true(i == 1 || i == 0 || is_apart);
        }
        tape_destroy(t);
    }
}

/* A result has one row for each output. */
static void test_only_floats_of_outputs_are_kept(void **state) {
    (void)state;
    static const struct {
        enum rows_kind rows;
        enum value_type type;
        enum status st;
    } cases[] = {{ROWS_OUTPUTS, VALUE_F32, ST_OK},
                 {ROWS_TOKENS, VALUE_F32, ST_BAD},
                 {ROWS_OUTPUTS, VALUE_Q8, ST_BAD}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tape *t;
        struct err err = {{0}};
        assert_int_equal(tape_create(&t), ST_OK);
        struct operand x = tape_all(t, tape_value(t, "x", ROWS_OUTPUTS, VALUE_F32, 64));
        value_id other = tape_value(t, "other", cases[i].rows, cases[i].type, 64);
        push_norm(t, x, x);
        tape_set_output(t, x.value);
        tape_set_kept(t, other);
        assert_int_equal(tape_finish(t, &sizes, &err), cases[i].st);
        if (cases[i].st != ST_OK) assert_non_null(strstr(err.text, "the value that is kept"));
        tape_destroy(t);
    }
}

static void test_a_product_that_is_read_again_is_not_fused(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = value(t, VALUE_F32, 64), z = value(t, VALUE_F32, 64);
    struct operand q = value(t, VALUE_Q8, 64), y = value(t, VALUE_F32, 64);
    push_quant(t, x, q);
    push_product(t, q, y);
    push_add(t, y, x);
    push_add(t, y, z);
    tape_set_output(t, z.value);
    assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
    assert_int_equal(tape_op_count(t), 4);
    assert_false(tape_op(t, 1)->matmul.add);
    assert_int_equal(tape_op(t, 1)->matmul.dst.value, y.value);
    tape_destroy(t);
}

/* Adding in place would change the rows that the product is still reading. */
static void test_a_product_of_the_residual_itself_is_not_fused(void **state) {
    (void)state;
    static const struct weight plain = {.name = {"p", 1},
                                        .type = DTYPE_F32,
                                        .rows = 64,
                                        .cols = 64,
                                        .experts = 1,
                                        .bytes = 64 * 64 * 4};
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = value(t, VALUE_F32, 64), y = value(t, VALUE_F32, 64);
    tape_push(t, &(struct op){
                     .kind = OP_MATMUL,
                     .matmul = {.parts = {{&plain, NULL}}, .part_count = 1, .src = x, .dst = y}});
    push_add(t, y, x);
    tape_set_output(t, x.value);
    assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
    assert_int_equal(tape_op_count(t), 2);
    assert_false(tape_op(t, 0)->matmul.add);
    tape_destroy(t);
}

static void expect_refusal(struct tape *t, const char *word) {
    struct err err = {0};
    assert_int_equal(tape_finish(t, &sizes, &err), ST_BAD);
    if (!strstr(err.text, word)) fail_msg("'%s' does not say '%s'", err.text, word);
    tape_destroy(t);
}

static void test_wrong_shapes_are_named(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand q = value(t, VALUE_Q8, 32), y = value(t, VALUE_F32, 64);
    push_product(t, q, y);
    tape_set_output(t, y.value);
    expect_refusal(t, "columns of the weight is 64, expected 32");

    assert_int_equal(tape_create(&t), ST_OK);
    struct operand f = value(t, VALUE_F32, 64);
    y = value(t, VALUE_F32, 64);
    push_product(t, f, y);
    tape_set_output(t, y.value);
    expect_refusal(t, "src");

    assert_int_equal(tape_create(&t), ST_OK);
    expect_refusal(t, "no output");
}

/* Devices share the rows of an act out as those of its source. */
static void test_an_act_has_the_rows_of_its_source(void **state) {
    (void)state;
    struct tape *t;
    const struct operand none = {.value = VALUE_NONE};
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand gate = value(t, VALUE_F32, 64);
    struct operand dst = tape_all(t, tape_value(t, "d", ROWS_OUTPUTS, VALUE_F32, 64));
    tape_push(t, &(struct op){.kind = OP_ACT,
                              .act = {.kind = ACT_SILU,
                                      .segments = 1,
                                      .gate = gate,
                                      .up = none,
                                      .dst = dst,
                                      .q8 = none}});
    tape_set_output(t, dst.value);
    expect_refusal(t, "rows of dst");
}

/* So have the others, but the two that pick rows or join them; and some ask the step about their
 * rows. */
static void test_an_op_has_the_same_rows_throughout(void **state) {
    (void)state;
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand some = tape_all(t, tape_value(t, "s", ROWS_OUTPUTS, VALUE_F32, 64));
    struct operand all = value(t, VALUE_F32, 64);
    tape_push(t, &(struct op){.kind = OP_ADD, .add = {.src = all, .dst = some}});
    tape_set_output(t, some.value);
    expect_refusal(t, "rows of");

    assert_int_equal(tape_create(&t), ST_OK);
    some = tape_all(t, tape_value(t, "s", ROWS_OUTPUTS, VALUE_F32, 64));
    tape_push(t, &(struct op){.kind = OP_ROPE,
                              .rope = {.heads = 1, .head_dim = 64, .rot_dims = 64, .x = some}});
    tape_set_output(t, some.value);
    expect_refusal(t, "rows of");
}

static bool lives_meet(const struct tape_value *a, const struct tape_value *b) {
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

static void check_plan(const struct tape *t) {
    for (uint32_t i = 0; i < tape_value_count(t); i++)
        for (uint32_t j = i + 1; j < tape_value_count(t); j++) {
            const struct tape_value *a = tape_value_at(t, (value_id)i);
            const struct tape_value *b = tape_value_at(t, (value_id)j);
            if (a->first_op == UINT32_MAX || b->first_op == UINT32_MAX) continue;
            bool apart = a->offset + a->row_bytes * sizes.rows_max <= b->offset ||
                         b->offset + b->row_bytes * sizes.rows_max <= a->offset;
            assert_true(apart || !lives_meet(a, b));
            assert_int_equal(a->offset % 64, 0);
        }
}

static void test_random_plans_never_overlap(void **state) {
    (void)state;
    struct rng rng = {.seed = 3};
    for (int round = 0; round < 200; round++) {
        enum { VALUES = 30, OPS = 60 };
        struct tape *t;
        struct operand v[VALUES];
        assert_int_equal(tape_create(&t), ST_OK);
        for (int i = 0; i < VALUES; i++) v[i] = value(t, VALUE_F32, 64);
        for (int i = 0; i < OPS; i++) {
            struct operand a = v[rng_below(&rng, VALUES)], b = v[rng_below(&rng, VALUES)];
            if (a.value == b.value) continue;
            if (rng_below(&rng, 2))
                push_norm(t, a, b);
            else
                push_add(t, a, b);
        }
        tape_set_output(t, v[0].value);
        assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
        check_plan(t);
        tape_destroy(t);
    }
}

static void test_dump_and_drawing_name_every_op(void **state) {
    (void)state;
    struct tape *t;
    struct buf out;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = value(t, VALUE_F32, 64), q = value(t, VALUE_Q8, 64);
    for (int l = 0; l < 3; l++) {
        tape_set_layer(t, l);
        push_quant(t, x, q);
        push_product(t, q, x);
    }
    tape_set_output(t, x.value);
    assert_int_equal(tape_finish(t, &sizes, NULL), ST_OK);
    struct op_cost cost = tape_op_cost(t, 1, 4, 100);
    assert_int_equal(cost.flops, 2 * 4 * 64 * 64);
    assert_int_equal(cost.bytes, 64 * 68);
    buf_init(&out, 1 << 20);
    tape_dump(t, 1, 16, &out);
    assert_non_null(strstr(buf_text(&out), "matmul"));
    buf_clear(&out);
    tape_svg(t, "a < b", 1, 16, &out);
    assert_non_null(strstr(buf_text(&out), "layers 0 to 2"));
    assert_non_null(strstr(buf_text(&out), "a &lt; b"));
    buf_deinit(&out);
    tape_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_quant_product_and_add_become_two_ops),
        cmocka_unit_test(test_floats_are_kept_while_another_op_reads_them),
        cmocka_unit_test(test_a_kept_value_lives_to_the_end),
        cmocka_unit_test(test_only_floats_of_outputs_are_kept),
        cmocka_unit_test(test_a_product_that_is_read_again_is_not_fused),
        cmocka_unit_test(test_a_product_of_the_residual_itself_is_not_fused),
        cmocka_unit_test(test_wrong_shapes_are_named),
        cmocka_unit_test(test_an_act_has_the_rows_of_its_source),
        cmocka_unit_test(test_an_op_has_the_same_rows_throughout),
        cmocka_unit_test(test_random_plans_never_overlap),
        cmocka_unit_test(test_dump_and_drawing_name_every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
