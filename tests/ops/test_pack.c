/* Goal:   packed panels hold the numbers of the file, and take the room that they should.
 * Method: weights of random bytes, and of every byte in every place, are packed; a reader written
 *         from the words of kernels/cpu/pack.h finds each number again and compares it, bit for
 *         bit, with what tensor/dtype.h reads from the file. So does pack_read_row with rows. */
#include <xxhash.h>

#include "base/pool.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/page.h"
#include "ops/matmul_rig.h"

/* One element of a row of a panel. */
struct element {
    int q;
    float scale, min;
};

static float number_at(const uint8_t *array, uint32_t i, bool half) {
    uint16_t bits;
    float value;
    if (!half) {
        memcpy(&value, array + (size_t)4 * i, sizeof(value));
        return value;
    }
    memcpy(&bits, array + (size_t)2 * i, sizeof(bits));
    return f16_to_f32(bits);
}

static int nibble_at(const uint8_t *values, uint32_t r, uint32_t k) {
    int byte = values[k % 16 / 4 * 64 + r * 4 + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}

/* A block of 32 k with numbers of its own. */
static struct element read_block(enum dtype type, const uint8_t *block, uint32_t r, uint32_t k) {
    struct pack_info info = pack_info(type);
    bool nibbles = info.layout == PACK_NIBBLES;
    uint32_t groups = 32 / info.group_elems, g = k / info.group_elems;
    const uint8_t *numbers = block + (nibbles ? 256 : 512);
    struct element e = {.q = (int8_t)block[k / 4 * 64 + r * 4 + k % 4]};
    if (nibbles) e.q = nibble_at(block, r, k) - (type == DTYPE_Q4_0 ? 8 : 0);
    if (nibbles && dtype_has_codes(type)) e.q = dtype_code_values(type)[e.q];
    e.scale = number_at(numbers, g * 16 + r, info.half_scales);
    if (info.has_zero)
        e.min = -(e.scale * (float)(int8_t)numbers[32 + r]);
    else if (info.has_min)
        e.min = number_at(numbers, (groups + g) * 16 + r, info.half_scales);
    return e;
}

static struct element read_super(enum dtype type, const uint8_t *super, uint32_t r, uint32_t k) {
    struct pack_info info = pack_info(type);
    uint32_t kinds = info.has_min ? 2 : 1, groups = 32 / info.group_elems;
    uint32_t b = k / 32, i = k % 32, g = i / info.group_elems;
    const uint8_t *codes = super + kinds * 32 + b * kinds * groups * 16;
    const uint8_t *values = super + kinds * 32 + 8 * kinds * groups * 16;
    values += b * (256 + 64 * info.high_bits);
    int code = nibble_at(values, r, i), place = (int)(r * 4 + i % 4);
    if (info.high_bits == 1) code |= (values[256 + place] >> (i / 4) & 1) << 4;
    if (info.high_bits == 2)
        code |= (values[256 + i / 16 * 64 + (uint32_t)place] >> (i % 16 / 4 * 2) & 3) << 4;
    struct element e = {.q = dtype_code_values(type)[code]};
    e.scale = number_at(super, r, true) * (float)(int8_t)codes[g * 16 + r];
    if (info.has_min)
        e.min = number_at(super, 16 + r, true) * (float)(int8_t)codes[(groups + g) * 16 + r];
    return e;
}

/* F8: a code and its scale, which a step of 128 k begins with. */
static void check_f8_row(const struct packed *p, const uint8_t *src, uint32_t expert,
                         uint32_t row) {
    const uint8_t *panel = pack_panel(p, expert, row / PANEL_ROWS);
    for (uint32_t k = 0; k < p->cols; k++) {
        const uint8_t *block = src + (size_t)(k / 32) * 36,
                      *step = panel + (size_t)(k / 128) * 2112;
        bool same = step[64 + k % 128 * 16 + row % 16] == block[4 + k % 32];
        same = same && memcmp(step + 4 * (size_t)(row % 16), block, sizeof(float)) == 0;
        if (!same) fail_msg("F8: expert %u row %u k %u", expert, row, k);
    }
}

static void check_row(const struct packed *p, const uint8_t *src, uint32_t expert, uint32_t row) {
    const struct dtype_info *d = dtype_info(p->type);
    struct pack_info info = pack_info(p->type);
    const uint8_t *panel = pack_panel(p, expert, row / PANEL_ROWS);
    if (p->type == DTYPE_F8) {
        check_f8_row(p, src, expert, row);
        return;
    }
    int8_t q[256];
    float scale[16], min[16];
    for (uint32_t k = 0; k < p->cols; k++) {
        uint32_t at = k % d->block_elems, g = at / d->group_elems;
        if (at == 0)
            dtype_unpack(p->type, src + k / d->block_elems * d->block_bytes, q, scale, min);
        const uint8_t *step = panel + (size_t)(k / info.step_elems) * info.step_bytes;
        struct element e = info.layout == PACK_SUPER
                               ? read_super(p->type, step, row % PANEL_ROWS, k % 256)
                               : read_block(p->type, step, row % PANEL_ROWS, k % 32);
        bool same = e.q == q[at] && memcmp(&e.scale, &scale[g], sizeof(float)) == 0;
        if (d->has_min) same = same && memcmp(&e.min, &min[g], sizeof(float)) == 0;
        if (!same) fail_msg("%s: expert %u row %u k %u", d->name, expert, row, k);
    }
}

static void check_weight(const struct weight *w) {
    struct page_arena arena = {0};
    struct pool *pool;
    struct err err = {{0}};
    size_t row_bytes;
    assert_int_equal(pool_create(&pool, 2, &err), ST_OK);
    assert_true(dtype_bytes(w->type, w->cols, &row_bytes));
    struct packed *p = pack_create(w, &arena);
    assert_non_null(p);
    pack_fill(p, w, pool);
    for (uint32_t e = 0; e < w->experts; e++)
        for (uint32_t row = 0; row < w->rows; row++)
            check_row(p, weight_data(w, e) + row * row_bytes, e, row);
    pack_free(p);
    pool_destroy(pool);
    page_arena_deinit(&arena);
}

static void test_panels_hold_the_numbers_of_the_file(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 15, 16, 17, 40};
    for (int type = DTYPE_Q4_0; type < DTYPE_COUNT; type++)
        for (uint32_t i = 0; i < 5; i++) {
            struct weight w = weight_of(type, rows[i], 256 * (1 + i % 3), 1 + i % 2 * 2, i == 4, i);
            check_weight(&w);
            mem_free((void *)(uintptr_t)w.data);
        }
}

static void test_every_byte_in_every_place_comes_back(void **state) {
    (void)state;
    for (int type = DTYPE_Q4_0; type < DTYPE_COUNT; type++) {
        struct weight w = weight_of(type, 256, 256, 1, false, 1);
        size_t row_bytes = w.bytes / 256, step = dtype_info(type)->block_bytes;
        uint8_t *data = (uint8_t *)(uintptr_t)w.data;
        for (uint32_t r = 0; r < 256; r++) memset(data + r * row_bytes, (int)r, row_bytes);
        for (size_t at = 0; at < w.bytes; at += step)
            for (const int *field = half_fields(type); *field >= 0; field++)
                tame_half(data + at + *field, at * 0x9E3779B97F4A7C15u >> 20);
        for (size_t at = 0; at < w.bytes && has_wide_scale(type); at += step)
            tame_float(data + at, at * 0x9E3779B97F4A7C15u >> 20);
        if (type == DTYPE_F8) join_scales(data, w.bytes / step, 256);
        check_weight(&w);
        mem_free(data);
    }
}

static void check_rows_read_back(enum dtype type, uint32_t rows, uint32_t cols, bool edges) {
    struct weight w = weight_of(type, rows, cols, 2, edges, rows + cols);
    struct page_arena arena = {0};
    struct pool *pool;
    size_t row_bytes;
    float *want = mem_alloc_array(cols, sizeof(float)), *got = mem_alloc_array(cols, sizeof(float));
    assert_int_equal(pool_create(&pool, 1, NULL), ST_OK);
    assert_true(dtype_bytes(type, cols, &row_bytes));
    struct packed *p = pack_create(&w, &arena);
    assert_non_null(p);
    pack_fill(p, &w, pool);
    for (uint32_t row = 0; row < rows; row++) {
        dtype_dequant(type, weight_data(&w, 0) + row * row_bytes, cols, want);
        pack_read_row(p, row, got);
        if (memcmp(want, got, cols * sizeof(float)) != 0)
            fail_msg("%s: row %u of %u x %u", dtype_info(type)->name, row, rows, cols);
    }
    pack_free(p);
    pool_destroy(pool);
    page_arena_deinit(&arena);
    mem_free(got);
    mem_free(want);
    mem_free((void *)(uintptr_t)w.data);
}

static void test_a_row_read_back_has_the_bits_of_the_file(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 15, 16, 17, 40};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (uint32_t i = 0; i < 5; i++)
            for (uint32_t blocks = 1; blocks <= 3; blocks++) {
                uint32_t elems = dtype_info(type)->block_elems;
                uint32_t cols = blocks * (elems == 1 ? 50 : elems);
                check_rows_read_back(type, rows[i], cols, false);
                check_rows_read_back(type, rows[i], cols, true);
            }
}

static void test_packed_weights_are_hardly_larger_than_the_file(void **state) {
    (void)state;
    static const struct {
        enum dtype type;
        double bits;
    } sizes[] = {{DTYPE_Q4_0, 4.5},   {DTYPE_Q4_1, 5},        {DTYPE_Q8_0, 8.5},
                 {DTYPE_Q4_K, 4.625}, {DTYPE_Q5_K, 5.625},    {DTYPE_Q6_K, 6.5625},
                 {DTYPE_IQ4_NL, 4.5}, {DTYPE_IQ4_XS, 4.3125}, {DTYPE_INT4, 4.75},
                 {DTYPE_NF4, 5},      {DTYPE_FP4, 5},         {DTYPE_INT8, 9},
                 {DTYPE_INT8_Z, 10},  {DTYPE_F8, 8.25}};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct pack_info info = pack_info(sizes[i].type);
        double bits = 8.0 * info.step_bytes / PANEL_ROWS / info.step_elems;
        assert_true(bits == sizes[i].bits);
    }
}

/* Images on users' disks hold these bytes. Where a hash changes, PACK_LAYOUT_VERSION is raised and
 * the hashes are taken anew; else kernels read weights in an order in which they do not lie. */
static void test_a_change_of_layout_raises_its_version(void **state) {
    (void)state;
    static const uint64_t hashes[DTYPE_COUNT] = {
        [DTYPE_F32] = 0x9eeb4162be9d2b76,    [DTYPE_F16] = 0x8db04ff0adefd999,
        [DTYPE_BF16] = 0xca9b2f3b131c3ceb,   [DTYPE_Q4_0] = 0xcea286425dd83311,
        [DTYPE_Q4_1] = 0x4faf7a7455b0f5af,   [DTYPE_Q5_0] = 0x2f4052682c9ada6f,
        [DTYPE_Q5_1] = 0xc50462bedf73cbed,   [DTYPE_Q8_0] = 0x77e1e28acb26260c,
        [DTYPE_Q2_K] = 0x475a9f6b8d44b1fe,   [DTYPE_Q3_K] = 0x1601938811ab93dc,
        [DTYPE_Q4_K] = 0x8b2187ad9ed6cdba,   [DTYPE_Q5_K] = 0xbea30411aab53f3f,
        [DTYPE_Q6_K] = 0x77e4a7a4661f1f46,   [DTYPE_IQ4_NL] = 0xcea286425dd83311,
        [DTYPE_IQ4_XS] = 0x0e8f6dfbd1cd46d2, [DTYPE_INT4] = 0xdda9e3c339189734,
        [DTYPE_INT8] = 0x5f8ca22a78b1c957,   [DTYPE_INT8_Z] = 0x31a7a69df59e048c,
        [DTYPE_NF4] = 0x08043c85cd1442e3,    [DTYPE_FP4] = 0x08043c85cd1442e3,
        [DTYPE_F8] = 0x2eece1aeded3c8d5,
    };
    int changed = 0;
    assert_int_equal(PACK_LAYOUT_VERSION, 2);
    struct pool *pool;
    assert_int_equal(pool_create(&pool, 1, NULL), ST_OK);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct page_arena arena = {0};
        struct weight w = weight_of(type, 17, 512, 2, false, 3);
        struct packed *p = pack_create(&w, &arena);
        assert_non_null(p);
        pack_fill(p, &w, pool);
        uint64_t hash = XXH3_64bits(p->data, p->bytes);
        if (hash != hashes[type])
            printf("%s: 0x%016llx\n", dtype_info(type)->name, (unsigned long long)hash);
        changed += hash != hashes[type];
        pack_free(p);
        page_arena_deinit(&arena);
        mem_free((void *)(uintptr_t)w.data);
    }
    pool_destroy(pool);
    assert_int_equal(changed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_hold_the_numbers_of_the_file),
        cmocka_unit_test(test_every_byte_in_every_place_comes_back),
        cmocka_unit_test(test_a_row_read_back_has_the_bits_of_the_file),
        cmocka_unit_test(test_packed_weights_are_hardly_larger_than_the_file),
        cmocka_unit_test(test_a_change_of_layout_raises_its_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
