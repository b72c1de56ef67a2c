/* kernels/cuda/experts.cu - the small ops of mixtures of experts: route and expert_sum.
 *
 * Mapping: route gives a row to a warp, whose lanes share the experts; one lane takes the sum of
 * exponentials in rising order (kernels/cpu/numerics.h). expert_sum gives a row to a block.
 */
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"

static constexpr uint32_t SUM_THREADS = 256;

/* The better of two experts: the larger logit, then the lower number. The number `experts` means
 * none. A NaN is never larger, so it is taken only where nothing else is left. */
static __device__ uint32_t better_of(const float *logits, uint32_t a, uint32_t b,
                                     uint32_t experts) {
    if (a == experts || b == experts) return a == experts ? b : a;
    if (a > b) {
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    return logits[b] > logits[a] ? b : a;
}

static __device__ bool is_chosen(const int32_t *ids, uint32_t count, uint32_t expert) {
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == (int32_t)expert) return true;
    return false;
}

static __device__ uint32_t best_expert(const struct cuda_route &a, const float *logits,
                                       const int32_t *ids, uint32_t chosen) {
    uint32_t best = a.experts;
    for (uint32_t e = threadIdx.x; e < a.experts; e += 32)
        if (!is_chosen(ids, chosen, e)) best = better_of(logits, best, e, a.experts);
    for (int width = 16; width > 0; width /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, best, width);
        best = better_of(logits, best, other, a.experts);
    }
    return best;
}

static __global__ void route_kernel(struct cuda_route a) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(a.logits, row)) return;
    const float *logits = mat_f32(a.logits, row);
    int32_t *ids = mat_i32(a.ids, row);
    float *weights = mat_f32(a.weights, row);
    for (uint32_t j = 0; j < a.used; j++) {
        uint32_t best = best_expert(a, logits, ids, j);
        if (threadIdx.x == 0) ids[j] = (int32_t)best;
        __syncwarp();
    }
    if (threadIdx.x != 0) return;
    float top = logits[ids[0]], sum = 0.0f, chosen = 0.0f;
    for (uint32_t e = 0; e < a.experts; e++) sum += fm_exp(logits[e] - top);
    for (uint32_t j = 0; j < a.used; j++) {
        weights[j] = fm_exp(logits[ids[j]] - top) / sum;
        chosen += weights[j];
    }
    for (uint32_t j = 0; j < a.used && a.normalise; j++) weights[j] /= chosen;
}

void cuda_route(const struct cuda_route *a, const struct cuda_queue *queue) {
    if (a->logits.row_count == 0) return;
    launch(queue, route_kernel, a->logits.row_count, 32, 0, *a);
}

static __global__ void expert_sum_kernel(struct cuda_expert_sum a) {
    begin_kernel();
    uint32_t row = blockIdx.x, cols = a.dst.cols;
    if (!mat_is_live(a.dst, row)) return;
    const float *in = mat_f32(a.src, row), *w = mat_f32(a.weights, row);
    float *out = mat_f32(a.dst, row);
    for (uint32_t i = threadIdx.x; i < cols; i += SUM_THREADS) {
        float acc = 0.0f;
        for (uint32_t j = 0; j < a.used; j++) acc = fmaf(w[j], in[(size_t)j * cols + i], acc);
        out[i] = a.add ? acc + out[i] : acc;
    }
}

void cuda_expert_sum(const struct cuda_expert_sum *a, const struct cuda_queue *queue) {
    if (a->dst.row_count == 0) return;
    launch(queue, expert_sum_kernel, a->dst.row_count, SUM_THREADS, 0, *a);
}
