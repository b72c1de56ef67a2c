/* base/fvec_avx2.c - the loops of base/fvec.h for AVX2 and FMA. */
#include "base/fvec_int.h"

extern const struct fvec fvec_avx2;
const struct fvec fvec_avx2 = FV_TABLE("avx2", fv_sum, fv_take);
