/* kernels/cpu/matmul_tiles.h - 16 rows times a panel through tile products; the body of
 * matmul_amx.c and of its emulation.
 *
 * The file that includes this has defined, for the 16 x 16 sums of 32 or of 16 k:
 *
 *     tile_product_even(a, b, sums), tile_product_odd(a, b, sums)   32 k, two that may overlap
 *     tile_product_half(a, b, sums)                                 16 k of each row of 32
 *
 * with a[m][k] and b[k / 4][n][k % 4] signed bytes and sums[m][n] their exact sums. A tile's sums
 * leave through memory; vectors then scale them into one accumulator per row, block by block in
 * rising k, with the operations of tensor/q8.h. The product of the next block is asked for before
 * the last one is scaled, so that tile and vector units work at the same time.
 */
#ifndef KERNELS_CPU_MATMUL_TILES_H
#define KERNELS_CPU_MATMUL_TILES_H

#include <immintrin.h>

#include "kernels/cpu/tiles.h"

#define TILES_INLINE static inline __attribute__((always_inline))

enum { HALF_VALUES = PANEL_ROWS * Q8_BLOCK / 2 };

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

/* Where a multiplication stands. */
struct tile_place {
    const uint8_t *values, *numbers, *x;
};

/* Groups of 32: one product for each block. */
TILES_INLINE void add_block(const struct tile_sums *sums, const struct tile_place *at,
                            const bool has_min, __m512 acc[MM_WIDE]) {
    const float *numbers = (const float *)(const void *)at->numbers;
    const float *row_numbers = (const float *)(const void *)(at->x + TILE_Q_BYTES);
    add_tile(sums, numbers, has_min ? numbers + PANEL_ROWS : NULL, row_numbers,
             row_numbers + MM_WIDE, acc);
}

TILES_INLINE void step_place(struct tile_place *at, const struct mm_open *w) {
    at->values += w->value_step;
    at->numbers += w->number_step;
    at->x += TILE_STEP;
}

TILES_INLINE void store_rows(const __m512 acc[MM_WIDE], float out[MM_WIDE][PANEL_ROWS]) {
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) _mm512_storeu_ps(out[m], acc[m]);
}

TILES_INLINE void multiply_whole(const struct mm_open *w, uint32_t blocks, const uint8_t *tile,
                                 const bool has_min, float out[MM_WIDE][PANEL_ROWS]) {
    struct tile_sums even, odd;
    __m512 acc[MM_WIDE];
    struct tile_place at = {w->values, w->numbers, tile};
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) acc[m] = _mm512_setzero_ps();
    tile_product_even(at.x, at.values, even.of[0]);
    for (uint32_t b = 0; b < blocks; b += 2) {
        if (b + 1 < blocks)
            tile_product_odd(at.x + TILE_STEP, at.values + w->value_step, odd.of[0]);
        add_block(&even, &at, has_min, acc);
        step_place(&at, w);
        if (b + 1 >= blocks) break;
        if (b + 2 < blocks)
            tile_product_even(at.x + TILE_STEP, at.values + w->value_step, even.of[0]);
        add_block(&odd, &at, has_min, acc);
        step_place(&at, w);
    }
    store_rows(acc, out);
}

/* Groups of 16: two products for each block, the first half's numbers first. */
TILES_INLINE void multiply_halves(const struct mm_open *w, uint32_t blocks, const uint8_t *tile,
                                  const bool has_min, float out[MM_WIDE][PANEL_ROWS]) {
    struct tile_sums sums[2];
    __m512 acc[MM_WIDE];
    struct tile_place at = {w->values, w->numbers, tile};
    const float *dsums = tile_halves(tile, blocks * Q8_BLOCK);
#pragma GCC unroll 16
    for (int m = 0; m < MM_WIDE; m++) acc[m] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < blocks; b++, dsums += 2 * MM_WIDE) {
        const float *scales = (const float *)(const void *)at.numbers;
        const float *mins = has_min ? scales + 2 * PANEL_ROWS : NULL;
        const float *row_scales = (const float *)(const void *)(at.x + TILE_Q_BYTES);
        tile_product_half(at.x, at.values, sums[0].of[0]);
        tile_product_half(at.x + Q8_BLOCK / 2, at.values + HALF_VALUES, sums[1].of[0]);
        add_tile(&sums[0], scales, mins, row_scales, dsums, acc);
        add_tile(&sums[1], scales + PANEL_ROWS, mins ? mins + PANEL_ROWS : NULL, row_scales,
                 dsums + MM_WIDE, acc);
        step_place(&at, w);
    }
    store_rows(acc, out);
}

static void tiles_multiply(const struct packed *w, const struct mm_open *open, const uint8_t *tile,
                           float out[MM_WIDE][PANEL_ROWS]) {
    const struct dtype_info *info = dtype_info(w->type);
    uint32_t blocks = w->cols / Q8_BLOCK;
    if (info->group_elems == Q8_BLOCK && info->has_min)
        multiply_whole(open, blocks, tile, true, out);
    else if (info->group_elems == Q8_BLOCK)
        multiply_whole(open, blocks, tile, false, out);
    else if (info->has_min)
        multiply_halves(open, blocks, tile, true, out);
    else
        multiply_halves(open, blocks, tile, false, out);
}

#endif
