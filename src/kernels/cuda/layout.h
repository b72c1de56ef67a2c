/* kernels/cuda/layout.h - where numbers lie in device memory: KV tiles and matrices of int8 codes.
 *
 * KV. A block of `block_tokens` tokens is one or more tiles of CUDA_TILE_TOKENS tokens, one behind
 * the other; a tile holds all layers. Inside a tile, of one layer and KV head:
 *
 *     K: [head_dim / 8][CUDA_TILE_TOKENS][8]   a thread owns a token and reads 8 dimensions at
 *                                              once, its neighbours the 16 bytes next to them
 *     V: [CUDA_TILE_TOKENS][head_dim]          or as K where tensor cores attend
 *                                              (cuda_attends_mma), which read it as it lies;
 *                                              of KV_F8 then [head_dim][CUDA_TILE_TOKENS], so that
 *                                              a thread reads four tokens of a dimension at once
 *
 * Behind the bytes of K and of V, KV_I8 keeps an f16 scale for each token; KV_F8 has none.
 *
 * Codes. Rows of a quantised matrix stand in tiles of CUDA_TILE_ROWS, the last one filled up with
 * zeros. A thread owns a row and reads 16 codes at once:
 *
 *     code(row, k):   [tile][k / 16][row in tile][k % 16]
 *     scale(row, g):  [tile][g][row in tile]              minima likewise
 *
 * 4-bit codes: a group of 32 codes is 16 bytes. Byte i has code i in its low 4 bits and code i + 16
 * in its high 4 bits:
 *
 *     byte(row, k):   [tile][k / 32][row in tile][k % 16]
 *
 * Places in a table are looked up four at a time, by an instruction that takes them from 16
 * neighbouring bits. So of them, word i of the 4 words has the places 4i to 4i + 3 in its low half
 * and the places 16 + 4i to 16 + 4i + 3 in its high half, the first in the lowest 4 bits.
 *
 * The functions are compiled for the host and for the device; tests call them on the host.
 */
#ifndef KERNELS_CUDA_LAYOUT_H
#define KERNELS_CUDA_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/kv_space.h"

#ifdef __CUDACC__
#define BOTH_SIDES static inline __host__ __device__
#else
#define BOTH_SIDES static inline
#endif

/* The order of sums in attention and norms, as in kernels/cpu/numerics.h; tests/gpu compares. */
enum { CUDA_ATTN_SEGMENT = 256, CUDA_ATTN_LANES = 16, CUDA_NORM_LANES = 16 };
enum { CUDA_NORM_SHARED = 16384 }; /* columns of a norm's group that a block keeps */

enum { CUDA_TILE_TOKENS = 16, CUDA_TILE_ROWS = 32, CUDA_CODE_RUN = 16, CUDA_K_RUN = 8 };

/* What a code of a quantised weight is. Of 4 bits, in groups of 32: the number itself, 0 to 15; a
 * number from -8 to 7; its place in a table of 16 numbers. */
enum cuda_code { CUDA_CODE_8, CUDA_CODE_4, CUDA_CODE_4_SIGNED, CUDA_CODE_4_PLACE };

/* A KV space as kernels see it. */
struct cuda_kv {
    enum kv_type type;
    uint32_t layers, heads, head_dim;
    uint32_t tiles_per_block;
    uint8_t *base;
};

/* Caches that attention_mma.cuh is for. */
BOTH_SIDES bool cuda_attends_mma(enum kv_type type, uint32_t head_dim) {
    return (type == KV_F16 || type == KV_F8) && (head_dim == 64 || head_dim == 128);
}

/* Caches that attention_chunk.cu is for, on cards that have wgmma. */
BOTH_SIDES bool cuda_attends_chunks(enum kv_type type, bool by_groups) {
    return by_groups && (type == KV_F16 || type == KV_F8);
}

BOTH_SIDES size_t cuda_kv_elem_bytes(enum kv_type type) {
    return type == KV_F16 ? 2 : type == KV_F32 ? 4 : 1;
}

/* K or V of one head in one tile. */
BOTH_SIDES size_t cuda_kv_side_bytes(enum kv_type type, uint32_t head_dim) {
    size_t scale_bytes = type == KV_I8 ? 2 : 0;
    return CUDA_TILE_TOKENS * (head_dim * cuda_kv_elem_bytes(type) + scale_bytes);
}

/* Where the scales of K or V of KV_I8 begin. */
BOTH_SIDES size_t cuda_kv_scales_offset(uint32_t head_dim) {
    return (size_t)CUDA_TILE_TOKENS * head_dim;
}

BOTH_SIDES size_t cuda_kv_tile_bytes(enum kv_type type, uint32_t layers, uint32_t heads,
                                     uint32_t head_dim) {
    return (size_t)layers * heads * 2 * cuda_kv_side_bytes(type, head_dim);
}

/* K of one head in one layer of tile `t` of a sequence, whose blocks are these; V follows it. */
BOTH_SIDES uint8_t *cuda_kv_tile(const struct cuda_kv *kv, const uint32_t *blocks, uint32_t t,
                                 uint32_t layer, uint32_t head) {
    size_t tile =
        (size_t)blocks[t / kv->tiles_per_block] * kv->tiles_per_block + t % kv->tiles_per_block;
    size_t side = (tile * kv->layers + layer) * kv->heads + head;
    return kv->base + side * 2 * cuda_kv_side_bytes(kv->type, kv->head_dim);
}

/* Element indices inside K and V of a tile. */
BOTH_SIDES size_t cuda_k_index(uint32_t token, uint32_t d) {
    return ((size_t)(d / CUDA_K_RUN) * CUDA_TILE_TOKENS + token) * CUDA_K_RUN + d % CUDA_K_RUN;
}
BOTH_SIDES size_t cuda_v_index(enum kv_type type, uint32_t token, uint32_t d, uint32_t head_dim) {
    if (!cuda_attends_mma(type, head_dim)) return (size_t)token * head_dim + d;
    if (type == KV_F8) return (size_t)d * CUDA_TILE_TOKENS + token;
    return cuda_k_index(token, d);
}

/* Element indices of codes and of scales; `groups` are those of a row. */
BOTH_SIDES size_t cuda_code_index(uint32_t row, uint32_t k, uint32_t cols) {
    size_t run = (size_t)(row / CUDA_TILE_ROWS) * (cols / CUDA_CODE_RUN) + k / CUDA_CODE_RUN;
    return (run * CUDA_TILE_ROWS + row % CUDA_TILE_ROWS) * CUDA_CODE_RUN + k % CUDA_CODE_RUN;
}
BOTH_SIDES uint32_t cuda_code_bits(enum cuda_code code) { return code == CUDA_CODE_8 ? 8 : 4; }
/* Of 4 bits: the byte that has the code, cuda_code4_is_high tells in which half. */
BOTH_SIDES size_t cuda_code4_index(enum cuda_code code, uint32_t row, uint32_t k, uint32_t cols) {
    uint32_t word = k % CUDA_CODE_RUN / 4, half = k % 32 / CUDA_CODE_RUN;
    uint32_t byte = code == CUDA_CODE_4_PLACE ? word * 4 + half * 2 + k % 4 / 2 : k % CUDA_CODE_RUN;
    return cuda_code_index(row, k / 32 * CUDA_CODE_RUN + byte, cols / 2);
}
BOTH_SIDES bool cuda_code4_is_high(enum cuda_code code, uint32_t k) {
    return code == CUDA_CODE_4_PLACE ? k % 2 == 1 : k % 32 >= CUDA_CODE_RUN;
}
BOTH_SIDES size_t cuda_scale_index(uint32_t row, uint32_t group, uint32_t groups) {
    return ((size_t)(row / CUDA_TILE_ROWS) * groups + group) * CUDA_TILE_ROWS +
           row % CUDA_TILE_ROWS;
}

/* Of `count` things, one behind the other, those that block `block` of `blocks` does: shares of
 * neighbours touch, and none is larger than another by more than one. */
struct cuda_share {
    uint32_t first, end;
};
BOTH_SIDES struct cuda_share cuda_share_of(uint32_t count, uint32_t blocks, uint32_t block) {
    struct cuda_share s;
    s.first = (uint32_t)((uint64_t)block * count / blocks);
    s.end = (uint32_t)(((uint64_t)block + 1) * count / blocks);
    return s;
}

/* Zeroed memory in which blocks of product_codes_dots.cu hand over gates: of each row, the numbers
 * of a tile and a flag. It is one stream's. */
enum { CUDA_DOTS_ROWS = 4, CUDA_HANDED_FLOATS = CUDA_TILE_ROWS + 1 };
BOTH_SIDES size_t cuda_handed_bytes(uint32_t blocks) {
    return (size_t)blocks * CUDA_DOTS_ROWS * CUDA_HANDED_FLOATS * sizeof(float);
}

/* Pairs of tiles that a product's blocks share out: true if the largest share is smaller where a
 * pair may be parted. */
BOTH_SIDES bool cuda_parts_pairs(uint32_t pairs, uint32_t blocks) {
    return (2 * pairs + blocks - 1) / blocks < 2 * ((pairs + blocks - 1) / blocks);
}

#endif
