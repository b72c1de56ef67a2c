/* kernels/cpu/attention_avx512.c - one segment of attention for queries that share a KV head,
 * AVX-512.
 *
 * A tile's 16 keys are one vector of scores for each query, which are also the 16 lanes of the
 * sum. Twelve queries use two tiles, and two vectors of columns, at a time, up to six queries use
 * four: 24 sums stay in registers, and what was loaded and widened feeds 12 multiplications or 6.
 * Tokens that a query does not attend to may hold anything: their scores are replaced by minus
 * infinity, and their values never weighed.
 *
 * The tiles of a sequence are scattered over memory, too short for the processor to see where it
 * goes on: while keys are multiplied, their values are fetched; while values are weighed, the tiles
 * that the caller says are next.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/attention_int4_avx512.h"
#include "kernels/cpu/attn_ranges.h"
#include "kernels/cpu/fmath_avx512.h"
#include "kernels/cpu/kernels_avx512.h"
#include "tensor/fp8.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, VECTORS = 4, ALL_LANES = 0xFFFF };

/* Dimensions of the queries that are at hand at once; and the distance between two queries, which
 * is a little more, so that they do not compete for the same places of a cache. */
enum { QUERY_DIMS = 256, QUERY_STRIDE = QUERY_DIMS + LANES };

/* Up to so many queries multiply four tiles of KV_I4 at a time. */
enum { INT4_FEW = 3 };
_Static_assert((int)KV_TILE_TOKENS == (int)LANES, "a tile is one vector");
_Static_assert((int)ATTN_LANES == (int)LANES, "a vector holds the lanes of the sum");
_Static_assert((int)ATTN_QUERIES == 12, "functions below are made for twelve queries");

/* Elements i .. i + 15 of a run of the cache's numbers, those outside the mask as zeros. */
INLINE __m512 load_some(const uint8_t *p, size_t i, const enum kv_type type, __mmask16 mask) {
    if (type == KV_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, p + i)));
    if (type == KV_F8) { /* fp8_half_bits: the sign fills the bit between it and the exponent */
        __m256i wide = _mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8(mask, p + i));
        wide = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
        return _mm512_mul_ps(_mm512_cvtph_ps(wide), _mm512_set1_ps(FP8_HALF_FACTOR));
    }
    if (type == KV_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p + 2 * i));
    return _mm512_maskz_loadu_ps(mask, p + 4 * i);
}

INLINE __m512 load16(const uint8_t *p, size_t i, const enum kv_type type) {
    return load_some(p, i, type, ALL_LANES);
}

/* Begins to read what is needed soon. Into the second cache: the first has too few reads in flight
 * to keep the memory busy. */
INLINE void fetch(const uint8_t *p, size_t i, const enum kv_type type) {
    _mm_prefetch((const char *)(p + i * kv_elem_bytes(type)), _MM_HINT_T1);
}

/* Bit i where first <= base + i < end. */
INLINE __mmask16 attended(uint32_t base, uint32_t first, uint32_t end) {
    uint32_t below = first > base ? first - base : 0;
    uint32_t above = base + LANES > end ? base + LANES - end : 0;
    below = below < LANES ? below : LANES;
    above = above < LANES ? above : LANES;
    return (__mmask16)((uint32_t)ALL_LANES << below & (uint32_t)ALL_LANES >> above);
}

/* acc + x * *y. A broadcast that is part of the multiplication costs nothing; one of its own, which
 * compilers make of several uses, would take turns with the multiplications where there are only
 * a few for each. */
INLINE __m512 add_product(__m512 acc, __m512 x, const float *y) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(x), "m"(*y));
    return acc;
}

INLINE __m512 add_masked(__m512 acc, __m512 x, const float *y, __mmask16 mask) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0%{%3%}" : "+v"(acc) : "v"(x), "m"(*y), "Yk"(mask));
    return acc;
}

/* A segment's scores, later their exponentials, and until then the largest score lane by lane; a
 * tile's scores follow each other query by query. And the queries, side by side, where one pointer
 * reaches them all. */
struct scores {
    float p[ATTN_TILES * ATTN_QUERIES][LANES];
    __m512 max[ATTN_QUERIES];
    float q[ATTN_QUERIES][QUERY_STRIDE];
};

/* Dimensions from d on. */
static __attribute__((noinline)) void copy_queries(const struct attn_segment *s, uint32_t d,
                                                   struct scores *to) {
    uint32_t end = s->head_dim - d < QUERY_DIMS ? s->head_dim - d : QUERY_DIMS;
    for (uint32_t i = 0; i < s->query_count; i++) {
        const float *q = s->query[i].q + d;
        uint32_t c = 0;
        for (; c + LANES <= end; c += LANES) _mm512_store_ps(to->q[i] + c, _mm512_loadu_ps(q + c));
        if (c < end)
            _mm512_store_ps(to->q[i] + c, _mm512_maskz_loadu_ps(attended(c, 0, end), q + c));
    }
}

/* The products of queries and keys become scores of tiles from t on. `edges`: some token of the
 * tiles is not attended to by some query. */
INLINE void keep_scores(const struct attn_segment *s, uint32_t t, const int tiles,
                        const int queries, const enum kv_type type, const bool edges,
                        __m512 acc[ATTN_QUERIES][VECTORS], struct scores *to) {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 scale = _mm512_set1_ps(s->scale), *max = to->max, key_scale[VECTORS];
    float(*p)[LANES] = to->p + t * (uint32_t)queries;
    /* Unknown to the compiler, which would otherwise work out all addresses ahead and spill. */
    __asm__("" : "+r"(p), "+r"(max), "+v"(scale));
    for (int j = 0; type == KV_I8 && j < tiles; j++)
        key_scale[j] =
            load16(s->k[t + (uint32_t)j] + kv_scales_offset(type, s->head_dim), 0, KV_F16);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++) {
        __m512 most = max[i];
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) {
            __m512 x = acc[i][j];
            if (type == KV_I8) x = _mm512_mul_ps(x, key_scale[j]);
            if (type == KV_I4 && t == 0 && j == 0)
                x = _mm512_mask_add_ps(x, attended(0, 0, s->early), x,
                                       _mm512_set1_ps(s->query[i].shift));
            x = _mm512_mul_ps(x, scale);
            if (edges) {
                uint32_t at = (t + (uint32_t)j) * LANES;
                x = _mm512_mask_mov_ps(none, attended(at, s->query[i].first, s->query[i].end), x);
            }
            _mm512_store_ps(p[j * queries + i], x);
            most = _mm512_max_ps(x, most);
        }
        max[i] = most;
    }
}

/* Keys of a tile in dimension d. Of the values behind them, as much is fetched;
 * floats are mostly those of an encoder, which lie elsewhere and have just been written. */
INLINE __m512 load_keys(const uint8_t *tile, size_t d, ptrdiff_t values, const enum kv_type type) {
    if (type != KV_F32) fetch(tile + values, d * LANES, type);
    return load16(tile, d * LANES, type);
}

/* Keys that are multiplied together, and how far behind them their values lie. */
struct key_tiles {
    const uint8_t *tile[VECTORS];
    ptrdiff_t values;
};

/* Adds the products in dimension d. */
INLINE void multiply_dim(const struct key_tiles *at, size_t d, const float *q, const int tiles,
                         const int queries, const enum kv_type type,
                         __m512 acc[ATTN_QUERIES][VECTORS]) {
    __m512 k[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < tiles; j++) k[j] = load_keys(at->tile[j], d, at->values, type);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++)
            acc[i][j] = add_product(acc[i][j], k[j], q + i * QUERY_STRIDE);
}

/* Adds the products with keys of tiles from t on, in the dimensions from d on that are at hand. */
INLINE void multiply_keys(const struct attn_segment *s, uint32_t t, size_t d, const int tiles,
                          const int queries, const enum kv_type type, const struct scores *at,
                          __m512 acc[ATTN_QUERIES][VECTORS]) {
    const size_t end = s->head_dim - d < QUERY_DIMS ? s->head_dim : d + QUERY_DIMS;
    struct key_tiles keys;
#pragma GCC unroll 4
    for (int j = 0; j < tiles; j++) keys.tile[j] = s->k[t + (uint32_t)j];
    /* The same for all tiles of a cache. */
    keys.values = type == KV_F32 ? 0 : s->v[t] - s->k[t];
    const float *q = at->q[0];
    for (; d < end; d++, q++) multiply_dim(&keys, d, q, tiles, queries, type, acc);
}

/* The scores of all queries with the keys of `tiles` tiles from t on. */
INLINE void score_keys(const struct attn_segment *s, const struct attn_ranges *r, uint32_t t,
                       const int tiles, const int queries, const enum kv_type type,
                       struct scores *to) {
    __m512 acc[ATTN_QUERIES][VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) acc[i][j] = _mm512_setzero_ps();
    if (type == KV_I4) int4_multiply_keys(s, t, tiles, queries, acc);
    for (uint32_t d = 0; type != KV_I4 && d < s->head_dim; d += QUERY_DIMS) {
        if (s->head_dim > QUERY_DIMS) copy_queries(s, d, to);
        multiply_keys(s, t, d, tiles, queries, type, to, acc);
    }
    if (t * LANES >= r->all.first && (t + (uint32_t)tiles) * LANES <= r->all.end)
        keep_scores(s, t, tiles, queries, type, false, acc, to);
    else
        keep_scores(s, t, tiles, queries, type, true, acc, to);
}

/* The scores of all queries with all keys that one of them attends to. */
INLINE void score_tiles(const struct attn_segment *s, const struct attn_ranges *r,
                        struct range tiles, const int queries, const enum kv_type type,
                        struct scores *to) {
    uint32_t t = tiles.first;
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++) to->max[i] = _mm512_set1_ps(-INFINITY);
    if (type != KV_I4 && s->head_dim <= QUERY_DIMS) copy_queries(s, 0, to);
    for (; type == KV_I4 && queries > INT4_FEW && t < tiles.end; t++)
        score_keys(s, r, t, 1, queries, type, to);
    for (; queries <= (type == KV_I4 ? INT4_FEW : ATTN_FEW) && tiles.end - t >= 4 &&
           tiles.end - t != 5;
         t += 4)
        score_keys(s, r, t, 4, queries, type, to);
    if (queries <= ATTN_FEW && (tiles.end - t == 5 || tiles.end - t == 3)) {
        score_keys(s, r, t, 3, queries, type, to);
        t += 3;
    }
    for (; tiles.end - t >= 2; t += 2) score_keys(s, r, t, 2, queries, type, to);
    if (t < tiles.end) score_keys(s, r, t, 1, queries, type, to);
}

/* Scores become cap * tanh(score / cap). */
static void cap_scores(const struct attn_segment *s, struct range tiles, struct scores *to) {
    const __m512 cap = _mm512_set1_ps(s->softcap), none = _mm512_set1_ps(-INFINITY);
    for (uint32_t i = 0; i < s->query_count; i++) {
        to->max[i] = none;
        for (uint32_t t = tiles.first; t < tiles.end; t++) {
            __mmask16 mask = attended(t * LANES, s->query[i].first, s->query[i].end);
            float *p = to->p[t * s->query_count + i];
            __m512 x = _mm512_load_ps(p);
            x = _mm512_mul_ps(cap, vec_tanh(_mm512_div_ps(x, cap)));
            x = _mm512_mask_mov_ps(none, mask, x);
            _mm512_store_ps(p, x);
            to->max[i] = _mm512_max_ps(x, to->max[i]);
        }
    }
}

/* Scores become what values are weighed with: exponentials, times the values' scales where the
 * cache has them. Tokens that are not attended to are exp(-inf) = 0 and change no lane's sum; a
 * scale may make them NaN, but they are not looked at again. */
INLINE void weights_of(const struct attn_segment *s, struct range tiles, const int queries,
                       const enum kv_type type, struct scores *to, struct attn_part *out) {
    __m512 max[ATTN_QUERIES], sum[ATTN_QUERIES];
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++) {
        out[i].max = _mm512_reduce_max_ps(to->max[i]);
        max[i] = _mm512_set1_ps(out[i].max);
        sum[i] = _mm512_setzero_ps();
    }
    for (uint32_t t = tiles.first; t < tiles.end; t++) {
        __m512 scale = _mm512_setzero_ps();
        if (type == KV_I8) scale = load16(s->v[t] + kv_scales_offset(type, s->head_dim), 0, KV_F16);
#pragma GCC unroll 12
        for (int i = 0; i < queries; i++) {
            float *p = to->p[t * (uint32_t)queries + (uint32_t)i];
            __m512 e = vec_exp_of_negative(_mm512_sub_ps(_mm512_load_ps(p), max[i]));
            sum[i] = _mm512_add_ps(sum[i], e);
            if (type == KV_I8) e = _mm512_mul_ps(e, scale);
            _mm512_store_ps(p, e);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++) out[i].sum = vec_sum16(sum[i]);
}

/* All scores and what becomes of them. */
INLINE void score(const struct attn_segment *s, const struct attn_ranges *r, const int queries,
                  const enum kv_type type, struct scores *w, struct attn_part *out) {
    struct range tiles = {r->any.first / LANES, (r->any.end + LANES - 1) / LANES};
    score_tiles(s, r, tiles, queries, type, w);
    if (s->softcap > 0.0f) cap_scores(s, tiles, w);
    weights_of(s, tiles, queries, type, w, out);
}

/* A few vectors of columns of the values: which ones, and the sums of all queries. */
struct columns {
    uint32_t d;
    __mmask16 mask;
    __m512 acc[ATTN_QUERIES][VECTORS];
};

/* Values of token j in all vectors of the columns from d on. Columns of KV_I4 begin at a low half,
 * unless they are a single vector. `shares`: two vectors of KV_I4 are in one group. */
INLINE void load_values(const uint8_t *row, uint32_t j, const struct columns *at,
                        const struct int4_steps *steps, const bool shares, const int vectors,
                        const enum kv_type type, __m512 v[VECTORS]) {
    __m512 table = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) {
        if (type != KV_I4) {
            v[c] = load_some(row, at->d + (size_t)c * LANES, type, at->mask);
            continue;
        }
        const uint8_t *codes = row + kv_value_codes(at->d) + c / 2 * LANES;
        if (c % 2 == 0 || !shares)
            table = int4_table(steps, c, _mm512_set1_epi32((int)(j % LANES)));
        if (vectors == 1 && kv_value_is_high(at->d))
            v[c] = int4_values(codes, 1, table);
        else
            v[c] = int4_values(codes, c % 2, table);
    }
}

/* From one token's values to those of the tile needed next; a line of each at a time. */
INLINE void fetch_values(const uint8_t *row, uint32_t d, const int vectors,
                         const enum kv_type type) {
    if (type == KV_I4) fetch(row + kv_value_codes(d), 0, type);
#pragma GCC unroll 4
    for (int c = 0; type != KV_I4 && c < vectors; c += 4 / (int)kv_elem_bytes(type))
        fetch(row, d + (size_t)c * LANES, type);
}

/* Tokens that not all queries attend to; those that all do; and those of KV_I4 where two vectors of
 * columns are in one group. */
enum weigh_kind { WEIGH_EDGES, WEIGH_ALL, WEIGH_SHARED };

/* Adds the values of `tokens` in columns from d on. `edges`: not all queries attend to
 * them. */
INLINE void weigh_tokens(const struct attn_segment *s, struct range tokens, const int vectors,
                         const int queries, const enum kv_type type, const enum weigh_kind kind,
                         const struct scores *w, struct columns *at) {
    __m512 v[VECTORS];
    struct int4_steps steps;
    for (uint32_t j = tokens.first; j < tokens.end;) {
        const uint8_t *row = s->v[j / LANES] + j % LANES * s->v_stride;
        const float *p = w->p[j / LANES * (uint32_t)queries] + j % LANES;
        ptrdiff_t next = s->next[j / LANES] ? s->next[j / LANES] - s->v[j / LANES] : 0;
        uint32_t edge = (j / LANES + 1) * LANES, end = edge < tokens.end ? edge : tokens.end;
        if (type == KV_I4) int4_steps_of(s->v[j / LANES], s->head_dim, at->d, vectors, &steps);
        for (; j < end; j++, row += s->v_stride, p++) {
            load_values(row, j, at, &steps, kind == WEIGH_SHARED, vectors, type, v);
            if (kind != WEIGH_EDGES) fetch_values(row + next, at->d, vectors, type);
#pragma GCC unroll 12
            for (int i = 0; i < queries; i++) {
                bool attends = j >= s->query[i].first && j < s->query[i].end;
                __mmask16 own = (__mmask16)(attends ? ALL_LANES : 0);
#pragma GCC unroll 4
                for (int c = 0; c < vectors; c++)
                    at->acc[i][c] = kind == WEIGH_EDGES
                                        ? add_masked(at->acc[i][c], v[c], p + i * LANES, own)
                                        : add_product(at->acc[i][c], v[c], p + i * LANES);
            }
        }
    }
}

/* The values of all tokens in `vectors` vectors of columns from d on, weighed. One vector may be
 * the last and not full. */
INLINE void weigh_columns(const struct attn_segment *s, const struct attn_ranges *r, uint32_t d,
                          const int vectors, const int queries, const enum kv_type type,
                          const struct scores *w, struct attn_part *out) {
    struct columns at = {.d = d, .mask = ALL_LANES};
    if (vectors == 1) at.mask = attended(d, 0, s->head_dim);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) at.acc[i][c] = _mm512_setzero_ps();
    struct range before = {r->any.first, r->all.first}, after = {r->all.end, r->any.end};
    weigh_tokens(s, before, vectors, queries, type, WEIGH_EDGES, w, &at);
    if (type == KV_I4 && kv_group_dims(s->head_dim) > LANES)
        weigh_tokens(s, r->all, vectors, queries, type, WEIGH_SHARED, w, &at);
    else
        weigh_tokens(s, r->all, vectors, queries, type, WEIGH_ALL, w, &at);
    weigh_tokens(s, after, vectors, queries, type, WEIGH_EDGES, w, &at);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++)
            _mm512_mask_storeu_ps(out[i].out + d + (size_t)c * LANES, at.mask, at.acc[i][c]);
}

INLINE void weigh(const struct attn_segment *s, const struct attn_ranges *r, const int queries,
                  const enum kv_type type, const struct scores *w, struct attn_part *out) {
    uint32_t d = 0, width = s->head_dim;
    for (; queries <= ATTN_FEW && d + 4 * LANES <= width; d += 4 * LANES)
        weigh_columns(s, r, d, 4, queries, type, w, out);
    for (; d + 2 * LANES <= width; d += 2 * LANES) weigh_columns(s, r, d, 2, queries, type, w, out);
    for (; d < width; d += LANES) weigh_columns(s, r, d, 1, queries, type, w, out);
}

typedef void score_fn(const struct attn_segment *s, const struct attn_ranges *r, struct scores *w,
                      struct attn_part *out);
#define SCORE_FUNCTION(queries, type)                                                              \
    static __attribute__((noinline)) void score_##queries##_##type(                                \
        const struct attn_segment *s, const struct attn_ranges *r, struct scores *w,               \
        struct attn_part *out) {                                                                   \
        score(s, r, queries, type, w, out);                                                        \
    }
#define SCORE_ENTRY(queries, type) [queries][type] = score_##queries##_##type,
ATTN_EACH(SCORE_FUNCTION)
ATTN_EACH_TYPE(SCORE_FUNCTION, 12)

typedef void weigh_fn(const struct attn_segment *s, const struct attn_ranges *r,
                      const struct scores *w, struct attn_part *out);
#define WEIGH_FUNCTION(queries, type)                                                              \
    static __attribute__((noinline)) void weigh_##queries##_##type(                                \
        const struct attn_segment *s, const struct attn_ranges *r, const struct scores *w,         \
        struct attn_part *out) {                                                                   \
        weigh(s, r, queries, type, w, out);                                                        \
    }
#define WEIGH_ENTRY(queries, type) [queries][type] = weigh_##queries##_##type,
ATTN_EACH(WEIGH_FUNCTION)
ATTN_EACH_TYPE(WEIGH_FUNCTION, 12)

/* At most ATTN_FEW queries, or ATTN_QUERIES. */
static void attend_at_once(const struct attn_segment *s, struct attn_part *out) {
    static score_fn *const scores[ATTN_QUERIES + 1][KV_TYPE_COUNT] = {
        ATTN_EACH(SCORE_ENTRY) ATTN_EACH_TYPE(SCORE_ENTRY, 12)};
    static weigh_fn *const weighs[ATTN_QUERIES + 1][KV_TYPE_COUNT] = {
        ATTN_EACH(WEIGH_ENTRY) ATTN_EACH_TYPE(WEIGH_ENTRY, 12)};
    struct scores w;
    struct attn_ranges r = attn_ranges(s);
    scores[s->query_count][s->type](s, &r, &w, out);
    weighs[s->query_count][s->type](s, &r, &w, out);
}

void avx512_attend(const struct attn_segment *s, struct attn_part *out) {
    if (s->query_count <= ATTN_FEW || s->query_count == ATTN_QUERIES) {
        attend_at_once(s, out);
        return;
    }
    for (uint32_t i = 0; i < s->query_count; i += ATTN_FEW) {
        struct attn_segment few = attn_few(s, i);
        attend_at_once(&few, out + i);
    }
}
