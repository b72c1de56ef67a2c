/* tensor/dtype.h - the number formats that model files use.
 *
 * Plain formats have blocks of one element. Quantised ones store a run of elements as a block
 * of small integers with scales; a row is a whole number of blocks, laid one after the other.
 * The names and layouts are those of GGUF; dequantising gives the same bits as the `gguf`
 * Python package. The formats from INT4 on are jitney's own: what other tools' folders hold is
 * rewritten in them, row by row, while a model is loaded (docs/decisions/0020).
 *
 * Thread: any; there is no state.
 */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q8_0,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_INT4,   /* 0 .. 15 with a scale in f16 and a whole zero point: GPTQ, AWQ, W4A16 */
    DTYPE_INT8,   /* -128 .. 127 with a scale in f32: W8A8, LLM.int8() */
    DTYPE_INT8_Z, /* the same with a scale in f16 and a whole zero point: GPTQ of 8 bits */
    DTYPE_NF4,    /* places in a table with a scale in f32: bitsandbytes */
    DTYPE_FP4,
    DTYPE_F8, /* e4m3 (tensor/fp8.h) with a scale in f32, one for 128 columns or more */
    DTYPE_COUNT
};
enum { DTYPE_GGUF_COUNT = DTYPE_INT4 }; /* the formats before it are GGUF's */

/* The integer form of a quantised block: element i is
 *     scale[i / group_elems] * q[i] + min[i / group_elems]
 * with q an int8 and scale, min exact in float32 (min is 0 throughout unless has_min).
 * This, not the dequantised float, is what a quantised product is defined on.
 *
 * F8 has no integer form: its products are those of the dequantised floats, as of plain formats.
 * The blocks of a row that begin in the same F8_RUN columns have the same scale. */
struct dtype_info {
    const char *name;     /* "Q4_K" */
    uint32_t block_elems; /* 1 for plain formats */
    uint32_t block_bytes;
    uint32_t group_elems; /* 16 or 32; 0 for formats without integers */
    bool has_min;
};
enum { F8_RUN = 128 };

const struct dtype_info *dtype_info(enum dtype type);
bool dtype_find(struct str name, enum dtype *out); /* by name, any case */
bool dtype_is_quantised(enum dtype type);          /* numbers share scales */
bool dtype_has_integers(enum dtype type); /* products take activations of 8 bits (tensor/q8.h) */

/* Bytes of `elems` elements: false if they are not a whole number of blocks or the product
 * wraps. The one place where the size of a tensor is computed. */
bool dtype_bytes(enum dtype type, uint64_t elems, size_t *out);

/* `elems`, a multiple of the block, from `src` (any alignment) to float32. */
void dtype_dequant(enum dtype type, const void *src, size_t elems, float *dst);

/* One block of a format with integers in that form: q[block_elems], scale and min
 * [block_elems / group_elems]. */
void dtype_unpack(enum dtype type, const void *block, int8_t *q, float *scale, float *min);

/* A block of a format that has codes, with the small numbers that the file keeps:
 *     scale[g] = d * scale code,  min[g] = -(dmin * min code),  q[i] = dtype_code_values[code]
 * d and dmin are f16; dmin and min codes are there if the format has minima. IQ4_NL has one
 * scale, d, of code 1; so have INT4, whose dmin is d and whose min code is the zero point, and NF4
 * and FP4, whose d is an f32. */
struct dtype_codes {
    uint16_t d, dmin;
    float wide_d;              /* NF4, FP4 */
    int8_t scale[16], min[16]; /* of each group; only INT4's minima may be negative */
    uint8_t code[256];
};
bool dtype_has_codes(enum dtype type);
void dtype_unpack_codes(enum dtype type, const void *block, struct dtype_codes *out);
const int8_t *dtype_code_values(enum dtype type); /* static; 16, 32 or 64 of them */

#define F16_MAX 65504.0f
float f16_to_f32(uint16_t half);
uint16_t f16_from_f32(float value); /* to nearest, ties to even; overflow gives infinity */
float bf16_to_f32(uint16_t half);
uint16_t bf16_from_f32(float value);

#endif
