/* quant/dense_avx2.c - products compiled for AVX2. */
#include <string.h>

#include "quant/dense_body.h"
#include "quant/dense_int.h"

void dense_multiply_avx2(const struct dense_product *p) { dn_multiply(p); }
