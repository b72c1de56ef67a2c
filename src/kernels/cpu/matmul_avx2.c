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
 * Codes become bytes on their way from the panel: a nibble, its high bits shifted into place, 32
 * less for Q6_K, a table for IQ4. Where that is much, many rows share it: the panel is opened
 * once, to bytes with float scales, and goes through the kernels of bytes.
 *
 * Every body is written once with its format as constant arguments and instantiated for each
 * format and row count. The empty asm statements keep gcc 12 from reordering the sums, which
 * makes it spill them: without, the tile of four rows runs at half the speed.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/panel_kernel.h"
#include "tensor/fp8.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    TILE = 4, /* rows; more spill */
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel */
    HALVES = 2,                  /* a panel is two vectors of 8 rows */
    LANES = 8,
    AHEAD_BYTES = 3072,      /* prefetch distance of a single row; shorter ones measured worse */
    FAR_AHEAD_BYTES = 12288, /* that of more, into the second-level cache */
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

/* How values lie in a block: NIBBLES are multiplied as they are, CODES become bytes first. */
enum values { BYTES, NIBBLES, CODES };

/* What a body needs to know about its format; always a constant. */
struct format {
    enum values values;
    bool super; /* blocks lie in superblocks, and numbers are codes */
    bool half;  /* else: numbers are f16 */
    bool has_min;
    bool zero;              /* minima are zero points, behind f16 scales */
    bool is_signed, narrow; /* not nibbles */
    bool table;             /* codes only: places in the format's table */
    uint32_t high_bits;     /* codes only */
    int offset;             /* nibbles and codes: what they hold more than the weights */
    uint32_t groups;        /* in a block of 32 */
};

/* A single row streams past the weights. More rows read them several times, so they need only
 * come as near as the second-level cache. The processor by itself looks far enough ahead in
 * bytes. */
INLINE void prefetch_ahead(const uint8_t *p, uint32_t bytes, const int count,
                           const struct format f) {
    for (uint32_t i = 0; i < bytes; i += 64) {
        if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
        if (count > 1 && f.values != BYTES)
            _mm_prefetch((const char *)p + FAR_AHEAD_BYTES + i, _MM_HINT_T1);
    }
}

/* A block of the panel. */
struct block {
    const uint8_t *values, *numbers;
    const uint8_t *super; /* the superblock that it is in */
    __m256i table;
};

/* Where a tile stands: block b of the panel, the rows' activations of that block. */
struct tile {
    const struct mm_row *rows;
    const int8_t *q[TILE];
    uint32_t b;
};

/* What the codes of a format with a table stand for, twice. */
INLINE __m256i load_table(enum dtype type, const struct format f) {
    if (!f.table) return _mm256_setzero_si256();
    const void *values = dtype_code_values(type);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)values));
}

/* Eight int8 in 32 bits each. */
INLINE __m256i load_eight(const uint8_t *bytes) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
}

/* Numbers 8 * h .. 8 * h + 7 of array i of a block: its scales, then its minima. */
INLINE __m256 block_numbers(const struct block *at, const uint32_t i, const int h,
                            const struct format f) {
    if (!f.super) return load_numbers(at->numbers, HALVES * (int)i + h, f.half);
    __m256i code = load_eight(at->numbers + i * PANEL_ROWS + LANES * h);
    __m256 unit = load_numbers(at->super, (i < f.groups ? 0 : HALVES) + h, true);
    return _mm256_mul_ps(unit, _mm256_cvtepi32_ps(code));
}

/* Minima 8 * h .. 8 * h + 7: zero points times scales with the sign turned. */
INLINE __m256 zero_minima(const struct block *at, const int h, __m256 scale) {
    __m256i zero = load_eight(at->numbers + 2 * PANEL_ROWS + LANES * h);
    return _mm256_mul_ps(_mm256_xor_ps(scale, _mm256_set1_ps(-0.0f)), _mm256_cvtepi32_ps(zero));
}

/* Bits move left by `by`, or right; what crosses a byte is masked away later. */
INLINE __m256i move_bits(__m256i v, const int by) {
    if (by == 0) return v;
    return by > 0 ? _mm256_slli_epi16(v, by) : _mm256_srli_epi16(v, -by);
}

INLINE __m256i load32(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Step i of 8 of a block for half h of the panel: the weights of 4 k. */
INLINE __m256i load_step(const struct block *at, const int h, const int i, const struct format f) {
    const int skip = 32 * h;
    if (f.values == BYTES) return load32(at->values + i * STEP_BYTES + skip);
    __m256i w = move_bits(load32(at->values + i % 4 * STEP_BYTES + skip), i < 4 ? 0 : -4);
    w = _mm256_and_si256(w, _mm256_set1_epi8(15));
    if (f.table) return _mm256_shuffle_epi8(at->table, w);
    if (f.high_bits == 0) return w;
    const int steps = f.high_bits == 1 ? 8 : 4, by = 4 - i % steps * (int)f.high_bits;
    const __m256i mask = _mm256_set1_epi8(f.high_bits == 1 ? 0x10 : 0x30);
    __m256i high = load32(at->values + PACK_NIBBLE_BYTES + i / steps * PACK_HIGH_BYTES + skip);
    w = _mm256_or_si256(w, _mm256_and_si256(move_bits(high, by), mask));
    return f.offset ? _mm256_sub_epi8(w, _mm256_set1_epi8((char)f.offset)) : w;
}

INLINE bool is_wide(const struct format f) { return f.values != NIBBLES && !f.narrow; }

/* The products of one step: w is the weights of half h, x the activations. */
INLINE __m256i byte_product(__m256i w, __m256i x, const struct format f) {
    if (f.values == NIBBLES || !f.is_signed) return _mm256_maddubs_epi16(w, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* The sums of `steps` steps from `first` on: in 16 bits, or each widened to 32. Both halves of the
 * panel use an activation that was broadcast once. */
INLINE void sum_steps(const struct block *at, const struct tile *t, const int first,
                      const int steps, const int count, const struct format f,
                      __m256i sums[TILE][HALVES]) {
#pragma GCC unroll 8
    for (int n = 0; n < steps; n++) {
        /* The nibbles of a byte follow each other. */
        const int i = f.values == NIBBLES ? n / 2 + n % 2 * 4 : first + n;
        __m256i w[HALVES];
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) w[h] = load_step(at, h, i, f);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m256i x = broadcast4(t->q[m] + 4 * i);
            __asm__("" : "+x"(x));
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; h++) {
                __m256i y = byte_product(w[h], x, f), sum = sums[m][h];
                if (is_wide(f)) y = _mm256_madd_epi16(y, _mm256_set1_epi16(1));
                if (n > 0) y = is_wide(f) ? _mm256_add_epi32(sum, y) : _mm256_add_epi16(sum, y);
                __asm__("" : "+x"(y));
                sums[m][h] = y;
            }
        }
    }
}

/* Group g of the block, exact in 32 bits. One group: all 8 steps; two: 4 each. */
INLINE void sum_group(const struct block *at, const struct tile *t, const uint32_t g,
                      const int count, const struct format f, __m256i sums[TILE][HALVES]) {
    const int all = 8 / (int)f.groups, first = (int)g * all, steps = f.narrow ? 4 : all;
    __m256i some[TILE][HALVES];
#pragma GCC unroll 2
    for (int n = 0; n < all; n += steps) {
        sum_steps(at, t, first + n, steps, count, f, some);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; h++) {
                __m256i y = some[m][h];
                if (!is_wide(f)) y = _mm256_madd_epi16(y, _mm256_set1_epi16(1));
                sums[m][h] = n == 0 ? y : _mm256_add_epi32(sums[m][h], y);
            }
    }
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

/* Group g of the tile's block. */
INLINE void add_group(const struct block *at, const struct tile *t, const uint32_t g,
                      const int count, const struct format f, __m256 acc[TILE][HALVES]) {
    __m256i sums[TILE][HALVES];
    __m256 scale[HALVES], min[HALVES];
    sum_group(at, t, g, count, f, sums);
#pragma GCC unroll 2
    for (int h = 0; h < HALVES; h++) {
        scale[h] = block_numbers(at, g, h, f);
        if (f.zero)
            min[h] = zero_minima(at, h, scale[h]);
        else if (f.has_min)
            min[h] = block_numbers(at, f.groups + g, h, f);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        const __m256 dsum = _mm256_set1_ps(f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g]);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i sum = sums[m][h];
            if (f.values == NIBBLES && f.offset)
                sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(f.offset * x->isum[t->b]));
            acc[m][h] = add_scaled(acc[m][h], sum, scale[h], x->scale[t->b]);
            if (f.has_min) acc[m][h] = _mm256_fmadd_ps(min[h], dsum, acc[m][h]);
        }
    }
}

/* The tile's block, and on to the next one. */
INLINE void add_block(const struct block *at, struct tile *t, const int count,
                      const struct format f, __m256 acc[TILE][HALVES]) {
#pragma GCC unroll 2
    for (uint32_t g = 0; g < f.groups; g++) add_group(at, t, g, count, f, acc);
    for (int m = 0; m < count; m++) t->q[m] += Q8_BLOCK;
    t->b++;
}

INLINE void add_flat(const uint8_t *p, uint32_t blocks, struct tile *t, const int count,
                     const struct format f, struct block *at, __m256 acc[TILE][HALVES]) {
    const uint32_t value_bytes = f.values == BYTES ? VALUE_BYTES : PACK_NIBBLE_BYTES;
    const uint32_t number_bytes = f.zero ? 3 : (f.half ? 2 : 4) * (f.has_min ? 2 : 1);
    const uint32_t step = value_bytes + f.groups * PANEL_ROWS * number_bytes;
    for (; t->b < blocks; p += step) {
        prefetch_ahead(p, step, count, f);
        at->values = p;
        at->numbers = p + value_bytes;
        add_block(at, t, count, f, acc);
    }
}

INLINE void add_supers(const uint8_t *p, uint32_t blocks, struct tile *t, const int count,
                       const struct format f, struct block *at, __m256 acc[TILE][HALVES]) {
    const struct pack_super s = pack_super(f.has_min, f.groups, f.high_bits);
    const uint32_t ahead = s.bytes / PACK_SUPER_BLOCKS;
    for (; t->b < blocks; p += s.bytes) {
        at->super = p;
        at->numbers = p + s.codes;
        at->values = p + s.values;
        for (uint32_t i = 0; i < PACK_SUPER_BLOCKS; i++) {
            prefetch_ahead(p + i * ahead, ahead, count, f);
            add_block(at, t, count, f, acc);
            at->numbers += s.code_step;
            at->values += s.value_step;
        }
    }
}

INLINE void add_blocks(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                       const int count, const struct format f, __m256 acc[TILE][HALVES]) {
    struct tile t = {.rows = rows};
    struct block at = {.table = load_table(w->type, f)};
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        acc[m][0] = acc[m][1] = _mm256_setzero_ps();
        t.q[m] = rows[m].q8.q;
    }
    if (f.super)
        add_supers(p, w->cols / Q8_BLOCK, &t, count, f, &at, acc);
    else
        add_flat(p, w->cols / Q8_BLOCK, &t, count, f, &at, acc);
}

INLINE void block_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                        const int count, const struct format f, float out[MM_TILE][PANEL_ROWS]) {
    __m256 acc[TILE][HALVES];
    add_blocks(w, p, rows, count, f, acc);
    store_accs(acc, count, out);
}

/* One panel after the other: there are no registers for two at once. */
INLINE void block_pair(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                       const struct format f, const struct mm_sink *to) {
    for (size_t k = 0; k < MM_PAIR; k++) {
        __m256 acc[TILE][HALVES];
        add_blocks(w, p + k * w->panel_bytes, rows, TILE, f, acc);
        for (int m = 0; m < TILE; m++)
            for (int h = 0; h < HALVES; h++) {
                size_t col = k * PANEL_ROWS + (size_t)h * LANES;
                float *at = to->rows[m] + to->col + col;
                __m256 y = acc[m][h];
                if (to->bias) y = _mm256_add_ps(y, _mm256_loadu_ps(to->bias + col));
                if (to->add) y = _mm256_add_ps(y, _mm256_loadu_ps(at));
                _mm256_storeu_ps(at, y);
            }
    }
}

/* A block as PACK_BYTES with f32 numbers. Returns where the next one goes. */
INLINE uint8_t *open_block(const struct block *at, const struct format f, uint8_t *to) {
    const uint32_t arrays = f.groups * (f.has_min ? 2 : 1);
#pragma GCC unroll 8
    for (int i = 0; i < Q8_BLOCK / 4; i++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++)
            _mm256_storeu_si256((__m256i *)(void *)(to + i * STEP_BYTES + 32 * h),
                                load_step(at, h, i, f));
    float *numbers = (float *)(void *)(to + VALUE_BYTES);
    for (uint32_t i = 0; i < arrays; i++)
        for (int h = 0; h < HALVES; h++)
            _mm256_storeu_ps(numbers + i * PANEL_ROWS + LANES * h, block_numbers(at, i, h, f));
    return to + VALUE_BYTES + arrays * PANEL_ROWS * sizeof(float);
}

INLINE void open_supers(const struct packed *w, const uint8_t *p, const struct format f,
                        uint8_t *to) {
    const struct pack_super s = pack_super(f.has_min, f.groups, f.high_bits);
    struct block at = {.table = load_table(w->type, f)};
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b += PACK_SUPER_BLOCKS, p += s.bytes) {
        at.super = p;
        for (uint32_t i = 0; i < PACK_SUPER_BLOCKS; i++) {
            at.numbers = p + s.codes + i * s.code_step;
            at.values = p + s.values + i * s.value_step;
            to = open_block(&at, f, to);
        }
    }
}

INLINE void open_flat(const struct packed *w, const uint8_t *p, const struct format f,
                      uint8_t *to) {
    const uint32_t step = pack_info(w->type).step_bytes;
    struct block at = {.table = load_table(w->type, f)};
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++, p += step) {
        at.values = p;
        at.numbers = p + PACK_NIBBLE_BYTES;
        to = open_block(&at, f, to);
    }
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

/* Eight codes of e4m3 times their rows' scales. As an f16 a code has the number without a factor,
 * which the scales have instead: a power of two, so the product is rounded once. */
INLINE __m256 load_f8(const uint8_t *p, __m256 scale) {
    __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    __m128i sign = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x80)), 8);
    __m128i size = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x7f)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, size)), scale);
}

INLINE void f8_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                     const int count, const enum dtype type, float out[MM_TILE][PANEL_ROWS]) {
    const __m256 factor = _mm256_set1_ps(FP8_HALF_FACTOR);
    __m256 acc[TILE][HALVES], scale[HALVES];
    (void)type;
    for (int m = 0; m < count; m++) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
    for (uint32_t k = 0; k < w->cols;) {
        for (int h = 0; h < HALVES; h++)
            scale[h] = _mm256_mul_ps(load_numbers(p, h, false), factor);
        p += PACK_F8_SCALE_BYTES;
        for (uint32_t end = k + F8_RUN; k < end && k < w->cols; k++, p += PANEL_ROWS) {
            if (count == 1) _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
            __m256 w0 = load_f8(p, scale[0]), w1 = load_f8(p + LANES, scale[1]);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                __m256 x = _mm256_set1_ps(rows[m].f32[k]);
                acc[m][0] = _mm256_fmadd_ps(w0, x, acc[m][0]);
                acc[m][1] = _mm256_fmadd_ps(w1, x, acc[m][1]);
            }
        }
    }
    store_accs(acc, count, out);
}

#define FORMAT(...) ((struct format){__VA_ARGS__})

#define SUPER(...) ((struct format){.super = true, .values = CODES, __VA_ARGS__})

/* One function for a panel, and one for two: formats that many rows do not open. */
#define BLOCK_KERNELS(name, ...)                                                                   \
    PANEL_KERNEL(name, block_panel, __VA_ARGS__)                                                   \
    PAIR_KERNEL(name, block_pair, __VA_ARGS__)

static mm_panel_fn panel_q4_0, panel_q4_1, panel_q5_0, panel_q5_1, panel_q8_0, panel_q2_k,
    panel_q3_k, panel_q4_k, panel_q5_k, panel_q6_k, panel_iq4_xs, panel_iq4_nl, opened_q5_k,
    opened_wide, panel_int4, panel_int8, panel_int8_z, panel_table4, panel_f32, panel_f16,
    panel_bf16, panel_f8;

BLOCK_KERNELS(panel_q4_0, FORMAT(.values = NIBBLES, .half = true, .offset = 8, .groups = 1))
BLOCK_KERNELS(panel_q4_1, FORMAT(.values = NIBBLES, .half = true, .has_min = true, .groups = 1))
BLOCK_KERNELS(panel_q5_0, FORMAT(.half = true, .is_signed = true, .narrow = true, .groups = 1))
BLOCK_KERNELS(panel_q5_1, FORMAT(.half = true, .has_min = true, .narrow = true, .groups = 1))
BLOCK_KERNELS(panel_q8_0, FORMAT(.half = true, .is_signed = true, .groups = 1))
PANEL_KERNEL(panel_q2_k, block_panel, FORMAT(.has_min = true, .narrow = true, .groups = 2))
PANEL_KERNEL(panel_q3_k, block_panel, FORMAT(.is_signed = true, .narrow = true, .groups = 2))

#define Q5_K_FORMAT SUPER(.has_min = true, .narrow = true, .high_bits = 1, .groups = 1)
#define Q6_K_FORMAT                                                                                \
    SUPER(.is_signed = true, .narrow = true, .high_bits = 2, .offset = 32, .groups = 2)
#define IQ4_XS_FORMAT SUPER(.is_signed = true, .table = true, .groups = 1)
#define IQ4_NL_FORMAT                                                                              \
    FORMAT(.values = CODES, .half = true, .is_signed = true, .table = true, .groups = 1)
#define TABLE4_FORMAT FORMAT(.values = CODES, .is_signed = true, .table = true, .groups = 1)

BLOCK_KERNELS(panel_q4_k, FORMAT(.super = true, .values = NIBBLES, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q5_k, block_panel, Q5_K_FORMAT)
PANEL_KERNEL(panel_q6_k, block_panel, Q6_K_FORMAT)
PANEL_KERNEL(panel_iq4_xs, block_panel, IQ4_XS_FORMAT)
PANEL_KERNEL(panel_iq4_nl, block_panel, IQ4_NL_FORMAT)
PANEL_KERNEL(opened_q5_k, block_panel, FORMAT(.has_min = true, .narrow = true, .groups = 1))
PANEL_KERNEL(opened_wide, block_panel, FORMAT(.is_signed = true, .groups = 1))
BLOCK_KERNELS(panel_int4,
              FORMAT(.values = NIBBLES, .half = true, .has_min = true, .zero = true, .groups = 1))
BLOCK_KERNELS(panel_int8, FORMAT(.is_signed = true, .groups = 1))
BLOCK_KERNELS(panel_int8_z, FORMAT(.has_min = true, .is_signed = true, .groups = 1))
PANEL_KERNEL(panel_table4, block_panel, TABLE4_FORMAT)
PANEL_KERNEL(panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(panel_bf16, plain_panel, DTYPE_BF16)
PANEL_KERNEL(panel_f8, f8_panel, DTYPE_F8)

mm_panel_fn *const avx2_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = panel_f32,    [DTYPE_F16] = panel_f16,       [DTYPE_BF16] = panel_bf16,
    [DTYPE_Q4_0] = panel_q4_0,  [DTYPE_Q4_1] = panel_q4_1,     [DTYPE_Q4_K] = panel_q4_k,
    [DTYPE_Q5_0] = panel_q5_0,  [DTYPE_Q5_1] = panel_q5_1,     [DTYPE_Q5_K] = panel_q5_k,
    [DTYPE_Q8_0] = panel_q8_0,  [DTYPE_IQ4_NL] = panel_iq4_nl, [DTYPE_IQ4_XS] = panel_iq4_xs,
    [DTYPE_Q6_K] = panel_q6_k,  [DTYPE_Q3_K] = panel_q3_k,     [DTYPE_Q2_K] = panel_q2_k,
    [DTYPE_INT4] = panel_int4,  [DTYPE_INT8] = panel_int8,     [DTYPE_INT8_Z] = panel_int8_z,
    [DTYPE_NF4] = panel_table4, [DTYPE_FP4] = panel_table4,    [DTYPE_F8] = panel_f8,
};

static mm_panel_fn
    *const
        opened_panels[DTYPE_COUNT] =
            {
                [DTYPE_Q5_K] = opened_q5_k,
                [DTYPE_Q6_K] = panel_q3_k, /* signed, narrow, groups of 16, f32: the same */
                [DTYPE_IQ4_NL] = opened_wide,
                [DTYPE_IQ4_XS] = opened_wide,
                [DTYPE_NF4] = opened_wide,
                [DTYPE_FP4] = opened_wide,
};

static void open_panel(const struct packed *w, const uint8_t *panel, uint8_t *room) {
    switch (w->type) {
    case DTYPE_Q5_K:
        open_supers(w, panel, Q5_K_FORMAT, room);
        break;
    case DTYPE_Q6_K:
        open_supers(w, panel, Q6_K_FORMAT, room);
        break;
    case DTYPE_IQ4_XS:
        open_supers(w, panel, IQ4_XS_FORMAT, room);
        break;
    case DTYPE_NF4:
    case DTYPE_FP4:
        open_flat(w, panel, TABLE4_FORMAT, room);
        break;
    default:
        open_flat(w, panel, IQ4_NL_FORMAT, room);
        break;
    }
}

static mm_pair_fn *const pairs[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = panel_q4_0_pair,     [DTYPE_Q4_1] = panel_q4_1_pair,
    [DTYPE_Q4_K] = panel_q4_k_pair,     [DTYPE_Q5_0] = panel_q5_0_pair,
    [DTYPE_Q5_1] = panel_q5_1_pair,     [DTYPE_Q8_0] = panel_q8_0_pair,
    [DTYPE_INT4] = panel_int4_pair,     [DTYPE_INT8] = panel_int8_pair,
    [DTYPE_INT8_Z] = panel_int8_z_pair,
};

const struct mm_pairs avx2_pairs = {.rows_min = 2 * MM_TILE, .pair = pairs};

const struct mm_opener avx2_opener = {.rows_min = 16, .open = open_panel, .panel = opened_panels};
