/* kernels/cuda/product_codes_dots.cu - products of quantised weights with 1 to 4 rows, near the
 * rate at which memory can be read; to the bit as kernels/cuda/product_codes.cu has them.
 *
 * Whole-number sums of groups are exact, so they may be made in any place; only their addition to
 * the accumulator has an order. So one kind of warps makes the sums, by dp4a, and another adds them
 * in rising groups, and each has few instructions:
 *
 *     acc = fma((float)sum, w.scale[g] * scale[b], acc), then fma(w.min[g], dsum[g], acc)
 *
 * Mapping: one block on each multiprocessor. A tile of 32 weight rows (layout.h) goes by in rounds
 * of 8 stages of 128 columns, and each of 8 warps makes the sums of one stage: a lane owns a weight
 * row. Behind them there is a warp for each row of activations that adds the sums of the round
 * before: again a lane owns a weight row. A barrier ends a round.
 *
 * Memory: codes of a stage, and scales of a round, are each one run of bytes. Bulk copies bring
 * them into rings, codes three rounds ahead, scales two. The rings are filled before the kernel
 * waits for its inputs, that is, while the kernels in front of it run; a block asks for more than
 * half of the shared memory, as in product_few.cu. Activations lie in shared memory as a whole.
 *
 * Gates: a tile of gates is followed by the tile of their ups. The 32 lanes of a row's warp then
 * hold a whole block of activations, which they quantise. Blocks do pairs of such tiles; or with
 * cuda_few.handed, where that makes the largest share smaller, any tiles: 896 on 132
 * multiprocessors are 7 or 6 then, not 8 or 6. A block that ends with gates hands them over to the
 * next one, which has kept the sums of its first tile and takes the gates when it has done all
 * others. So it waits only for a block that was started before it.
 *
 * Order of reading and overwriting: a warp's slot of codes is filled anew behind a barrier of the
 * warp that all lanes reach after their last read. In round r the sums of round r - 1 are added, so
 * the slot of scales of round r - 2 is free, and sums go to the place of round r - 2.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_codes.cuh"
#include "kernels/cuda/device_first.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t DOT_WARPS = 8, CODE_SLOTS = 3, SCALE_SLOTS = 4;
static constexpr uint32_t RUNS = 8, COLS = RUNS * CUDA_CODE_RUN, BLOCKS = COLS / 32;
static constexpr uint32_t LANES = CUDA_TILE_ROWS, FLOATS_BYTES = LANES * 4; /* a float each */
static constexpr uint32_t DOTS_ROWS = CUDA_DOTS_ROWS;
static constexpr uint32_t SHARED_LEAST = 116 << 10, SHARED_MOST = 200 << 10;

/* GROUP_RUNS: runs of 16 codes that share a scale; CODE: what one is; of 4 bits, groups are 32 */
template <int GROUP_RUNS, enum cuda_code CODE>
struct dots_form {
    static constexpr uint32_t runs = GROUP_RUNS, bits = code_bits<CODE>;
    static constexpr enum cuda_code code = CODE;
    static constexpr uint32_t groups = RUNS / GROUP_RUNS;           /* of a stage */
    static constexpr uint32_t code_bytes = COLS * LANES * bits / 8; /* likewise */
};

/* ---- shared memory ---- */

/* Where things lie, in bytes. Codes are first: [warp][slot]. */
struct dots_layout {
    uint32_t scale, least; /* [slot][stage of the round][group][lane] */
    uint32_t sums;         /* [2][stage][group][row][lane] */
    uint32_t x;            /* [row]: codes, scales, dsums */
    uint32_t x_bytes;      /* of a row */
    uint32_t barriers;     /* of codes [warp][slot], of scales [slot] */
    uint32_t first;        /* of device_first.cuh */
    uint32_t bytes;
};

static struct dots_layout layout_of(const struct cuda_few *f, uint32_t rows) {
    const struct cuda_matrix *w = &f->product.w;
    uint32_t cols = w->cols, group = w->group, scales = DOT_WARPS * (COLS / group) * FLOATS_BYTES;
    struct dots_layout l;
    l.scale = DOT_WARPS * CODE_SLOTS * COLS * LANES * cuda_code_bits(w->code) / 8;
    l.least = l.scale + SCALE_SLOTS * scales;
    l.sums = l.least + (w->min ? SCALE_SLOTS * scales : 0);
    l.x = l.sums + 2 * scales * rows;
    l.x_bytes = cols + (cols / 32 + cols / group) * 4;
    l.barriers = l.x + rows * l.x_bytes;
    l.first = l.barriers + (DOT_WARPS * CODE_SLOTS + SCALE_SLOTS) * 8;
    l.bytes = l.first + first_bytes(*f);
    return l;
}

/* ---- rounds ---- */

/* What a block works on. */
struct dots_block {
    const struct cuda_few &f;
    struct dots_layout at;
    uint8_t *shared;
    uint32_t base;       /* the address of `shared` */
    uint32_t first, end; /* its tiles, in the order in which the product's are done */
    uint32_t rounds;     /* of them all */
    uint32_t stages;     /* of a tile */
};

template <bool PARTS>
static __device__ inline struct dots_block block_of(const struct cuda_few &f,
                                                    const struct dots_layout &at, uint8_t *shared) {
    const struct cuda_matrix &w = f.product.w;
    uint32_t tiles = (w.rows + LANES - 1) / LANES, stages = w.cols / COLS;
    uint32_t each = f.gates && !PARTS ? 2 : 1;
    struct cuda_share share = cuda_share_of(tiles / each, gridDim.x, blockIdx.x);
    uint32_t first = share.first * each, end = share.end * each;
    uint32_t rounds = (end - first) * ((stages + DOT_WARPS - 1) / DOT_WARPS);
    return {f, at, shared, shared_address(shared), first, end, rounds, stages};
}

/* A round, and which slot of a ring is its own. */
struct dots_place {
    uint32_t tile;  /* of the block's, from 0 */
    uint32_t stage; /* the round's first */
    uint32_t slot, phase;
};

/* True: the next round begins a tile. */
static __device__ inline bool next_round(const struct dots_block &b, uint32_t slots,
                                         struct dots_place *p) {
    bool is_last = p->slot + 1 == slots;
    p->slot = is_last ? 0 : p->slot + 1;
    p->phase += is_last;
    p->stage += DOT_WARPS;
    if (p->stage < b.stages) return false;
    p->stage = 0;
    p->tile++;
    return true;
}

/* The matrix's number of one of the block's tiles. */
static __device__ inline uint32_t tile_of(const struct dots_block &b, uint32_t tile) {
    uint32_t n = b.first + tile;
    return b.f.gates ? n / 2 + n % 2 * (b.f.product.w.rows / LANES / 2) : n;
}

static __device__ inline uint32_t stages_of(const struct dots_block &b,
                                            const struct dots_place &p) {
    return min(DOT_WARPS, b.stages - p.stage);
}

/* ---- copies, asked for by one lane ---- */

static __device__ inline uint32_t codes_barrier(const struct dots_block &b, uint32_t slot) {
    return b.base + b.at.barriers + (threadIdx.x / 32 * CODE_SLOTS + slot) * 8;
}

static __device__ inline uint32_t scales_barrier(const struct dots_block &b, uint32_t slot) {
    return b.base + b.at.barriers + (DOT_WARPS * CODE_SLOTS + slot) * 8;
}

/* Codes of the warp's stage of a round; none if the round has no such stage. */
template <typename F>
static __device__ inline void bring_codes(const struct dots_block &b, const struct dots_place &p) {
    uint32_t warp = threadIdx.x / 32, stage = p.stage + warp, barrier = codes_barrier(b, p.slot);
    uint32_t bytes = stage < b.stages ? F::code_bytes : 0;
    size_t from = ((size_t)tile_of(b, p.tile) * b.stages + stage) * F::code_bytes;
    arrival_expect(barrier, bytes);
    if (bytes == 0) return;
    copy_bulk(b.base + (warp * CODE_SLOTS + p.slot) * F::code_bytes,
              (const uint8_t *)b.f.product.w.data + from, bytes, barrier);
}

/* Scales and minima of a round. */
template <typename F>
static __device__ inline void bring_scales(const struct dots_block &b, const struct dots_place &p) {
    static constexpr uint32_t floats = F::groups * LANES; /* of a stage */
    const struct cuda_matrix &w = b.f.product.w;
    uint32_t barrier = scales_barrier(b, p.slot), bytes = stages_of(b, p) * floats * 4;
    uint32_t slot = p.slot * DOT_WARPS * floats * 4;
    size_t from = ((size_t)tile_of(b, p.tile) * b.stages + p.stage) * floats;
    arrival_expect(barrier, w.min ? 2 * bytes : bytes);
    copy_bulk(b.base + b.at.scale + slot, w.scale + from, bytes, barrier);
    if (w.min) copy_bulk(b.base + b.at.least + slot, w.min + from, bytes, barrier);
}

/* Fill the rings; `places` are where it goes on: of codes, of scales. */
template <typename F>
static __device__ inline void fill_rings(const struct dots_block &b, struct dots_place *brought) {
    uint32_t warp = threadIdx.x / 32, slots = warp < DOT_WARPS ? CODE_SLOTS : SCALE_SLOTS;
    *brought = {0, 0, 0, 0};
    for (uint32_t i = 0; i < slots; i++) {
        if (i < b.rounds && threadIdx.x % 32 == 0) {
            if (warp < DOT_WARPS) bring_codes<F>(b, *brought);
            if (warp == DOT_WARPS) bring_scales<F>(b, *brought);
        }
        next_round(b, slots, brought);
    }
}

/* ---- activations ---- */

static __device__ inline void copy_bytes(uint8_t *to, const void *from, uint32_t bytes) {
    for (uint32_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16)
        copy_16_cached(shared_address(to + i), (const uint8_t *)from + i, true);
}

/* All of the product's rows, by the whole block. */
template <typename F> static __device__ inline void bring_rows(const struct dots_block &b) {
    const struct cuda_product &a = b.f.product;
    uint32_t group = F::runs * CUDA_CODE_RUN, cols = a.w.cols, col = a.src.col;
    for (uint32_t r = 0; r < a.row_count; r++) {
        struct device_q8 q = mat_q8(a.src, r);
        const float *dsum = (F::runs == 2 ? q.dsum : q.dsum16) + col / group;
        uint8_t *to = b.shared + b.at.x + r * b.at.x_bytes;
        copy_bytes(to, q.q + col, cols);
        copy_bytes(to + cols, q.scale + col / 32, cols / 8);
        if (a.w.min) copy_bytes(to + cols + cols / 8, dsum, cols / group * 4);
    }
    copies_commit();
    copies_wait<0>();
}

/* The same from floats. A thread owns eight; columns are whole blocks for whole warps. */
template <typename F>
static __device__ inline void make_rows(const struct dots_block &b, const struct first_rows &m) {
    __shared__ struct norm_stats stats[FIRST_ROWS];
    const struct cuda_product &a = b.f.product;
    uint32_t cols = a.w.cols, eighths = cols / 8;
    first_read(b.f, m, blockDim.x, stats);
    for (uint32_t i = threadIdx.x; i < (a.row_count * eighths + 31) / 32 * 32; i += blockDim.x) {
        uint32_t n = min(i, a.row_count * eighths - 4 + i % 4), row = n / eighths;
        uint32_t mine = n - row * eighths, block = mine / 4;
        uint8_t *to = b.shared + b.at.x + row * b.at.x_bytes;
        float *scale = (float *)(to + cols), *dsum = scale + cols / 32, x[8];
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) x[k] = first_one(m, stats[row], row, mine * 8 + k);
        struct q8_eight q = quantise_eight(x);
        *(uint2 *)(to + mine * 8) = q.q;
        if (mine % 4 == 0) scale[block] = q.scale;
        if (F::runs == 2 && mine % 4 == 0) dsum[block] = q.scale * (float)q.sum;
        if (F::runs == 1 && mine % 2 == 0) dsum[mine / 2] = q.scale * (float)q.half;
    }
}

/* ---- sums of groups ---- */

static __device__ inline int32_t dot_16(int4 a, int4 b, int32_t sum) {
    sum = __dp4a(a.x, b.x, sum);
    sum = __dp4a(a.y, b.y, sum);
    sum = __dp4a(a.z, b.z, sum);
    return __dp4a(a.w, b.w, sum);
}

/* Run `run` of a stage; `codes` are the lane's. */
template <typename F>
static __device__ inline int4 run_of(const int4 *codes, uint32_t run, const uint32_t table[4]) {
    if (F::bits == 8) return codes[run * LANES];
    int4 both = codes[run / 2 * LANES];
    return run % 2 == 0 ? first_codes<F::code>(both, table) : last_codes<F::code>(both, table);
}

/* Of the warp's stage of a round; a row that is not there repeats the first. */
template <typename F, int ROWS>
static __device__ inline void sum_stage(const struct dots_block &b, const struct dots_place &p,
                                        uint32_t round) {
    static constexpr uint32_t groups = F::groups;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int4 *codes =
        (const int4 *)(b.shared + (warp * CODE_SLOTS + p.slot) * F::code_bytes) + lane;
    const uint8_t *x = b.shared + b.at.x + (p.stage + warp) * COLS;
    float *sums = (float *)(b.shared + b.at.sums) + lane;
    int32_t sum[ROWS] = {0};
    sums += (round % 2 * DOT_WARPS + warp) * groups * ROWS * LANES;
#pragma unroll
    for (uint32_t run = 0; run < RUNS; run++) {
        int4 w = run_of<F>(codes, run, b.f.product.w.table);
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t row = (r < b.f.product.row_count ? r : 0) * b.at.x_bytes;
            sum[r] = dot_16(w, *(const int4 *)(x + row + run * CUDA_CODE_RUN), sum[r]);
            if (run % F::runs + 1 < F::runs) continue;
            sums[(run / F::runs * ROWS + r) * LANES] = float_of_sum<F::code>(sum[r]);
            sum[r] = 0;
        }
    }
}

/* ---- adding them up ---- */

/* What the warp of a row reads of a stage: of its lane, and of the row. */
struct chain_stage {
    const float *sums, *scale, *least;
    const float *x_scale, *dsum;
};

/* These numbers, in registers. */
template <typename F> struct chain_values {
    float by[F::groups], sum[F::groups], least[F::groups], dsum[F::groups];
};

template <typename F, int ROWS, bool HAS_LEAST>
static __device__ inline struct chain_values<F> read_stage(const struct chain_stage &s) {
    struct chain_values<F> v;
    float x[BLOCKS];
    *(float4 *)x = *(const float4 *)s.x_scale;
#pragma unroll
    for (uint32_t g = 0; g < F::groups; g++) {
        v.by[g] = s.scale[g * LANES] * x[g * F::runs / 2];
        v.sum[g] = s.sums[g * ROWS * LANES];
        if (HAS_LEAST) v.least[g] = s.least[g * LANES];
        if (HAS_LEAST && g % 4 == 0) *(float4 *)(v.dsum + g) = *(const float4 *)(s.dsum + g);
    }
    return v;
}

/* `count` stages from this one on. While one is added the next is read, also behind the last, where
 * it is not used. */
template <typename F, int ROWS, bool HAS_LEAST>
static __device__ inline float add_stages(struct chain_stage s, uint32_t count, float acc) {
    struct chain_values<F> now = read_stage<F, ROWS, HAS_LEAST>(s);
#pragma unroll 4
    for (uint32_t i = 0; i < count; i++) {
        s.sums += F::groups * LANES * ROWS;
        s.scale += F::groups * LANES;
        s.least += F::groups * LANES;
        s.x_scale += BLOCKS;
        s.dsum += F::groups;
        struct chain_values<F> next = read_stage<F, ROWS, HAS_LEAST>(s);
#pragma unroll
        for (uint32_t g = 0; g < F::groups; g++) {
            acc = fmaf(now.sum[g], now.by[g], acc);
            if (HAS_LEAST) acc = fmaf(now.least[g], now.dsum[g], acc);
        }
        now = next;
    }
    return acc;
}

/* A round of the warp's row. */
template <typename F, int ROWS>
static __device__ inline float add_round(const struct dots_block &b, const struct dots_place &p,
                                         uint32_t round, float acc) {
    static constexpr uint32_t groups = F::groups, floats = groups * LANES;
    const struct cuda_matrix &w = b.f.product.w;
    uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 - DOT_WARPS;
    uint32_t slot = p.slot * DOT_WARPS * floats + lane;
    uint32_t buffer = round % 2 * DOT_WARPS * floats * ROWS + row * LANES + lane;
    const uint8_t *x = b.shared + b.at.x + row * b.at.x_bytes + w.cols;
    struct chain_stage s = {(const float *)(b.shared + b.at.sums) + buffer,
                            (const float *)(b.shared + b.at.scale) + slot,
                            (const float *)(b.shared + b.at.least) + slot,
                            (const float *)x + p.stage * BLOCKS,
                            (const float *)(x + w.cols / 8) + p.stage * groups};
    uint32_t count = stages_of(b, p);
    if (w.min) return add_stages<F, ROWS, true>(s, count, acc);
    return add_stages<F, ROWS, false>(s, count, acc);
}

/* ---- results ---- */

/* Of the warp's row and the lane's weight. */
struct dots_result {
    float *out; /* NULL: there is no such row, or it is not live */
    float acc, gate, old;
    float up; /* of a pair whose gates another block has */
};

/* Where a row's warp of block `block` hands its last gates over. */
struct handed_place {
    float *numbers;
    uint32_t *flag;
};

static __device__ inline struct handed_place handed_by(const struct dots_block &b, uint32_t block) {
    uint32_t place = block * DOTS_ROWS + threadIdx.x / 32 - DOT_WARPS;
    float *numbers = b.f.handed + place * CUDA_HANDED_FLOATS;
    return {numbers, (uint32_t *)(numbers + LANES)};
}

/* Pair `pair` of the product's. */
static __device__ inline void store_gated(const struct dots_block &b, uint32_t pair, float gate,
                                          float up) {
    float gated = act_one(b.f.act, gate) * up;
    quantise_warp(gated, pair, mat_q8(b.f.gated_q8, threadIdx.x / 32 - DOT_WARPS));
}

static __device__ inline void begin_tile(const struct dots_block &b, uint32_t tile,
                                         struct dots_result *y) {
    const struct cuda_product &a = b.f.product;
    uint32_t n = tile_of(b, tile) * LANES + threadIdx.x % 32;
    y->acc = 0.0f;
    y->old = a.add && y->out && n < a.w.rows ? y->out[n] : 0.0f;
}

/* A tile of gates, or of ups: PARTS: the other one of the pair may be another block's. */
template <bool PARTS>
static __device__ inline void end_half(const struct dots_block &b, uint32_t tile,
                                       struct dots_result *y) {
    uint32_t place = b.first + tile;
    if (place % 2 == 0) {
        y->gate = y->acc;
        if (!PARTS || place + 1 < b.end) return;
        struct handed_place to = handed_by(b, blockIdx.x);
        hand_over(to.numbers, to.flag, y->gate);
    } else if (PARTS && tile == 0) {
        y->up = y->acc;
    } else {
        store_gated(b, place / 2, y->gate, y->acc);
    }
}

template <bool PARTS>
static __device__ inline void end_tile(const struct dots_block &b, uint32_t tile,
                                       struct dots_result *y) {
    const struct cuda_product &a = b.f.product;
    uint32_t n = tile_of(b, tile) * LANES + threadIdx.x % 32;
    if (!y->out) return;
    if (b.f.gates) {
        end_half<PARTS>(b, tile, y);
    } else if (n < a.w.rows) {
        float number = a.bias ? y->acc + a.bias[n] : y->acc;
        y->out[n] = a.add ? number + y->old : number;
    }
}

/* The pair whose gates the block before has. */
static __device__ inline void end_parted(const struct dots_block &b, const struct dots_result &y) {
    if (!y.out || b.first % 2 == 0) return;
    struct handed_place from = handed_by(b, blockIdx.x - 1);
    store_gated(b, b.first / 2, take_over(from.numbers, from.flag), y.up);
}

/* ---- the kernel ---- */

static __device__ inline void init_barriers(const struct dots_block &b) {
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < DOT_WARPS * CODE_SLOTS + SCALE_SLOTS; i++)
            arrival_init(b.base + b.at.barriers + i * 8, 1);
        arrivals_publish();
    }
    __syncthreads();
}

/* The warp's share of making sums: rounds of its stage. */
template <typename F, int ROWS>
static __device__ inline void make_sums(const struct dots_block &b, struct dots_place *brought) {
    struct dots_place now = {0, 0, 0, 0};
    for (uint32_t round = 0; round < b.rounds; round++) {
        arrival_wait(codes_barrier(b, now.slot), now.phase);
        if (now.stage + threadIdx.x / 32 < b.stages) sum_stage<F, ROWS>(b, now, round);
        next_round(b, CODE_SLOTS, &now);
        __syncwarp();
        if (threadIdx.x % 32 == 0 && round + CODE_SLOTS < b.rounds) bring_codes<F>(b, *brought);
        next_round(b, CODE_SLOTS, brought);
        __syncthreads(); /* the round's sums are there, those of the one before are added */
    }
    __syncthreads();
}

/* The warp's share of adding them: its row. */
template <typename F, int ROWS, bool PARTS>
static __device__ inline void add_sums(const struct dots_block &b, struct dots_place *brought) {
    const struct cuda_product &a = b.f.product;
    struct dots_place now = {0, 0, 0, 0};
    uint32_t row = threadIdx.x / 32 - DOT_WARPS;
    bool is_there = row < a.row_count && mat_is_live(a.dst, row);
    struct dots_result y = {is_there ? mat_f32(a.dst, row) : NULL, 0.0f, 0.0f, 0.0f, 0.0f};
    begin_tile(b, 0, &y);
    __syncthreads(); /* of round 0 */
    for (uint32_t round = 0; round < b.rounds; round++) {
        if (round > 0 && row == 0 && round - 1 + SCALE_SLOTS < b.rounds) {
            if (threadIdx.x % 32 == 0) bring_scales<F>(b, *brought);
            next_round(b, SCALE_SLOTS, brought);
        }
        arrival_wait(scales_barrier(b, now.slot), now.phase);
        y.acc = add_round<F, ROWS>(b, now, round, y.acc);
        uint32_t tile = now.tile;
        if (next_round(b, SCALE_SLOTS, &now)) {
            end_tile<PARTS>(b, tile, &y);
            if (round + 1 < b.rounds) begin_tile(b, now.tile, &y);
        }
        __syncthreads();
    }
    if (PARTS) end_parted(b, y);
}

template <typename F, int ROWS, bool PARTS>
static __global__ void __launch_bounds__((DOT_WARPS + ROWS) * 32, 1)
    dots_kernel(struct cuda_few f, struct dots_layout at) {
    extern __shared__ __align__(128) uint8_t shared[];
    admit_next_kernel();
    struct dots_block b = block_of<PARTS>(f, at, shared);
    struct dots_place brought;
    init_barriers(b);
    fill_rings<F>(b, &brought);
    const struct first_rows floats = first_at(f, shared + at.first);
    if (f.first.src.base) first_begin(f, floats, blockDim.x);
    wait_for_inputs();
    if (f.first.src.base)
        make_rows<F>(b, floats);
    else
        bring_rows<F>(b);
    __syncthreads();
    if (threadIdx.x / 32 < DOT_WARPS)
        make_sums<F, ROWS>(b, &brought);
    else
        add_sums<F, ROWS, PARTS>(b, &brought);
}

/* ---- launching ---- */

static struct dots_layout layout_for(const struct cuda_few *f) {
    uint32_t rows = f->product.row_count;
    return layout_of(f, rows <= 2 ? rows : DOTS_ROWS);
}

static uint32_t tiles_of(const struct cuda_few *f) {
    return (f->product.w.rows + LANES - 1) / LANES;
}

template <typename F, int ROWS, bool PARTS>
static void launch_kernel(const struct cuda_few *f, const struct cuda_queue *queue) {
    struct dots_layout at = layout_for(f);
    uint32_t units = f->gates && !PARTS ? tiles_of(f) / 2 : tiles_of(f);
    uint32_t blocks = units < f->multiprocessors ? units : f->multiprocessors;
    uint32_t bytes = at.bytes > SHARED_LEAST ? at.bytes : SHARED_LEAST;
    launch(queue, dots_kernel<F, ROWS, PARTS>, blocks, (DOT_WARPS + ROWS) * 32, bytes, *f, at);
}

template <typename F, bool PARTS>
static void launch_rows(const struct cuda_few *f, const struct cuda_queue *queue) {
    if (f->product.row_count == 1)
        launch_kernel<F, 1, PARTS>(f, queue);
    else if (f->product.row_count == 2)
        launch_kernel<F, 2, PARTS>(f, queue);
    else
        launch_kernel<F, 4, PARTS>(f, queue);
}

template <typename F>
static void launch_form(const struct cuda_few *f, const struct cuda_queue *queue) {
    if (f->gates && f->handed && cuda_parts_pairs(tiles_of(f) / 2, f->multiprocessors))
        launch_rows<F, true>(f, queue);
    else
        launch_rows<F, false>(f, queue);
}

template <typename F, int ROWS> static void prepare_rows(void) {
    cudaFuncSetAttribute(dots_kernel<F, ROWS, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)SHARED_MOST);
    cudaFuncSetAttribute(dots_kernel<F, ROWS, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)SHARED_MOST);
}

template <typename F> static void prepare_form(void) {
    prepare_rows<F, 1>();
    prepare_rows<F, 2>();
    prepare_rows<F, 4>();
}

void cuda_product_codes_dots_prepare(void) {
    prepare_form<dots_form<1, CUDA_CODE_8>>();
    prepare_form<dots_form<2, CUDA_CODE_8>>();
    prepare_form<dots_form<2, CUDA_CODE_4>>();
    prepare_form<dots_form<2, CUDA_CODE_4_SIGNED>>();
    prepare_form<dots_form<2, CUDA_CODE_4_PLACE>>();
}

bool cuda_product_codes_dots_can(const struct cuda_few *f) {
    const struct cuda_product *a = &f->product;
    bool is_whole = a->w.cols % COLS == 0 && a->src.all_cols % COLS == 0 && a->src.col % COLS == 0;
    if (a->w.form != CUDA_CODES || a->used > 0 || a->row_count > DOTS_ROWS || !is_whole)
        return false;
    return layout_for(f).bytes <= SHARED_MOST;
}

void cuda_product_codes_dots(const struct cuda_few *f, const struct cuda_queue *queue) {
    const struct cuda_matrix *w = &f->product.w;
    if (f->product.row_count == 0) return;
    if (w->code == CUDA_CODE_4)
        launch_form<dots_form<2, CUDA_CODE_4>>(f, queue);
    else if (w->code == CUDA_CODE_4_SIGNED)
        launch_form<dots_form<2, CUDA_CODE_4_SIGNED>>(f, queue);
    else if (w->code == CUDA_CODE_4_PLACE)
        launch_form<dots_form<2, CUDA_CODE_4_PLACE>>(f, queue);
    else if (w->group == 32)
        launch_form<dots_form<2, CUDA_CODE_8>>(f, queue);
    else
        launch_form<dots_form<1, CUDA_CODE_8>>(f, queue);
}
