/* graph/key_smoothing.h - means and scales that make the dimensions of a layer's keys alike before
 * a cache of KV_I4 stores them.
 *
 * Four bits hold keys well whose dimensions have about the same size and no offset. In the keys of
 * a real model some dimensions are large in every key, with the same sign. So a cache of KV_I4
 * stores k' instead of a key k, and attention uses q' instead of a query q:
 *
 *     k'[d] = (k[d] - mean[d]) * inverse[d]        q'[d] = q[d] * scale[d]
 *
 * with scale * inverse about 1. The products q' * k' differ from q * k by the product of q and
 * mean, which is the same for all keys, so it does not change the softmax. Where scores are capped
 * before the softmax, mean is 0.
 *
 * The keys of a text's first tokens, which get much of the attention, are unlike all others. Those
 * of positions below KEY_MEAN_FIRST are kept as k[d] * inverse[d], and attention subtracts the
 * product of q and mean from the products with them.
 *
 * The error of one number of a stored key can be made up for by the numbers stored after it: number
 * d of k', transformed (graph/kv_space.h), is stored too small by e[d], and then each number i < d
 * is stored as if it were larger by feedback[d][i] * e[d]. With R the lower triangle for which
 * R * R^T are the second moments of transformed queries, feedback[d][i] = R[d][i] / R[i][i]: this
 * makes the errors of products of queries and keys small, as GPTQ does with products of weights.
 *
 * Arrays have kv_heads * head_dim numbers, by KV head; `feedback` has head_dim rows of
 * kv_feedback_stride numbers for each KV head, which are 0 from the diagonal on. `sums` belongs to
 * the pass that finds them (engine/key_statistics.h): attention over a cache of KV_F32 adds the
 * keys and queries of its rows from position KEY_MEAN_FIRST on, each row once.
 *
 * Thread: written before the first step that uses it; the sums of a KV head by one thread of a
 * step.
 */
#ifndef GRAPH_KEY_SMOOTHING_H
#define GRAPH_KEY_SMOOTHING_H

#include <stdint.h>

enum { KEY_MEAN_FIRST = 4 };

/* In a row of the feedback; whole vectors. */
static inline uint32_t kv_feedback_stride(uint32_t head_dim) { return (head_dim + 31) / 32 * 32; }

struct key_sums {
    double *key, *key_squares; /* [kv_heads * head_dim] */
    double *query_products; /* [kv_heads][head_dim][head_dim], those below the diagonal, and it */
    uint64_t rows;
};

struct key_smoothing {
    float *mean, *scale, *inverse, *feedback;
    struct key_sums *sums; /* NULL: nothing is added up */
};

#endif
