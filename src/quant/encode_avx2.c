/* quant/encode_avx2.c - the encoders compiled for AVX2. */
#include <string.h>

#include "quant/encode_body.h"
#include "quant/encode_int.h"

void quant_encode_avx2(enum dtype type, const float *src, const float *importance, size_t elems,
                       uint8_t *dst) {
    qb_encode(type, src, importance, elems, dst);
}
