/* unit/sched/world.h - a small world around a scheduler, for its tests.
 *
 * A device of plain arrays replaces the KV memory: each token slot holds a hash of the text
 * up to and including its token. A row first checks that every position it reads holds what its
 * sequence says it should (so a block that was shared, moved or reused wrongly shows at once),
 * then writes its own. The sampled token is a function of that hash and of the request, so an
 * answer can be computed without any scheduler and must come out the same.
 *
 * world_step takes a turn as an engine of depth 0 does, world_step_ahead as one of depth 1: there
 * the oldest plan runs only after the next one was made.
 */
#ifndef TESTS_SCHED_WORLD_H
#define TESTS_SCHED_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sched/sched.h"

enum { WORLD_REQUESTS = 4096, WORLD_VOCAB = 1000, WORLD_FORCED = 6, WORLD_ROWS = 1024 };

struct world_request {
    uint64_t request;
    uint32_t choice;
    int32_t *tokens;
    uint32_t prompt_tokens, total_max, end_at; /* end_at: total at which it ends by itself */
    uint64_t salt;
    bool is_live, is_cancelled, is_batch;
    bool is_forced;        /* forced tokens follow the sampled ones */
    uint32_t events_total; /* of the last event */
    enum finish_reason finish;
    struct sched_event last;
    uint64_t submitted_step;
};

struct world {
    struct sched *s;
    struct sched_options options;
    struct plan plan;
    struct plan other;   /* with depth 1 the two take turns */
    struct plan *oldest; /* with depth 1: the plan under way; NULL: none is */
    bool is_draining;    /* with depth 1: no plan before that is applied */
    struct row_result *results;
    int32_t forced[WORLD_ROWS][WORLD_FORCED]; /* of the results */
    uint32_t forced_tokens;                   /* of all results */
    uint64_t *memory, *spill;                 /* [group][block][slot] */
    struct world_request *requests;
    uint32_t request_count, live_count;
    int64_t now_us;
    uint64_t step;
    uint32_t failed_rows_every; /* one row in so many fails; 0: none */
    uint32_t batch_percent;     /* of the requests that a random walk submits */
    struct rng rng;
    bool verify, is_timeless; /* timeless: steps say nothing about their time */
};

static inline struct sched_options world_options(const char *policy, uint32_t kv_blocks,
                                                 uint32_t block_size, uint32_t max_seqs) {
    struct sched_options o = {.policy = sched_policy_find(policy),
                              .knobs = knobs_default(),
                              .ctx_tokens = 4096,
                              .group_count = 1};
    assert_non_null(o.policy);
    cost_init(&o.cost, cost_profile_find("this-cpu"));
    o.knobs.kv_blocks = kv_blocks;
    o.knobs.block_size = block_size;
    o.knobs.max_seqs = max_seqs;
    o.knobs.spill_blocks = 64;
    return o;
}

static inline void world_open(struct world *w, const struct sched_options *o) {
    struct err err = {0};
    *w = (struct world){.options = *o, .now_us = 1000, .verify = true};
    enum status st = sched_create(&w->s, o, &err);
    if (st != ST_OK) fail_msg("%s", err.text);
    uint32_t moves = 4 * o->knobs.kv_blocks + 64;
    assert_int_equal(plan_init(&w->plan, o->knobs.max_seqs, moves), ST_OK);
    assert_int_equal(plan_init(&w->other, o->knobs.max_seqs, moves), ST_OK);
    size_t slots = (size_t)o->knobs.kv_blocks * o->knobs.block_size * o->group_count;
    size_t spilled = (size_t)o->knobs.spill_blocks * o->knobs.block_size * o->group_count;
    w->results = mem_zalloc_array(o->knobs.max_seqs, sizeof(w->results[0]));
    w->memory = mem_zalloc_array(slots, sizeof(w->memory[0]));
    w->spill = mem_zalloc_array(spilled + 1, sizeof(w->spill[0]));
    w->requests = mem_zalloc_array(WORLD_REQUESTS, sizeof(w->requests[0]));
}

static inline void world_close(struct world *w) {
    sched_destroy(w->s);
    plan_deinit(&w->plan);
    plan_deinit(&w->other);
    for (uint32_t i = 0; i < w->request_count; i++) mem_free(w->requests[i].tokens);
    mem_free(w->results);
    mem_free(w->memory);
    mem_free(w->spill);
    mem_free(w->requests);
}

/* ---- the text and its hashes ---- */

static inline uint64_t text_hash(uint64_t before, int32_t token) {
    uint64_t h = (before ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline int32_t next_token(uint64_t hash, uint32_t choice) {
    return (int32_t)(text_hash(hash, (int32_t)choice + 7) % WORLD_VOCAB);
}

static inline struct world_request *world_find(struct world *w, uint64_t request, uint32_t choice) {
    for (uint32_t i = w->request_count; i-- > 0;)
        if (w->requests[i].request == request && w->requests[i].choice == choice)
            return &w->requests[i];
    fail_msg("no such request");
    return NULL;
}

/* The answer, without a scheduler. */
static inline void check_answer(const struct world_request *r, uint32_t total) {
    uint64_t h = r->salt;
    for (uint32_t p = 0; p < total; p++) {
        if (p >= r->prompt_tokens && r->tokens[p] != next_token(h, r->choice))
            fail_msg("request %lu.%u: token %u differs", (unsigned long)r->request, r->choice, p);
        h = text_hash(h, r->tokens[p]);
    }
}

/* ---- the device ---- */

static inline void world_move(struct world *w, const struct kv_move *m) {
    uint32_t bs = w->options.knobs.block_size;
    uint64_t *memory = w->memory + (size_t)m->group * w->options.knobs.kv_blocks * bs;
    uint64_t *spill = w->spill + (size_t)m->group * w->options.knobs.spill_blocks * bs;
    uint64_t *from = (m->kind == KV_MOVE_IN ? spill : memory) + (size_t)m->from * bs;
    uint64_t *to = (m->kind == KV_MOVE_OUT ? spill : memory) + (size_t)m->to * bs;
    memmove(to, from, bs * sizeof(*to));
}

/* Up to WORLD_FORCED tokens follow the sampled one, not past the end; `h` is of the text so far. */
static inline void world_force(struct world *w, const struct world_request *r,
                               const struct plan_row *row, uint64_t h, struct row_result *out) {
    size_t place = (size_t)(out - w->results);
    uint32_t left = r->end_at - (row->first + row->count + 1);
    uint32_t wanted = row->samples && place < WORLD_ROWS ? (uint32_t)(h % (WORLD_FORCED + 1)) : 0;
    for (; out->forced_count < wanted && out->forced_count < left; out->forced_count++) {
        int32_t token = next_token(h, r->choice);
        w->forced[place][out->forced_count] = token;
        h = text_hash(h, token);
    }
    out->forced = w->forced[place];
    w->forced_tokens += out->forced_count;
}

static inline void world_row(struct world *w, const struct plan_row *row, struct row_result *out) {
    const struct sched_seq *seq = sched_seq_at(w->s, row->seq);
    *out = (struct row_result){.token = -1};
    if (seq->state != SEQ_RUNNING) return; /* it has ended, or is recomputed: the row is dropped */
    uint32_t bs = w->options.knobs.block_size, end = row->first + row->count;
    uint64_t h = seq->salt.low;
    for (uint32_t p = 0; p < end; p++) {
        h = text_hash(h, row->tokens[p]);
        for (uint32_t g = 0; g < w->options.group_count; g++) {
            const uint32_t *table = kv_seq_table(sched_kv(w->s), row->kv, g);
            uint32_t window = w->options.windows[g];
            if (p < row->first && window > 0 && p + window <= row->first) continue;
            uint64_t *slot =
                &w->memory[((size_t)g * w->options.knobs.kv_blocks + table[p / bs]) * bs + p % bs];
            if (p < row->first && *slot != h)
                fail_msg("request %lu.%u reads a wrong block at position %u (step %lu)",
                         (unsigned long)seq->request, seq->choice, p, (unsigned long)w->step);
            if (p >= row->first) *slot = h;
        }
    }
    const struct world_request *r = world_find(w, seq->request, seq->choice);
    *out = (struct row_result){.token = next_token(h, seq->choice)};
    if (r->is_forced) world_force(w, r, row, text_hash(h, out->token), out);
    out->is_end = end + 1 + out->forced_count == r->end_at;
    out->failed = w->failed_rows_every && rng_below(&w->rng, w->failed_rows_every) == 0;
}

/* `plan` is the newest one. */
static inline void check_plan(const struct world *w, const struct plan *plan) {
    const struct knobs *k = &w->options.knobs;
    uint32_t tokens = 0, samples = 0;
    bool in_prompts = false;
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct plan_row *row = &plan->rows[r];
        const struct sched_seq *seq = sched_seq_at(w->s, row->seq);
        tokens += row->count;
        samples += row->samples;
        assert_int_equal(seq->state, SEQ_RUNNING);
        assert_int_equal(row->first, seq->computed);
        assert_true(row->count >= 1 && row->count <= seq_left(seq));
        assert_int_equal(row->samples, row->count == seq_left(seq));
        bool is_decode = row->samples && row->count == 1;
        assert_false(in_prompts && is_decode);
        in_prompts = !is_decode;
        for (uint32_t q = 0; q < r; q++) assert_true(plan->rows[q].seq != row->seq);
        bool is_whole = w->options.policy->whole_prompts && !seq->is_batch;
        if (is_whole) assert_true(row->samples);
        if (k->chunk_tokens > 0 && !is_whole && plan->row_count > 1)
            assert_true(row->count <= k->chunk_tokens);
    }
    assert_int_equal(tokens, plan->token_count);
    assert_int_equal(samples, plan->sample_count);
    assert_true(plan->batch_row_count > 0 ? plan->batch_us > 0 : plan->batch_us == 0);
    bool is_solo = w->options.policy->whole_prompts && plan->row_count == 1;
    assert_true(tokens <= k->max_step_tokens || is_solo);
}

/* ---- events ---- */

static inline void world_events(struct world *w) {
    struct sched_event e;
    while (sched_next_event(w->s, &e)) {
        struct world_request *r = world_find(w, e.request, e.choice);
        assert_true(r->is_live);
        assert_true(e.total >= r->events_total);
        assert_true(e.total <= r->total_max);
        r->events_total = e.total;
        r->last = e;
        if (e.finish == FINISH_NONE) continue;
        r->finish = e.finish;
        r->is_live = false;
        w->live_count--;
        if (e.finish == FINISH_LENGTH) assert_int_equal(e.total, r->total_max);
        if (e.finish == FINISH_STOP && !r->is_cancelled) assert_int_equal(e.total, r->end_at);
        check_answer(r, e.total);
    }
}

/* ---- steps ---- */

static inline void world_plan_into(struct world *w, struct plan *plan) {
    sched_plan(w->s, w->now_us, plan);
    if (w->verify) sched_verify(w->s);
    if (w->verify) check_plan(w, plan);
}

static inline void world_plan(struct world *w) { world_plan_into(w, &w->plan); }

static inline bool is_empty_plan(const struct plan *plan) {
    return plan->row_count == 0 && plan->moves.count == 0;
}

static inline bool world_is_empty_plan(const struct world *w) { return is_empty_plan(&w->plan); }

static inline void world_run_plan(struct world *w, const struct plan *plan) {
    for (uint32_t m = 0; m < plan->moves.count; m++) world_move(w, &plan->moves.list[m]);
    for (uint32_t r = 0; r < plan->row_count; r++) world_row(w, &plan->rows[r], &w->results[r]);
}

static inline void world_run(struct world *w) { world_run_plan(w, &w->plan); }

static inline void world_apply_plan(struct world *w, struct plan *plan) {
    int64_t us = 100 + 10 * (int64_t)plan->token_count;
    w->now_us += us;
    struct step_result result = {
        .rows = w->results, .row_count = plan->row_count, .elapsed_us = w->is_timeless ? 0 : us};
    sched_apply(w->s, plan, &result, w->now_us);
    w->step++;
    if (w->verify) sched_verify(w->s);
    world_events(w);
}

static inline void world_apply(struct world *w) { world_apply_plan(w, &w->plan); }

/* The plan that is not under way. */
static inline struct plan *world_next(struct world *w) {
    return w->oldest == &w->plan ? &w->other : &w->plan;
}

/* Make a plan, ahead if another one is under way; NULL: there was nothing to plan. */
static inline struct plan *world_plan_next(struct world *w) {
    struct plan *next = world_next(w);
    if (w->is_draining) return NULL;
    world_plan_into(w, next);
    if (!w->oldest) assert_false(next->wants_drain);
    if (w->oldest) assert_int_equal(next->preempted_count, 0);
    w->is_draining = next->wants_drain;
    return is_empty_plan(next) ? NULL : next;
}

/* The oldest plan is over, and `next` takes its place; NULL: none does. */
static inline void world_advance(struct world *w, struct plan *next) {
    w->oldest = next;
    if (!next) w->is_draining = false;
}

/* Run and apply the oldest plan, if there is one. */
static inline void world_finish_oldest(struct world *w, struct plan *next) {
    struct plan *oldest = w->oldest;
    world_advance(w, next);
    if (!oldest) {
        world_events(w);
        return;
    }
    world_run_plan(w, oldest);
    world_apply_plan(w, oldest);
}

/* One turn of depth 1; false if there was nothing to do. */
static inline bool world_step_ahead(struct world *w) {
    bool has_oldest = w->oldest != NULL;
    struct plan *next = world_plan_next(w);
    world_finish_oldest(w, next);
    return has_oldest || next;
}

/* One turn; false if there was nothing to do. */
static inline bool world_step(struct world *w) {
    world_plan(w);
    if (world_is_empty_plan(w)) {
        world_events(w);
        return false;
    }
    world_run(w);
    world_apply(w);
    return true;
}

/* Until nothing is left, waiting for timers where nothing can be done. */
static inline void world_drain_by(struct world *w, bool (*step)(struct world *),
                                  uint32_t steps_max) {
    for (uint32_t n = 0; n < steps_max; n++) {
        if (step(w)) continue;
        if (sched_is_idle(w->s)) return;
        int64_t t = sched_next_timer_us(w->s);
        if (t == INT64_MAX) fail_msg("stuck at step %lu", (unsigned long)w->step);
        if (t > w->now_us) w->now_us = t;
    }
    fail_msg("not done after %u steps", steps_max);
}

static inline void world_drain(struct world *w, uint32_t steps_max) {
    world_drain_by(w, world_step, steps_max);
}

/* ---- requests ---- */

struct world_submit {
    uint32_t prompt_tokens, max_tokens;
    uint32_t end_after; /* answer tokens after which it ends by itself; 0: by length */
    uint64_t text;      /* which text the prompt is taken from */
    uint32_t shared;    /* first tokens that all prompts of one text share */
    uint64_t request;   /* 0: the next number */
    uint32_t choice, tenant;
    seq_idx parent;
    bool is_fork, one_row_at_a_time, waits_for_token, is_forced, has_share, is_batch;
    struct urgency urgency;
    uint8_t draft_max; /* only where plans with drafts are not run: the device knows none */
};

static inline enum status world_try_submit(struct world *w, struct world_submit in, seq_idx *out,
                                           struct err *err) {
    assert_true(w->request_count < WORLD_REQUESTS);
    struct world_request *r = &w->requests[w->request_count];
    *r = (struct world_request){.request = in.request ? in.request : 1000 + w->request_count,
                                .choice = in.choice,
                                .prompt_tokens = in.prompt_tokens,
                                .total_max = in.prompt_tokens + in.max_tokens,
                                .salt = in.tenant,
                                .is_live = true,
                                .is_forced = in.is_forced,
                                .is_batch = in.is_batch,
                                .submitted_step = w->step};
    r->end_at = in.end_after ? in.prompt_tokens + in.end_after : UINT32_MAX;
    r->tokens = mem_zalloc_array(r->total_max + 1, sizeof(r->tokens[0]));
    for (uint32_t p = 0; p < in.prompt_tokens; p++) {
        uint64_t own = p < in.shared ? 0 : r->request;
        r->tokens[p] = (int32_t)(rng_at(in.text, own, p) % WORLD_VOCAB);
    }
    struct sched_submit submit = {.request = r->request,
                                  .choice = in.choice,
                                  .parent = in.is_fork ? in.parent : SEQ_NONE,
                                  .tenant = in.tenant,
                                  .has_share = in.has_share,
                                  .is_batch = in.is_batch,
                                  .salt = {.low = in.tenant},
                                  .urgency = in.urgency,
                                  .one_row_at_a_time = in.one_row_at_a_time,
                                  .waits_for_token = in.waits_for_token,
                                  .draft_max = in.draft_max,
                                  .tokens = r->tokens,
                                  .prompt_tokens = in.prompt_tokens,
                                  .total_max = r->total_max};
    enum status st = sched_submit(w->s, &submit, w->now_us, out, err);
    if (st != ST_OK) {
        mem_free(r->tokens);
        return st;
    }
    w->request_count++;
    w->live_count++;
    return ST_OK;
}

static inline seq_idx world_submit(struct world *w, struct world_submit in) {
    struct err err = {0};
    seq_idx i = SEQ_NONE;
    if (world_try_submit(w, in, &i, &err) != ST_OK) fail_msg("%s", err.text);
    return i;
}

/* Two answers that outgrow a pool of 12 blocks of four tokens together, to their ends. */
static inline void world_run_two_that_outgrow(struct world *w, struct sched_options *o) {
    o->knobs.prefix_cache = false;
    world_open(w, o);
    w->is_timeless = true;
    world_submit(w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    world_submit(w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    world_drain(w, 300);
}

static inline struct world_request *world_last(struct world *w) {
    return &w->requests[w->request_count - 1];
}

#endif
