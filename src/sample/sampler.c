/* sample/sampler.c - see sample/sampler.h for the contract. */
#include "sample/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"

_Static_assert(SAMPLE_TOP_LOGPROBS(SAMPLE_MOST_OF) == TOP_LOGPROBS_MAX, "same limit");

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

struct sample_params sample_params_default(void) {
    return (struct sample_params){
        .temperature = (float)SAMPLE_TEMPERATURE(SAMPLE_FALLBACK_OF),
        .top_p = (float)SAMPLE_TOP_P(SAMPLE_FALLBACK_OF),
        .typical_p = (float)SAMPLE_TYPICAL_P(SAMPLE_FALLBACK_OF),
        .repetition_penalty = (float)SAMPLE_REPETITION_PENALTY(SAMPLE_FALLBACK_OF),
        .penalty_window = SAMPLE_PENALTY_WINDOW(SAMPLE_FALLBACK_OF),
    };
}

enum status sample_params_check(const struct sample_params *p, struct err *err) {
    TRY(sample_range_check(SAMPLE_AT_temperature, (double)p->temperature, err));
    TRY(sample_range_check(SAMPLE_AT_top_k, (double)p->top_k, err));
    TRY(sample_range_check(SAMPLE_AT_top_p, (double)p->top_p, err));
    TRY(sample_range_check(SAMPLE_AT_min_p, (double)p->min_p, err));
    TRY(sample_range_check(SAMPLE_AT_typical_p, (double)p->typical_p, err));
    TRY(sample_range_check(SAMPLE_AT_repetition_penalty, (double)p->repetition_penalty, err));
    TRY(sample_range_check(SAMPLE_AT_presence_penalty, (double)p->presence_penalty, err));
    TRY(sample_range_check(SAMPLE_AT_frequency_penalty, (double)p->frequency_penalty, err));
    TRY(sample_range_check(SAMPLE_AT_penalty_window, (double)p->penalty_window, err));
    TRY(sample_range_check(SAMPLE_AT_top_logprobs, (double)p->top_logprobs, err));
    if (p->bias_count > LOGIT_BIAS_MAX)
        return err_set(err, ST_BAD, "%u logit biases; at most %d are possible", p->bias_count,
                       LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < p->bias_count; i++)
        if (p->bias[i].bias != -HUGE_VALF)
            TRY(sample_range_check(SAMPLE_AT_logit_bias, (double)p->bias[i].bias, err));
    return ST_OK;
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
    CHECK(bounds->vocab > 0 && bounds->vocab <= SAMPLING_VOCAB_MAX);
    TRY(sample_params_check(p, err));
    struct sampler *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "sampler: out of memory");
    s->params = *p;
    s->params.bias = NULL;
    s->params.ends = NULL;
    s->params.grammar = NULL;
    s->params.thinking = (struct sample_thinking){.has_budget = false};
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

bool sampler_is_over(const struct sampler *s) {
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->is_over && s->procs[i].kind->is_over(s->procs[i].self)) return true;
    return false;
}

enum status sampler_explain(const struct sampler *s, struct err *err) {
    enum status st = ST_OK;
    for (uint32_t i = 0; i < s->proc_count && st == ST_OK; i++)
        if (s->procs[i].kind->explain)
            st = s->procs[i].kind->explain(s->procs[i].self, s->params.bias_count > 0, err);
    return st;
}

bool sampler_settle(struct sampler *s, bool is_quick) {
    bool is_done = true;
    for (uint32_t i = 0; i < s->proc_count && is_done; i++)
        if (s->procs[i].kind->settle)
            is_done = s->procs[i].kind->settle(s->procs[i].self, is_quick);
    return is_done;
}

uint32_t sampler_forced(const struct sampler *s, int32_t out[SAMPLE_FORCED_MAX]) {
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->forced) return s->procs[i].kind->forced(s->procs[i].self, out);
    return 0;
}

void sampler_rollback(struct sampler *s, uint32_t count) {
    CHECK(count <= SAMPLE_ROLLBACK_MAX);
    for (uint32_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].kind->rollback) s->procs[i].kind->rollback(s->procs[i].self, count);
}

/* ---- descriptions ---- */

void logit_edits_add(struct logit_edits *e, struct logit_edit edit) {
    struct sampling_tables *t = e->tables;
    if (t->edit_count == t->edit_cap) {
        e->is_full = true;
        return;
    }
    t->edits[t->edit_count++] = edit;
    e->sampling->edit_count++;
}

uint64_t *logit_edits_new_mask(struct logit_edits *e) {
    struct sampling_tables *t = e->tables;
    uint32_t words = (e->vocab + 63) / 64;
    CHECK(e->sampling->deny_first == SAMPLING_NONE);
    if (t->deny_cap - t->deny_count < words) {
        e->is_full = true;
        return NULL;
    }
    e->sampling->deny_first = t->deny_count;
    t->deny_count += words;
    return t->deny + e->sampling->deny_first;
}

void logit_edits_deny(struct logit_edits *e, const uint64_t *mask) {
    uint32_t words = (e->vocab + 63) / 64;
    if (e->sampling->deny_first == SAMPLING_NONE) {
        uint64_t *first = logit_edits_new_mask(e);
        if (!first) return;
        memset(first, 0, words * sizeof(*first));
    }
    uint64_t *all = e->tables->deny + e->sampling->deny_first;
    for (uint32_t i = 0; i < words; i++) all[i] |= mask[i];
}

void logit_edits_allow_only(struct logit_edits *e, int32_t token) {
    const uint32_t words = (e->vocab + 63) / 64, word = (uint32_t)token / 64;
    const uint64_t bit = UINT64_C(1) << token % 64;
    const bool has_mask = e->sampling->deny_first != SAMPLING_NONE;
    uint64_t *mask = has_mask ? e->tables->deny + e->sampling->deny_first : logit_edits_new_mask(e);
    if (!mask || (has_mask && mask[word] & bit)) return;
    memset(mask, 0xff, words * sizeof(*mask));
    mask[word] &= ~bit;
}

uint32_t sampler_edits_max(const struct sampler *s) {
    uint32_t max = 0;
    for (uint32_t i = 0; i < s->proc_count; i++)
        max += s->procs[i].kind->edits_max(s->procs[i].self);
    return max;
}

static struct sampling settings_of(const struct sample_params *p, uint64_t position) {
    return (struct sampling){.kind = SAMPLING_DRAW,
                             .slot = SAMPLING_NONE,
                             .token = -1,
                             .temperature = p->temperature,
                             .top_k = p->top_k,
                             .top_p = p->top_p,
                             .min_p = p->min_p,
                             .typical_p = p->typical_p,
                             .seed = p->seed,
                             .position = position,
                             .fresh_scale = 1.0f,
                             .deny_first = SAMPLING_NONE,
                             .wants_logprob = !p->no_logprobs,
                             .top_count = p->no_logprobs ? 0 : p->top_logprobs};
}

enum status sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                             struct sampling_tables *tables, struct sampling *out) {
    struct sampling sampling = settings_of(&s->params, position);
    struct logit_edits edits = {.tables = tables, .sampling = &sampling, .vocab = s->bounds.vocab};
    uint32_t edit_count = tables->edit_count, deny_count = tables->deny_count;
    sampling.edit_first = edit_count;
    for (uint32_t i = 0; i < s->proc_count && !edits.is_full; i++)
        s->procs[i].kind->edit(s->procs[i].self, is_pending, &edits);
    if (edits.is_full) {
        tables->edit_count = edit_count;
        tables->deny_count = deny_count;
        return ST_FULL;
    }
    *out = sampling;
    return ST_OK;
}

void sampler_describe_guess(const struct sampler *s, uint64_t position, struct sampling *out) {
    *out = settings_of(&s->params, position);
    out->wants_logprob = false;
    out->top_count = 0;
}

void sampler_describe_score(const struct sampler *s, int32_t token, struct sampling *out) {
    CHECK(token >= 0 && (uint32_t)token < s->bounds.vocab);
    *out = (struct sampling){.kind = SAMPLING_SCORE,
                             .slot = SAMPLING_NONE,
                             .token = token,
                             .top_p = 1.0f,
                             .typical_p = 1.0f,
                             .fresh_scale = 1.0f,
                             .deny_first = SAMPLING_NONE,
                             .wants_logprob = true,
                             .top_count = s->params.top_logprobs};
}
