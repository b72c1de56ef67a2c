/* kernels/cpu/row_sampler.c - see kernels/cpu/row_sampler.h for the contract.
 *
 * Nothing is sorted and most tokens are never looked at one by one: sample_dense.h works on the
 * whole vocabulary in vectors, sample_candidates.h on the few tokens that a cut may leave.
 */
#include "kernels/cpu/row_sampler.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "base/rng.h"
#include "graph/sampling.h"
#include "kernels/cpu/sample_candidates.h"
#include "kernels/cpu/sample_dense.h"

struct row_sampler {
    uint32_t vocab;
    struct dense dense;
    struct candidates candidates;
};

enum status row_sampler_create(uint32_t vocab, struct row_sampler **out) {
    CHECK(vocab > 0 && vocab <= SAMPLING_VOCAB_MAX);
    struct row_sampler *c = mem_zalloc(sizeof(*c));
    if (!c) return ST_NOMEM;
    c->vocab = vocab;
    enum status st = dense_init(&c->dense, vocab);
    if (st == ST_OK) st = candidates_init(&c->candidates, vocab);
    if (st != ST_OK) {
        row_sampler_destroy(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

void row_sampler_destroy(struct row_sampler *c) {
    if (!c) return;
    dense_deinit(&c->dense);
    candidates_deinit(&c->candidates);
    mem_free(c);
}

static bool is_in_vocab(const struct row_sampler *c, int32_t token) {
    return token >= 0 && (uint32_t)token < c->vocab;
}

/* ---- edits ---- */

/* One number as base/fvec.h tames many. */
static float tame(float logit) {
    if (!(logit >= -FLT_MAX)) return -HUGE_VALF;
    if (fabsf(logit) < FLT_MIN) return 0.0f;
    return logit > FLT_MAX ? FLT_MAX : logit;
}

static void edit_one(struct row_sampler *c, int32_t token, float scale, float add) {
    CHECK(is_in_vocab(c, token));
    float *logit = &c->dense.logit[token];
    float scaled = *logit > 0.0f ? *logit / scale : *logit * scale;
    *logit = tame(scaled + add);
}

/* The penalties, of which the pending token is one more occurrence. */
static void edit_seen(struct row_sampler *c, const struct sampling *s,
                      const struct logit_edit *list, int32_t pending) {
    bool is_fresh = true;
    for (uint32_t i = 0; i < s->seen_count; i++) {
        bool is_again = list[i].token == pending;
        edit_one(c, list[i].token, list[i].scale, is_again ? list[i].add_again : list[i].add);
        is_fresh = is_fresh && !is_again;
    }
    if (is_fresh) edit_one(c, pending, s->fresh_scale, s->fresh_add);
}

/* Bits behind the vocabulary do no harm: the copy is minus infinity there already. Of a grammar's
 * mask most words are full. */
static void deny(struct row_sampler *c, const uint64_t *mask) {
    for (size_t i = 0; i < ((size_t)c->vocab + 63) / 64; i++) {
        float *logit = c->dense.logit + i * 64;
        if (mask[i] == UINT64_MAX) {
            for (size_t t = 0; t < 64; t++) logit[t] = -HUGE_VALF;
            continue;
        }
        for (uint64_t left = mask[i]; left != 0; left &= left - 1)
            logit[__builtin_ctzll(left)] = -HUGE_VALF;
    }
}

static bool is_edited(const struct sampling *s) {
    return s->edit_count > 0 || s->is_pending || s->deny_first != SAMPLING_NONE;
}

static void apply_edits(struct row_sampler *c, const struct sampling *s,
                        const struct sampling_tables *tables, int32_t pending) {
    const struct logit_edit *list = s->edit_count > 0 ? tables->edits + s->edit_first : NULL;
    uint32_t done = 0;
    CHECK(s->seen_count <= s->edit_count);
    if (s->is_pending) {
        edit_seen(c, s, list, pending);
        done = s->seen_count;
    }
    for (uint32_t i = done; i < s->edit_count; i++)
        edit_one(c, list[i].token, list[i].scale, list[i].add);
    if (s->deny_first != SAMPLING_NONE) deny(c, tables->deny + s->deny_first);
    dense_survey(&c->dense);
}

/* ---- the draw ---- */

/* A logit below which an exponent is less than `exponent` for certain. */
static float floor_at(const struct dense *d, double exponent, float temperature) {
    double floor = (double)d->top + (exponent - 1.0) * (double)temperature;
    return floor > -(double)FLT_MAX ? (float)floor : -FLT_MAX;
}

/* The weight that is a share of the sum; not nothing, as a prefix holds something. */
static uint64_t share_of(float share, uint64_t sum) {
    return (uint64_t)fmax(ceil((double)share * (double)sum), 1.0);
}

static void weigh_from(struct row_sampler *c, double exponent, float temperature) {
    candidates_fill(&c->candidates, &c->dense, floor_at(&c->dense, exponent, temperature));
    candidates_weigh(&c->candidates, &c->dense, 1.0f / temperature);
}

/* top-p of the whole vocabulary. Tokens that are so small that all of them together could not
 * weigh what is to be left out are not looked at. */
static void cut_top_of_all(struct row_sampler *c, const struct sampling *s) {
    uint64_t sum = dense_sum(&c->dense, 1.0f / s->temperature);
    uint64_t wanted = share_of(s->top_p, sum);
    double each = (double)(sum - wanted) / ((double)c->vocab * (double)FVEC_ONE);
    weigh_from(c, fmax(fm_log_d(each), (double)FVEC_EXPONENT_MIN), s->temperature);
    CHECK(c->candidates.sum >= wanted);
    candidates_cut_top(&c->candidates, &c->dense, wanted);
}

static bool limits_count(const struct row_sampler *c, const struct sampling *s) {
    return s->top_k > 0 && s->top_k < c->vocab;
}

/* top-k, typical and top-p, in this order. */
static void cut_prefixes(struct row_sampler *c, const struct sampling *s) {
    struct candidates *left = &c->candidates;
    struct dense *d = &c->dense;
    float scale = 1.0f / s->temperature;
    if (limits_count(c, s)) {
        candidates_fill(left, d, dense_floor(d, &left->select, s->top_k));
        candidates_weigh(left, d, scale);
        candidates_cut_count(left, d, s->top_k);
    } else if (s->typical_p < 1.0f) {
        weigh_from(c, (double)FVEC_EXPONENT_MIN, s->temperature);
    } else {
        cut_top_of_all(c, s);
        return;
    }
    if (s->typical_p < 1.0f)
        candidates_cut_typical(left, d, scale, share_of(s->typical_p, left->sum));
    if (s->top_p < 1.0f) candidates_cut_top(left, d, share_of(s->top_p, left->sum));
}

/* floor(bits * sum / 2^64): uniform below the sum. */
static uint64_t point_in(uint64_t sum, uint64_t bits) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)bits * sum >> 64);
}

static int32_t draw(struct row_sampler *c, const struct sampling *s) {
    uint64_t bits = rng_at(s->seed, SAMPLING_RNG_STREAM, s->position);
    bool by_prefix = limits_count(c, s) || s->typical_p < 1.0f || s->top_p < 1.0f;
    if (!by_prefix && s->min_p <= 0.0f) {
        float scale = 1.0f / s->temperature;
        return dense_find(&c->dense, scale, point_in(dense_sum(&c->dense, scale), bits));
    }
    if (by_prefix)
        cut_prefixes(c, s);
    else
        weigh_from(c, fmax(fm_log_d((double)s->min_p), (double)FVEC_EXPONENT_MIN), s->temperature);
    if (s->min_p > 0.0f) candidates_cut_min(&c->candidates, &c->dense, (double)s->min_p);
    return candidates_find(&c->candidates, point_in(c->candidates.sum, bits));
}

/* ---- logprobs ---- */

/* log softmax at one logit, given the largest and the logarithm of the sum of exp(l - top). */
static float log_share(float logit, float top, double log_sum) {
    if (!(logit > -HUGE_VALF)) return -HUGE_VALF;
    return (float)((double)logit - (double)top - log_sum);
}

/* Insert `t` into the first `max` in rank. */
static void remember_top(struct sample_result *out, uint32_t max, uint32_t t, float logit) {
    if (out->top_count == max && !(logit > out->top[max - 1].logprob)) return;
    uint32_t at = out->top_count < max ? out->top_count++ : max - 1;
    for (; at > 0 && out->top[at - 1].logprob < logit; at--) out->top[at] = out->top[at - 1];
    out->top[at] = (struct token_logprob){(int32_t)t, logit};
}

static void fill_top(struct row_sampler *c, uint32_t wanted, double log_sum,
                     struct sample_result *out) {
    struct candidates *left = &c->candidates;
    const struct dense *d = &c->dense;
    CHECK(wanted <= TOP_LOGPROBS_MAX);
    candidates_fill(left, d, dense_floor(d, &left->select, wanted));
    for (uint32_t i = 0; i < left->count; i++)
        remember_top(out, wanted, left->token[i], left->logit[i]);
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top[i].logprob = log_share(out->top[i].logprob, d->top, log_sum);
}

/* The most likely tokens, and the logarithm of the sum over all. */
static double fill_logprobs(struct row_sampler *c, uint32_t top_count, struct sample_result *out) {
    if (!(c->dense.top > -HUGE_VALF)) return 0.0;
    double log_sum = fm_log_d((double)dense_sum(&c->dense, 1.0f) / (double)FVEC_ONE);
    if (top_count > 0) fill_top(c, top_count, log_sum, out);
    return log_sum;
}

/* ---- entry point ---- */

static bool is_greedy(const struct sampling *s) { return s->temperature < FLT_MIN; }

/* The most likely token, if nothing else is wanted: one pass over the logits. */
static bool sample_greedy(const struct row_sampler *c, const struct sampling *s,
                          const float *logits, struct sample_result *out) {
    return is_greedy(s) && !s->wants_logprob && !is_edited(s) &&
           dense_first_of(&c->dense, logits, &out->chosen.token);
}

static enum status sample_drawn(struct row_sampler *c, const struct sampling *s,
                                const struct sampling_tables *tables, int32_t pending,
                                const float *logits, struct sample_result *out) {
    float top = c->dense.top;
    double log_sum = s->wants_logprob ? fill_logprobs(c, s->top_count, out) : 0.0;
    if (s->is_pending && !is_in_vocab(c, pending)) return ST_BAD;
    if (is_edited(s)) apply_edits(c, s, tables, pending);
    if (!(c->dense.top > -HUGE_VALF)) return ST_BAD;
    int32_t token = is_greedy(s) ? dense_first(&c->dense) : draw(c, s);
    out->chosen.token = token;
    if (s->wants_logprob) out->chosen.logprob = log_share(tame(logits[token]), top, log_sum);
    return ST_OK;
}

static void score(struct row_sampler *c, const struct sampling *s, const float *logits,
                  struct sample_result *out) {
    CHECK(is_in_vocab(c, s->token));
    double log_sum = fill_logprobs(c, s->top_count, out);
    out->chosen.token = s->token;
    out->chosen.logprob = log_share(tame(logits[s->token]), c->dense.top, log_sum);
}

enum status row_sampler_run(struct row_sampler *c, const struct sampling *s,
                            const struct sampling_tables *tables, int32_t pending,
                            const float *logits, struct sample_result *out) {
    CHECK(s->kind == SAMPLING_DRAW || s->kind == SAMPLING_SCORE);
    out->top_count = 0;
    out->chosen.logprob = 0.0f;
    if (s->kind == SAMPLING_DRAW && sample_greedy(c, s, logits, out)) return ST_OK;
    dense_read(&c->dense, logits);
    dense_survey(&c->dense);
    if (s->kind == SAMPLING_DRAW) return sample_drawn(c, s, tables, pending, logits, out);
    score(c, s, logits, out);
    return ST_OK;
}
