/* quant/dense_plain.c - products for any processor. */
#include <string.h>

#include "quant/dense_body.h"
#include "quant/dense_int.h"

void dense_multiply_plain(const struct dense_product *p) { dn_multiply(p); }
