/* kernels/cuda/product_two.cu - products of bf16 and f16 weights with 1 or 2 rows.
 *
 * Those of product_few.cu, with its tiles and its bits. Where a multiprocessor has two or three
 * warps that multiply, the number of their instructions sets the rate, not memory. So each of them
 * has another beside it that brings its weights, and the activations lie in shared memory as a
 * whole: what is left to a warp that multiplies is to read and to multiply.
 *
 * Order of reading and overwriting: two barriers in shared memory belong to each slot of a ring.
 * One tells that its weights have come; the other that they are in registers, so that the slot may
 * be filled anew. While one half of a stage is multiplied, the next one is read.
 *
 * Overlap: that of product_few.cu. The rings are filled before the kernel waits for its inputs.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_first.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/product_few.cuh"

static constexpr uint32_t ROWS = 2;
static constexpr uint32_t STEPS = STAGE_COLS / 16;        /* of a half */
static constexpr uint32_t STAGE_PIECES = 2 * PIECES;      /* of a row */
static constexpr uint32_t ROW_STEP = 2 * STAGE_ROW_BYTES; /* bytes of a row from stage to stage */
static constexpr uint32_t COPIES = TILE_WEIGHTS / 2;      /* of weights: a lane's in a stage */
static constexpr uint32_t W_HALF = TILE_WEIGHTS * STAGE_ROW_BYTES;
static constexpr uint32_t X_HALF = ROWS * STAGE_ROW_BYTES, X_STAGE = 2 * X_HALF;
static constexpr uint32_t RING_STAGE_BYTES = 2 * W_HALF;
static constexpr uint32_t SHARED_MOST = 200 << 10;

/* ---- what a warp works on ---- */

/* Of a pair of warps, one that brings weights and one that multiplies. */
struct two_pair {
    struct few_tiles tiles;
    uint32_t stages, count; /* of a tile; of all its tiles */
    uint32_t ring;          /* its slots */
    uint32_t full, empty;   /* a barrier each for every slot */
    uint32_t x;             /* activations, the same for all: [half of a stage][row][piece] */
    uint32_t first;         /* of device_first.cuh, from the beginning */
    bool copies;            /* this warp is the one that brings them */
};

static __device__ inline uint32_t stages_of(const struct cuda_product &a) {
    return (a.w.row_elems / STAGE_COLS + 1) / 2;
}

template <int STAGES>
static __device__ inline struct two_pair pair_of(const struct cuda_product &a, uint32_t shared) {
    uint32_t warps = blockDim.x / 64, warp = threadIdx.x / 32, own = warp % warps;
    uint32_t tiles = (a.w.rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS;
    struct two_pair p;
    p.tiles = tiles_of(tiles, own, warps);
    p.stages = stages_of(a);
    p.count = p.tiles.count * p.stages;
    p.ring = shared + own * STAGES * RING_STAGE_BYTES;
    p.x = shared + warps * STAGES * RING_STAGE_BYTES;
    p.full = p.x + p.stages * X_STAGE + own * STAGES * 16;
    p.empty = p.full + STAGES * 8;
    p.first = p.x - shared + p.stages * X_STAGE + warps * STAGES * 16;
    p.copies = warp >= warps;
    return p;
}

template <int STAGES> static __device__ inline void init_barriers(const struct two_pair &p) {
    if (p.copies && threadIdx.x % 32 == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            arrival_init(p.full + i * 8, 32);
            arrival_init(p.empty + i * 8, 1);
        }
        arrivals_publish();
    }
    __syncthreads();
}

/* ---- copies ---- */

/* Where the lane's next copies come from, in bytes from the first weight: it brings piece lane % 16
 * of every second weight row. Each stage is a step further; behind a tile's last stage comes the
 * warp's next tile. */
struct two_source {
    uint32_t w[COPIES];
    uint32_t stage; /* of the tile */
};

struct two_steps {
    uint32_t stages;      /* of a tile */
    uint32_t to_tile;     /* from a tile's last stage to the next tile's first */
    uint32_t w_end;       /* bytes of all weights */
    uint32_t short_stage; /* has one half, or no stage has */
    bool is_second;       /* the lane's pieces are in the second half */
};

/* Weight row i of a tile. With gates: 8 of them, then the 8 that go with them. */
template <bool HAS_GATES>
static __device__ inline uint32_t weight_row(const struct cuda_product &a, uint32_t tile,
                                             uint32_t i) {
    if (!HAS_GATES) return tile * TILE_WEIGHTS + i;
    return tile * GATES + i % GATES + i / GATES * (a.w.rows / 2);
}

template <bool HAS_GATES>
static __device__ inline struct two_steps steps_of(const struct cuda_product &a) {
    uint32_t halves = a.w.row_elems / STAGE_COLS, stages = stages_of(a);
    uint32_t rows = blockDim.x / 64 * (HAS_GATES ? GATES : TILE_WEIGHTS);
    uint32_t row_bytes = a.w.row_elems * 2, back = (stages - 1) * ROW_STEP;
    return {stages, rows * row_bytes - back, a.w.rows * row_bytes,
            halves % 2 == 1 ? stages - 1 : 0xffffffffu, threadIdx.x % STAGE_PIECES >= PIECES};
}

template <bool HAS_GATES>
static __device__ inline void source_init(const struct cuda_product &a, uint32_t tile,
                                          struct two_source *s) {
    uint32_t lane = threadIdx.x % 32, row_bytes = a.w.row_elems * 2;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++)
        s->w[i] = weight_row<HAS_GATES>(a, tile, lane / STAGE_PIECES + 2 * i) * row_bytes +
                  lane % STAGE_PIECES * 16;
    s->stage = 0;
}

static __device__ inline void source_advance(const struct two_steps &n, struct two_source *s) {
    bool is_last = ++s->stage == n.stages;
    uint32_t by = is_last ? n.to_tile : ROW_STEP;
    s->stage = is_last ? 0 : s->stage;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) s->w[i] += by;
}

/* Where piece lane % 16 of row lane / 16 + 2 * i lies in a stage, less i * 2 rows: it depends on
 * i % 4 alone. */
struct two_places {
    uint32_t w[4];
};

static __device__ inline struct two_places places_of(void) {
    uint32_t lane = threadIdx.x % 32, piece = lane % STAGE_PIECES;
    struct two_places p;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        p.w[i] = piece / PIECES * W_HALF + (swizzle(lane / STAGE_PIECES, piece % PIECES) ^ i * 32);
    return p;
}

/* A stage's weights to the slot at `to`: zeros where there are none. */
static __device__ inline void bring_weights(const struct cuda_product &a,
                                            const struct two_source &s, const struct two_steps &n,
                                            const struct two_places &p, uint32_t to) {
    bool has = !(n.is_second && s.stage == n.short_stage);
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++)
        copy_16(to + p.w[i % 4] + i * 2 * STAGE_ROW_BYTES, (const uint8_t *)a.w.data + s.w[i],
                has && s.w[i] < n.w_end);
}

/* Stages [first, end) of the pair, each when its slot is free. */
template <int STAGES>
static __device__ inline void bring_stages(const struct cuda_product &a, const struct two_pair &p,
                                           const struct two_steps &n, uint32_t first, uint32_t end,
                                           struct two_source *from) {
    struct two_places places = places_of();
    uint32_t slot = 0;
    for (uint32_t i = first; i < end; i++) {
        if (i >= STAGES) arrival_wait(p.empty + slot * 8, i / STAGES - 1);
        bring_weights(a, *from, n, places, p.ring + slot * RING_STAGE_BYTES);
        arrive_with_copies(p.full + slot * 8);
        source_advance(n, from);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
}

/* ---- activations ---- */

/* All of them, by the warps that multiply: zeros where a column is not there. */
static __device__ inline void bring_rows(const struct cuda_product &a, uint32_t to) {
    uint32_t pieces = stages_of(a) * STAGE_PIECES, row_bytes = a.w.row_elems * 2;
    uint32_t threads = blockDim.x / 2;
    for (uint32_t r = 0; r < a.row_count && threadIdx.x < threads; r++)
        for (uint32_t i = threadIdx.x; i < pieces; i += threads)
            copy_16_cached(to + i / PIECES * X_HALF + swizzle(r, i % PIECES),
                           (const uint8_t *)a.x + r * row_bytes + i * 16, i * 16 < row_bytes);
    copies_commit();
    if (threadIdx.x < threads) copies_wait<0>();
}

/* The same from floats. */
template <bool IS_BF16>
static __device__ inline void make_rows(const struct cuda_few &f, const struct first_rows &m,
                                        uint8_t *to) {
    __shared__ struct norm_stats stats[FIRST_ROWS];
    uint32_t pieces = stages_of(f.product) * STAGE_PIECES, there = m.cols / 8;
    first_read(f, m, blockDim.x / 2, stats);
    for (uint32_t i = threadIdx.x; i < pieces * f.product.row_count; i += blockDim.x) {
        uint32_t row = i < pieces ? 0 : 1, piece = i - row * pieces;
        uint4 some = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) {
            if (piece >= there) continue;
            float number = first_one(m, stats[row], row, piece * 8 + n);
            if (IS_BF16)
                ((__nv_bfloat16 *)&some)[n] = __float2bfloat16_rn(number);
            else
                ((__half *)&some)[n] = half_of(number);
        }
        *(uint4 *)(to + piece / PIECES * X_HALF + swizzle(row, piece % PIECES)) = some;
    }
}

/* ---- operands ---- */

/* Of a half; of x two steps at once. */
struct two_operands {
    uint32_t w[STEPS][4], x[STEPS / 2][4];
};

/* Where the lane's rows lie in a half, by steps. */
struct two_reads {
    uint32_t w[STEPS], x[STEPS / 2];
};

/* Where there is one row, it stands for the second as well, whose results are not stored. */
static __device__ inline struct two_reads reads_of(uint32_t rows) {
    uint32_t lane = threadIdx.x % 32;
    struct two_reads r;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        r.w[step] = swizzle(lane % 16, 2 * step + lane / 16);
#pragma unroll
    for (uint32_t two = 0; two < STEPS / 2; two++)
        r.x[two] = swizzle(rows > 1 ? lane % ROWS : 0, 4 * two + lane / 8);
    return r;
}

template <int HALF>
static __device__ inline void read_half(uint32_t stage, uint32_t x, const struct two_reads &r,
                                        struct two_operands *o) {
#pragma unroll
    for (uint32_t two = 0; two < STEPS / 2; two++)
        ldmatrix_x4(o->x[two], x + r.x[two] + HALF * X_HALF);
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        ldmatrix_x4(o->w[step], stage + r.w[step] + HALF * W_HALF);
}

template <bool IS_BF16>
static __device__ inline void multiply(const struct two_operands &o, float acc[4]) {
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        mma_16x8x16<IS_BF16>(acc, o.w[step], o.x[step / 2] + step % 2 * 2);
}

/* ---- the kernel ---- */

/* The sums of the pair's tiles, to their places. */
template <bool IS_BF16, bool HAS_GATES, int STAGES>
static __device__ inline void multiply_stages(const struct cuda_few &f, const struct two_pair &p) {
    const struct cuda_product &a = f.product;
    struct few_results results;
    struct two_reads reads = reads_of(a.row_count);
    struct two_operands o[2];
    uint32_t slot = 0, phase = 0, tile = p.tiles.first, left = p.stages, x = p.x;
    float acc[4] = {0.0f};
    if (p.count == 0) return;
    find_results(a, &results);
    if (!HAS_GATES) read_old(a, tile, &results);
    arrival_wait(p.full, 0);
    read_half<0>(p.ring, x, reads, &o[0]);
    for (uint32_t i = 0; i < p.count; i++) {
        read_half<1>(p.ring + slot * RING_STAGE_BYTES, x, reads, &o[1]);
        multiply<IS_BF16>(o[0], acc);
        uint32_t done = slot;
        bool is_last = slot + 1 == STAGES;
        slot = is_last ? 0 : slot + 1;
        phase += is_last;
        x = --left > 0 ? x + X_STAGE : p.x;
        if (i + 1 < p.count) {
            arrival_wait(p.full + slot * 8, phase);
            read_half<0>(p.ring + slot * RING_STAGE_BYTES, x, reads, &o[0]);
        }
        multiply<IS_BF16>(o[1], acc); /* zeros where the stage has one half */
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(p.empty + done * 8);
        if (left > 0) continue;
        if (HAS_GATES) store_gated(f, tile, results, acc);
        if (!HAS_GATES) store_tile(a, tile, results, acc);
        tile += blockDim.x / 64;
        left = p.stages;
        if (!HAS_GATES) read_old(a, tile, &results);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[k] = 0.0f;
    }
}

template <bool IS_BF16, bool HAS_GATES, int STAGES>
static __global__ void __launch_bounds__(2 * WARPS_MAX * 32, 1) two_kernel(struct cuda_few f) {
    const struct cuda_product &a = f.product;
    extern __shared__ __align__(128) uint8_t shared[];
    admit_next_kernel();
    struct two_pair p = pair_of<STAGES>(a, shared_address(shared));
    struct two_steps n = steps_of<HAS_GATES>(a);
    struct two_source from;
    uint32_t ahead = min(p.count, (uint32_t)STAGES);
    init_barriers<STAGES>(p);
    if (p.copies) {
        source_init<HAS_GATES>(a, p.tiles.first, &from);
        bring_stages<STAGES>(a, p, n, 0, ahead, &from);
    }
    const struct first_rows floats = first_at(f, shared + p.first);
    uint8_t *rows = shared + blockDim.x / 64 * STAGES * RING_STAGE_BYTES;
    if (f.first.src.base) first_begin(f, floats, blockDim.x / 2);
    wait_for_inputs();
    if (f.first.src.base)
        make_rows<IS_BF16>(f, floats, rows);
    else
        bring_rows(a, p.x);
    __syncthreads();
    if (p.copies)
        bring_stages<STAGES>(a, p, n, ahead, p.count, &from);
    else
        multiply_stages<IS_BF16, HAS_GATES, STAGES>(f, p);
}

/* ---- launching ---- */

struct two_kernels {
    static constexpr uint32_t STAGE_BYTES = RING_STAGE_BYTES, THREADS = 64;
    static constexpr uint32_t SHARED_MAX = SHARED_MOST;
    template <bool IS_BF16, bool HAS_GATES, int STAGES> static few_kernel_fn *get(void) {
        return two_kernel<IS_BF16, HAS_GATES, STAGES>;
    }
    /* Activations, barriers, and floats. */
    static uint32_t more_bytes(const struct cuda_few *f, uint32_t warps, uint32_t stages) {
        uint32_t x = (f->product.w.row_elems / STAGE_COLS + 1) / 2 * X_STAGE;
        return x + warps * stages * 16 + first_bytes(*f);
    }
};

void cuda_product_two_prepare(void) { few_prepare<two_kernels>(); }

bool cuda_product_two_can(const struct cuda_few *f) {
    const struct cuda_product *a = &f->product;
    static constexpr uint32_t rings_most = 112 << 10, barriers_most = 1 << 10;
    bool fits = (uint64_t)a->w.rows * a->w.row_elems * 2 <= UINT32_MAX; /* offsets of weights */
    uint32_t more = a->w.row_elems * 4 + X_STAGE + barriers_most + first_bytes(*f);
    return fits && rings_most + more <= SHARED_MOST && a->row_count <= ROWS &&
           cuda_product_few_can(a);
}

void cuda_product_two(const struct cuda_few *f, const struct cuda_queue *queue) {
    few_launch<two_kernels>(f, queue);
}
