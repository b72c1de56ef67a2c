/* kernels/cuda/product_codes_mma.cu - products of quantised weights on tensor cores, to the bit as
 * kernels/cuda/product_codes.cu has them.
 *
 * The whole-number sum of a group is one mma of bytes (device_codes.cuh), which is exact. Then, in
 * rising groups:
 *
 *     acc = fma(sum, w.scale[g] * scale[b], acc), then fma(w.min[g], dsum[g], acc)
 *
 * Mapping: a warp owns 16 or 32 weight rows, the m of the instruction, and all rows of activations
 * of its block, the n. Stages of 128 columns come by cp.async: codes and activations as
 * [run of 16][row][16 bytes], so that a warp's reads use no bank twice.
 * Cost: few rows are bound by memory, many by 3 or 4 float instructions an output and group.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_codes.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t STAGE_RUNS = 8, STAGE_COLS = STAGE_RUNS * CUDA_CODE_RUN, STAGE_BLOCKS = 4;

/* RUNS of 16 codes are a group. */
template <int RUNS, enum cuda_code CODE>
struct codes_form {
    static constexpr uint32_t runs = RUNS; static constexpr enum cuda_code code = CODE;
};
using codes_16 = codes_form<1, CUDA_CODE_8>;
using codes_32 = codes_form<2, CUDA_CODE_8>;
using codes_4 = codes_form<2, CUDA_CODE_4>;
using codes_4_signed = codes_form<2, CUDA_CODE_4_SIGNED>;
using codes_4_place = codes_form<2, CUDA_CODE_4_PLACE>;

/* A block: WARPS warps of M_TILES * 16 weights, N_TILES * 8 rows. */
template <typename F, int WARPS, int M_TILES, int N_TILES, int STAGES> struct codes_shape {
    static constexpr enum cuda_code code = F::code;
    static constexpr uint32_t runs = F::runs, bits = code_bits<code>;
    static constexpr uint32_t warps = WARPS, m_tiles = M_TILES, n_tiles = N_TILES;
    static constexpr uint32_t pieces = STAGE_RUNS * bits / 8; /* of 16 bytes, of a weight */
    static constexpr uint32_t stages = STAGES, threads = WARPS * 32;
    static constexpr uint32_t groups = STAGE_RUNS / runs; /* of a stage */
    static constexpr uint32_t weights = WARPS * M_TILES * 16, rows = N_TILES * 8;
    /* Where in a stage, in bytes: codes, activations, then floats. */
    static constexpr uint32_t x = weights * pieces * 16;
    static constexpr uint32_t scale = x + rows * STAGE_COLS; /* [group][weight] */
    static constexpr uint32_t least = scale + groups * weights * 4;
    static constexpr uint32_t x_scale = least + groups * weights * 4;   /* [block][row] */
    static constexpr uint32_t dsum = x_scale + STAGE_BLOCKS * rows * 4; /* [group][row] */
    static constexpr uint32_t stage = (dsum + groups * rows * 4 + 127) / 128 * 128;
    static constexpr uint32_t bytes = stages * stage;
};

/* ---- bringing stages ---- */

/* What a block reads: from its first weight row and its first row on. */
struct codes_source {
    const int8_t *codes;
    const float *scale, *least; /* least NULL: the format has none */
    uint32_t weights, rows;     /* that there are; weights: tiles are full */
    uint32_t runs, groups;      /* of a row of the matrix */
    uint32_t pieces;            /* likewise: 16 bytes of codes */
};

static __device__ struct codes_source source_of(const struct cuda_product &a, uint32_t n0,
                                                uint32_t first, uint32_t group_runs) {
    uint32_t expert = product_row(a, first).expert, tile = n0 / CUDA_TILE_ROWS;
    struct codes_source s;
    s.runs = a.w.cols / CUDA_CODE_RUN;
    s.groups = s.runs / group_runs;
    s.pieces = s.runs * cuda_code_bits(a.w.code) / 8;
    size_t scales = expert * a.w.expert_scales + (size_t)tile * s.groups * CUDA_TILE_ROWS;
    s.codes = (const int8_t *)a.w.data + expert * a.w.expert_elems +
              (size_t)tile * s.pieces * CUDA_TILE_ROWS * 16;
    s.scale = a.w.scale + scales;
    s.least = a.w.min ? a.w.min + scales : NULL;
    s.weights = (a.w.rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS * CUDA_TILE_ROWS - n0;
    s.rows = a.used ? 1 : a.row_count - first;
    return s;
}

template <typename S>
static __device__ void bring_weights(const struct codes_source &s, uint32_t run0, uint32_t to) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < S::pieces * S::weights; i += S::threads) {
        uint32_t piece = run0 * S::bits / 8 + i / S::weights, row = i % S::weights;
        bool is_inside = piece < s.pieces && row < s.weights;
        size_t at = ((size_t)(row / 32) * s.pieces + piece) * 32 + row % 32;
        copy_16(to + i * 16, s.codes + (is_inside ? at : 0) * 16, is_inside);
    }
#pragma unroll
    for (uint32_t i = threadIdx.x; i < S::groups * S::weights / 4; i += S::threads) {
        uint32_t g = run0 / S::runs + i / (S::weights / 4), row = i % (S::weights / 4) * 4;
        bool is_inside = g < s.groups && row < s.weights;
        size_t at = is_inside ? ((size_t)(row / 32) * s.groups + g) * 32 + row % 32 : 0;
        copy_16(to + S::scale + i * 16, s.scale + at, is_inside);
        if (s.least) copy_16(to + S::least + i * 16, s.least + at, is_inside);
    }
}

template <typename S>
static __device__ void bring_rows(const struct cuda_product &a, const struct codes_source &s,
                                  uint32_t first, uint32_t run0, uint32_t to) {
    struct product_row place = product_row(a, first);
    uint32_t col = a.src.col + (a.src_per_expert ? place.segment * a.w.cols : 0);
#pragma unroll
    for (uint32_t i = threadIdx.x; i < STAGE_RUNS * S::rows; i += S::threads) {
        uint32_t row = i / STAGE_RUNS, run = i % STAGE_RUNS;
        bool is_inside = row < s.rows && run0 + run < s.runs;
        struct device_q8 x = mat_q8(a.src, place.row + (is_inside ? row : 0));
        uint32_t k = is_inside ? col + (run0 + run) * CUDA_CODE_RUN : 0;
        copy_16(to + S::x + (run * S::rows + row) * 16, x.q + k, is_inside);
    }
    for (uint32_t i = threadIdx.x; i < STAGE_BLOCKS * S::rows; i += S::threads) {
        uint32_t row = i / STAGE_BLOCKS, b = run0 / 2 + i % STAGE_BLOCKS;
        bool is_inside = row < s.rows && b < s.runs / 2;
        struct device_q8 x = mat_q8(a.src, place.row + (is_inside ? row : 0));
        copy_4(to + S::x_scale + (i % STAGE_BLOCKS * S::rows + row) * 4,
               x.scale + (is_inside ? col / 32 + b : 0), is_inside);
    }
    for (uint32_t i = threadIdx.x; i < S::groups * S::rows && s.least; i += S::threads) {
        uint32_t row = i / S::groups, g = run0 / S::runs + i % S::groups;
        bool is_inside = row < s.rows && g < s.groups;
        struct device_q8 x = mat_q8(a.src, place.row + (is_inside ? row : 0));
        const float *dsum = S::runs == 2 ? x.dsum : x.dsum16;
        copy_4(to + S::dsum + (i % S::groups * S::rows + row) * 4,
               dsum + (is_inside ? col / (S::runs * CUDA_CODE_RUN) + g : 0), is_inside);
    }
}

/* ---- summing ---- */

/* The group's sums of 16 weights and 8 rows; `w` and `x`: the lane's words of the first run. */
template <typename S>
static __device__ inline void sum_group(const uint8_t *w, const uint32_t table[4], const uint8_t *x,
                                        int32_t c[4]) {
    uint32_t a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = SUM_BEGINS;
#pragma unroll
    for (uint32_t i = 0; i < S::runs * S::bits / 4; i++)
        a[i] = *(const uint32_t *)(w + (i / 2 * S::weights + i % 2 * 8) * 16);
    if (S::bits == 4) {
        a[2] = last_codes<S::code>(a[0], table);
        a[3] = last_codes<S::code>(a[1], table);
        a[0] = first_codes<S::code>(a[0], table);
        a[1] = first_codes<S::code>(a[1], table);
    }
#pragma unroll
    for (uint32_t i = 0; i < S::runs; i++) b[i] = *(const uint32_t *)(x + i * S::rows * 16);
    if (S::runs == 2)
        mma_s8_16x8x32(c, a, b);
    else
        mma_s8_16x8x16(c, a, b[0]);
}

template <typename S>
static __device__ inline void add_group(const struct cuda_matrix &weights, const uint8_t *stage,
                                        uint32_t g, bool has_least,
                                        float acc[S::m_tiles][S::n_tiles][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, word = lane % 4 * 4;
    uint32_t mine = warp * S::m_tiles * 16 + lane / 4, run = g * S::runs;
    const float *x_scale = (const float *)(stage + S::x_scale) + g * S::runs / 2 * S::rows;
    const float *dsum = (const float *)(stage + S::dsum) + g * S::rows;
#pragma unroll
    for (uint32_t m = 0; m < S::m_tiles; m++) {
        uint32_t row = mine + m * 16;
        const float *scale = (const float *)(stage + S::scale) + g * S::weights + row;
        const float *least = (const float *)(stage + S::least) + g * S::weights + row;
        const uint8_t *w = stage + (run * S::bits / 8 * S::weights + row) * 16 + word;
        float w_scale[2] = {scale[0], scale[8]};
        float w_least[2] = {has_least ? least[0] : 0.0f, has_least ? least[8] : 0.0f};
#pragma unroll
        for (uint32_t n = 0; n < S::n_tiles; n++) {
            int32_t c[4];
            uint32_t col = n * 8 + lane % 4 * 2;
            sum_group<S>(w, weights.table,
                         stage + S::x + (run * S::rows + n * 8 + lane / 4) * 16 + word, c);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float sum = float_of_begun<S::code>(c[i]);
                float &to = acc[m][n][i];
                to = fmaf(sum, w_scale[i / 2] * x_scale[col + i % 2], to);
                if (has_least) to = fmaf(w_least[i / 2], dsum[col + i % 2], to);
            }
        }
    }
}

template <typename S>
static __global__ void __launch_bounds__(S::threads) codes_mma_kernel(struct cuda_product a) {
    extern __shared__ __align__(128) uint8_t buffers[];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t n0 = blockIdx.y * S::weights, first = blockIdx.x * (a.used ? 1 : S::rows);
    if (a.used && !product_is_live(a, first)) return; /* its experts were not chosen */
    struct codes_source s = source_of(a, n0, first, S::runs);
    uint32_t stage_count = (s.runs + STAGE_RUNS - 1) / STAGE_RUNS, ring = shared_address(buffers);
    float acc[S::m_tiles][S::n_tiles][4] = {{{0.0f}}};
    for (uint32_t i = 0; i < S::stages - 1; i++) {
        if (i < stage_count) {
            bring_weights<S>(s, i * STAGE_RUNS, ring + i * S::stage);
            bring_rows<S>(a, s, first, i * STAGE_RUNS, ring + i * S::stage);
        }
        copies_commit();
    }
    for (uint32_t i = 0; i < stage_count; i++) {
        copies_wait<S::stages - 2>();
        __syncthreads(); /* stage i is there for all, and all are done with stage i - 1 */
        uint32_t next = i + S::stages - 1;
        if (next < stage_count) {
            bring_weights<S>(s, next * STAGE_RUNS, ring + next % S::stages * S::stage);
            bring_rows<S>(a, s, first, next * STAGE_RUNS, ring + next % S::stages * S::stage);
        }
        copies_commit();
        const uint8_t *stage = buffers + i % S::stages * S::stage;
#pragma unroll
        for (uint32_t g = 0; g < S::groups; g++)
            if (i * S::groups + g < s.groups) add_group<S>(a.w, stage, g, s.least != NULL, acc);
    }
#pragma unroll
    for (uint32_t i = 0; i < S::m_tiles * S::n_tiles * 4; i++) {
        uint32_t m = i / 4 / S::n_tiles, t = i / 4 % S::n_tiles;
        uint32_t n = n0 + (warp * S::m_tiles + m) * 16 + lane / 4 + i % 4 / 2 * 8;
        uint32_t r = t * 8 + lane % 4 * 2 + i % 2;
        if (n < a.w.rows && r < s.rows) product_store(a, first + r, n, acc[m][t][i % 4]);
    }
}

/* ---- launching ---- */

template <typename F> using rows_8 = codes_shape<F, 2, 1, 1, 8>;
template <typename F> using rows_16 = codes_shape<F, 2, 1, 2, 6>;
template <typename F> using rows_32 = codes_shape<F, 4, 1, 4, 4>;
template <typename F> using rows_64 = codes_shape<F, 4, 2, 8, F::runs == 2 ? 3 : 2>;
static_assert(rows_64<codes_16>::bytes <= 99 << 10, "what sm_89 has");
static_assert(rows_64<codes_32>::bytes <= 99 << 10, "what sm_89 has");

template <typename S>
static void launch_shape(const struct cuda_product *a, const struct cuda_queue *queue) {
    uint32_t rows = a->used ? 1 : S::rows;
    dim3 grid((a->row_count + rows - 1) / rows, (a->w.rows + S::weights - 1) / S::weights);
    launch_alone(queue, codes_mma_kernel<S>, grid, S::threads, S::bytes, *a);
}

template <typename F>
static void launch_codes(const struct cuda_product *a, const struct cuda_queue *queue) {
    if (a->used || a->row_count <= 8)
        launch_shape<rows_8<F>>(a, queue);
    else if (a->row_count <= 16)
        launch_shape<rows_16<F>>(a, queue);
    else if (a->row_count <= 32)
        launch_shape<rows_32<F>>(a, queue);
    else
        launch_shape<rows_64<F>>(a, queue);
}

void cuda_product_codes_mma(const struct cuda_product *a, const struct cuda_queue *queue) {
    if (a->row_count == 0) return;
    if (a->w.code == CUDA_CODE_4)
        launch_codes<codes_4>(a, queue);
    else if (a->w.code == CUDA_CODE_4_SIGNED)
        launch_codes<codes_4_signed>(a, queue);
    else if (a->w.code == CUDA_CODE_4_PLACE)
        launch_codes<codes_4_place>(a, queue);
    else if (a->w.group == 32)
        launch_codes<codes_32>(a, queue);
    else
        launch_codes<codes_16>(a, queue);
}

template <typename S> static void prepare_shape(void) {
    cudaFuncSetAttribute(codes_mma_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)S::bytes);
}

template <typename F> static void prepare_form(void) {
    prepare_shape<rows_8<F>>();
    prepare_shape<rows_16<F>>();
    prepare_shape<rows_32<F>>();
    prepare_shape<rows_64<F>>();
}

void cuda_product_codes_mma_prepare(void) {
    prepare_form<codes_16>();
    prepare_form<codes_32>();
    prepare_form<codes_4>();
    prepare_form<codes_4_signed>();
    prepare_form<codes_4_place>();
}
