/* kernels/cpu/attention_scores_body.h - the first half of kernels/cpu/attention_body.h: products of
 * queries and keys, scores, and the weights of values. The second half says what an including file
 * defines before.
 * Thread: any. */
#ifndef KERNELS_CPU_ATTENTION_SCORES_BODY_H
#define KERNELS_CPU_ATTENTION_SCORES_BODY_H

#include "base/fmath_body.h"
#include "kernels/cpu/attn_ranges.h"
#include "kernels/cpu/kv_range.h"

#define ATTN_INLINE static inline __attribute__((always_inline))

enum { TILE_VECTORS = KV_TILE_TOKENS / VEC_LANES, VECTORS_MAX = 2 * TILE_VECTORS };
_Static_assert((int)ATTN_LANES == (int)KV_TILE_TOKENS, "a tile holds the lanes of the sum");
_Static_assert((int)VECTORS_MAX <= 8, "loops over vectors are unrolled 8 times");

ATTN_INLINE void prefetch(const uint8_t *p, size_t i, const enum kv_type type) {
    attn_prefetch(p + i * kv_elem_bytes(type));
}

/* ATTN_FEW queries are mostly those of a prompt, whose keys and values have been read before;
 * floats are mostly those of an encoder, which have just been written. */
ATTN_INLINE bool prefetches(const int queries, const enum kv_type type) {
    return ATTN_PREFETCHES && queries < ATTN_FEW && type != KV_F32;
}

/* Keys that are multiplied together, and how far behind them their values lie. */
struct key_tiles {
    const uint8_t *tile[2];
    ptrdiff_t values;
};

/* Adds the products in dimension d. */
ATTN_INLINE void multiply_dim(const struct attn_segment *s, const struct key_tiles *at, size_t d,
                              const int tiles, const int queries, const enum kv_type type,
                              vec acc[ATTN_FEW][VECTORS_MAX]) {
    vec k[VECTORS_MAX];
#pragma GCC unroll 2
    for (int i = 0; i < tiles; i++) {
        if (prefetches(queries, type)) prefetch(at->tile[i] + at->values, d * KV_TILE_TOKENS, type);
        attn_load(at->tile[i], d * KV_TILE_TOKENS, type, TILE_VECTORS, k + i * TILE_VECTORS);
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++) {
        vec q = vec_set1(s->query[i].q[d]);
#pragma GCC unroll 8
        for (int j = 0; j < tiles * TILE_VECTORS; j++) acc[i][j] = vec_fma(q, k[j], acc[i][j]);
    }
}

/* The products of all queries with the keys of `tiles` tiles from tile t on, to p[query][token]. */
ATTN_INLINE void multiply_keys(const struct attn_segment *s, uint32_t t, const int tiles,
                               const int queries, const enum kv_type type,
                               float p[ATTN_FEW][ATTN_SEGMENT]) {
    const int vectors = tiles * TILE_VECTORS;
    vec acc[ATTN_FEW][VECTORS_MAX];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) acc[i][j] = vec_set1(0.0f);
    /* Values lie equally far from the keys in all tiles of a cache. */
    const struct key_tiles at = {{s->k[t], tiles > 1 ? s->k[t + 1] : NULL},
                                 type == KV_F32 ? 0 : s->v[t] - s->k[t]};
    for (size_t d = 0; d < s->head_dim; d++) multiply_dim(s, &at, d, tiles, queries, type, acc);
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            vec_store(p[i] + (size_t)t * KV_TILE_TOKENS + (size_t)j * VEC_LANES, acc[i][j]);
}

/* The same of KV_I4 with tile t: a sum of whole numbers times the two units. */
ATTN_INLINE void multiply_int4_keys(const struct attn_segment *s, uint32_t t, const int queries,
                                    float p[ATTN_FEW][ATTN_SEGMENT]) {
    const uint8_t *tile = s->k[t], *units = tile + kv_scales_offset(KV_I4, s->head_dim);
    int32_t sums[ATTN_FEW][KV_TILE_TOKENS];
    vec unit[TILE_VECTORS];
    attn_load_units(units, unit);
    if (prefetches(queries, KV_I4))
        for (uint32_t c = 0; c < kv_side_bytes(KV_I4, s->head_dim); c += 64)
            attn_prefetch(s->v[t] + c);
    attn_multiply_codes(s, tile, queries, sums);
    for (int i = 0; i < queries; i++) {
        float *out = p[i] + (size_t)t * KV_TILE_TOKENS;
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) {
            vec sum = attn_load_sums(sums[i] + (size_t)j * VEC_LANES);
            vec_store(out + (size_t)j * VEC_LANES,
                      vec_mul(vec_mul(sum, unit[j]), vec_set1(s->query[i].codes_scale)));
        }
    }
}

/* The product x of a query with the keys from token j on, as a score. */
ATTN_INLINE vec score(const struct attn_segment *s, const struct attn_query *q, uint32_t j,
                      vec key_scale, vec x) {
    if (s->type == KV_I8) x = vec_mul(x, key_scale);
    if (j < s->early) x = vec_if_between(j, 0, s->early, vec_add(x, vec_set1(q->shift)), x);
    x = vec_mul(x, vec_set1(s->scale));
    if (s->softcap > 0.0f) {
        vec cap = vec_set1(s->softcap);
        x = vec_mul(cap, vec_tanh(vec_div(x, cap)));
    }
    return vec_if_between(j, q->first, q->end, x, vec_set1(-INFINITY));
}

/* The scales of a tile's keys or values, where the cache has them. */
ATTN_INLINE void load_scales(const struct attn_segment *s, const uint8_t *tile,
                             vec scales[TILE_VECTORS]) {
    for (int i = 0; i < TILE_VECTORS; i++) scales[i] = vec_set1(1.0f);
    if (s->type != KV_I8) return;
    attn_load(tile + kv_scales_offset(s->type, s->head_dim), 0, KV_F16, TILE_VECTORS, scales);
}

/* One query's products at p, of `tiles`, become scores; returns the largest. */
static float scores_of(const struct attn_segment *s, const struct attn_query *q, struct range tiles,
                       float *p) {
    vec max = vec_set1(-INFINITY), scales[TILE_VECTORS];
    for (uint32_t t = tiles.first; t < tiles.end; t++) {
        load_scales(s, s->k[t], scales);
#pragma GCC unroll 4
        for (int i = 0; i < TILE_VECTORS; i++) {
            uint32_t j = t * KV_TILE_TOKENS + (uint32_t)i * VEC_LANES;
            vec x = score(s, q, j, scales[i], vec_load(p + j));
            vec_store(p + j, x);
            max = vec_max(x, max);
        }
    }
    return vec_max_lane(max);
}

/* One query's products at p, of `tiles`, become the weights of its values: exponentials, times the
 * values' scales where the cache has them. Tokens that are not attended to are exp(-inf) = 0 and
 * change no lane's sum; a scale may make them NaN, but they are not read again. */
static void weights_of(const struct attn_segment *s, const struct attn_query *q, struct range tiles,
                       float *p, struct attn_part *out) {
    vec sum[TILE_VECTORS], scales[TILE_VECTORS];
    out->max = scores_of(s, q, tiles, p);
    const vec max = vec_set1(out->max);
    for (int i = 0; i < TILE_VECTORS; i++) sum[i] = vec_set1(0.0f);
    for (uint32_t t = tiles.first; t < tiles.end; t++) {
        load_scales(s, s->v[t], scales);
#pragma GCC unroll 4
        for (int i = 0; i < TILE_VECTORS; i++) {
            uint32_t j = t * KV_TILE_TOKENS + (uint32_t)i * VEC_LANES;
            vec e = vec_exp(vec_sub(vec_load(p + j), max));
            sum[i] = vec_add(sum[i], e);
            vec_store(p + j, s->type == KV_I8 ? vec_mul(e, scales[i]) : e);
        }
    }
    out->sum = vec_sum16(sum);
}

#endif
