/* kernels/cuda/resident_layout.h - the shares of blocks and warps in the resident kernel
 * (resident.cu), and its layout of shared memory: plain arithmetic, compiled for the host and for
 * the device.
 *
 * A block has a ring of slots in shared memory. One warp fills it, in the order of use: a product's
 * weights, or tiles of the KV cache. A slot of weights is CUDA_SLOT_COLS columns of a tile of 16
 * weight rows. A block computes its tiles in rounds. In a round, up to CUDA_RESIDENT_WARPS warps
 * compute one tile each, and the slots alternate between the tiles:
 *
 *     round 0: the first columns of tile 0, of tile 1, ...; the next columns of tile 0, ...
 *     round 1: the same for the next tiles
 *
 * A tile of 64 tokens takes 1, 2 or 4 adjacent slots. If fewer are left at the end of the ring,
 * these are skipped.
 */
#ifndef KERNELS_CUDA_RESIDENT_LAYOUT_H
#define KERNELS_CUDA_RESIDENT_LAYOUT_H

#include "kernels/cuda/layout.h"

/* With the warp that fills the ring a block has 8 warps, and a thread up to 255 registers. With 9
 * warps it would have 168, too few for attention with joins. */
enum {
    CUDA_RESIDENT_ROWS = 4,                                /* of a step, at most */
    CUDA_RESIDENT_WARPS = 7,                               /* that compute */
    CUDA_SLOT_ROWS = 16,                                   /* of weights: a tile */
    CUDA_SLOT_GROUP = 64,                                  /* columns of a swizzled piece */
    CUDA_SLOT_GROUPS = 4,                                  /* of a slot */
    CUDA_SLOT_COLS = CUDA_SLOT_GROUP * CUDA_SLOT_GROUPS,   /* of a slot */
    CUDA_SLOT_BYTES = CUDA_SLOT_ROWS * CUDA_SLOT_COLS * 2, /* 8 KB */
    CUDA_SLOTS_PER_TILE = 3,                               /* of a tile that is worked on */
    CUDA_RESIDENT_SLOTS_MIN = 8,                           /* fewer are not worth it */
    CUDA_RESIDENT_SLOTS_MAX = 28,
    CUDA_RESIDENT_SHARED = 227 << 10,   /* bytes of a block, at most */
    CUDA_RESIDENT_MORE = 3072,          /* barriers and the like */
    CUDA_RESIDENT_ATTENTION = 12 << 10, /* bytes that it keeps */
    CUDA_RESIDENT_PLAIN = 32 << 10,     /* bytes of rows at once */
    CUDA_RESIDENT_JOIN = 4,             /* parts that products join */
    CUDA_TURN = 53                      /* see cuda_turned_share_of */
};

BOTH_SIDES uint32_t cuda_least(uint32_t a, uint32_t b) { return a < b ? a : b; }
BOTH_SIDES uint32_t cuda_rounded(uint32_t n, uint32_t by) { return (n + by - 1) / by * by; }

/* ---- tiles ---- */

/* A block's tiles of a product. */
struct cuda_turned_share {
    uint32_t first, count;
};

/* Two blocks differ by at most one tile. `turn` is the product's number in the step: it decides
 * which blocks have one tile more, so that these are not the same in each product. */
BOTH_SIDES struct cuda_turned_share cuda_turned_share_of(uint32_t tiles, uint32_t block,
                                                         uint32_t blocks, uint32_t turn) {
    uint32_t place = (block + turn * CUDA_TURN) % blocks;
    struct cuda_turned_share s;
    s.first = (uint32_t)((uint64_t)place * tiles / blocks);
    s.count = (uint32_t)(((uint64_t)place + 1) * tiles / blocks) - s.first;
    return s;
}

/* How many of `count` tiles are done at once: in as few rounds as the ring's slots allow. */
BOTH_SIDES uint32_t cuda_tiles_at_once(uint32_t count, uint32_t slots) {
    uint32_t most = cuda_least(CUDA_RESIDENT_WARPS, slots / CUDA_SLOTS_PER_TILE);
    uint32_t rounds = (count + most - 1) / most;
    return rounds > 0 ? (count + rounds - 1) / rounds : 1;
}

BOTH_SIDES uint32_t cuda_tiles_of(uint32_t rows) {
    return (rows + CUDA_SLOT_ROWS - 1) / CUDA_SLOT_ROWS;
}

BOTH_SIDES uint32_t cuda_slots_of(uint32_t groups) {
    return (groups + CUDA_SLOT_GROUPS - 1) / CUDA_SLOT_GROUPS;
}

/* ---- places in the ring ---- */

/* A slot, and how often the ring was gone through before. */
struct cuda_place {
    uint32_t slot, pass;
};

BOTH_SIDES struct cuda_place cuda_place_after(struct cuda_place p, uint32_t count, uint32_t slots) {
    uint32_t at = p.slot + count;
    struct cuda_place next;
    next.pass = p.pass + at / slots;
    next.slot = at % slots;
    return next;
}

/* The same for no more than one pass. */
BOTH_SIDES struct cuda_place cuda_place_soon(struct cuda_place p, uint32_t count, uint32_t slots) {
    struct cuda_place next;
    next.slot = p.slot + count;
    next.pass = p.pass;
    if (next.slot < slots) return next;
    next.slot -= slots;
    next.pass++;
    return next;
}

/* Slots that are skipped so that `count` lie side by side. */
BOTH_SIDES uint32_t cuda_slots_skipped(struct cuda_place p, uint32_t count, uint32_t slots) {
    return p.slot + count > slots ? slots - p.slot : 0;
}

/* ---- shared memory ---- */

/* What a product needs for its rows: where a norm comes first, the floats, and behind them the same
 * in 16 bits; else those in 16 bits, or as many columns of them as there is room for. */
BOTH_SIDES uint32_t cuda_normed_bytes(uint32_t rows, uint32_t elems) { return rows * elems * 6; }

/* Groups of columns that lie there at once: all of them, or whole slots. */
BOTH_SIDES uint32_t cuda_groups_at_once(uint32_t rows, uint32_t groups, uint32_t bytes) {
    uint32_t fit = bytes / (rows * CUDA_SLOT_GROUP * 2);
    return groups <= fit ? groups : fit / CUDA_SLOT_GROUPS * CUDA_SLOT_GROUPS;
}

/* A block's shared memory: the ring, rows or what attention keeps, barriers. */
struct cuda_resident_shape {
    uint32_t slots; /* 0: it does not fit */
    uint32_t rows_bytes;
};

/* `normed`: columns of products behind norms; `widest`: of the others; both filled up to groups. */
BOTH_SIDES struct cuda_resident_shape cuda_resident_shape_of(uint32_t rows, uint32_t normed,
                                                             uint32_t widest) {
    struct cuda_resident_shape s = {0, CUDA_RESIDENT_ATTENTION};
    uint32_t plain = cuda_least(rows * widest * 2, CUDA_RESIDENT_PLAIN);
    if (s.rows_bytes < cuda_normed_bytes(rows, normed))
        s.rows_bytes = cuda_normed_bytes(rows, normed);
    if (s.rows_bytes < plain) s.rows_bytes = plain;
    s.rows_bytes = cuda_rounded(s.rows_bytes, 128);
    if (s.rows_bytes + CUDA_RESIDENT_MORE > CUDA_RESIDENT_SHARED) return s;
    s.slots = (CUDA_RESIDENT_SHARED - CUDA_RESIDENT_MORE - s.rows_bytes) / CUDA_SLOT_BYTES;
    s.slots = s.slots < CUDA_RESIDENT_SLOTS_MIN ? 0 : cuda_least(s.slots, CUDA_RESIDENT_SLOTS_MAX);
    return s;
}

BOTH_SIDES uint32_t cuda_resident_bytes(struct cuda_resident_shape s) {
    return s.slots * CUDA_SLOT_BYTES + s.rows_bytes + CUDA_RESIDENT_MORE;
}

#endif
