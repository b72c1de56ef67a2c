/* Goal:   no two tiles of a KV space share a byte, together they fill it, and all that a block
 *         holds lies side by side, whatever the type, the shape and the tiles of a block; and the
 *         device's answers about blocks are those of the layout.
 * Method: every tile of small spaces marks its bytes; each byte is marked once, by its block.
 *         Tokens of a sequence are followed through a table of blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "graph/device.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_tiles.h"

enum { SPACE_BYTES_MAX = 1 << 18, BLOCKS = 2, UNMARKED = 0xFF };

static const enum kv_type types[] = {KV_F16, KV_F32, KV_I8, KV_F8, KV_I4};
static _Alignas(64) uint8_t space_bytes[SPACE_BYTES_MAX];

/* A block's number goes into every byte of K or V of a tile, which nobody has marked before. */
static void mark(const struct kv_tiles *s, uint8_t *first, uint32_t block) {
    size_t bytes = kv_side_bytes(s->type, s->head_dim);
    assert_true(first >= s->base);
    assert_true(first + bytes <= s->base + s->tile_count * kv_tile_bytes(s));
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(first[i], UNMARKED);
        first[i] = (uint8_t)block;
    }
}

static void check_space(const struct kv_space *space) {
    struct kv_tiles s = kv_tiles_of(space);
    uint32_t blocks[BLOCKS] = {1, 0};
    assert_int_equal(s.tile_count, BLOCKS * s.tiles_per_block);
    assert_ptr_equal(s.base, space_bytes);
    assert_true(space->block_bytes * BLOCKS <= SPACE_BYTES_MAX);
    memset(space_bytes, UNMARKED, sizeof(space_bytes));
    for (uint32_t layer = 0; layer < s.layers; layer++)
        for (uint32_t tile = 0; tile < s.tile_count; tile++)
            for (uint32_t head = 0; head < s.heads; head++) {
                uint32_t block = blocks[tile / s.tiles_per_block];
                uint8_t *key = kv_tile(&s, layer, kv_tile_index(&s, blocks, tile), head);
                mark(&s, key, block);
                mark(&s, key + kv_side_bytes(s.type, s.head_dim), block);
            }
    for (size_t i = 0; i < space->block_bytes * BLOCKS; i++)
        assert_int_equal(space_bytes[i], i / space->block_bytes);
}

static void test_tiles_fill_the_space_block_by_block(void **state) {
    (void)state;
    struct device dev;
    assert_int_equal(cpu_device_open("ref", 1, &dev, NULL), ST_OK);
    for (uint32_t i = 0; i < KV_TYPE_COUNT * 3 * 3 * 3 * 3; i++) {
        struct kv_space s = {.shape = {.type = types[i % KV_TYPE_COUNT],
                                       .layers = 1 + i / 5 % 3,
                                       .heads = 1 + i / 15 % 3,
                                       .head_dim = 4 + 8 * (i / 45 % 3),
                                       .block_tokens = KV_TILE_TOKENS * (1 + i / 135)},
                             .block_count = BLOCKS,
                             .base = (device_addr)(uintptr_t)space_bytes};
        s.block_bytes = dev.kv_block_bytes(dev.self, &s.shape);
        check_space(&s);
    }
    dev.close(dev.self);
}

static void test_scales_stand_behind_the_bytes_of_their_tile(void **state) {
    (void)state;
    assert_int_equal(kv_scales_offset(KV_I8, 20) + KV_TILE_TOKENS * sizeof(uint16_t),
                     kv_side_bytes(KV_I8, 20));
    assert_int_equal(kv_side_bytes(KV_F16, 20), KV_TILE_TOKENS * 20 * 2);
    assert_int_equal(kv_side_bytes(KV_F32, 20), KV_TILE_TOKENS * 20 * 4);
    assert_int_equal(kv_side_bytes(KV_F8, 20), KV_TILE_TOKENS * 20);
    assert_int_equal(kv_side_bytes(KV_I4, 20),
                     KV_TILE_TOKENS * (16 + 3)); /* as 32 dimensions, 2 groups */
    assert_true((double)kv_side_bytes(KV_I4, 64) <= 0.29 * (double)kv_side_bytes(KV_F16, 64));
    assert_true((double)kv_side_bytes(KV_I4, 128) <= 0.27 * (double)kv_side_bytes(KV_F16, 128));
}

/* A block that is not whole tiles has no bytes: the device has no such format. */
static void test_blocks_that_are_not_whole_tiles_have_no_bytes(void **state) {
    (void)state;
    struct device dev;
    struct kv_shape shape = {.type = KV_F16, .layers = 3, .heads = 2, .head_dim = 8};
    assert_int_equal(cpu_device_open("ref", 1, &dev, NULL), ST_OK);
    assert_int_equal(dev.kv_block_tokens, KV_TILE_TOKENS);
    for (uint32_t tokens = 0; tokens <= 4 * KV_TILE_TOKENS; tokens++) {
        shape.block_tokens = tokens;
        size_t want = tokens % KV_TILE_TOKENS ? 0 : (size_t)tokens * 3 * 2 * 2 * 8 * 2;
        assert_int_equal(dev.kv_block_bytes(dev.self, &shape), want);
    }
    dev.close(dev.self);
}

static void test_a_tile_is_found_through_its_block(void **state) {
    (void)state;
    static const uint32_t blocks[] = {7, 2, 5};
    static const uint32_t want[][6] = {{7, 2, 5}, {14, 15, 4, 5, 10, 11}, {21, 22, 23, 6, 7, 8}};
    for (uint32_t tiles = 1; tiles <= 3; tiles++) {
        struct kv_tiles s = {.tiles_per_block = tiles};
        for (uint32_t t = 0; t < (tiles == 1 ? 3 : 6); t++)
            assert_int_equal(kv_tile_index(&s, blocks, t), want[tiles - 1][t]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_fill_the_space_block_by_block),
        cmocka_unit_test(test_scales_stand_behind_the_bytes_of_their_tile),
        cmocka_unit_test(test_blocks_that_are_not_whole_tiles_have_no_bytes),
        cmocka_unit_test(test_a_tile_is_found_through_its_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
