/* kernels/cuda/product_few.cuh - what products of few rows share: how tiles are dealt to blocks and
 * warps, where a lane's results go, and how those of 16 bits are launched.
 *
 * A tile is 16 weight rows. There is one block for each multiprocessor; every block gets as many
 * tiles as the others, or one less.
 */
#ifndef KERNELS_CUDA_PRODUCT_FEW_CUH
#define KERNELS_CUDA_PRODUCT_FEW_CUH

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t TILE_WEIGHTS = 16, WARPS_MAX = 7;
static constexpr uint32_t GATES = TILE_WEIGHTS / 2; /* of a tile, in front of as many values */

/* ---- tiles ---- */

/* A warp's tiles: first, then every `warps`-th below the block's end. */
struct few_tiles {
    uint32_t first, count;
};

static __device__ inline struct few_tiles tiles_of(uint32_t tiles, uint32_t warp, uint32_t warps) {
    uint32_t first = (uint32_t)((uint64_t)blockIdx.x * tiles / gridDim.x) + warp;
    uint32_t end = (uint32_t)(((uint64_t)blockIdx.x + 1) * tiles / gridDim.x);
    return {first, first < end ? (end - first + warps - 1) / warps : 0};
}

static __device__ inline struct few_tiles tiles_of_warp(uint32_t tiles) {
    return tiles_of(tiles, threadIdx.x / 32, blockDim.x / 32);
}

/* Which stage of which tile; `tile` is the warp's own. */
struct few_place {
    uint32_t tile, stage;
};

/* True: a new tile begins. */
static __device__ inline bool next_stage(uint32_t stages, struct few_place *p) {
    if (++p->stage < stages) return false;
    p->stage = 0;
    p->tile += blockDim.x / 32;
    return true;
}

/* ---- results ---- */

/* The lane's results of a tile: weights lane / 4 and + 8, rows lane % 4 * 2 and + 1. */
struct few_results {
    float *out[2]; /* the rows; NULL: there is no such row, or it is not live */
    float old[4];  /* what is added to */
};

static __device__ inline void find_results(const struct cuda_product &a, struct few_results *r) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = threadIdx.x % 4 * 2 + i;
        r->out[i] = row < a.row_count && mat_is_live(a.dst, row) ? mat_f32(a.dst, row) : NULL;
    }
}

static __device__ inline void read_old(const struct cuda_product &a, uint32_t tile,
                                       struct few_results *r) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = tile * TILE_WEIGHTS + threadIdx.x % 32 / 4 + i / 2 * 8;
        bool is_there = a.add && r->out[i % 2] && n < a.w.rows;
        r->old[i] = is_there ? r->out[i % 2][n] : 0.0f;
    }
}

static __device__ inline void store_tile(const struct cuda_product &a, uint32_t tile,
                                         const struct few_results &r, const float acc[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = tile * TILE_WEIGHTS + threadIdx.x % 32 / 4 + i / 2 * 8;
        if (!r.out[i % 2] || n >= a.w.rows) continue;
        float y = a.bias ? acc[i] + a.bias[n] : acc[i];
        r.out[i % 2][n] = a.add ? y + r.old[i] : y;
    }
}

/* The activated gates times their values. */
static __device__ inline void store_gated(const struct cuda_few &f, uint32_t tile,
                                          const struct few_results &r, const float acc[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (!r.out[i]) continue;
        float y = act_one(f.act, acc[i]) * acc[2 + i];
        store_half(f.gated, threadIdx.x % 4 * 2 + i, tile * GATES + threadIdx.x % 32 / 4, y);
    }
}

/* ---- launching ---- */

struct few_grid {
    uint32_t blocks, warps;
};

/* As many warps as a block has tiles, or as few rounds of up to WARPS_MAX as that takes. */
static inline struct few_grid few_grid_of(uint32_t weights, uint32_t multiprocessors) {
    uint32_t tiles = (weights + TILE_WEIGHTS - 1) / TILE_WEIGHTS;
    uint32_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
    uint32_t most = (tiles + blocks - 1) / blocks, rounds = (most + WARPS_MAX - 1) / WARPS_MAX;
    return {blocks, (most + rounds - 1) / rounds};
}

/* More than half of what a multiprocessor has, so that no two blocks share one. */
static inline uint32_t few_shared_bytes(uint32_t needed) {
    static constexpr uint32_t least = 116 << 10;
    return needed > least ? needed : least;
}

/* A ring has as many stages as fit, which depends on the warps of a block that multiply. KERNELS
 * has the kernel for each number, `get`; the threads for each such warp, THREADS; the bytes of a
 * stage, STAGE_BYTES; what a block needs beside rings, `more_bytes`; and the most that all of this
 * takes, SHARED_MAX. */
typedef void few_kernel_fn(struct cuda_few f);

template <class KERNELS, bool IS_BF16, bool HAS_GATES, int STAGES>
static void few_launch_stages(const struct cuda_few *f, struct few_grid grid,
                              const struct cuda_queue *queue) {
    uint32_t bytes =
        grid.warps * STAGES * KERNELS::STAGE_BYTES + KERNELS::more_bytes(f, grid.warps, STAGES);
    launch(queue, KERNELS::template get<IS_BF16, HAS_GATES, STAGES>(), grid.blocks,
           grid.warps * KERNELS::THREADS, few_shared_bytes(bytes), *f);
}

template <class KERNELS, bool IS_BF16, bool HAS_GATES>
static void few_launch_form(const struct cuda_few *f, const struct cuda_queue *queue) {
    struct few_grid grid = few_grid_of(f->product.w.rows, f->multiprocessors);
    if (grid.warps <= 2)
        few_launch_stages<KERNELS, IS_BF16, HAS_GATES, 12>(f, grid, queue);
    else if (grid.warps == 3)
        few_launch_stages<KERNELS, IS_BF16, HAS_GATES, 8>(f, grid, queue);
    else if (grid.warps <= 5)
        few_launch_stages<KERNELS, IS_BF16, HAS_GATES, 5>(f, grid, queue);
    else
        few_launch_stages<KERNELS, IS_BF16, HAS_GATES, 4>(f, grid, queue);
}

template <class KERNELS>
static void few_launch(const struct cuda_few *f, const struct cuda_queue *queue) {
    bool is_bf16 = f->product.w.form == CUDA_BF16;
    if (f->product.row_count == 0) return;
    if (is_bf16 && f->gates)
        few_launch_form<KERNELS, true, true>(f, queue);
    else if (is_bf16)
        few_launch_form<KERNELS, true, false>(f, queue);
    else if (f->gates)
        few_launch_form<KERNELS, false, true>(f, queue);
    else
        few_launch_form<KERNELS, false, false>(f, queue);
}

template <class KERNELS, bool IS_BF16, bool HAS_GATES, int STAGES>
static void few_prepare_stages(void) {
    cudaFuncSetAttribute(KERNELS::template get<IS_BF16, HAS_GATES, STAGES>(),
                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)KERNELS::SHARED_MAX);
}

template <class KERNELS, bool IS_BF16, bool HAS_GATES> static void few_prepare_form(void) {
    few_prepare_stages<KERNELS, IS_BF16, HAS_GATES, 12>();
    few_prepare_stages<KERNELS, IS_BF16, HAS_GATES, 8>();
    few_prepare_stages<KERNELS, IS_BF16, HAS_GATES, 5>();
    few_prepare_stages<KERNELS, IS_BF16, HAS_GATES, 4>();
}

template <class KERNELS> static void few_prepare(void) {
    few_prepare_form<KERNELS, true, false>();
    few_prepare_form<KERNELS, true, true>();
    few_prepare_form<KERNELS, false, false>();
    few_prepare_form<KERNELS, false, true>();
}

#endif
