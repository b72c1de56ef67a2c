/* quant/encode_int.h - the encoders of quantised types, compiled for each instruction set. */
#ifndef QUANT_ENCODE_INT_H
#define QUANT_ENCODE_INT_H

#include "quant/quant.h"

quant_encode_fn quant_encode_plain;
#if defined(__x86_64__)
quant_encode_fn quant_encode_avx2;
#endif

#endif
