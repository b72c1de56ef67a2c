/* kernels/cuda/launch_resident.h - what the host calls to launch all layers of a decoding step at
 * once. The rules of kernels/cuda/launch.h apply. The blocks of this kernel wait for each other, so
 * all of them must be on the card at the same time.
 */
#ifndef KERNELS_CUDA_LAUNCH_RESIDENT_H
#define KERNELS_CUDA_LAUNCH_RESIDENT_H

#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/resident_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A product of 16-bit weights. `map` describes them to the card's copies (CUtensorMap). */
struct cuda_resident_product {
    const void *map;
    const float *bias;     /* NULL: none */
    uint32_t rows, groups; /* groups of 64 columns */
};

enum cuda_resident_kind {
    CUDA_PRODUCT_QKV,
    CUDA_PRODUCT_OUT,
    CUDA_PRODUCT_GATES,
    CUDA_PRODUCT_DOWN
};
enum { CUDA_RESIDENT_PRODUCTS = 4 };

struct cuda_resident_layer {
    struct cuda_resident_product products[CUDA_RESIDENT_PRODUCTS];
    const float *norm, *ffn_norm;
    const float *q_norm, *k_norm; /* NULL: none */
    uint8_t *qkv;                 /* the product's rows */
    uint32_t kv_layer;
};

struct cuda_resident {
    const struct cuda_resident_layer *layers; /* on the card */
    uint32_t layer_count;
    uint32_t rows;
    bool is_bf16;
    float norm_eps;
    enum cuda_act_kind act;
    struct cuda_mat x;                /* the residual */
    struct cuda_mat qkv;              /* its base is the layer's */
    struct cuda_half attended, gated; /* inputs of the products behind attention and act */
    uint32_t attended_cols, gated_cols;
    struct cuda_attention attention; /* of a layer: q is where the layer's rows are */
    struct cuda_qkv turn;            /* likewise */
    uint64_t *arrivals;              /* of blocks, ever; 0 at first */
    struct cuda_resident_shape shape;
    uint32_t blocks;
};

/* Once for each card. False: its multiprocessors cannot have a block each. */
bool cuda_resident_prepare(void);
void cuda_resident_layers(const struct cuda_resident *r, const struct cuda_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
