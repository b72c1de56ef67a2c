/* quant/divergence.c - see quant/divergence.h for the contract. */
#include "quant/divergence.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "base/size.h"

void divergence_init(struct divergence *d) { *d = (struct divergence){0}; }

void divergence_deinit(struct divergence *d) {
    mem_free(d->kl);
    *d = (struct divergence){0};
}

static uint32_t top_of(const float *x, uint32_t vocab) {
    uint32_t top = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (x[i] > x[top]) top = i;
    return top;
}

static enum status reserve_one(struct divergence *d) {
    size_t cap = d->cap ? d->cap * 2 : 256, bytes;
    if (d->count < d->cap) return ST_OK;
    if (!size_mul(cap, sizeof(d->kl[0]), &bytes)) return ST_NOMEM;
    double *kl = mem_realloc(d->kl, bytes);
    if (!kl) return ST_NOMEM;
    d->kl = kl;
    d->cap = cap;
    return ST_OK;
}

/* log p(i) = logit i - most - log_sum. */
struct pair {
    uint32_t top_a, top_b;
    double most_a, most_b, log_a, log_b; /* largest logits; logarithms of the sums */
    double kl;
};

static struct pair compare_rows(const float *a, const float *b, uint32_t vocab) {
    struct pair p = {.top_a = top_of(a, vocab), .top_b = top_of(b, vocab)};
    double sum_a = 0, sum_b = 0, weighted = 0;
    p.most_a = (double)a[p.top_a];
    p.most_b = (double)b[p.top_b];
    for (uint32_t i = 0; i < vocab; i++) {
        double x = (double)a[i] - p.most_a, y = (double)b[i] - p.most_b, share = fm_exp_d(x);
        sum_a += share;
        sum_b += fm_exp_d(y);
        if (share > 0) weighted += share * (x - y); /* minus infinity weighs nothing */
    }
    /* The logarithms of the sums are the same for all tokens, so one pass is enough. */
    p.log_a = fm_log_d(sum_a);
    p.log_b = fm_log_d(sum_b);
    double kl = weighted / sum_a - p.log_a + p.log_b;
    p.kl = isnan(kl) ? HUGE_VAL : kl > 0 ? kl : 0; /* rounding may leave -1e-16 */
    return p;
}

double divergence_kl(const float *a, const float *b, uint32_t vocab) {
    CHECK(vocab > 0);
    return compare_rows(a, b, vocab).kl;
}

enum status divergence_add(struct divergence *d, const float *a, const float *b, uint32_t vocab,
                           int32_t next) {
    CHECK(vocab > 0);
    CHECK(next >= 0 && (uint32_t)next < vocab);
    TRY(reserve_one(d));
    struct pair p = compare_rows(a, b, vocab);
    d->kl[d->count++] = p.kl;
    d->kl_sum += p.kl;
    d->agreed += p.top_a == p.top_b;
    d->loss_a += p.log_a - ((double)a[next] - p.most_a);
    d->loss_b += p.log_b - ((double)b[next] - p.most_b);
    return ST_OK;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void divergence_result(struct divergence *d, struct divergence_result *out) {
    CHECK(d->count > 0);
    double count = (double)d->count;
    qsort(d->kl, d->count, sizeof(d->kl[0]), compare);
    *out = (struct divergence_result){
        .positions = d->count,
        .kl_mean = d->kl_sum / count,
        .kl_p99 = d->kl[(d->count * 99 + 99) / 100 - 1],
        .kl_max = d->kl[d->count - 1],
        .top1_agree = (double)d->agreed / count,
        .ppl_a = fm_exp_d(d->loss_a / count),
        .ppl_b = fm_exp_d(d->loss_b / count),
    };
}
