/* kernels/cuda/product_fp8.cu - products of fp8 weights with 1 to 8 rows, near the rate at which
 * memory can be read; more rows take several turns.
 *
 * wgmma m64n8k32 of e4m3 with one accumulator, k rising in steps of 32 (launch_fp8.h). Whether
 * cuBLASLt gives the same bits is checked when the device opens (fp8.c).
 *
 * Mapping, stages and overlap are those of product_few.cu, with a byte for each number: a tile is
 * 16 weight rows, one warp's; four warps of a warpgroup multiply together, each its own tile. So
 * all warps of a group take as many turns as its first one; a warp without a tile multiplies what
 * it finds, and stores nothing. The rows of activations lie in shared memory, all columns, as
 * pieces of 8 rows x 16 bytes: the operand of wgmma.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_fp8_mma.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/launch_fp8.h"
#include "kernels/cuda/product_few.cuh"

static constexpr uint32_t FP8_WARPS = 8; /* of a block, at most */
static constexpr uint32_t HALF_BYTES = TILE_WEIGHTS * STAGE_ROW_BYTES;
static constexpr uint32_t RING_STAGE_BYTES = 2 * HALF_BYTES;
static constexpr uint32_t STEPS = STAGE_ROW_BYTES / 32; /* of a half */
static constexpr uint32_t PIECE_BYTES = 8 * 16;         /* of activations */
static constexpr uint32_t SHARED_MAX = 224 << 10;

/* ---- weights ---- */

/* Where a lane's next copies come from: it brings one piece of rows lane / 8, + 4, + 8, + 12. */
struct fp8_lane {
    const uint8_t *w[TILE_WEIGHTS / 4];
    bool has_w[TILE_WEIGHTS / 4];
};

static __device__ inline void seek_tile(const struct cuda_product &a, uint32_t tile,
                                        struct fp8_lane *l) {
    uint32_t lane = threadIdx.x % 32, piece = lane % PIECES * 16;
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++) {
        uint32_t row = tile * TILE_WEIGHTS + lane / PIECES + 4 * i;
        l->has_w[i] = row < a.w.rows;
        l->w[i] =
            (const uint8_t *)a.w.data + (size_t)(l->has_w[i] ? row : 0) * a.w.row_elems + piece;
    }
}

/* Half `half` of a stage to the ring's slot at `to`. Rows lane / 8 + 4 * i, i even or odd, have
 * their pieces turned differently. */
static __device__ inline void bring_weights(const struct fp8_lane &l, uint32_t to, uint32_t half) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++) {
        uint32_t place = swizzle(lane / PIECES + 4 * (i % 2), lane % PIECES);
        copy_16(to + half * HALF_BYTES + place + i / 2 * 8 * STAGE_ROW_BYTES,
                l.w[i] + half * STAGE_ROW_BYTES, l.has_w[i]);
    }
}

static __device__ inline void advance_weights(struct fp8_lane *l) {
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++) l->w[i] += 2 * STAGE_ROW_BYTES;
}

/* A tile's stages; the last one has one half if the columns are no multiple of 256. */
struct fp8_stages {
    uint32_t count;
    bool is_last_short;
};

static __device__ inline bool has_second(const struct fp8_stages &n, uint32_t stage) {
    return !(n.is_last_short && stage + 1 == n.count);
}

/* What a warp does: its tiles, as many turns as its group's first warp has. */
struct fp8_work {
    struct few_place brought; /* the next stage that is brought */
    uint32_t end;             /* of the block's tiles */
    uint32_t turns;           /* stages of all tiles */
};

static __device__ inline struct fp8_work work_of_warp(uint32_t tiles, uint32_t stages) {
    uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
    uint32_t begin = (uint32_t)((uint64_t)blockIdx.x * tiles / gridDim.x);
    uint32_t end = (uint32_t)(((uint64_t)blockIdx.x + 1) * tiles / gridDim.x);
    uint32_t group = begin + warp / 4 * 4;
    uint32_t rounds = group < end ? (end - group + warps - 1) / warps : 0;
    return {{begin + warp, 0}, end, rounds * stages};
}

/* The next stage into slot `to`, if its tile is one of the block's. */
static __device__ inline void bring_stage(const struct cuda_product &a, const struct fp8_stages &n,
                                          uint32_t to, struct fp8_work *work, struct fp8_lane *l) {
    if (work->brought.tile < work->end) {
        bring_weights(*l, to, 0);
        if (has_second(n, work->brought.stage)) bring_weights(*l, to, 1);
        advance_weights(l);
    }
    if (next_stage(n.count, &work->brought)) seek_tile(a, work->brought.tile, l);
}

/* ---- activations ---- */

/* All columns of the product's rows: piece p of row r at p * 128 + r * 16. What lies in the places
 * of rows that there are not only reaches results that are not stored. */
static __device__ inline void bring_rows(const struct cuda_product &a, uint8_t *to) {
    uint32_t pieces = a.w.row_elems / 16, rows = min(a.row_count, (uint32_t)CUDA_FEW_ROWS);
    for (uint32_t r = 0; r < rows; r++) {
        const uint4 *from = (const uint4 *)((const uint8_t *)a.x + (size_t)r * a.w.row_elems);
#pragma unroll 4
        for (uint32_t p = threadIdx.x; p < pieces; p += blockDim.x)
            *(uint4 *)(to + p * PIECE_BYTES + r * 16) = from[p];
    }
    fence_async();
    __syncthreads();
}

/* ---- products ---- */

/* The weights of a stage. */
struct fp8_operands {
    uint32_t w[2 * STEPS][4];
};

static __device__ inline void read_stage(uint32_t at, struct fp8_operands *o) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < 2 * STEPS; step++)
        ldmatrix_x4(o->w[step], at + step / STEPS * HALF_BYTES +
                                    swizzle(lane % 16, 2 * (step % STEPS) + lane / 16));
}

/* Begins to; `x` is where the stage's activations lie. One wait for a whole stage: the chain of its
 * products is what a warp's time goes to. */
template <bool IS_EVEN>
static __device__ inline void multiply(const struct fp8_operands &o, uint32_t x, bool is_whole,
                                       float acc[1][4]) {
    wgmma_hold<8>(acc);
    wgmma_begin();
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        wgmma_fp8(acc[0], o.w[step], wgmma_operand(x + step * 2 * PIECE_BYTES, PIECE_BYTES, 0));
    if (IS_EVEN || is_whole) {
#pragma unroll
        for (uint32_t step = STEPS; step < 2 * STEPS; step++)
            wgmma_fp8(acc[0], o.w[step], wgmma_operand(x + step * 2 * PIECE_BYTES, PIECE_BYTES, 0));
    }
    wgmma_end();
}
static __device__ inline void finish_multiply(float acc[1][4]) {
    wgmma_wait<0>();
    wgmma_hold<8>(acc);
}

/* The lane's results of a tile, and the scales that they get. */
struct fp8_results {
    struct few_results r;
    float rows[2], weights[2];
};

static __device__ inline void find_rows(const struct cuda_product &a, struct fp8_results *f) {
    find_results(a, &f->r);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = threadIdx.x % 4 * 2 + i;
        f->rows[i] = row < a.row_count ? a.x_scale[row] : 0.0f;
    }
}

/* Read at the beginning of a tile: they are there at its end. */
static __device__ inline void begin_tile(const struct cuda_product &a, uint32_t tile,
                                         struct fp8_results *f) {
    read_old(a, tile, &f->r);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t n = tile * TILE_WEIGHTS + threadIdx.x % 32 / 4 + i * 8;
        f->weights[i] = n < a.w.rows ? a.w.scale[n] : 0.0f;
    }
}

static __device__ inline void store_scaled(const struct cuda_product &a, uint32_t tile,
                                           const struct fp8_results &f, const float acc[4]) {
    float y[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) y[i] = acc[i] * (f.rows[i % 2] * f.weights[i / 2]);
    store_tile(a, tile, f.r, y);
}

/* The product of rows from `first` on. */
static __device__ inline struct cuda_product rows_from(const struct cuda_product &all,
                                                       uint32_t first) {
    struct cuda_product a = all;
    a.x = (const uint8_t *)a.x + (size_t)first * a.w.row_elems;
    a.x_scale += first;
    a.row_count -= first;
    a.dst.base += first * a.dst.row_bytes;
    if (a.dst.map)
        a.dst.map += first;
    else if (a.dst.pos)
        a.dst.pos += first;
    return a;
}

/* IS_EVEN: all stages are whole, so that nothing is decided between products. */
template <int STAGES, bool IS_EVEN>
static __global__ void __launch_bounds__(FP8_WARPS * 32, 1)
    fp8_kernel(struct cuda_product all, uint32_t rings) {
    extern __shared__ __align__(128) uint8_t shared[];
    admit_next_kernel();
    const struct cuda_product a = rows_from(all, blockIdx.y * CUDA_FEW_ROWS);
    struct fp8_stages n = {(a.w.row_elems / STAGE_ROW_BYTES + 1) / 2,
                           a.w.row_elems / STAGE_ROW_BYTES % 2 == 1};
    struct fp8_work work = work_of_warp((a.w.rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS, n.count);
    uint32_t warp = threadIdx.x / 32, x = shared_address(shared), turns = work.turns;
    uint32_t ring =
        x + a.w.row_elems * CUDA_FEW_ROWS + (warp < rings ? warp : 0) * STAGES * RING_STAGE_BYTES;
    struct few_place now = work.brought;
    struct fp8_lane l;
    seek_tile(a, now.tile, &l);
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < turns) bring_stage(a, n, ring + i * RING_STAGE_BYTES, &work, &l);
        copies_commit();
    }
    wait_for_inputs();
    bring_rows(a, shared);
    if (turns == 0) return;
    struct fp8_results results;
    struct fp8_operands o[2];
    float acc[1][4] = {{0.0f}};
    find_rows(a, &results);
    if (now.tile < work.end) begin_tile(a, now.tile, &results);
    copies_wait<STAGES - 2>();
    __syncwarp();
    read_stage(ring, &o[0]);
#pragma unroll 2
    for (uint32_t i = 0, slot = 0; i < turns; i++) {
        uint32_t next = slot + 1 == STAGES ? 0 : slot + 1;
        uint32_t free_slot = slot == 0 ? STAGES - 1 : slot - 1;
        uint32_t at = x + now.stage * 4 * STEPS * PIECE_BYTES;
        multiply<IS_EVEN>(o[0], at, has_second(n, now.stage), acc);
        copies_wait<STAGES - 3>(); /* stage i + 1 is there */
        __syncwarp();
        read_stage(ring + next * RING_STAGE_BYTES, &o[1]); /* or what lies there */
        if (i + STAGES - 1 < turns)
            bring_stage(a, n, ring + free_slot * RING_STAGE_BYTES, &work, &l);
        copies_commit();
        finish_multiply(acc);
        o[0] = o[1];
        slot = next;
        uint32_t tile = now.tile;
        if (!next_stage(n.count, &now)) continue;
        if (tile < work.end) store_scaled(a, tile, results, acc[0]);
        if (now.tile < work.end) begin_tile(a, now.tile, &results);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[0][k] = 0.0f;
    }
}

/* ---- launching ---- */

/* Rings of as many warps as ever have a tile; the fewer there are, the longer they are. */
struct fp8_shape {
    uint32_t blocks, warps, rings, stages;
};

static uint32_t stages_of(uint32_t rings, uint32_t left) {
    static constexpr uint32_t most[] = {0, 12, 12, 8, 6, 6, 6, 4, 4};
    uint32_t stages = left / (rings * RING_STAGE_BYTES);
    stages = stages < most[rings] ? stages : most[rings];
    return stages >= 12 ? 12 : stages >= 8 ? 8 : stages >= 6 ? 6 : stages >= 4 ? 4 : stages;
}

static struct fp8_shape shape_of(const struct cuda_matrix *w, uint32_t multiprocessors) {
    uint32_t tiles = (w->rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS;
    uint32_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
    uint32_t most = (tiles + blocks - 1) / blocks, rounds = (most + FP8_WARPS - 1) / FP8_WARPS;
    uint32_t warps = ((most + rounds - 1) / rounds + 3) / 4 * 4,
             rings = most < warps ? most : warps;
    uint32_t x_bytes = w->row_elems * CUDA_FEW_ROWS;
    uint32_t left = x_bytes < SHARED_MAX ? SHARED_MAX - x_bytes : 0;
    return {blocks, warps, rings, stages_of(rings, left)};
}

template <int STAGES>
static void launch_stages(const struct cuda_product *a, struct fp8_shape s,
                          const struct cuda_queue *queue) {
    uint32_t bytes = a->w.row_elems * CUDA_FEW_ROWS + s.rings * STAGES * RING_STAGE_BYTES;
    dim3 grid(s.blocks, (a->row_count + CUDA_FEW_ROWS - 1) / CUDA_FEW_ROWS);
    bool is_even = a->w.row_elems % (2 * STAGE_ROW_BYTES) == 0;
    launch(queue, is_even ? fp8_kernel<STAGES, true> : fp8_kernel<STAGES, false>, grid,
           s.warps * 32, few_shared_bytes(bytes), *a, s.rings);
}

template <int STAGES> static void prepare_stages(void) {
    cudaFuncSetAttribute(fp8_kernel<STAGES, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)SHARED_MAX);
    cudaFuncSetAttribute(fp8_kernel<STAGES, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)SHARED_MAX);
}

void cuda_product_fp8_prepare(void) {
    prepare_stages<3>();
    prepare_stages<4>();
    prepare_stages<6>();
    prepare_stages<8>();
    prepare_stages<12>();
}

bool cuda_product_fp8_can(const struct cuda_product *a) {
    return a->w.form == CUDA_FP8 && a->used == 0 && shape_of(&a->w, 1).stages >= 3;
}

void cuda_product_fp8(const struct cuda_product *a, uint32_t multiprocessors,
                      const struct cuda_queue *queue) {
    if (a->row_count == 0) return;
    struct fp8_shape s = shape_of(&a->w, multiprocessors);
    if (s.stages == 3) launch_stages<3>(a, s, queue);
    if (s.stages == 4) launch_stages<4>(a, s, queue);
    if (s.stages == 6) launch_stages<6>(a, s, queue);
    if (s.stages == 8) launch_stages<8>(a, s, queue);
    if (s.stages == 12) launch_stages<12>(a, s, queue);
}
