/* kernels/cpu/portable_rows.c - the portable table's kernels: a norm whose lanes run side by
 * side, and the reference's where its loops are already over independent elements. */
#include <math.h>

#include "kernels/cpu/kernels_portable.h"
#include "kernels/cpu/kernels_ref.h"

static float square_sum(const float *x, float mean, uint32_t count) {
    float lanes[NORM_LANES] = {0};
    uint32_t i = 0;
    for (; i + NORM_LANES <= count; i += NORM_LANES)
        for (uint32_t lane = 0; lane < NORM_LANES; lane++) {
            float d = x[i + lane] - mean;
            lanes[lane] = fmaf(d, d, lanes[lane]);
        }
    for (uint32_t lane = 0; i < count; i++, lane++)
        lanes[lane] = fmaf(x[i] - mean, x[i] - mean, lanes[lane]);
    return sum_lanes(lanes);
}

static float mean_of(const float *x, uint32_t count) {
    float lanes[NORM_LANES] = {0};
    uint32_t i = 0;
    for (; i + NORM_LANES <= count; i += NORM_LANES)
        for (uint32_t lane = 0; lane < NORM_LANES; lane++) lanes[lane] += x[i + lane];
    for (uint32_t lane = 0; i < count; i++, lane++) lanes[lane] += x[i];
    return sum_lanes(lanes) / (float)count;
}

void portable_norm(const struct norm_args *n, const float *x, float *y) {
    uint32_t count = n->group;
    float mean = n->kind == NORM_LAYER ? mean_of(x, count) : 0.0f;
    float rate = 1.0f / sqrtf(square_sum(x, mean, count) / (float)count + n->eps);
    if (n->bias)
        for (uint32_t i = 0; i < count; i++)
            y[i] = fmaf((x[i] - mean) * rate, n->weight[i], n->bias[i]);
    else
        for (uint32_t i = 0; i < count; i++) y[i] = (x[i] - mean) * rate * n->weight[i];
}

const struct cpu_kernels cpu_kernels_portable = {
    .norm = portable_norm,
    .quantise = ref_quantise,
    .rope = ref_rope,
    .act = ref_act,
    .add = ref_add,
    .softcap = ref_softcap,
    .kv_hadamard = ref_kv_hadamard,
    .kv_smooth = ref_kv_smooth,
    .kv_query = ref_kv_query,
    .kv_store_int4 = ref_kv_store_int4,
    .kv_store = ref_kv_store,
    .attend = portable_attend,
    .attn_merge = portable_attn_merge,
    .attn_finish = portable_attn_finish,
    .panel = portable_panels,
};
