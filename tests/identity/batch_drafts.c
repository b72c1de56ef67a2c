/* identity/batch_drafts.c - see identity/batch_drafts.h. */
#include "identity/batch_drafts.h"

#include "base/check.h"
#include "engine/engine.h"
#include "spec/drafter.h"
#include "spec/spec.h"

enum draft_mode {
    DRAFTS_NONE,
    DRAFTS_NGRAM,
    DRAFTS_RIGHT,
    DRAFTS_RANDOM,
    DRAFTS_MIXED,
    DRAFT_MODES,
};

/* Not in step with the policies, which also follow from the number. */
static enum draft_mode mode_of(const struct batch_run *run) {
    return (enum draft_mode)((run->number + run->number / DRAFT_MODES + 1) % DRAFT_MODES);
}

struct speculate_option batch_drafts_option(const struct batch_run *run) {
    struct speculate_option option = speculate_option_default();
    if (mode_of(run) == DRAFTS_NONE) return option;
    option.kind = mode_of(run) == DRAFTS_NGRAM ? SPECULATE_TEXT : SPECULATE_MODEL;
    if (mode_of(run) == DRAFTS_NGRAM) option.drafter = drafter_find("ngram");
    return option;
}

static uint32_t right_drafts(struct batch_drafts *d, uint32_t max) {
    if (mode_of(d->run) == DRAFTS_RIGHT) return max;
    return mode_of(d->run) == DRAFTS_MIXED ? (uint32_t)rng_below(&d->rng, max + 1) : 0;
}

static void answer(struct batch_drafts *d, struct draft_ask *ask) {
    const struct sched_seq *seq = sched_seq_at(engine_sched(d->engine), ask->seq);
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

static void ignore(void *self, seq_idx seq) { (void)self, (void)seq; }

void batch_drafts_plug(struct batch_drafts *d) {
    const struct draft_model model = {
        .begin = ignore, .end = ignore, .propose = propose, .cost_us = cost_us, .self = d};
    d->rng = (struct rng){.seed = 70000 + d->run->number};
    spec_plug_model(engine_spec(d->engine), &model);
}
