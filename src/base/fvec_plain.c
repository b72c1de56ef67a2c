/* base/fvec_plain.c - the loops of base/fvec.h in plain C, for any processor. */
#include "base/fvec_int.h"

extern const struct fvec fvec_plain;
const struct fvec fvec_plain = FV_TABLE("plain", fv_sum, fv_take);
