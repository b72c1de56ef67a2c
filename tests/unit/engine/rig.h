/* unit/engine/rig.h - an engine over the simulated runner, on the real clock or stepped by hand. */
#ifndef UNIT_ENGINE_RIG_H
#define UNIT_ENGINE_RIG_H

#include <stdatomic.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/runner_sim.h"

enum { RIG_VOCAB = 1000, RIG_CTX = 256 };

struct rig {
    struct engine *engine;
    struct sim_clock clock;
    struct runner_sim_options sim;
    struct runner runner; /* a copy of what the engine has */
};

static inline struct knobs rig_knobs(void) {
    struct knobs k = knobs_default();
    k.kv_blocks = 64;
    k.max_seqs = 4;
    k.queue_max = 64;
    k.max_step_tokens = 64;
    k.spill_blocks = 32;
    return k;
}

static inline struct engine_options rig_options(const struct knobs *k) {
    struct engine_options o = {
        .vocab = RIG_VOCAB,
        .sched = {
            .policy = sched_policies[0], .knobs = *k, .ctx_tokens = RIG_CTX, .group_count = 1}};
    cost_init(&o.sched.cost, cost_profile_find("this-cpu"));
    return o;
}

/* `watch` may be NULL. With `is_real` the clock is the machine's and a step takes step_us of it.
 * `delay_seed` draws when plans run, with depth 1. */
static inline void rig_open_depth(struct rig *rig, const struct knobs *k,
                                  const struct sim_watch *watch, bool is_real, int64_t step_us,
                                  uint32_t depth, uint64_t delay_seed) {
    struct err err = {0};
    struct runner runner;
    struct engine_options o = rig_options(k);
    *rig = (struct rig){.engine = NULL};
    sim_clock_init(&rig->clock);
    if (!is_real) o.clock = &rig->clock.clock;
    if (engine_create(&rig->engine, &o, &err) != ST_OK) fail_msg("%s", err.text);
    rig->sim = (struct runner_sim_options){.seq_max = sched_seq_max(k),
                                           .row_max = k->max_seqs,
                                           .vocab = RIG_VOCAB,
                                           .clock = is_real ? NULL : &rig->clock,
                                           .step_us = step_us,
                                           .depth = depth,
                                           .delay_seed = delay_seed,
                                           .profile = *cost_profile_find("this-cpu")};
    if (watch) rig->sim.watch = *watch;
    if (runner_sim_open(&rig->sim, &runner, &err) != ST_OK) fail_msg("%s", err.text);
    rig->runner = runner;
    engine_plug(rig->engine, &runner);
}

static inline void rig_open(struct rig *rig, const struct knobs *k, const struct sim_watch *watch,
                            bool is_real, int64_t step_us) {
    rig_open_depth(rig, k, watch, is_real, step_us, 0, 0);
}

/* Prompts differ in their first token, so that nothing is found in the prefix cache. */
static inline struct request_spec rig_spec(int32_t *prompt, uint32_t prompt_tokens, uint32_t number,
                                           uint32_t max_tokens) {
    for (uint32_t i = 0; i < prompt_tokens; i++)
        prompt[i] = (int32_t)((number * 7 + i * 13 + 1) % RIG_VOCAB);
    return (struct request_spec){.prompt = prompt,
                                 .prompt_tokens = prompt_tokens,
                                 .max_tokens = max_tokens,
                                 .n = 1,
                                 .sample = sample_params_default(),
                                 .ignore_end = true,
                                 .want_logprobs = true};
}

static inline struct request *rig_submit(struct rig *rig, uint32_t number, uint32_t prompt_tokens,
                                         uint32_t max_tokens, uint32_t n) {
    int32_t prompt[RIG_CTX];
    struct err err = {0};
    struct request *r = NULL;
    struct request_spec spec = rig_spec(prompt, prompt_tokens, number, max_tokens);
    spec.n = n;
    if (engine_submit(rig->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

static inline enum finish_reason rig_finish(const struct request *r, uint32_t choice) {
    return (enum finish_reason)atomic_load(&r->choices[choice].finish);
}

/* The answer of a choice must be what the simulated runner gives for its text. */
static inline void rig_check_answer(const struct rig *rig, const struct choice *c) {
    uint32_t ready;
    choice_poll(c, &ready);
    uint64_t text = sim_text_begin(0);
    for (uint32_t i = 0; i < ready; i++) {
        if (i >= c->prompt_tokens) assert_int_equal(c->tokens[i], sim_token(&rig->sim, 0, text));
        text = sim_text_add(text, c->tokens[i]);
    }
}

/* Step by hand until all choices of `r` have ended; checks the invariants on the way. */
static inline void rig_run(struct rig *rig, const struct request *r) {
    for (uint32_t step = 0; step < 100000; step++) {
        bool did_work, is_over = true;
        for (uint32_t i = 0; i < r->n; i++)
            if (rig_finish(r, i) == FINISH_NONE) is_over = false;
        if (is_over) return;
        engine_step(rig->engine, &did_work);
        engine_verify(rig->engine);
        if (!did_work) sim_clock_advance(&rig->clock, 1000);
    }
    fail_msg("the request did not end");
}

#endif
