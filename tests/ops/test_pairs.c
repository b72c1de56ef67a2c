/* Goal:   two panels at once give the bits of one at a time, for every format, with scales of
 *         weights and rows as small and as large as they come, with bias and sum and without.
 * Method: random weights of two panels, whose scales are then replaced by zeros, the least, the
 *         largest and what is no number; rows from 2^-80 to 2^80, with blocks of zeros. */
#include "base/pool.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/fp_mode.h"
#include "kernels/cpu/page.h"
#include "ops/matmul_rig.h"

enum { PAIR_COLS = MM_PAIR * PANEL_ROWS };

/* A weight of two panels, and packed. */
struct pair_job {
    struct weight w;
    struct page_arena arena;
    struct packed *packed;
    struct pool *pool;
    uint32_t cols;
};

static uint8_t *block_at(const struct pair_job *j, uint64_t i) {
    uint8_t *data = (uint8_t *)(uintptr_t)j->w.data;
    return data + i * dtype_info(j->w.type)->block_bytes;
}

static uint64_t block_count(const struct pair_job *j) {
    return (uint64_t)PAIR_COLS * j->cols / dtype_info(j->w.type)->block_elems;
}

/* Zero, the least f16, the largest, infinity, a NaN and others, of both signs. */
static void spread_scales(const struct pair_job *j) {
    static const uint16_t halves[] = {0x0001, 0x7BFF, 0x3C00, 0x8001,
                                      0x0000, 0xFBFF, 0x7C00, 0x7E00};
    for (uint64_t i = 0; i < block_count(j); i++)
        for (const int *field = half_fields(j->w.type); *field >= 0; field++)
            memcpy(block_at(j, i) + *field, &halves[rng_at(3, 1, i) % 8], sizeof(halves[0]));
}

static void repack(struct pair_job *j) {
    memset(j->packed->data, 0, j->packed->bytes);
    pack_fill(j->packed, &j->w, j->pool);
}

static void job_init(struct pair_job *j, enum dtype type, uint32_t cols, struct pool *pool) {
    *j = (struct pair_job){.pool = pool, .cols = cols};
    j->w = random_weight(type, PAIR_COLS, cols, 1, type + cols);
    j->packed = pack_create(&j->w, &j->arena);
    assert_non_null(j->packed);
    repack(j);
}

static void job_deinit(struct pair_job *j) {
    pack_free(j->packed);
    page_arena_deinit(&j->arena);
    mem_free((void *)(uintptr_t)j->w.data);
}

/* Rows of which every block has its own magnitude, and some are zero. */
static void make_rows(uint32_t cols, struct mm_row rows[MM_TILE]) {
    float *x = mem_alloc_array(cols, sizeof(*x));
    for (uint32_t m = 0; m < MM_TILE; m++) {
        for (uint32_t i = 0; i < cols; i++) {
            int exponent = (int)(rng_at(m, 2, i / Q8_BLOCK) % 161) - 80;
            x[i] = ldexpf((float)rng_unit_at(m, 3, i) - 0.5f, exponent);
            if (rng_at(m, 4, i / Q8_BLOCK) % 9 == 0) x[i] = 0.0f;
        }
        void *row = mem_alloc_aligned(64, q8_row_bytes(cols));
        q8_quantise(x, cols, row);
        rows[m].q8 = q8_row_at(row, cols);
    }
    mem_free(x);
}

static void free_rows(struct mm_row rows[MM_TILE]) {
    for (uint32_t m = 0; m < MM_TILE; m++) mem_free((void *)(uintptr_t)rows[m].q8.q);
}

static float start_value(uint32_t m, uint32_t c) {
    return (float)((int)(m * 37 + c * 11) % 23 - 11);
}

/* The products by one panel at a time, with bias and sum as the drivers add them. */
static void expect_singles(const struct cpu_kernels *k, const struct pair_job *j,
                           const struct mm_row *rows, const float *bias, bool add,
                           float got[MM_TILE][PAIR_COLS]) {
    for (uint32_t p = 0; p < MM_PAIR; p++) {
        float out[MM_TILE][PANEL_ROWS];
        k->panel[j->w.type](j->packed, pack_panel(j->packed, 0, p), rows, MM_TILE, out);
        for (uint32_t m = 0; m < MM_TILE; m++)
            for (uint32_t i = 0; i < PANEL_ROWS; i++) {
                uint32_t c = p * PANEL_ROWS + i;
                float y = bias ? out[m][i] + bias[c] : out[m][i];
                if (add) y += start_value(m, c);
                assert_memory_equal(&y, &got[m][c], sizeof(y));
            }
    }
}

static void check_pair(const struct cpu_kernels *k, const struct pair_job *j,
                       const struct mm_row *rows, bool with_bias, bool add) {
    float got[MM_TILE][PAIR_COLS], bias[PAIR_COLS], *to[MM_TILE];
    for (uint32_t c = 0; c < PAIR_COLS; c++) bias[c] = (float)c * 0.5f - 3.0f;
    for (uint32_t m = 0; m < MM_TILE; m++) {
        to[m] = got[m] - 5;
        for (uint32_t c = 0; c < PAIR_COLS; c++) got[m][c] = start_value(m, c);
    }
    struct mm_sink sink = {.rows = to, .col = 5, .bias = with_bias ? bias : NULL, .add = add};
    k->pairs->pair[j->w.type](j->packed, j->packed->data, rows, &sink);
    expect_singles(k, j, rows, sink.bias, add, got);
}

/* Tables with kernels for pairs; without any the test is skipped. */
typedef void pairs_fn(const struct cpu_kernels *k, struct pool *pool, enum dtype type);
static void for_each_format(pairs_fn *fn) {
    struct pool *pool;
    struct err err = {{0}};
    bool some = false;
    uint64_t mode = fp_mode_enter(); /* as the device does */
    assert_int_equal(pool_create(&pool, 1, &err), ST_OK);
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        const struct cpu_kernels *k = cpu_table_find(rig_isas[i])->kernels;
        for (int type = 0; k->pairs && type < DTYPE_COUNT; type++) {
            if (!k->pairs->pair[type]) continue;
            fn(k, pool, (enum dtype)type);
            some = true;
        }
    }
    pool_destroy(pool);
    fp_mode_leave(mode);
    if (!some) skip();
}

static void pairs_equal_singles(const struct cpu_kernels *k, struct pool *pool, enum dtype type) {
    for (uint32_t units = 1; units <= 3; units++) {
        struct pair_job j;
        struct mm_row rows[MM_TILE];
        job_init(&j, type, units * dtype_info(type)->block_elems, pool);
        make_rows(j.cols, rows);
        for (int spread = 0; spread < 2; spread++) {
            for (int i = 0; i < 4; i++) check_pair(k, &j, rows, i & 1, i & 2);
            spread_scales(&j);
            repack(&j);
        }
        free_rows(rows);
        job_deinit(&j);
    }
}

static void test_a_pair_of_panels_gives_the_bits_of_two_panels(void **state) {
    (void)state;
    for_each_format(pairs_equal_singles);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pair_of_panels_gives_the_bits_of_two_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
