/* sched/policy_sjf.c - S3: shortest job first, by a length that is predicted and learned.
 *
 * Past answers are remembered by features of their prompts: its length and max_tokens, both by
 * powers of two. A cell keeps a running mean and mean deviation of the answers' lengths; the
 * prediction is mean + half the deviation, from the cell if it has seen enough, else from all
 * answers, else half of max_tokens. The line is ordered by arrival plus `sjf_patience` times the
 * work that is left: a shorter job passes a longer one, but only for a time in proportion to the
 * longer one's own work, so nobody waits for ever. An answer that outruns its prediction by the
 * margin is predicted anew at twice its length and may then lose its seat to a shorter one.
 *
 * Notes: a = predicted answer length, tokens; b = predicted work left, us; level = 1 once it has
 * outrun its prediction; mark = 1 if it is counted in `outran_count`.
 */
#include "sched/policy_pick.h"

enum { BUCKETS = 24, OBSERVED_MIN = 8 };
enum { LOOK_TOKENS = 16 }; /* of an answer, between two looks at the work that is left */
static const double LEARN_RATE = 0.05;

struct cell {
    double mean, deviation;
    uint64_t seen;
};

struct sjf_state {
    struct cell cells[BUCKETS][BUCKETS]; /* [prompt][max_tokens] */
    struct cell all;
    uint32_t outran_count; /* running answers that have outrun their predictions */
};

static uint32_t bucket_of(uint32_t tokens) {
    uint32_t bits = tokens ? 32u - (uint32_t)__builtin_clz(tokens) : 0;
    return bits < BUCKETS ? bits : BUCKETS - 1;
}

static uint32_t max_answer(const struct sched_seq *seq) {
    return seq->total_max - seq->prompt_tokens;
}

static void learn(struct cell *c, double length) {
    double rate = (double)c->seen < 1 / LEARN_RATE ? 1.0 / (double)(c->seen + 1) : LEARN_RATE;
    double miss = length - c->mean;
    c->mean += rate * miss;
    c->deviation += rate * ((miss < 0 ? -miss : miss) - c->deviation);
    c->seen++;
}

static double predict(const struct sjf_state *s, const struct sched_seq *seq) {
    uint32_t max = max_answer(seq);
    const struct cell *c = &s->cells[bucket_of(seq->prompt_tokens)][bucket_of(max)];
    if (c->seen < OBSERVED_MIN) c = &s->all;
    double length = c->seen < OBSERVED_MIN ? max * 0.5 : c->mean + 0.5 * c->deviation;
    if (length < 1) length = 1;
    return length < max ? length : max;
}

/* Its prompt, and its share of the steps in which it decodes: somebody waits, so every seat is
 * taken. */
static void update_work_left(struct sched_seq *seq, const struct sched_view *view) {
    double answer = (double)seq->policy.a - seq_generated(seq);
    uint32_t tokens = seq_left(seq), seats = view->knobs->max_seqs;
    double fixed_us = cost_predict_us(view->cost, 0, 0);
    double prompt_us =
        cost_predict_us(view->cost, tokens, cost_attended(seq->computed, tokens)) - fixed_us;
    double share_us = cost_predict_us(view->cost, 1, seq->total) - fixed_us + fixed_us / seats;
    seq->policy.b = (int64_t)(prompt_us + (answer > 1 ? answer : 1) * share_us);
}

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    return seq->arrived_us + (int64_t)(view->knobs->sjf_patience * (double)seq->policy.b);
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    seq->policy.a = (int64_t)predict(state, seq);
    update_work_left(seq, view);
}

/* It runs and has outrun its prediction, or not. */
static void mark(struct sjf_state *s, struct sched_seq *seq, bool on) {
    s->outran_count += on - seq->policy.mark;
    seq->policy.mark = on;
}

static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    mark(state, seq, seq->policy.level > 0);
}

static void on_preempt(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    mark(state, seq, false);
}

static bool on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    uint32_t generated = seq_generated(seq), max = max_answer(seq);
    if (tokens == 1 && generated % LOOK_TOKENS != 0) return false;
    if (generated > (double)seq->policy.a * (1 + view->knobs->sjf_margin)) {
        seq->policy.a = generated < max / 2 ? 2 * generated : max;
        seq->policy.level = 1;
        mark(state, seq, true);
    }
    update_work_left(seq, view);
    return true;
}

static void on_finish(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    struct sjf_state *s = state;
    double length = seq_generated(seq);
    mark(s, seq, false);
    if (length < 1) return; /* it was cancelled before it said anything */
    learn(&s->cells[bucket_of(seq->prompt_tokens)][bucket_of(max_answer(seq))], length);
    learn(&s->all, length);
}

/* Only a running answer that outran its prediction gives way, and only to one that is predicted
 * to take half the work that it still has: seats do not change hands for small differences. */
static bool displaces_seq(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view) {
    (void)state;
    (void)view;
    return running->policy.level > 0 && 2 * waiting->policy.b < running->policy.b;
}

/* With every seat taken and none to be had there is no use in looking. */
static bool may_admit(const void *state, const struct sched_view *view) {
    const struct sjf_state *s = state;
    return view->running_count < view->knobs->max_seqs || s->outran_count > 0;
}

const struct sched_policy sched_policy_sjf = {
    .name = "sjf",
    .summary = "S3: shortest predicted answer first, learned from past lengths",
    .state_bytes = sizeof(struct sjf_state),
    .displaces = true,
    .key = key,
    .may_admit = may_admit,
    .displaces_seq = displaces_seq,
    .pick_victim = pick_last_in_order,
    .on_arrive = on_arrive,
    .on_admit = on_admit,
    .on_preempt = on_preempt,
    .on_step = on_step,
    .on_finish = on_finish,
};
