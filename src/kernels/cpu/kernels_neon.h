/* kernels/cpu/kernels_neon.h - what the files of the NEON table share, and the table with dot
 * products takes over. */
#ifndef KERNELS_CPU_KERNELS_NEON_H
#define KERNELS_CPU_KERNELS_NEON_H

#include "kernels/cpu/cpu_int.h"

extern mm_panel_fn *const neon_panels[DTYPE_COUNT];
extern mm_panel_fn *const dotprod_panels[DTYPE_COUNT];

mm_panel_fn neon_panel_f32, neon_panel_f16, neon_panel_bf16, neon_panel_f8; /* in both */

void neon_attend(const struct attn_segment *s, struct attn_part *out);

#endif
