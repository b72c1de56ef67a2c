/* kernels/cpu/sample_dense.c - see kernels/cpu/sample_dense.h. */
#include "kernels/cpu/sample_dense.h"

#include <float.h>
#include <math.h>

#include "base/check.h"
#include "base/mem.h"

enum status dense_init(struct dense *d, uint32_t vocab) {
    *d = (struct dense){.fvec = fvec_at(0), .vocab = vocab, .chunks = fvec_chunks(vocab)};
    /* Vectors across two cache lines cost up to a fifth of a draw (bench/sample, 2026-11). */
    d->logit = mem_alloc_aligned(64, d->chunks * FVEC_CHUNK * sizeof(d->logit[0]));
    d->peak = mem_alloc_array(d->chunks * FVEC_PEAKS, sizeof(d->peak[0]));
    d->sum = mem_alloc_array(d->chunks, sizeof(d->sum[0]));
    if (d->logit && d->peak && d->sum) return ST_OK;
    dense_deinit(d);
    return ST_NOMEM;
}

void dense_deinit(struct dense *d) {
    mem_free(d->logit);
    mem_free(d->peak);
    mem_free(d->sum);
    *d = (struct dense){0};
}

void dense_read(struct dense *d, const float *logits) {
    d->fvec->tame(logits, d->vocab, d->logit);
    d->scale = 0.0f;
}

void dense_survey(struct dense *d) {
    d->fvec->peaks(d->logit, d->chunks, d->peak);
    d->scale = 0.0f;
    d->top = d->peak[0];
    float low = HUGE_VALF; /* the smallest peak */
    for (size_t i = 0; i < d->chunks * FVEC_PEAKS; i++) {
        d->top = d->peak[i] > d->top ? d->peak[i] : d->top;
        low = d->peak[i] < low && d->peak[i] > -HUGE_VALF ? d->peak[i] : low;
    }
    d->low = low - 2.0f * (d->top - low);
}

bool dense_first_of(const struct dense *d, const float *logits, int32_t *token) {
    float top = -HUGE_VALF;
    uint32_t at = 0;
    for (uint32_t t = 0; t < d->vocab; t += FVEC_CHUNK) {
        uint32_t count = d->vocab - t < FVEC_CHUNK ? d->vocab - t : FVEC_CHUNK;
        float most = d->fvec->top(logits + t, count);
        at = most > top ? t : at;
        top = most > top ? most : top;
    }
    if (!(fabsf(top) >= FLT_MIN && fabsf(top) < FLT_MAX)) return false;
    while (logits[at] != top) at++;
    *token = (int32_t)at;
    return true;
}

int32_t dense_first(const struct dense *d) {
    size_t peak = 0;
    while (d->peak[peak] != d->top) peak++;
    uint32_t t = (uint32_t)(peak / FVEC_PEAKS * FVEC_CHUNK);
    while (d->logit[t] != d->top) t++;
    return (int32_t)t;
}

/* As many peaks are as many tokens. Few tokens that large hide behind a larger one while peaks
 * are plenty; where they are not, nothing is gained by looking. */
float dense_floor(const struct dense *d, struct select *select, uint32_t count) {
    uint32_t peaks = (uint32_t)(d->chunks * FVEC_PEAKS);
    if (count > peaks / 2) return -FLT_MAX;
    const struct select_things things = {
        .number = d->peak, .count = peaks, .first = d->top, .last = d->low};
    float floor = select_prefix(select, &things, count).number;
    return floor > -FLT_MAX ? floor : -FLT_MAX;
}

uint64_t dense_sum(struct dense *d, float scale) {
    CHECK(d->top >= -FLT_MAX && d->top <= FLT_MAX);
    if (d->scale == scale) return d->total;
    d->total = d->fvec->sum(d->logit, d->chunks, d->top, scale, d->sum);
    d->scale = scale;
    return d->total;
}

int32_t dense_find(struct dense *d, float scale, uint64_t target) {
    CHECK(target < dense_sum(d, scale));
    uint64_t weight[FVEC_CHUNK];
    size_t c = 0, t = 0;
    for (; target >= d->sum[c]; c++) target -= d->sum[c];
    d->fvec->weigh(d->logit + c * FVEC_CHUNK, FVEC_CHUNK, d->top, scale, weight);
    for (; target >= weight[t]; t++) target -= weight[t];
    return (int32_t)(c * FVEC_CHUNK + t);
}
