/* kernels/cpu/attn_merge.h - the results of segments become one: what every instruction set does in
 * the same plain loops, compiled for its vectors by the file that includes this. Thread: any. */
#ifndef KERNELS_CPU_ATTN_MERGE_H
#define KERNELS_CPU_ATTN_MERGE_H

#include "base/fmath.h"
#include "kernels/cpu/cpu_int.h"

/* `part` is the segment behind all that are in `into`. */
static inline void attn_merge(struct attn_part *into, const struct attn_part *part,
                              uint32_t head_dim) {
    float max = into->max > part->max ? into->max : part->max;
    float f1 = fm_exp(into->max - max), f2 = fm_exp(part->max - max);
    into->max = max;
    into->sum = __builtin_fmaf(part->sum, f2, into->sum * f1);
    float *out = into->out;
    const float *from = part->out;
    for (uint32_t d = 0; d < head_dim; d++) out[d] = __builtin_fmaf(from[d], f2, out[d] * f1);
}

/* Divides by the sum of exponentials, once all segments are merged. */
static inline void attn_finish(struct attn_part *part, uint32_t head_dim) {
    float *out = part->out, sum = part->sum;
    for (uint32_t d = 0; d < head_dim; d++) out[d] /= sum;
}

#endif
