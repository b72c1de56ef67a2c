/* kernels/cuda/attention_few.cuh - attention of 16 queries that share a KV head, by 4 warps; used
 * by attention_mma.cu and resident.cu. Each warp computes the scores of 16 tokens of a tile of 64,
 * then a quarter of the dimensions of the result. The definition is in attention_mma.cuh.
 */
#ifndef KERNELS_CUDA_ATTENTION_FEW_CUH
#define KERNELS_CUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sums.cuh"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_wgmma.cuh"

/* ---- what a block works on ---- */

/* Of one query and segment: D numbers, the maximum, the sum. */
template <int D>
static __device__ float *part_of(const struct cuda_attention &a, const struct query &q,
                                 uint32_t segment) {
    size_t at = ((size_t)q.row * a.heads + q.head) * a.segments + segment;
    return a.parts + at * (D + 2);
}

static constexpr uint32_t P_ROW = TILE + 8; /* halves; rows begin in different banks */
struct short_shared {
    float max[WARPS][16];
    __align__(16) uint16_t p[16][P_ROW];
};

/* The weights of a tile, from all warps to all: the maxima first. */
static __device__ void share_weights(float factor, const float most[2], float s[2][4], float top[2],
                                     struct short_shared *m) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float mine = max_of<2>(s, i);
        if (lane % 4 == 0) m->max[warp][lane / 4 + 8 * i] = mine;
    }
    warpgroup_barrier(1);
    float next[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = m->max[0][lane / 4 + 8 * i];
        for (uint32_t w = 1; w < WARPS; w++) top[i] = fmaxf(top[i], m->max[w][lane / 4 + 8 * i]);
        next[i] = fmaxf(most[i], top[i]);
    }
    weights_of<2>(next, factor, s);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t row = lane / 4 + i % 2 * 8, col = warp * 16 + i / 2 * 8 + lane % 4 * 2;
        *(uint32_t *)&m->p[row][col] =
            pack_halves(s[i / 2][2 * (i % 2)], s[i / 2][2 * (i % 2) + 1]);
    }
    warpgroup_barrier(1);
}

/* What a block of a short run works on. */
template <int D> struct short_work {
    const uint32_t *blocks; /* of the sequence */
    struct query q[2];
    struct reach all;
    uint32_t kv_head, ring;
    uint8_t *buffers; /* at `ring` */
    uint32_t frags[mma_dims<D>::steps][4];
    struct short_shared *shared;
};

/* Sums of a segment: the warp's quarter of the dimensions. */
template <int D> struct short_sums { float max[2], sum[4], out[D / 32][4]; };

/* ---- a tile ---- */

/* Values of tokens that are not attended become zeros: they may be anything, and 0 times that must
 * be 0. A warp does one KV tile; all read it behind the next barrier. */
template <int D>
static __device__ inline void clean_values(const struct reach &all, uint32_t t, uint8_t *stage) {
    uint32_t warp = threadIdx.x / 32, first = t * TILE + warp * CUDA_TILE_TOKENS;
    if (first >= all.first && first + CUDA_TILE_TOKENS <= all.end) return;
    uint8_t *values = stage + (2 * warp + 1) * mma_dims<D>::side;
    for (uint32_t i = threadIdx.x % 32; i < mma_dims<D>::side / 16; i += 32) {
        uint32_t token = first + i % CUDA_TILE_TOKENS;
        if (token < all.first || token >= all.end) *(uint4 *)(values + i * 16) = uint4{0, 0, 0, 0};
    }
    fence_async();
}

/* Tile `t`, which lies in `stage` of the ring. */
template <int D, bool IS_F8>
static __device__ inline void attend_tile(const struct cuda_attention &a,
                                          const struct short_work<D> &w, uint32_t t, uint32_t stage,
                                          struct short_sums<D> *sums) {
    using dims = mma_dims<D>;
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const struct short_shared &m = *w.shared;
    float s[2][4] = {{0.0f}}, top[2], factor = exponent_factor(a);
    if (IS_F8)
        score_f8<D>(w.frags, w.buffers + stage + warp * 2 * dims::f8_side, s);
    else
        score_tile<D, AS_IN_CACHE>(w.frags, w.ring + stage + warp * 2 * dims::side, s);
    if (a.softcap > 0.0f)
        mask_scores<2, true>(a, w.q, t * TILE + warp * CUDA_TILE_TOKENS, s);
    else
        mask_scores<2, false>(a, w.q, t * TILE + warp * CUDA_TILE_TOKENS, s);
    share_weights(factor, sums->max, s, top, w.shared);
    rescale<D / 32>(top, factor, sums->max, sums->out, sums->sum);
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) {
        uint32_t p[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            p[k] = *(const uint32_t *)&m
                        .p[lane / 4 + k % 2 * 8]
                          [i * 16 + (IS_F8 ? k / 2 * 2 + lane % 4 * 4 : k / 2 * 8 + lane % 4 * 2)];
        if (IS_F8)
            add_f8<D / 4>(p,
                          w.buffers + stage + (2 * i + 1) * dims::f8_side +
                              warp * (D / 4) * CUDA_TILE_TOKENS,
                          mask_f8(w.all, t * TILE + i * CUDA_TILE_TOKENS), sums->out);
        else
            add_values<D / 4, AS_IN_CACHE>(p, w.ring + stage + (2 * i + 1) * dims::side,
                                           warp * (D / 32), sums->out);
        mma_16x8x16<false>(sums->sum, p, ones);
    }
}

/* ---- results ---- */

template <int D> static __device__ inline void clear_sums(struct short_sums<D> *s) {
    s->max[0] = s->max[1] = -DEVICE_INF;
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) s->sum[n] = 0.0f;
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) s->out[n / 4][n % 4] = 0.0f;
}

template <int D>
static __device__ void store_part(const struct cuda_attention &a, const struct query &q,
                                  uint32_t segment, int i, const struct short_sums<D> &s) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t first = q.reach.first / SEGMENT;
    if (q.reach.end == 0 || segment < first || segment * SEGMENT >= q.reach.end) return;
    float *part = part_of<D>(a, q, segment - first);
#pragma unroll
    for (uint32_t n = 0; n < D / 32; n++) {
        uint32_t d = warp * (D / 4) + n * 8 + lane % 4 * 2;
        part[d] = s.out[n][2 * i];
        part[d + 1] = s.out[n][2 * i + 1];
    }
    if (warp != 0 || lane % 4 != 0) return;
    part[D] = s.max[i];
    part[D + 1] = s.sum[2 * i];
}

/* The result of a query from the parts of its segments, by a warp: a lane has every 32nd pair of
 * dimensions. */
template <int D>
static __device__ inline void join_parts(const struct cuda_attention &a, const struct query &q,
                                         float2 out[D / 64]) {
    uint32_t count = (q.reach.end - 1) / SEGMENT - q.reach.first / SEGMENT + 1;
    float factor = exponent_factor(a), max = -DEVICE_INF, sum = 0.0f;
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (uint32_t i = 0; i < count; i++) {
        const float *part = part_of<D>(a, q, i);
        struct join_factors f = join_of(&max, &sum, part[D], part[D + 1], factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++) {
            float2 two = *(const float2 *)(part + n * 64 + threadIdx.x % 32 * 2);
            out[n].x = join_one(f, out[n].x, two.x);
            out[n].y = join_one(f, out[n].y, two.y);
        }
    }
    float by = 1.0f / sum;
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(out[n].x * by, out[n].y * by);
}

#endif
