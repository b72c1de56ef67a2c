/* quant/encode_body.h - the encoder of any type: weights of a block, and the block itself. */
#ifndef QUANT_ENCODE_BODY_H
#define QUANT_ENCODE_BODY_H

#include "base/check.h"
#include "quant/pack_body.h"
#include "quant/quant.h"

typedef void qb_block_fn(const float *x, const float *w, uint8_t *out);

static inline qb_block_fn *qb_block_of(enum dtype type) {
    static qb_block_fn *const blocks[DTYPE_COUNT] = {
        [DTYPE_Q4_0] = qb_q4_0,     [DTYPE_Q4_1] = qb_q4_1, [DTYPE_Q5_0] = qb_q5_0,
        [DTYPE_Q5_1] = qb_q5_1,     [DTYPE_Q8_0] = qb_q8_0, [DTYPE_Q4_K] = qb_q4_k,
        [DTYPE_Q5_K] = qb_q5_k,     [DTYPE_Q6_K] = qb_q6_k, [DTYPE_IQ4_NL] = qb_iq4_nl,
        [DTYPE_IQ4_XS] = qb_iq4_xs,
    };
    return blocks[type];
}

/* Weights relative to the largest, and a millionth of it more: what has no weight at all is still
 * rounded well where that costs the others nothing. */
static inline void qb_weights(const float *importance, uint32_t n, float *w) {
    float most = 0;
    for (uint32_t i = 0; importance && i < n; i++)
        most = importance[i] > most ? importance[i] : most;
    bool given = most > 0x1p-120f;
    for (uint32_t i = 0; i < n; i++) w[i] = given ? importance[i] / most + 0x1p-20f : 1.0f;
}

static inline void qb_encode(enum dtype type, const float *src, const float *importance,
                             size_t elems, uint8_t *dst) {
    const struct dtype_info *info = dtype_info(type);
    qb_block_fn *block = qb_block_of(type);
    float w[QB_SUPER];
    CHECK(block);
    for (size_t at = 0; at < elems; at += info->block_elems, dst += info->block_bytes) {
        if (importance || at == 0)
            qb_weights(importance ? importance + at : NULL, info->block_elems, w);
        block(src + at, w, dst);
    }
}

#endif
