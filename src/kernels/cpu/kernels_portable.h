/* kernels/cpu/kernels_portable.h - what the files of the portable table share, and the Arm tables
 * take over. */
#ifndef KERNELS_CPU_KERNELS_PORTABLE_H
#define KERNELS_CPU_KERNELS_PORTABLE_H

#include "kernels/cpu/cpu_int.h"

extern mm_panel_fn *const portable_panels[DTYPE_COUNT];

void portable_norm(const struct norm_args *n, const float *x, float *y);
void portable_attend(const struct attn_segment *s, struct attn_part *out);
void portable_attn_merge(struct attn_part *into, const struct attn_part *part, uint32_t head_dim);
void portable_attn_finish(struct attn_part *part, uint32_t head_dim);

#endif
