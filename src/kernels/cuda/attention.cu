/* kernels/cuda/attention.cu - attention in f32, to the bit as in kernels/cpu/numerics.h.
 *
 * Mapping: a block of 256 threads owns up to 4 queries of one row that share a KV head, and one
 * segment of 256 absolute positions after the other, or one segment alone (`segments` > 1; a second
 * kernel joins the parts in rising order). Inside a segment:
 *
 *     scores   a thread owns a token and reads its key 8 dimensions at a time, for all queries
 *     sums     16 threads for each query, by position mod 16
 *     values   a thread owns two dimensions and goes along the tokens
 *
 * The same code runs prompts and decoding, and the result has the same bits whichever block runs
 * a segment. Positions that are not attended are not read.
 * Cost: K and V are read once for each row and group of 4 queries: near the caches' speed for
 * prompts, memory's for decoding.
 */
#include "kernels/cuda/device_fp8.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch_attention.h"

static constexpr uint32_t SEGMENT = CUDA_ATTN_SEGMENT, SEGMENT_TILES = SEGMENT / CUDA_TILE_TOKENS;
static constexpr uint32_t ATTN_THREADS = SEGMENT, ATTN_LANES = CUDA_ATTN_LANES, HEAD_DIM_MAX = 256;
static constexpr int QUERIES_MAX = 4;

/* ---- reading ---- */

/* How keys and values lie: in a cache of some type, or as rows of floats. */
enum kv_source { FROM_F16, FROM_F32, FROM_I8, FROM_F8, FROM_ROWS };

/* Where a segment's keys and values are; tiles of a cache, or the first row. */
struct segment_places {
    const uint8_t *tile[SEGMENT_TILES];
    const float *k, *v; /* rows: token j at + j * stride floats */
    size_t k_stride, v_stride;
    size_t side_bytes;
};

template <int SOURCE>
static __device__ inline void load_key(const struct segment_places &s, uint32_t j, uint32_t d,
                                       float out[8]) {
    if (SOURCE == FROM_ROWS) {
        const float *k = s.k + j * s.k_stride + d;
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = k[i];
        return;
    }
    const uint8_t *tile = s.tile[j / CUDA_TILE_TOKENS];
    size_t at = cuda_k_index(j % CUDA_TILE_TOKENS, d);
    if (SOURCE == FROM_F32) {
        const float4 *k = (const float4 *)(tile + at * 4);
        float4 low = k[0], high = k[1];
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    } else if (SOURCE == FROM_F16) {
        uint4 raw = *(const uint4 *)(tile + at * 2);
        const __half2 *pairs = (const __half2 *)&raw;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 both = __half22float2(pairs[i]);
            out[2 * i] = both.x, out[2 * i + 1] = both.y;
        }
    } else if (SOURCE == FROM_F8) {
        uint2 raw = *(const uint2 *)(tile + at);
        __half2 pairs[4];
        fp8_halves(raw.x, pairs);
        fp8_halves(raw.y, pairs + 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 both = __half22float2(pairs[i]);
            out[2 * i] = both.x, out[2 * i + 1] = both.y;
        }
    } else {
        uint2 raw = *(const uint2 *)(tile + at);
        const int8_t *bytes = (const int8_t *)&raw;
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = (float)bytes[i];
    }
}

/* Dimensions d and d + 1 of a value. */
template <int SOURCE>
static __device__ inline float2 load_value(const struct segment_places &s, uint32_t j, uint32_t d,
                                           uint32_t head_dim) {
    if (SOURCE == FROM_ROWS) {
        const float *v = s.v + j * s.v_stride + d;
        return make_float2(v[0], v[1]);
    }
    const uint8_t *side = s.tile[j / CUDA_TILE_TOKENS] + s.side_bytes;
    enum kv_type type = SOURCE == FROM_F32   ? KV_F32
                        : SOURCE == FROM_F16 ? KV_F16
                        : SOURCE == FROM_F8  ? KV_F8
                                             : KV_I8;
    size_t at = cuda_v_index(type, j % CUDA_TILE_TOKENS, d, head_dim);
    if (SOURCE == FROM_F32) return *(const float2 *)(side + at * 4);
    if (SOURCE == FROM_F16) return __half22float2(*(const __half2 *)(side + at * 2));
    if (SOURCE == FROM_F8) {
        uint32_t next = (uint32_t)cuda_v_index(type, j % CUDA_TILE_TOKENS, d + 1, head_dim);
        uint32_t pair = side[at] | (uint32_t)side[next] << 8;
        return __half22float2(fp8_spread(__byte_perm(pair, 0, 0x1404)));
    }
    char2 both = *(const char2 *)(side + at);
    return make_float2((float)both.x, (float)both.y);
}

/* Of KV_I8 only: what a token's key or value is a multiple of. */
static __device__ inline float load_scale(const struct segment_places &s, uint32_t j, bool is_value,
                                          uint32_t head_dim) {
    const uint8_t *side = s.tile[j / CUDA_TILE_TOKENS] + (is_value ? s.side_bytes : 0);
    return __half2float(
        ((const __half *)(side + cuda_kv_scales_offset(head_dim)))[j % CUDA_TILE_TOKENS]);
}

/* ---- attending ---- */

/* Positions [first, end) that a row attends to. */
struct reach {
    uint32_t first, end;
};

static __device__ inline struct reach reach_of(const struct cuda_attention &a, uint32_t row) {
    if (!a.kv.base) return {0, a.seqs[2 * a.seq[row] + 1]};
    uint32_t end = (uint32_t)a.pos[row] + 1;
    return {a.window > 0 && end > a.window ? end - a.window : 0, end};
}

struct attn_shared {
    float q[QUERIES_MAX][HEAD_DIM_MAX];
    float p[QUERIES_MAX][SEGMENT];
    float warp_max[ATTN_THREADS / 32][QUERIES_MAX];
    float sum[QUERIES_MAX], max[QUERIES_MAX];
    struct segment_places places;
};

static __device__ void find_places(const struct cuda_attention &a, uint32_t row, uint32_t kv_head,
                                   uint32_t segment, struct reach r, struct attn_shared *m) {
    uint32_t i = threadIdx.x;
    if (!a.kv.base) {
        uint32_t first_row = a.seqs[2 * a.seq[row]] + segment * SEGMENT;
        if (i != 0) return;
        m->places.k = mat_f32(a.k, first_row) + (size_t)kv_head * a.head_dim;
        m->places.v = mat_f32(a.v, first_row) + (size_t)kv_head * a.head_dim;
        m->places.k_stride = a.k.row_bytes / sizeof(float);
        m->places.v_stride = a.v.row_bytes / sizeof(float);
        return;
    }
    uint32_t tile = segment * SEGMENT_TILES + i;
    if (i == 0) m->places.side_bytes = cuda_kv_side_bytes(a.kv.type, a.head_dim);
    if (i >= SEGMENT_TILES || tile * CUDA_TILE_TOKENS >= r.end) return;
    if ((tile + 1) * CUDA_TILE_TOKENS <= r.first) return; /* its block may be gone */
    const uint32_t *blocks = a.blocks + a.seq[row] * a.blocks_stride;
    m->places.tile[i] = cuda_kv_tile(&a.kv, blocks, tile, a.layer, kv_head);
}

/* The scores of token threadIdx.x, with their place in the shared memory; their maxima. */
template <int SOURCE, int QUERIES>
static __device__ void attend_scores(const struct cuda_attention &a, bool is_attended,
                                     struct attn_shared *m, float score[QUERIES]) {
    uint32_t j = threadIdx.x;
    float acc[QUERIES] = {0.0f};
    for (uint32_t d = 0; d < a.head_dim && is_attended; d += 8) {
        float k[8];
        load_key<SOURCE>(m->places, j, d, k);
#pragma unroll
        for (int n = 0; n < QUERIES; n++)
#pragma unroll
            for (int i = 0; i < 8; i++) acc[n] = fmaf(m->q[n][d + i], k[i], acc[n]);
    }
    float scale = 1.0f;
    if (SOURCE == FROM_I8 && is_attended) scale = load_scale(m->places, j, false, a.head_dim);
#pragma unroll
    for (int n = 0; n < QUERIES; n++) {
        float s = acc[n] * scale * a.scale;
        if (a.softcap > 0.0f) s = a.softcap * fm_tanh(s / a.softcap);
        score[n] = s;
        float max = is_attended && s > -DEVICE_INF ? s : -DEVICE_INF;
        for (int width = 16; width > 0; width /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, width));
        if (j % 32 == 0) m->warp_max[j / 32][n] = max;
    }
    __syncthreads();
}

template <int QUERIES>
static __device__ void attend_weights(bool is_attended, const float score[QUERIES],
                                      struct attn_shared *m) {
    uint32_t j = threadIdx.x;
#pragma unroll
    for (int n = 0; n < QUERIES; n++) {
        float max = m->warp_max[0][n];
        for (uint32_t w = 1; w < ATTN_THREADS / 32; w++) max = fmaxf(max, m->warp_max[w][n]);
        m->p[n][j] = is_attended ? fm_exp(score[n] - max) : 0.0f;
        if (j == 0) m->max[n] = max;
    }
    __syncthreads();
    if (j < QUERIES_MAX * ATTN_LANES) { /* whole warps */
        uint32_t n = j / ATTN_LANES, lane = j % ATTN_LANES;
        float sum = 0.0f;
        for (uint32_t i = lane; i < SEGMENT && n < QUERIES; i += ATTN_LANES) sum += m->p[n][i];
        for (int width = ATTN_LANES / 2; width > 0; width /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, width, ATTN_LANES);
        if (lane == 0 && n < QUERIES) m->sum[n] = sum;
    }
}

/* A thread's share of values: two dimensions of up to 2 of the queries. */
static constexpr int OWN_MAX = 2;
struct attn_own {
    uint32_t d;      /* the first dimension; head_dim or more: nothing */
    uint32_t query;  /* the first query */
    uint32_t stride; /* to its next one */
};

static __device__ inline struct attn_own own_of(uint32_t head_dim) {
    uint32_t pairs = head_dim / 2, groups = ATTN_THREADS / pairs;
    uint32_t group = threadIdx.x / pairs;
    return {group < groups ? threadIdx.x % pairs * 2 : head_dim, group, groups};
}

/* Tokens [first, end) of the segment. */
template <int SOURCE, int QUERIES>
static __device__ void attend_values(const struct cuda_attention &a, const struct attn_own &own,
                                     struct reach r, const struct attn_shared &m,
                                     float2 out[OWN_MAX]) {
#pragma unroll
    for (int i = 0; i < OWN_MAX; i++) out[i] = make_float2(0.0f, 0.0f);
    if (own.d >= a.head_dim || own.query >= QUERIES) return;
    uint32_t second = own.query + own.stride < QUERIES ? own.query + own.stride : own.query;
#pragma unroll 8
    for (uint32_t j = r.first; j < r.end; j++) {
        float2 v = load_value<SOURCE>(m.places, j, own.d, a.head_dim);
        float p0 = m.p[own.query][j], p1 = m.p[second][j];
        out[0].x = fmaf(p0, v.x, out[0].x);
        out[0].y = fmaf(p0, v.y, out[0].y);
        out[1].x = fmaf(p1, v.x, out[1].x);
        out[1].y = fmaf(p1, v.y, out[1].y);
    }
}

/* Several segments joined, of one query. */
struct attn_joined {
    float max, sum;
    float2 out;
};

static __device__ inline void join(struct attn_joined *all, float max, float sum, float2 out) {
    float most = all->max > max ? all->max : max;
    float fa = fm_exp(all->max - most), fb = fm_exp(max - most);
    all->max = most;
    all->sum = fmaf(sum, fb, all->sum * fa);
    all->out.x = fmaf(out.x, fb, all->out.x * fa);
    all->out.y = fmaf(out.y, fb, all->out.y * fa);
}

/* One segment of a row: what the thread owns of its result, which is in m->max and m->sum too. */
template <int SOURCE, int QUERIES>
static __device__ void
attend_segment(const struct cuda_attention &a, uint32_t row, uint32_t kv_head, uint32_t segment,
               const struct attn_own &own, struct attn_shared *m, float2 out[OWN_MAX]) {
    struct reach all = reach_of(a, row);
    uint32_t start = segment * SEGMENT;
    struct reach r = {all.first > start ? all.first - start : 0, min(all.end - start, SEGMENT)};
    uint32_t j = threadIdx.x;
    bool is_attended = j >= r.first && j < r.end;
    float score[QUERIES];
    find_places(a, row, kv_head, segment, all, m);
    __syncthreads();
    attend_scores<SOURCE, QUERIES>(a, is_attended, m, score);
    attend_weights<QUERIES>(is_attended, score, m);
    __syncthreads();
    if (SOURCE == FROM_I8) {
        float scale = is_attended ? load_scale(m->places, j, true, a.head_dim) : 0.0f;
#pragma unroll
        for (int n = 0; n < QUERIES; n++) m->p[n][j] *= scale;
        __syncthreads();
    }
    attend_values<SOURCE, QUERIES>(a, own, r, *m, out);
}

/* The block's queries: heads [head, head + count) of its row. */
struct attn_heads {
    uint32_t head, count, kv_head;
};

template <int QUERIES>
static __device__ struct attn_heads heads_of(const struct cuda_attention &a) {
    uint32_t group = a.heads / a.kv_heads, chunks = (group + QUERIES - 1) / QUERIES;
    uint32_t kv_head = blockIdx.y / chunks, first = blockIdx.y % chunks * QUERIES;
    return {kv_head * group + first, min((uint32_t)QUERIES, group - first), kv_head};
}

static __device__ float *part_of(const struct cuda_attention &a, uint32_t row, uint32_t head,
                                 uint32_t segment) {
    size_t at = ((size_t)row * a.heads + head) * a.segments + segment;
    return a.parts + at * (a.head_dim + 2);
}

template <int QUERIES>
static __device__ void store_parts(const struct cuda_attention &a, uint32_t row,
                                   const struct attn_heads &h, const struct attn_own &own,
                                   const struct attn_shared &m, const float2 out[OWN_MAX]) {
#pragma unroll
    for (int i = 0; i < OWN_MAX; i++) {
        uint32_t n = own.query + i * own.stride;
        if (own.d >= a.head_dim || n >= h.count) continue;
        float *part = part_of(a, row, h.head + n, blockIdx.z);
        part[own.d] = out[i].x;
        part[own.d + 1] = out[i].y;
        if (own.d != 0) continue;
        part[a.head_dim] = m.max[n];
        part[a.head_dim + 1] = m.sum[n];
    }
}

template <int QUERIES>
static __device__ void store_result(const struct cuda_attention &a, uint32_t row,
                                    const struct attn_heads &h, const struct attn_own &own,
                                    const struct attn_joined all[OWN_MAX]) {
#pragma unroll
    for (int i = 0; i < OWN_MAX; i++) {
        uint32_t n = own.query + i * own.stride;
        if (own.d >= a.head_dim || n >= h.count) continue;
        float *dst = mat_f32(a.dst, row) + (size_t)(h.head + n) * a.head_dim + own.d;
        dst[0] = all[i].out.x / all[i].sum;
        dst[1] = all[i].out.y / all[i].sum;
    }
}

template <int SOURCE, int QUERIES>
static __global__ void __launch_bounds__(ATTN_THREADS, 2)
    attention_kernel(struct cuda_attention a) {
    begin_kernel();
    __shared__ struct attn_shared m;
    uint32_t row = blockIdx.x;
    if (!mat_is_live(a.q, row)) return;
    struct reach all_r = reach_of(a, row);
    uint32_t first = all_r.first / SEGMENT, last = (all_r.end - 1) / SEGMENT;
    if (first + blockIdx.z > last) return;
    struct attn_heads h = heads_of<QUERIES>(a);
    struct attn_own own = own_of(a.head_dim);
    for (uint32_t i = threadIdx.x; i < QUERIES * a.head_dim; i += ATTN_THREADS) {
        uint32_t n = i / a.head_dim, d = i % a.head_dim;
        const float *q = mat_f32(a.q, row) + (size_t)h.head * a.head_dim;
        m.q[n][d] = n < h.count ? q[i] : 0.0f;
    }
    struct attn_joined all[OWN_MAX];
    float2 out[OWN_MAX];
    uint32_t from = first + blockIdx.z, to = a.segments > 1 ? from : last;
    for (uint32_t segment = from; segment <= to; segment++) {
        attend_segment<SOURCE, QUERIES>(a, row, h.kv_head, segment, own, &m, out);
        if (a.segments > 1) {
            store_parts<QUERIES>(a, row, h, own, m, out);
            return;
        }
#pragma unroll
        for (int i = 0; i < OWN_MAX; i++) {
            uint32_t n = min(own.query + i * own.stride, (uint32_t)QUERIES - 1);
            if (segment == first)
                all[i] = {m.max[n], m.sum[n], out[i]};
            else
                join(&all[i], m.max[n], m.sum[n], out[i]);
        }
        __syncthreads(); /* the shared memory is free for the next segment */
    }
    store_result<QUERIES>(a, row, h, own, all);
}

/* A block owns a row and a head; a thread two dimensions. */
static __global__ void join_kernel(struct cuda_attention a) {
    begin_kernel();
    uint32_t row = blockIdx.x, head = blockIdx.y, d = 2 * threadIdx.x;
    if (!mat_is_live(a.q, row) || d >= a.head_dim) return;
    struct reach r = reach_of(a, row);
    uint32_t count = (r.end - 1) / SEGMENT - r.first / SEGMENT + 1;
    struct attn_joined all = {0.0f, 0.0f, {0.0f, 0.0f}};
#pragma unroll 4
    for (uint32_t i = 0; i < count; i++) {
        const float *part = part_of(a, row, head, i);
        float max = part[a.head_dim], sum = part[a.head_dim + 1];
        float2 out = make_float2(part[d], part[d + 1]);
        if (i == 0)
            all = {max, sum, out};
        else
            join(&all, max, sum, out);
    }
    float *dst = mat_f32(a.dst, row) + (size_t)head * a.head_dim + d;
    dst[0] = all.out.x / all.sum;
    dst[1] = all.out.y / all.sum;
}

/* ---- launching ---- */

template <int SOURCE, int QUERIES>
static void launch_attention(const struct cuda_attention *a, const struct cuda_queue *queue) {
    uint32_t group = a->heads / a->kv_heads, chunks = (group + QUERIES - 1) / QUERIES;
    dim3 grid(a->q.row_count, a->kv_heads * chunks, a->segments);
    launch(queue, attention_kernel<SOURCE, QUERIES>, grid, ATTN_THREADS, 0, *a);
    if (a->segments > 1)
        launch(queue, join_kernel, dim3(a->q.row_count, a->heads), HEAD_DIM_MAX / 2, 0, *a);
}

template <int SOURCE>
static void launch_source(const struct cuda_attention *a, const struct cuda_queue *queue) {
    uint32_t group = a->heads / a->kv_heads;
    if (group == 1)
        launch_attention<SOURCE, 1>(a, queue);
    else if (group == 2)
        launch_attention<SOURCE, 2>(a, queue);
    else
        launch_attention<SOURCE, 4>(a, queue);
}

size_t cuda_attention_parts_floats(const struct cuda_attention *a, uint32_t segments) {
    return (size_t)a->q.row_count * a->heads * segments * (a->head_dim + 2);
}

void cuda_attention(const struct cuda_attention *a, const struct cuda_queue *queue) {
    if (a->q.row_count == 0) return;
    if (!a->kv.base)
        launch_source<FROM_ROWS>(a, queue);
    else if (a->kv.type == KV_F16)
        launch_source<FROM_F16>(a, queue);
    else if (a->kv.type == KV_F32)
        launch_source<FROM_F32>(a, queue);
    else if (a->kv.type == KV_F8)
        launch_source<FROM_F8>(a, queue);
    else
        launch_source<FROM_I8>(a, queue);
}
