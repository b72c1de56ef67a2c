/* kernels/cpu/kv_tiles.h - the CPU's layout of KV blocks.
 *
 * A block of `block_tokens` tokens is one or more *tiles* of KV_TILE_TOKENS tokens, one behind the
 * other. A tile holds its tokens' keys and values of all layers. Inside tile t, layer l, KV head h:
 *
 *     K: [head_dim][KV_TILE_TOKENS]   the tokens of one dimension side by side, so that a query
 *                                     is multiplied with 16 keys in one vector
 *     V: [KV_TILE_TOKENS][head_dim]   a token's values side by side
 *
 * KV_I8 keeps signed bytes and, behind the bytes of K and of V, an f16 scale for each token: a
 * token's key has one, its value another. KV_F8 keeps bytes alone.
 *
 * KV_I4 keeps two codes a byte. Dimensions are counted up to a multiple of KV_CODES_RUN, those
 * beyond head_dim being 0. Keys lie so that 64 bytes are what integer dot products want, four
 * dimensions of each of 16 tokens twice; values so that 16 bytes are two vectors of 16 codes:
 *
 *     K: [head_dim / 8][KV_TILE_TOKENS][4]   dimensions 8i + b (low half) and 8i + 4 + b (high)
 *                                            of a token in its byte b
 *     V: [KV_TILE_TOKENS][head_dim / 2]   of a token, dimensions 32i + b (low) and 32i + 16 + b
 *                                         (high) in byte 16i + b
 *
 * Behind the codes of K and of V come 16 bytes with the tokens' units, and for each group of
 * kv_group_dims dimensions 16 bytes with their steps and offsets (kernels/cpu/kv_range.h).
 */
#ifndef KERNELS_CPU_KV_TILES_H
#define KERNELS_CPU_KV_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/kv_space.h"

enum { KV_TILE_TOKENS = 16, KV_CODES_RUN = 32 };

/* A KV space as the kernels see it. */
struct kv_tiles {
    enum kv_type type;
    uint32_t layers, heads, head_dim;
    uint32_t tile_count, tiles_per_block;
    uint8_t *base; /* 64-byte aligned */
};

static inline struct kv_tiles kv_tiles_of(const struct kv_space *s) {
    uint32_t per_block = s->shape.block_tokens / KV_TILE_TOKENS;
    return (struct kv_tiles){.type = s->shape.type,
                             .layers = s->shape.layers,
                             .heads = s->shape.heads,
                             .head_dim = s->shape.head_dim,
                             .tile_count = s->block_count * per_block,
                             .tiles_per_block = per_block,
                             .base = (uint8_t *)(uintptr_t)s->base};
}

/* Of a type whose elements are whole bytes. */
static inline size_t kv_elem_bytes(enum kv_type type) {
    return type == KV_F16 ? 2 : type == KV_F32 ? 4 : 1;
}

/* The dimensions of KV_I4, up to whole runs. */
static inline uint32_t kv_padded_dims(uint32_t head_dim) {
    return (head_dim + KV_CODES_RUN - 1) / KV_CODES_RUN * KV_CODES_RUN;
}

/* The elements of a token's key or value. */
static inline size_t kv_row_bytes(enum kv_type type, uint32_t head_dim) {
    if (type == KV_I4) return kv_padded_dims(head_dim) / 2;
    return head_dim * kv_elem_bytes(type);
}

/* Of KV_I4: the numbers that share a step and an offset, and how many such groups there are. */
static inline uint32_t kv_group_dims(uint32_t head_dim) { return head_dim <= 64 ? 16 : 32; }
static inline uint32_t kv_groups_of_head(uint32_t head_dim) {
    return (head_dim + kv_group_dims(head_dim) - 1) / kv_group_dims(head_dim);
}

/* What a token's key or value has beside its elements. */
static inline size_t kv_scale_bytes(enum kv_type type, uint32_t head_dim) {
    if (type == KV_I4) return 1 + (size_t)kv_groups_of_head(head_dim);
    return type == KV_I8 ? 2 : 0;
}

/* K or V of one head. */
static inline size_t kv_side_bytes(enum kv_type type, uint32_t head_dim) {
    return KV_TILE_TOKENS * (kv_row_bytes(type, head_dim) + kv_scale_bytes(type, head_dim));
}

/* Where the scales of K or V begin; of KV_I4 the units, and group by group what follows them. */
static inline size_t kv_scales_offset(enum kv_type type, uint32_t head_dim) {
    return KV_TILE_TOKENS * kv_row_bytes(type, head_dim);
}
static inline size_t kv_group_offset(uint32_t head_dim, uint32_t group) {
    return kv_scales_offset(KV_I4, head_dim) + (size_t)(1 + group) * KV_TILE_TOKENS;
}

/* In a tile's keys: the byte of token 0 that has dimension d's code, in which half; and the bytes
 * from a token to the next. */
enum { KV_KEY_DIMS = 8, KV_KEY_STRIDE = KV_KEY_DIMS / 2 };
static inline size_t kv_key_codes(uint32_t d) {
    return (size_t)d / KV_KEY_DIMS * KV_TILE_TOKENS * KV_KEY_STRIDE + d % KV_KEY_STRIDE;
}
static inline bool kv_key_is_high(uint32_t d) { return d % KV_KEY_DIMS >= KV_KEY_STRIDE; }

/* In a token's values: the byte that has dimension d's code, in which half. */
static inline size_t kv_value_codes(uint32_t d) {
    return (size_t)d / KV_CODES_RUN * (KV_CODES_RUN / 2) + d % (KV_CODES_RUN / 2);
}
static inline bool kv_value_is_high(uint32_t d) { return d % KV_CODES_RUN >= KV_CODES_RUN / 2; }

/* One layer of a tile. */
static inline size_t kv_layer_bytes(const struct kv_tiles *s) {
    return 2 * (size_t)s->heads * kv_side_bytes(s->type, s->head_dim);
}

/* All layers of it. */
static inline size_t kv_tile_bytes(const struct kv_tiles *s) {
    return s->layers * kv_layer_bytes(s);
}

/* K of one head in one layer; V follows it directly. */
static inline uint8_t *kv_tile(const struct kv_tiles *s, uint32_t layer, uint32_t tile,
                               uint32_t head) {
    size_t index = (size_t)tile * s->layers + layer;
    return s->base + index * kv_layer_bytes(s) +
           2 * (size_t)head * kv_side_bytes(s->type, s->head_dim);
}

/* Index of tile t of the sequence with the block table `blocks`. */
static inline uint32_t kv_tile_index(const struct kv_tiles *s, const uint32_t *blocks, uint32_t t) {
    uint32_t per_block = s->tiles_per_block;
    return per_block == 1 ? blocks[t] : blocks[t / per_block] * per_block + t % per_block;
}

#endif
