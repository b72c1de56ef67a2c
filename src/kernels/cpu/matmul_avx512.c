/* kernels/cpu/matmul_avx512.c - panels times a few rows of activations, AVX-512 with VNNI.
 *
 * A vector of weights holds the panel's 16 rows x 4 k; 4 activations of one row are broadcast
 * against it. vpdpbusd multiplies unsigned weights by signed activations and adds four products
 * into 32 bits, exactly. Weights that are signed go in as w + 128, Q4_0's lie in memory as w + 8
 * and Q6_K's as w + 32; what that adds, the offset times the sum of the activations, is where a
 * sum starts from, with the sign turned:
 *
 *   one group in the block    offset x isum of the block, which the row carries
 *   two groups                the first half is summed here, the second is what is left of isum;
 *                             of a superblock all halves are summed before its first block
 *
 * Each output element has one lane and one accumulator; the bits are those of the definition in
 * tensor/q8.h.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel: a vector */
    AHEAD_BYTES = 3072,          /* prefetch distance of a single row, that of AVX2 */
    SIGN_OFFSET = 128,           /* flipping the top bit of a signed byte adds this */
};

/* What a body needs to know about its format; always a constant. */
struct format {
    bool codes; /* nibbles and high bits; else signed or unsigned bytes */
    bool super; /* blocks lie in superblocks, and numbers are codes */
    bool half;  /* else: numbers are f16 */
    bool has_min;
    bool table;         /* codes are places in the format's table */
    uint32_t high_bits; /* of codes */
    int offset;         /* what the vectors hold more than the weights */
    uint32_t groups;    /* in a block of 32 */
};

/* A block of the panel. */
struct block {
    const uint8_t *values, *numbers;
    const uint8_t *super; /* the superblock that it is in */
    __m512i table;        /* with SIGN_OFFSET added */
};

/* Where a tile stands: block b of the panel, the rows' activations of that block. */
struct tile {
    const struct mm_row *rows;
    const int8_t *q[MM_TILE];
    uint32_t b;
    struct starts *starts;
};

/* Where the sums of a superblock's halves start from: every fourth number, in rising k. */
struct starts {
    int32_t of[MM_TILE][PACK_SUPER_BLOCKS * Q8_BLOCK / 4];
};

INLINE __m512i broadcast4(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

/* Step i of 8 of a block: the weights of 4 k, plus the format's offset. */
INLINE __m512i load_step(const struct block *at, const int i, const struct format f) {
    if (f.codes) {
        __m512i w = codes_step(at->values, i, f.high_bits);
        return f.table ? _mm512_shuffle_epi8(at->table, w) : w;
    }
    __m512i w = _mm512_loadu_si512((const void *)(at->values + i * STEP_BYTES));
    if (f.offset == 0) return w;
    return _mm512_xor_si512(w, _mm512_set1_epi8((char)SIGN_OFFSET));
}

/* Number 16 * i of an array of f16 or f32, and the fifteen after it. */
INLINE __m512 load_numbers(const uint8_t *array, uint32_t i, const bool half) {
    if (half) return codes_halves(array + 32 * i);
    return _mm512_loadu_ps((const float *)(const void *)(array + 64 * i));
}

/* Array i of a block's numbers: its scales, then its minima. */
INLINE __m512 block_numbers(const struct block *at, const uint32_t i, const struct format f) {
    if (!f.super) return load_numbers(at->numbers, i, f.half);
    return codes_numbers(at->numbers + i * PANEL_ROWS,
                         at->super + (i < f.groups ? 0 : PANEL_ROWS * 2));
}

INLINE void prefetch_ahead(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* `times` the sum of 16 activations, in every lane. */
INLINE __m512i half_offset(const int8_t *q, const int times) {
    const __m512i offset = _mm512_set1_epi8((char)times);
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum = _mm512_dpbusd_epi32(sum, offset, broadcast4(q + 4 * j));
    return sum;
}

/* A vector of 64 activations makes 16 sums of four, then of the 16 to which the four belong. */
INLINE void start_halves(const struct tile *t, const int count, const int offset) {
    const __m512i times = _mm512_set1_epi8((char)offset), zero = _mm512_setzero_si512();
    for (int m = 0; m < count; m++)
        for (int i = 0; i < PACK_SUPER_BLOCKS * Q8_BLOCK; i += 64) {
            __m512i q = _mm512_loadu_si512((const void *)(t->q[m] + i));
            __m512i sum = _mm512_dpbusd_epi32(zero, times, q);
            sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
            sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
            _mm512_storeu_si512((void *)(t->starts->of[m] + i / 4), _mm512_sub_epi32(zero, sum));
        }
}

/* Where the sums of each group start from. */
INLINE void start_sums(const struct tile *t, const int count, const struct format f,
                       __m512i sums[2][MM_TILE]) {
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        sums[0][m] = sums[1][m] = _mm512_setzero_si512();
        if (f.offset == 0) continue;
        if (f.super && f.groups == 2) {
            const int32_t *start = t->starts->of[m] + t->b % PACK_SUPER_BLOCKS * 8;
            sums[0][m] = _mm512_set1_epi32(start[0]);
            sums[1][m] = _mm512_set1_epi32(start[4]);
            continue;
        }
        __m512i whole = _mm512_set1_epi32(-f.offset * t->rows[m].q8.isum[t->b]);
        __m512i half = f.groups == 2 ? half_offset(t->q[m], f.offset) : whole;
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

/* Group g of the block. The two halves of nibbles follow each other where a group has both. */
INLINE void add_steps(const struct block *at, const struct tile *t, const int count,
                      const struct format f, const int g, __m512i sums[MM_TILE]) {
    const int steps = f.groups == 2 ? 4 : 8;
#pragma GCC unroll 8
    for (int n = 0; n < steps; n++) {
        int i = f.codes && steps == 8 ? n / 2 + n % 2 * 4 : g * steps + n;
        add_step(load_step(at, i, f), t, 4 * i, count, sums);
    }
}

/* acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
INLINE void add_scaled(const struct block *at, const struct tile *t, const int count,
                       const struct format f, const uint32_t g, const __m512i sums[MM_TILE],
                       __m512 acc[MM_TILE]) {
    const __m512 scale = block_numbers(at, g, f);
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(t->rows[m].q8.scale[t->b]));
        acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[m]), s, acc[m]);
    }
    if (!f.has_min) return;
    const __m512 min = block_numbers(at, f.groups + g, f);
#pragma GCC unroll 8
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        float dsum = f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g];
        acc[m] = _mm512_fmadd_ps(min, _mm512_set1_ps(dsum), acc[m]);
    }
}

/* The tile's block, and on to the next one. */
INLINE void add_block(const struct block *at, struct tile *t, const int count,
                      const struct format f, __m512 acc[MM_TILE]) {
    __m512i sums[2][MM_TILE];
    start_sums(t, count, f, sums);
#pragma GCC unroll 2
    for (uint32_t g = 0; g < f.groups; g++) {
        add_steps(at, t, count, f, (int)g, sums[g]);
        add_scaled(at, t, count, f, g, sums[g], acc);
    }
    for (int m = 0; m < count; m++) t->q[m] += Q8_BLOCK;
    t->b++;
}

INLINE void add_flat(const uint8_t *p, uint32_t blocks, struct tile *t, const int count,
                     const struct format f, struct block *at, __m512 acc[MM_TILE]) {
    const uint32_t value_bytes = f.codes ? PACK_NIBBLE_BYTES : VALUE_BYTES;
    const uint32_t number_bytes = (f.half ? 2 : 4) * (f.has_min ? 2 : 1);
    const uint32_t step = value_bytes + f.groups * PANEL_ROWS * number_bytes;
    for (; t->b < blocks; p += step) {
        if (count == 1) prefetch_ahead(p, step);
        at->values = p;
        at->numbers = p + value_bytes;
        add_block(at, t, count, f, acc);
    }
}

INLINE void add_supers(const uint8_t *p, uint32_t blocks, struct tile *t, const int count,
                       const struct format f, struct block *at, __m512 acc[MM_TILE]) {
    const struct pack_super s = pack_super(f.has_min, f.groups, f.high_bits);
    const uint32_t ahead = s.bytes / PACK_SUPER_BLOCKS;
    for (; t->b < blocks; p += s.bytes) {
        at->super = p;
        at->numbers = p + s.codes;
        at->values = p + s.values;
        if (f.groups == 2) start_halves(t, count, f.offset);
        for (uint32_t i = 0; i < PACK_SUPER_BLOCKS; i++) {
            if (count == 1) prefetch_ahead(p + i * ahead, ahead);
            add_block(at, t, count, f, acc);
            at->numbers += s.code_step;
            at->values += s.value_step;
        }
    }
}

INLINE void block_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    __m512 acc[MM_TILE];
    struct starts starts;
    struct tile t = {.rows = rows, .starts = &starts};
    struct block at = {.table = _mm512_set1_epi8((char)SIGN_OFFSET)};
    if (f.table) at.table = _mm512_xor_si512(at.table, codes_table(w->type));
    for (int m = 0; m < count; m++) {
        acc[m] = _mm512_setzero_ps();
        t.q[m] = rows[m].q8.q;
    }
    if (f.super)
        add_supers(p, w->cols / Q8_BLOCK, &t, count, f, &at, acc);
    else
        add_flat(p, w->cols / Q8_BLOCK, &t, count, f, &at, acc);
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

#define SUPER(...) ((struct format){.super = true, .codes = true, __VA_ARGS__})

PANEL_KERNEL(panel_q4_0, block_panel, FORMAT(.codes = true, .half = true, .offset = 8, .groups = 1))
PANEL_KERNEL(panel_q4_1, block_panel,
             FORMAT(.codes = true, .half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q5_1, block_panel, FORMAT(.half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_signed, block_panel, FORMAT(.half = true, .offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_q2_k, block_panel, FORMAT(.has_min = true, .groups = 2))
PANEL_KERNEL(panel_q3_k, block_panel, FORMAT(.offset = SIGN_OFFSET, .groups = 2))
PANEL_KERNEL(panel_q4_k, block_panel, SUPER(.has_min = true, .groups = 1))
PANEL_KERNEL(panel_q5_k, block_panel, SUPER(.has_min = true, .high_bits = 1, .groups = 1))
PANEL_KERNEL(panel_q6_k, block_panel, SUPER(.high_bits = 2, .offset = 32, .groups = 2))
PANEL_KERNEL(panel_iq4_nl, block_panel,
             FORMAT(.codes = true, .table = true, .half = true, .offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_iq4_xs, block_panel, SUPER(.table = true, .offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(panel_bf16, plain_panel, DTYPE_BF16)

mm_panel_fn *const avx512_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = panel_f32,     [DTYPE_F16] = panel_f16,       [DTYPE_BF16] = panel_bf16,
    [DTYPE_Q4_0] = panel_q4_0,   [DTYPE_Q4_1] = panel_q4_1,     [DTYPE_Q4_K] = panel_q4_k,
    [DTYPE_Q5_0] = panel_signed, [DTYPE_Q5_1] = panel_q5_1,     [DTYPE_Q5_K] = panel_q5_k,
    [DTYPE_Q8_0] = panel_signed, [DTYPE_IQ4_NL] = panel_iq4_nl, [DTYPE_IQ4_XS] = panel_iq4_xs,
    [DTYPE_Q6_K] = panel_q6_k,   [DTYPE_Q3_K] = panel_q3_k,     [DTYPE_Q2_K] = panel_q2_k,
};

const struct cpu_kernels cpu_kernels_avx512 = {AVX512_KERNELS};
