/* quant/dense_int.h - the products of quant/dense.h, compiled for each instruction set. */
#ifndef QUANT_DENSE_INT_H
#define QUANT_DENSE_INT_H

#include "quant/dense.h"

dense_fn dense_multiply_plain;
#if defined(__x86_64__)
dense_fn dense_multiply_avx2;
#endif

#endif
