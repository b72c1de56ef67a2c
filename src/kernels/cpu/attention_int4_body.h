/* kernels/cpu/attention_int4_body.h - values of KV_I4 for kernels/cpu/attention_body.h. That file
 * says what must be defined before this one is included.
 * Thread: any. */
#ifndef KERNELS_CPU_ATTENTION_INT4_BODY_H
#define KERNELS_CPU_ATTENTION_INT4_BODY_H

#include "kernels/cpu/attention_scores_body.h"
#include "kernels/cpu/kv_range.h"

/* Of a tile's values of KV_I4 in a group: a number is step * code + base of its token. */
struct int4_steps {
    float step[KV_TILE_TOKENS], base[KV_TILE_TOKENS];
};
ATTN_INLINE void int4_steps_of(const uint8_t *tile, uint32_t head_dim, uint32_t group,
                               struct int4_steps *out) {
    const uint8_t *bytes = tile + kv_group_offset(head_dim, group);
    vec unit[TILE_VECTORS], step[TILE_VECTORS], offset[TILE_VECTORS];
    attn_load_units(tile + kv_scales_offset(KV_I4, head_dim), unit);
    attn_load_codes(bytes, 0, TILE_VECTORS, step);
    attn_load_codes(bytes, 1, TILE_VECTORS, offset);
#pragma GCC unroll 4
    for (int i = 0; i < TILE_VECTORS; i++) {
        vec size = vec_mul(unit[i], vec_add(step[i], vec_set1(1.0f)));
        vec from = vec_add(offset[i], vec_set1((float)(16 + INT4_OFFSET_LEAST)));
        vec_store(out->step + (size_t)i * VEC_LANES, vec_add(size, size));
        vec_store(out->base + (size_t)i * VEC_LANES, vec_neg(vec_mul(size, from)));
    }
}

/* Value d of a token of KV_I4. */
ATTN_INLINE float load_int4(const uint8_t *tile, uint32_t token, uint32_t d, uint32_t head_dim) {
    uint8_t pair = tile[token * kv_row_bytes(KV_I4, head_dim) + kv_value_codes(d)];
    int code = kv_value_is_high(d) ? pair >> 4 : pair & 15;
    uint32_t group = d / kv_group_dims(head_dim);
    struct int4_group g = int4_group_of(tile[kv_group_offset(head_dim, group) + token]);
    float unit = int4_unit(tile[kv_scales_offset(KV_I4, head_dim) + token]);
    return (float)(g.step * (2 * code - 16 - g.offset)) * unit;
}

/* Of KV_I4: codes of a token become values, 16 columns in each of `steps`. */
ATTN_INLINE void scale_codes(const struct int4_steps steps[2], uint32_t token, const int vectors,
                             vec *v) {
#pragma GCC unroll 8
    for (int c = 0; c < vectors; c++) {
        const struct int4_steps *own = steps + c / TILE_VECTORS;
        v[c] = vec_fma(v[c], vec_set1(own->step[token]), vec_set1(own->base[token]));
    }
}

#endif
