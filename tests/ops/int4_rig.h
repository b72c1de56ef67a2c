/* ops/int4_rig.h - what an int4 cache holds, for tests. */
#ifndef OPS_INT4_RIG_H
#define OPS_INT4_RIG_H

#include <math.h>

#include "kernels/cpu/kv_range.h"
#include "kernels/cpu/kv_tiles.h"

/* A head of a token as an int4 cache holds it, transformed. */
static inline void read_int4(const uint8_t *tile, uint32_t dim, uint32_t token, bool is_value,
                             float *out) {
    float unit = int4_unit(tile[kv_scales_offset(KV_I4, dim) + token]);
    for (uint32_t d = 0; d < dim; d++) {
        const uint8_t *at = is_value ? tile + token * kv_row_bytes(KV_I4, dim) + kv_value_codes(d)
                                     : tile + kv_key_codes(d) + (size_t)token * KV_KEY_STRIDE;
        bool is_high = is_value ? kv_value_is_high(d) : kv_key_is_high(d);
        uint32_t group = d / kv_group_dims(dim);
        struct int4_group g = int4_group_of(tile[kv_group_offset(dim, group) + token]);
        int code = is_high ? *at >> 4 : *at & 15;
        out[d] = unit * (float)(g.step * (2 * code - 16 - g.offset));
    }
}

#endif
