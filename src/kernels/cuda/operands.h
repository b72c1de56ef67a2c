/* kernels/cuda/operands.h - operands and weights as the host describes them to kernels.
 *
 * Plain values, passed with a launch. Pointers are device memory.
 */
#ifndef KERNELS_CUDA_OPERANDS_H
#define KERNELS_CUDA_OPERANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/layout.h"

/* An operand in device memory: columns [col, col + cols) of rows of a value. */
struct cuda_mat {
    uint8_t *base; /* NULL: no operand */
    size_t row_bytes;
    uint32_t col, cols;
    uint32_t all_cols; /* of the value */
    uint32_t row_count;
    const int32_t *pos;  /* row r is live if pos[map[r]] >= 0; NULL: all are */
    const uint32_t *map; /* NULL: map[r] is r */
};

enum cuda_form { CUDA_F32, CUDA_BF16, CUDA_F16, CUDA_CODES, CUDA_FP8 };

/* Rows rounded to bf16, f16 (which is cut to its largest number) or fp8: the input of products. */
struct cuda_half {
    void *x; /* [rows][row_elems]; NULL: not wanted */
    enum cuda_form form;
    uint32_t row_elems;
    float *scale; /* fp8: [rows] */
    bool by_card; /* fp8: by the card's own instruction, with the same bits */
};

/* A matrix of N rows and K columns, or several (experts) one behind the other. */
struct cuda_matrix {
    enum cuda_form form;
    uint32_t rows, cols;
    uint32_t row_elems;       /* plain forms and fp8: K rounded up, zeros behind */
    uint32_t group;           /* codes: elements with one scale, 16 or 32 */
    enum cuda_code code;      /* codes: what one is */
    uint32_t table[4];        /* places: the 16 int8 that they name, four to a word */
    const void *data;         /* plain, fp8: [experts][rows][row_elems]; codes: layout.h */
    const float *scale, *min; /* codes; min NULL: the format has none. fp8: scale [rows] */
    bool free_scales;         /* fp8: scales are any floats, not powers of two (fp8_scale.h) */
    size_t expert_elems;      /* of data, from one expert to the next; codes: bytes */
    size_t expert_scales;     /* of scale and min */
};

#endif
