/* quant/quant.c - see quant/quant.h for the contract; the encoders are in the *_body.h files. */
#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/encode_int.h"

static const bool has_encoder[DTYPE_COUNT] = {
    [DTYPE_F32] = true,    [DTYPE_F16] = true,  [DTYPE_BF16] = true, [DTYPE_Q4_0] = true,
    [DTYPE_Q4_1] = true,   [DTYPE_Q5_0] = true, [DTYPE_Q5_1] = true, [DTYPE_Q8_0] = true,
    [DTYPE_Q4_K] = true,   [DTYPE_Q5_K] = true, [DTYPE_Q6_K] = true, [DTYPE_IQ4_NL] = true,
    [DTYPE_IQ4_XS] = true,
};

bool quant_has_encoder(enum dtype type) {
    CHECK((unsigned)type < DTYPE_COUNT);
    return has_encoder[type];
}

const char *quant_known_types(void) {
    return "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, F16, BF16, F32";
}

bool quant_can_hold(enum dtype type, const float *src, size_t elems, size_t *bad) {
    float most = type == DTYPE_F32 ? FLT_MAX : type == DTYPE_BF16 ? 0x1.FEp127f : F16_MAX;
    for (size_t i = 0; i < elems; i++) {
        if (fabsf(src[i]) <= most) continue; /* false for a NaN */
        *bad = i;
        return false;
    }
    return true;
}

const struct quant_isa *quant_isa_at(uint32_t index) {
    static const struct quant_isa plain = {"plain", quant_encode_plain};
#if defined(__x86_64__)
    static const struct quant_isa avx2 = {"avx2", quant_encode_avx2};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && index-- == 0)
        return &avx2;
#endif
    return index == 0 ? &plain : NULL;
}

static void encode_halves(const float *src, size_t elems, uint8_t *dst, bool bf16) {
    for (size_t i = 0; i < elems; i++) {
        uint16_t half = bf16 ? bf16_from_f32(src[i]) : f16_from_f32(src[i]);
        dst[2 * i] = (uint8_t)half;
        dst[2 * i + 1] = (uint8_t)(half >> 8);
    }
}

void quant_encode(enum dtype type, const float *src, const float *importance, size_t elems,
                  void *dst) {
    CHECK(quant_has_encoder(type));
    CHECK(elems % dtype_info(type)->block_elems == 0);
    if (type == DTYPE_F32)
        memcpy(dst, src, elems * sizeof(src[0]));
    else if (type == DTYPE_F16 || type == DTYPE_BF16)
        encode_halves(src, elems, dst, type == DTYPE_BF16);
    else
        quant_isa_at(0)->encode(type, src, importance, elems, dst);
}
