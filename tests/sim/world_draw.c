/* sim/world_draw.c - what a seed makes of a world; see sim/world_int.h.
 *
 * Half of the numbers are drawn evenly, the other half small: limits are where the bugs are.
 */
#include <math.h>

#include "sim/world_int.h"

bool world_chance(struct world *w, double share) { return rng_unit(&w->rng) < share; }

uint32_t world_between(struct world *w, uint32_t min, uint32_t max) {
    CHECK(min <= max);
    return min + (uint32_t)rng_below(&w->rng, (uint64_t)max - min + 1);
}

uint32_t world_log_between(struct world *w, uint32_t min, uint32_t max) {
    CHECK(min >= 1);
    if (max < min) max = min;
    if (world_chance(w, 0.5)) return world_between(w, min, max);
    double x = log((double)min) + rng_unit(&w->rng) * (log((double)max + 1) - log((double)min));
    uint32_t n = (uint32_t)exp(x);
    return n < min ? min : n > max ? max : n;
}

static double real_between(struct world *w, double min, double max) {
    return min + rng_unit(&w->rng) * (max - min);
}

static double log_real_between(struct world *w, double min, double max) {
    return exp(real_between(w, log(min), log(max)));
}

static const struct sched_policy *draw_policy(struct world *w) {
    uint32_t count = 0;
    while (sched_policies[count]) count++;
    const struct sched_policy *drawn = sched_policies[world_between(w, 0, count - 1)];
    return w->options.policy ? w->options.policy : drawn;
}

static void draw_profile(struct world *w, struct cost_profile *p) {
    *p = (struct cost_profile){.name = "drawn",
                               .fixed_us = log_real_between(w, 50, 5000),
                               .per_token_us = log_real_between(w, 1, 200),
                               .per_attended_us = real_between(w, 0, 0.5),
                               .per_move_us = log_real_between(w, 1, 300)};
    w->typical_us = (int64_t)(p->fixed_us + 16 * p->per_token_us);
}

/* Mostly memory is tight: for a part of what max_seqs sequences could use. */
static uint32_t draw_blocks(struct world *w, const struct knobs *k, uint32_t ctx_tokens) {
    if (world_chance(w, 0.3)) return world_log_between(w, 8, 256);
    double all = (double)k->max_seqs * ctx_tokens / k->block_size;
    double some = all * log_real_between(w, 0.05, 1);
    return some < 8 ? 8 : some > 256 ? 256 : (uint32_t)some;
}

static void draw_memory(struct world *w, struct knobs *k, uint32_t ctx_tokens) {
    k->block_size = world_log_between(w, 1, 32);
    k->max_seqs = world_log_between(w, 1, 32);
    k->kv_blocks = draw_blocks(w, k, ctx_tokens);
    k->max_step_tokens = world_log_between(w, 1, 256);
    k->queue_max = world_log_between(w, 1, 64);
    k->prefix_cache = world_chance(w, 0.75);
    /* All, a quarter or half, by a number that is drawn anyway: a seed's world stays as it was. */
    k->prefix_blocks = k->queue_max % 3 * k->kv_blocks / 4;
    k->tenant_reserve = k->queue_max % 4 * 0.125;
    k->batch_slowdown = k->queue_max % 5 * 0.5;
    k->preempt = (enum preempt_mode)world_between(w, 0, 2);
    k->preempt_max = world_between(w, 0, 4);
    k->spill_blocks = world_chance(w, 0.3) ? 0 : world_log_between(w, 1, 2 * k->kv_blocks);
    k->watermark = world_chance(w, 0.3) ? 0 : real_between(w, 0, 0.3);
}

static void draw_taste(struct world *w, struct knobs *k) {
    double typical_ms = (double)w->typical_us / 1000;
    if (world_chance(w, 0.3)) k->step_target_ms = typical_ms * log_real_between(w, 0.2, 4);
    if (world_chance(w, 0.3))
        k->chunk_tokens = world_chance(w, 0.3) ? 1 : world_log_between(w, 1, 64);
    k->static_wait_ms = typical_ms * real_between(w, 0, 20);
    k->dynamic_batch = world_log_between(w, 1, 16);
    k->dynamic_window_ms = typical_ms * real_between(w, 0, 20);
    k->waiting_served_ratio = real_between(w, 0, 2);
    k->max_waiting_tokens = world_log_between(w, 1, 40);
    k->prefill_every = world_log_between(w, 1, 8);
    k->mlfq_levels = world_between(w, 1, 6);
    k->mlfq_quantum_ms = typical_ms * log_real_between(w, 0.5, 20);
    k->mlfq_starve_ms = typical_ms * log_real_between(w, 2, 200) + 1;
    k->sjf_margin = real_between(w, 0, 1);
    k->deadline_shed = world_chance(w, 0.3) ? 0 : real_between(w, 0, 2);
    k->fair_output_weight = real_between(w, 0, 4);
}

/* The first group keeps everything, mostly. */
static void draw_groups(struct world *w, struct sched_options *s) {
    s->group_count = world_chance(w, 0.5) ? 1 : world_between(w, 2, 3);
    for (uint32_t g = 0; g < s->group_count; g++) {
        if (!world_chance(w, g == 0 ? 0.1 : 0.9)) continue;
        s->windows[g] = world_log_between(w, 1, s->ctx_tokens);
        w->has_windows = true;
    }
}

static void draw_habits(struct world *w) {
    struct habits *h = &w->habits;
    const struct sched_options *s = &w->engine_options.sched;
    h->arrivals = (enum arrivals)world_between(w, 0, ARRIVE_CLOSED_LOOP);
    h->burst = world_log_between(w, 1, s->knobs.queue_max + s->knobs.max_seqs / 2);
    h->outstanding = world_log_between(w, 1, s->knobs.queue_max + s->knobs.max_seqs + 4);
    h->prompt_max = world_log_between(w, 1, s->ctx_tokens - 1);
    h->answer_max = world_chance(w, 0.3) ? world_log_between(w, 1, s->ctx_tokens) : s->ctx_tokens;
    h->tenants = world_between(w, 1, 5);
    h->salts = world_between(w, 1, 3);
    h->n_max = world_chance(w, 0.5) ? 1 : world_between(w, 2, WORLD_CHOICES_MAX);
    h->stems = world_between(w, 1, STEMS_MAX);
    /* Around the load that max_seqs sequences can carry: about a third of answer_max steps for each
     * choice. */
    double steps = (h->answer_max / 3.0 + 1) * (h->n_max + 1) / 2 / s->knobs.max_seqs;
    h->gap_us = (double)w->typical_us * steps * log_real_between(w, 0.3, 4) + 1;
    h->share_stem = real_between(w, 0, 1);
    h->share_history = real_between(w, 0, 0.3);
    h->share_call_off = world_chance(w, 0.3) ? 0 : real_between(w, 0, 0.4);
    h->share_expires = world_chance(w, 0.5) ? 0 : real_between(w, 0, 0.3);
    h->share_targets = world_chance(w, 0.5) ? 0 : real_between(w, 0, 1);
    h->share_big = world_chance(w, 0.7) ? 0 : 0.05;
    h->fail_row = world_chance(w, 0.6) ? 0 : log_real_between(w, 0.001, 0.05);
    h->fail_step = world_chance(w, 0.6) ? 0 : log_real_between(w, 0.001, 0.03);
    h->slow_step = world_chance(w, 0.6) ? 0 : 0.01;
}

static void draw_runner(struct world *w, const struct cost_profile *profile) {
    const struct sched_options *s = &w->engine_options.sched;
    w->runner_options = (struct runner_sim_options){
        .seq_max = sched_seq_max(&s->knobs),
        .row_max = s->knobs.max_seqs,
        .vocab = w->engine_options.vocab,
        .end_one_in = world_chance(w, 0.4) ? 0 : world_log_between(w, 3, 200),
        .key = rng_next(&w->rng),
        .depth = w->options.depth,
        .delay_seed = w->options.seed, /* not drawn: a seed's world is the same at every depth */
        .clock = &w->clock,
        .profile = *profile,
        .block_tokens = s->knobs.block_size,
        .tokens_max = s->ctx_tokens,
        .block_count = s->knobs.kv_blocks,
        .spill_slots = s->knobs.spill_blocks,
        .group_count = s->group_count,
    };
    for (uint32_t g = 0; g < s->group_count; g++) w->runner_options.windows[g] = s->windows[g];
}

void world_draw(struct world *w) {
    struct sched_options *s = &w->engine_options.sched;
    struct cost_profile profile;
    w->rng = (struct rng){.seed = w->options.seed};
    w->policy = s->policy = draw_policy(w);
    s->knobs = knobs_default();
    draw_profile(w, &profile);
    s->ctx_tokens = world_log_between(w, 4, TOKENS_MAX);
    draw_memory(w, &s->knobs, s->ctx_tokens);
    draw_taste(w, &s->knobs);
    cost_init(&s->cost, &profile);
    if (world_chance(w, 0.5)) s->cost.weight[1] *= 3; /* it has something to learn */
    s->kv_identity = rng_next(&w->rng);
    draw_groups(w, s);
    w->engine_options.vocab = world_log_between(w, 2, 64);
    w->engine_options.clock = &w->clock.clock;
    w->engine_options.record_bytes = 1; /* the least */
    draw_habits(w);
    draw_runner(w, &profile);
    w->is_abandoned = world_chance(w, 0.1);
    world_draw_drafts(w);
}
