/* kernels/cpu/kv_store_body.h - one token's key and value into a tile (kernels/cpu/kv_tiles.h), as
 * f16 and int8, for every vector kernel.
 *
 * The file that includes it includes <string.h> and <math.h> and its vec_X.h before, and defines
 * f16_above(x): the least f16 that is not below x, for 0 <= x <= F16_MAX.
 * Thread: any.
 */
#ifndef KERNELS_CPU_KV_STORE_BODY_H
#define KERNELS_CPU_KV_STORE_BODY_H

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kv_range.h"

static inline void store_f16(const float *k, const float *v, uint32_t head_dim, uint16_t *k_tile,
                             uint16_t *v_tile, uint32_t token) {
    uint16_t *v_row = v_tile + (size_t)token * head_dim;
    uint32_t d = 0;
    for (; d + VEC_LANES <= head_dim; d += VEC_LANES) {
        uint16_t halves[VEC_LANES];
        vec_store_f16(halves, vec_load(k + d));
        vec_store_f16(v_row + d, vec_load(v + d));
        for (uint32_t i = 0; i < VEC_LANES; i++)
            k_tile[(d + i) * KV_TILE_TOKENS + token] = halves[i];
    }
    for (; d < head_dim; d++) {
        k_tile[d * KV_TILE_TOKENS + token] = f16_from_f32(k[d]);
        v_row[d] = f16_from_f32(v[d]);
    }
}

/* Rows are padded to a whole vector: zeros change neither the scale nor anything that is kept. */
static inline vec load_padded(const float *x, uint32_t d, uint32_t count) {
    return d + VEC_LANES <= count ? vec_load(x + d) : vec_load_some(x + d, count - d);
}

/* The largest magnitude / 127, rounded up. A NaN does not count. */
static inline uint16_t int8_scale(const float *x, uint32_t count) {
    vec largest = vec_set1(0.0f);
    for (uint32_t d = 0; d < count; d += VEC_LANES)
        largest = vec_max(vec_abs(load_padded(x, d, count)), largest);
    float scale = vec_max_lane(largest) / 127.0f;
    return f16_above(scale < F16_MAX ? scale : F16_MAX);
}

/* A token's key (stride KV_TILE_TOKENS) or value (stride 1), from byte `first` of the tile on. */
static inline void store_int8(const float *x, uint32_t head_dim, size_t first, size_t stride,
                              uint32_t token, uint8_t *tile) {
    uint16_t half = int8_scale(x, head_dim);
    /* A scale of 0 stands for numbers that all become 0, as they do divided by infinity. */
    const vec scale = vec_set1(half == 0 ? INFINITY : f16_to_f32(half));
    memcpy(tile + kv_scales_offset(KV_I8, head_dim) + token * sizeof(half), &half, sizeof(half));
    for (uint32_t d = 0; d < head_dim; d += VEC_LANES) {
        int8_t bytes[VEC_LANES] = {0};
        uint32_t count = head_dim - d < VEC_LANES ? head_dim - d : VEC_LANES;
        vec_store_int8(bytes, vec_div(load_padded(x, d, head_dim), scale));
        if (stride == 1)
            memcpy(tile + first + d, bytes, count);
        else
            for (uint32_t i = 0; i < count; i++) tile[first + (d + i) * stride] = (uint8_t)bytes[i];
    }
}

static inline void store_token_int8(const float *k, const float *v, uint32_t head_dim,
                                    uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    store_int8(k, head_dim, token, KV_TILE_TOKENS, token, k_tile);
    store_int8(v, head_dim, (size_t)token * head_dim, 1, token, v_tile);
}

#endif
