/* kernels/cuda/rows.cu - ops that work row by row: embed, norm, quantise, rope, act, add, softcap,
 * gather, permute, pool. Formulas: graph/op_args.h; order: kernels/cpu/numerics.h.
 *
 * Mapping: a block owns a row (blockIdx.x), or a piece of one; threads stride along its columns, so
 * that neighbours read neighbouring floats. Norms sum in 16 lanes by column mod 16, so a half warp
 * owns a group.
 * Cost: bound by memory and, with few rows, by the launch.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/device_rows.cuh"

static constexpr uint32_t ROW_THREADS = 256;
static constexpr uint32_t ACT_COLS = 1024; /* of a row that one block takes */

/* ---- embed ---- */

static __device__ uint32_t embed_index(const struct cuda_embed &a, uint32_t row) {
    if (a.source == CUDA_INDEX_ZERO) return 0;
    if (a.source == CUDA_INDEX_POSITION) return (uint32_t)a.pos[row];
    int32_t token = a.token[row];
    return (uint32_t)(token >= 0 ? token : a.slots[-1 - token]);
}

/* An index outside the table gives NaN, which fails the row where it is sampled from. */
static __global__ void embed_kernel(struct cuda_embed a) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(a.dst, row)) return;
    uint32_t index = embed_index(a, row);
    float *out = mat_f32(a.dst, row);
    for (uint32_t i = threadIdx.x; i < a.table.cols; i += ROW_THREADS) {
        float in = index < a.table.rows ? matrix_at(a.table, index, i) : DEVICE_NAN;
        in *= a.scale;
        out[i] = a.add ? out[i] + in : in;
    }
}

void cuda_embed(const struct cuda_embed *a, const struct cuda_queue *queue) {
    if (a->dst.row_count == 0) return;
    launch(queue, embed_kernel, a->dst.row_count, ROW_THREADS, 0, *a);
}

/* ---- norm ---- */

static __device__ float norm_one(const struct cuda_norm &a, struct norm_stats s, float x,
                                 uint32_t i) {
    float unit = (x - s.mean) * s.rate;
    return a.bias ? fmaf(unit, a.weight[i], a.bias[i]) : unit * a.weight[i];
}

/* Small groups: a half warp each, straight from memory. Both halves of a warp always join, so a
 * half without a group of its own repeats the last one and writes nothing. */
static __global__ void norm_small_kernel(struct cuda_norm a) {
    begin_kernel();
    uint32_t row = blockIdx.x, groups = a.src.cols / a.group;
    uint32_t half = blockIdx.y * (ROW_THREADS / NORM_LANES) + threadIdx.x / NORM_LANES;
    uint32_t lane = threadIdx.x % NORM_LANES, mine = half < groups ? half : groups - 1;
    if (!mat_is_live(a.src, row)) return;
    const float *x = mat_f32(a.src, row) + (size_t)mine * a.group;
    struct norm_stats s = norm_measure(x, a.group, lane, a.is_layer, a.eps);
    __syncwarp();
    if (half >= groups) return;
    float *y = mat_f32(a.dst, row) + (size_t)mine * a.group;
    for (uint32_t i = lane; i < a.group; i += NORM_LANES) y[i] = norm_one(a, s, x[i], i);
}

/* A large group: the block brings it into shared memory, one half warp sums, all write. What is
 * wanted in 16 bits or quantised has one group a row. */
static __global__ void norm_large_kernel(struct cuda_norm a) {
    begin_kernel();
    extern __shared__ float kept[];
    __shared__ struct norm_stats stats;
    uint32_t row = blockIdx.x;
    if (!mat_is_live(a.src, row)) return;
    const float *x = mat_f32(a.src, row) + (size_t)blockIdx.y * a.group;
    float *y = mat_f32(a.dst, row) + (size_t)blockIdx.y * a.group;
    for (uint32_t i = threadIdx.x; i < a.group; i += ROW_THREADS) kept[i] = x[i];
    __syncthreads();
    if (threadIdx.x < 32) {
        struct norm_stats s =
            norm_measure(kept, a.group, threadIdx.x % NORM_LANES, a.is_layer, a.eps);
        if (threadIdx.x == 0) stats = s;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.group; i += ROW_THREADS) {
        float number = norm_one(a, stats, kept[i], i);
        if (a.dst.base) y[i] = number;
        if (a.half.x) store_half(a.half, row, i, number);
        kept[i] = number;
    }
    if (!a.q8.base) return;
    __syncthreads();
    struct device_q8 out = mat_q8(a.q8, row);
    uint32_t eighths = a.group / 8; /* whole warps go on, and the last one repeats */
    for (uint32_t i = threadIdx.x; i < (eighths + 31) / 32 * 32; i += ROW_THREADS) {
        uint32_t mine = min(i, eighths - 4 + i % 4);
        quantise_eighth(kept + mine * 8, mine, out);
    }
}

static constexpr uint32_t SMALL_GROUP = 512;

/* The same for a row that is one group, without bias and q8, four numbers at a time. Up to `FOURS`
 * fours a thread stay in registers; their weights are read before the row is there. */
template <int FOURS> static __global__ void norm_wide_kernel(struct cuda_norm a) {
    extern __shared__ __align__(16) float fours[];
    __shared__ struct norm_stats stats;
    admit_next_kernel();
    uint32_t row = blockIdx.x, first = threadIdx.x * 4;
    float4 w[FOURS], x[FOURS];
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * ROW_THREADS * 4;
        if (i < a.group) w[k] = *(const float4 *)(a.weight + i);
    }
    wait_for_inputs();
    if (!mat_is_live(a.src, row)) return;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * ROW_THREADS * 4;
        if (i >= a.group) continue;
        x[k] = *(const float4 *)(mat_f32(a.src, row) + i);
        *(float4 *)(fours + i) = x[k];
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        struct norm_stats s =
            norm_measure(fours, a.group, threadIdx.x % NORM_LANES, a.is_layer, a.eps);
        if (threadIdx.x == 0) stats = s;
    }
    __syncthreads();
    struct norm_stats s = stats;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * ROW_THREADS * 4;
        if (i >= a.group) continue;
        float4 y;
        y.x = (x[k].x - s.mean) * s.rate * w[k].x;
        y.y = (x[k].y - s.mean) * s.rate * w[k].y;
        y.z = (x[k].z - s.mean) * s.rate * w[k].z;
        y.w = (x[k].w - s.mean) * s.rate * w[k].w;
        if (a.dst.base) *(float4 *)(mat_f32(a.dst, row) + i) = y;
        if (a.half.x) store_half_4(a.half, row, i, y);
    }
}

/* Do columns begin at a multiple of 16 bytes, in every row? */
static bool is_wide(const struct cuda_mat *m) {
    return !m->base || (m->col % 4 == 0 && m->cols % 4 == 0 && m->row_bytes % 16 == 0);
}

static bool launch_norm_wide(const struct cuda_norm *a, const struct cuda_queue *queue) {
    static constexpr uint32_t at_once = ROW_THREADS * 4;
    if (!a->is_wide || !is_wide(&a->src) || !is_wide(&a->dst)) return false;
    if (a->bias || a->q8.base) return false;
    if (a->src.cols != a->group || a->group > 8 * at_once) return false;
    uint32_t rows = a->src.row_count, bytes = a->group * (uint32_t)sizeof(float);
    if (a->group <= at_once)
        launch(queue, norm_wide_kernel<1>, rows, ROW_THREADS, bytes, *a);
    else if (a->group <= 4 * at_once)
        launch(queue, norm_wide_kernel<4>, rows, ROW_THREADS, bytes, *a);
    else
        launch(queue, norm_wide_kernel<8>, rows, ROW_THREADS, bytes, *a);
    return true;
}

bool cuda_norm_rounds(uint32_t cols, uint32_t group) {
    return cols == group && group > SMALL_GROUP && group <= CUDA_NORM_SHARED;
}

void cuda_norm(const struct cuda_norm *a, const struct cuda_queue *queue) {
    uint32_t groups = a->src.cols / a->group, per_block = ROW_THREADS / NORM_LANES;
    if (a->src.row_count == 0) return;
    if (a->group <= SMALL_GROUP || a->group > CUDA_NORM_SHARED) {
        dim3 grid(a->src.row_count, (groups + per_block - 1) / per_block);
        launch(queue, norm_small_kernel, grid, ROW_THREADS, 0, *a);
        return;
    }
    if (launch_norm_wide(a, queue)) return;
    dim3 grid(a->src.row_count, groups);
    launch(queue, norm_large_kernel, grid, ROW_THREADS, a->group * sizeof(float), *a);
}

/* From 12,288 columns on a row is more than a block has without asking. */
void cuda_rows_prepare(void) {
    cudaFuncSetAttribute(norm_large_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         CUDA_NORM_SHARED * (int)sizeof(float));
}

/* ---- quantise ---- */

/* A thread owns eight numbers. Threads that have none repeat those of the last block. */
static __global__ void quantise_kernel(struct cuda_mat src, struct cuda_mat q8) {
    begin_kernel();
    uint32_t row = blockIdx.x, eighths = src.cols / 8;
    uint32_t i = blockIdx.y * ROW_THREADS + threadIdx.x, mine = min(i, eighths - 4 + i % 4);
    if (!mat_is_live(src, row)) return;
    const float *x = mat_f32(src, row) + mine * 8;
    float eight[8];
#pragma unroll
    for (int k = 0; k < 8; k++) eight[k] = x[k];
    quantise_eighth(eight, mine, mat_q8(q8, row));
}

void cuda_quantise(const struct cuda_mat *src, const struct cuda_mat *q8,
                   const struct cuda_queue *queue) {
    uint32_t eighths = src->cols / 8;
    if (src->row_count == 0) return;
    dim3 grid(src->row_count, (eighths + ROW_THREADS - 1) / ROW_THREADS);
    launch(queue, quantise_kernel, grid, ROW_THREADS, 0, *src, *q8);
}

/* ---- rope ---- */

/* Sine and cosine are the same for all heads of a row: each thread makes one pair's at a time. */
static __global__ void rope_kernel(struct cuda_rope a) {
    begin_kernel();
    uint32_t row = blockIdx.x, pairs = a.rot_dims / 2;
    if (!mat_is_live(a.x, row)) return;
    float *x = mat_f32(a.x, row);
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        double sine_d, cosine_d;
        fm_sincos_d((double)((float)a.pos[row] * a.freqs[i]), &sine_d, &cosine_d);
        float cosine = (float)cosine_d * a.factor, sine = (float)sine_d * a.factor;
        uint32_t first = a.is_neox ? i : 2 * i, second = a.is_neox ? i + pairs : 2 * i + 1;
        for (uint32_t h = threadIdx.y; h < a.heads; h += blockDim.y) {
            float *head = x + (size_t)h * a.head_dim;
            float p = head[first], q = head[second];
            head[first] = fmaf(p, cosine, -(q * sine));
            head[second] = fmaf(p, sine, q * cosine);
        }
    }
}

void cuda_rope(const struct cuda_rope *a, const struct cuda_queue *queue) {
    if (a->x.row_count == 0 || a->rot_dims == 0) return;
    launch(queue, rope_kernel, a->x.row_count, dim3(32, 8), 0, *a);
}

/* ---- act, add, softcap ---- */

static __global__ void act_kernel(struct cuda_act a) {
    begin_kernel();
    uint32_t row = blockIdx.x, cols = a.gate.cols * a.segments;
    if (!mat_is_live(a.gate, row)) return;
    const float *gate = mat_f32(a.gate, row);
    const float *up = a.up.base ? mat_f32(a.up, row) : NULL;
    float *out = mat_f32(a.dst, row);
    uint32_t first = blockIdx.y * ACT_COLS, end = min(first + ACT_COLS, cols);
    for (uint32_t c = first + threadIdx.x; c < end; c += ROW_THREADS) {
        size_t from = (size_t)(c / a.gate.cols) * a.stride + c % a.gate.cols;
        float y = act_one(a.kind, gate[from]);
        y = up ? y * up[from] : y;
        if (a.dst.base) out[c] = y;
        if (a.half.x) store_half(a.half, row, c, y);
        if (a.q8.base) quantise_warp(y, c / Q8_BLOCK, mat_q8(a.q8, row)); /* whole warps */
    }
}

/* Gates with ups, of one segment and not quantised: four columns a thread. */
static __global__ void act_wide_kernel(struct cuda_act a) {
    begin_kernel();
    uint32_t row = blockIdx.x, c = blockIdx.y * ACT_COLS + threadIdx.x * 4;
    if (c >= a.gate.cols || !mat_is_live(a.gate, row)) return;
    float4 gate = *(const float4 *)(mat_f32(a.gate, row) + c);
    float4 up = *(const float4 *)(mat_f32(a.up, row) + c), y;
    y.x = act_one(a.kind, gate.x) * up.x;
    y.y = act_one(a.kind, gate.y) * up.y;
    y.z = act_one(a.kind, gate.z) * up.z;
    y.w = act_one(a.kind, gate.w) * up.w;
    if (a.dst.base) *(float4 *)(mat_f32(a.dst, row) + c) = y;
    if (a.half.x) store_half_4(a.half, row, c, y);
}
static_assert(ACT_COLS == ROW_THREADS * 4, "a block of act_wide_kernel");

static bool is_act_wide(const struct cuda_act *a) {
    return a->is_wide && a->segments == 1 && !a->q8.base && a->up.base && is_wide(&a->gate) &&
           is_wide(&a->up) && is_wide(&a->dst);
}

void cuda_act(const struct cuda_act *a, const struct cuda_queue *queue) {
    uint32_t cols = a->gate.cols * a->segments;
    if (a->gate.row_count == 0) return;
    dim3 grid(a->gate.row_count, (cols + ACT_COLS - 1) / ACT_COLS);
    if (is_act_wide(a))
        launch(queue, act_wide_kernel, grid, ROW_THREADS, 0, *a);
    else
        launch(queue, act_kernel, grid, ROW_THREADS, 0, *a);
}

static __global__ void add_kernel(struct cuda_mat src, struct cuda_mat dst) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(dst, row)) return;
    const float *in = mat_f32(src, row);
    float *out = mat_f32(dst, row);
    for (uint32_t i = threadIdx.x; i < dst.cols; i += ROW_THREADS) out[i] += in[i];
}

void cuda_add(const struct cuda_mat *src, const struct cuda_mat *dst,
              const struct cuda_queue *queue) {
    if (dst->row_count == 0) return;
    launch(queue, add_kernel, dst->row_count, ROW_THREADS, 0, *src, *dst);
}

static __global__ void softcap_kernel(float cap, struct cuda_mat m) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(m, row)) return;
    float *x = mat_f32(m, row);
    uint32_t first = blockIdx.y * ACT_COLS, end = min(first + ACT_COLS, m.cols);
    for (uint32_t i = first + threadIdx.x; i < end; i += ROW_THREADS)
        x[i] = cap * fm_tanh(x[i] / cap);
}

void cuda_softcap(float cap, const struct cuda_mat *x, const struct cuda_queue *queue) {
    if (x->row_count == 0) return;
    dim3 grid(x->row_count, (x->cols + ACT_COLS - 1) / ACT_COLS);
    launch(queue, softcap_kernel, grid, ROW_THREADS, 0, cap, *x);
}

/* ---- gather, permute, pool ---- */

/* Other rows, or other columns. */
static __global__ void gather_kernel(struct cuda_mat src, struct cuda_mat dst,
                                     const uint32_t *output_row, const float *order) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(dst, row)) return;
    const float *in = mat_f32(src, output_row ? output_row[row] : row);
    float *out = mat_f32(dst, row);
    for (uint32_t i = threadIdx.x; i < dst.cols; i += ROW_THREADS)
        out[i] = in[order ? (uint32_t)order[i] : i];
}

void cuda_gather(const struct cuda_mat *src, const struct cuda_mat *dst, const uint32_t *output_row,
                 const float *order, const struct cuda_queue *queue) {
    if (dst->row_count == 0) return;
    launch(queue, gather_kernel, dst->row_count, ROW_THREADS, 0, *src, *dst, output_row, order);
}

/* Rising rows, one accumulator per column; then divided by how many there were. */
static __device__ float pool_column(const struct cuda_pool &a, uint32_t first, uint32_t count,
                                    uint32_t col) {
    uint32_t live = 0;
    float sum = 0.0f;
    for (uint32_t r = first; r < first + count; r++) {
        if (!mat_is_live(a.src, r)) continue;
        sum += mat_f32(a.src, r)[col];
        live++;
    }
    return live > 0 ? sum / (float)live : sum;
}

/* The first or the last live row; `first + count` if there is none. */
static __device__ uint32_t pool_row(const struct cuda_pool &a, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = first + (a.kind == CUDA_POOL_LAST ? count - 1 - i : i);
        if (mat_is_live(a.src, r)) return r;
    }
    return first + count;
}

static __global__ void pool_kernel(struct cuda_pool a) {
    begin_kernel();
    __shared__ float length;
    uint32_t first = a.seqs[2 * blockIdx.x], count = a.seqs[2 * blockIdx.x + 1];
    float *out = mat_f32(a.dst, blockIdx.x);
    uint32_t from = a.kind == CUDA_POOL_MEAN ? 0 : pool_row(a, first, count);
    for (uint32_t i = threadIdx.x; i < a.dst.cols; i += ROW_THREADS) {
        if (a.kind == CUDA_POOL_MEAN)
            out[i] = pool_column(a, first, count, i);
        else if (from < first + count)
            out[i] = mat_f32(a.src, from)[i];
    }
    if (!a.unit_length) return;
    __syncthreads();
    if (threadIdx.x < 32) {
        float squares = 0.0f;
        for (uint32_t i = threadIdx.x % NORM_LANES; i < a.dst.cols; i += NORM_LANES)
            squares = fmaf(out[i], out[i], squares);
        squares = join_lanes(squares);
        if (threadIdx.x == 0) length = squares > 0.0f ? sqrtf(squares) : 1.0f;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.dst.cols; i += ROW_THREADS) out[i] /= length;
}

void cuda_pool(const struct cuda_pool *a, const struct cuda_queue *queue) {
    if (a->dst.row_count == 0) return;
    launch(queue, pool_kernel, a->dst.row_count, ROW_THREADS, 0, *a);
}
