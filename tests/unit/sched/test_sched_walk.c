/* Goal:   whatever happens in whatever order, under every policy, no invariant breaks, no block
 *         is read that another wrote, every sequence ends exactly once with the right answer, and
 *         nothing is ever stuck.
 * Method: seeded small worlds (8 to 64 blocks, max_seqs 1 to 8, all knobs drawn), random traffic
 *         with shared prefixes, choices, batch lines, cancels at every moment (also between plan
 *         and apply), deadlines, failing rows and failing plans; sched_verify after every call;
 *         then the traffic stops and all must drain. Each world is walked with and without plans
 *         made ahead. The seed is in every failure message. */
#include <signal.h>
#include <unistd.h>

#include "unit/sched/world.h"

enum { SEEDS_PER_POLICY = 100, STEPS = 150, DRAIN_STEPS = 20000 };

/* The world that is being walked, for the report of a failure: a test ends by teardown, a CHECK by
 * SIGABRT. */
static char name[64];

static void say_name(int signal_number) {
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, name, strlen(name));
    (void)written;
}

static int print_name(void **state) {
    (void)state;
    print_message("last world: %s\n", name);
    return 0;
}

static uint32_t draw(struct world *w, uint32_t from, uint32_t to) {
    return from + (uint32_t)rng_below(&w->rng, to - from + 1);
}

static bool chance(struct world *w, uint32_t percent) { return draw(w, 1, 100) <= percent; }

static struct sched_options draw_options(struct rng *rng, const struct sched_policy *policy) {
    struct world w = {.rng = *rng};
    uint32_t bs = draw(&w, 1, 8);
    struct sched_options o = world_options(policy->name, draw(&w, 8, 64), bs, draw(&w, 1, 8));
    o.ctx_tokens = draw(&w, 8, 200);
    o.knobs.max_step_tokens = chance(&w, 30) ? draw(&w, 1, 6) : draw(&w, 7, 64);
    o.knobs.chunk_tokens = chance(&w, 50) ? 0 : draw(&w, 1, 16);
    o.knobs.step_target_ms = chance(&w, 70) ? 0 : draw(&w, 1, 20);
    o.knobs.prefix_cache = chance(&w, 70);
    o.knobs.preempt = (enum preempt_mode)draw(&w, 0, 2);
    o.knobs.preempt_max = draw(&w, 0, 3);
    o.knobs.spill_blocks = chance(&w, 30) ? 0 : draw(&w, 1, 64);
    o.knobs.watermark = chance(&w, 50) ? 0 : 0.1;
    o.knobs.queue_max = draw(&w, 4, 40);
    o.knobs.tenant_reserve = chance(&w, 50) ? 0.125 : 0.5;
    o.knobs.batch_slowdown = draw(&w, 0, 4) * 0.5;
    o.knobs.static_wait_ms = draw(&w, 0, 5);
    o.knobs.dynamic_window_ms = draw(&w, 0, 5);
    o.knobs.mlfq_quantum_ms = draw(&w, 1, 20);
    o.knobs.mlfq_starve_ms = draw(&w, 1, 50);
    o.group_count = chance(&w, 25) ? 2 : 1;
    o.windows[1] = draw(&w, 2, 30);
    *rng = w.rng;
    return o;
}

static void submit_some(struct world *w) {
    uint32_t ctx = w->options.ctx_tokens;
    bool is_writer = chance(w, 50); /* a short prompt and a long answer */
    struct world_submit in = {.text = draw(w, 1, 3)};
    in.prompt_tokens = draw(w, 1, is_writer ? ctx / 4 : ctx);
    in.shared = draw(w, 0, in.prompt_tokens);
    in.max_tokens = draw(w, 1, is_writer ? ctx / 2 : 10);
    in.end_after = chance(w, 50) ? draw(w, 1, in.max_tokens) : 0;
    if (in.end_after == in.max_tokens) in.end_after = 0;
    in.tenant = draw(w, 1, 3);
    in.has_share = w->options.knobs.queue_max % 2 == 0; /* half of the worlds */
    in.waits_for_token = in.is_forced = chance(w, 30);  /* it has a grammar */
    in.is_batch = w->batch_percent > 0 && chance(w, w->batch_percent);
    in.urgency.priority = (int32_t)draw(w, 0, 2);
    if (chance(w, 20)) in.urgency.expires_us = w->now_us + draw(w, 1, 60000);
    if (chance(w, 30)) in.urgency.ttft_target_us = draw(w, 1, 60000);
    if (chance(w, 30)) in.urgency.tpot_target_us = draw(w, 1, 60000);
    uint32_t n = chance(w, 20) ? draw(w, 2, 4) : 1;
    in.request = 1000 + w->request_count;
    for (uint32_t choice = 0; choice < n; choice++) {
        seq_idx i;
        struct err err = {0};
        in.choice = choice;
        in.is_fork = choice > 0;
        enum status st = world_try_submit(w, in, &i, &err);
        if (st != ST_OK) {
            assert_true(err.text[0] != 0);
            return;
        }
        if (choice == 0) in.parent = i;
    }
}

static void cancel_one(struct world *w) {
    if (w->request_count == 0) return;
    struct world_request *r = &w->requests[draw(w, 0, w->request_count - 1)];
    r->is_cancelled = true;
    sched_cancel(w->s, r->request, r->choice, chance(w, 50) ? FINISH_CANCELLED : FINISH_STOP,
                 w->now_us);
    sched_verify(w->s);
}

static void keep_some(struct world *w, const struct plan *plan) {
    for (uint32_t r = 0; r < plan->row_count; r++)
        if (chance(w, 5)) kv_seq_keep(sched_kv(w->s), plan->rows[r].kv, INT64_MAX);
}

static void walk_step(struct world *w) {
    if (chance(w, 40)) submit_some(w);
    if (chance(w, 8)) cancel_one(w);
    world_plan(w);
    if (chance(w, 20)) cancel_one(w);
    if (chance(w, 10)) submit_some(w);
    if (world_is_empty_plan(w)) {
        w->now_us += draw(w, 1, 3000);
        world_events(w);
        return;
    }
    keep_some(w, &w->plan);
    if (chance(w, 3)) {
        sched_fail(w->s, &w->plan, w->now_us);
        sched_verify(w->s);
        world_events(w);
        return;
    }
    world_run(w);
    if (chance(w, 10)) cancel_one(w);
    world_apply(w);
}

/* The same with depth 1. A plan that failed must be followed by the one behind it. */
static void walk_step_ahead(struct world *w) {
    if (chance(w, 40)) submit_some(w);
    if (chance(w, 8)) cancel_one(w);
    struct plan *next = world_plan_next(w), *oldest = w->oldest;
    if (chance(w, 20)) cancel_one(w);
    if (chance(w, 10)) submit_some(w);
    if (!next && !oldest) w->now_us += draw(w, 1, 3000);
    if (next) keep_some(w, next);
    if (oldest && chance(w, 3)) {
        world_advance(w, next);
        w->is_draining = next != NULL;
        sched_fail(w->s, oldest, w->now_us);
        sched_verify(w->s);
        world_events(w);
        return;
    }
    if (chance(w, 10)) world_events(w);
    world_finish_oldest(w, next);
}

/* Returns how many tokens were forced. */
static uint32_t walk(const struct sched_policy *policy, uint64_t seed, uint32_t depth) {
    struct world w;
    struct rng rng = {.seed = seed};
    struct sched_options o = draw_options(&rng, policy);
    world_open(&w, &o);
    w.rng = rng;
    if (chance(&w, 30)) {
        uint32_t moves = draw(&w, 8, 24);
        plan_deinit(&w.plan);
        plan_deinit(&w.other);
        assert_int_equal(plan_init(&w.plan, o.knobs.max_seqs, moves), ST_OK);
        assert_int_equal(plan_init(&w.other, o.knobs.max_seqs, moves), ST_OK);
    }
    w.failed_rows_every = chance(&w, 30) ? 50 : 0;
    w.batch_percent = chance(&w, 60) ? draw(&w, 10, 90) : 0;
    snprintf(name, sizeof(name), "%s seed %lu depth %u\n", policy->name, (unsigned long)seed,
             depth);
    for (uint32_t n = 0; n < STEPS; n++) depth > 0 ? walk_step_ahead(&w) : walk_step(&w);
    w.failed_rows_every = 0;
    world_drain_by(&w, depth > 0 ? world_step_ahead : world_step, DRAIN_STEPS);
    assert_int_equal(w.live_count, 0);
    struct kv_cache_stats kv = sched_stats(w.s).kv;
    for (uint32_t g = 0; g < o.group_count; g++) assert_int_equal(kv.groups[g].held_count, 0);
    assert_int_equal(kv.spilled_blocks, 0);
    assert_int_equal(sched_stats(w.s).finished, w.request_count);
    world_close(&w);
    return w.forced_tokens;
}

static void walk_all(uint32_t depth) {
    uint32_t forced = 0;
    for (const struct sched_policy *const *p = sched_policies; *p; p++)
        for (uint64_t seed = 1; seed <= SEEDS_PER_POLICY; seed++) forced += walk(*p, seed, depth);
    assert_true(forced > 1000);
}

static void test_random_walks_of_every_policy_keep_all_invariants(void **state) {
    (void)state;
    walk_all(0);
}

static void test_random_walks_with_plans_made_ahead_keep_all_invariants(void **state) {
    (void)state;
    walk_all(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_walks_of_every_policy_keep_all_invariants,
                                  print_name),
        cmocka_unit_test_teardown(test_random_walks_with_plans_made_ahead_keep_all_invariants,
                                  print_name),
    };
    signal(SIGABRT, say_name);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
