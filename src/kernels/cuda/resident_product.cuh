/* kernels/cuda/resident_product.cuh - a tile of a product in resident.cu, by a warp.
 *
 * The bits of product_few.cu: mma.sync m16n8k16 with one f32 accumulator, k rising in steps of 16;
 * a tile of 16 weight rows is the m of the instruction, the step's rows are the n.
 *
 * Each instruction of a tile waits for the one before it, about 33 cycles for each 16 columns. In
 * that time the warp reads operands of the next 64 columns and waits for the next slot.
 */
#ifndef KERNELS_CUDA_RESIDENT_PRODUCT_CUH
#define KERNELS_CUDA_RESIDENT_PRODUCT_CUH

#include "kernels/cuda/resident_ring.cuh"

static constexpr uint32_t STEPS = CUDA_SLOT_GROUP / 16; /* of a group */

/* ---- sums ---- */

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

/* acc += `groups` groups of a tile, whose slots come every `apart` slots from `p` on. `x`: where
 * the rows' first group lies. Gives the slots back. */
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
            if (i + 2 == CUDA_SLOT_GROUPS && g + CUDA_SLOT_GROUPS < groups) wait_empty(b, next);
            if (i + 1 == CUDA_SLOT_GROUPS && has_next) {
                wait_copy(b, next);
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
