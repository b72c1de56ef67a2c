/* kernels/cpu/fp_mode.h - the floating-point mode in which every result is computed.
 *
 * Denormal numbers count as zero, as arguments and as results: part of the definition, and
 * what keeps a stray tiny number from costing a hundred cycles. Rounding is to nearest even.
 *
 * Thread: the calling thread's own mode.
 */
#ifndef KERNELS_CPU_FP_MODE_H
#define KERNELS_CPU_FP_MODE_H

#include <stdint.h>

uint64_t fp_mode_enter(void); /* returns the mode to go back to */
void fp_mode_leave(uint64_t mode);

#endif
