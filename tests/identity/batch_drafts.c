/* identity/batch_drafts.c - see identity/batch_drafts.h. */
#include "identity/batch_drafts.h"

#include <string.h>

#include "base/check.h"
#include "engine/draft_model.h"
#include "engine/service.h"
#include "identity/models.h"
#include "spec/drafter.h"

enum draft_mode {
    DRAFTS_NONE,
    DRAFTS_NGRAM,
    DRAFTS_RIGHT,
    DRAFTS_RANDOM,
    DRAFTS_MIXED,
    DRAFTS_MODEL,
    DRAFTS_SUFFIX,
    DRAFTS_PREDICTED,
    DRAFT_MODES,
};

/* Not in step with the policies, which also follow from the number. */
static enum draft_mode mode_of(const struct batch_run *run) {
    return (enum draft_mode)((run->number + run->number / DRAFT_MODES + 1) % DRAFT_MODES);
}

struct speculate_option batch_drafts_option(const struct batch_run *run) {
    struct speculate_option option = speculate_option_default();
    /* The prediction of a request chooses its drafter, whatever the engine has. */
    if (mode_of(run) == DRAFTS_NONE || mode_of(run) == DRAFTS_PREDICTED) return option;
    if (mode_of(run) == DRAFTS_NGRAM) option.drafter = drafter_find("ngram");
    if (mode_of(run) == DRAFTS_SUFFIX) option.drafter = drafter_find("suffix");
    option.kind = option.drafter ? SPECULATE_TEXT : SPECULATE_MODEL;
    return option;
}

/* The answer that the request gets alone, with a few tokens inserted, left out or replaced. */
static uint32_t edit(struct rng *rng, const struct answer_bits *alone, uint32_t vocab,
                     int32_t *out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < alone->count; i++) {
        uint32_t drawn = (uint32_t)rng_below(rng, 24);
        if (drawn < 2) out[count++] = (int32_t)rng_below(rng, vocab);
        if (drawn == 1 || drawn == 2) continue;
        out[count++] = alone->tokens[i];
    }
    return count;
}

enum status batch_drafts_predict(struct batch_drafts *d, uint32_t request, struct speculation *out,
                                 struct err *err) {
    if (mode_of(d->run) != DRAFTS_PREDICTED) return ST_OK;
    const struct answer_bits *alone =
        test_model_reference(d->model, d->run->knobs.kv_type, request, 0, err);
    if (!alone) return ST_BAD;
    out->prediction = d->prediction;
    out->prediction_tokens = edit(&d->rng, alone, d->model->vocab, d->prediction);
    return ST_OK;
}

static uint32_t right_drafts(struct batch_drafts *d, uint32_t max) {
    if (mode_of(d->run) == DRAFTS_RIGHT) return max;
    return mode_of(d->run) == DRAFTS_MIXED ? (uint32_t)rng_below(&d->rng, max + 1) : 0;
}

static void answer(struct batch_drafts *d, struct draft_ask *ask) {
    const struct sched_seq *seq = sched_seq_at(engine_sched(d->service->engine), ask->seq);
    struct err err = {0};
    const struct answer_bits *alone = test_model_reference(
        d->model, d->run->knobs.kv_type, d->request_of(d->ctx, seq->request), seq->choice, &err);
    CHECK(alone);
    uint32_t right = right_drafts(d, ask->max), at = ask->count - seq->prompt_tokens;
    for (; ask->given < ask->max; ask->given++, at++)
        ask->out[ask->given] = ask->given < right && at < alone->count
                                   ? alone->tokens[at]
                                   : (int32_t)rng_below(&d->rng, d->model->vocab);
}

static void propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) answer(self, asks[i]);
}

static double cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    (void)self, (void)seqs, (void)tokens;
    return 0;
}

static void begin(void *self, seq_idx seq, const struct sampling *draw) {
    (void)self, (void)seq, (void)draw;
}
static void end(void *self, seq_idx seq) { (void)self, (void)seq; }

/* ---- a draft model that costs nothing ---- */

static void drafting_begin(void *self, seq_idx seq, const struct sampling *draw) {
    const struct draft_model *m = &((struct batch_drafts *)self)->inner;
    m->begin(m->self, seq, draw);
}

static void drafting_end(void *self, seq_idx seq) {
    const struct draft_model *m = &((struct batch_drafts *)self)->inner;
    m->end(m->self, seq);
}

static void drafting_propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    const struct draft_model *m = &((struct batch_drafts *)self)->inner;
    m->propose(m->self, asks, count);
    draft_model_verify(m);
    CHECK(!draft_model_stats(m).has_failed);
}

static void drafting_close(void *self) {
    const struct draft_model *m = &((struct batch_drafts *)self)->inner;
    m->close(m->self);
}

/* Another model of the same vocabulary in every second run that can have one. */
static const char *path_of(const struct batch_drafts *d) {
    static char other[4096];
    bool has_other = strcmp(d->model->name, "llama") == 0 && d->run->number / DRAFT_MODES % 2 == 0;
    return has_other && models_path("qwen2", other, sizeof(other)) ? other : d->model->path;
}

/* Few lanes, so that sequences wait for one. */
static enum status open_model(struct batch_drafts *d, struct err *err) {
    CHECK(d->run->knobs.kv_type < KV_TYPES);
    const struct draft_model_options o = {
        .load = {.tokens_only = true,
                 .device = d->run->device ? d->run->device : d->model->device,
                 .kv_type =
                     (enum kv_type[]){KV_F16, KV_F32, KV_I8, KV_F8, KV_I4}[d->run->knobs.kv_type]},
        .block_tokens = d->run->knobs.block_size,
        .seq_max = sched_seq_max(&d->run->knobs),
        .lanes = 1 + d->run->number % 5};
    struct draft_model_memory memory;
    return draft_model_open(path_of(d), &d->service->loaded, &o, &d->inner, &memory, err);
}

enum status batch_drafts_plug(struct batch_drafts *d, struct err *err) {
    struct draft_model model = {
        .begin = begin, .end = end, .propose = propose, .cost_us = cost_us, .self = d};
    d->rng = (struct rng){.seed = 70000 + d->run->number};
    if (mode_of(d->run) == DRAFTS_MODEL) {
        TRY(open_model(d, err));
        model.begin = drafting_begin;
        model.end = drafting_end;
        model.propose = drafting_propose;
        model.close = drafting_close;
    }
    spec_plug_model(engine_spec(d->service->engine), &model);
    return ST_OK;
}
