/* quant/dense.c - chooses the code for this processor. See quant/dense.h. */
#include "quant/dense.h"

#include "quant/dense_int.h"

const struct dense_isa *dense_isa_at(uint32_t index) {
    static const struct dense_isa plain = {"plain", dense_multiply_plain};
#if defined(__x86_64__)
    static const struct dense_isa avx2 = {"avx2", dense_multiply_avx2};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && index-- == 0)
        return &avx2;
#endif
    return index == 0 ? &plain : NULL;
}

void dense_multiply(const struct dense_product *p) { dense_isa_at(0)->multiply(p); }
