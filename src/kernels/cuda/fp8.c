/* kernels/cuda/fp8.c - do cuBLASLt's products of fp8 have the bits of product_fp8.cu on this card?
 *
 * If so, our kernel computes few rows, and algorithms of cuBLASLt must have its bits. If not,
 * cuBLASLt computes every number of rows, and its algorithms must agree with each other. Either way
 * a row has one set of bits.
 *
 * With scales that are powers of two a sum is multiplied exactly, so it does not matter how
 * cuBLASLt adds to what is there. With the scales of a file it does: a fused multiply-add would
 * round once where our kernel rounds twice. So such products are added by a kernel of ours, and
 * tried without.
 *
 * Entry point: cuda_fp8_open.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/fp8_scale.h"
#include "kernels/cuda/launch_fp8.h"

/* A product of random numbers: some are tried, from one row on. */
enum { ROWS_MAX = 72, WEIGHTS = 128, COLS = 2048 };
static const uint32_t row_counts[] = {1, 20, ROWS_MAX};
enum { ROW_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]) };

/* The card's memory, one array behind the other. */
struct arrays {
    uint8_t x[ROWS_MAX * COLS], w[WEIGHTS * COLS];
    float x_scale[ROWS_MAX + 56], w_scale[WEIGHTS]; /* each begins at a multiple of 256 bytes */
    float theirs[ROWS_MAX * WEIGHTS], own[ROWS_MAX * WEIGHTS];
};

static void fill_codes(uint8_t *out, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        uint8_t code = (uint8_t)rng_at(seed, 0, i);
        out[i] = (code & 0x7f) == 0x7f ? 0 : code; /* no NaN */
    }
}

static void fill_scales(float *out, uint32_t count, bool is_free, uint64_t seed) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t random = rng_at(seed, 0, i);
        float more = is_free ? (float)(random >> 40) * 0x1p-24f : 0.0f;
        out[i] = cuda_fp8_power(127 - 12 + (int32_t)(random % 8)) * (1.0f + more);
    }
}

static void run_own(const struct cuda_device *dev, const struct cuda_gemm *g, float *dst) {
    const struct cuda_queue queue = {.stream = dev->stream};
    struct cuda_product p = {.w = {.form = CUDA_FP8,
                                   .rows = g->weights,
                                   .cols = g->cols,
                                   .row_elems = g->cols,
                                   .data = g->w,
                                   .scale = g->w_scale},
                             .add = g->add,
                             .dst = {.base = (uint8_t *)dst,
                                     .row_bytes = g->weights * sizeof(float),
                                     .cols = g->weights,
                                     .all_cols = g->weights,
                                     .row_count = g->rows},
                             .x = g->x,
                             .x_scale = g->x_scale,
                             .row_count = g->rows};
    cuda_product_fp8(&p, dev->multiprocessors, &queue);
}

/* Where it may add, twice: the second time to what the first has left. */
static bool agrees(const struct cuda_device *dev, struct arrays *card, struct arrays *host,
                   bool is_free, uint32_t rows) {
    struct cuda_gemm g = {.form = CUDA_FP8,
                          .rows = rows,
                          .weights = WEIGHTS,
                          .cols = COLS,
                          .x = card->x,
                          .w = card->w,
                          .x_scale = card->x_scale,
                          .w_scale = card->w_scale,
                          .free_scales = is_free,
                          .dst = card->theirs,
                          .dst_floats = WEIGHTS};
    size_t bytes = (size_t)rows * WEIGHTS * sizeof(float);
    for (int i = 0; i < (is_free ? 1 : 2); i++) {
        g.add = i == 1;
        if (!cuda_blas_run(dev->blas, &g, dev->stream)) return false;
        run_own(dev, &g, card->own);
    }
    cudaMemcpyAsync(host->theirs, card->theirs, bytes, cudaMemcpyDeviceToHost, dev->stream);
    cudaMemcpyAsync(host->own, card->own, bytes, cudaMemcpyDeviceToHost, dev->stream);
    if (cudaStreamSynchronize(dev->stream) != cudaSuccess) return false;
    return memcmp(host->theirs, host->own, bytes) == 0;
}

static bool check(struct cuda_device *dev, bool is_free) {
    struct arrays *host = mem_zalloc(sizeof(*host)), *card = cuda_take(dev, sizeof(*card));
    bool is_same = dev->blas && host && card;
    if (is_same) {
        fill_codes(host->x, sizeof(host->x), 1);
        fill_codes(host->w, sizeof(host->w), 2);
        fill_scales(host->x_scale, ROWS_MAX, false, 3);
        fill_scales(host->w_scale, WEIGHTS, is_free, 4);
        is_same = cudaMemcpy(card, host, sizeof(*host), cudaMemcpyHostToDevice) == cudaSuccess &&
                  cudaDeviceSynchronize() == cudaSuccess;
    }
    for (int i = 0; i < ROW_COUNTS && is_same; i++)
        is_same = agrees(dev, card, host, is_free, row_counts[i]);
    cuda_give(dev, card, sizeof(*card));
    mem_free(host);
    return is_same;
}

void cuda_fp8_open(struct cuda_device *dev) {
    if (dev->fp8.is_open) return;
    dev->fp8.is_open = true;
    cuda_product_fp8_prepare();
    cuda_fp8_rows_prepare();
    cuda_blas_open_fp8(dev->blas);
    dev->fp8.has_own_bits = check(dev, false);
    dev->fp8.free_has_own_bits = check(dev, true);
}
