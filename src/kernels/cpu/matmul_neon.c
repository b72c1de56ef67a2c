/* kernels/cpu/matmul_neon.c - products for any 64-bit Arm. */
#include "kernels/cpu/matmul_neon.h"

mm_panel_fn *const neon_panels[DTYPE_COUNT] = NEON_PANELS;
