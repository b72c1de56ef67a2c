/* Goal:   a block that leaves the cache comes back with the same bytes, in any other block, and
 *         touches nobody else's.
 * Method: KV memory with a number in every byte, of one and of four tiles a block, all formats;
 *         out to a slot, overwritten, in to another block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/spill.h"

enum { LAYERS = 3, HEADS = 2, HEAD_DIM = 8, TILES = 16, SLOTS = 3 };

static void fill(const struct kv_space *s, uint32_t seed) {
    for (size_t i = 0; i < kv_space_bytes(s); i++) s->base[i] = (uint8_t)(i * 131 + seed);
}

static struct kv_memory memory(enum kv_type type) {
    struct kv_memory kv = {.group_count = 2};
    for (uint32_t g = 0; g < kv.group_count; g++) {
        kv.spaces[g] = (struct kv_space){.type = type,
                                         .layers = LAYERS + g,
                                         .heads = HEADS,
                                         .head_dim = HEAD_DIM,
                                         .block_count = TILES};
        kv.spaces[g].base = malloc(kv_space_bytes(&kv.spaces[g]));
        assert_non_null(kv.spaces[g].base);
        fill(&kv.spaces[g], g);
    }
    return kv;
}

static void forget(struct kv_memory *kv) {
    for (uint32_t g = 0; g < kv->group_count; g++) free(kv->spaces[g].base);
}

/* Every tile of `from` in `before` must be in the same place of `to` in `after`; the tiles of
 * other blocks must be as they were. */
static void compare(const struct kv_space *after, const uint8_t *before, uint32_t tiles,
                    uint32_t from, uint32_t to) {
    size_t bytes = kv_layer_bytes(after);
    for (uint32_t l = 0; l < after->layers; l++)
        for (uint32_t b = 0; b < after->block_count; b++) {
            uint32_t source = b / tiles == to ? from * tiles + b % tiles : b;
            const uint8_t *want = before + ((size_t)source * after->layers + l) * bytes;
            assert_memory_equal(kv_tile(after, l, b, 0), want, bytes);
        }
}

static void round_trip(enum kv_type type, uint32_t tiles) {
    struct kv_memory kv = memory(type);
    struct spill s;
    struct err err = {0};
    if (spill_open(&s, &kv, tiles, SLOTS, "/tmp", &err) != ST_OK) fail_msg("%s", err.text);
    uint32_t last = TILES / tiles - 1;
    for (uint32_t g = 0; g < kv.group_count; g++) {
        size_t bytes = kv_space_bytes(&kv.spaces[g]);
        uint8_t *before = malloc(bytes);
        assert_non_null(before);
        memcpy(before, kv.spaces[g].base, bytes);
        spill_out(&s, &kv, g, 1, SLOTS - 1);
        spill_out(&s, &kv, g, 0, 0);
        spill_in(&s, &kv, g, SLOTS - 1, last);
        compare(&kv.spaces[g], before, tiles, 1, last);
        memcpy(kv.spaces[g].base, before, bytes);
        kv_memory_copy(&kv, tiles, g, 0, last);
        compare(&kv.spaces[g], before, tiles, 0, last);
        free(before);
    }
    spill_close(&s);
    forget(&kv);
}

static void test_blocks_come_back_as_they_left(void **state) {
    (void)state;
    for (uint32_t type = KV_F16; type <= KV_I8; type++)
        for (uint32_t tiles = 1; tiles <= 4; tiles *= 2) round_trip((enum kv_type)type, tiles);
}

static void test_a_folder_that_cannot_be_used_is_named(void **state) {
    (void)state;
    struct kv_memory kv = memory(KV_F16);
    struct spill s;
    struct err err = {0};
    assert_int_equal(spill_open(&s, &kv, 1, SLOTS, "/no/such/folder", &err), ST_CREATE);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    forget(&kv);
}

static void test_no_slots_need_no_folder(void **state) {
    (void)state;
    struct kv_memory kv = memory(KV_F16);
    struct spill s;
    assert_int_equal(spill_open(&s, &kv, 1, 0, "/no/such/folder", NULL), ST_OK);
    spill_close(&s);
    forget(&kv);
}

static void test_nothing_is_left_in_the_folder(void **state) {
    (void)state;
    char dir[] = "/tmp/test-spill-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct kv_memory kv = memory(KV_F32);
    struct spill s;
    assert_int_equal(spill_open(&s, &kv, 1, SLOTS, dir, NULL), ST_OK);
    assert_int_equal(rmdir(dir), 0); /* empty while it is in use */
    spill_close(&s);
    forget(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_come_back_as_they_left),
        cmocka_unit_test(test_a_folder_that_cannot_be_used_is_named),
        cmocka_unit_test(test_no_slots_need_no_folder),
        cmocka_unit_test(test_nothing_is_left_in_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
