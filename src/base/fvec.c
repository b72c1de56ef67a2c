/* base/fvec.c - which loops of base/fvec.h a processor runs, the fastest first. */
#include "base/fvec.h"

extern const struct fvec fvec_plain;

#if defined(__x86_64__)
extern const struct fvec fvec_avx2, fvec_avx512;

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && has_avx2();
}
#endif

const struct fvec *fvec_at(uint32_t index) {
#if defined(__x86_64__)
    if (has_avx512() && index-- == 0) return &fvec_avx512;
    if (has_avx2() && index-- == 0) return &fvec_avx2;
#endif
    return index == 0 ? &fvec_plain : NULL;
}
