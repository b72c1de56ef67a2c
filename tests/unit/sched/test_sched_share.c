/* Goal:   a tenant that takes all it can get does not make another one wait: neither for a batch
 *         slot, nor for blocks, nor behind its prompts; and a tenant by itself is served as if
 *         there were no rules.
 * Method: tenant 1 sends more than the batch, the pool or a step can hold, then tenant 2 sends one
 *         short request. Steps are counted until its first token, with the rules and without. */
#include "unit/sched/world.h"

enum { BATCH = 8, STEP_TOKENS = 64, BLOCK = 8, MANY = 40 };

static void open_world(struct world *w, const char *policy, uint32_t kv_blocks) {
    struct sched_options o = world_options(policy, kv_blocks, BLOCK, BATCH);
    o.knobs.max_step_tokens = STEP_TOKENS;
    world_open(w, &o);
}

static void send(struct world *w, uint32_t tenant, uint32_t count, struct world_submit in) {
    in.tenant = tenant;
    for (uint32_t i = 0; i < count; i++) world_submit(w, in);
}

static void run(struct world *w, uint32_t steps) {
    while (steps-- > 0) assert_true(world_step(w));
}

static uint32_t steps_to_first_token(struct world *w, const struct world_request *r) {
    uint32_t steps = 0;
    for (; r->events_total <= r->prompt_tokens; steps++) {
        assert_true(world_step(w));
        assert_true(steps < 5000);
    }
    return steps;
}

static uint32_t running_of(const struct world *w, uint32_t tenant) {
    uint32_t count = 0;
    for (seq_idx i = 0; i < sched_seq_max(&w->options.knobs); i++) {
        const struct sched_seq *seq = sched_seq_at(w->s, i);
        count += seq->state == SEQ_RUNNING && seq->tenant == tenant;
    }
    return count;
}

/* Steps until tenant 2 has a first token while tenant 1 has sent `many`. */
static uint32_t newcomer_waits(const char *policy, uint32_t kv_blocks, struct world_submit many,
                               uint32_t steps_before) {
    struct world w;
    open_world(&w, policy, kv_blocks);
    send(&w, 1, MANY, many);
    run(&w, steps_before);
    struct world_submit one = {.prompt_tokens = 20, .max_tokens = 4, .has_share = many.has_share};
    one.urgency.ttft_target_us = 1000000; /* for the policy deadline */
    send(&w, 2, 1, one);
    uint32_t steps = steps_to_first_token(&w, world_last(&w));
    const struct world_request *newcomer = world_last(&w);
    w.verify = false;
    world_drain(&w, 100000);
    for (uint32_t r = 0; r < w.request_count; r++)
        assert_int_equal(w.requests[r].finish, FINISH_LENGTH);
    if (many.has_share) assert_int_equal(newcomer->last.preempt_count, 0);
    world_close(&w);
    return steps;
}

/* static and dynamic admit nothing before a batch has ended. */
static bool runs_batches(const struct sched_policy *p) { return p->frees_batch_slot != NULL; }

static void test_a_full_batch_has_a_slot_for_another_tenant(void **state) {
    (void)state;
    struct world_submit answers = {.prompt_tokens = 10, .max_tokens = 200, .has_share = true};
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        uint32_t steps = runs_batches(*p) ? 0 : newcomer_waits((*p)->name, 1000, answers, 30);
        if (steps > 2) fail_msg("%s: %u steps", (*p)->name, steps);
    }
    answers.has_share = false;
    assert_true(newcomer_waits("chunked", 1000, answers, 30) > 100);
}

static void test_long_prompts_do_not_stop_the_prompt_of_another_tenant(void **state) {
    (void)state;
    struct world_submit prompts = {.prompt_tokens = 1200, .max_tokens = 2, .has_share = true};
    const char *const policies[] = {"chunked", "fair", "mlfq", "sjf", "priority", "deadline"};
    for (uint32_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        uint32_t steps = newcomer_waits(policies[i], 2000, prompts, 30);
        if (steps > 2) fail_msg("%s: %u steps", policies[i], steps);
    }
    prompts.has_share = false;
    assert_true(newcomer_waits("chunked", 2000, prompts, 30) > 100);
}

static void test_a_full_pool_has_blocks_for_another_tenant(void **state) {
    (void)state;
    struct world_submit answers = {.prompt_tokens = 10, .max_tokens = 200, .has_share = true};
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        /* 60 blocks: three answers fill them as they grow. */
        for (uint32_t before = 30; before < 240 && !runs_batches(*p); before += 30) {
            uint32_t steps = newcomer_waits((*p)->name, 60, answers, before);
            if (steps > 6) fail_msg("%s: %u steps after %u", (*p)->name, steps, before);
        }
    }
}

/* Tenant 2 stays within its share, so what tenant 1 needs is taken from tenant 1. */
static void test_a_tenant_within_its_share_is_not_preempted(void **state) {
    (void)state;
    for (uint32_t before = 10; before < 180; before += 5) {
        struct world w;
        struct sched_options o = world_options("chunked", 60, BLOCK, BATCH);
        o.knobs.max_step_tokens = STEP_TOKENS;
        o.knobs.preempt_max = before % 10 ? 0 : 3; /* 0: only the oldest may preempt */
        world_open(&w, &o);
        send(&w, 1, 6,
             (struct world_submit){.prompt_tokens = 100, .max_tokens = 200, .has_share = true});
        for (uint32_t n = 0; n < before; n++) {
            run(&w, 1);
            if (o.knobs.preempt_max > 0) /* an eighth is 7 */
                assert_true(kv_cache_available(sched_kv(w.s)) >= 4);
        }
        send(&w, 2, 1,
             (struct world_submit){.prompt_tokens = 20, .max_tokens = 100, .has_share = true});
        const struct world_request *r = world_last(&w);
        world_drain(&w, 20000);
        assert_int_equal(r->last.preempt_count, 0);
        world_close(&w);
    }
}

static void test_a_tenant_leaves_an_eighth_of_the_batch(void **state) {
    (void)state;
    struct world_submit answers = {.prompt_tokens = 4, .max_tokens = 100};
    for (uint32_t has_share = 0; has_share < 2; has_share++) {
        struct world w;
        open_world(&w, "chunked", 1000);
        answers.has_share = has_share;
        send(&w, 1, MANY, answers);
        run(&w, 10);
        assert_int_equal(running_of(&w, 1), has_share ? BATCH - 1 : BATCH);
        world_close(&w);
    }
}

/* With two tenants the share of each is a third of the batch, 2 slots; the last slot is left to one
 * that has less than that. */
static void test_the_last_slot_is_for_a_tenant_below_its_share(void **state) {
    (void)state;
    struct world_submit answers = {.prompt_tokens = 4, .max_tokens = 100, .has_share = true};
    for (uint32_t first = 1; first < BATCH; first++) {
        const uint32_t share = BATCH / 3, left = BATCH - first;
        struct world w;
        open_world(&w, "chunked", 1000);
        send(&w, 1, first, answers);
        run(&w, 5);
        assert_int_equal(running_of(&w, 1), first);
        send(&w, 2, MANY, answers);
        run(&w, 10);
        assert_int_equal(running_of(&w, 2), left <= share ? left : left - 1);
        world_close(&w);
    }
}

/* The last slot is for tenants below their share, so a second tenant fills it and waits, too. */
static void test_choices_of_a_request_leave_the_reserve(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "chunked", 1000);
    struct world_submit in = {
        .prompt_tokens = 10, .max_tokens = 50, .tenant = 1, .has_share = true, .request = 7};
    in.parent = world_submit(&w, in);
    in.is_fork = true;
    for (in.choice = 1; in.choice < 12; in.choice++) world_submit(&w, in);
    run(&w, 10);
    assert_int_equal(running_of(&w, 1), BATCH - 1);
    world_drain(&w, 5000);
    world_close(&w);
}

static void test_tenants_that_wait_take_turns(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "chunked", 1000);
    struct world_submit in = {.prompt_tokens = 4, .max_tokens = 20, .has_share = true};
    send(&w, 1, MANY, in);
    run(&w, 5);
    send(&w, 2, MANY, in);
    run(&w, 60);
    assert_in_range(running_of(&w, 2), 3, 4);
    assert_in_range(running_of(&w, 1), 3, 4);
    /* Within a tenant the order of arrival holds. */
    for (uint32_t r = 1; r < MANY; r++)
        if (w.requests[r].last.admitted_us > 0)
            assert_true(w.requests[r - 1].last.admitted_us <= w.requests[r].last.admitted_us);
    world_drain(&w, 5000);
    world_close(&w);
}

/* Tenant 2 always has two requests, for hundreds of turns, while those of tenant 1 must wait. */
static void test_a_tenant_that_must_wait_does_not_block_the_queue(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "chunked", 2000);
    send(&w, 1, MANY,
         (struct world_submit){.prompt_tokens = 4, .max_tokens = 900, .has_share = true});
    run(&w, 5);
    struct world_submit in = {.prompt_tokens = 4, .max_tokens = 4, .has_share = true};
    send(&w, 2, 1, in);
    for (uint32_t n = 0; n < 150; n++) {
        const struct world_request *before = world_last(&w);
        send(&w, 2, 1, in);
        /* Of two only one finds a slot: the other has it when that one ends. */
        assert_true(steps_to_first_token(&w, before) <= 8);
    }
    assert_int_equal(w.requests[0].finish, FINISH_NONE);
    w.verify = false;
    world_drain(&w, 20000);
    world_close(&w);
}

/* A request that must wait for memory is not passed by later ones of its tenant for ever. */
static void test_a_large_request_is_not_passed_by_its_own_tenant(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "chunked", 60);
    struct world_submit small = {.prompt_tokens = 40, .max_tokens = 40, .has_share = true};
    send(&w, 1, 4, small);
    run(&w, 5);
    send(&w, 1, 1, (struct world_submit){.prompt_tokens = 400, .max_tokens = 4, .has_share = true});
    const struct world_request *large = world_last(&w);
    send(&w, 1, 20, small);
    const struct world_request *last = world_last(&w);
    steps_to_first_token(&w, large);
    assert_int_equal(last->events_total, 0);
    world_drain(&w, 5000);
    world_close(&w);
}

static uint64_t digest_of_plans(bool has_share, uint64_t seed) {
    struct world w;
    struct sched_options o = world_options("chunked", 40, 4, 4);
    o.knobs.max_step_tokens = 24;
    o.knobs.tenant_reserve = 0;
    world_open(&w, &o);
    w.rng = (struct rng){.seed = seed};
    uint64_t digest = seed;
    for (uint32_t n = 0; n < 300; n++) {
        if (n < 200 && rng_below(&w.rng, 3) == 0) {
            struct world_submit in = {.tenant = 5, .has_share = has_share};
            in.prompt_tokens = 1 + (uint32_t)rng_below(&w.rng, 60);
            in.max_tokens = 1 + (uint32_t)rng_below(&w.rng, 40);
            world_submit(&w, in);
            w.now_us++;
        }
        if (!world_step(&w)) continue;
        for (uint32_t r = 0; r < w.plan.row_count; r++) {
            digest = text_hash(digest, (int32_t)w.plan.rows[r].seq);
            digest = text_hash(digest, (int32_t)w.plan.rows[r].count);
        }
    }
    w.verify = false;
    world_drain(&w, 20000);
    world_close(&w);
    return digest;
}

static void test_without_a_reserve_one_tenant_has_the_plans_of_no_rules(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        if (digest_of_plans(true, seed) != digest_of_plans(false, seed))
            fail_msg("seed %lu: the plans differ", (unsigned long)seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_batch_has_a_slot_for_another_tenant),
        cmocka_unit_test(test_long_prompts_do_not_stop_the_prompt_of_another_tenant),
        cmocka_unit_test(test_a_full_pool_has_blocks_for_another_tenant),
        cmocka_unit_test(test_a_tenant_within_its_share_is_not_preempted),
        cmocka_unit_test(test_a_tenant_leaves_an_eighth_of_the_batch),
        cmocka_unit_test(test_the_last_slot_is_for_a_tenant_below_its_share),
        cmocka_unit_test(test_choices_of_a_request_leave_the_reserve),
        cmocka_unit_test(test_tenants_that_wait_take_turns),
        cmocka_unit_test(test_a_tenant_that_must_wait_does_not_block_the_queue),
        cmocka_unit_test(test_a_large_request_is_not_passed_by_its_own_tenant),
        cmocka_unit_test(test_without_a_reserve_one_tenant_has_the_plans_of_no_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
