/* sample/sampler.c - see sample/sampler.h for the contract.
 *
 * Entry points: sample_params_default, sample_params_check, sample_scratch_create, sampler_create,
 * sampler_destroy, sampler_accept, sampler_begin_answer, sampler_rollback, sampler_fork,
 * sampler_pick.
 */
#include "sample/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sample/candidates.h"
#include "sample/logit_proc.h"

enum { RNG_STREAM_SAMPLE = 1 }; /* other uses of a request's seed draw from other streams */

struct proc {
    const struct logit_proc *kind;
    void *self;
};

struct sampler {
    struct sample_params params; /* its pointers are not used after create */
    struct sample_bounds bounds;
    uint32_t proc_count;
    struct proc procs[LOGIT_PROCS_MAX];
};

struct sample_scratch {
    uint32_t vocab;
    struct logit_edits edits;
    float *work; /* [vocab], the logits after all edits */
    struct candidates candidates;
};

struct sample_params sample_params_default(void) {
    return (struct sample_params){
        .temperature = 0.8f,
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .repetition_penalty = 1.0f,
        .penalty_window = 64,
    };
}

static enum status check_range(const char *name, double value, double min, double max,
                               struct err *err) {
    if (value >= min && value <= max) return ST_OK; /* false for NaN */
    return err_set(err, ST_BAD, "%s is %.9g; it must be from %.9g to %.9g", name, value, min, max);
}

enum status sample_params_check(const struct sample_params *p, struct err *err) {
    const struct {
        const char *name;
        double value, min, max;
    } rows[] = {
        {"temperature", (double)p->temperature, 0.0, 10.0},
        {"top_k", (double)p->top_k, 0.0, (double)INT32_MAX},
        {"top_p", (double)p->top_p, 0.0, 1.0},
        {"min_p", (double)p->min_p, 0.0, 1.0},
        {"typical_p", (double)p->typical_p, 0.0, 1.0},
        {"repetition_penalty", (double)p->repetition_penalty, 0.01, 100.0},
        {"presence_penalty", (double)p->presence_penalty, -2.0, 2.0},
        {"frequency_penalty", (double)p->frequency_penalty, -2.0, 2.0},
        {"penalty_window", (double)p->penalty_window, -1.0, (double)PENALTY_WINDOW_MAX},
        {"the number of logit biases", (double)p->bias_count, 0.0, (double)LOGIT_BIAS_MAX},
        {"top_logprobs", (double)p->top_logprobs, 0.0, (double)TOP_LOGPROBS_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        TRY(check_range(rows[i].name, rows[i].value, rows[i].min, rows[i].max, err));
    for (uint32_t i = 0; i < p->bias_count; i++)
        if (p->bias[i].bias != -HUGE_VALF)
            TRY(check_range("a logit bias", (double)p->bias[i].bias, -1e6, 1e6, err));
    return ST_OK;
}

void logit_edits_add(struct logit_edits *e, struct logit_edit edit) {
    CHECK(e->count < e->cap);
    e->list[e->count++] = edit;
}

void logit_edits_deny(struct logit_edits *e, int32_t token) {
    e->deny[token / 64] |= UINT64_C(1) << (token % 64);
    e->any_denied = true;
}

static size_t deny_words(uint32_t vocab) { return ((size_t)vocab + 63) / 64; }

static enum status take_memory(struct sample_scratch *s) {
    s->edits.cap = s->vocab + LOGIT_BIAS_MAX;
    s->edits.list = mem_alloc_array(s->edits.cap, sizeof(s->edits.list[0]));
    s->edits.deny = mem_zalloc_array(deny_words(s->vocab), sizeof(s->edits.deny[0]));
    s->work = mem_alloc_array(s->vocab, sizeof(s->work[0]));
    if (!s->edits.list || !s->edits.deny || !s->work) return ST_NOMEM;
    return candidates_init(&s->candidates, s->vocab);
}

enum status sample_scratch_create(uint32_t vocab, struct sample_scratch **out) {
    CHECK(vocab > 0 && vocab < INT32_MAX);
    struct sample_scratch *s = mem_zalloc(sizeof(*s));
    if (!s) return ST_NOMEM;
    s->vocab = vocab;
    if (take_memory(s) != ST_OK) {
        sample_scratch_destroy(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void sample_scratch_destroy(struct sample_scratch *s) {
    if (!s) return;
    mem_free(s->edits.list);
    mem_free(s->edits.deny);
    mem_free(s->work);
    candidates_deinit(&s->candidates);
    mem_free(s);
}

static enum status create_procs(struct sampler *s, const struct sample_params *p, struct err *err) {
    for (const struct logit_proc *const *kind = logit_procs; *kind; kind++) {
        void *self = NULL;
        TRY((*kind)->create(p, &s->bounds, &self, err));
        if (self) s->procs[s->proc_count++] = (struct proc){*kind, self};
    }
    return ST_OK;
}

enum status sampler_create(const struct sample_params *p, const struct sample_bounds *bounds,
                           struct sampler **out, struct err *err) {
    CHECK(bounds->vocab > 0 && bounds->vocab < INT32_MAX);
    TRY(sample_params_check(p, err));
    struct sampler *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "sampler: out of memory");
    s->params = *p;
    s->params.bias = NULL;
    s->params.ends = NULL;
    s->bounds = *bounds;
    enum status st = create_procs(s, p, err);
    if (st != ST_OK) {
        sampler_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void sampler_destroy(struct sampler *s) {
    if (!s) return;
    for (uint32_t i = s->proc_count; i-- > 0;) s->procs[i].kind->destroy(s->procs[i].self);
    mem_free(s);
}

enum status sampler_fork(const struct sampler *s, struct sampler **out) {
    struct sampler *f = mem_zalloc(sizeof(*f));
    if (!f) return ST_NOMEM;
    f->params = s->params;
    f->bounds = s->bounds;
    enum status st = ST_OK;
    for (uint32_t i = 0; i < s->proc_count && st == ST_OK; i++) {
        void *self = NULL;
        st = s->procs[i].kind->fork(s->procs[i].self, &self);
        if (st == ST_OK) f->procs[f->proc_count++] = (struct proc){s->procs[i].kind, self};
    }
    if (st != ST_OK) {
        sampler_destroy(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

uint64_t sampler_seed(const struct sampler *s) {
    return s->params.temperature > 0.0f ? s->params.seed : 0;
}

void sampler_accept(struct sampler *s, int32_t token) {
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->accept) s->procs[i].kind->accept(s->procs[i].self, token);
}

void sampler_begin_answer(struct sampler *s) {
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->begin_answer) s->procs[i].kind->begin_answer(s->procs[i].self);
}

void sampler_rollback(struct sampler *s, uint32_t count) {
    CHECK(count <= SAMPLE_ROLLBACK_MAX);
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->rollback) s->procs[i].kind->rollback(s->procs[i].self, count);
}

/* NaN becomes minus infinity and plus infinity the largest number. */
static float tame(float logit) {
    if (!(logit >= -FLT_MAX)) return -HUGE_VALF;
    return logit > FLT_MAX ? FLT_MAX : logit;
}

static float edited(float logit, const struct logit_edit *edit) {
    float scaled = logit > 0.0f ? logit / edit->scale : logit * edit->scale;
    return tame(scaled + edit->add);
}

/* scratch->work = the logits as all processors want them. */
static void apply_edits(const struct sampler *s, struct sample_scratch *scratch,
                        const float *logits) {
    struct logit_edits *edits = &scratch->edits;
    float *work = scratch->work;
    for (uint32_t t = 0; t < scratch->vocab; t++) work[t] = tame(logits[t]);
    edits->count = 0;
    if (edits->any_denied)
        memset(edits->deny, 0, deny_words(scratch->vocab) * sizeof(edits->deny[0]));
    edits->any_denied = false;
    for (uint32_t i = 0; i < s->proc_count; i++) s->procs[i].kind->edit(s->procs[i].self, edits);
    for (uint32_t i = 0; i < edits->count; i++) {
        const struct logit_edit *edit = &edits->list[i];
        work[edit->token] = edited(work[edit->token], edit);
    }
    if (!edits->any_denied) return;
    for (uint32_t t = 0; t < scratch->vocab; t++)
        if (edits->deny[t / 64] >> (t % 64) & 1) work[t] = -HUGE_VALF;
}

static int32_t first_in_rank(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t t = 1; t < vocab; t++)
        if (logits[t] > logits[best]) best = t;
    return (int32_t)best;
}

static int32_t draw(const struct sample_params *p, struct sample_scratch *scratch,
                    uint64_t position) {
    struct candidates *c = &scratch->candidates;
    candidates_fill(c, scratch->work, scratch->vocab, p->top_k);
    candidates_weigh(c, p->temperature);
    if (p->typical_p < 1.0f) candidates_cut_typical(c, (double)p->typical_p);
    if (p->top_p < 1.0f) candidates_cut_top(c, (double)p->top_p);
    if (p->min_p > 0.0f) candidates_cut_min(c, (double)p->min_p);
    return candidates_draw(c, rng_unit_at(p->seed, RNG_STREAM_SAMPLE, position));
}

/* Insert `t` into the first `max` in rank; a logit of NaN or minus infinity never gets in. */
static void remember_top(struct sample_result *out, uint32_t max, int32_t t, float logit) {
    uint32_t at = out->top_count;
    while (at > 0 && out->top[at - 1].logprob < logit) at--;
    if (at >= max || !(logit > -HUGE_VALF)) return;
    if (out->top_count < max) out->top_count++;
    for (uint32_t i = out->top_count - 1; i > at; i--) out->top[i] = out->top[i - 1];
    out->top[at] = (struct token_logprob){t, logit};
}

/* log softmax at one logit, given the largest and the logarithm of the sum of exp(l - top). A
 * model that says plus infinity leaves nothing for the others. */
static float log_share(float logit, float top, double log_sum) {
    if (top > FLT_MAX) return logit > FLT_MAX ? 0.0f : -HUGE_VALF;
    return (float)((double)logit - (double)top - log_sum);
}

static void fill_logprobs(const struct sampler *s, const float *logits, struct sample_result *out) {
    uint32_t vocab = s->bounds.vocab, wanted = s->params.top_logprobs;
    float top = -HUGE_VALF;
    for (uint32_t t = 0; t < vocab; t++)
        if (logits[t] > top) top = logits[t];
    double log_sum = top <= FLT_MAX ? fm_log_d(fm_sum_exp(logits, vocab, top)) : 0.0;
    out->chosen.logprob = log_share(logits[out->chosen.token], top, log_sum);
    out->top_count = 0;
    if (wanted == 0) return;
    for (uint32_t t = 0; t < vocab; t++) {
        bool full = out->top_count == wanted;
        if (full && !(logits[t] > out->top[out->top_count - 1].logprob)) continue;
        remember_top(out, wanted, (int32_t)t, logits[t]);
    }
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top[i].logprob = log_share(out->top[i].logprob, top, log_sum);
}

enum status sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                         const float *logits, uint64_t position, struct sample_result *out) {
    CHECK(scratch->vocab == s->bounds.vocab);
    apply_edits(s, scratch, logits);
    int32_t best = first_in_rank(scratch->work, scratch->vocab);
    if (!(scratch->work[best] > -HUGE_VALF)) return ST_BAD;
    bool draws = s->params.temperature > 0.0f;
    out->chosen.token = draws ? draw(&s->params, scratch, position) : best;
    out->chosen.logprob = 0.0f;
    out->top_count = 0;
    if (!s->params.no_logprobs) fill_logprobs(s, logits, out);
    return ST_OK;
}

void sampler_score(const struct sampler *s, const float *logits, int32_t token,
                   struct sample_result *out) {
    CHECK(token >= 0 && (uint32_t)token < s->bounds.vocab);
    out->chosen.token = token;
    fill_logprobs(s, logits, out);
}
