/* Goal:   the slots of a program hold the tokens that were sampled, and nothing else: one that was
 *         never filled, or whose row failed, makes the row that waits for its token fail.
 * Method: a tape that looks up rows of a table, so that the table's rows are the logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "graph/tape.h"
#include "kernels/cpu/cpu.h"

enum { VOCAB = 64, SLOTS = 3, BAD_TOKEN = 7 };

static float table_data[VOCAB * VOCAB];

struct rig {
    struct device dev;
    struct tape *tape;
    struct weight table;
    struct device_program *program;
    struct step *step;
};

/* After token t comes t + 1; after BAD_TOKEN come numbers that are none. */
static void fill_table(void) {
    for (int t = 0; t < VOCAB; t++)
        for (int i = 0; i < VOCAB; i++)
            table_data[t * VOCAB + i] = t == BAD_TOKEN ? NAN : i == (t + 1) % VOCAB ? 9.0f : 0.5f;
}

static void rig_open(struct rig *r) {
    struct err err = {{0}};
    fill_table();
    assert_int_equal(cpu_device_open("auto", 2, &r->dev, &err), ST_OK);
    r->table = (struct weight){.name = STR("table"),
                               .use = WEIGHT_TABLE,
                               .type = DTYPE_F32,
                               .rows = VOCAB,
                               .cols = VOCAB,
                               .experts = 1,
                               .data = table_data,
                               .bytes = sizeof(table_data)};
    assert_int_equal(tape_create(&r->tape), ST_OK);
    struct tape *t = r->tape;
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, VOCAB));
    struct operand out = tape_all(t, tape_value(t, "out", ROWS_OUTPUTS, VALUE_F32, VOCAB));
    tape_push(
        t, &(struct op){.kind = OP_EMBED, .embed = {&r->table, EMBED_TOKEN, .scale = 1, .dst = x}});
    tape_push(t, &(struct op){.kind = OP_GATHER, .gather = {.src = x, .dst = out}});
    tape_set_output(t, out.value);
    assert_int_equal(tape_finish(t, &(struct tape_sizes){1, 1, 1}, &err), ST_OK);
    struct program_options o = {
        .tape = t, .sizes = {.rows_max = 1, .outputs_max = 1, .seqs_max = 1}, .slot_count = SLOTS};
    assert_int_equal(r->dev.program_create(r->dev.self, &o, &r->program, &err), ST_OK);
    assert_int_equal(step_create(&r->step, &r->dev, &o.sizes, &err), ST_OK);
}

static void rig_close(struct rig *r) {
    step_destroy(r->step, &r->dev);
    r->dev.program_destroy(r->dev.self, r->program);
    tape_destroy(r->tape);
    r->dev.close(r->dev.self);
}

/* One row, drawn greedily into `slot`; `token` -1: the row takes what the slot holds. */
static struct row_output run(struct rig *r, int32_t token, uint32_t slot, bool is_pending) {
    struct err err = {{0}};
    struct device_result result;
    struct step *s = r->step;
    step_clear(s);
    s->row_count = s->output_count = s->seq_count = 1;
    s->token[0] = token >= 0 ? token : step_token_at(slot);
    s->pos[0] = 0;
    s->seq[0] = s->output_row[0] = 0;
    s->seqs[0] = (struct step_seq){0, 1};
    s->samplings[0] = (struct sampling){.kind = SAMPLING_DRAW,
                                        .slot = slot,
                                        .pending_slot = slot,
                                        .is_pending = is_pending,
                                        .top_p = 1,
                                        .typical_p = 1,
                                        .fresh_scale = 1,
                                        .deny_first = SAMPLING_NONE};
    assert_int_equal(r->dev.submit(r->dev.self, r->program, s, &err), ST_OK);
    assert_int_equal(r->dev.collect(r->dev.self, r->program, &result, &err), ST_OK);
    assert_int_equal(result.output_count, 1);
    return result.outputs[0];
}

static void test_each_slot_keeps_its_own_token(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(run(&r, 10 + 20 * (int32_t)slot, slot, false).sample.chosen.token,
                         11 + 20 * slot);
    for (uint32_t slot = SLOTS; slot-- > 0;)
        for (uint32_t n = 0; n < 3; n++)
            assert_int_equal(run(&r, -1, slot, true).sample.chosen.token, 12 + 20 * slot + n);
    rig_close(&r);
}

static void test_a_slot_that_was_never_filled_has_no_token(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r);
    assert_true(run(&r, -1, 1, true).failed);
    assert_false(run(&r, 3, 1, false).failed);
    assert_int_equal(run(&r, -1, 1, true).sample.chosen.token, 5);
    rig_close(&r);
}

static void test_a_failed_row_empties_its_slot(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r);
    assert_int_equal(run(&r, 2, 0, false).sample.chosen.token, 3);
    assert_true(run(&r, BAD_TOKEN, 0, false).failed);
    assert_true(run(&r, -1, 0, true).failed);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_slot_keeps_its_own_token),
        cmocka_unit_test(test_a_slot_that_was_never_filled_has_no_token),
        cmocka_unit_test(test_a_failed_row_empties_its_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
