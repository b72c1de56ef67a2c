/* kernels/cpu/attention_body.h - the attention kernel of instruction sets whose vectors hold less
 * than a tile's 16 tokens: one segment of one KV head for up to ATTN_FEW queries.
 *
 * A tile's 16 keys are TILE_VECTORS vectors of scores for each query; keys and values are read and
 * widened once for all queries. Tokens that a query does not attend to may hold anything: their
 * scores are replaced by minus infinity, and their values are never multiplied.
 *
 * The file that includes it includes <math.h> and <string.h>, and defines beside its vec_X.h:
 *
 *     attn_load(p, i, type, vectors, out)   elements i, i + 1, ... of a run of the cache's numbers,
 *                                           as `vectors` vectors: TILE_VECTORS, twice or half that
 *     attn_load_codes(p, is_high, vectors, out)   codes of KV_I4 as `vectors` vectors: the low or
 *                                           the high halves of as many bytes
 *     attn_load_sums(p)                     whole numbers as a vector
 *     attn_load_units(p, out)               the units of 16 tokens of KV_I4
 *     attn_multiply_codes(s, tile, queries, sums)   of KV_I4: the products of all queries with a
 *                                           tile's keys in whole numbers, to sums[query][token]
 *     attn_prefetch(p)                      starts to read the cache line at p
 *     ATTN_WIDE_QUERIES                     up to so many queries take two tiles, or 32 columns, at
 *                                           a time; with more, sums would not stay in registers
 *     ATTN_PREFETCHES                       whether prefetching pays
 *
 * and calls ATTEND_KERNEL (attn_ranges.h) after it. attention_avx512.c has a kernel of its own:
 * there a tile is one vector, twelve queries are scored at a time, and masks replace the separate
 * passes over tokens that only some queries attend to.
 *
 * Thread: any.
 */
#ifndef KERNELS_CPU_ATTENTION_BODY_H
#define KERNELS_CPU_ATTENTION_BODY_H

#include "kernels/cpu/attention_int4_body.h"
#include "kernels/cpu/attention_scores_body.h"
#include "tensor/fp8.h"

ATTN_INLINE float load_one(const uint8_t *p, size_t i, const enum kv_type type) {
    if (type == KV_I8) return (float)(int8_t)p[i];
    if (type == KV_F8) return fp8_to_f32(p[i]);
    if (type == KV_F16) {
        uint16_t half;
        memcpy(&half, p + 2 * i, sizeof(half));
        return f16_to_f32(half);
    }
    float value;
    memcpy(&value, p + 4 * i, sizeof(value));
    return value;
}

/* Values of a token in columns from d on. Of KV_I4, `is_high`: those 16 columns are high halves;
 * twice as many are low halves, then high ones. `next`: from here to the tile needed next. */
ATTN_INLINE void load_values(const uint8_t *row, ptrdiff_t next, uint32_t d, const int is_high,
                             const int vectors, const int queries, const enum kv_type type,
                             vec *v) {
    if (type != KV_I4) {
        if (prefetches(queries, type)) prefetch(row + next, d, type);
        attn_load(row, d, type, vectors, v);
        return;
    }
    const uint8_t *codes = row + kv_value_codes(d);
    const int halves = vectors > TILE_VECTORS ? TILE_VECTORS : vectors;
    if (prefetches(queries, type) && !is_high) attn_prefetch(codes + next);
    attn_load_codes(codes, is_high, halves, v);
    if (vectors > halves) attn_load_codes(codes, 1, halves, v + halves);
}

struct columns {
    uint32_t d;
    int is_high; /* of KV_I4 */
};

/* Adds the weighted values of `tokens` in `vectors` vectors of columns from d on to the results of
 * all queries. */
ATTN_INLINE void add_columns(const struct attn_segment *s, struct range tokens,
                             const struct columns at, const int vectors, const int queries,
                             const enum kv_type type, float p[][ATTN_SEGMENT],
                             struct attn_part *out) {
    vec acc[ATTN_FEW][VECTORS_MAX], v[VECTORS_MAX];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            acc[i][c] = vec_load(out[i].out + at.d + (size_t)c * VEC_LANES);
    /* Of size_t: gcc 12 takes the minimum of 32-bit counters in vector registers, leaves j there
     * and spills it: four bytes stored, sixteen loaded, which stalls for each token. */
    for (size_t j = tokens.first; j < tokens.end;) {
        size_t tile = j / KV_TILE_TOKENS, edge = (tile + 1) * KV_TILE_TOKENS;
        size_t end = edge < tokens.end ? edge : tokens.end;
        const uint8_t *row = s->v[tile] + j % KV_TILE_TOKENS * s->v_stride;
        ptrdiff_t next = s->next[tile] ? s->next[tile] - s->v[tile] : 0;
        struct int4_steps steps[2];
        for (uint32_t i = 0; type == KV_I4 && i * TILE_VECTORS < (uint32_t)vectors; i++)
            int4_steps_of(s->v[tile], s->head_dim,
                          (at.d + i * KV_TILE_TOKENS) / kv_group_dims(s->head_dim), steps + i);
        for (; j < end; j++, row += s->v_stride) {
            load_values(row, next, at.d, at.is_high, vectors, queries, type, v);
            if (type == KV_I4) scale_codes(steps, j % KV_TILE_TOKENS, vectors, v);
#pragma GCC unroll 6
            for (int i = 0; i < queries; i++) {
                vec w = vec_set1(p[i][j]);
#pragma GCC unroll 8
                for (int c = 0; c < vectors; c++) acc[i][c] = vec_fma(w, v[c], acc[i][c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            vec_store(out[i].out + at.d + (size_t)c * VEC_LANES, acc[i][c]);
}

/* Column d alone, of one query: the width of the head is not a multiple of 8. */
ATTN_INLINE void add_column(const struct attn_segment *s, struct range tokens, uint32_t d,
                            const enum kv_type type, const float *p, float *out) {
    float acc = *out;
    for (uint32_t j = tokens.first; j < tokens.end; j++) {
        const uint8_t *tile = s->v[j / KV_TILE_TOKENS];
        uint32_t token = j % KV_TILE_TOKENS;
        float value = type == KV_I4 ? load_int4(tile, token, d, s->head_dim)
                                    : load_one(tile + token * s->v_stride, d, type);
        acc = fmaf(p[j], value, acc);
    }
    *out = acc;
}

/* Adds the weighted values of `tokens`, which all queries attend to, to their results. */
ATTN_INLINE void add_values(const struct attn_segment *s, struct range tokens, const int queries,
                            const enum kv_type type, float p[][ATTN_SEGMENT],
                            struct attn_part *out) {
    enum { COLUMNS = TILE_VECTORS * VEC_LANES, HALF = COLUMNS / 2 };
    uint32_t d = 0, width = s->head_dim;
    for (; queries <= ATTN_WIDE_QUERIES && d + 2 * COLUMNS <= width; d += 2 * COLUMNS)
        add_columns(s, tokens, (struct columns){d, 0}, 2 * TILE_VECTORS, queries, type, p, out);
    for (; d + COLUMNS <= width; d += COLUMNS)
        if (type == KV_I4 && kv_value_is_high(d))
            add_columns(s, tokens, (struct columns){d, 1}, TILE_VECTORS, queries, type, p, out);
        else
            add_columns(s, tokens, (struct columns){d, 0}, TILE_VECTORS, queries, type, p, out);
    if (type != KV_I4 && d + HALF <= width) {
        add_columns(s, tokens, (struct columns){d, 0}, TILE_VECTORS / 2, queries, type, p, out);
        d += HALF;
    }
    for (; d < width; d++)
        for (int i = 0; i < queries; i++) add_column(s, tokens, d, type, p[i], out[i].out + d);
}

/* The same for one query and tokens that some other query does not attend to. */
static void add_values_alone(const struct attn_segment *s, struct range tokens,
                             float p[][ATTN_SEGMENT], struct attn_part *out) {
    if (tokens.first >= tokens.end) return;
    if (s->type == KV_F16)
        add_values(s, tokens, 1, KV_F16, p, out);
    else if (s->type == KV_I8)
        add_values(s, tokens, 1, KV_I8, p, out);
    else if (s->type == KV_F8)
        add_values(s, tokens, 1, KV_F8, p, out);
    else if (s->type == KV_I4)
        add_values(s, tokens, 1, KV_I4, p, out);
    else
        add_values(s, tokens, 1, KV_F32, p, out);
}

ATTN_INLINE void attend(const struct attn_segment *s, const int queries, const enum kv_type type,
                        struct attn_part *out) {
    float p[ATTN_FEW][ATTN_SEGMENT];
    struct attn_ranges r = attn_ranges(s);
    struct range tiles = {r.any.first / KV_TILE_TOKENS,
                          (r.any.end + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS};
    uint32_t t = tiles.first;
    for (; type == KV_I4 && t < tiles.end; t++) multiply_int4_keys(s, t, queries, p);
    for (; queries <= ATTN_WIDE_QUERIES && t + 2 <= tiles.end; t += 2)
        multiply_keys(s, t, 2, queries, type, p);
    for (; t < tiles.end; t++) multiply_keys(s, t, 1, queries, type, p);
    for (int i = 0; i < queries; i++) {
        const struct attn_query *q = &s->query[i];
        weights_of(s, q, tiles, p[i], &out[i]);
        memset(out[i].out, 0, s->head_dim * sizeof(float));
        add_values_alone(s, attn_before(q, &r), p + i, out + i);
    }
    add_values(s, r.all, queries, type, p, out);
    for (int i = 0; i < queries; i++)
        add_values_alone(s, attn_after(&s->query[i], &r), p + i, out + i);
}

#endif
