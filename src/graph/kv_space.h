/* graph/kv_space.h - where keys and values lie in memory.
 *
 * KV memory is cut into blocks of KV_BLOCK_TOKENS tokens. A block holds its tokens' keys and
 * values of all layers side by side, so that blocks that were never used take no memory, however
 * large the pages are. Inside block b, layer l, KV head h:
 *
 *     K tile: [head_dim][KV_BLOCK_TOKENS]   the tokens of one dimension side by side, so that a
 *                                           query meets 16 keys in one vector
 *     V tile: [KV_BLOCK_TOKENS][head_dim]   a token's values side by side
 *
 * KV_I8 keeps signed bytes and, behind the bytes of either tile, an f16 scale for each of its
 * tokens: a token's key has one, its value another.
 *
 * Numbers are stored with the same bits on every device. KV_F16: rounded to nearest even. KV_I8,
 * for a head's key and for its value alone:
 *     m = max |x[d]|, NaN not counting
 *     scale = the least f16 not below m / 127, at most 65504 (the largest f16)
 *     q[d] = x[d] / scale rounded to nearest even, kept within -127 .. 127; 0 for a NaN, and
 *            all 0 if scale is 0
 * A number comes back as q[d] * scale, at most half a scale away unless m is above 127 * 65504.
 *
 * Layers that keep the same tokens form a KV group: the full ones, the ones with a window. Each
 * group has a space of its own, whose layers are counted within the group, and a sequence finds
 * its blocks through one table per group.
 */
#ifndef GRAPH_KV_SPACE_H
#define GRAPH_KV_SPACE_H

#include <stddef.h>
#include <stdint.h>

enum { KV_BLOCK_TOKENS = 16, KV_GROUPS_MAX = 8 };

enum kv_type { KV_F16, KV_F32, KV_I8 };

struct kv_space {
    enum kv_type type;
    uint32_t layers, heads, head_dim;
    uint32_t block_count;
    uint8_t *base; /* owned by whoever made the space; 64-byte aligned */
};

static inline size_t kv_elem_bytes(enum kv_type type) {
    return type == KV_F16 ? 2 : type == KV_F32 ? 4 : 1;
}

/* What a token's key or value has beside its elements. */
static inline size_t kv_scale_bytes(enum kv_type type) { return type == KV_I8 ? 2 : 0; }

/* One K or V tile of one head. */
static inline size_t kv_tile_bytes(const struct kv_space *s) {
    size_t token_bytes = s->head_dim * kv_elem_bytes(s->type) + kv_scale_bytes(s->type);
    return KV_BLOCK_TOKENS * token_bytes;
}

/* Where the scales of a K or V tile of KV_I8 begin. */
static inline size_t kv_scales_offset(uint32_t head_dim) {
    return (size_t)KV_BLOCK_TOKENS * head_dim;
}

/* One layer of a block. */
static inline size_t kv_layer_bytes(const struct kv_space *s) {
    return 2 * (size_t)s->heads * kv_tile_bytes(s);
}

/* All layers of it. */
static inline size_t kv_block_bytes(const struct kv_space *s) {
    return s->layers * kv_layer_bytes(s);
}

static inline size_t kv_space_bytes(const struct kv_space *s) {
    return s->block_count * kv_block_bytes(s);
}

/* The K tile; the V tile follows it directly. */
static inline uint8_t *kv_tile(const struct kv_space *s, uint32_t layer, uint32_t block,
                               uint32_t head) {
    size_t index = (size_t)block * s->layers + layer;
    return s->base + index * kv_layer_bytes(s) + 2 * (size_t)head * kv_tile_bytes(s);
}

#endif
