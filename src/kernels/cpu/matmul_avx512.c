/* kernels/cpu/matmul_avx512.c - panels times a few rows of activations, AVX-512 with VNNI.
 *
 * A vector of weights holds the panel's 16 rows x 4 k; 4 activations of one row are broadcast
 * against it. vpdpbusd multiplies unsigned weights by signed activations and adds four products
 * into 32 bits, exactly. Weights that are signed go in as w + 128, and Q4_0's lie in memory as
 * w + 8; what that adds, the offset times the sum of the activations, is where a sum starts
 * from, with the sign turned:
 *
 *   one group in the block    offset x isum of the block, which the row carries
 *   two groups                the first half is summed here, the second is what is left of isum
 *
 * Each output element has one lane and one accumulator; the bits are those of the definition in
 * tensor/q8.h.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    NIBBLE_BYTES = PANEL_ROWS * Q8_BLOCK / 2,
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel: a vector */
    HALF_BLOCK = Q8_BLOCK / 2,
    AHEAD_BYTES = 3072, /* prefetch distance of a single row, that of AVX2 */
    SIGN_OFFSET = 128,  /* flipping the top bit of a signed byte adds this */
};

/* What a body needs to know about its format; always a constant. */
struct format {
    bool nibbles, half, has_min;
    int offset;      /* what the vectors hold more than the weights */
    uint32_t groups; /* in a block of 32; nibbles have one */
};

/* Where a tile stands: block b of the panel, the rows' activations of that block. */
struct tile {
    const struct mm_row *rows;
    const int8_t *q[MM_TILE];
    uint32_t b;
};

INLINE __m512i broadcast4(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

INLINE __m512i load_step(const uint8_t *p, int j) {
    return _mm512_loadu_si512((const void *)(p + j * STEP_BYTES));
}

/* Number 16 * i of an array of f16 or f32, and the fifteen after it. */
INLINE __m512 load_numbers(const uint8_t *array, uint32_t i, const bool half) {
    if (half)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(array + 32 * i)));
    return _mm512_loadu_ps((const float *)(const void *)(array + 64 * i));
}

INLINE void prefetch_ahead(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* SIGN_OFFSET times the sum of 16 activations, in every lane. */
INLINE __m512i half_offset(const int8_t *q) {
    const __m512i offset = _mm512_set1_epi8((char)SIGN_OFFSET);
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum = _mm512_dpbusd_epi32(sum, offset, broadcast4(q + 4 * j));
    return sum;
}

/* Where the sums of each group start from. */
INLINE void start_sums(const struct tile *t, const int count, const struct format f,
                       __m512i sums[2][MM_TILE]) {
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        sums[0][m] = sums[1][m] = _mm512_setzero_si512();
        if (f.offset == 0) continue;
        __m512i whole = _mm512_set1_epi32(-f.offset * t->rows[m].q8.isum[t->b]);
        __m512i half = f.groups == 2 ? half_offset(t->q[m]) : whole;
        sums[0][m] = f.groups == 2 ? _mm512_sub_epi32(sums[0][m], half) : whole;
        sums[1][m] = _mm512_add_epi32(whole, half);
    }
}

/* One vector of weights with the activations from `at` on. The empty asm statement keeps the
 * sums in their registers. */
INLINE void add_step(__m512i w, const struct tile *t, const int at, const int count,
                     __m512i sums[MM_TILE]) {
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        sums[m] = _mm512_dpbusd_epi32(sums[m], w, broadcast4(t->q[m] + at));
        __asm__("" : "+v"(sums[m]));
    }
}

INLINE void add_nibbles(const uint8_t *p, const struct tile *t, const int count,
                        __m512i sums[MM_TILE]) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i w = load_step(p, j);
        add_step(_mm512_and_si512(w, low), t, 4 * j, count, sums);
        w = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        add_step(w, t, HALF_BLOCK + 4 * j, count, sums);
    }
}

/* Group g of the block. */
INLINE void add_bytes(const uint8_t *p, const struct tile *t, const int count,
                      const struct format f, const uint32_t g, __m512i sums[MM_TILE]) {
    const __m512i flip = _mm512_set1_epi8((char)SIGN_OFFSET);
    const int steps = f.groups == 2 ? 4 : 8;
#pragma GCC unroll 8
    for (int j = (int)g * steps; j < ((int)g + 1) * steps; j++) {
        __m512i w = load_step(p, j);
        if (f.offset == SIGN_OFFSET) w = _mm512_xor_si512(w, flip);
        add_step(w, t, 4 * j, count, sums);
    }
}

/* acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
INLINE void add_scaled(const uint8_t *scales, const struct tile *t, const int count,
                       const struct format f, const uint32_t g, const __m512i sums[MM_TILE],
                       __m512 acc[MM_TILE]) {
    const __m512 scale = load_numbers(scales, g, f.half);
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(t->rows[m].q8.scale[t->b]));
        acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[m]), s, acc[m]);
    }
    if (!f.has_min) return;
    const __m512 min = load_numbers(scales, f.groups + g, f.half);
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        float dsum = f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g];
        acc[m] = _mm512_fmadd_ps(min, _mm512_set1_ps(dsum), acc[m]);
    }
}

INLINE void block_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t value_bytes = f.nibbles ? NIBBLE_BYTES : VALUE_BYTES;
    const uint32_t number_bytes = (f.half ? 2 : 4) * (f.has_min ? 2 : 1);
    const uint32_t step = value_bytes + f.groups * PANEL_ROWS * number_bytes;
    __m512 acc[MM_TILE];
    struct tile t = {.rows = rows};
    for (int m = 0; m < count; m++) {
        acc[m] = _mm512_setzero_ps();
        t.q[m] = rows[m].q8.q;
    }
    for (; t.b < w->cols / Q8_BLOCK; t.b++, p += step) {
        __m512i sums[2][MM_TILE];
        if (count == 1) prefetch_ahead(p, step);
        start_sums(&t, count, f, sums);
#pragma GCC unroll 2
        for (uint32_t g = 0; g < f.groups; g++) {
            if (f.nibbles)
                add_nibbles(p, &t, count, sums[g]);
            else
                add_bytes(p, &t, count, f, g, sums[g]);
            add_scaled(p + value_bytes, &t, count, f, g, sums[g], acc);
        }
        for (int m = 0; m < count; m++) t.q[m] += Q8_BLOCK;
    }
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) _mm512_storeu_ps(out[m], acc[m]);
}

/* The 16 values of one k of a plain panel. */
INLINE __m512 load_plain(const uint8_t *p, const enum dtype type) {
    if (type != DTYPE_BF16) return load_numbers(p, 0, type == DTYPE_F16);
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

INLINE void plain_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const enum dtype type, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t step = PANEL_ROWS * (type == DTYPE_F32 ? 4 : 2);
    __m512 acc[MM_TILE];
    for (int m = 0; m < count; m++) acc[m] = _mm512_setzero_ps();
    for (uint32_t k = 0; k < w->cols; k++, p += step) {
        if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
        __m512 values = load_plain(p, type);
#pragma GCC unroll 8
        for (int m = 0; m < count; m++)
            acc[m] = _mm512_fmadd_ps(values, _mm512_set1_ps(rows[m].f32[k]), acc[m]);
    }
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) _mm512_storeu_ps(out[m], acc[m]);
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
        case 4:                                                                                    \
            body(w, panel, rows, 4, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 5:                                                                                    \
            body(w, panel, rows, 5, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 6:                                                                                    \
            body(w, panel, rows, 6, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 7:                                                                                    \
            body(w, panel, rows, 7, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        default:                                                                                   \
            body(w, panel, rows, 8, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        }                                                                                          \
    }

#define FORMAT(...) ((struct format){__VA_ARGS__})

PANEL_KERNEL(panel_q4_0, block_panel,
             FORMAT(.nibbles = true, .half = true, .offset = 8, .groups = 1))
PANEL_KERNEL(panel_q4_1, block_panel,
             FORMAT(.nibbles = true, .half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q4_k, block_panel, FORMAT(.nibbles = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_signed, block_panel, FORMAT(.half = true, .offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_iq4_xs, block_panel, FORMAT(.offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_q5_1, block_panel, FORMAT(.half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q5_k, block_panel, FORMAT(.has_min = true, .groups = 1))
PANEL_KERNEL(panel_signed16, block_panel, FORMAT(.offset = SIGN_OFFSET, .groups = 2))
PANEL_KERNEL(panel_q2_k, block_panel, FORMAT(.has_min = true, .groups = 2))
PANEL_KERNEL(panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(panel_bf16, plain_panel, DTYPE_BF16)

mm_panel_fn *const avx512_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = panel_f32,       [DTYPE_F16] = panel_f16,       [DTYPE_BF16] = panel_bf16,
    [DTYPE_Q4_0] = panel_q4_0,     [DTYPE_Q4_1] = panel_q4_1,     [DTYPE_Q4_K] = panel_q4_k,
    [DTYPE_Q5_0] = panel_signed,   [DTYPE_Q5_1] = panel_q5_1,     [DTYPE_Q5_K] = panel_q5_k,
    [DTYPE_Q8_0] = panel_signed,   [DTYPE_IQ4_NL] = panel_signed, [DTYPE_IQ4_XS] = panel_iq4_xs,
    [DTYPE_Q6_K] = panel_signed16, [DTYPE_Q3_K] = panel_signed16, [DTYPE_Q2_K] = panel_q2_k,
};

const struct cpu_kernels cpu_kernels_avx512 = {AVX512_KERNELS};
