/* graph/kv_space.h - where keys and values lie: in blocks, whose inside is the device's business.
 *
 * KV memory is cut into blocks of `block_tokens` tokens. A block holds its tokens' keys and values
 * of all layers of its group, so that blocks that were never used take no memory. How a block is
 * laid out, and so how many bytes it has, is the device's answer (`kv_block_bytes` in
 * graph/device.h).
 *
 * Numbers are stored with the same bits on every device. KV_F16: rounded to nearest even. KV_I8,
 * for a head's key and for its value alone:
 *     m = max |x[d]|, NaN not counting
 *     scale = the least f16 not below m / 127, at most 65504 (the largest f16)
 *     q[d] = x[d] / scale rounded to nearest even, kept within -127 .. 127; 0 for a NaN, and
 *            all 0 if scale is 0
 * A number comes back as q[d] * scale, at most half a scale away unless m is above 127 * 65504.
 * KV_F8: e4m3 as in tensor/fp8.h, without a scale. A number comes back at most 1/16 of its size
 * away, or 2^-10 if that is more, unless it is beyond 448, the largest.
 *
 * KV_I4 keeps four bits a number. A head's key and its value first go through a Hadamard
 * transform, so that no single dimension is much larger than the others. With n the largest power
 * of two that divides head_dim, every run of n numbers becomes
 *     y = H x / sqrt(n),  H[i][j] = -1 where i & j has an odd number of bits, else 1
 * which is its own inverse and keeps products of two vectors. Numbers are kept within
 * -65504 .. 65504, a NaN becomes 0. Each group of 16 numbers (of 32 where head_dim is above 64; the
 * last may be smaller) has a step s of 1 .. 16 and an offset o of -8 .. 7, and all groups of a key
 * or value have a unit u:
 *     code c stands for u * s * (2 c - 16 - o), which is exact
 *     u = (8 + m) * 2^(e - 26), e of 5 bits and m of 3: the least for which no group's reach,
 *         max((hi - lo) / 30, hi / 22, -lo / 23), is above 16 u; the largest if there is none
 * Groups get codes from the last to the first. A group tries the steps t = ceil(reach / u), kept
 * within 1 .. 16, and t - 1, each with three offsets around the one that has the middle of the
 * numbers in the middle of the codes. It takes what gives the least squared error, of equal ones
 * the first. Then its numbers get the nearest codes, from the last to the first. The error of a
 * key's number is passed on to those that follow (graph/key_smoothing.h).
 * Attention transforms the query and rounds it to whole numbers -127 .. 127 times max |q[d]| / 127,
 * so that its products with keys are sums of whole numbers; it transforms the weighted sum of
 * transformed values back. kernels/cpu/kv_range.h is the definition to the bit.
 *
 * Layers that keep the same tokens form a KV group: the full ones, the ones with a window. Each
 * group has a space of its own, whose layers are counted within the group, and a sequence finds
 * its blocks through one table per group.
 *
 * Blocks that leave the device go to spill slots: host memory that the device can reach, one block
 * in each. (In src/graph a "slot" alone is the place of a sampled token: graph/sampling.h.)
 */
#ifndef GRAPH_KV_SPACE_H
#define GRAPH_KV_SPACE_H

#include <stddef.h>
#include <stdint.h>

enum { KV_GROUPS_MAX = 8 };

enum kv_type { KV_F16, KV_F32, KV_I8, KV_F8, KV_I4, KV_TYPE_COUNT };

static inline const char *kv_type_name(enum kv_type type) {
    static const char *const names[KV_TYPE_COUNT] = {"f16", "f32", "int8", "fp8", "int4"};
    return names[type];
}

/* An address in a device's own memory; 0: none. Only the device may read what is there. */
typedef uint64_t device_addr;

struct kv_shape {
    enum kv_type type;
    uint32_t layers, heads, head_dim;
    uint32_t block_tokens; /* a multiple of what the device asks for */
};

struct kv_space {
    struct kv_shape shape;
    uint32_t block_count;
    size_t block_bytes; /* all layers of a block */
    device_addr base;
    uint8_t *spill; /* host memory from the device's host_alloc; NULL: no spill slots */
    uint32_t spill_slots;
};

/* What a step does to KV memory before its rows are computed, in the order of its list. */
enum kv_move_kind { KV_MOVE_OUT, KV_MOVE_IN, KV_MOVE_COPY };
struct kv_move {
    enum kv_move_kind kind;
    uint32_t group;
    uint32_t from, to; /* blocks; `to` of OUT and `from` of IN are spill slots */
};

/* The bytes that a move copies, at addresses of the device or of the spill slots. CHECKs that the
 * blocks and spill slots exist. */
struct kv_copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};
struct kv_copy kv_move_copy(const struct kv_space *space, const struct kv_move *m);

#endif
