/* kernels/cuda/resident_ring.cuh - the shared memory of a block of resident.cu: its ring, the rows
 * of products, and small data (struct resident_kept).
 *
 * Each slot has two barriers: `full` completes when the copy has arrived, `empty` when the slot was
 * read. A barrier is tested by the parity of the pass. A fast warp may come to a slot while the
 * copy of the pass before has not arrived; then the parity is that of two passes ago, and the warp
 * would go on too early. So it waits for `empty` of the pass before, then for `full`.
 */
#ifndef KERNELS_CUDA_RESIDENT_RING_CUH
#define KERNELS_CUDA_RESIDENT_RING_CUH

#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_grid.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/launch_resident.h"

static constexpr uint32_t COMPUTING = CUDA_RESIDENT_WARPS * 32; /* threads */
static constexpr uint32_t RESIDENT_THREADS = COMPUTING + 32;
static constexpr uint32_t GROUP_BYTES = CUDA_SLOT_ROWS * STAGE_ROW_BYTES; /* of a slot */
static_assert(CUDA_SLOT_GROUP == STAGE_COLS, "device_stage.cuh");
static_assert(CUDA_SLOT_BYTES == CUDA_SLOT_GROUPS * GROUP_BYTES, "a slot is its groups");

/* ---- a block ---- */

/* Small data, after the rows in shared memory. The descriptions of this layer and the next one, and
 * what is computed from the rows' positions, are kept here because each barrier of the grid
 * empties the L1 cache. */
struct resident_kept {
    uint64_t full[CUDA_RESIDENT_SLOTS_MAX], empty[CUDA_RESIDENT_SLOTS_MAX];
    __align__(16) struct cuda_resident_layer layers[2];
    struct norm_stats stats[CUDA_RESIDENT_ROWS];
    float4 turns[CUDA_RESIDENT_ROWS][32]; /* sines and cosines of a lane's two pairs of a head */
    int32_t pos[CUDA_RESIDENT_ROWS];
};
static_assert(sizeof(struct resident_kept) <= CUDA_RESIDENT_MORE, "room for what is small");

/* A block's shared memory. */
struct resident_block {
    uint8_t *ring, *rows;
    struct resident_kept *kept;
    uint32_t ring_at, rows_at, full, empty; /* addresses in shared memory */
    uint32_t slots;
};

static __device__ inline struct resident_block block_of(const struct cuda_resident &r,
                                                        uint8_t *shared) {
    struct resident_block b;
    b.slots = r.shape.slots;
    b.ring = shared;
    b.rows = shared + b.slots * CUDA_SLOT_BYTES;
    b.kept = (struct resident_kept *)(b.rows + r.shape.rows_bytes);
    b.ring_at = shared_address(b.ring);
    b.rows_at = shared_address(b.rows);
    b.full = shared_address(b.kept->full);
    b.empty = shared_address(b.kept->empty);
    return b;
}

/* All warps but the one that fills the ring. */
static __device__ inline void computing_barrier() { threads_barrier(2, COMPUTING); }

/* ---- the ring ---- */

/* What the pass before brought was read. */
static __device__ inline void wait_empty(const struct resident_block &b, struct cuda_place p) {
    if (p.pass > 0) arrival_wait(b.empty + p.slot * 8, p.pass - 1);
}

/* Behind wait_empty of the same place. */
static __device__ inline void wait_copy(const struct resident_block &b, struct cuda_place p) {
    arrival_wait(b.full + p.slot * 8, p.pass);
}

static __device__ inline void wait_full(const struct resident_block &b, struct cuda_place p) {
    wait_empty(b, p);
    wait_copy(b, p);
}

/* By one lane, when all have what they need of the slot in registers. */
static __device__ inline void give_back(const struct resident_block &b, struct cuda_place p) {
    arrive(b.empty + p.slot * 8);
}

/* Where a tile begins in the matrix that its map describes: (column, row, row block, group). With
 * gates, a tile is 8 of them and the 8 ups that go with them. */
static __device__ inline void box_of(bool is_gates, uint32_t tile, uint32_t slot, uint32_t at[4]) {
    at[0] = 0;
    at[1] = is_gates ? tile * (CUDA_SLOT_ROWS / 2) : 0;
    at[2] = is_gates ? 0 : tile * 2;
    at[3] = slot * CUDA_SLOT_GROUPS;
}

/* The weights of a product's tiles, by the warp that fills the ring. */
static __device__ inline void bring_product(const struct resident_block &b,
                                            const struct cuda_resident_product &w, bool is_gates,
                                            struct cuda_turned_share share,
                                            struct cuda_place *place) {
    uint32_t at_once = cuda_tiles_at_once(share.count, b.slots), slots = cuda_slots_of(w.groups);
    for (uint32_t first = 0; first < share.count; first += at_once) {
        uint32_t tiles = min(at_once, share.count - first);
        for (uint32_t s = 0; s < slots; s++)
            for (uint32_t i = 0; i < tiles; i++) {
                uint32_t box[4], full = b.full + place->slot * 8;
                box_of(is_gates, share.first + first + i, s, box);
                wait_empty(b, *place);
                if (threadIdx.x % 32 == 0) {
                    arrival_expect(full, CUDA_SLOT_BYTES);
                    copy_box(b.ring_at + place->slot * CUDA_SLOT_BYTES, w.map, box, full);
                }
                *place = cuda_place_soon(*place, 1, b.slots);
            }
    }
}

#endif
