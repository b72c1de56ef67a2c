/* kernels/cpu/rows_avx2.c - the row kernels for AVX2, and the AVX2 table's kernels.
 *
 * The operations and their order are those of ref_rows.c. What does not fill a vector goes
 * through a padded copy of one vector, so that there is one body for each kernel.
 */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/kernels_ref.h"
#include "kernels/cpu/rows_body.h"

enum { LANES = VEC_LANES, BLOCKS = 4 };

static float square_sum(const float *x, float mean, uint32_t count) {
    float lanes[NORM_LANES];
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, m = _mm256_set1_ps(mean);
    uint32_t i = 0;
    for (; i + NORM_LANES <= count; i += NORM_LANES) {
        __m256 d0 = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
        __m256 d1 = _mm256_sub_ps(_mm256_loadu_ps(x + i + LANES), m);
        sum0 = _mm256_fmadd_ps(d0, d0, sum0);
        sum1 = _mm256_fmadd_ps(d1, d1, sum1);
    }
    _mm256_storeu_ps(lanes, sum0);
    _mm256_storeu_ps(lanes + LANES, sum1);
    for (uint32_t lane = 0; i < count; i++, lane++)
        lanes[lane] = fmaf(x[i] - mean, x[i] - mean, lanes[lane]);
    return sum_lanes(lanes);
}

static float mean_of(const float *x, uint32_t count) {
    float lanes[NORM_LANES];
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
    uint32_t i = 0;
    for (; i + NORM_LANES <= count; i += NORM_LANES) {
        sum0 = _mm256_add_ps(sum0, _mm256_loadu_ps(x + i));
        sum1 = _mm256_add_ps(sum1, _mm256_loadu_ps(x + i + LANES));
    }
    _mm256_storeu_ps(lanes, sum0);
    _mm256_storeu_ps(lanes + LANES, sum1);
    for (uint32_t lane = 0; i < count; i++, lane++) lanes[lane] += x[i];
    return sum_lanes(lanes) / (float)count;
}

void avx2_norm(const struct norm_args *n, const float *x, float *y) {
    uint32_t count = n->group, i = 0;
    float mean = n->kind == NORM_LAYER ? mean_of(x, count) : 0.0f;
    float rate = 1.0f / sqrtf(square_sum(x, mean, count) / (float)count + n->eps);
    __m256 m = _mm256_set1_ps(mean), s = _mm256_set1_ps(rate);
    for (; i + LANES <= count; i += LANES) {
        __m256 unit = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), m), s);
        __m256 w = _mm256_loadu_ps(n->weight + i);
        __m256 out = n->bias ? _mm256_fmadd_ps(unit, w, _mm256_loadu_ps(n->bias + i))
                             : _mm256_mul_ps(unit, w);
        _mm256_storeu_ps(y + i, out);
    }
    for (; i < count; i++) {
        float unit = (x[i] - mean) * rate;
        y[i] = n->bias ? fmaf(unit, n->weight[i], n->bias[i]) : unit * n->weight[i];
    }
}

static int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
}

static void quantise_block(const float *x, uint32_t b, struct q8_out out) {
    __m256 v[4], largest = _mm256_setzero_ps();
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + LANES * i);
        largest = vec_max(vec_abs(v[i]), largest); /* a NaN does not count */
    }
    float max = vec_max_lane(largest);
    max = max < FLT_MAX ? max : FLT_MAX;
    __m256 inverse = _mm256_set1_ps(max > 0.0f ? 127.0f / max : 0.0f);
    for (int i = 0; i < 4; i++) q[i] = vec_round_int8(_mm256_mul_ps(v[i], inverse));
    /* The packs interleave 128-bit halves; the permutation puts the bytes in order again. */
    __m256i words0 = _mm256_packs_epi32(q[0], q[1]), words1 = _mm256_packs_epi32(q[2], q[3]);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words0, words1),
                                                _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)(out.q + (size_t)b * Q8_BLOCK), bytes);
    int32_t low = sum_of(_mm256_add_epi32(q[0], q[1]));
    int32_t high = sum_of(_mm256_add_epi32(q[2], q[3]));
    float scale = max / 127.0f;
    out.scale[b] = scale;
    out.isum[b] = low + high;
    out.dsum[b] = scale * (float)(low + high);
    out.dsum16[2 * b] = scale * (float)low;
    out.dsum16[2 * b + 1] = scale * (float)high;
}

/* The pattern of |v| as a whole number: it rises with the magnitude, and is above that of all
 * numbers for a NaN. */
static inline __m256i pattern(const float *x) {
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm256_and_si256(v, _mm256_set1_epi32(0x7FFFFFFF));
}

static inline __m256i block_max(const float *x) {
    __m256i low = _mm256_max_epi32(pattern(x), pattern(x + LANES));
    return _mm256_max_epi32(
        low, _mm256_max_epi32(pattern(x + (size_t)2 * LANES), pattern(x + (size_t)3 * LANES)));
}

/* Of two times four numbers, in each half of the vectors, two times the largest of two. */
static inline __m256i pairs_max(__m256i a, __m256i b) {
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_max_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xDD)));
}

/* Scales and their inverses of BLOCKS blocks. False if one holds what is not a finite number, or
 * has an inverse that is not: then numbers have to be held to their range one by one. */
static inline bool find_scales(const float *x, __m128 *scale, float inverse[BLOCKS]) {
    const __m128 most = _mm_set1_ps(FLT_MAX), range = _mm_set1_ps(127.0f);
    __m256i low = pairs_max(block_max(x), block_max(x + Q8_BLOCK));
    __m256i high =
        pairs_max(block_max(x + (size_t)2 * Q8_BLOCK), block_max(x + (size_t)3 * Q8_BLOCK));
    __m256i all = pairs_max(low, high);
    __m128i each = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    __m128 max = _mm_castsi128_ps(each), inv = _mm_div_ps(range, max);
    *scale = _mm_div_ps(max, range);
    _mm_storeu_ps(inverse, inv);
    /* A comparison with a NaN is false. */
    return _mm_movemask_ps(_mm_and_ps(_mm_cmple_ps(max, most), _mm_cmple_ps(inv, most))) == 0xF;
}

/* Stores a block's bytes; returns the sums of every eight, 8 * 128 too large. The packs interleave
 * 128-bit halves; the permutation puts the bytes in order again. */
static inline __m256i round_block(const float *x, float inverse, int8_t *q) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 by = _mm256_set1_ps(inverse);
    __m256i v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * LANES), by));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    return _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
}

/* Of two blocks, the sums of their first halves, then of their second, each in 64 bits. */
static inline __m256i half_sums(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* BLOCKS blocks from block b on. */
static inline void quantise_four(const float *x, __m128 scale, const float inverse[BLOCKS],
                                 uint32_t b, struct q8_out out) {
    __m256i sums[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        sums[i] = round_block(x + i * Q8_BLOCK, inverse[i], out.q + (b + i) * Q8_BLOCK);
    __m256 low = _mm256_castsi256_ps(half_sums(sums[0], sums[1]));
    __m256 high = _mm256_castsi256_ps(half_sums(sums[2], sums[3]));
    __m256i halves = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88));
    halves = _mm256_sub_epi32(halves, _mm256_set1_epi32(Q8_BLOCK / 2 * 128));
    __m128i first = _mm256_castsi256_si128(halves), second = _mm256_extracti128_si256(halves, 1);
    __m128i whole = _mm_add_epi32(first, second);
    __m128 dfirst = _mm_mul_ps(scale, _mm_cvtepi32_ps(first));
    __m128 dsecond = _mm_mul_ps(scale, _mm_cvtepi32_ps(second));
    _mm_storeu_ps(out.scale + b, scale);
    _mm_storeu_si128((__m128i *)(void *)(out.isum + b), whole);
    _mm_storeu_ps(out.dsum + b, _mm_mul_ps(scale, _mm_cvtepi32_ps(whole)));
    _mm_storeu_ps(out.dsum16 + 2 * (size_t)b, _mm_unpacklo_ps(dfirst, dsecond));
    _mm_storeu_ps(out.dsum16 + 2 * (size_t)b + 4, _mm_unpackhi_ps(dfirst, dsecond));
}

/* BLOCKS blocks at a time, and one by one what is left and what is odd. */
void avx2_quantise(const float *x, uint32_t count, struct q8_out out) {
    uint32_t blocks = count / Q8_BLOCK, b = 0;
    for (; b + BLOCKS <= blocks; b += BLOCKS) {
        const float *from = x + (size_t)b * Q8_BLOCK;
        float inverse[BLOCKS];
        __m128 scale;
        if (find_scales(from, &scale, inverse))
            quantise_four(from, scale, inverse, b, out);
        else
            for (uint32_t i = 0; i < BLOCKS; i++)
                quantise_block(from + (size_t)i * Q8_BLOCK, b + i, out);
    }
    for (; b < blocks; b++) quantise_block(x + (size_t)b * Q8_BLOCK, b, out);
}

static inline __m256 in_pair_order(const float *x) {
    __m256d quads = _mm256_castps_pd(_mm256_loadu_ps(x));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(quads, 0xD8));
}

/* The pairs 2i and 2i + 1, as many as fill vectors; returns how many. Shuffling two vectors sorts
 * eight pairs into their first and second members in the order 0 1 4 5 2 3 6 7; cosines and sines
 * are brought into that order too. */
static uint32_t rope_adjacent(uint32_t pairs, const float *cosine, const float *sine, float *head) {
    uint32_t i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        __m256 v0 = _mm256_loadu_ps(head + 2 * i), v1 = _mm256_loadu_ps(head + 2 * i + LANES);
        __m256 a = _mm256_shuffle_ps(v0, v1, 0x88), b = _mm256_shuffle_ps(v0, v1, 0xDD);
        rotate(&a, &b, in_pair_order(cosine + i), in_pair_order(sine + i));
        _mm256_storeu_ps(head + 2 * i, _mm256_unpacklo_ps(a, b));
        _mm256_storeu_ps(head + 2 * i + LANES, _mm256_unpackhi_ps(a, b));
    }
    return i;
}

void avx2_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head) {
    uint32_t pairs = r->rot_dims / 2;
    uint32_t done = r->style == ROPE_NEOX ? rope_neox(pairs, cosine, sine, head)
                                          : rope_adjacent(pairs, cosine, sine, head);
    rope_rest(r, done, cosine, sine, head);
}

void avx2_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y) {
    act_row(kind, gate, up, count, y);
}

void avx2_add(const float *src, uint32_t count, float *dst) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(dst + i,
                         _mm256_add_ps(_mm256_loadu_ps(dst + i), _mm256_loadu_ps(src + i)));
    for (; i < count; i++) dst[i] += src[i];
}

void avx2_softcap(float cap, uint32_t count, float *x) { softcap_row(cap, count, x); }

static uint16_t f16_above(float x) {
    __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return (uint16_t)_mm_extract_epi16(half, 0);
}

/* A product with 1 or -1 is exact, so the sum is rounded once. */
VEC_INLINE vec vec_hadamard(vec v, const uint32_t h) {
    if (h == 1)
        return _mm256_fmadd_ps(v, _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1),
                               _mm256_permute_ps(v, 0xB1));
    if (h == 2)
        return _mm256_fmadd_ps(v, _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1),
                               _mm256_permute_ps(v, 0x4E));
    return _mm256_fmadd_ps(v, _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1),
                           _mm256_permute2f128_ps(v, v, 1));
}

#include "kernels/cpu/kv_store_body.h"
#include "kernels/cpu/kv_hadamard_body.h"
#include "kernels/cpu/kv_int4_body.h"

void avx2_kv_hadamard(float *x, uint32_t head_dim) { hadamard_head(x, head_dim); }

float avx2_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                     float *out) {
    return int4_smooth(q, scale, mean, head_dim, out);
}

void avx2_kv_query(float *q, uint32_t head_dim, struct int4_query out) {
    int4_query(q, head_dim, out);
}

void avx2_kv_store_int4(float *x, float *room, const float *feedback, uint32_t head_dim,
                        bool is_value, uint8_t *tile, uint32_t token) {
    int4_store(x, room, feedback, head_dim, is_value, tile, token);
}

static void store_f32(const float *k, const float *v, uint32_t head_dim, float *k_tile,
                      float *v_tile, uint32_t token) {
    for (uint32_t d = 0; d < head_dim; d++) k_tile[d * KV_TILE_TOKENS + token] = k[d];
    memcpy(v_tile + (size_t)token * head_dim, v, head_dim * sizeof(float));
}

void avx2_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                   uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    if (type == KV_I8) {
        store_token_int8(k, v, head_dim, k_tile, v_tile, token);
    } else if (type == KV_F8) {
        ref_kv_store(type, k, v, head_dim, k_tile, v_tile, token);
    } else if (type == KV_F32) {
        store_f32(k, v, head_dim, (float *)(void *)k_tile, (float *)(void *)v_tile, token);
    } else {
        store_f16(k, v, head_dim, (uint16_t *)(void *)k_tile, (uint16_t *)(void *)v_tile, token);
    }
}

const struct cpu_kernels cpu_kernels_avx2 = {
    .norm = avx2_norm,
    .quantise = avx2_quantise,
    .rope = avx2_rope,
    .act = avx2_act,
    .add = avx2_add,
    .softcap = avx2_softcap,
    .kv_hadamard = avx2_kv_hadamard,
    .kv_smooth = avx2_kv_smooth,
    .kv_query = avx2_kv_query,
    .kv_store_int4 = avx2_kv_store_int4,
    .kv_store = avx2_kv_store,
    .attend = avx2_attend,
    .attn_merge = avx2_attn_merge,
    .attn_finish = avx2_attn_finish,
    .panel = avx2_panels,
    .pairs = &avx2_pairs,
    .opener = &avx2_opener,
};
