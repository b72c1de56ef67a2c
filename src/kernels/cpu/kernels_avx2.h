/* kernels/cpu/kernels_avx2.h - what the files of the AVX2 table share. */
#ifndef KERNELS_CPU_KERNELS_AVX2_H
#define KERNELS_CPU_KERNELS_AVX2_H

#include "kernels/cpu/cpu_int.h"

extern mm_panel_fn *const avx2_panels[DTYPE_COUNT];

void avx2_attend(const struct attn_segment *s, struct attn_part *out);
void avx2_attn_join(struct attn_part *into, const struct attn_part *part, uint32_t queries,
                    uint32_t head_dim);
void avx2_attn_finish(struct attn_part *part, uint32_t queries, uint32_t head_dim);

#endif
