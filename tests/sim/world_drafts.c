/* sim/world_drafts.c - drafts of a world: a drafter that knows the future, and lies as the world's
 * seed says; and what a plan may and may not say about drafts. See sim/world_int.h.
 *
 * In every fourth world each draft is right, in every fourth it is drawn at random, in every fourth
 * a draw decides for each row, and every fourth world has none. Numbers are drawn from a generator
 * of their own, so that drafts do not change a world's traffic.
 */
#include "sim/world_int.h"

enum draft_mode { DRAFTS_NONE, DRAFTS_RIGHT, DRAFTS_RANDOM, DRAFTS_MIXED, DRAFT_MODES };

static enum draft_mode mode_of(const struct world *w) {
    return (enum draft_mode)(w->options.seed % DRAFT_MODES);
}

static int32_t random_token(struct world *w) {
    return (int32_t)rng_below(&w->draft_rng, w->engine_options.vocab);
}

/* What the runner will sample behind the text, up to the drawn number of right drafts. */
static void answer(struct world *w, struct draft_ask *ask) {
    uint64_t owner = 0, seed = 0;
    uint32_t right = 0;
    world_identify(w, ask->seq, &owner, &seed);
    if (mode_of(w) == DRAFTS_RIGHT) right = ask->max;
    if (mode_of(w) == DRAFTS_MIXED) right = (uint32_t)rng_below(&w->draft_rng, ask->max + 1);
    ask->given = ask->max;
    if (rng_below(&w->draft_rng, 8) == 0)
        ask->given = (uint32_t)rng_below(&w->draft_rng, ask->max + 1);
    uint64_t text = sim_text_begin(owner);
    for (uint32_t i = 0; i < ask->count; i++) text = sim_text_add(text, ask->tokens[i]);
    for (uint32_t i = 0; i < ask->given; i++) {
        ask->out[i] = i < right ? sim_token(&w->runner_options, seed, text) : random_token(w);
        text = sim_text_add(text, ask->out[i]);
    }
}

static void propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    struct world *w = self;
    for (uint32_t i = 0; i < count; i++) {
        const struct draft_ask *ask = asks[i];
        const struct sched_seq *seq = sched_seq_at(w->sched, ask->seq);
        if (ask->known > ask->count || ask->max == 0 || ask->given > 0 ||
            ask->out != seq->tokens + ask->count || ask->count + ask->max >= seq->total_max)
            world_wrong(w, "request %lu is asked for %u drafts behind %u tokens, %u of them known",
                        (unsigned long)seq->request, ask->max, ask->count, ask->known);
        answer(w, asks[i]);
    }
}

static double cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    (void)self;
    return (double)seqs + tokens;
}

static void begin(void *self, seq_idx seq, const struct sampling *draw) {
    ((struct world *)self)->drafting += seq != SEQ_NONE && draw->kind == SAMPLING_DRAW;
}
static void end(void *self, seq_idx seq) { ((struct world *)self)->drafting -= seq != SEQ_NONE; }

void world_draw_drafts(struct world *w) {
    struct sched_options *s = &w->engine_options.sched;
    w->draft_rng = (struct rng){.seed = w->options.seed ^ 0x647261667473u};
    if (mode_of(w) == DRAFTS_NONE) return;
    w->engine_options.speculate.kind = SPECULATE_MODEL;
    s->draft_rows_max = 1 + (uint32_t)rng_below(&w->draft_rng, 64);
    s->knobs.draft_max = 1 + (uint32_t)rng_below(&w->draft_rng, DRAFT_MAX);
}

void world_plug_drafts(struct world *w) {
    const struct draft_model model = {
        .begin = begin, .end = end, .propose = propose, .cost_us = cost_us, .self = w};
    if (mode_of(w) != DRAFTS_NONE) spec_plug_model(engine_spec(w->engine), &model);
}

/* ---- what a plan says ---- */

static void check_row(struct world *w, const struct plan *plan, const struct plan_row *row) {
    const struct sched_seq *seq = sched_seq_at(w->sched, row->seq);
    const bool is_alone = plan->batch_row_count == plan->row_count;
    world_tally(w, COUNT_DRAFT_ROWS);
    if (row->takes_sampled) world_tally(w, COUNT_DRAFTS_AHEAD);
    if (row->count - row->draft_count != 1 || !row->samples)
        world_wrong(w, "request %lu has drafts and does not decode", (unsigned long)seq->request);
    if (row->draft_count > w->knobs->draft_max)
        world_wrong(w, "%u drafts, draft_max is %u", row->draft_count, w->knobs->draft_max);
    if (seq->is_batch && !is_alone)
        world_wrong(w, "line %lu has drafts beside others", (unsigned long)seq->request);
}

/* Drafts preempt no sequence and share their step with no prompt. */
void world_check_drafts(struct world *w, const struct plan *plan) {
    uint32_t drafts = 0, most = w->engine_options.sched.draft_rows_max;
    double target_us = w->knobs->step_target_ms * 1000;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        drafts += row->draft_count;
        if (row->draft_count > 0) check_row(w, plan, row);
        if (plan->draft_count > 0 && row->count - row->draft_count != 1)
            world_wrong(w, "%u drafts are in a step with a prompt", plan->draft_count);
    }
    if (drafts != plan->draft_count || drafts > most)
        world_wrong(w, "%u drafts, the plan says %u, at most %u may be", drafts, plan->draft_count,
                    most);
    if (drafts == 0 || target_us <= 0) return;
    double us =
        sched_step_us(w->sched, plan->token_count, plan->token_count, plan->attended_tokens);
    if (us > target_us * 1.01)
        world_wrong(w, "a step with drafts takes %.0f us, the target is %.0f", us, target_us);
}

void world_count_drafts(struct world *w) {
    const struct draft_stats drafts = sched_stats(w->sched).drafts;
    w->out->counts[COUNT_DRAFTED] += drafts.drafted;
    w->out->counts[COUNT_ACCEPTED] += drafts.accepted;
    if (mode_of(w) == DRAFTS_RIGHT && !w->out->is_wrong && drafts.accepted * 4 < drafts.drafted)
        world_wrong(w, "%lu of %lu right drafts were accepted", (unsigned long)drafts.accepted,
                    (unsigned long)drafts.drafted);
}
