/* kernels/cuda/product_few.cu - products of bf16 and f16 weights with 1 to 8 rows, near the rate at
 * which memory can be read.
 *
 * mma.sync m16n8k16 with one f32 accumulator, k rising in steps of 16, as in product_mma.cu: the
 * same bits, which are those of cuBLASLt with a split-K of 1.
 *
 * Mapping: one block on each multiprocessor. A tile is 16 weight rows, the m of the instruction;
 * every block gets as many tiles as the others, or one less, and deals them to its warps. The rows
 * of activations are the n. A warp reads its tiles one after the other through a ring of its own in
 * shared memory, 128 columns a stage in two halves (device_stage.cuh), by cp.async: 56 to 80 KB of
 * weights are on their way on each multiprocessor. Warps never wait for each other.
 *
 * Overlap: the ring is filled with weights before the kernel waits for its inputs, that is, while
 * the kernels in front of it run. A block asks for more than half of the shared memory, so that two
 * of them never share a multiprocessor while another has none; and for little enough that the
 * blocks of norms and of attention fit beside it.
 *
 * Order of reading and overwriting: in turn i the first half of stage i is in registers. Its second
 * half is read while the first is multiplied, and the first half of stage i + 1 while the second
 * is. Copies that are issued in turn i fill the slot of stage i - 1. Its last operands went into an
 * instruction of all lanes in turn i - 1, so none of its reads is under way. The slot of stage i
 * may not be filled yet, because the read of its second half is still under way.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/product_few.cuh"

static constexpr uint32_t X_AT = TILE_WEIGHTS * STAGE_ROW_BYTES; /* in a half of a stage */
static constexpr uint32_t HALF_BYTES = X_AT + CUDA_FEW_ROWS * STAGE_ROW_BYTES;
static constexpr uint32_t RING_STAGE_BYTES = 2 * HALF_BYTES;
static constexpr uint32_t STEPS = STAGE_COLS / 16; /* of a half */

/* ---- copies ---- */

/* Where a lane's next copies come from: it brings one piece of rows lane / 8, + 4, + 8, + 12 of a
 * tile, and of the first two of these of the activations. */
struct few_lane {
    const uint8_t *w[TILE_WEIGHTS / 4], *x[CUDA_FEW_ROWS / 4];
    bool has_w[TILE_WEIGHTS / 4], has_x[CUDA_FEW_ROWS / 4];
};

/* Weight row i of a tile. With gates: 8 of them, then the 8 that go with them. */
template <bool HAS_GATES>
static __device__ inline uint32_t weight_row(const struct cuda_product &a, uint32_t tile,
                                             uint32_t i) {
    if (!HAS_GATES) return tile * TILE_WEIGHTS + i;
    return tile * GATES + i % GATES + i / GATES * (a.w.rows / 2);
}

template <bool HAS_GATES>
static __device__ inline void seek_tile(const struct cuda_product &a, uint32_t tile,
                                        struct few_lane *l) {
    uint32_t lane = threadIdx.x % 32, piece = lane % PIECES * 16;
    size_t row_bytes = (size_t)a.w.row_elems * 2;
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++) {
        uint32_t row = weight_row<HAS_GATES>(a, tile, lane / PIECES + 4 * i);
        l->has_w[i] = row < a.w.rows;
        l->w[i] = (const uint8_t *)a.w.data + (l->has_w[i] ? row : 0) * row_bytes + piece;
    }
}

static __device__ inline void seek_rows(const struct cuda_product &a, struct few_lane *l) {
    uint32_t lane = threadIdx.x % 32, piece = lane % PIECES * 16;
    size_t row_bytes = (size_t)a.w.row_elems * 2;
#pragma unroll
    for (uint32_t i = 0; i < CUDA_FEW_ROWS / 4; i++) {
        uint32_t row = lane / PIECES + 4 * i;
        l->has_x[i] = row < a.row_count;
        l->x[i] = (const uint8_t *)a.x + (l->has_x[i] ? row : 0) * row_bytes + piece;
    }
}

/* Rows lane / 8 + 4 * i, i even or odd: their pieces are turned differently. */
static __device__ inline uint32_t place_of(uint32_t i) {
    uint32_t lane = threadIdx.x % 32;
    return swizzle(lane / PIECES + 4 * (i % 2), lane % PIECES) + i / 2 * 8 * STAGE_ROW_BYTES;
}

/* Half `half` of a stage to the ring's slot at `to`. */
static __device__ inline void bring_weights(const struct few_lane &l, uint32_t to, uint32_t half) {
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++)
        copy_16(to + half * HALF_BYTES + place_of(i), l.w[i] + half * STAGE_ROW_BYTES, l.has_w[i]);
}
static __device__ inline void bring_rows(const struct few_lane &l, uint32_t to, uint32_t half) {
#pragma unroll
    for (uint32_t i = 0; i < CUDA_FEW_ROWS / 4; i++)
        copy_16_cached(to + half * HALF_BYTES + X_AT + place_of(i), l.x[i] + half * STAGE_ROW_BYTES,
                       l.has_x[i]);
}

/* A tile's stages; the last one has one half if the columns are no multiple of 128. */
struct few_stages {
    uint32_t count;
    bool is_last_short;
};

static __device__ inline bool has_second(const struct few_stages &n, const struct few_place &p) {
    return !(n.is_last_short && p.stage + 1 == n.count);
}

static __device__ inline void advance_weights(struct few_lane *l) {
#pragma unroll
    for (uint32_t i = 0; i < TILE_WEIGHTS / 4; i++) l->w[i] += 2 * STAGE_ROW_BYTES;
}
static __device__ inline void advance_rows(struct few_lane *l) {
#pragma unroll
    for (uint32_t i = 0; i < CUDA_FEW_ROWS / 4; i++) l->x[i] += 2 * STAGE_ROW_BYTES;
}

/* ---- operands ---- */

struct few_operands {
    uint32_t w[STEPS][4], x[STEPS / 2][4]; /* of x two steps at once */
};

static __device__ inline void read_half(uint32_t at, struct few_operands *o) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step % 2 == 0)
            ldmatrix_x4(o->x[step / 2], at + X_AT + swizzle(lane % 8, 2 * step + lane / 8));
        ldmatrix_x4(o->w[step], at + swizzle(lane % 16, 2 * step + lane / 16));
    }
}

template <bool IS_BF16>
static __device__ inline void multiply(const struct few_operands &o, float acc[4]) {
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        mma_16x8x16<IS_BF16>(acc, o.w[step], o.x[step / 2] + step % 2 * 2);
}

/* ---- the kernel ---- */

template <bool IS_BF16, bool HAS_GATES, int STAGES>
static __global__ void __launch_bounds__(WARPS_MAX * 32, 1) few_kernel(struct cuda_few f) {
    const struct cuda_product &a = f.product;
    extern __shared__ __align__(128) uint8_t rings[];
    admit_next_kernel();
    struct few_tiles mine = tiles_of_warp((a.w.rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS);
    struct few_stages n = {(a.w.row_elems / STAGE_COLS + 1) / 2,
                           a.w.row_elems / STAGE_COLS % 2 == 1};
    uint32_t first = mine.first, count = mine.count * n.count;
    uint32_t ring = shared_address(rings + threadIdx.x / 32 * STAGES * RING_STAGE_BYTES);
    struct few_lane l;
    struct few_place brought = {first, 0}, now = {first, 0};
    seek_tile<HAS_GATES>(a, first, &l);
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < count) {
            bring_weights(l, ring + i * RING_STAGE_BYTES, 0);
            if (has_second(n, brought)) bring_weights(l, ring + i * RING_STAGE_BYTES, 1);
            advance_weights(&l);
            if (next_stage(n.count, &brought)) seek_tile<HAS_GATES>(a, brought.tile, &l);
        }
        copies_commit();
    }
    wait_for_inputs();
    if (count == 0) return;
    seek_rows(a, &l);
    struct few_place rows = {first, 0};
    for (uint32_t i = 0; i < STAGES - 1 && i < count; i++) {
        bring_rows(l, ring + i * RING_STAGE_BYTES, 0);
        if (has_second(n, rows)) bring_rows(l, ring + i * RING_STAGE_BYTES, 1);
        advance_rows(&l);
        if (next_stage(n.count, &rows)) seek_rows(a, &l);
    }
    copies_commit();
    struct few_results results;
    struct few_operands o[2];
    float acc[4] = {0.0f};
    find_results(a, &results);
    if (!HAS_GATES) read_old(a, first, &results);
    copies_wait<0>();
    __syncwarp();
    read_half(ring, &o[0]);
    for (uint32_t i = 0, slot = 0; i < count; i++) {
        uint32_t next = slot + 1 == STAGES ? 0 : slot + 1;
        uint32_t to = ring + (slot == 0 ? STAGES - 1 : slot - 1) * RING_STAGE_BYTES;
        bool brings = i + STAGES - 1 < count;
        read_half(ring + slot * RING_STAGE_BYTES + HALF_BYTES, &o[1]); /* or what lies there */
        multiply<IS_BF16>(o[0], acc);
        copies_wait<STAGES - 3>(); /* stage i + 1 is there */
        __syncwarp();
        read_half(ring + next * RING_STAGE_BYTES, &o[0]);
        if (has_second(n, now)) multiply<IS_BF16>(o[1], acc);
        if (brings) {
            bool is_whole = has_second(n, brought);
            bring_weights(l, to, 0);
            bring_rows(l, to, 0);
            if (is_whole) bring_weights(l, to, 1);
            if (is_whole) bring_rows(l, to, 1);
            advance_weights(&l);
            advance_rows(&l);
            if (next_stage(n.count, &brought)) {
                seek_tile<HAS_GATES>(a, brought.tile, &l);
                seek_rows(a, &l);
            }
        }
        copies_commit();
        slot = next;
        uint32_t tile = now.tile;
        if (!next_stage(n.count, &now)) continue;
        if (HAS_GATES) store_gated(f, tile, results, acc);
        if (!HAS_GATES) store_tile(a, tile, results, acc);
        if (!HAS_GATES) read_old(a, now.tile, &results);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[k] = 0.0f;
    }
}

/* ---- launching ---- */

struct few_kernels {
    static constexpr uint32_t STAGE_BYTES = RING_STAGE_BYTES, THREADS = 32;
    static constexpr uint32_t SHARED_MAX = WARPS_MAX * 4 * RING_STAGE_BYTES;
    static uint32_t more_bytes(const struct cuda_few *, uint32_t, uint32_t) { return 0; }
    template <bool IS_BF16, bool HAS_GATES, int STAGES> static few_kernel_fn *get(void) {
        return few_kernel<IS_BF16, HAS_GATES, STAGES>;
    }
};

void cuda_product_few_prepare(void) { few_prepare<few_kernels>(); }

bool cuda_product_few_can(const struct cuda_product *a) {
    bool is_16_bit = a->w.form == CUDA_BF16 || a->w.form == CUDA_F16;
    return is_16_bit && a->used == 0 && a->row_count <= CUDA_FEW_ROWS;
}

void cuda_product_few(const struct cuda_few *f, const struct cuda_queue *queue) {
    few_launch<few_kernels>(f, queue);
}
