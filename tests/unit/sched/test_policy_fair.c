/* Goal:   while tenants have work waiting they get equal service, however much each of them sends
 *         and however long its requests are; and no tenant saves up service.
 * Method: worlds with two or three tenants, all of whom always have work waiting; tokens computed
 *         for each are counted step by step. */
#include "unit/sched/world.h"

enum { TENANTS = 4 };

/* What one tenant sends: so many at a time, so often, of such lengths. */
struct sender {
    uint32_t per_turn, turn_steps;
    uint32_t prompt_tokens, answer_min, answer_max, max_tokens;
};

struct service {
    double tokens[TENANTS], weighted[TENANTS];
    uint32_t contended_steps;
};

static void send(struct world *w, const struct sender *s, uint32_t tenant) {
    if (w->step % s->turn_steps != 0) return;
    for (uint32_t i = 0; i < s->per_turn; i++) {
        seq_idx out;
        struct err err = {0};
        uint32_t span = s->answer_max - s->answer_min + 1;
        struct world_submit in = {.prompt_tokens = s->prompt_tokens,
                                  .max_tokens = s->max_tokens,
                                  .tenant = tenant,
                                  .end_after = s->answer_min + (uint32_t)rng_below(&w->rng, span)};
        if (in.end_after >= s->max_tokens) in.end_after = 0;
        if (w->request_count < WORLD_REQUESTS) world_try_submit(w, in, &out, &err);
    }
}

static uint32_t waiting_of(const struct world *w, uint32_t tenant) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < sched_seq_max(&w->options.knobs); i++) {
        const struct sched_seq *seq = sched_seq_at(w->s, i);
        count += seq->state == SEQ_WAITING && seq->tenant == tenant;
    }
    return count;
}

static void count_rows(const struct world *w, struct service *out) {
    for (uint32_t r = 0; r < w->plan.row_count; r++) {
        const struct plan_row *row = &w->plan.rows[r];
        const struct sched_seq *seq = sched_seq_at(w->s, row->seq);
        bool is_answer = row->first >= seq->prompt_tokens;
        out->tokens[seq->tenant] += row->count;
        out->weighted[seq->tenant] += is_answer ? 2.0 * row->count : row->count;
    }
}

static struct service serve(const struct sender *senders, uint32_t count, uint32_t steps) {
    struct world w;
    struct service out = {.contended_steps = 0};
    struct sched_options o = world_options("fair", 1024, 8, 8);
    o.knobs.queue_max = WORLD_REQUESTS;
    o.knobs.max_step_tokens = 64;
    world_open(&w, &o);
    w.verify = false;
    w.rng = (struct rng){.seed = 9};
    for (uint32_t n = 0; n < steps; n++) {
        bool all_wait = true;
        for (uint32_t t = 0; t < count; t++) send(&w, &senders[t], t);
        world_plan(&w);
        for (uint32_t t = 0; t < count; t++) all_wait = all_wait && waiting_of(&w, t) > 0;
        if (all_wait) count_rows(&w, &out);
        out.contended_steps += all_wait;
        if (world_is_empty_plan(&w)) continue;
        world_run(&w);
        world_apply(&w);
    }
    world_close(&w);
    return out;
}

static void test_a_tenant_that_sends_ten_times_as_much_gets_a_tenth_more_at_most(void **state) {
    (void)state;
    const struct sender senders[] = {
        {.per_turn = 1, .turn_steps = 4, 30, 5, 40, 60},
        {.per_turn = 10, .turn_steps = 4, 30, 5, 40, 60},
    };
    struct service s = serve(senders, 2, 1400);
    assert_true(s.contended_steps > 1000);
    assert_true(s.tokens[1] <= 1.1 * s.tokens[0]);
    assert_true(s.tokens[0] <= 1.1 * s.tokens[1]);
}

static void test_tenants_of_long_and_short_requests_get_equal_service(void **state) {
    (void)state;
    const struct sender senders[] = {
        {.per_turn = 8, .turn_steps = 4, 10, 3, 8, 60},
        {.per_turn = 1, .turn_steps = 4, 120, 30, 60, 100},
    };
    struct service s = serve(senders, 2, 1400);
    assert_true(s.contended_steps > 700);
    assert_true(s.weighted[1] <= 1.15 * s.weighted[0]);
    assert_true(s.weighted[0] <= 1.15 * s.weighted[1]);
}

static void test_three_tenants_get_a_third_each(void **state) {
    (void)state;
    const struct sender senders[] = {
        {.per_turn = 1, .turn_steps = 4, 30, 5, 40, 60},
        {.per_turn = 3, .turn_steps = 4, 30, 5, 40, 60},
        {.per_turn = 6, .turn_steps = 4, 30, 5, 40, 60},
    };
    struct service s = serve(senders, 3, 1500);
    double all = s.tokens[0] + s.tokens[1] + s.tokens[2];
    assert_true(s.contended_steps > 700);
    for (int t = 0; t < 3; t++) {
        assert_true(s.tokens[t] > all / 3 * 0.9);
        assert_true(s.tokens[t] < all / 3 * 1.1);
    }
}

static void test_a_tenant_saves_up_nothing_while_it_sends_nothing(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("fair", 1024, 8, 2);
    o.knobs.queue_max = WORLD_REQUESTS;
    world_open(&w, &o);
    w.verify = false;
    struct world_submit in = {.prompt_tokens = 10, .max_tokens = 20, .tenant = 1};
    for (int i = 0; i < 300; i++) world_submit(&w, in);
    for (int i = 0; i < 1500; i++) assert_true(world_step(&w)); /* tenant 2 is away */
    in.tenant = 2;
    for (int i = 0; i < 60; i++) world_submit(&w, in);
    struct service out = {.contended_steps = 0};
    for (int i = 0; i < 400; i++) {
        world_plan(&w);
        count_rows(&w, &out);
        world_run(&w);
        world_apply(&w);
    }
    assert_true(out.tokens[2] <= 1.2 * out.tokens[1]);
    assert_true(out.tokens[1] <= 1.2 * out.tokens[2]);
    world_close(&w);
}

static void test_a_single_tenant_is_served_in_order_of_arrival(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("fair", 256, 8, 1);
    world_open(&w, &o);
    for (int i = 0; i < 6; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 10, .max_tokens = 5, .tenant = 3});
    world_drain(&w, 1000);
    for (uint32_t i = 1; i < 6; i++)
        assert_true(w.requests[i - 1].last.first_token_us < w.requests[i].last.first_token_us);
    world_close(&w);
}

/* A step may give several answer tokens, where drafts were accepted, and compute some in vain. What
 * a tenant is charged is the same as with a step for each token. */
static double charged_with(uint32_t tokens_per_step, uint32_t refused) {
    enum { PROMPT = 10, ANSWER = 60 };
    const struct sched_policy *fair = sched_policy_find("fair");
    struct knobs knobs = knobs_default();
    const struct sched_view view = {.knobs = &knobs, .running_count = 1};
    void *state = test_calloc(1, fair->state_bytes);
    struct sched_seq first = {.tenant = 1, .prompt_tokens = PROMPT, .total = PROMPT};
    first.total_max = PROMPT + ANSWER;
    struct sched_seq next = first;
    first.key = next.key = INT64_MAX;
    fair->on_arrive(state, &first, &view);
    fair->on_arrive(state, &next, &view);
    const int64_t before = fair->key(state, &next, &view);
    first.computed = PROMPT;
    first.total++; /* the step of the prompt */
    first.state = SEQ_RUNNING;
    fair->on_step(state, &first, PROMPT, &view);
    while (first.total < first.total_max) {
        first.total += tokens_per_step;
        if (first.total > first.total_max) first.total = first.total_max;
        first.computed = first.total - 1;
        fair->on_step(state, &first, tokens_per_step + refused, &view);
    }
    const double charged = (double)(fair->key(state, &next, &view) - before);
    fair->on_finish(state, &first, &view);
    test_free(state);
    return charged;
}

static void test_answers_are_charged_whatever_was_drafted(void **state) {
    (void)state;
    const double plain = charged_with(1, 0);
    assert_true(plain == 2.0 * 60); /* fair_output_weight */
    for (uint32_t tokens = 1; tokens <= 25; tokens++)
        for (uint32_t refused = 0; refused <= 24; refused += 8)
            assert_true(charged_with(tokens, refused) == plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tenant_that_sends_ten_times_as_much_gets_a_tenth_more_at_most),
        cmocka_unit_test(test_tenants_of_long_and_short_requests_get_equal_service),
        cmocka_unit_test(test_three_tenants_get_a_third_each),
        cmocka_unit_test(test_a_tenant_saves_up_nothing_while_it_sends_nothing),
        cmocka_unit_test(test_a_single_tenant_is_served_in_order_of_arrival),
        cmocka_unit_test(test_answers_are_charged_whatever_was_drafted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
