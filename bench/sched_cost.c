/* bench/sched_cost.c - what a step of the scheduler costs by itself: plan and apply, no model.
 *
 * For every policy: max_seqs sequences decode while others wait; at depth 0, where each plan is
 * applied before the next one is made, and at depth 1, where it is applied after. Prints CSV:
 * policy, depth, running, waiting, mean and median microseconds of plan + apply, heap moves in a
 * step. The limits are 20 us at 256 running and 50 us at 1,024; the waiting must not matter.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "sched/sched.h"

enum { PROMPT = 64, ANSWER = 1000, WARM_STEPS = 100, STEPS = 400, STEP_US = 20000 };
enum { BLOCKS_PER_SEQ = 42 }; /* what the steps fill, and a little */

struct load {
    struct sched *s;
    struct plan plans[2]; /* by turns; with depth 0 the first one alone */
    uint32_t depth;
    uint64_t turn;
    struct row_result *results;
    int32_t *tokens;
    int64_t now_us;
    uint64_t request;
};

static void open_load(struct load *l, const struct sched_policy *policy, uint32_t depth,
                      uint32_t running, uint32_t waiting) {
    struct err err = {0};
    struct sched_options o = {.policy = policy,
                              .knobs = knobs_default(),
                              .ctx_tokens = PROMPT + ANSWER,
                              .group_count = 1};
    cost_init(&o.cost, cost_profile_find("h200-8b"));
    o.knobs.max_seqs = o.knobs.dynamic_batch = running;
    o.knobs.max_step_tokens = 8192;
    o.knobs.queue_max = running + waiting;
    o.knobs.kv_blocks = running * BLOCKS_PER_SEQ;
    if (policy->reserves_all)
        o.knobs.kv_blocks = running * ((PROMPT + ANSWER) / o.knobs.block_size + 1);
    *l = (struct load){.now_us = 1, .depth = depth};
    if (sched_create(&l->s, &o, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1); /* NOLINT */
    }
    enum status st = plan_init(&l->plans[0], running, 4096);
    if (st == ST_OK) st = plan_init(&l->plans[1], running, 4096);
    l->results = mem_zalloc_array(running, sizeof(l->results[0]));
    l->tokens =
        mem_zalloc_array((size_t)(running + waiting) * (PROMPT + ANSWER), sizeof(l->tokens[0]));
    CHECK(st == ST_OK && l->results && l->tokens);
}

static void close_load(struct load *l) {
    sched_destroy(l->s);
    plan_deinit(&l->plans[0]);
    plan_deinit(&l->plans[1]);
    mem_free(l->results);
    mem_free(l->tokens);
}

static void submit(struct load *l, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        struct err err = {0};
        seq_idx i;
        int32_t *tokens = l->tokens + l->request * (PROMPT + ANSWER);
        for (uint32_t p = 0; p < PROMPT; p++) tokens[p] = (int32_t)(l->request * PROMPT + p);
        struct sched_submit in = {.request = l->request++,
                                  .parent = SEQ_NONE,
                                  .tenant = (uint32_t)(l->request % 7),
                                  .tokens = tokens,
                                  .prompt_tokens = PROMPT,
                                  .total_max = PROMPT + ANSWER};
        enum status st = sched_submit(l->s, &in, l->now_us++, &i, &err);
        CHECK(st == ST_OK);
    }
}

/* Processor time of this thread: others on the machine do not count. */
static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Returns the time that plan and apply took. */
static double step(struct load *l) {
    struct plan *made = &l->plans[l->depth > 0 ? l->turn % 2 : 0];
    struct plan *oldest = &l->plans[l->depth > 0 ? (l->turn + 1) % 2 : 0];
    l->turn++;
    double start = cpu_us();
    sched_plan(l->s, l->now_us, made);
    double planned = cpu_us();
    for (uint32_t r = 0; r < oldest->row_count; r++)
        l->results[r] = (struct row_result){.token = (int32_t)(l->now_us + r)};
    struct step_result result = {
        .rows = l->results, .row_count = oldest->row_count, .elapsed_us = STEP_US};
    l->now_us += STEP_US;
    double again = cpu_us();
    if (oldest->row_count + oldest->moves.count > 0) sched_apply(l->s, oldest, &result, l->now_us);
    double end = cpu_us();
    struct sched_event e;
    while (sched_next_event(l->s, &e)) continue;
    return planned - start + end - again;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct sched_policy *policy, uint32_t depth, uint32_t running,
                    uint32_t waiting) {
    static double us[STEPS];
    struct load l;
    open_load(&l, policy, depth, running, waiting);
    submit(&l, running);
    for (int n = 0; n < WARM_STEPS; n++) step(&l);
    submit(&l, waiting);
    for (int n = 0; n < WARM_STEPS; n++) step(&l);
    uint64_t moves = sched_stats(l.s).heap_moves;
    double sum = 0;
    for (int n = 0; n < STEPS; n++) sum += us[n] = step(&l);
    moves = sched_stats(l.s).heap_moves - moves;
    qsort(us, STEPS, sizeof(us[0]), compare);
    printf("%s,%u,%u,%u,%.1f,%.1f,%.1f,%u\n", policy->name, depth, running, waiting, sum / STEPS,
           us[STEPS / 2], (double)moves / STEPS, l.plans[0].row_count);
    fflush(stdout);
    close_load(&l);
}

int main(void) {
    printf("policy,depth,running,waiting,mean_us,median_us,heap_moves_per_step,rows\n");
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        for (uint32_t depth = 0; depth < 2; depth++) {
            measure(*p, depth, 256, 10);
            measure(*p, depth, 256, 100000);
            measure(*p, depth, 1024, 10);
            measure(*p, depth, 1024, 100000);
        }
    }
    return 0;
}
