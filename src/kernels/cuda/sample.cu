/* kernels/cuda/sample.cu - from logits to a token, as graph/sampling.h defines it, to the bit.
 *
 * Mapping: blocks of 256 threads find the best of 4096 logits each. Then a block of 1024 threads
 * owns an output row and goes along it as often as its sampling needs; neighbours read neighbouring
 * logits, each of them 16 at once. Nothing is stored for a token but its logit. A cut is a number
 * and an id, and every token can be compared with them. The kernel finds a cut by dividing the bits
 * of the numbers into 2048 bins three times, then the ids of the tokens whose numbers are equal.
 * Cost: greedy takes no walk along the row, temperature two, top-k and top-p five more each,
 * logprobs one and one for each candidate.
 */
#include "kernels/cuda/sample_block.cuh"

/* What is left of a row: those above `order`, and of those equal to it the ids up to `last_id`. */
struct cut {
    uint32_t order, last_id;
};

static __device__ inline bool cut_keeps(struct cut c, float number, uint32_t id) {
    uint32_t order = order_of(number);
    return order > c.order || (order == c.order && id <= c.last_id);
}

struct sample_row {
    float *logit;
    uint32_t vocab;
    float top, scale; /* the largest logit; 1 / temperature */
    struct cut by_count, by_typical, by_weight;
    bool is_typical;
    float mean; /* exponent, for the typical cut */
    unsigned long long weight_min;
};

static __device__ inline float exponent_at(const struct sample_row &r, float logit) {
    return (logit - r.top) * r.scale;
}

static __device__ inline float nearness_at(const struct sample_row &r, float logit) {
    return 0.0f - fabsf(exponent_at(r, logit) - r.mean);
}

/* A token's weight after the cuts; 0 if it is out. */
static __device__ inline unsigned long long weight_at(const struct sample_row &r, uint32_t id,
                                                      float logit) {
    if (!(logit > -DEVICE_INF) || !cut_keeps(r.by_count, logit, id)) return 0;
    unsigned long long weight = weight_of(logit, r.top, r.scale);
    if (weight < r.weight_min) return 0;
    if (r.is_typical && !cut_keeps(r.by_typical, nearness_at(r, logit), id)) return 0;
    return cut_keeps(r.by_weight, logit, id) ? weight : 0;
}

static constexpr uint32_t WALK = 16; /* logits that a thread reads at once */

/* each(id, logit) for all of the thread's tokens. */
template <typename F> static __device__ inline void walk(const struct sample_row &r, F each) {
    for (uint32_t first = threadIdx.x; first < r.vocab; first += WALK * SAMPLE_THREADS) {
        float some[WALK];
#pragma unroll
        for (uint32_t k = 0; k < WALK; k++) {
            uint32_t id = first + k * SAMPLE_THREADS;
            some[k] = id < r.vocab ? r.logit[id] : 0.0f;
        }
#pragma unroll
        for (uint32_t k = 0; k < WALK; k++) {
            uint32_t id = first + k * SAMPLE_THREADS;
            if (id < r.vocab) each(id, tame(some[k]));
        }
    }
}

static __device__ unsigned long long row_sum(const struct sample_row &r, struct sample_shared *m) {
    unsigned long long sum = 0;
    walk(r, [&](uint32_t id, float logit) { sum += weight_at(r, id, logit); });
    return block_sum(sum, m);
}

/* ---- the best in rank ---- */

/* Larger for larger logits, then for lower ids. */
static __device__ inline unsigned long long rank_of(float logit, uint32_t id) {
    return (unsigned long long)order_of(logit) << 32 | (uint32_t)~id;
}
static __device__ inline uint32_t rank_id(unsigned long long rank) { return ~(uint32_t)rank; }
static __device__ inline float rank_logit(unsigned long long rank) {
    return number_of((uint32_t)(rank >> 32));
}

/* The first in rank that comes after `limit`; 0 if there is none. */
static __device__ unsigned long long best_below(const struct sample_row &r,
                                                unsigned long long limit, struct sample_shared *m) {
    unsigned long long best = 0;
    walk(r, [&](uint32_t id, float logit) {
        unsigned long long rank = rank_of(logit, id);
        best = rank < limit && rank > best ? rank : best;
    });
    return block_max(best, m);
}

static constexpr uint32_t SCAN_THREADS = 256, SCAN_WARPS = SCAN_THREADS / 32;
static constexpr unsigned long long RANK_NAN = ~0ull; /* above all ranks */
static_assert(CUDA_SCAN_TOKENS == SCAN_THREADS * WALK, "a block's share of a row");

/* The best of a part of a row, before any edit; RANK_NAN if there is a NaN. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(struct cuda_sample a) {
    __shared__ unsigned long long bests[SCAN_WARPS];
    const float *logit = a.logits + blockIdx.y * a.row_floats;
    uint32_t first = blockIdx.x * CUDA_SCAN_TOKENS + threadIdx.x;
    unsigned long long best = 0;
    float some[WALK];
#pragma unroll
    for (uint32_t k = 0; k < WALK; k++) {
        uint32_t id = first + k * SCAN_THREADS;
        some[k] = id < a.vocab ? logit[id] : -DEVICE_INF;
    }
#pragma unroll
    for (uint32_t k = 0; k < WALK; k++) {
        uint32_t id = first + k * SCAN_THREADS;
        unsigned long long rank = rank_of(tame(some[k]), id);
        if (id < a.vocab) best = max(best, some[k] != some[k] ? RANK_NAN : rank);
    }
    for (int width = 16; width > 0; width /= 2)
        best = max(best, __shfl_xor_sync(0xffffffffu, best, width));
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (uint32_t w = 1; w < SCAN_WARPS; w++) best = max(best, bests[w]);
    a.scans[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

static inline __host__ __device__ uint32_t scan_count(uint32_t vocab) {
    return (vocab + CUDA_SCAN_TOKENS - 1) / CUDA_SCAN_TOKENS;
}

static __device__ unsigned long long best_of_scans(const struct cuda_sample &a,
                                                   struct sample_shared *m) {
    uint32_t count = scan_count(a.vocab);
    unsigned long long best = 0;
    for (uint32_t i = threadIdx.x; i < count; i += SAMPLE_THREADS)
        best = max(best, (unsigned long long)a.scans[blockIdx.x * count + i]);
    return block_max(best, m);
}

/* ---- cuts ---- */

enum mass { MASS_ONE, MASS_WEIGHT };
struct selection {
    bool by_nearness; /* else by logit */
    enum mass mass;
    unsigned long long wanted; /* from 1 to what all together have */
};

static __device__ inline float number_at(const struct sample_row &r, const struct selection &s,
                                         float logit) {
    return s.by_nearness ? nearness_at(r, logit) : logit;
}

static __device__ inline unsigned long long
mass_at(const struct sample_row &r, const struct selection &s, uint32_t id, float logit) {
    return s.mass == MASS_ONE ? (logit > -DEVICE_INF ? 1 : 0) : weight_at(r, id, logit);
}

/* Numbers whose bits from `shift` + BIN_BITS on are those of `known`, by the bits below. */
static __device__ void bin_numbers(const struct sample_row &r, const struct selection &s,
                                   uint32_t known, uint32_t shift, struct sample_shared *m) {
    bins_clear(m);
    walk(r, [&](uint32_t id, float logit) {
        uint32_t order = order_of(number_at(r, s, logit));
        unsigned long long above = (unsigned long long)(order ^ known) >> shift >> BIN_BITS;
        unsigned long long mass = above ? 0 : mass_at(r, s, id, logit);
        if (mass) atomicAdd(&m->bins[order >> shift & (BINS - 1)], mass);
    });
}

/* Ids of those whose number is `order`, likewise. */
static __device__ void bin_ids(const struct sample_row &r, const struct selection &s,
                               uint32_t order, uint32_t known, uint32_t shift,
                               struct sample_shared *m) {
    bins_clear(m);
    walk(r, [&](uint32_t id, float logit) {
        if (order_of(number_at(r, s, logit)) != order || (id ^ known) >> shift >> BIN_BITS) return;
        unsigned long long mass = mass_at(r, s, id, logit);
        if (mass) atomicAdd(&m->bins[id >> shift & (BINS - 1)], mass);
    });
}

/* The shortest prefix, largest numbers first and then lowest ids, whose masses reach s.wanted. */
static __device__ struct cut find_cut(const struct sample_row &r, const struct selection &s,
                                      struct sample_shared *m) {
    struct cut out = {0, 0};
    unsigned long long before = 0;
    for (int shift = 2 * BIN_BITS; shift >= 0; shift -= BIN_BITS) {
        bin_numbers(r, s, out.order, (uint32_t)shift, m);
        out.order |= bins_find(m, true, s.wanted, &before) << shift;
    }
    uint32_t shift = 0;
    while (r.vocab - 1 >> shift >> BIN_BITS) shift += BIN_BITS;
    for (;; shift -= BIN_BITS) {
        bin_ids(r, s, out.order, out.last_id, shift, m);
        out.last_id |= bins_find(m, false, s.wanted, &before) << shift;
        if (shift == 0) return out;
    }
}

/* The part of the sum that `share` asks for, at least 1: a prefix holds at least one token. */
static __device__ unsigned long long share_of(float share, unsigned long long sum) {
    return (unsigned long long)fmax(ceil((double)share * (double)sum), 1.0);
}

static __device__ void cut_count(struct sample_row *r, uint32_t top_k, struct sample_shared *m) {
    unsigned long long there = 0;
    walk(*r, [&](uint32_t, float logit) { there += logit > -DEVICE_INF; });
    if (block_sum(there, m) <= top_k) return;
    struct selection s = {false, MASS_ONE, top_k};
    r->by_count = find_cut(*r, s, m);
}

static __device__ void cut_typical(struct sample_row *r, float share, struct sample_shared *m) {
    unsigned long long sum = 0;
    long long products = 0; /* each cut to a whole number, so that the sum has no order */
    walk(*r, [&](uint32_t id, float logit) {
        unsigned long long weight = weight_at(*r, id, logit);
        sum += weight;
        if (weight)
            products += (long long)((double)(long long)weight * (double)exponent_at(*r, logit));
    });
    sum = block_sum(sum, m);
    products = (long long)block_sum((unsigned long long)products, m);
    r->mean = (float)((double)products / (double)sum);
    struct selection s = {true, MASS_WEIGHT, share_of(share, sum)};
    struct cut found = find_cut(*r, s, m);
    r->by_typical = found;
    r->is_typical = true;
}

static __device__ void cut_top(struct sample_row *r, float share, struct sample_shared *m) {
    struct selection s = {false, MASS_WEIGHT, share_of(share, row_sum(*r, m))};
    struct cut found = find_cut(*r, s, m);
    r->by_weight = found;
}

static __device__ void cut_min(struct sample_row *r, float ratio, struct sample_shared *m) {
    unsigned long long most = 0;
    walk(*r, [&](uint32_t id, float logit) { most = max(most, weight_at(*r, id, logit)); });
    most = block_max(most, m);
    r->weight_min = (unsigned long long)ceil((double)ratio * (double)most);
}

/* ---- drawing ---- */

/* base/rng.c: Philox4x32-10. */
static __device__ unsigned long long rng_at(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t x0 = (uint32_t)index, x1 = (uint32_t)(index >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return (unsigned long long)x1 << 32 | x0;
}

/* The first of `count` ids from `first` on where the running sum exceeds `target`; by a warp. */
static __device__ uint32_t find_in_run(const struct sample_row &r, uint32_t first, uint32_t count,
                                       unsigned long long target) {
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < count; i += 32) {
        uint32_t id = first + i + lane;
        unsigned long long sum = id < r.vocab ? weight_at(r, id, tame(r.logit[id])) : 0;
        for (uint32_t width = 1; width < 32; width *= 2) {
            unsigned long long other = __shfl_up_sync(0xffffffffu, sum, width);
            if (lane >= width) sum += other;
        }
        uint32_t beyond = __ballot_sync(0xffffffffu, sum > target);
        if (beyond) return first + i + (uint32_t)__ffs((int)beyond) - 1;
        target -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return first; /* not reached: target is less than the sum of the run */
}

static constexpr uint32_t RUNS_AT_ONCE = 8; /* of a warp */

/* Ids are cut into at most BINS runs, whose sums go into the bins. */
static __device__ uint32_t find_id(const struct sample_row &r, unsigned long long target,
                                   struct sample_shared *m) {
    uint32_t run = ((r.vocab + BINS - 1) / BINS + 31) / 32 * 32;
    uint32_t lane = threadIdx.x % 32, runs = (r.vocab + run - 1) / run;
    bins_clear(m);
    for (uint32_t first = threadIdx.x / 32; first < runs; first += RUNS_AT_ONCE * SAMPLE_WARPS) {
        unsigned long long sum[RUNS_AT_ONCE] = {0};
        for (uint32_t i = lane; i < run; i += 32) {
            float some[RUNS_AT_ONCE];
#pragma unroll
            for (uint32_t k = 0; k < RUNS_AT_ONCE; k++) {
                uint32_t id = (first + k * SAMPLE_WARPS) * run + i;
                some[k] = id < r.vocab ? r.logit[id] : -DEVICE_INF;
            }
#pragma unroll
            for (uint32_t k = 0; k < RUNS_AT_ONCE; k++)
                sum[k] += weight_at(r, (first + k * SAMPLE_WARPS) * run + i, tame(some[k]));
        }
#pragma unroll
        for (uint32_t k = 0; k < RUNS_AT_ONCE; k++) {
            for (int width = 16; width > 0; width /= 2)
                sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], width);
            if (lane == 0 && first + k * SAMPLE_WARPS < runs)
                m->bins[first + k * SAMPLE_WARPS] = sum[k];
        }
    }
    unsigned long long before = 0;
    uint32_t bin = bins_find(m, false, target + 1, &before);
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t id = find_in_run(r, bin * run, run, target - before);
        if (threadIdx.x == 0) m->found = id;
    }
    __syncthreads();
    return m->found;
}

static __device__ uint32_t draw(struct sample_row *r, const struct sampling &s,
                                struct sample_shared *m) {
    r->scale = 1.0f / s.temperature;
    r->weight_min = 1;
    if (s.top_k > 0 && s.top_k < r->vocab) cut_count(r, s.top_k, m);
    if (s.typical_p < 1.0f) cut_typical(r, s.typical_p, m);
    if (s.top_p < 1.0f) cut_top(r, s.top_p, m);
    if (s.min_p > 0.0f) cut_min(r, s.min_p, m);
    unsigned long long bits = rng_at(s.seed, SAMPLING_RNG_STREAM, s.position);
    return find_id(*r, __umul64hi(bits, row_sum(*r, m)), m);
}

/* ---- edits ---- */

struct edit_list {
    const struct logit_edit *edits;
    float *saved; /* of each: the logit before any edit */
    uint32_t count, seen_count;
    int32_t pending; /* -1: none */
    float fresh_saved;
    bool is_fresh; /* the pending token stood in no edit */
};

static __device__ inline bool is_in_vocab(const struct sample_row &r, int32_t token) {
    return token >= 0 && (uint32_t)token < r.vocab;
}

static __device__ inline void edit_one(const struct sample_row &r, int32_t token, float scale,
                                       float add) {
    if (!is_in_vocab(r, token)) return;
    float logit = tame(r.logit[token]);
    float scaled = logit > 0.0f ? logit / scale : logit * scale;
    r.logit[token] = tame(scaled + add);
}

/* Edits [first, end), in order. Only those of one token depend on each other: a thread looks
 * whether its edit is its token's first in a piece of the list, and if so does all of them. */
static __device__ void edit_range(const struct sample_row &r, const struct edit_list &l,
                                  uint32_t first, uint32_t end) {
    __shared__ int32_t token[SAMPLE_THREADS];
    for (uint32_t at = first; at < end; at += SAMPLE_THREADS) {
        uint32_t count = min(SAMPLE_THREADS, end - at), i = threadIdx.x;
        __syncthreads();
        token[i] = i < count ? l.edits[at + i].token : -1;
        __syncthreads();
        bool is_first = i < count;
        for (uint32_t j = 0; j < i && is_first; j++) is_first = token[j] != token[i];
        for (uint32_t j = i; j < count && is_first; j++) {
            if (token[j] != token[i]) continue;
            const struct logit_edit *e = &l.edits[at + j];
            bool is_again = at + j < l.seen_count && e->token == l.pending;
            edit_one(r, e->token, e->scale, is_again ? e->add_again : e->add);
        }
    }
    __syncthreads();
}

static __device__ void deny(const struct sample_row &r, const uint64_t *mask) {
    for (uint32_t id = threadIdx.x; id < r.vocab; id += SAMPLE_THREADS)
        if (mask[id / 64] >> id % 64 & 1) r.logit[id] = -DEVICE_INF;
    __syncthreads();
}

/* Any edit of [0, count) names `token`; `at` is where. */
static __device__ bool is_listed(const struct edit_list &l, uint32_t count, int32_t token,
                                 uint32_t *at, struct sample_shared *m) {
    unsigned long long found = 0;
    for (uint32_t i = threadIdx.x; i < count; i += SAMPLE_THREADS)
        if (l.edits[i].token == token) found = i + 1;
    found = block_max(found, m);
    *at = (uint32_t)found - 1;
    return found > 0;
}

static __device__ void apply_edits(const struct sample_row &r, const struct sampling &s,
                                   const uint64_t *mask, struct edit_list *l,
                                   struct sample_shared *m) {
    for (uint32_t i = threadIdx.x; i < l->count; i += SAMPLE_THREADS)
        if (is_in_vocab(r, l->edits[i].token)) l->saved[i] = tame(r.logit[l->edits[i].token]);
    if (s.is_pending) {
        uint32_t at;
        l->fresh_saved = tame(r.logit[l->pending]);
        l->is_fresh = !is_listed(*l, l->seen_count, l->pending, &at, m);
        __syncthreads();
        edit_range(r, *l, 0, l->seen_count);
        if (l->is_fresh && threadIdx.x == 0) edit_one(r, l->pending, s.fresh_scale, s.fresh_add);
    }
    __syncthreads();
    edit_range(r, *l, s.is_pending ? l->seen_count : 0, l->count);
    if (mask) deny(r, mask);
}

/* The model's own logit of a token. */
static __device__ float logit_before(const struct sample_row &r, const struct edit_list &l,
                                     uint32_t token, struct sample_shared *m) {
    uint32_t at;
    if (is_listed(l, l.count, (int32_t)token, &at, m)) return l.saved[at];
    if (l.is_fresh && l.pending == (int32_t)token) return l.fresh_saved;
    return tame(r.logit[token]);
}

/* ---- logprobs ---- */

struct model_share {
    float top;
    double log_sum;
};

static __device__ inline float log_share(float logit, struct model_share s) {
    if (!(logit > -DEVICE_INF)) return -DEVICE_INF;
    return (float)((double)logit - (double)s.top - s.log_sum);
}

/* Of the model's own distribution: what it adds up to, and the likeliest. */
static __device__ struct model_share fill_logprobs(struct sample_row r, unsigned long long best,
                                                   uint32_t top_count, struct sample_result *out,
                                                   struct sample_shared *m) {
    struct model_share share = {r.top, 0.0};
    uint32_t count = 0;
    if (!(r.top > -DEVICE_INF)) return share;
    share.log_sum = fm_log_d((double)row_sum(r, m) / (double)(1ull << ONE_LOG2));
    top_count = min(top_count, (uint32_t)TOP_LOGPROBS_MAX);
    for (; count < top_count && best && rank_logit(best) > -DEVICE_INF; count++) {
        if (threadIdx.x == 0) {
            out->top[count].token = (int32_t)rank_id(best);
            out->top[count].logprob = log_share(rank_logit(best), share);
        }
        if (count + 1 < top_count) best = best_below(r, best, m);
    }
    if (threadIdx.x == 0) out->top_count = count;
    return share;
}

/* ---- a row ---- */

static __device__ struct edit_list edits_of(const struct cuda_sample &a, const struct sampling &s) {
    struct edit_list l = {a.edits + s.edit_first,
                          a.saved + s.edit_first,
                          s.edit_count,
                          s.seen_count,
                          -1,
                          0.0f,
                          false};
    if (s.is_pending) l.pending = a.slots[s.pending_slot];
    return l;
}

/* False: the row fails. */
static __device__ bool sample_row_run(const struct cuda_sample &a, const struct sampling &s,
                                      struct sample_row *r, struct sample_result *out,
                                      struct sample_shared *m) {
    bool is_score = s.kind == SAMPLING_SCORE;
    unsigned long long best = best_of_scans(a, m);
    if (best == RANK_NAN) return false;
    r->top = rank_logit(best);
    struct model_share share = {r->top, 0.0};
    if (s.wants_logprob || is_score) share = fill_logprobs(*r, best, s.top_count, out, m);
    uint32_t token = (uint32_t)s.token;
    float before = is_score ? tame(r->logit[token]) : 0.0f;
    if (!is_score) {
        struct edit_list l = edits_of(a, s);
        if (s.is_pending && !is_in_vocab(*r, l.pending)) return false;
        if (s.edit_count > 0 || s.is_pending || s.deny_first != SAMPLING_NONE) {
            const uint64_t *mask = s.deny_first != SAMPLING_NONE ? a.deny + s.deny_first : NULL;
            apply_edits(*r, s, mask, &l, m);
            best = best_below(*r, ~0ull, m);
            r->top = rank_logit(best);
        }
        if (!(r->top > -DEVICE_INF)) return false;
        token = s.temperature < FLOAT_MIN ? rank_id(best) : draw(r, s, m);
        if (s.wants_logprob) before = logit_before(*r, l, token, m);
    }
    if (threadIdx.x == 0) {
        out->chosen.token = (int32_t)token;
        if (s.wants_logprob || is_score) out->chosen.logprob = log_share(before, share);
    }
    return true;
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) sample_kernel(struct cuda_sample a) {
    __shared__ struct sample_shared m;
    const struct sampling s = a.samplings[blockIdx.x];
    struct row_output *out = &a.outputs[blockIdx.x];
    struct cut all = {0, 0xffffffffu};
    struct sample_row r = {
        a.logits + blockIdx.x * a.row_floats, a.vocab, 0.0f, 1.0f, all, all, all, false, 0.0f, 0};
    if (threadIdx.x == 0) {
        out->failed = false;
        out->sample.top_count = 0;
        out->sample.chosen.logprob = 0.0f;
    }
    if (s.kind == SAMPLING_HAND_OVER) return;
    __syncthreads();
    bool is_fine = sample_row_run(a, s, &r, &out->sample, &m);
    if (threadIdx.x != 0) return;
    out->failed = !is_fine;
    /* A failed row empties its slot: a row of the next step with is_pending fails, too. */
    if (s.kind != SAMPLING_DRAW) return;
    a.slots[s.slot] = is_fine ? out->sample.chosen.token : CUDA_SLOT_EMPTY;
}

void cuda_sample(const struct cuda_sample *a, struct CUstream_st *stream) {
    if (a->output_count == 0) return;
    dim3 scans(scan_count(a->vocab), a->output_count);
    scan_kernel<<<scans, SCAN_THREADS, 0, stream>>>(*a);
    sample_kernel<<<a->output_count, SAMPLE_THREADS, 0, stream>>>(*a);
}
