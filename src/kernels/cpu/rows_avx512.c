/* kernels/cpu/rows_avx512.c - the row kernels for AVX-512.
 *
 * The operations and their order are those of ref_rows.c. What does not fill a vector is read
 * and written under a mask, so that there is one body for each kernel. What is left to AVX2 is
 * bound by memory or by the number of stores.
 */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/fmath_avx512.h"
#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = VEC_LANES, WIDE = SILU_WIDE, BLOCKS = 4, ALL_LANES = 0xFFFF };
_Static_assert((int)NORM_LANES == (int)LANES, "a vector holds the lanes of a norm's sums");

/* The lanes that are left of `count` elements from i on. */
INLINE __mmask16 rest_of(uint32_t i, uint32_t count) {
    if (i >= count) return 0;
    return (__mmask16)(count - i < LANES ? (1u << (count - i)) - 1 : 0xFFFF);
}

static float mean_of(const float *x, uint32_t count) {
    __m512 sum = _mm512_setzero_ps();
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
    if (i < count) {
        __mmask16 rest = rest_of(i, count);
        sum = _mm512_mask_add_ps(sum, rest, sum, _mm512_maskz_loadu_ps(rest, x + i));
    }
    return vec_sum16(sum) / (float)count;
}

/* Of x - mean, where there is a mean. */
INLINE float square_sum(const float *x, const bool has_mean, float mean, uint32_t count) {
    __m512 sum = _mm512_setzero_ps(), m = _mm512_set1_ps(mean);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m512 d = _mm512_loadu_ps(x + i);
        if (has_mean) d = _mm512_sub_ps(d, m);
        sum = _mm512_fmadd_ps(d, d, sum);
    }
    if (i < count) {
        __mmask16 rest = rest_of(i, count);
        __m512 d = _mm512_maskz_loadu_ps(rest, x + i);
        if (has_mean) d = _mm512_sub_ps(d, m);
        sum = _mm512_mask3_fmadd_ps(d, d, sum, rest);
    }
    return vec_sum16(sum);
}

static float rate_of(const struct norm_args *n, float sum) {
    return 1.0f / sqrtf(sum / (float)n->group + n->eps);
}

static void norm_layer(const struct norm_args *n, const float *x, float *y) {
    uint32_t count = n->group;
    float mean = mean_of(x, count), rate = rate_of(n, square_sum(x, true, mean, count));
    __m512 m = _mm512_set1_ps(mean), r = _mm512_set1_ps(rate);
    for (uint32_t i = 0; i < count; i += LANES) {
        __mmask16 rest = rest_of(i, count);
        __m512 unit = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(rest, x + i), m), r);
        __m512 w = _mm512_maskz_loadu_ps(rest, n->weight + i);
        __m512 out = n->bias ? _mm512_fmadd_ps(unit, w, _mm512_maskz_loadu_ps(rest, n->bias + i))
                             : _mm512_mul_ps(unit, w);
        _mm512_mask_storeu_ps(y + i, rest, out);
    }
}

INLINE void scale_some(const float *x, __m512 rate, const float *weight, __mmask16 rest, float *y) {
    __m512 unit = _mm512_mul_ps(_mm512_maskz_loadu_ps(rest, x), rate);
    _mm512_mask_storeu_ps(y, rest, _mm512_mul_ps(unit, _mm512_maskz_loadu_ps(rest, weight)));
}

static void norm_rms(const struct norm_args *n, const float *x, float *y) {
    uint32_t count = n->group, i = 0;
    __m512 rate = _mm512_set1_ps(rate_of(n, square_sum(x, false, 0.0f, count)));
    for (; i + LANES <= count; i += LANES) scale_some(x + i, rate, n->weight + i, ALL_LANES, y + i);
    if (i < count) scale_some(x + i, rate, n->weight + i, rest_of(i, count), y + i);
}

void avx512_norm(const struct norm_args *n, const float *x, float *y) {
    if (n->kind == NORM_RMS)
        norm_rms(n, x, y);
    else
        norm_layer(n, x, y);
}

/* The pattern of |v| as a whole number: it rises with the magnitude, and is above that of all
 * numbers for a NaN. Whole numbers are compared in more units than floats. */
INLINE __m512i pattern(__m512 v) {
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
}

INLINE __m256i halves_max(__m512i m) {
    return _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
}

/* Of two times four numbers, in each half of the vectors, two times the largest of two. */
INLINE __m256i pairs_max(__m256i a, __m256i b) {
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_max_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xDD)));
}

/* The largest lane of m[i] in lane i. */
INLINE __m128i max_of_each(const __m512i m[BLOCKS]) {
    __m256i low = pairs_max(halves_max(m[0]), halves_max(m[1]));
    __m256i high = pairs_max(halves_max(m[2]), halves_max(m[3]));
    __m256i all = pairs_max(low, high);
    return _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* The bytes of two blocks, and in `sums` those of every eight bytes, 8 * 128 too large. The packs
 * interleave quarters; the permutation puts the bytes in order again. */
INLINE __m512i bytes_of(const __m512i q[4], __m512i *sums) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    bytes = _mm512_permutexvar_epi32(order, bytes);
    *sums =
        _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
    return bytes;
}

/* What follows from the scales of BLOCKS blocks from b on and bytes_of's sums, two blocks each. */
INLINE void store_sums(const __m512i sums[2], __m128 scale, uint32_t b, struct q8_out out) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    __m256 scales = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(scale), twice);
    __m512i both = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[0], sums[1]),
                                    _mm512_unpackhi_epi64(sums[0], sums[1]));
    __m256i half = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, both));
    half = _mm256_sub_epi32(half, _mm256_set1_epi32(Q8_BLOCK / 2 * 128));
    __m128i whole = _mm256_cvtepi64_epi32(_mm256_add_epi32(half, _mm256_srli_epi64(half, 32)));
    _mm_storeu_si128((__m128i *)(void *)(out.isum + b), whole);
    _mm_storeu_ps(out.dsum + b, _mm_mul_ps(scale, _mm_cvtepi32_ps(whole)));
    _mm256_storeu_ps(out.dsum16 + 2 * (size_t)b, _mm256_mul_ps(scales, _mm256_cvtepi32_ps(half)));
}

/* The scales of BLOCKS blocks and their inverses. `odd` is not 0 if some block holds what is not a
 * finite number, or has an inverse that is not: then numbers have to be held to their range one by
 * one. */
struct scales {
    __m128 scale;
    float inverse[BLOCKS];
    __mmask8 odd;
};

/* Of the blocks from block b on. */
INLINE void find_scales(const float *x, uint32_t b, struct scales *s) {
    const __m128 most = _mm_set1_ps(FLT_MAX), range = _mm_set1_ps(127.0f);
    const float *from = x + (size_t)b * Q8_BLOCK;
    __m512i m[BLOCKS];
#pragma GCC unroll 4
    for (int i = 0; i < BLOCKS; i++, from += Q8_BLOCK)
        m[i] = _mm512_max_epi32(pattern(_mm512_loadu_ps(from)),
                                pattern(_mm512_loadu_ps(from + LANES)));
    __m128 max = _mm_castsi128_ps(max_of_each(m)), inverse = _mm_div_ps(range, max);
    _mm_storeu_ps(s->inverse, inverse);
    s->scale = _mm_div_ps(max, range);
    /* A comparison with a NaN is true. */
    s->odd |= _mm_cmp_ps_mask(max, most, _CMP_NLE_UQ) | _mm_cmp_ps_mask(inverse, most, _CMP_NLE_UQ);
}

/* BLOCKS blocks from block b on. */
INLINE void round_blocks(const float *x, const struct scales *s, uint32_t b, struct q8_out out) {
    const float *from = x + (size_t)b * Q8_BLOCK;
    uint8_t *to = (uint8_t *)out.q + (size_t)b * Q8_BLOCK;
    __m512i q[2 * BLOCKS], sums[2];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * BLOCKS; i++, from += LANES)
        q[i] = _mm512_cvtps_epi32(
            _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(s->inverse[i / 2])));
    _mm512_storeu_si512(to, bytes_of(q, &sums[0]));
    _mm512_storeu_si512(to + 2 * Q8_BLOCK, bytes_of(q + 4, &sums[1]));
    _mm_storeu_ps(out.scale + b, s->scale);
    store_sums(sums, s->scale, b, out);
}

/* The rounding of some blocks waits for their largest numbers; meanwhile those of the next ones are
 * found. The last ones go together with some that are done, which stay what they are. */
void avx512_quantise(const float *x, uint32_t count, struct q8_out out) {
    uint32_t blocks = count / Q8_BLOCK, at = 0;
    struct scales now = {.odd = 0};
    if (blocks < BLOCKS) {
        avx2_quantise(x, count, out);
        return;
    }
    find_scales(x, 0, &now);
    for (uint32_t b = BLOCKS; b < blocks; b += BLOCKS) {
        uint32_t next_at = b + BLOCKS > blocks ? blocks - BLOCKS : b;
        struct scales next = {.odd = now.odd};
        find_scales(x, next_at, &next);
        round_blocks(x, &now, at, out);
        now = next;
        at = next_at;
    }
    round_blocks(x, &now, at, out);
    if (now.odd) avx2_quantise(x, count, out);
}

INLINE __m512 in_pair_order(const float *x) {
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm512_castpd_ps(_mm512_permutexvar_pd(order, _mm512_castps_pd(_mm512_loadu_ps(x))));
}

/* Pairs 2i and 2i + 1. Shuffling two vectors sorts sixteen pairs into their first and second
 * members, two pairs of either vector by turns; cosines and sines are brought into that order. */
static void rope_adjacent(uint32_t pairs, const float *cosine, const float *sine, float *head) {
    for (uint32_t i = 0; i < pairs; i += LANES) {
        float *at = head + 2 * (size_t)i;
        __m512 v0 = _mm512_loadu_ps(at), v1 = _mm512_loadu_ps(at + LANES);
        __m512 a = _mm512_shuffle_ps(v0, v1, 0x88), b = _mm512_shuffle_ps(v0, v1, 0xDD);
        __m512 c = in_pair_order(cosine + i), s = in_pair_order(sine + i);
        __m512 first = _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s));
        __m512 second = _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c));
        _mm512_storeu_ps(at, _mm512_unpacklo_ps(first, second));
        _mm512_storeu_ps(at + LANES, _mm512_unpackhi_ps(first, second));
    }
}

/* Pairs that lie apart need no shuffles, so that wider vectors gain nothing. */
void avx512_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head) {
    uint32_t pairs = r->rot_dims / 2;
    if (r->style == ROPE_ADJACENT && pairs % LANES == 0)
        rope_adjacent(pairs, cosine, sine, head);
    else
        avx2_rope(r, cosine, sine, head);
}

INLINE void act_wide(const enum act_kind kind, __m512 x[WIDE]) {
    if (kind == ACT_SILU) {
        vec_silu_wide(x);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < WIDE; i++)
        x[i] = kind == ACT_GELU_TANH ? vec_gelu_tanh(x[i]) : vec_gelu_erf(x[i]);
}

/* At most WIDE vectors of elements. */
INLINE void act_some(const enum act_kind kind, const float *gate, const float *up, uint32_t count,
                     float *y) {
    __m512 x[WIDE];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < WIDE; i++)
        x[i] = _mm512_maskz_loadu_ps(rest_of(i * LANES, count), gate + i * LANES);
    act_wide(kind, x);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < WIDE; i++) {
        __mmask16 rest = rest_of(i * LANES, count);
        if (up) x[i] = _mm512_mul_ps(x[i], _mm512_maskz_loadu_ps(rest, up + i * LANES));
        _mm512_mask_storeu_ps(y + i * LANES, rest, x[i]);
    }
}

INLINE void act_row(const enum act_kind kind, const float *gate, const float *up, uint32_t count,
                    float *y) {
    enum { SOME = WIDE * LANES };
    uint32_t c = 0;
    for (; c + SOME <= count; c += SOME) act_some(kind, gate + c, up ? up + c : NULL, SOME, y + c);
    if (c < count) act_some(kind, gate + c, up ? up + c : NULL, count - c, y + c);
}

void avx512_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y) {
    if (kind == ACT_SILU)
        act_row(ACT_SILU, gate, up, count, y);
    else if (kind == ACT_GELU_TANH)
        act_row(ACT_GELU_TANH, gate, up, count, y);
    else
        act_row(ACT_GELU_ERF, gate, up, count, y);
}

void avx512_softcap(float cap, uint32_t count, float *x) {
    __m512 c = _mm512_set1_ps(cap);
    for (uint32_t i = 0; i < count; i += LANES) {
        __mmask16 rest = rest_of(i, count);
        __m512 part = _mm512_div_ps(_mm512_maskz_loadu_ps(rest, x + i), c);
        _mm512_mask_storeu_ps(x + i, rest, _mm512_mul_ps(c, vec_tanh(part)));
    }
}

static uint16_t f16_above(float x) {
    __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return (uint16_t)_mm_extract_epi16(half, 0);
}

VEC_INLINE vec vec_hadamard(vec v, const uint32_t h) {
    const __mmask16 minus = h == 1 ? 0xAAAA : h == 2 ? 0xCCCC : h == 4 ? 0xF0F0 : 0xFF00;
    vec other = h == 1   ? _mm512_permute_ps(v, 0xB1)
                : h == 2 ? _mm512_permute_ps(v, 0x4E)
                : h == 4 ? _mm512_shuffle_f32x4(v, v, 0xB1)
                         : _mm512_shuffle_f32x4(v, v, 0x4E);
    return _mm512_mask_sub_ps(_mm512_add_ps(v, other), minus, other, v);
}

#include "kernels/cpu/kv_store_body.h"
#include "kernels/cpu/kv_hadamard_body.h"
#include "kernels/cpu/kv_int4_body.h"

void avx512_kv_hadamard(float *x, uint32_t head_dim) { hadamard_head(x, head_dim); }

float avx512_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                       float *out) {
    return int4_smooth(q, scale, mean, head_dim, out);
}

void avx512_kv_query(float *q, uint32_t head_dim, struct int4_query out) {
    int4_query(q, head_dim, out);
}

void avx512_kv_store_int4(float *x, float *room, const float *feedback, uint32_t head_dim,
                          bool is_value, uint8_t *tile, uint32_t token) {
    int4_store(x, room, feedback, head_dim, is_value, tile, token);
}

void avx512_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                     uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    if (type == KV_I8) {
        store_token_int8(k, v, head_dim, k_tile, v_tile, token);
    } else {
        avx2_kv_store(type, k, v, head_dim, k_tile, v_tile, token);
    }
}
