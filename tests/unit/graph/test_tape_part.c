/* Goal:   a part of a tape has the ops of that part, reads what came before through the op `input`
 *         and hands on what is read later; a value that is not handed on is named.
 * Method: a tape of a norm, a product and an addition in place, cut before the product. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "graph/tape_part.h"

enum { COLS = 64, NORM = 1, PRODUCT = 2, OPS = 4 };

static const struct tape_sizes sizes = {.rows_max = 8, .outputs_max = 8, .seqs_max = 1};
static const float floats[COLS * COLS];
static const struct weight square = {
    .name = {"w", 1}, .type = DTYPE_F32, .rows = COLS, .cols = COLS, .experts = 1, .data = floats};

struct whole {
    struct tape *tape;
    struct tape *part; /* what `copy` has made */
    struct err err;
    struct weight scale;
    struct operand x, norm, y;
};

static struct operand value(struct tape *t, const char *name) {
    return tape_all(t, tape_value(t, name, ROWS_TOKENS, VALUE_F32, COLS));
}

/* x = input; norm = rms(x); y = w * norm; x += y */
static int make_whole(void **state) {
    static struct whole whole;
    struct whole *w = *state = &whole;
    whole = (struct whole){0};
    assert_int_equal(tape_create(&w->tape), ST_OK);
    struct tape *t = w->tape;
    w->scale = weight_vector(STR("scale"), floats, COLS);
    w->x = value(t, "x");
    w->norm = value(t, "norm");
    w->y = value(t, "y");
    tape_push(t, &(struct op){.kind = OP_INPUT, .input = {.dst = w->x}});
    tape_set_layer(t, 7);
    tape_push(t, &(struct op){.kind = OP_NORM,
                              .norm = {.kind = NORM_RMS,
                                       .group = COLS,
                                       .weight = &w->scale,
                                       .src = w->x,
                                       .dst = w->norm,
                                       .q8 = operand_none}});
    tape_push(
        t,
        &(struct op){
            .kind = OP_MATMUL,
            .matmul = {.parts = {{&square, NULL}}, .part_count = 1, .src = w->norm, .dst = w->y}});
    tape_push(t, &(struct op){.kind = OP_ADD, .add = {.src = w->y, .dst = w->x}});
    return 0;
}

static int destroy_whole(void **state) {
    struct whole *w = *state;
    tape_destroy(w->part);
    tape_destroy(w->tape);
    return 0;
}

static struct tape *copy(struct whole *w, const struct tape_part *part, enum status expected) {
    assert_int_equal(tape_create(&w->part), ST_OK);
    assert_int_equal(tape_copy_part(part, w->part, &w->err), expected);
    if (expected == ST_OK) assert_int_equal(tape_finish(w->part, &sizes, &w->err), ST_OK);
    return w->part;
}

static void assert_operand(struct operand got, value_id value, uint32_t col) {
    assert_int_equal(got.value, value);
    assert_int_equal(got.col, col);
    assert_int_equal(got.cols, COLS);
}

static void test_the_first_part_hands_on_what_is_read_later(void **state) {
    struct whole *w = *state;
    const struct tape_part part = {.whole = w->tape,
                                   .first = NORM,
                                   .end = PRODUCT,
                                   .in = {w->x.value},
                                   .in_count = 1,
                                   .out = {w->norm.value, w->x.value},
                                   .out_count = 2};
    struct tape *t = copy(w, &part, ST_OK);
    assert_int_equal(tape_op_count(t), 4); /* input, norm, two gathers */
    value_id input = tape_op(t, 0)->input.dst.value;
    assert_operand(tape_op(t, 0)->input.dst, input, 0);
    assert_int_equal(tape_op(t, 1)->kind, OP_NORM);
    assert_int_equal(tape_op(t, 1)->layer, 7);
    assert_operand(tape_op(t, 1)->norm.src, input, 0);
    assert_operand(tape_op(t, 2)->gather.src, tape_op(t, 1)->norm.dst.value, 0);
    assert_operand(tape_op(t, 3)->gather.src, input, 0);
    assert_int_equal(tape_op(t, 2)->gather.dst.value, tape_output(t));
    assert_int_equal(tape_op(t, 3)->gather.dst.value, tape_kept(t));
}

static void test_values_come_in_side_by_side_and_are_changed_in_place(void **state) {
    struct whole *w = *state;
    const struct tape_part part = {.whole = w->tape,
                                   .first = PRODUCT,
                                   .end = OPS,
                                   .in = {w->norm.value, w->x.value},
                                   .in_count = 2,
                                   .out = {w->x.value},
                                   .out_count = 1};
    struct tape *t = copy(w, &part, ST_OK);
    value_id input = tape_op(t, 0)->input.dst.value;
    assert_int_equal(tape_value_at(t, input)->cols, 2 * COLS);
    assert_operand(tape_op(t, 1)->matmul.src, input, 0);
    assert_int_equal(tape_op(t, 2)->kind, OP_ADD);
    assert_operand(tape_op(t, 2)->add.dst, input, COLS);
    assert_operand(tape_op(t, 3)->gather.src, input, COLS);
    assert_int_equal(tape_kept(t), VALUE_NONE);
}

static void test_a_value_that_is_not_handed_on_is_named(void **state) {
    struct whole *w = *state;
    const struct tape_part part = {.whole = w->tape,
                                   .first = PRODUCT,
                                   .end = OPS,
                                   .in = {w->x.value},
                                   .in_count = 1,
                                   .out = {w->x.value},
                                   .out_count = 1};
    copy(w, &part, ST_BAD);
    assert_non_null(strstr(w->err.text, "op 2 (matmul, layer 7) reads norm"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_first_part_hands_on_what_is_read_later, make_whole,
                                        destroy_whole),
        cmocka_unit_test_setup_teardown(test_values_come_in_side_by_side_and_are_changed_in_place,
                                        make_whole, destroy_whole),
        cmocka_unit_test_setup_teardown(test_a_value_that_is_not_handed_on_is_named, make_whole,
                                        destroy_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
