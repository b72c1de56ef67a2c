/* quant/encode_plain.c - the encoders for any processor. */
#include <string.h>

#include "quant/encode_body.h"
#include "quant/encode_int.h"

void quant_encode_plain(enum dtype type, const float *src, const float *importance, size_t elems,
                        uint8_t *dst) {
    qb_encode(type, src, importance, elems, dst);
}
