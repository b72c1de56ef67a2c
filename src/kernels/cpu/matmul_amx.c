/* kernels/cpu/matmul_amx.c - products of many rows with the tile instructions of AMX; the table
 * that takes the rest from AVX-512.
 *
 * tdpbssd multiplies signed bytes and adds into 32 bits, exactly, so the bits are those of the
 * other tables. Two sets of tiles take turns, so that one loads while the other multiplies:
 *
 *     tile 0, 1   16 x 16 sums          tile 6   16 rows x 16 k
 *     tile 2, 4   16 rows x 32 k        tile 7   16 k x 16 rows of the panel
 *     tile 3, 5   32 k x 16 rows of the panel
 *
 * Plain formats stay with AVX-512: tdpbf16ps rounds activations to bf16 and adds pairs of
 * products, and a plain product is defined as fused multiply-adds of floats in rising k.
 *
 * The system saves tiles only for processes that have asked (ops_list.c does). A thread
 * configures its tiles at the start of an op and gives them up at its end.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { VALUE_STRIDE = PANEL_ROWS * 4, SUM_STRIDE = PANEL_ROWS * 4, ROWS_MIN = 8 };

INLINE void tile_product_even(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    _tile_zero(0);
    _tile_loadd(2, a, Q8_BLOCK);
    _tile_loadd(3, b, VALUE_STRIDE);
    _tile_dpbssd(0, 2, 3);
    _tile_stored(0, sums, SUM_STRIDE);
}

INLINE void tile_product_odd(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    _tile_zero(1);
    _tile_loadd(4, a, Q8_BLOCK);
    _tile_loadd(5, b, VALUE_STRIDE);
    _tile_dpbssd(1, 4, 5);
    _tile_stored(1, sums, SUM_STRIDE);
}

INLINE void tile_product_half(const uint8_t *a, const uint8_t *b, int32_t *sums) {
    _tile_zero(0);
    _tile_loadd(6, a, Q8_BLOCK);
    _tile_loadd(7, b, VALUE_STRIDE);
    _tile_dpbssd(0, 6, 7);
    _tile_stored(0, sums, SUM_STRIDE);
}

#define TILES_HAVE_INSTRUCTIONS
#include "kernels/cpu/matmul_tiles_avx512.h"

/* As ldtilecfg reads it. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the layout is the processor's");

static void enter(void) {
    static const struct tile_config config = {
        .palette = 1,
        .row_bytes = {64, 64, 32, 64, 32, 64, 16, 64},
        .rows = {16, 16, 16, 8, 16, 8, 16, 4},
    };
    _tile_loadconfig(&config);
}

static void leave(void) { _tile_release(); }

/* The compiler does not see that tile loads read memory. */
static void multiply(const struct packed *w, const struct mm_open *open, const uint8_t *tile,
                     float out[MM_WIDE][PANEL_ROWS]) {
    __asm__ volatile("" ::: "memory");
    tiles_multiply(w, open, tile, out);
}

static const struct mm_wide amx_wide = {
    .rows_min = ROWS_MIN,
    .takes = tiles_take,
    .row_bytes = tiles_row_bytes,
    .enter = enter,
    .leave = leave,
    .gather = tiles_gather,
    .open = tiles_open,
    .multiply = multiply,
};

const struct cpu_kernels cpu_kernels_amx = {AVX512_KERNELS, .wide = &amx_wide};
