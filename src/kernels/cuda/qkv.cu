/* kernels/cuda/qkv.cu - what happens to queries, keys and values between their product and
 * attention: norms of heads, rotation, and writing keys and values to the cache.
 *
 * Mapping: a warp owns a head of a row, or some heads where there are many rows. cuda_kv_write is
 * the last step alone, cuda_qkv all of them in one launch; both give the same bits as the ops one
 * by one.
 */
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_qkv.cuh"

static constexpr uint32_t QKV_WARPS = 4;
static constexpr uint32_t QKV_FEW_ROWS = 64, QKV_SOME_ROWS = 256,
                          QKV_MANY_ROWS = 1024; /* that keep more warps busy */

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

/* ---- the same for heads of 128 dimensions, over caches of f16 and fp8 ---- */

/* A lane holds two pairs of dimensions that are turned together: pairs 2 * lane and 2 * lane + 1.
 * All of a warp's heads are read before the first is turned. */
static constexpr uint32_t WIDE_DIM = 128, WIDE_HEADS = 4;

/* Where a lane's numbers 0 and 1 lie in a head, and where 2 and 3. */
struct wide_dims {
    uint32_t at[2];
};

/* A head of a row, by its number among all: queries, keys, values. */
struct wide_head {
    float *x;
    uint32_t kv_head;
    bool is_query, is_value;
};

static __device__ inline struct wide_head wide_head_of(const struct cuda_qkv &a, uint32_t row,
                                                       uint32_t head) {
    uint32_t queries = a.q.cols / WIDE_DIM;
    struct wide_head h;
    h.is_query = head < queries;
    h.is_value = head >= queries + a.kv.heads;
    h.kv_head = h.is_query ? 0 : (head - queries) % a.kv.heads;
    const struct cuda_mat &from = h.is_query ? a.q : h.is_value ? a.v : a.k;
    h.x = mat_f32(from, row) + (h.is_query ? head : h.kv_head) * WIDE_DIM;
    return h;
}

static __device__ inline void norm_wide(const float *weight, float eps, struct wide_dims d,
                                        float *head, float v[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        *(float2 *)(head + d.at[i]) = make_float2(v[2 * i], v[2 * i + 1]);
    __syncwarp();
    struct norm_stats s = norm_measure(head, WIDE_DIM, threadIdx.x % NORM_LANES, false, eps);
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) v[i] = v[i] * s.rate * weight[d.at[i / 2] + i % 2];
}

template <bool IS_NEOX>
static __device__ inline void turn_wide(const float sine[2], const float cosine[2], float v[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t first = IS_NEOX ? i : 2 * i, second = IS_NEOX ? i + 2 : 2 * i + 1;
        float p = v[first], q = v[second];
        v[first] = fmaf(p, cosine[i], -(q * sine[i]));
        v[second] = fmaf(p, sine[i], q * cosine[i]);
    }
}

static __device__ inline void write_wide(const struct cuda_qkv &a, uint32_t row,
                                         const struct wide_head &h, struct wide_dims d,
                                         const float v[4]) {
    uint32_t pos = (uint32_t)a.pos[row], token = pos % CUDA_TILE_TOKENS;
    const uint32_t *blocks = a.blocks + a.seq[row] * a.blocks_stride;
    uint8_t *tile = cuda_kv_tile(&a.kv, blocks, pos / CUDA_TILE_TOKENS, a.layer, h.kv_head);
    if (h.is_value) tile += cuda_kv_side_bytes(a.kv.type, WIDE_DIM);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        size_t at = cuda_k_index(token, d.at[i]);
        float x = v[2 * i], y = v[2 * i + 1];
        if (a.kv.type == KV_F16) {
            __half two[2] = {__float2half_rn(x), __float2half_rn(y)};
            *(uint32_t *)(tile + 2 * at) =
                (uint32_t)__half_as_ushort(two[1]) << 16 | __half_as_ushort(two[0]);
        } else if (h.is_value) {
            tile[cuda_v_index(KV_F8, token, d.at[i], WIDE_DIM)] = fp8_of(x);
            tile[cuda_v_index(KV_F8, token, d.at[i] + 1, WIDE_DIM)] = fp8_of(y);
        } else {
            *(uint16_t *)(tile + at) = (uint16_t)(fp8_of(y) << 8 | fp8_of(x));
        }
    }
}

template <bool IS_NEOX> static __global__ void qkv_wide_kernel(struct cuda_qkv a) {
    __shared__ __align__(16) float heads[QKV_WARPS][WIDE_DIM];
    admit_next_kernel();
    uint32_t row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t count = a.q.cols / WIDE_DIM + 2 * a.kv.heads, step = gridDim.y * QKV_WARPS;
    struct wide_dims d = {
        {IS_NEOX ? 2 * lane : 4 * lane, IS_NEOX ? WIDE_DIM / 2 + 2 * lane : 4 * lane + 2}};
    float sine[2], cosine[2], pos = (float)a.pos[row];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        double s = 0.0, c = 0.0;
        fm_sincos_d((double)(pos * a.rope.freqs[2 * lane + i]), &s, &c);
        sine[i] = (float)s * a.rope.factor;
        cosine[i] = (float)c * a.rope.factor;
    }
    wait_for_inputs();
    if (a.pos[row] < 0) return;
    for (uint32_t some = blockIdx.y * QKV_WARPS + warp; some < count; some += WIDE_HEADS * step) {
        float v[WIDE_HEADS][4];
#pragma unroll
        for (uint32_t k = 0; k < WIDE_HEADS; k++) {
            const struct wide_head h = wide_head_of(a, row, min(some + k * step, count - 1));
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
                *(float2 *)(v[k] + 2 * i) = *(const float2 *)(h.x + d.at[i]);
        }
#pragma unroll
        for (uint32_t k = 0; k < WIDE_HEADS; k++) {
            if (some + k * step >= count) continue;
            const struct wide_head h = wide_head_of(a, row, some + k * step);
            const float *norm = h.is_query ? a.q_norm : a.k_norm;
            if (!h.is_value && norm) norm_wide(norm, a.norm_eps, d, heads[warp], v[k]);
            if (!h.is_value) turn_wide<IS_NEOX>(sine, cosine, v[k]);
            if (!h.is_value) {
#pragma unroll
                for (uint32_t i = 0; i < 2; i++)
                    *(float2 *)(h.x + d.at[i]) = make_float2(v[k][2 * i], v[k][2 * i + 1]);
            }
            if (!h.is_query) write_wide(a, row, h, d, v[k]);
        }
    }
}

static bool is_pairs(const struct cuda_mat *m) { return m->col % 2 == 0 && m->row_bytes % 8 == 0; }

static bool wide_can(const struct cuda_qkv *a) {
    return a->is_wide && a->kv.head_dim == WIDE_DIM && a->rope.rot_dims == WIDE_DIM &&
           cuda_attends_mma(a->kv.type, WIDE_DIM) && is_pairs(&a->q) && is_pairs(&a->k) &&
           is_pairs(&a->v);
}

/* ---- launching ---- */

static void launch_wide(const struct cuda_qkv *a, uint32_t heads, const struct cuda_queue *queue) {
    uint32_t rows = a->q.row_count;
    uint32_t of_a_warp = rows < QKV_FEW_ROWS ? 1 : rows < QKV_MANY_ROWS ? WIDE_HEADS : 12;
    uint32_t at_once = of_a_warp * QKV_WARPS;
    dim3 grid(rows, (heads + at_once - 1) / at_once);
    if (a->rope.is_neox)
        launch(queue, qkv_wide_kernel<true>, grid, QKV_WARPS * 32, 0, *a);
    else
        launch(queue, qkv_wide_kernel<false>, grid, QKV_WARPS * 32, 0, *a);
}

void cuda_qkv(const struct cuda_qkv *a, const struct cuda_queue *queue) {
    uint32_t rows = a->q.row_count, heads = a->q.cols / a->kv.head_dim + 2 * a->kv.heads;
    uint32_t of_a_warp = rows < QKV_SOME_ROWS ? 1 : rows < QKV_MANY_ROWS ? 4 : 10;
    uint32_t at_once = of_a_warp * QKV_WARPS;
    if (rows == 0) return;
    if (wide_can(a)) {
        launch_wide(a, heads, queue);
        return;
    }
    dim3 grid(rows, (heads + at_once - 1) / at_once);
    launch(queue, qkv_kernel, grid, QKV_WARPS * 32, 0, *a);
}
