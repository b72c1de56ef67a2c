/* kernels/cuda/qkv.cu - what happens to queries, keys and values between their product and
 * attention: norms of heads, rotation, and writing keys and values to the cache.
 *
 * Mapping: a warp owns a head of a row, or some heads where there are many rows. cuda_kv_write is
 * the last step alone, cuda_qkv all of them in one launch; both give the same bits as the ops one
 * by one.
 */
#include "kernels/cuda/device_fp8.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/launch_attention.h"

static constexpr uint32_t QKV_WARPS = 4, QKV_HEAD_MAX = CUDA_QKV_HEAD_MAX;
static constexpr uint32_t QKV_SOME_ROWS = 256, QKV_MANY_ROWS = 1024; /* that keep more warps busy */

/* ---- writing ---- */

/* The least f16 not below max / 127; positive halves are in the order of their bits. */
static __device__ __half int8_scale(float max) {
    float want = max / 127.0f;
    if (want >= 65504.0f) return __ushort_as_half(0x7bff);
    __half half = __float2half_rn(want);
    return __half2float(half) < want ? __ushort_as_half(__half_as_ushort(half) + 1) : half;
}

static __device__ int8_t int8_of(float x, float scale) {
    float y = scale > 0.0f ? x / scale : 0.0f;
    if (y > 127.0f) return 127;
    if (y < -127.0f) return -127;
    return y == y ? (int8_t)rintf(y) : (int8_t)0;
}

/* K or V of one token and head, by one warp. */
static __device__ void write_side(const struct cuda_kv &kv, const float *x, bool is_value,
                                  uint32_t token, uint8_t *tile) {
    uint32_t lane = threadIdx.x % 32;
    float max = 0.0f, scale = 0.0f;
    if (kv.type == KV_I8) {
        for (uint32_t d = lane; d < kv.head_dim; d += 32)
            max = fabsf(x[d]) > max ? fabsf(x[d]) : max;
        for (int width = 16; width > 0; width /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, width));
        __half half = int8_scale(max);
        scale = __half2float(half);
        if (lane == 0) ((__half *)(tile + cuda_kv_scales_offset(kv.head_dim)))[token] = half;
    }
    for (uint32_t d = lane; d < kv.head_dim; d += 32) {
        size_t at =
            is_value ? cuda_v_index(kv.type, token, d, kv.head_dim) : cuda_k_index(token, d);
        if (kv.type == KV_F32)
            ((float *)tile)[at] = x[d];
        else if (kv.type == KV_F16)
            ((__half *)tile)[at] = __float2half_rn(x[d]);
        else if (kv.type == KV_F8)
            tile[at] = fp8_of(x[d]);
        else
            ((int8_t *)tile)[at] = int8_of(x[d], scale);
    }
}

/* A block owns a row and a head; its two warps write K and V. */
static __global__ void kv_write_kernel(struct cuda_kv_write a) {
    begin_kernel();
    uint32_t row = blockIdx.x, head = blockIdx.y, pos = (uint32_t)a.pos[row];
    if (a.pos[row] < 0) return;
    const uint32_t *blocks = a.blocks + a.seq[row] * a.blocks_stride;
    uint8_t *tile = cuda_kv_tile(&a.kv, blocks, pos / CUDA_TILE_TOKENS, a.layer, head);
    bool is_value = threadIdx.x >= 32;
    if (is_value) tile += cuda_kv_side_bytes(a.kv.type, a.kv.head_dim);
    const float *x = mat_f32(is_value ? a.v : a.k, row) + (size_t)head * a.kv.head_dim;
    write_side(a.kv, x, is_value, pos % CUDA_TILE_TOKENS, tile);
}

void cuda_kv_write(const struct cuda_kv_write *a, const struct cuda_queue *queue) {
    if (a->k.row_count == 0) return;
    launch(queue, kv_write_kernel, dim3(a->k.row_count, a->kv.heads), 64, 0, *a);
}

/* ---- all at once ---- */

/* Sine and cosine of the pairs lane, lane + 32, ... of a head. */
struct turns {
    float sine[QKV_HEAD_MAX / 64], cosine[QKV_HEAD_MAX / 64];
};

static __device__ inline void find_turns(const struct cuda_qkv &a, float pos, struct turns *t) {
    uint32_t lane = threadIdx.x % 32, pairs = a.rope.rot_dims / 2;
#pragma unroll
    for (uint32_t k = 0; k < QKV_HEAD_MAX / 64; k++) {
        double sine = 0.0, cosine = 0.0;
        if (lane + k * 32 < pairs)
            fm_sincos_d((double)(pos * a.rope.freqs[lane + k * 32]), &sine, &cosine);
        t->sine[k] = (float)sine * a.rope.factor;
        t->cosine[k] = (float)cosine * a.rope.factor;
    }
}

/* The norm and the rotation of one head in `head` (shared memory). */
static __device__ void turn_head(const struct cuda_qkv &a, const float *norm, const struct turns &t,
                                 float *head) {
    uint32_t lane = threadIdx.x % 32, pairs = a.rope.rot_dims / 2;
    if (norm) {
        struct norm_stats s =
            norm_measure(head, a.kv.head_dim, lane % NORM_LANES, false, a.norm_eps);
        __syncwarp();
        for (uint32_t i = lane; i < a.kv.head_dim; i += 32) head[i] = head[i] * s.rate * norm[i];
        __syncwarp();
    }
#pragma unroll
    for (uint32_t k = 0; k < QKV_HEAD_MAX / 64; k++) {
        uint32_t i = lane + k * 32;
        if (i >= pairs) break;
        float sine = t.sine[k], cosine = t.cosine[k];
        uint32_t first = a.rope.is_neox ? i : 2 * i;
        uint32_t second = a.rope.is_neox ? i + pairs : 2 * i + 1;
        float p = head[first], q = head[second];
        head[first] = fmaf(p, cosine, -(q * sine));
        head[second] = fmaf(p, sine, q * cosine);
    }
    __syncwarp();
}

/* One head of a row: queries, keys and values, in this order. `mine` is the warp's. */
static __device__ inline void do_head(const struct cuda_qkv &a, uint32_t row, uint32_t head,
                                      const struct turns &t, float *mine) {
    uint32_t lane = threadIdx.x % 32, queries = a.q.cols / a.kv.head_dim;
    bool is_query = head < queries, is_value = head >= queries + a.kv.heads;
    uint32_t kv_head = is_query ? 0 : (head - queries) % a.kv.heads, pos = (uint32_t)a.pos[row];
    const struct cuda_mat &from = is_query ? a.q : is_value ? a.v : a.k;
    float *x = mat_f32(from, row) + (size_t)(is_query ? head : kv_head) * a.kv.head_dim;
    for (uint32_t i = lane; i < a.kv.head_dim; i += 32) mine[i] = x[i];
    __syncwarp();
    if (!is_value) {
        turn_head(a, is_query ? a.q_norm : a.k_norm, t, mine);
        for (uint32_t i = lane; i < a.kv.head_dim; i += 32) x[i] = mine[i];
    }
    if (is_query) return;
    const uint32_t *blocks = a.blocks + a.seq[row] * a.blocks_stride;
    uint8_t *tile = cuda_kv_tile(&a.kv, blocks, pos / CUDA_TILE_TOKENS, a.layer, kv_head);
    if (is_value) tile += cuda_kv_side_bytes(a.kv.type, a.kv.head_dim);
    write_side(a.kv, mine, is_value, pos % CUDA_TILE_TOKENS, tile);
}

/* A warp does every so many heads of a row, whose sines and cosines it makes once: while the
 * kernels in front run, as tables and frequencies are there before they have ended. */
static __global__ void qkv_kernel(struct cuda_qkv a) {
    __shared__ float heads[QKV_WARPS][QKV_HEAD_MAX];
    struct turns t;
    admit_next_kernel();
    uint32_t row = blockIdx.x, warp = threadIdx.x / 32;
    uint32_t count = a.q.cols / a.kv.head_dim + 2 * a.kv.heads;
    find_turns(a, (float)a.pos[row], &t);
    wait_for_inputs();
    if (a.pos[row] < 0) return;
    for (uint32_t h = blockIdx.y * QKV_WARPS + warp; h < count; h += gridDim.y * QKV_WARPS) {
        do_head(a, row, h, t, heads[warp]);
        __syncwarp();
    }
}

void cuda_qkv(const struct cuda_qkv *a, const struct cuda_queue *queue) {
    uint32_t rows = a->q.row_count, heads = a->q.cols / a->kv.head_dim + 2 * a->kv.heads;
    uint32_t of_a_warp = rows < QKV_SOME_ROWS ? 1 : rows < QKV_MANY_ROWS ? 4 : 10;
    uint32_t at_once = of_a_warp * QKV_WARPS;
    if (rows == 0) return;
    dim3 grid(rows, (heads + at_once - 1) / at_once);
    launch(queue, qkv_kernel, grid, QKV_WARPS * 32, 0, *a);
}
