/* tensor/q8.c - see tensor/q8.h for the contract. */
#include "tensor/q8.h"

#include <math.h>

#include "base/check.h"

/* q, then scale, dsum, dsum16 (two), isum: 20 bytes of numbers for 32 of q. */
size_t q8_row_bytes(uint32_t cols) {
    size_t blocks = cols / Q8_BLOCK;
    size_t bytes = (size_t)cols + blocks * (3 * sizeof(float) + sizeof(float) + sizeof(int32_t));
    return (bytes + 63) & ~(size_t)63;
}

struct q8_row q8_row_at(const void *row, uint32_t cols) {
    uint32_t blocks = cols / Q8_BLOCK;
    const int8_t *q = row;
    const float *scale = (const float *)(const void *)(q + cols);
    const float *dsum = scale + blocks;
    const float *dsum16 = dsum + blocks;
    const int32_t *isum = (const int32_t *)(const void *)(dsum16 + 2 * (size_t)blocks);
    return (struct q8_row){q, scale, dsum, dsum16, isum};
}

static float block_max(const float *x) {
    float max = 0.0f;
    for (int i = 0; i < Q8_BLOCK; i++) {
        float a = fabsf(x[i]);
        if (a > max) max = a;
    }
    return max;
}

/* Rounds the 16 values at `x` into `q` and returns their sum. */
static int32_t quantise_half(const float *x, float inverse, int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < Q8_BLOCK / 2; i++) {
        q[i] = (int8_t)(int32_t)rintf(x[i] * inverse);
        sum += q[i];
    }
    return sum;
}

void q8_quantise(const float *x, uint32_t cols, void *out) {
    CHECK(cols % Q8_BLOCK == 0);
    struct q8_row row = q8_row_at(out, cols);
    int8_t *q = out;
    float *scale = (float *)(uintptr_t)row.scale;
    float *dsum = (float *)(uintptr_t)row.dsum;
    float *dsum16 = (float *)(uintptr_t)row.dsum16;
    int32_t *isum = (int32_t *)(uintptr_t)row.isum;
    for (uint32_t b = 0; b < cols / Q8_BLOCK; b++) {
        const float *in = x + b * Q8_BLOCK;
        float max = block_max(in);
        float inverse = max > 0.0f ? 127.0f / max : 0.0f;
        scale[b] = max / 127.0f;
        int32_t low = quantise_half(in, inverse, q + b * Q8_BLOCK);
        int32_t high = quantise_half(in + 16, inverse, q + b * Q8_BLOCK + 16);
        isum[b] = low + high;
        dsum[b] = scale[b] * (float)isum[b];
        dsum16[2 * b] = scale[b] * (float)low;
        dsum16[2 * b + 1] = scale[b] * (float)high;
    }
}
