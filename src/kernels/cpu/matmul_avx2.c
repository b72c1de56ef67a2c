/* kernels/cpu/matmul_avx2.c - panels times a few rows of activations, AVX2 + FMA + F16C.
 *
 * A vector of weights holds 8 rows x 4 k; 4 activations of one row are broadcast against it.
 * maddubs multiplies unsigned by signed bytes and adds neighbours into 16 bits:
 *
 *   nibbles          0 .. 15: the 8 steps of a block stay below 8 x 2 x 15 x 127 = 30,480, so
 *                    they add up in 16 bits and are widened once for each block
 *   narrow bytes     |w| <= 32: 4 steps stay within 4 x 2 x 32 x 127 = 32,512
 *   wide bytes       |w| <= 128: one step is at most 2 x 128 x 127 = 32,512, widened each time
 *
 * Signed weights go in as |w|, their sign moved to the activation. Each output element has
 * one lane and one accumulator; the bits are those of the definition in tensor/q8.h.
 *
 * Every body is written once with its format as constant arguments and instantiated for each
 * format and row count. The empty asm statements keep gcc 12 from reordering the sums, which
 * makes it spill them: without, the tile of four rows runs at half the speed.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/kernels_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    TILE = 4, /* rows; more spill */
    NIBBLE_BYTES = PANEL_ROWS * Q8_BLOCK / 2,
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel */
    HALVES = 2,                  /* a panel is two vectors of 8 rows */
    LANES = 8,
    AHEAD_BYTES = 3072, /* prefetch distance of a single row; shorter ones measured worse */
};

INLINE __m256i broadcast4(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

/* Number 8 * i of an array of f16 or f32, and the seven after it. */
INLINE __m256 load_numbers(const uint8_t *array, int i, bool half) {
    if (half)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(array + 16 * i)));
    return _mm256_loadu_ps((const float *)(const void *)(array + 32 * i));
}

/* The two halves of a panel meet the same activations; broadcasting them again is a load, while
 * keeping them costs a store and a load each, which is what gcc does unless it must forget. */
INLINE void forget_loads(void) { __asm__ volatile("" ::: "memory"); }

INLINE void prefetch_ahead(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* What a body needs to know about its format; always a constant. */
struct format {
    bool half, has_min;
    bool is_signed, narrow; /* bytes only */
    int offset;             /* nibbles only: the zero point that the file's integers leave out */
    uint32_t groups;        /* in a block of 32 */
};

/* Half h of the panel, block b: the sums of `count` rows, exact. */
INLINE void nibble_sums(const uint8_t *p, const int8_t *const *q, const int count,
                        __m256i sums[TILE]) {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(p + j * STEP_BYTES));
        __m256i w0 = _mm256_and_si256(w, low);
        __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256i first = _mm256_maddubs_epi16(w0, broadcast4(q[m] + 4 * j));
            sums[m] = j == 0 ? first : _mm256_add_epi16(sums[m], first);
            __asm__("" : "+x"(sums[m]));
        }
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256i second = _mm256_maddubs_epi16(w1, broadcast4(q[m] + 16 + 4 * j));
            sums[m] = _mm256_add_epi16(sums[m], second);
            __asm__("" : "+x"(sums[m]));
        }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) sums[m] = _mm256_madd_epi16(sums[m], ones);
}

INLINE __m256i byte_product(__m256i w, __m256i magnitude, __m256i x, const bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

/* Four steps that add up in 16 bits. */
INLINE void narrow_sums(const uint8_t *p, const int8_t *const *q, const int count,
                        const bool is_signed, __m256i sums[TILE]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(p + j * STEP_BYTES));
        __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256i y = byte_product(w, magnitude, broadcast4(q[m] + 4 * j), is_signed);
            sums[m] = j == 0 ? y : _mm256_add_epi16(sums[m], y);
            __asm__("" : "+x"(sums[m]));
        }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) sums[m] = _mm256_madd_epi16(sums[m], ones);
}

/* Four steps, each widened. */
INLINE void wide_sums(const uint8_t *p, const int8_t *const *q, const int count,
                      const bool is_signed, __m256i sums[TILE]) {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(p + j * STEP_BYTES));
        __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256i y = byte_product(w, magnitude, broadcast4(q[m] + 4 * j), is_signed);
            y = _mm256_madd_epi16(y, ones);
            sums[m] = j == 0 ? y : _mm256_add_epi32(sums[m], y);
            __asm__("" : "+x"(sums[m]));
        }
    }
}

/* Group g of the block, half of the panel at p. One group: all 8 steps; two: 4 each. */
INLINE void byte_sums(const uint8_t *p, const int8_t *const *q, const int count,
                      const struct format f, __m256i sums[TILE]) {
    __m256i more[TILE];
    const int8_t *rest[TILE];
    if (f.narrow)
        narrow_sums(p, q, count, f.is_signed, sums);
    else
        wide_sums(p, q, count, f.is_signed, sums);
    if (f.groups == 2) return;
    for (int m = 0; m < count; m++) rest[m] = q[m] + 16;
    if (f.narrow)
        narrow_sums(p + 4 * STEP_BYTES, rest, count, f.is_signed, more);
    else
        wide_sums(p + 4 * STEP_BYTES, rest, count, f.is_signed, more);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) sums[m] = _mm256_add_epi32(sums[m], more[m]);
}

/* acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
INLINE __m256 add_scaled(__m256 acc, __m256i sum, __m256 scale, float row_scale) {
    __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(row_scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), s, acc);
}

INLINE void store_accs(__m256 acc[TILE][HALVES], const int count, float out[MM_TILE][PANEL_ROWS]) {
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        _mm256_storeu_ps(out[m], acc[m][0]);
        _mm256_storeu_ps(out[m] + LANES, acc[m][1]);
    }
}

INLINE void nibble_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                         const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t number_bytes = f.half ? 2 : 4;
    const uint32_t step = NIBBLE_BYTES + PANEL_ROWS * number_bytes * (f.has_min ? 2 : 1);
    __m256 acc[TILE][HALVES];
    const int8_t *q[TILE];
    for (int m = 0; m < count; m++) {
        acc[m][0] = acc[m][1] = _mm256_setzero_ps();
        q[m] = rows[m].q8.q;
    }
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++, p += step) {
        if (count == 1) prefetch_ahead(p, step);
        const uint8_t *scales = p + NIBBLE_BYTES, *mins = scales + PANEL_ROWS * number_bytes;
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i sums[TILE];
            forget_loads();
            nibble_sums(p + 32 * h, q, count, sums);
            __m256 scale = load_numbers(scales, h, f.half);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                if (f.offset)
                    sums[m] =
                        _mm256_sub_epi32(sums[m], _mm256_set1_epi32(f.offset * rows[m].q8.isum[b]));
                acc[m][h] = add_scaled(acc[m][h], sums[m], scale, rows[m].q8.scale[b]);
            }
            if (!f.has_min) continue;
            __m256 min = load_numbers(mins, h, f.half);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                acc[m][h] = _mm256_fmadd_ps(min, _mm256_set1_ps(rows[m].q8.dsum[b]), acc[m][h]);
        }
        for (int m = 0; m < count; m++) q[m] += Q8_BLOCK;
    }
    store_accs(acc, count, out);
}

/* Where a tile stands: block b of the panel, the rows' activations of that block. */
struct tile {
    const struct mm_row *rows;
    const int8_t *q[TILE];
    uint32_t b;
};

/* Group g of the tile's block for half h of the panel. */
INLINE void byte_group(const uint8_t *p, const struct tile *t, const int count,
                       const struct format f, const uint32_t g, const int h,
                       __m256 acc[TILE][HALVES]) {
    const uint32_t number_bytes = f.half ? 2 : 4;
    const uint8_t *scales = p + VALUE_BYTES;
    const uint8_t *mins = scales + f.groups * PANEL_ROWS * number_bytes;
    __m256i sums[TILE];
    const int8_t *from[TILE];
    for (int m = 0; m < count; m++) from[m] = t->q[m] + 16 * g;
    forget_loads();
    byte_sums(p + 32 * h + 4 * STEP_BYTES * g, from, count, f, sums);
    __m256 scale = load_numbers(scales, (int)(HALVES * g) + h, f.half);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        acc[m][h] = add_scaled(acc[m][h], sums[m], scale, t->rows[m].q8.scale[t->b]);
    if (!f.has_min) return;
    __m256 min = load_numbers(mins, (int)(HALVES * g) + h, f.half);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        float dsum = f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g];
        acc[m][h] = _mm256_fmadd_ps(min, _mm256_set1_ps(dsum), acc[m][h]);
    }
}

INLINE void byte_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                       const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t number_bytes = (f.half ? 2 : 4) * (f.has_min ? 2 : 1);
    const uint32_t step = VALUE_BYTES + f.groups * PANEL_ROWS * number_bytes;
    __m256 acc[TILE][HALVES];
    struct tile t = {.rows = rows};
    for (int m = 0; m < count; m++) {
        acc[m][0] = acc[m][1] = _mm256_setzero_ps();
        t.q[m] = rows[m].q8.q;
    }
    for (; t.b < w->cols / Q8_BLOCK; t.b++, p += step) {
        if (count == 1) prefetch_ahead(p, step);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++)
#pragma GCC unroll 2
            for (uint32_t g = 0; g < f.groups; g++) byte_group(p, &t, count, f, g, h, acc);
        for (int m = 0; m < count; m++) t.q[m] += Q8_BLOCK;
    }
    store_accs(acc, count, out);
}

/* Values 8 * h .. 8 * h + 7 of one k of a plain panel. */
INLINE __m256 load_plain(const uint8_t *p, int h, const enum dtype type) {
    if (type != DTYPE_BF16) return load_numbers(p, h, type == DTYPE_F16);
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * h));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

INLINE void plain_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const enum dtype type, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t step = PANEL_ROWS * (type == DTYPE_F32 ? 4 : 2);
    __m256 acc[TILE][HALVES];
    for (int m = 0; m < count; m++) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
    for (uint32_t k = 0; k < w->cols; k++, p += step) {
        if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
        __m256 w0 = load_plain(p, 0, type), w1 = load_plain(p, 1, type);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256 x = _mm256_set1_ps(rows[m].f32[k]);
            acc[m][0] = _mm256_fmadd_ps(w0, x, acc[m][0]);
            acc[m][1] = _mm256_fmadd_ps(w1, x, acc[m][1]);
        }
    }
    store_accs(acc, count, out);
}

/* One function for each format: a switch on the row count around constant bodies. */
#define PANEL_KERNEL(name, body, ...)                                                              \
    static void name(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,      \
                     uint32_t count, float out[MM_TILE][PANEL_ROWS]) {                             \
        switch (count) {                                                                           \
        case 1:                                                                                    \
            body(w, panel, rows, 1, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 2:                                                                                    \
            body(w, panel, rows, 2, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 3:                                                                                    \
            body(w, panel, rows, 3, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        default:                                                                                   \
            body(w, panel, rows, 4, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        }                                                                                          \
    }

#define FORMAT(...) ((struct format){__VA_ARGS__})

PANEL_KERNEL(panel_q4_0, nibble_panel, FORMAT(.half = true, .offset = 8))
PANEL_KERNEL(panel_q4_1, nibble_panel, FORMAT(.half = true, .has_min = true))
PANEL_KERNEL(panel_q4_k, nibble_panel, FORMAT(.has_min = true))
PANEL_KERNEL(panel_wide, byte_panel, FORMAT(.half = true, .is_signed = true, .groups = 1))
PANEL_KERNEL(panel_iq4_xs, byte_panel, FORMAT(.is_signed = true, .groups = 1))
PANEL_KERNEL(panel_q5_0, byte_panel,
             FORMAT(.half = true, .is_signed = true, .narrow = true, .groups = 1))
PANEL_KERNEL(panel_q5_1, byte_panel,
             FORMAT(.half = true, .has_min = true, .narrow = true, .groups = 1))
PANEL_KERNEL(panel_q5_k, byte_panel, FORMAT(.has_min = true, .narrow = true, .groups = 1))
PANEL_KERNEL(panel_signed16, byte_panel, FORMAT(.is_signed = true, .narrow = true, .groups = 2))
PANEL_KERNEL(panel_q2_k, byte_panel, FORMAT(.has_min = true, .narrow = true, .groups = 2))
PANEL_KERNEL(panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(panel_bf16, plain_panel, DTYPE_BF16)

mm_panel_fn *const avx2_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = panel_f32,       [DTYPE_F16] = panel_f16,       [DTYPE_BF16] = panel_bf16,
    [DTYPE_Q4_0] = panel_q4_0,     [DTYPE_Q4_1] = panel_q4_1,     [DTYPE_Q4_K] = panel_q4_k,
    [DTYPE_Q5_0] = panel_q5_0,     [DTYPE_Q5_1] = panel_q5_1,     [DTYPE_Q5_K] = panel_q5_k,
    [DTYPE_Q8_0] = panel_wide,     [DTYPE_IQ4_NL] = panel_wide,   [DTYPE_IQ4_XS] = panel_iq4_xs,
    [DTYPE_Q6_K] = panel_signed16, [DTYPE_Q3_K] = panel_signed16, [DTYPE_Q2_K] = panel_q2_k,
};
