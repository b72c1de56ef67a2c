/* tensor/q8.c - see tensor/q8.h for the contract. */
#include "tensor/q8.h"

#include <float.h>
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

struct q8_out q8_out_of(struct q8_row row) {
    return (struct q8_out){
        .q = (int8_t *)(uintptr_t)row.q,
        .scale = (float *)(uintptr_t)row.scale,
        .dsum = (float *)(uintptr_t)row.dsum,
        .dsum16 = (float *)(uintptr_t)row.dsum16,
        .isum = (int32_t *)(uintptr_t)row.isum,
    };
}

/* A NaN is never greater, so it does not count. */
static float block_max(const float *x) {
    float max = 0.0f;
    for (int i = 0; i < Q8_BLOCK; i++) {
        float a = fabsf(x[i]);
        if (a > max) max = a;
    }
    return max < FLT_MAX ? max : FLT_MAX;
}

/* The comparisons are false for a NaN, so it becomes 0. 0 x infinity is a NaN, too; it occurs when
 * the block's largest number is so small that 127 / max overflows. */
static int8_t quantise_one(float x, float inverse) {
    float y = x * inverse;
    if (y > 127.0f) return 127;
    if (y < -127.0f) return -127;
    return y == y ? (int8_t)(int32_t)rintf(y) : 0;
}

/* Rounds the 16 values at `x` into `q` and returns their sum. */
static int32_t quantise_half(const float *x, float inverse, int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < Q8_BLOCK / 2; i++) {
        q[i] = quantise_one(x[i], inverse);
        sum += q[i];
    }
    return sum;
}

void q8_quantise_blocks(const float *x, uint32_t blocks, struct q8_out out) {
    for (uint32_t b = 0; b < blocks; b++) {
        const float *in = x + (size_t)b * Q8_BLOCK;
        int8_t *q = out.q + (size_t)b * Q8_BLOCK;
        float max = block_max(in);
        float inverse = max > 0.0f ? 127.0f / max : 0.0f;
        float scale = max / 127.0f;
        int32_t low = quantise_half(in, inverse, q);
        int32_t high = quantise_half(in + 16, inverse, q + 16);
        out.scale[b] = scale;
        out.isum[b] = low + high;
        out.dsum[b] = scale * (float)(low + high);
        out.dsum16[2 * b] = scale * (float)low;
        out.dsum16[2 * b + 1] = scale * (float)high;
    }
}

void q8_quantise(const float *x, uint32_t cols, void *out) {
    CHECK(cols % Q8_BLOCK == 0);
    q8_quantise_blocks(x, cols / Q8_BLOCK, q8_out_of(q8_row_at(out, cols)));
}
