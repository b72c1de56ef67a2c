/* kernels/cuda/resident.cu - all layers of a decoding step of 1 to 4 sequences in one launch: no
 * time between kernels, and memory is read without a pause.
 *
 *     norm, product of queries, keys and values
 *     rotation, cache, attention              parts of 256 positions
 *     [join of the parts]                     where there are more than CUDA_RESIDENT_JOIN
 *     [join], output product, added to the residual
 *     norm, product of gates and ups, act
 *     product, added to the residual
 *
 * Mapping: one block on each multiprocessor, for the whole launch; a barrier of the grid between
 * the phases above. A block has an even share of each product's tiles (resident_layout.h). A warp
 * of it brings weights through a ring in shared memory, those of all phases and layers in the order
 * of use, and tiles of the cache with them. It never stops at a barrier of the grid: while the
 * other warps wait there or attend, the ring fills with what they need next.
 *
 * Cost: the bytes of the weights, and what a wait takes longer than the ring takes to fill; 196 KB
 * are 5.7 us of a multiprocessor's share of 4.55 TB/s.
 *
 * Bits: those of the kernels that it replaces (docs/identity.md).
 */
#include <cuda_runtime.h>

#include "kernels/cuda/resident_attention.cuh"
#include "kernels/cuda/resident_join.cuh"
#include "kernels/cuda/resident_product.cuh"
#include "kernels/cuda/resident_rows.cuh"

/* ---- the warp that fills the ring ---- */

static __device__ inline struct cuda_turned_share share_of(const struct cuda_resident &r,
                                                           const struct cuda_resident_product &w,
                                                           uint32_t layer, uint32_t kind) {
    return cuda_turned_share_of(cuda_tiles_of(w.rows), blockIdx.x, r.blocks,
                                layer * CUDA_RESIDENT_PRODUCTS + kind);
}

static __device__ inline void expect_maps(const struct cuda_resident &r, uint32_t layer) {
    uint32_t lane = threadIdx.x % 32;
    if (layer < r.layer_count && lane < CUDA_RESIDENT_PRODUCTS)
        expect_map(r.layers[layer].products[lane].map);
}

/* Tables and the cache are what kernels in front have made; weights are not. */
template <int D, bool IS_F8>
static __device__ inline void fill_ring(const struct cuda_resident &r,
                                        const struct resident_block &b) {
    struct cuda_place place = {0, 0};
    expect_maps(r, 0);
    for (uint32_t layer = 0; layer < r.layer_count; layer++) {
        const struct cuda_resident_layer &l = r.layers[layer];
        expect_maps(r, layer + 1);
        for (uint32_t k = 0; k < CUDA_RESIDENT_PRODUCTS; k++) {
            const struct cuda_resident_product w = l.products[k];
            bring_product(b, w, k == CUDA_PRODUCT_GATES, share_of(r, w, layer, k), &place);
            if (k != CUDA_PRODUCT_QKV) continue;
            if (layer == 0) wait_for_inputs();
            bring_kv<D, IS_F8>(r, b, layer, l.kv_layer, &place);
        }
    }
}

/* ---- the warps that compute ---- */

struct resident_state {
    struct cuda_place place; /* of the next phase's first slot */
    uint64_t arrivals;       /* of all blocks at the barrier that comes next */
    struct tile_results results;
};

/* This block's writes are there for all others that pass the barrier. */
static __device__ inline void end_phase(const struct cuda_resident &r) {
    computing_barrier();
    if (threadIdx.x == 0) grid_arrive(r.arrivals);
}

static __device__ inline void begin_phase(const struct cuda_resident &r, struct resident_state *s) {
    if (threadIdx.x == 0) grid_wait(r.arrivals, s->arrivals);
    s->arrivals += r.blocks;
    computing_barrier();
}

/* A product, and its rows. */
struct product_job {
    const struct cuda_resident_product *w;
    struct cuda_turned_share share;
    bool is_gates;
    uint32_t x; /* where all of the rows lie; 0: they come from `halves` */
    const struct cuda_half *halves;
    uint32_t cols; /* of them */
};

/* `count` tiles at once, a warp each; the rows in windows of some columns where they do not lie
 * there as a whole. */
template <bool IS_BF16>
static __device__ inline void
do_round(const struct cuda_resident &r, const struct resident_block &b,
         const struct product_job &job, uint32_t count, struct resident_state *s, float acc[4]) {
    uint32_t warp = threadIdx.x / 32, all = job.w->groups;
    struct tile_reads reads = reads_of(computed_here(r.rows));
    uint32_t window = job.x ? all : cuda_groups_at_once(r.rows, all, r.shape.rows_bytes);
    for (uint32_t g = 0; g < all; g += window) {
        uint32_t groups = min(window, all - g);
        if (!job.x) {
            computing_barrier(); /* the rows that were there are read */
            bring_rows(b, *job.halves, job.cols, r.rows, g, groups);
            computing_barrier();
        }
        if (warp < count)
            multiply_tile<IS_BF16>(b, cuda_place_soon(s->place, warp, b.slots), count, groups,
                                   job.x ? job.x : b.rows_at, r.rows, reads, acc);
        s->place = cuda_place_after(s->place, count * cuda_slots_of(groups), b.slots);
    }
}

template <bool IS_BF16>
static __device__ inline void do_product(const struct cuda_resident &r,
                                         const struct resident_block &b,
                                         const struct product_job &job, struct resident_state *s) {
    uint32_t warp = threadIdx.x / 32, at_once = cuda_tiles_at_once(job.share.count, b.slots);
    for (uint32_t first = 0; first < job.share.count; first += at_once) {
        uint32_t count = min(at_once, job.share.count - first);
        uint32_t tile = job.share.first + first + warp;
        float acc[4] = {0.0f};
        if (warp < count && !job.is_gates) read_old(*job.w, tile, &s->results);
        do_round<IS_BF16>(r, b, job, count, s, acc);
        if (warp >= count) continue;
        if (job.is_gates)
            store_gates(r, tile, s->results, acc);
        else
            store_floats(*job.w, tile, s->results, acc);
    }
}

/* Floats will be wanted by a later phase. */
static __device__ inline void expect_floats(const float *from, uint32_t count) {
    static constexpr uint32_t LINE = 32;
    for (uint32_t i = threadIdx.x * LINE; from && i < count; i += COMPUTING * LINE)
        expect_line(from + i);
}

static __device__ inline struct product_job job_of(const struct cuda_resident &r,
                                                   const struct cuda_resident_layer &l,
                                                   uint32_t layer, uint32_t kind) {
    const struct cuda_resident_product *w = &l.products[kind];
    return {w, share_of(r, *w, layer, kind), kind == CUDA_PRODUCT_GATES, 0, NULL, 0};
}

/* What products add to: the residual. */
static __device__ inline void aim_at_residual(const struct cuda_resident &r,
                                              struct tile_results *t) {
    t->to = r.x.base + r.x.col * sizeof(float);
    t->row_bytes = r.x.row_bytes;
    t->adds = true;
}

template <bool IS_BF16>
static __device__ inline void do_qkv(const struct cuda_resident &r, const struct resident_block &b,
                                     const struct cuda_resident_layer &l, uint32_t layer,
                                     struct resident_state *s) {
    struct product_job job = job_of(r, l, layer, CUDA_PRODUCT_QKV);
    s->results.to = l.qkv + r.qkv.col * sizeof(float);
    s->results.row_bytes = r.qkv.row_bytes;
    s->results.adds = false;
    job.x = make_normed<IS_BF16>(r, b, l.norm, job.w->groups);
    do_product<IS_BF16>(r, b, job, s);
}

/* The first four warps attend. What does not depend on this layer is done before the barrier. */
template <int D, bool IS_F8>
static __device__ inline void
do_attention(const struct cuda_resident &r, const struct resident_block &b,
             const struct cuda_resident_layer &l, uint32_t layer, struct resident_state *s) {
    uint32_t items = items_of(r), i = first_item(r, layer);
    bool attends = threadIdx.x / 32 < WARPS, has_begun = false;
    for (; i < items; i += r.blocks) {
        const struct kv_item item = kv_item_of(r.attention, b.kept->pos, l.kv_layer, i);
        if (!has_begun) begin_phase(r, s);
        has_begun = true;
        if (!attends)
            pass_item<D, IS_F8>(b, item, &s->place);
        else if (item.from < item.to)
            attend_item<D, IS_F8>(r, b, l, item, &s->place);
    }
    if (!has_begun) begin_phase(r, s);
}

template <bool IS_BF16, int D>
static __device__ inline void do_out(const struct cuda_resident &r, const struct resident_block &b,
                                     const struct cuda_resident_layer &l, uint32_t layer,
                                     struct resident_state *s) {
    struct product_job job = job_of(r, l, layer, CUDA_PRODUCT_OUT);
    bool is_few = r.attention.segments <= CUDA_RESIDENT_JOIN &&
                  cuda_groups_at_once(r.rows, job.w->groups, r.shape.rows_bytes) == job.w->groups;
    if (!is_few) {
        begin_phase(r, s);
        join_queries<D>(r, b);
        end_phase(r);
    }
    begin_phase(r, s);
    aim_at_residual(r, &s->results);
    job.halves = &r.attention.half;
    job.cols = r.attention.heads * D;
    if (is_few) {
        make_joined<D, IS_BF16>(r, b, job.w->groups);
        computing_barrier();
        job.x = b.rows_at;
    }
    do_product<IS_BF16>(r, b, job, s);
}

template <bool IS_BF16>
static __device__ inline void do_ffn(const struct cuda_resident &r, const struct resident_block &b,
                                     const struct cuda_resident_layer &l, uint32_t layer,
                                     struct resident_state *s) {
    struct product_job gates = job_of(r, l, layer, CUDA_PRODUCT_GATES);
    struct product_job down = job_of(r, l, layer, CUDA_PRODUCT_DOWN);
    begin_phase(r, s);
    gates.x = make_normed<IS_BF16>(r, b, l.ffn_norm, gates.w->groups);
    do_product<IS_BF16>(r, b, gates, s);
    end_phase(r);
    if (layer + 1 < r.layer_count)
        expect_floats(b.kept->layers[(layer + 1) % 2].norm, r.x.cols);
    else
        admit_next_kernel();
    begin_phase(r, s);
    aim_at_residual(r, &s->results);
    down.halves = &r.gated;
    down.cols = gates.w->rows / 2;
    do_product<IS_BF16>(r, b, down, s);
}

/* The description of a layer to shared memory: there behind the next copies_wait and barrier. */
static __device__ inline void bring_layer(const struct cuda_resident &r,
                                          const struct resident_block &b, uint32_t layer) {
    static_assert(sizeof(struct cuda_resident_layer) % 16 == 0, "copies of 16 bytes");
    uint32_t at = threadIdx.x * 16;
    if (layer >= r.layer_count || at >= sizeof(struct cuda_resident_layer)) return;
    copy_16(shared_address(&b.kept->layers[layer % 2]) + at, (const uint8_t *)&r.layers[layer] + at,
            true);
    copies_commit();
}

static __device__ inline void begin_step(const struct cuda_resident &r,
                                         const struct resident_block &b, struct resident_state *s) {
    uint32_t warp = threadIdx.x / 32;
    wait_for_inputs();
    if (threadIdx.x < r.rows) b.kept->pos[threadIdx.x] = r.attention.pos[threadIdx.x];
    if (warp < r.rows) {
        struct turns t;
        find_turns(r.turn, (float)r.attention.pos[warp], &t);
        b.kept->turns[warp][threadIdx.x % 32] =
            make_float4(t.sine[0], t.sine[1], t.cosine[0], t.cosine[1]);
    }
    bring_layer(r, b, 0);
    copies_wait<0>();
    s->place = {0, 0};
    s->arrivals = arrivals_before(r.arrivals, r.blocks) + r.blocks;
    computing_barrier();
    s->results = results_of(r, b);
}

template <bool IS_BF16, int D, bool IS_F8>
static __device__ inline void compute(const struct cuda_resident &r,
                                      const struct resident_block &b) {
    struct resident_state s;
    begin_step(r, b, &s);
    for (uint32_t layer = 0; layer < r.layer_count; layer++) {
        const struct cuda_resident_layer &l = b.kept->layers[layer % 2];
        if (layer > 0) begin_phase(r, &s);
        bring_layer(r, b, layer + 1);
        do_qkv<IS_BF16>(r, b, l, layer, &s);
        end_phase(r);
        expect_floats(l.q_norm, D);
        expect_floats(l.k_norm, D);
        do_attention<D, IS_F8>(r, b, l, layer, &s);
        end_phase(r);
        expect_floats(l.ffn_norm, r.x.cols);
        do_out<IS_BF16, D>(r, b, l, layer, &s);
        end_phase(r);
        do_ffn<IS_BF16>(r, b, l, layer, &s);
        if (layer + 1 < r.layer_count) end_phase(r);
    }
}

/* ---- the kernel ---- */

template <bool IS_BF16, int D, bool IS_F8>
static __global__ void __launch_bounds__(RESIDENT_THREADS, 1)
    resident_kernel(const struct cuda_resident r) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const struct resident_block b = block_of(r, shared);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < b.slots; i++) {
            arrival_init(b.full + i * 8, 1);
            arrival_init(b.empty + i * 8, 1);
        }
        arrivals_publish();
    }
    __syncthreads();
    if (threadIdx.x < COMPUTING)
        compute<IS_BF16, D, IS_F8>(r, b);
    else
        fill_ring<D, IS_F8>(r, b);
}

/* ---- launching ---- */

typedef void resident_kernel_fn(const struct cuda_resident r);

static resident_kernel_fn *kernel_of(bool is_bf16, uint32_t head_dim, bool is_f8) {
    static resident_kernel_fn *const kernels[2][2][2] = {
        {{resident_kernel<false, 64, false>, resident_kernel<false, 64, true>},
         {resident_kernel<false, 128, false>, resident_kernel<false, 128, true>}},
        {{resident_kernel<true, 64, false>, resident_kernel<true, 64, true>},
         {resident_kernel<true, 128, false>, resident_kernel<true, 128, true>}}};
    return kernels[is_bf16][head_dim == 128][is_f8];
}

bool cuda_resident_prepare(void) {
    for (uint32_t i = 0; i < 8; i++)
        if (!is_resident_possible(kernel_of(i & 1, i & 2 ? 128 : 64, i & 4), RESIDENT_THREADS,
                                  CUDA_RESIDENT_SHARED))
            return false;
    return true;
}

void cuda_resident_layers(const struct cuda_resident *r, const struct cuda_queue *queue) {
    const struct cuda_attention *a = &r->attention;
    launch_resident(queue, kernel_of(r->is_bf16, a->head_dim, a->kv.type == KV_F8), r->blocks,
                    RESIDENT_THREADS, cuda_resident_bytes(r->shape), *r);
}
