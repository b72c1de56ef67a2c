/* kernels/cuda/resident_product.cuh - the ring of a block of resident.cu, and its products.
 *
 * The bits of product_few.cu: mma.sync m16n8k16 with one f32 accumulator, k rising in steps of 16;
 * a tile of 16 weight rows is the m of the instruction, the step's rows are the n.
 *
 * A chain of a tile's instructions waits for itself, about 33 cycles for each 16 columns. Between
 * two of them the warp reads operands of the next 64 columns, and waits for the next slot.
 *
 * Two barriers belong to a slot. `full` tells that its copy has come, `empty` that it was read. A
 * warp that is faster than the others may come to a slot again before the copy of the pass before
 * is there: a parity alone would let it through. So it waits for the end of that pass first.
 */
#ifndef KERNELS_CUDA_RESIDENT_PRODUCT_CUH
#define KERNELS_CUDA_RESIDENT_PRODUCT_CUH

#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_grid.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/launch_resident.h"

static constexpr uint32_t COMPUTING = CUDA_RESIDENT_WARPS * 32; /* threads */
static constexpr uint32_t RESIDENT_THREADS = COMPUTING + 32;
static constexpr uint32_t GROUP_BYTES = CUDA_SLOT_ROWS * STAGE_ROW_BYTES; /* of a slot */
static constexpr uint32_t STEPS = CUDA_SLOT_GROUP / 16;                   /* of a group */
static_assert(CUDA_SLOT_GROUP == STAGE_COLS, "device_stage.cuh");
static_assert(CUDA_SLOT_BYTES == CUDA_SLOT_GROUPS * GROUP_BYTES, "a slot is its groups");

/* ---- a block ---- */

/* What is small, behind the rows in shared memory. Descriptions of this layer and the next one, and
 * the rows' positions, lie here because each barrier of the grid empties the first cache. */
struct resident_kept {
    uint64_t full[CUDA_RESIDENT_SLOTS_MAX], empty[CUDA_RESIDENT_SLOTS_MAX];
    __align__(16) struct cuda_resident_layer layers[2];
    struct norm_stats stats[CUDA_RESIDENT_ROWS];
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

static __device__ inline void wait_full(const struct resident_block &b, struct cuda_place p) {
    wait_empty(b, p);
    arrival_wait(b.full + p.slot * 8, p.pass);
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
                                            struct cuda_share share, struct cuda_place *place) {
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

/* ---- a tile ---- */

/* Operands of 64 columns; of the rows two steps at once. */
struct tile_operands {
    uint32_t w[STEPS][4], x[STEPS / 2][4];
};

/* Where the lane's rows lie in a group, by steps. Rows that the step does not have are its first
 * one, whose results are not stored. */
struct tile_reads {
    uint32_t w[STEPS], x[STEPS / 2];
};

static __device__ inline struct tile_reads reads_of(uint32_t rows) {
    uint32_t lane = threadIdx.x % 32;
    struct tile_reads r;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        r.w[step] = swizzle(lane % 16, 2 * step + lane / 16);
#pragma unroll
    for (uint32_t two = 0; two < STEPS / 2; two++)
        r.x[two] = swizzle(lane % 8 < rows ? lane % 8 : 0, 4 * two + lane / 8);
    return r;
}

/* Step `STEP` of the operands at w and x. */
template <int STEP>
static __device__ inline void read_step(uint32_t w, uint32_t x, const struct tile_reads &r,
                                        struct tile_operands *o) {
    if (STEP % 2 == 0) ldmatrix_x4(o->x[STEP / 2], x + r.x[STEP / 2]);
    ldmatrix_x4(o->w[STEP], w + r.w[STEP]);
}

template <bool IS_BF16, int STEP>
static __device__ inline void multiply_step(const struct tile_operands &o, float acc[4]) {
    mma_16x8x16<IS_BF16>(acc, o.w[STEP], o.x[STEP / 2] + STEP % 2 * 2);
}

/* acc += `groups` groups of a tile, whose slots come every `apart` slots from `p` on. `x`: the rows'
 * first group. Gives the slots back. */
template <bool IS_BF16>
static __device__ inline void
multiply_tile(const struct resident_block &b, struct cuda_place p, uint32_t apart, uint32_t groups,
              uint32_t x, uint32_t rows, const struct tile_reads &r, float acc[4]) {
    struct tile_operands o[2];
    uint32_t x_group = rows * STAGE_ROW_BYTES, w = b.ring_at + p.slot * CUDA_SLOT_BYTES;
    wait_full(b, p);
    read_step<0>(w, x, r, &o[0]);
    read_step<1>(w, x, r, &o[0]);
    read_step<2>(w, x, r, &o[0]);
    read_step<3>(w, x, r, &o[0]);
    for (uint32_t g = 0; g < groups; g += CUDA_SLOT_GROUPS) {
        struct cuda_place next = cuda_place_soon(p, apart, b.slots);
#pragma unroll
        for (uint32_t i = 0; i < CUDA_SLOT_GROUPS; i++) {
            bool is_there = g + i < groups, has_next = g + i + 1 < groups;
            const struct tile_operands &now = o[i % 2];
            struct tile_operands *then = &o[(i + 1) % 2];
            if (!is_there) continue;
            multiply_step<IS_BF16, 0>(now, acc);
            x += x_group;
            w += GROUP_BYTES;
            if (i + 1 == CUDA_SLOT_GROUPS && has_next) {
                wait_full(b, next);
                w = b.ring_at + next.slot * CUDA_SLOT_BYTES;
            }
            if (has_next) read_step<0>(w, x, r, then);
            multiply_step<IS_BF16, 1>(now, acc);
            if (has_next) read_step<1>(w, x, r, then);
            multiply_step<IS_BF16, 2>(now, acc);
            if (has_next) read_step<2>(w, x, r, then);
            multiply_step<IS_BF16, 3>(now, acc);
            if (has_next) read_step<3>(w, x, r, then);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) give_back(b, p);
        p = next;
    }
}

/* ---- rows ---- */

/* A row's 16-byte piece (8 columns) among rows in 16 bits: [group][row][piece]. */
static __device__ inline uint32_t piece_at(uint32_t rows, uint32_t row, uint32_t piece) {
    return piece / PIECES * rows * STAGE_ROW_BYTES + swizzle(row, piece % PIECES);
}

template <bool IS_BF16> static __device__ inline uint32_t pack_two(float a, float b) {
    uint32_t two;
    if (IS_BF16) {
        ((__nv_bfloat16 *)&two)[0] = __float2bfloat16_rn(a);
        ((__nv_bfloat16 *)&two)[1] = __float2bfloat16_rn(b);
    } else {
        ((__half *)&two)[0] = half_of(a);
        ((__half *)&two)[1] = half_of(b);
    }
    return two;
}

/* Groups [first, first + count) of rows that lie in 16 bits in global memory, zeros behind column
 * `cols`. All computing threads; the rows are there for all of them behind the next barrier. */
static __device__ inline void bring_rows(const struct resident_block &b, const struct cuda_half &x,
                                         uint32_t cols, uint32_t rows, uint32_t first,
                                         uint32_t count) {
    uint32_t pieces = count * PIECES, begin = first * PIECES;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = threadIdx.x; i < pieces; i += COMPUTING) {
            const uint8_t *from = (const uint8_t *)x.x + (size_t)r * x.row_elems * 2;
            bool is_there = (begin + i) * 8 < cols;
            copy_16(b.rows_at + piece_at(rows, r, i), from + (is_there ? (begin + i) * 16 : 0),
                    is_there);
        }
    copies_commit();
    copies_wait<0>();
}

/* The rows of a product behind a norm; returns where they lie in 16 bits. All computing threads. */
template <bool IS_BF16>
static __device__ inline uint32_t make_normed(const struct cuda_resident &r,
                                              const struct resident_block &b, const float *weight,
                                              uint32_t groups) {
    uint32_t cols = r.x.cols, rows = r.rows, warp = threadIdx.x / 32;
    float *floats = (float *)b.rows;
    uint32_t made = rows * groups * CUDA_SLOT_GROUP * 4, there = cols / 8;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = threadIdx.x * 4; i < cols; i += COMPUTING * 4)
            copy_16(b.rows_at + (row * cols + i) * 4, mat_f32(r.x, row) + i, true);
    copies_commit();
    copies_wait<0>();
    computing_barrier();
    if (warp < rows) {
        struct norm_stats s =
            norm_measure(floats + warp * cols, cols, threadIdx.x % NORM_LANES, false, r.norm_eps);
        if (threadIdx.x % 32 == 0) b.kept->stats[warp] = s;
    }
    computing_barrier();
    for (uint32_t i = threadIdx.x; i < groups * PIECES; i += COMPUTING) {
        float by[8];
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) by[n] = i < there ? weight[i * 8 + n] : 0.0f;
        for (uint32_t row = 0; row < rows; row++) {
            const struct norm_stats s = b.kept->stats[row];
            const float *from = floats + row * cols + i * 8;
            uint4 some = {0, 0, 0, 0};
            uint32_t *two = (uint32_t *)&some;
#pragma unroll
            for (uint32_t n = 0; n < 4; n++)
                if (i < there)
                    two[n] = pack_two<IS_BF16>((from[2 * n] - s.mean) * s.rate * by[2 * n],
                                               (from[2 * n + 1] - s.mean) * s.rate * by[2 * n + 1]);
            *(uint4 *)(b.rows + made + piece_at(rows, row, i)) = some;
        }
    }
    computing_barrier();
    return b.rows_at + made;
}

/* ---- results ---- */

/* Where the lane's results of a tile go: weights lane / 4 and + 8, rows lane % 4 * 2 and + 1. */
struct tile_results {
    uint8_t *to; /* the first row; NULL: floats are not wanted */
    size_t row_bytes;
    bool adds;       /* to what is there */
    bool is_live[2]; /* rows */
    float old[4];
};

static __device__ inline struct tile_results results_of(const struct cuda_resident &r,
                                                        const struct resident_block &b) {
    struct tile_results t = {NULL, 0, false};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = threadIdx.x % 4 * 2 + i;
        t.is_live[i] = row < r.rows && b.kept->pos[row % CUDA_RESIDENT_ROWS] >= 0;
    }
    return t;
}

static __device__ inline float *result_at(const struct tile_results &t, uint32_t tile, uint32_t i) {
    uint32_t n = tile * CUDA_SLOT_ROWS + threadIdx.x % 32 / 4 + i / 2 * 8;
    return (float *)(t.to + (threadIdx.x % 4 * 2 + i % 2) * t.row_bytes) + n;
}

static __device__ inline bool has_result(const struct cuda_resident_product &w,
                                         const struct tile_results &t, uint32_t tile, uint32_t i) {
    return t.is_live[i % 2] && tile * CUDA_SLOT_ROWS + threadIdx.x % 32 / 4 + i / 2 * 8 < w.rows;
}

/* Before the tile's sums are there: what they are added to. */
static __device__ inline void read_old(const struct cuda_resident_product &w, uint32_t tile,
                                       struct tile_results *t) {
    if (w.bias) expect_line(w.bias + tile * CUDA_SLOT_ROWS);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        t->old[i] = t->adds && has_result(w, *t, tile, i) ? *result_at(*t, tile, i) : 0.0f;
}

static __device__ inline void store_floats(const struct cuda_resident_product &w, uint32_t tile,
                                           const struct tile_results &t, const float acc[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (!has_result(w, t, tile, i)) continue;
        uint32_t n = tile * CUDA_SLOT_ROWS + threadIdx.x % 32 / 4 + i / 2 * 8;
        float y = w.bias ? acc[i] + w.bias[n] : acc[i];
        *result_at(t, tile, i) = t.adds ? y + t.old[i] : y;
    }
}

/* The activated gates times their ups. */
static __device__ inline void store_gates(const struct cuda_resident &r, uint32_t tile,
                                          const struct tile_results &t, const float acc[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (!t.is_live[i]) continue;
        float y = act_one(r.act, acc[i]) * acc[2 + i];
        uint32_t n = tile * (CUDA_SLOT_ROWS / 2) + threadIdx.x % 32 / 4;
        store_half(r.gated, threadIdx.x % 4 * 2 + i, n, y);
    }
}

#endif
