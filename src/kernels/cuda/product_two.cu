/* kernels/cuda/product_two.cu - products of bf16 and f16 weights with 1 or 2 rows.
 *
 * Those of product_few.cu, with its mapping, its overlap, its order of reading and overwriting and
 * its bits. Where a multiprocessor has two or three warps, the number of instructions sets the
 * rate, not memory. So there are fewer of them here: addresses are 32-bit sums, a stage has room
 * for two rows of activations, and nothing is done for rows that are not there, whose results are
 * not stored. The first activations come by loads, so that they are not waited for behind weights
 * that are still on their way.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/product_few.cuh"

static constexpr uint32_t ROWS = 2;
static constexpr uint32_t STEPS = STAGE_COLS / 16;        /* of a half */
static constexpr uint32_t STAGE_PIECES = 2 * PIECES;      /* of a row */
static constexpr uint32_t ROW_STEP = 2 * STAGE_ROW_BYTES; /* bytes of a row from stage to stage */
static constexpr uint32_t COPIES = TILE_WEIGHTS / 2;      /* of weights: a lane's in a stage */
static constexpr uint32_t W_HALF = TILE_WEIGHTS * STAGE_ROW_BYTES, X_AT = 2 * W_HALF;
static constexpr uint32_t X_HALF = ROWS * STAGE_ROW_BYTES;
static constexpr uint32_t RING_STAGE_BYTES = X_AT + 2 * X_HALF;

/* ---- copies ---- */

/* Where the lane's next copies come from, in bytes from the first weight and activation: it brings
 * piece lane % 16 of every second weight row and of one row of activations. Each stage is a step
 * further; behind a tile's last stage comes the warp's next tile. */
struct two_source {
    uint32_t w[COPIES], x;
    uint32_t stage; /* of the tile */
};

struct two_steps {
    uint32_t stages;      /* of a tile */
    uint32_t to_tile;     /* from a tile's last stage to the next tile's first */
    uint32_t x_to_tile;   /* likewise, of activations */
    uint32_t w_end;       /* bytes of all weights */
    uint32_t short_stage; /* has one half, or no stage has */
    bool is_second;       /* the lane's pieces are in the second half */
    bool has_row;         /* its row of activations is there */
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
    uint32_t halves = a.w.row_elems / STAGE_COLS, stages = (halves + 1) / 2;
    uint32_t rows = blockDim.x / 32 * (HAS_GATES ? GATES : TILE_WEIGHTS);
    uint32_t row_bytes = a.w.row_elems * 2, back = (stages - 1) * ROW_STEP;
    return {stages,
            rows * row_bytes - back,
            0 - back,
            a.w.rows * row_bytes,
            halves % 2 == 1 ? stages - 1 : 0xffffffffu,
            threadIdx.x % STAGE_PIECES >= PIECES,
            threadIdx.x % 32 / STAGE_PIECES < a.row_count};
}

template <bool HAS_GATES>
static __device__ inline void source_init(const struct cuda_product &a, uint32_t tile,
                                          struct two_source *s) {
    uint32_t lane = threadIdx.x % 32, row_bytes = a.w.row_elems * 2;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++)
        s->w[i] = weight_row<HAS_GATES>(a, tile, lane / STAGE_PIECES + 2 * i) * row_bytes +
                  lane % STAGE_PIECES * 16;
    s->x = lane / STAGE_PIECES * row_bytes + lane % STAGE_PIECES * 16;
    s->stage = 0;
}

static __device__ inline void source_advance(const struct two_steps &n, struct two_source *s) {
    bool is_last = ++s->stage == n.stages;
    uint32_t by = is_last ? n.to_tile : ROW_STEP;
    s->stage = is_last ? 0 : s->stage;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) s->w[i] += by;
    s->x += is_last ? n.x_to_tile : ROW_STEP;
}

/* Where piece lane % 16 of row lane / 16 + 2 * i lies in a stage, less i * 2 rows: it depends on
 * i % 4 alone. */
struct two_places {
    uint32_t w[4], x;
};

static __device__ inline uint32_t place_of(uint32_t i, uint32_t half_bytes) {
    uint32_t lane = threadIdx.x % 32, piece = lane % STAGE_PIECES;
    uint32_t at = swizzle(lane / STAGE_PIECES, piece % PIECES) ^ i * 32;
    return piece / PIECES * half_bytes + at;
}

static __device__ inline void places_init(struct two_places *p) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) p->w[i] = place_of(i, W_HALF);
    p->x = X_AT + place_of(0, X_HALF);
}

/* Has the lane a piece to bring of this stage? */
static __device__ inline bool has_piece(const struct two_steps &n, uint32_t stage) {
    return !(n.is_second && stage == n.short_stage);
}

/* A stage's weights to the slot at `to`: zeros where there are none. */
static __device__ inline void bring_weights(const struct cuda_product &a,
                                            const struct two_source &s, const struct two_steps &n,
                                            const struct two_places &p, uint32_t to) {
    bool has = has_piece(n, s.stage);
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++)
        copy_16(to + p.w[i % 4] + i * 2 * STAGE_ROW_BYTES, (const uint8_t *)a.w.data + s.w[i],
                has && s.w[i] < n.w_end);
}

static __device__ inline void bring_rows(const struct cuda_product &a, const struct two_source &s,
                                         const struct two_steps &n, const struct two_places &p,
                                         uint32_t to) {
    bool has = has_piece(n, s.stage) && n.has_row;
    copy_16_cached(to + p.x, (const uint8_t *)a.x + s.x, has);
}

/* The activations of the first `count` stages. */
static __device__ inline void load_rows(const struct cuda_product &a, const struct two_steps &n,
                                        const struct two_places &p, uint32_t count, uint8_t *ring) {
    static constexpr uint32_t at_once = 8;
    uint32_t lane = threadIdx.x % 32;
    const uint8_t *x = (const uint8_t *)a.x + (size_t)(lane / STAGE_PIECES) * a.w.row_elems * 2 +
                       lane % STAGE_PIECES * 16;
    for (uint32_t s = 0; s < count; s += at_once) {
        uint4 some[at_once];
#pragma unroll
        for (uint32_t k = 0; k < at_once; k++) {
            uint32_t stage = (s + k) % n.stages;
            some[k] = uint4{0, 0, 0, 0};
            if (s + k < count && has_piece(n, stage) && n.has_row)
                some[k] = *(const uint4 *)(x + stage * ROW_STEP);
        }
#pragma unroll
        for (uint32_t k = 0; k < at_once; k++)
            if (s + k < count) *(uint4 *)(ring + (s + k) * RING_STAGE_BYTES + p.x) = some[k];
    }
}

/* ---- operands ---- */

/* Of a half; of x two steps at once. */
struct two_operands {
    uint32_t w[STEPS][4], x[STEPS / 2][4];
};

/* Where the lane's rows lie in a stage, by steps. */
struct two_reads {
    uint32_t w[STEPS], x[STEPS / 2];
};

static __device__ inline struct two_reads reads_of(void) {
    uint32_t lane = threadIdx.x % 32;
    struct two_reads r;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        r.w[step] = swizzle(lane % 16, 2 * step + lane / 16);
#pragma unroll
    for (uint32_t two = 0; two < STEPS / 2; two++)
        r.x[two] = X_AT + swizzle(lane % ROWS, 4 * two + lane / 8);
    return r;
}

template <int HALF>
static __device__ inline void read_half(uint32_t stage, const struct two_reads &r,
                                        struct two_operands *o) {
#pragma unroll
    for (uint32_t two = 0; two < STEPS / 2; two++)
        ldmatrix_x4(o->x[two], stage + r.x[two] + HALF * X_HALF);
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

template <bool IS_BF16, bool HAS_GATES, int STAGES>
static __global__ void __launch_bounds__(WARPS_MAX * 32, 1) two_kernel(struct cuda_few f) {
    const struct cuda_product &a = f.product;
    extern __shared__ __align__(128) uint8_t rings[];
    admit_next_kernel();
    struct few_tiles mine = tiles_of_warp((a.w.rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS);
    struct two_steps n = steps_of<HAS_GATES>(a);
    struct two_source from;
    struct two_places places;
    uint32_t count = mine.count * n.stages, left = n.stages, tile = mine.first;
    uint8_t *own = rings + threadIdx.x / 32 * STAGES * RING_STAGE_BYTES;
    uint32_t ring = shared_address(own), ring_end = ring + STAGES * RING_STAGE_BYTES;
    source_init<HAS_GATES>(a, mine.first, &from);
    places_init(&places);
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < count) bring_weights(a, from, n, places, ring + i * RING_STAGE_BYTES);
        copies_commit();
        source_advance(n, &from);
    }
    wait_for_inputs();
    if (count == 0) return;
    load_rows(a, n, places, min(count, (uint32_t)STAGES - 1), own);
    struct few_results results;
    struct two_reads reads = reads_of();
    struct two_operands o[2];
    float acc[4] = {0.0f};
    find_results(a, &results);
    if (!HAS_GATES) read_old(a, tile, &results);
    copies_wait<STAGES - 2>();
    __syncwarp();
    read_half<0>(ring, reads, &o[0]);
    uint32_t slot = ring, to = ring_end - RING_STAGE_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        read_half<1>(slot, reads, &o[1]);
        multiply<IS_BF16>(o[0], acc);
        copies_wait<STAGES - 3>(); /* stage i + 1 is there */
        __syncwarp();
        uint32_t next = slot + RING_STAGE_BYTES;
        next = next == ring_end ? ring : next;
        read_half<0>(next, reads, &o[0]);
        multiply<IS_BF16>(o[1], acc); /* zeros where the stage has one half */
        if (i + STAGES - 1 < count) {
            bring_weights(a, from, n, places, to);
            bring_rows(a, from, n, places, to);
        }
        copies_commit();
        source_advance(n, &from);
        to = slot;
        slot = next;
        if (--left > 0) continue;
        if (HAS_GATES) store_gated(f, tile, results, acc);
        if (!HAS_GATES) store_tile(a, tile, results, acc);
        tile += blockDim.x / 32;
        left = n.stages;
        if (!HAS_GATES) read_old(a, tile, &results);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[k] = 0.0f;
    }
}

/* ---- launching ---- */

struct two_kernels {
    static constexpr uint32_t STAGE_BYTES = RING_STAGE_BYTES;
    template <bool IS_BF16, bool HAS_GATES, int STAGES> static few_kernel_fn *get(void) {
        return two_kernel<IS_BF16, HAS_GATES, STAGES>;
    }
};

void cuda_product_two_prepare(void) { few_prepare<two_kernels>(); }

bool cuda_product_two_can(const struct cuda_product *a) {
    bool fits = (uint64_t)a->w.rows * a->w.row_elems * 2 <= UINT32_MAX; /* offsets of weights */
    return fits && a->row_count <= ROWS && cuda_product_few_can(a);
}

void cuda_product_two(const struct cuda_few *f, const struct cuda_queue *queue) {
    few_launch<two_kernels>(f, queue);
}
