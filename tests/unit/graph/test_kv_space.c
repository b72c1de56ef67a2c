/* Goal:   no two tiles of a KV space share a byte, together they fill it, and all that a block
 *         holds lies side by side, whatever the type and the shape.
 * Method: every tile of small spaces marks its bytes; each byte is marked once, by its block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "graph/kv_space.h"

enum { SPACE_BYTES_MAX = 1 << 16, UNMARKED = 0xFF };

static uint8_t space_bytes[SPACE_BYTES_MAX];

/* A block's number goes into every byte of a tile, which nobody has marked before. */
static void mark(const struct kv_space *s, size_t first, uint32_t block) {
    assert_true(first + kv_tile_bytes(s) <= kv_space_bytes(s));
    for (size_t i = first; i < first + kv_tile_bytes(s); i++) {
        assert_int_equal(s->base[i], UNMARKED);
        s->base[i] = (uint8_t)block;
    }
}

static void check_space(struct kv_space *s) {
    s->base = space_bytes;
    assert_true(kv_space_bytes(s) <= SPACE_BYTES_MAX);
    memset(space_bytes, UNMARKED, sizeof(space_bytes));
    for (uint32_t layer = 0; layer < s->layers; layer++)
        for (uint32_t block = 0; block < s->block_count; block++)
            for (uint32_t head = 0; head < s->heads; head++) {
                size_t key = (size_t)(kv_tile(s, layer, block, head) - s->base);
                mark(s, key, block);
                mark(s, key + kv_tile_bytes(s), block);
            }
    for (size_t i = 0; i < kv_space_bytes(s); i++)
        assert_int_equal(s->base[i], i / kv_block_bytes(s));
}

static void test_tiles_fill_the_space_block_by_block(void **state) {
    (void)state;
    static const enum kv_type types[] = {KV_F16, KV_F32, KV_I8};
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t layers = 1; layers <= 3; layers++)
            for (uint32_t heads = 1; heads <= 3; heads++)
                for (uint32_t head_dim = 4; head_dim <= 20; head_dim += 8) {
                    struct kv_space s = {types[t], layers, heads, head_dim, 2, NULL};
                    check_space(&s);
                }
}

static void test_scales_stand_behind_the_bytes_of_their_tile(void **state) {
    (void)state;
    struct kv_space s = {KV_I8, 1, 1, 20, 1, NULL};
    assert_int_equal(kv_scales_offset(s.head_dim) + KV_BLOCK_TOKENS * sizeof(uint16_t),
                     kv_tile_bytes(&s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_fill_the_space_block_by_block),
        cmocka_unit_test(test_scales_stand_behind_the_bytes_of_their_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
