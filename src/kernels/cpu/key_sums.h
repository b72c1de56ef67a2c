/* kernels/cpu/key_sums.h - converts queries for a cache of KV_I4, and adds up the sums from which
 * the smoothing of keys is computed (graph/key_smoothing.h).
 * Thread: those of a run. */
#ifndef KERNELS_CPU_KEY_SUMS_H
#define KERNELS_CPU_KEY_SUMS_H

#include "kernels/cpu/cpu_int.h"

/* Floats of scratch: the transformed query, and after it the query in whole numbers. */
static inline size_t int4_query_floats(uint32_t head_dim) {
    return kv_padded_dims(head_dim) * 5 / 4 + kv_groups_of_head(head_dim);
}

/* Converts a query of a KV head for KV_I4: smoothed if `s` is given, transformed, and in whole
 * numbers, in `room` of int4_query_floats. `first`: where the head's numbers begin in `s`. */
void transform_query(const struct cpu_kernels *k, const struct key_smoothing *s, size_t first,
                     uint32_t head_dim, float *room, struct attn_query *q);

/* If the op has sums (graph/key_smoothing.h): adds the step's keys and queries, for the KV heads of
 * thread `ith`. */
void attention_add_sums(const struct cpu_run *x, const struct op_attention *a, uint32_t ith,
                        uint32_t nth);

#endif
