/* kernels/cpu/fp_mode.c - see kernels/cpu/fp_mode.h for the contract. */
#include "kernels/cpu/fp_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR: flush to zero (bit 15), denormals are zero (bit 6), all exceptions masked (7 to 12). */
enum { COMPUTE_MODE = 1 << 15 | 1 << 6 | 0x3F << 7 };

uint64_t fp_mode_enter(void) {
    uint32_t before = _mm_getcsr();
    _mm_setcsr(COMPUTE_MODE);
    return before;
}

void fp_mode_leave(uint64_t mode) { _mm_setcsr((uint32_t)mode); }

#elif defined(__aarch64__)

/* FPCR: FZ (bit 24) flushes arguments and results; all else zero is the default mode. FZ16 among
 * it: f16 keeps its denormals, as it does on x86. Unlike x86, Arm decides before it rounds whether
 * a result is flushed: one that rounding alone would lift to 2^-126 becomes 0. */
uint64_t fp_mode_enter(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    uint64_t mode = (uint64_t)1 << 24;
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return before;
}

void fp_mode_leave(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }

#else

uint64_t fp_mode_enter(void) { return 0; }

void fp_mode_leave(uint64_t mode) { (void)mode; }

#endif
