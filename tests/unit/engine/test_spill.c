/* Goal:   a block that leaves the cache comes back with the same bytes, in any other block, and
 *         touches nobody else's; a copied block equals the one it was copied from; and moves are
 *         done in the order of their list.
 * Method: KV memory with a number in every byte, of one to four tiles a block, all formats, two
 *         groups; steps of a CPU program that hold nothing but moves, with slots so few that they
 *         are ordinary memory and so many that they are a file's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/spill.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"

enum { LAYERS = 3, HEADS = 2, HEAD_DIM = 8, BLOCKS = 6, GROUPS = 2, FEW = 3, MANY = 1000 };

struct rig {
    struct device dev;
    struct tape *tape;
    struct device_program *program;
    struct step *step;
    struct kv_space kv[GROUPS];
    uint8_t *before[GROUPS]; /* what the blocks held at first */
};

static size_t space_bytes(const struct kv_space *s) { return s->block_count * s->block_bytes; }

static uint8_t *block_at(const struct kv_space *s, uint32_t block) {
    return (uint8_t *)(uintptr_t)s->base + block * s->block_bytes;
}

static void make_space(struct rig *r, enum kv_type type, uint32_t tiles, uint32_t g) {
    struct kv_space *s = &r->kv[g];
    *s = (struct kv_space){.shape = {.type = type,
                                     .layers = LAYERS + g,
                                     .heads = HEADS,
                                     .head_dim = HEAD_DIM,
                                     .block_tokens = tiles * r->dev.kv_block_tokens},
                           .block_count = BLOCKS};
    s->block_bytes = r->dev.kv_block_bytes(r->dev.self, &s->shape);
    assert_true(s->block_bytes > 0);
    s->base = r->dev.alloc(r->dev.self, space_bytes(s));
    assert_true(s->base);
    for (size_t i = 0; i < space_bytes(s); i++)
        block_at(s, 0)[i] = (uint8_t)(i * 131 + i / 257 + g);
    r->before[g] = malloc(space_bytes(s));
    assert_non_null(r->before[g]);
    memcpy(r->before[g], block_at(s, 0), space_bytes(s));
}

static void rig_open(struct rig *r, enum kv_type type, uint32_t tiles) {
    assert_int_equal(cpu_device_open("auto", 2, &r->dev, NULL), ST_OK);
    for (uint32_t g = 0; g < GROUPS; g++) make_space(r, type, tiles, g);
}

static void rig_close(struct rig *r) {
    for (uint32_t g = 0; g < GROUPS; g++) {
        r->dev.free(r->dev.self, r->kv[g].base, space_bytes(&r->kv[g]));
        free(r->before[g]);
    }
    r->dev.close(r->dev.self);
}

/* Any tape will do: steps have no rows. */
static void make_program(struct rig *r) {
    struct step_sizes sizes = {.rows_max = 1, .outputs_max = 1, .seqs_max = 1};
    assert_int_equal(tape_create(&r->tape), ST_OK);
    struct operand x = tape_all(r->tape, tape_value(r->tape, "x", ROWS_TOKENS, VALUE_F32, 4));
    struct operand y = tape_all(r->tape, tape_value(r->tape, "y", ROWS_TOKENS, VALUE_F32, 4));
    tape_push(r->tape, &(struct op){.kind = OP_ADD, .add = {x, y}});
    tape_set_output(r->tape, y.value);
    assert_int_equal(tape_finish(r->tape, &(struct tape_sizes){1, 1, 1}, NULL), ST_OK);
    struct program_options o = {
        .tape = r->tape, .kv = r->kv, .kv_group_count = GROUPS, .sizes = sizes};
    assert_int_equal(r->dev.program_create(r->dev.self, &o, &r->program, NULL), ST_OK);
    assert_int_equal(step_create(&r->step, &r->dev, &sizes, NULL), ST_OK);
}

static void drop_program(struct rig *r) {
    step_destroy(r->step, &r->dev);
    r->dev.program_destroy(r->dev.self, r->program);
    tape_destroy(r->tape);
}

static void run_moves(struct rig *r, const struct kv_move *moves, uint32_t count) {
    struct device_result result;
    step_clear(r->step);
    r->step->moves = moves;
    r->step->move_count = count;
    assert_int_equal(r->dev.submit(r->dev.self, r->program, r->step, NULL), ST_OK);
    assert_int_equal(r->dev.collect(r->dev.self, r->program, &result, NULL), ST_OK);
    assert_int_equal(result.output_count, 0);
}

/* Block b of each group must hold what block from[b] of the same group held at first. All is put
 * back afterwards. */
static void expect_blocks(struct rig *r, uint32_t from[GROUPS][BLOCKS]) {
    for (uint32_t g = 0; g < GROUPS; g++) {
        const struct kv_space *s = &r->kv[g];
        for (uint32_t b = 0; b < BLOCKS; b++)
            assert_memory_equal(block_at(s, b), r->before[g] + from[g][b] * s->block_bytes,
                                s->block_bytes);
        memcpy(block_at(s, 0), r->before[g], space_bytes(s));
    }
}

/* Out to slots, and in to another block by a later step. */
static void swap_out_and_in(struct rig *r, uint32_t group, uint32_t last_slot) {
    const struct kv_move out[] = {{KV_MOVE_OUT, group, 1, last_slot}, {KV_MOVE_OUT, group, 0, 0}};
    const struct kv_move in[] = {{KV_MOVE_IN, group, last_slot, BLOCKS - 1}};
    uint32_t want[GROUPS][BLOCKS] = {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}};
    const struct kv_space *s = &r->kv[group];
    run_moves(r, out, 2);
    assert_memory_equal(s->spill, r->before[group], s->block_bytes);
    memset(block_at(s, 1), 0xEE, s->block_bytes); /* another sequence has it meanwhile */
    run_moves(r, in, 1);
    memcpy(block_at(s, 1), r->before[group] + s->block_bytes, s->block_bytes);
    want[group][BLOCKS - 1] = 1;
    expect_blocks(r, want);
}

static void copy_block(struct rig *r, uint32_t group) {
    const struct kv_move copy = {KV_MOVE_COPY, group, 0, BLOCKS - 1};
    uint32_t want[GROUPS][BLOCKS] = {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}};
    run_moves(r, &copy, 1);
    want[group][BLOCKS - 1] = 0;
    expect_blocks(r, want);
}

/* In one step: two blocks change places through a slot, which holds a third one's at the end;
 * another group's moves between them. */
static void move_in_order(struct rig *r, uint32_t group, uint32_t slot) {
    uint32_t other = 1 - group;
    const struct kv_move moves[] = {
        {KV_MOVE_OUT, group, 2, slot}, {KV_MOVE_COPY, group, 4, 2},  {KV_MOVE_COPY, other, 5, 0},
        {KV_MOVE_OUT, other, 0, slot}, {KV_MOVE_IN, group, slot, 4}, {KV_MOVE_OUT, group, 3, slot},
        {KV_MOVE_IN, group, slot, 5},  {KV_MOVE_COPY, group, 5, 0},  {KV_MOVE_IN, other, slot, 1},
    };
    uint32_t want[GROUPS][BLOCKS];
    static const uint32_t mine[BLOCKS] = {3, 1, 4, 3, 2, 3}, others[BLOCKS] = {5, 5, 2, 3, 4, 5};
    memcpy(want[group], mine, sizeof(mine));
    memcpy(want[other], others, sizeof(others));
    run_moves(r, moves, sizeof(moves) / sizeof(moves[0]));
    expect_blocks(r, want);
}

static void check_moves(enum kv_type type, uint32_t tiles, uint32_t slots) {
    struct rig r;
    struct err err = {{0}};
    rig_open(&r, type, tiles);
    for (uint32_t g = 0; g < GROUPS; g++) {
        if (spill_open(&r.kv[g], &r.dev, slots, "/tmp", &err) != ST_OK) fail_msg("%s", err.text);
        assert_int_equal(r.kv[g].spill_slots, slots);
    }
    make_program(&r);
    for (uint32_t g = 0; g < GROUPS; g++) {
        swap_out_and_in(&r, g, slots - 1);
        copy_block(&r, g);
        move_in_order(&r, g, slots / 2);
    }
    drop_program(&r);
    for (uint32_t g = 0; g < GROUPS; g++) {
        spill_close(&r.kv[g], &r.dev);
        assert_null(r.kv[g].spill);
        assert_int_equal(r.kv[g].spill_slots, 0);
    }
    rig_close(&r);
}

static void test_swapped_in_blocks_have_the_bytes_that_were_swapped_out(void **state) {
    (void)state;
    for (uint32_t type = KV_F16; type < KV_TYPE_COUNT; type++)
        for (uint32_t tiles = 1; tiles <= 4; tiles++) {
            check_moves((enum kv_type)type, tiles, FEW);
            check_moves((enum kv_type)type, tiles, MANY);
        }
}

static void test_a_folder_that_cannot_be_used_is_named(void **state) {
    (void)state;
    struct rig r;
    struct err err = {0};
    rig_open(&r, KV_F16, 1);
    assert_int_equal(spill_open(&r.kv[0], &r.dev, FEW, "/no/such/folder", &err), ST_CREATE);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    assert_null(r.kv[0].spill);
    rig_close(&r);
}

static void test_no_slots_need_no_folder(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, KV_F16, 1);
    assert_int_equal(spill_open(&r.kv[0], &r.dev, 0, "/no/such/folder", NULL), ST_OK);
    assert_null(r.kv[0].spill);
    spill_close(&r.kv[0], &r.dev);
    rig_close(&r);
}

static void test_more_slots_than_can_be_addressed_are_refused(void **state) {
    (void)state;
    struct device dev;
    struct err err = {0};
    struct kv_space space = {.block_bytes = SIZE_MAX / 2};
    assert_int_equal(cpu_device_open("ref", 1, &dev, NULL), ST_OK);
    assert_int_equal(spill_open(&space, &dev, 3, "/tmp", &err), ST_BAD);
    assert_non_null(strstr(err.text, "spill_blocks is 3"));
    dev.close(dev.self);
}

static void test_nothing_is_left_in_the_folder(void **state) {
    (void)state;
    for (int many = 0; many < 2; many++) {
        char dir[] = "/tmp/test-spill-XXXXXX";
        assert_non_null(mkdtemp(dir));
        struct rig r;
        rig_open(&r, KV_F32, 1);
        assert_int_equal(spill_open(&r.kv[0], &r.dev, many ? MANY : FEW, dir, NULL), ST_OK);
        assert_int_equal(rmdir(dir), 0); /* empty while it is in use */
        memset(r.kv[0].spill, 1, r.kv[0].block_bytes);
        spill_close(&r.kv[0], &r.dev);
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swapped_in_blocks_have_the_bytes_that_were_swapped_out),
        cmocka_unit_test(test_a_folder_that_cannot_be_used_is_named),
        cmocka_unit_test(test_no_slots_need_no_folder),
        cmocka_unit_test(test_more_slots_than_can_be_addressed_are_refused),
        cmocka_unit_test(test_nothing_is_left_in_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
