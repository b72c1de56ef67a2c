/* sample/sampler.c - see sample/sampler.h for the contract.
 *
 * Entry points: sample_params_default, sample_params_check, sample_scratch_create, sampler_create,
 * sampler_destroy, sampler_accept, sampler_begin_answer, sampler_rollback, sampler_fork,
 * sampler_pick, sampler_score.
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
#include "sample/dense.h"
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
    struct dense dense;
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
    if (!s->edits.list || !s->edits.deny) return ST_NOMEM;
    TRY(dense_init(&s->dense, s->vocab));
    return candidates_init(&s->candidates, s->vocab);
}

enum status sample_scratch_create(uint32_t vocab, struct sample_scratch **out) {
    CHECK(vocab > 0 && vocab <= SAMPLE_VOCAB_MAX);
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
    dense_deinit(&s->dense);
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
    CHECK(bounds->vocab > 0 && bounds->vocab <= SAMPLE_VOCAB_MAX);
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
    return s->params.temperature >= FLT_MIN ? s->params.seed : 0;
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

/* One number as base/fvec.h tames many. */
static float tame(float logit) {
    if (!(logit >= -FLT_MAX)) return -HUGE_VALF;
    if (fabsf(logit) < FLT_MIN) return 0.0f;
    return logit > FLT_MAX ? FLT_MAX : logit;
}

static float edited(float logit, const struct logit_edit *edit) {
    float scaled = logit > 0.0f ? logit / edit->scale : logit * edit->scale;
    return tame(scaled + edit->add);
}

static void deny(struct logit_edits *edits, float *logit, uint32_t vocab) {
    for (size_t i = 0; i < deny_words(vocab); i++) {
        for (uint64_t left = edits->deny[i]; left != 0; left &= left - 1)
            logit[i * 64 + (size_t)__builtin_ctzll(left)] = -HUGE_VALF;
        edits->deny[i] = 0;
    }
    edits->any_denied = false;
}

/* The logits become what all processors want them to be. */
static void apply_edits(const struct sampler *s, struct sample_scratch *scratch) {
    struct logit_edits *edits = &scratch->edits;
    float *logit = scratch->dense.logit;
    edits->count = 0;
    for (uint32_t i = 0; i < s->proc_count; i++) s->procs[i].kind->edit(s->procs[i].self, edits);
    for (uint32_t i = 0; i < edits->count; i++) {
        const struct logit_edit *edit = &edits->list[i];
        logit[edit->token] = edited(logit[edit->token], edit);
    }
    bool any_denied = edits->any_denied;
    if (any_denied) deny(edits, logit, scratch->vocab);
    if (any_denied || edits->count > 0) dense_survey(&scratch->dense);
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

static void weigh_from(struct sample_scratch *scratch, double exponent, float temperature) {
    struct candidates *c = &scratch->candidates;
    candidates_fill(c, &scratch->dense, floor_at(&scratch->dense, exponent, temperature));
    candidates_weigh(c, &scratch->dense, 1.0f / temperature);
}

/* top-p of the whole vocabulary. Tokens that are so small that all of them together could not
 * weigh what is to be left out are not looked at. */
static void cut_top_of_all(const struct sample_params *p, struct sample_scratch *scratch) {
    struct candidates *c = &scratch->candidates;
    uint64_t sum = dense_sum(&scratch->dense, 1.0f / p->temperature);
    uint64_t wanted = share_of(p->top_p, sum);
    double each = (double)(sum - wanted) / ((double)scratch->vocab * (double)FVEC_ONE);
    weigh_from(scratch, fmax(fm_log_d(each), (double)FVEC_EXPONENT_MIN), p->temperature);
    CHECK(c->sum >= wanted);
    candidates_cut_top(c, &scratch->dense, wanted);
}

static bool limits_count(const struct sample_params *p, uint32_t vocab) {
    return p->top_k > 0 && p->top_k < vocab;
}

/* top-k, typical and top-p, in this order. */
static void cut_prefixes(const struct sample_params *p, struct sample_scratch *scratch) {
    struct candidates *c = &scratch->candidates;
    struct dense *d = &scratch->dense;
    float scale = 1.0f / p->temperature;
    if (limits_count(p, scratch->vocab)) {
        candidates_fill(c, d, dense_floor(d, &c->select, p->top_k));
        candidates_weigh(c, d, scale);
        candidates_cut_count(c, d, p->top_k);
    } else if (p->typical_p < 1.0f) {
        weigh_from(scratch, (double)FVEC_EXPONENT_MIN, p->temperature);
    } else {
        cut_top_of_all(p, scratch);
        return;
    }
    if (p->typical_p < 1.0f) candidates_cut_typical(c, d, scale, share_of(p->typical_p, c->sum));
    if (p->top_p < 1.0f) candidates_cut_top(c, d, share_of(p->top_p, c->sum));
}

/* floor(bits * sum / 2^64): uniform below the sum. */
static uint64_t point_in(uint64_t sum, uint64_t bits) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)bits * sum >> 64);
}

static int32_t draw(const struct sample_params *p, struct sample_scratch *scratch,
                    uint64_t position) {
    struct candidates *c = &scratch->candidates;
    uint64_t bits = rng_at(p->seed, RNG_STREAM_SAMPLE, position);
    bool by_prefix = limits_count(p, scratch->vocab) || p->typical_p < 1.0f || p->top_p < 1.0f;
    if (!by_prefix && p->min_p <= 0.0f) {
        float scale = 1.0f / p->temperature;
        return dense_find(&scratch->dense, scale,
                          point_in(dense_sum(&scratch->dense, scale), bits));
    }
    if (by_prefix)
        cut_prefixes(p, scratch);
    else
        weigh_from(scratch, fmax(fm_log_d((double)p->min_p), (double)FVEC_EXPONENT_MIN),
                   p->temperature);
    if (p->min_p > 0.0f) candidates_cut_min(c, &scratch->dense, (double)p->min_p);
    return candidates_find(c, point_in(c->sum, bits));
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

static void fill_top(uint32_t wanted, struct sample_scratch *scratch, double log_sum,
                     struct sample_result *out) {
    struct candidates *c = &scratch->candidates;
    const struct dense *d = &scratch->dense;
    candidates_fill(c, d, dense_floor(d, &c->select, wanted));
    for (uint32_t i = 0; i < c->count; i++) remember_top(out, wanted, c->token[i], c->logit[i]);
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top[i].logprob = log_share(out->top[i].logprob, d->top, log_sum);
}

/* The likeliest ones of what was read, and what all of it adds up to. */
static double fill_logprobs(const struct sampler *s, struct sample_scratch *scratch,
                            struct sample_result *out) {
    if (!(scratch->dense.top > -HUGE_VALF)) return 0.0;
    double sum = (double)dense_sum(&scratch->dense, 1.0f) / (double)FVEC_ONE;
    double log_sum = fm_log_d(sum);
    if (s->params.top_logprobs > 0) fill_top(s->params.top_logprobs, scratch, log_sum, out);
    return log_sum;
}

static void read_logits(const struct sampler *s, struct sample_scratch *scratch,
                        const float *logits, struct sample_result *out) {
    CHECK(scratch->vocab == s->bounds.vocab);
    dense_read(&scratch->dense, logits);
    dense_survey(&scratch->dense);
    out->top_count = 0;
    out->chosen.logprob = 0.0f;
}

/* The likeliest token where nothing else is asked for: one look at the logits is enough. */
static bool pick_likeliest(const struct sampler *s, const struct sample_scratch *scratch,
                           const float *logits, struct sample_result *out) {
    CHECK(scratch->vocab == s->bounds.vocab);
    out->top_count = 0;
    out->chosen.logprob = 0.0f;
    return s->params.temperature < FLT_MIN && s->params.no_logprobs && s->proc_count == 0 &&
           dense_first_of(&scratch->dense, logits, &out->chosen.token);
}

enum status sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                         const float *logits, uint64_t position, struct sample_result *out) {
    bool wants_logprobs = !s->params.no_logprobs;
    if (pick_likeliest(s, scratch, logits, out)) return ST_OK;
    read_logits(s, scratch, logits, out);
    float top = scratch->dense.top;
    double log_sum = wants_logprobs ? fill_logprobs(s, scratch, out) : 0.0;
    if (s->proc_count > 0) apply_edits(s, scratch);
    if (!(scratch->dense.top > -HUGE_VALF)) return ST_BAD;
    bool draws = s->params.temperature >= FLT_MIN;
    int32_t token = draws ? draw(&s->params, scratch, position) : dense_first(&scratch->dense);
    out->chosen.token = token;
    if (wants_logprobs) out->chosen.logprob = log_share(tame(logits[token]), top, log_sum);
    return ST_OK;
}

void sampler_score(const struct sampler *s, struct sample_scratch *scratch, const float *logits,
                   int32_t token, struct sample_result *out) {
    CHECK(token >= 0 && (uint32_t)token < s->bounds.vocab);
    read_logits(s, scratch, logits, out);
    double log_sum = fill_logprobs(s, scratch, out);
    out->chosen.token = token;
    out->chosen.logprob = log_share(tame(logits[token]), scratch->dense.top, log_sum);
}
