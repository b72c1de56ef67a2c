/* kernels/cpu/matmul_avx512.c - panels times a few rows of activations, AVX-512 with VNNI.
 *
 * A vector of weights holds the panel's 16 rows x 4 k; 4 activations of one row are broadcast
 * against it. vpdpbusd multiplies unsigned weights by signed activations and adds four products
 * into 32 bits, exactly. Weights that are signed go in as w + 128, Q4_0's lie in memory as w + 8
 * and Q6_K's as w + 32; what that adds, the offset times the sum of the activations, is where a
 * sum starts from, with the sign turned:
 *
 *   one group in the block    offset x isum of the block, which the row carries
 *   two groups                all halves of eight blocks are summed before the first of them
 *
 * The processor loads, or broadcasts, once for each multiplication at most, and what makes bytes of
 * codes takes its time too: many rows use two panels at a time, four rows each, so that a
 * broadcast serves two multiplications and a vector of weights four.
 *
 * Each output element has one lane and one accumulator; the bits are those of the definition in
 * tensor/q8.h.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/kernels_avx512.h"
#include "kernels/cpu/panel_kernel.h"
#include "tensor/fp8.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel: a vector */
    AHEAD_BYTES = 3072,          /* prefetch distance of a single row, that of AVX2 */
    FAR_AHEAD_BYTES = 12288,     /* that of more, into the second-level cache */
    SIGN_OFFSET = 128,           /* flipping the top bit of a signed byte adds this */
};

/* What a body needs to know about its format; always a constant. */
struct format {
    bool codes; /* nibbles and high bits; else signed or unsigned bytes */
    bool super; /* blocks lie in superblocks, and numbers are codes */
    bool half;  /* else: numbers are f16 */
    bool has_min;
    bool zero;          /* minima are zero points, behind f16 scales */
    bool table;         /* codes are places in the format's table */
    uint32_t high_bits; /* of codes */
    int offset;         /* what the vectors hold more than the weights */
    uint32_t groups;    /* in a block of 32 */
};

/* A block of a panel. */
struct block {
    const uint8_t *values, *numbers;
    const uint8_t *super; /* the superblock that it is in */
};

/* Where a tile stands: block b of `panels` panels, and `count` rows' activations of that block. */
struct tile {
    __m512i table; /* with SIGN_OFFSET added */
    const struct mm_row *rows;
    const int8_t *q[MM_TILE];
    struct block at[MM_PAIR];
    size_t panel_bytes;
    struct starts *starts;
    uint32_t b;
};

/* Where the sums of a superblock's halves start from: four times each, in rising k. Formats with
 * two groups in a block come in superblocks, packed so or not. */
struct starts {
    int32_t of[MM_TILE][PACK_SUPER_BLOCKS * Q8_BLOCK / 4];
};

INLINE __m512i broadcast4(const void *p) {
    int32_t quad;
    memcpy(&quad, p, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

/* Step i of 8 of a block: the weights of 4 k, plus the format's offset. */
INLINE __m512i load_step(const struct block *at, const int i, const struct format f,
                         __m512i table) {
    if (f.codes) {
        __m512i w = codes_step(at->values, i, f.high_bits);
        return f.table ? _mm512_shuffle_epi8(table, w) : w;
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

/* A single row streams past the weights. More rows read them several times, so they need only
 * come as near as the second-level cache, the next panels with them. The processor by itself looks
 * far enough ahead in bytes that few rows read. */
INLINE void prefetch_ahead(const uint8_t *p, uint32_t bytes, const int panels, const int count,
                           const struct format f) {
    for (uint32_t i = 0; i < bytes; i += 64) {
        if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
        if (panels > 1 || (count > 1 && f.codes))
            _mm_prefetch((const char *)p + FAR_AHEAD_BYTES + i, _MM_HINT_T1);
    }
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

/* Where the sum of row m and group g starts from. */
INLINE __m512i start_of(const struct tile *t, const int m, const uint32_t g,
                        const struct format f) {
    if (f.offset == 0) return _mm512_setzero_si512();
    if (f.groups == 1) return _mm512_set1_epi32(-f.offset * t->rows[m].q8.isum[t->b]);
    return broadcast4(t->starts->of[m] + t->b % PACK_SUPER_BLOCKS * 8 + 4 * g);
}

/* Step i of all panels with the activations of all rows. Two panels share a broadcast, which one
 * leaves to the multiplication. The empty asm statements keep vectors in their registers. */
INLINE void add_step(const struct tile *t, const int i, const int panels, const int count,
                     const struct format f, __m512i sums[MM_PAIR][MM_TILE]) {
    __m512i w[MM_PAIR];
#pragma GCC unroll 2
    for (int k = 0; k < panels; k++) w[k] = load_step(&t->at[k], i, f, t->table);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        __m512i x = broadcast4(t->q[m] + 4 * (size_t)i);
        if (panels > 1) __asm__("" : "+v"(x));
#pragma GCC unroll 2
        for (int k = 0; k < panels; k++) {
            sums[k][m] = _mm512_dpbusd_epi32(sums[k][m], w[k], x);
            __asm__("" : "+v"(sums[k][m]));
        }
    }
}

/* The integer sums of group g. The two halves of nibbles follow each other where a group has
 * both. */
INLINE void sum_group(const struct tile *t, const uint32_t g, const int panels, const int count,
                      const struct format f, __m512i sums[MM_PAIR][MM_TILE]) {
    const int steps = f.groups == 2 ? 4 : 8;
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 2
        for (int k = 0; k < panels; k++) sums[k][m] = start_of(t, m, g, f);
#pragma GCC unroll 8
    for (int n = 0; n < steps; n++) {
        int i = f.codes && steps == 8 ? n / 2 + n % 2 * 4 : (int)g * steps + n;
        add_step(t, i, panels, count, f, sums);
    }
}

/* acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
INLINE void add_scaled(const struct tile *t, const uint32_t g, const int panels, const int count,
                       const struct format f, const __m512i sums[MM_PAIR][MM_TILE],
                       __m512 acc[MM_PAIR][MM_TILE]) {
    __m512 scale[MM_PAIR], min[MM_PAIR];
#pragma GCC unroll 2
    for (int k = 0; k < panels; k++) {
        scale[k] = block_numbers(&t->at[k], g, f);
        if (f.zero)
            min[k] = codes_minima(t->at[k].numbers + 2 * PANEL_ROWS, scale[k]);
        else if (f.has_min)
            min[k] = block_numbers(&t->at[k], f.groups + g, f);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        __m512 row_scale = _mm512_set1_ps(x->scale[t->b]);
        __m512 dsum = _mm512_set1_ps(f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g]);
#pragma GCC unroll 2
        for (int k = 0; k < panels; k++) {
            __m512 s = _mm512_mul_ps(scale[k], row_scale);
            acc[k][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[k][m]), s, acc[k][m]);
            if (f.has_min) acc[k][m] = _mm512_fmadd_ps(min[k], dsum, acc[k][m]);
        }
    }
}

/* The tile's block, and on to the next one. */
INLINE void add_block(struct tile *t, const int panels, const int count, const struct format f,
                      __m512 acc[MM_PAIR][MM_TILE]) {
    __m512i sums[MM_PAIR][MM_TILE];
#pragma GCC unroll 2
    for (uint32_t g = 0; g < f.groups; g++) {
        sum_group(t, g, panels, count, f, sums);
        add_scaled(t, g, panels, count, f, (const __m512i(*)[MM_TILE])sums, acc);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) t->q[m] += Q8_BLOCK;
    t->b++;
}

INLINE void add_flat(const uint8_t *p, uint32_t blocks, struct tile *t, const int panels,
                     const int count, const struct format f, __m512 acc[MM_PAIR][MM_TILE]) {
    const uint32_t value_bytes = f.codes ? PACK_NIBBLE_BYTES : VALUE_BYTES;
    const uint32_t number_bytes = f.zero ? 3 : (f.half ? 2 : 4) * (f.has_min ? 2 : 1);
    const uint32_t step = value_bytes + f.groups * PANEL_ROWS * number_bytes;
    for (; t->b < blocks; p += step) {
        if (f.groups == 2 && f.offset != 0 && t->b % PACK_SUPER_BLOCKS == 0)
            start_halves(t, count, f.offset);
#pragma GCC unroll 2
        for (int k = 0; k < panels; k++) {
            const uint8_t *values = p + (size_t)k * t->panel_bytes;
            prefetch_ahead(values, step, panels, count, f);
            t->at[k] = (struct block){.values = values, .numbers = values + value_bytes};
        }
        add_block(t, panels, count, f, acc);
    }
}

INLINE void add_supers(const uint8_t *p, uint32_t blocks, struct tile *t, const int panels,
                       const int count, const struct format f, __m512 acc[MM_PAIR][MM_TILE]) {
    const struct pack_super s = pack_super(f.has_min, f.groups, f.high_bits);
    const uint32_t ahead = s.bytes / PACK_SUPER_BLOCKS;
    for (; t->b < blocks; p += s.bytes) {
        if (f.groups == 2 && f.offset != 0) start_halves(t, count, f.offset);
        for (uint32_t i = 0; i < PACK_SUPER_BLOCKS; i++) {
#pragma GCC unroll 2
            for (int k = 0; k < panels; k++) {
                const uint8_t *super = p + (size_t)k * t->panel_bytes;
                prefetch_ahead(super + i * ahead, ahead, panels, count, f);
                t->at[k] = (struct block){super + s.values + i * s.value_step,
                                          super + s.codes + i * s.code_step, super};
            }
            add_block(t, panels, count, f, acc);
        }
    }
}

/* All blocks of the panels. */
INLINE void add_blocks(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                       const int panels, const int count, const struct format f,
                       __m512 acc[MM_PAIR][MM_TILE]) {
    struct starts starts;
    struct tile t; /* not cleared as a whole, which would take as long as a block */
    t.rows = rows;
    t.b = 0;
    t.panel_bytes = w->panel_bytes;
    t.starts = &starts;
    t.table = _mm512_set1_epi8((char)SIGN_OFFSET);
    if (f.table) t.table = _mm512_xor_si512(t.table, codes_table(w->type));
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
#pragma GCC unroll 2
        for (int k = 0; k < panels; k++) acc[k][m] = _mm512_setzero_ps();
        t.q[m] = rows[m].q8.q;
    }
    if (f.super)
        add_supers(p, w->cols / Q8_BLOCK, &t, panels, count, f, acc);
    else
        add_flat(p, w->cols / Q8_BLOCK, &t, panels, count, f, acc);
}

INLINE void block_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    __m512 acc[MM_PAIR][MM_TILE];
    add_blocks(w, p, rows, 1, count, f, acc);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) _mm512_storeu_ps(out[m], acc[0][m]);
}

INLINE void block_pair(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                       const struct format f, const struct mm_sink *to) {
    __m512 acc[MM_PAIR][MM_TILE];
    add_blocks(w, p, rows, MM_PAIR, MM_TILE, f, acc);
#pragma GCC unroll 4
    for (int m = 0; m < MM_TILE; m++)
#pragma GCC unroll 2
        for (int k = 0; k < MM_PAIR; k++) {
            float *at = to->rows[m] + to->col + (size_t)k * PANEL_ROWS;
            __m512 y = acc[k][m];
            if (to->bias) y = _mm512_add_ps(y, _mm512_loadu_ps(to->bias + (size_t)k * PANEL_ROWS));
            if (to->add) y = _mm512_add_ps(y, _mm512_loadu_ps(at));
            _mm512_storeu_ps(at, y);
        }
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
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            acc[m] = _mm512_fmadd_ps(values, _mm512_set1_ps(rows[m].f32[k]), acc[m]);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) _mm512_storeu_ps(out[m], acc[m]);
}

/* Sixteen codes of e4m3 times their rows' scales. As an f16 a code has the number without a factor,
 * which the scales have instead: a power of two, so the product is rounded once. */
INLINE __m512 load_f8(const uint8_t *p, __m512 scale) {
    __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
    __m256i size = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, size)), scale);
}

INLINE void f8_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                     const int count, const enum dtype type, float out[MM_TILE][PANEL_ROWS]) {
    __m512 acc[MM_TILE];
    (void)type;
    for (int m = 0; m < count; m++) acc[m] = _mm512_setzero_ps();
    for (uint32_t k = 0; k < w->cols;) {
        __m512 scale = _mm512_mul_ps(load_numbers(p, 0, false), _mm512_set1_ps(FP8_HALF_FACTOR));
        p += PACK_F8_SCALE_BYTES;
        for (uint32_t end = k + F8_RUN; k < end && k < w->cols; k++, p += PANEL_ROWS) {
            if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
            __m512 values = load_f8(p, scale);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                acc[m] = _mm512_fmadd_ps(values, _mm512_set1_ps(rows[m].f32[k]), acc[m]);
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) _mm512_storeu_ps(out[m], acc[m]);
}

/* One function for a panel of a quantised format, and one for two. */
#define BLOCK_KERNELS(name, ...)                                                                   \
    PANEL_KERNEL(name, block_panel, __VA_ARGS__)                                                   \
    PAIR_KERNEL(name, block_pair, __VA_ARGS__)

#define FORMAT(...) ((struct format){__VA_ARGS__})

#define SUPER(...) ((struct format){.super = true, .codes = true, __VA_ARGS__})

static mm_panel_fn panel_q4_0, panel_q4_1, panel_q5_1, panel_signed, panel_q2_k, panel_q3_k,
    panel_q4_k, panel_q5_k, panel_q6_k, panel_iq4_nl, panel_iq4_xs, panel_int4, panel_int8,
    panel_int8_z, panel_table4, panel_f32, panel_f16, panel_bf16, panel_f8;

BLOCK_KERNELS(panel_q4_0, FORMAT(.codes = true, .half = true, .offset = 8, .groups = 1))
BLOCK_KERNELS(panel_q4_1, FORMAT(.codes = true, .half = true, .has_min = true, .groups = 1))
BLOCK_KERNELS(panel_q5_1, FORMAT(.half = true, .has_min = true, .groups = 1))
BLOCK_KERNELS(panel_signed, FORMAT(.half = true, .offset = SIGN_OFFSET, .groups = 1))
BLOCK_KERNELS(panel_q2_k, FORMAT(.has_min = true, .groups = 2))
BLOCK_KERNELS(panel_q3_k, FORMAT(.offset = SIGN_OFFSET, .groups = 2))
BLOCK_KERNELS(panel_q4_k, SUPER(.has_min = true, .groups = 1))
BLOCK_KERNELS(panel_q5_k, SUPER(.has_min = true, .high_bits = 1, .groups = 1))
BLOCK_KERNELS(panel_q6_k, SUPER(.high_bits = 2, .offset = 32, .groups = 2))
BLOCK_KERNELS(panel_iq4_nl, FORMAT(.codes = true, .table = true, .half = true,
                                   .offset = SIGN_OFFSET, .groups = 1))
BLOCK_KERNELS(panel_iq4_xs, SUPER(.table = true, .offset = SIGN_OFFSET, .groups = 1))
BLOCK_KERNELS(panel_int4,
              FORMAT(.codes = true, .half = true, .has_min = true, .zero = true, .groups = 1))
BLOCK_KERNELS(panel_int8, FORMAT(.offset = SIGN_OFFSET, .groups = 1))
BLOCK_KERNELS(panel_int8_z, FORMAT(.has_min = true, .offset = SIGN_OFFSET, .groups = 1))
BLOCK_KERNELS(panel_table4,
              FORMAT(.codes = true, .table = true, .offset = SIGN_OFFSET, .groups = 1))
PANEL_KERNEL(panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(panel_bf16, plain_panel, DTYPE_BF16)
PANEL_KERNEL(panel_f8, f8_panel, DTYPE_F8)

mm_panel_fn *const avx512_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = panel_f32,     [DTYPE_F16] = panel_f16,       [DTYPE_BF16] = panel_bf16,
    [DTYPE_Q4_0] = panel_q4_0,   [DTYPE_Q4_1] = panel_q4_1,     [DTYPE_Q4_K] = panel_q4_k,
    [DTYPE_Q5_0] = panel_signed, [DTYPE_Q5_1] = panel_q5_1,     [DTYPE_Q5_K] = panel_q5_k,
    [DTYPE_Q8_0] = panel_signed, [DTYPE_IQ4_NL] = panel_iq4_nl, [DTYPE_IQ4_XS] = panel_iq4_xs,
    [DTYPE_Q6_K] = panel_q6_k,   [DTYPE_Q3_K] = panel_q3_k,     [DTYPE_Q2_K] = panel_q2_k,
    [DTYPE_INT4] = panel_int4,   [DTYPE_INT8] = panel_int8,     [DTYPE_INT8_Z] = panel_int8_z,
    [DTYPE_NF4] = panel_table4,  [DTYPE_FP4] = panel_table4,    [DTYPE_F8] = panel_f8,
};

static mm_pair_fn *const pairs[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = panel_q4_0_pair,     [DTYPE_Q4_1] = panel_q4_1_pair,
    [DTYPE_Q4_K] = panel_q4_k_pair,     [DTYPE_Q5_0] = panel_signed_pair,
    [DTYPE_Q5_1] = panel_q5_1_pair,     [DTYPE_Q5_K] = panel_q5_k_pair,
    [DTYPE_Q8_0] = panel_signed_pair,   [DTYPE_IQ4_NL] = panel_iq4_nl_pair,
    [DTYPE_IQ4_XS] = panel_iq4_xs_pair, [DTYPE_Q6_K] = panel_q6_k_pair,
    [DTYPE_Q3_K] = panel_q3_k_pair,     [DTYPE_Q2_K] = panel_q2_k_pair,
    [DTYPE_INT4] = panel_int4_pair,     [DTYPE_INT8] = panel_int8_pair,
    [DTYPE_INT8_Z] = panel_int8_z_pair, [DTYPE_NF4] = panel_table4_pair,
    [DTYPE_FP4] = panel_table4_pair,
};

const struct mm_pairs avx512_pairs = {
    .rows_min = 2 * MM_TILE,
    .pair = pairs,
};

const struct cpu_kernels cpu_kernels_avx512 = {AVX512_KERNELS};
