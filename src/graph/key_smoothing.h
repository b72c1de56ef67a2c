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
 * The arrays have kv_heads * head_dim numbers, by KV head. `sums` belongs to the pass that finds
 * them (engine/key_statistics.h): attention over a cache of KV_F32 adds the keys and queries of its
 * rows from position KEY_MEAN_FIRST on, each row once.
 *
 * Thread: written before the first step that uses it, the sums by one thread of a step.
 */
#ifndef GRAPH_KEY_SMOOTHING_H
#define GRAPH_KEY_SMOOTHING_H

#include <stdint.h>

enum { KEY_MEAN_FIRST = 4 };

struct key_sums {
    double *key, *key_squares, *query_squares; /* [kv_heads * head_dim] */
    uint64_t rows;
};

struct key_smoothing {
    float *mean, *scale, *inverse;
    struct key_sums *sums; /* NULL: nothing is added up */
};

#endif
