/* kernels/cpu/matmul_tiles_avx512.h - 16 rows times a panel through tile products; the body of
 * matmul_amx.c and of its emulation.
 *
 * A file that defines TILES_HAVE_INSTRUCTIONS before it includes this has defined, for the 16 x 16
 * sums of 32 or of 16 k:
 *
 *     tile_product_even(a, b, sums), tile_product_odd(a, b, sums)   32 k, two that may overlap
 *     tile_product_half(a, b, sums)                                 16 k of each row of 32
 *
 * with a[m][k] and b[k / 4][n][k % 4] signed bytes and sums[m][n] their exact sums; else they are
 * here, in plain C. A tile's sums leave through memory; vectors then scale them into one
 * accumulator per row, block by block in rising k, with the operations of tensor/q8.h. Products
 * run TILES_AHEAD blocks before the scaling, so that tile and vector units work at the same time
 * and sums have reached the cache when they are read: they are not handed on from the store itself.
 */
#ifndef KERNELS_CPU_MATMUL_TILES_AVX512_H
#define KERNELS_CPU_MATMUL_TILES_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/tiles.h"

#define TILES_INLINE static inline __attribute__((always_inline))

enum { HALF_VALUES = PANEL_ROWS * Q8_BLOCK / 2, TILE_QUAD = 4 };

#ifndef TILES_HAVE_INSTRUCTIONS

static inline void tile_product(const uint8_t *a, const uint8_t *b, uint32_t k_count,
                                int32_t *sums) {
    memset(sums, 0, MM_WIDE * PANEL_ROWS * sizeof(*sums));
    for (uint32_t m = 0; m < MM_WIDE; m++)
        for (uint32_t k = 0; k < k_count; k++) {
            int32_t x = (int8_t)a[m * Q8_BLOCK + k];
            const uint8_t *column =
                b + (size_t)k / TILE_QUAD * PANEL_ROWS * TILE_QUAD + k % TILE_QUAD;
            for (uint32_t n = 0; n < PANEL_ROWS; n++)
                sums[m * PANEL_ROWS + n] += x * (int8_t)column[n * TILE_QUAD];
        }
}

static inline void tile_product_even(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK, sums);
}

static inline void tile_product_odd(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK, sums);
}

static inline void tile_product_half(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK / 2, sums);
}

#endif

struct tile_sums {
    _Alignas(64) int32_t of[MM_WIDE][PANEL_ROWS];
};

/* acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
TILES_INLINE void add_tile(const struct tile_sums *sums, const float *scales, const float *mins,
                           const float *row_scales, const float *dsums, __m512 acc[MM_WIDE]) {
    const __m512 scale = _mm512_loadu_ps(scales);
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) {
        __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(row_scales[m]));
        __m512i sum = _mm512_load_si512((const void *)sums->of[m]);
        acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), s, acc[m]);
    }
    if (!mins) return;
    const __m512 min = _mm512_loadu_ps(mins);
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++)
        acc[m] = _mm512_fmadd_ps(min, _mm512_set1_ps(dsums[m]), acc[m]);
}

enum { TILES_AHEAD = 3, TILES_RING = 4 };

/* A multiplication of 16 gathered rows with an opened panel; groups and minima are constants. */
struct tiles_job {
    const struct mm_open *w;
    const uint8_t *tile;
    const float *halves;
    uint32_t blocks;
};

/* The sums of block b: one product, or one for each half. */
TILES_INLINE void ask_block(const struct tiles_job *job, uint32_t b, const uint32_t groups,
                            struct tile_sums sums[2]) {
    const uint8_t *x = job->tile + (size_t)b * TILE_STEP;
    const uint8_t *values = job->w->values + b * job->w->value_step;
    if (groups == 2) {
        tile_product_half(x, values, sums[0].of[0]);
        tile_product_half(x + Q8_BLOCK / 2, values + HALF_VALUES, sums[1].of[0]);
    } else if (b % 2 == 0) {
        tile_product_even(x, values, sums[0].of[0]);
    } else {
        tile_product_odd(x, values, sums[0].of[0]);
    }
}

TILES_INLINE void add_block(const struct tiles_job *job, uint32_t b, const uint32_t groups,
                            const bool has_min, const struct tile_sums sums[2],
                            __m512 acc[MM_WIDE]) {
    const float *scales = (const float *)(const void *)(job->w->numbers + b * job->w->number_step);
    const uint8_t *x = job->tile + (size_t)b * TILE_STEP + TILE_Q_BYTES;
    const float *row_scales = (const float *)(const void *)x;
    const float *dsums = groups == 2 ? job->halves + (size_t)b * 2 * MM_WIDE : row_scales + MM_WIDE;
    const float *mins = has_min ? scales + groups * PANEL_ROWS : NULL;
    add_tile(&sums[0], scales, mins, row_scales, dsums, acc);
    if (groups == 1) return;
    add_tile(&sums[1], scales + PANEL_ROWS, has_min ? mins + PANEL_ROWS : NULL, row_scales,
             dsums + MM_WIDE, acc);
}

TILES_INLINE void run_job(const struct tiles_job *job, const uint32_t groups, const bool has_min,
                          float out[MM_WIDE][PANEL_ROWS]) {
    struct tile_sums sums[TILES_RING][2];
    __m512 acc[MM_WIDE];
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) acc[m] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < TILES_AHEAD && b < job->blocks; b++)
        ask_block(job, b, groups, sums[b % TILES_RING]);
    for (uint32_t b = 0; b < job->blocks; b++) {
        uint32_t next = b + TILES_AHEAD;
        if (next < job->blocks) ask_block(job, next, groups, sums[next % TILES_RING]);
        add_block(job, b, groups, has_min, sums[b % TILES_RING], acc);
    }
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) _mm512_storeu_ps(out[m], acc[m]);
}

static inline void tiles_multiply(const struct packed *w, const struct mm_open *open,
                                  const uint8_t *tile, float out[MM_WIDE][PANEL_ROWS]) {
    const struct dtype_info *info = dtype_info(w->type);
    struct tiles_job job = {open, tile, tile_halves(tile, w->cols), w->cols / Q8_BLOCK};
    if (info->group_elems == Q8_BLOCK && info->has_min)
        run_job(&job, 1, true, out);
    else if (info->group_elems == Q8_BLOCK)
        run_job(&job, 1, false, out);
    else if (info->has_min)
        run_job(&job, 2, true, out);
    else
        run_job(&job, 2, false, out);
}

#endif
