/* kernels/cpu/key_sums.h - queries as a cache of KV_I4 wants them, and the sums that the smoothing
 * of keys is made of (graph/key_smoothing.h).
 * Thread: those of a run. */
#ifndef KERNELS_CPU_KEY_SUMS_H
#define KERNELS_CPU_KEY_SUMS_H

#include "kernels/cpu/cpu_int.h"

/* Floats of scratch in which a query is transformed, and becomes whole numbers behind that. */
static inline size_t int4_query_floats(uint32_t head_dim) {
    return kv_padded_dims(head_dim) * 5 / 4 + kv_groups_of_head(head_dim);
}

/* A query of a KV head becomes what KV_I4 wants: smoothed if `s` is given, transformed, and in
 * whole numbers, in `room` of int4_query_floats. `first`: the head's numbers in the smoothing. */
void transform_query(const struct cpu_kernels *k, const struct key_smoothing *s, size_t first,
                     uint32_t head_dim, float *room, struct attn_query *q);

/* Where the op has sums (graph/key_smoothing.h): adds the step's keys and queries, of the KV heads
 * that are thread `ith`'s. */
void attention_add_sums(const struct cpu_run *x, const struct op_attention *a, uint32_t ith,
                        uint32_t nth);

#endif
