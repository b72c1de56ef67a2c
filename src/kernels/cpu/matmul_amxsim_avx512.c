/* kernels/cpu/matmul_amxsim_avx512.c - the AMX table with its tile instructions in plain C.
 *
 * Gathering, opening, scaling and the drivers are those of "amx", so that all but four
 * instructions is tested on processors without them. Slow; never chosen by "auto".
 */
#include <string.h>

#include "kernels/cpu/kernels_avx512.h"

enum { ROWS_MIN = 8, QUAD = 4 };

static void tile_product(const uint8_t *a, const uint8_t *b, uint32_t k_count, int32_t *sums) {
    memset(sums, 0, MM_WIDE * PANEL_ROWS * sizeof(*sums));
    for (uint32_t m = 0; m < MM_WIDE; m++)
        for (uint32_t k = 0; k < k_count; k++) {
            int32_t x = (int8_t)a[m * Q8_BLOCK + k];
            const uint8_t *column = b + (size_t)k / QUAD * PANEL_ROWS * QUAD + k % QUAD;
            for (uint32_t n = 0; n < PANEL_ROWS; n++)
                sums[m * PANEL_ROWS + n] += x * (int8_t)column[n * QUAD];
        }
}

static void tile_product_even(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK, sums);
}

static void tile_product_odd(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK, sums);
}

static void tile_product_half(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    tile_product(a, b, Q8_BLOCK / 2, sums);
}

#include "kernels/cpu/matmul_tiles.h"

static void nothing(void) {}

static const struct mm_wide amxsim_wide = {
    .rows_min = ROWS_MIN,
    .takes = tiles_take,
    .row_bytes = tiles_row_bytes,
    .open_bytes = tiles_open_bytes,
    .enter = nothing,
    .leave = nothing,
    .gather = tiles_gather,
    .open = tiles_open,
    .multiply = tiles_multiply,
};

const struct cpu_kernels cpu_kernels_amxsim = {AVX512_KERNELS, .wide = &amxsim_wide};
