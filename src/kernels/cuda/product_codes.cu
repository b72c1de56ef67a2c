/* kernels/cuda/product_codes.cu - products of quantised weights by the definition of tensor/q8.h:
 *
 *     acc = fma((float)sum(w.q[i] * q[i]), w.scale[g] * scale[b], acc), then the minimum
 *
 * so their bits are the CPU's. Weights are codes with a float scale and minimum for each group of
 * 16 or 32 (kernels/cuda/layout.h).
 *
 * Mapping: a block of 8 warps owns 32 weight rows, a lane each, and up to 8 rows of activations.
 * Columns go by in pieces of 16 groups. First each warp makes the whole-number sums of two groups
 * for all rows, by dp4a; then warp r adds the 16 sums of row r to its accumulators, rising.
 * Cost: bound by memory for few rows: a byte or half of one for each weight, and 4 or 8 bytes for
 * each group of them.
 */
#include "kernels/cuda/device_codes.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t CODES_WARPS = 8, CODES_THREADS = CODES_WARPS * 32;
static constexpr uint32_t PIECE_GROUPS = 16, OWN_GROUPS = PIECE_GROUPS / CODES_WARPS;

/* One row of activations, from the product's first column on. */
struct codes_row {
    const int8_t *q;
    const float *scale, *dsum; /* dsum: of groups of the weight's size */
};

static __device__ struct codes_row codes_source(const struct cuda_product &a, uint32_t r) {
    struct product_row at = product_row(a, r);
    uint32_t col = a.src.col + (a.src_per_expert ? at.segment * a.w.cols : 0);
    struct device_q8 x = mat_q8(a.src, at.row);
    const float *dsum = a.w.group == 32 ? x.dsum : x.dsum16;
    return {x.q + col, x.scale + col / 32, dsum + col / a.w.group};
}

static __device__ int32_t dot16(int4 a, int4 b, int32_t sum) {
    sum = __dp4a(a.x, b.x, sum);
    sum = __dp4a(a.y, b.y, sum);
    sum = __dp4a(a.z, b.z, sum);
    return __dp4a(a.w, b.w, sum);
}

/* A group's codes, in runs of 16: `at` is the first one's place in a matrix of codes of 8 bits. */
template <int RUNS, enum cuda_code CODE>
static __device__ void read_codes(const int4 *codes, uint32_t at, const uint32_t table[4],
                                  int4 w[RUNS]) {
    if (CODE != CUDA_CODE_8) {
        int4 both = codes[at / 2];
        w[0] = first_codes<CODE>(both, table);
        w[RUNS - 1] = last_codes<CODE>(both, table);
    } else {
#pragma unroll
        for (int run = 0; run < RUNS; run++) w[run] = codes[at + run * CUDA_TILE_ROWS];
    }
}

/* RUNS: 16 codes each, of a group. */
template <int ROWS, int RUNS, enum cuda_code CODE>
static __global__ void __launch_bounds__(CODES_THREADS) codes_kernel(struct cuda_product a) {
    __shared__ int32_t sums[2][PIECE_GROUPS][ROWS][32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t first = blockIdx.x * ROWS, rows = min((uint32_t)ROWS, a.row_count - first);
    if (a.used && !product_is_live(a, first)) return; /* its experts were not chosen */
    uint32_t groups = a.w.cols / (RUNS * CUDA_CODE_RUN), expert = product_row(a, first).expert;
    const int4 *codes = (const int4 *)((const int8_t *)a.w.data + expert * a.w.expert_elems) +
                        (size_t)blockIdx.y * groups * RUNS * CUDA_TILE_ROWS * code_bits<CODE> / 8 +
                        lane;
    size_t scales = expert * a.w.expert_scales + (size_t)blockIdx.y * groups * 32 + lane;
    const float *scale = a.w.scale + scales, *least = a.w.min ? a.w.min + scales : NULL;
    const int4 *x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        x[r] = (const int4 *)codes_source(a, first + min((uint32_t)r, rows - 1)).q;
    struct codes_row own = codes_source(a, first + min(warp, rows - 1));
    float acc = 0.0f;
    for (uint32_t g0 = 0; g0 < groups; g0 += PIECE_GROUPS) {
        uint32_t buffer = g0 / PIECE_GROUPS % 2;
        uint32_t mine = g0 + warp * OWN_GROUPS;
        int4 w[OWN_GROUPS][RUNS];
#pragma unroll
        for (uint32_t i = 0; i < OWN_GROUPS; i++)
            if (mine + i < groups)
                read_codes<RUNS, CODE>(codes, (mine + i) * RUNS * CUDA_TILE_ROWS, a.w.table, w[i]);
#pragma unroll
        for (uint32_t i = 0; i < OWN_GROUPS; i++) {
            if (mine + i >= groups) break;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int32_t sum = 0;
#pragma unroll
                for (int run = 0; run < RUNS; run++)
                    sum = dot16(w[i][run], x[r][(mine + i) * RUNS + run], sum);
                sums[buffer][warp * OWN_GROUPS + i][r][lane] = sum;
            }
        }
        __syncthreads(); /* the other buffer is free again: all have passed its second half */
        uint32_t count = min(PIECE_GROUPS, groups - g0);
        for (uint32_t i = 0; i < count && warp < rows; i++) {
            uint32_t g = g0 + i;
            float product = scale[g * 32] * own.scale[g * RUNS / 2];
            acc = fmaf(float_of_sum<CODE>(sums[buffer][i][warp % ROWS][lane]), product, acc);
            if (least) acc = fmaf(least[g * 32], own.dsum[g], acc);
        }
    }
    uint32_t n = blockIdx.y * 32 + lane;
    if (warp < rows && n < a.w.rows) product_store(a, first + warp, n, acc);
}

template <int ROWS, int RUNS, enum cuda_code CODE>
static void launch_form(const struct cuda_product *a, const struct cuda_queue *queue) {
    dim3 grid((a->row_count + ROWS - 1) / ROWS, (a->w.rows + 31) / 32);
    launch_alone(queue, codes_kernel<ROWS, RUNS, CODE>, grid, CODES_THREADS, 0, *a);
}

template <int ROWS>
static void launch_codes(const struct cuda_product *a, const struct cuda_queue *queue) {
    if (a->w.code == CUDA_CODE_4)
        launch_form<ROWS, 2, CUDA_CODE_4>(a, queue);
    else if (a->w.code == CUDA_CODE_4_SIGNED)
        launch_form<ROWS, 2, CUDA_CODE_4_SIGNED>(a, queue);
    else if (a->w.code == CUDA_CODE_4_PLACE)
        launch_form<ROWS, 2, CUDA_CODE_4_PLACE>(a, queue);
    else if (a->w.group == 32)
        launch_form<ROWS, 2, CUDA_CODE_8>(a, queue);
    else
        launch_form<ROWS, 1, CUDA_CODE_8>(a, queue);
}

void cuda_product_codes(const struct cuda_product *a, const struct cuda_queue *queue) {
    if (a->row_count == 0) return;
    if (a->used || a->row_count == 1)
        launch_codes<1>(a, queue);
    else if (a->row_count <= 4)
        launch_codes<4>(a, queue);
    else
        launch_codes<8>(a, queue);
}
