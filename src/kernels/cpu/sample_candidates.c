/* kernels/cpu/sample_candidates.c - see kernels/cpu/sample_candidates.h. */
#include "kernels/cpu/sample_candidates.h"

#include <math.h>

#include "base/check.h"
#include "base/mem.h"

enum status candidates_init(struct candidates *c, uint32_t vocab) {
    size_t cap = fvec_chunks(vocab) * FVEC_CHUNK; /* what fvec's take may write to */
    *c = (struct candidates){0};
    c->token = mem_alloc_array(cap, sizeof(c->token[0]));
    c->logit = mem_alloc_array(cap, sizeof(c->logit[0]));
    c->weight = mem_alloc_array(cap, sizeof(c->weight[0]));
    c->nearness = mem_alloc_array(cap, sizeof(c->nearness[0]));
    bool has_room = c->token && c->logit && c->weight && c->nearness;
    if (has_room && select_init(&c->select, (uint32_t)cap) == ST_OK) return ST_OK;
    candidates_deinit(c);
    return ST_NOMEM;
}

void candidates_deinit(struct candidates *c) {
    mem_free(c->token);
    mem_free(c->logit);
    mem_free(c->weight);
    mem_free(c->nearness);
    select_deinit(&c->select);
    *c = (struct candidates){0};
}

void candidates_fill(struct candidates *c, const struct dense *d, float floor) {
    CHECK(floor > -HUGE_VALF);
    c->count = (uint32_t)d->fvec->take(d->logit, d->chunks, floor, c->token, c->logit);
    c->floor = floor > d->low ? floor : d->low;
}

void candidates_weigh(struct candidates *c, const struct dense *d, float scale) {
    c->sum = d->fvec->weigh(c->logit, c->count, d->top, scale, c->weight);
}

/* Keep the shortest prefix, largest numbers first, whose masses add up to `wanted`. */
static void keep_prefix(struct candidates *c, const struct dense *d,
                        const struct select_things *things, uint64_t wanted) {
    struct select_end end = select_prefix(&c->select, things, wanted);
    c->sum = d->fvec->keep(things->number, c->count, end.number, end.place + (size_t)1, c->weight);
}

static struct select_things by_rank(const struct candidates *c, const struct dense *d,
                                    const uint64_t *mass) {
    return (struct select_things){
        .number = c->logit, .mass = mass, .count = c->count, .first = d->top, .last = c->floor};
}

void candidates_cut_count(struct candidates *c, const struct dense *d, uint32_t top_k) {
    if (top_k >= c->count) return;
    const struct select_things things = by_rank(c, d, NULL);
    keep_prefix(c, d, &things, top_k);
}

void candidates_cut_top(struct candidates *c, const struct dense *d, uint64_t wanted) {
    const struct select_things things = by_rank(c, d, c->weight);
    keep_prefix(c, d, &things, wanted);
}

static float exponent(const struct candidates *c, uint32_t i, float top, float scale) {
    return (c->logit[i] - top) * scale;
}

/* The mean exponent. Each term is cut to a whole number, so that the sum has no order. */
static float mean_exponent(const struct candidates *c, float top, float scale) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->weight[i] > 0)
            sum += (int64_t)((double)(int64_t)c->weight[i] * (double)exponent(c, i, top, scale));
    return (float)((double)sum / (double)c->sum);
}

/* -log p is log S - x with x the exponent and S the sum of weights, and H is log S - sum p x:
 * their distance is that of x from its mean. */
void candidates_cut_typical(struct candidates *c, const struct dense *d, float scale,
                            uint64_t wanted) {
    float mean = mean_exponent(c, d->top, scale);
    for (uint32_t i = 0; i < c->count; i++)
        c->nearness[i] = 0.0f - fabsf(exponent(c, i, d->top, scale) - mean);
    const struct select_things things = {.number = c->nearness,
                                         .mass = c->weight,
                                         .count = c->count,
                                         .first = 0.0f,
                                         .last = FVEC_EXPONENT_MIN};
    keep_prefix(c, d, &things, wanted);
}

void candidates_cut_min(struct candidates *c, const struct dense *d, double ratio) {
    c->sum = d->fvec->prune(c->weight, c->count, ratio);
}

/* Sixteen at a time, because one subtraction after the other takes long. */
int32_t candidates_find(const struct candidates *c, uint64_t target) {
    enum { GROUP = 16 };
    uint32_t i = 0;
    CHECK(target < c->sum);
    for (; i + GROUP <= c->count; i += GROUP) {
        uint64_t sum = 0;
        for (uint32_t j = i; j < i + GROUP; j++) sum += c->weight[j];
        if (target < sum) break;
        target -= sum;
    }
    for (; target >= c->weight[i]; i++) target -= c->weight[i];
    return (int32_t)c->token[i];
}
