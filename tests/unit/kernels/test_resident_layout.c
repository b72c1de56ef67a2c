/* Goal:   blocks of the resident kernel have even shares and agree on where everything lies in
 *         their rings.
 * Method: the arithmetic of kernels/cuda/resident_layout.h on the host, for the sides of real
 *         models and for odd ones. The warp that fills a ring and the warps that read it are
 *         followed slot by slot: both must come to the same slots, and a slot is filled anew only
 *         when it was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/cuda/resident_layout.h"

enum { BLOCKS = 132, TILES_MAX = 4096, SLOTS_MAX = CUDA_RESIDENT_SLOTS_MAX };

/* Rows of a layer's products, and their columns. */
struct sides {
    uint32_t layers, rows[4], cols[4];
};
static const struct sides models[] = {
    {32, {6144, 4096, 28672, 4096}, {4096, 4096, 4096, 14336}}, /* 8B */
    {28, {4096, 1024, 6144, 1024}, {1024, 2048, 1024, 3072}},   /* 0.6B */
    {3, {1920, 1608, 2704, 1608}, {1664, 1280, 1664, 1408}},    /* odd */
};
enum { MODELS = sizeof(models) / sizeof(models[0]) };

static struct cuda_resident_shape shape_of(const struct sides *m, uint32_t rows) {
    uint32_t widest = m->cols[1] > m->cols[3] ? m->cols[1] : m->cols[3];
    return cuda_resident_shape_of(rows, m->cols[0], widest);
}

static void test_every_tile_is_in_one_share(void **state) {
    (void)state;
    static uint8_t seen[TILES_MAX];
    for (uint32_t tiles = 1; tiles < TILES_MAX; tiles += tiles < 300 ? 1 : 211)
        for (uint32_t turn = 0; turn < 5; turn++) {
            memset(seen, 0, sizeof(seen));
            for (uint32_t b = 0; b < BLOCKS; b++) {
                struct cuda_turned_share s = cuda_turned_share_of(tiles, b, BLOCKS, turn);
                assert_in_range(s.count, tiles / BLOCKS, (tiles + BLOCKS - 1) / BLOCKS);
                for (uint32_t t = s.first; t < s.first + s.count; t++) seen[t]++;
            }
            for (uint32_t t = 0; t < tiles; t++) assert_int_equal(seen[t], 1);
        }
}

/* Bytes of all of a block's tiles in a step, against the mean. */
static void test_no_block_reads_much_more_than_the_others(void **state) {
    (void)state;
    for (int i = 0; i < MODELS - 1; i++) {
        const struct sides *m = &models[i];
        uint64_t all = 0, most = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            uint64_t mine = 0;
            for (uint32_t n = 0; n < m->layers * 4; n++)
                mine += (uint64_t)m->cols[n % 4] *
                        cuda_turned_share_of(cuda_tiles_of(m->rows[n % 4]), b, BLOCKS, n).count;
            all += mine;
            if (mine > most) most = mine;
        }
        assert_true(most * BLOCKS * 100 <= all * 102); /* 2 % */
    }
}

static void test_shared_memory_holds_all_of_it(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (uint32_t rows = 1; rows <= CUDA_RESIDENT_ROWS; rows++) {
            struct cuda_resident_shape s = shape_of(&models[i], rows);
            assert_in_range(s.slots, CUDA_RESIDENT_SLOTS_MIN, CUDA_RESIDENT_SLOTS_MAX);
            assert_true(cuda_resident_bytes(s) <= CUDA_RESIDENT_SHARED);
            assert_true(s.rows_bytes >= cuda_normed_bytes(rows, models[i].cols[0]));
            assert_true(s.rows_bytes >= CUDA_RESIDENT_ATTENTION);
            for (int k = 0; k < 4; k++) { /* rows come in windows of whole slots */
                uint32_t groups = models[i].cols[k] / CUDA_SLOT_GROUP;
                uint32_t window = cuda_groups_at_once(rows, groups, s.rows_bytes);
                assert_in_range(window, 1, groups);
                assert_true(window == groups || window % CUDA_SLOT_GROUPS == 0);
                assert_true(rows * window * CUDA_SLOT_GROUP * 2 <= s.rows_bytes);
            }
        }
    assert_int_equal(shape_of(&models[0], 1).slots, 24);
    assert_int_equal(shape_of(&models[0], 4).slots, 16);
    assert_int_equal(cuda_resident_shape_of(4, 16384, 16384).slots, 0); /* too wide */
}

/* ---- a ring ---- */

/* What lies in each slot: the tile and its columns, until they are read. */
struct ring {
    uint32_t slots;
    struct cuda_place brought;
    uint32_t tile[SLOTS_MAX], part[SLOTS_MAX], pass[SLOTS_MAX];
    bool is_full[SLOTS_MAX];
};

static void bring(struct ring *r, uint32_t tile, uint32_t part) {
    uint32_t slot = r->brought.slot;
    assert_false(r->is_full[slot]);
    r->is_full[slot] = true;
    r->tile[slot] = tile;
    r->part[slot] = part;
    r->pass[slot] = r->brought.pass;
    r->brought = cuda_place_soon(r->brought, 1, r->slots);
}

static void take(struct ring *r, struct cuda_place p, uint32_t tile, uint32_t part) {
    assert_true(r->is_full[p.slot]);
    assert_int_equal(r->tile[p.slot], tile);
    assert_int_equal(r->part[p.slot], part);
    assert_int_equal(r->pass[p.slot], p.pass);
    r->is_full[p.slot] = false;
}

/* As bring_product of resident_ring.cuh and do_round of resident.cu, which take turns here. */
static struct cuda_place run_product(struct ring *r, struct cuda_place read, uint32_t count,
                                     uint32_t slots, uint32_t window) {
    uint32_t at_once = cuda_tiles_at_once(count, r->slots);
    assert_true(at_once * CUDA_SLOTS_PER_TILE <= r->slots || at_once == 1);
    for (uint32_t first = 0; first < count; first += at_once) {
        uint32_t tiles = cuda_least(at_once, count - first);
        for (uint32_t w = 0; w < slots; w += window) {
            uint32_t parts = cuda_least(window, slots - w);
            for (uint32_t s = 0; s < parts; s++) {
                for (uint32_t i = 0; i < tiles; i++) bring(r, first + i, w + s);
                for (uint32_t i = 0; i < tiles; i++) {
                    struct cuda_place own = cuda_place_soon(read, i, r->slots);
                    for (uint32_t k = 0; k < s; k++) own = cuda_place_soon(own, tiles, r->slots);
                    take(r, own, first + i, w + s);
                }
            }
            read = cuda_place_after(read, tiles * parts, r->slots);
        }
    }
    return read;
}

static void test_the_ring_is_read_as_it_is_filled(void **state) {
    (void)state;
    for (uint32_t slots = CUDA_RESIDENT_SLOTS_MIN; slots <= SLOTS_MAX; slots++) {
        struct ring r = {.slots = slots};
        struct cuda_place read = {0, 0};
        for (uint32_t count = 0; count <= 20; count++) {
            read = run_product(&r, read, count, 1 + count * 7 % 57, 57);
            read = run_product(&r, read, count, 56, 1 + count);
            for (uint32_t side = 1; side <= 4; side *= 2) { /* a tile of the cache */
                uint32_t skipped = cuda_slots_skipped(read, side, slots);
                assert_true(skipped < side);
                for (uint32_t i = 0; i < skipped + side; i++) bring(&r, i, side);
                struct cuda_place at = cuda_place_soon(read, skipped, slots);
                assert_true(at.slot + side <= slots);
                for (uint32_t i = 0; i < skipped + side; i++)
                    take(&r, cuda_place_soon(read, i, slots), i, side);
                read = cuda_place_soon(read, skipped + side, slots);
            }
            assert_int_equal(read.slot, r.brought.slot);
            assert_int_equal(read.pass, r.brought.pass);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tile_is_in_one_share),
        cmocka_unit_test(test_no_block_reads_much_more_than_the_others),
        cmocka_unit_test(test_shared_memory_holds_all_of_it),
        cmocka_unit_test(test_the_ring_is_read_as_it_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
