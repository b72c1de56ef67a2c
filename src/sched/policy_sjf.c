/* sched/policy_sjf.c - S3: shortest job first, by a predicted length.
 *
 * The lengths of past answers are stored by two features: prompt length and max_tokens, both by
 * powers of two. A cell keeps a running mean and mean deviation. The prediction is mean + half the
 * deviation, from the cell if it has at least OBSERVED_MIN answers, else from all answers, else
 * half of max_tokens. The queue is ordered by arrival plus `sjf_patience` times the work that is
 * left: a shorter job passes a longer one, but only for a time in proportion to the longer one's
 * own work, so no request waits for ever. If an answer exceeds its prediction by the margin, the
 * prediction becomes twice its length, and a shorter request may displace it.
 */
#include "sched/policy_pick.h"

enum { BUCKETS = 24, OBSERVED_MIN = 8 };
enum { LOOK_TOKENS = 16 }; /* of an answer, between two updates of the work that is left */
static const double LEARN_RATE = 0.05;

struct cell {
    double mean, deviation;
    uint64_t seen;
};

struct sjf_state {
    struct cell cells[BUCKETS][BUCKETS]; /* [prompt][max_tokens] */
    struct cell all;
    uint32_t exceeded_count; /* running answers that have exceeded their predictions */
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

/* Its prompt, and its share of the steps in which it decodes. The batch counts as full, because the
 * order matters only while sequences wait. */
static void update_work_left(struct sched_seq *seq, const struct sched_view *view) {
    double answer = (double)seq->policy.sjf.answer_tokens - seq_generated(seq);
    uint32_t tokens = seq_left(seq), batch = view->knobs->max_seqs;
    double fixed_us = cost_predict_us(view->cost, 0, 0);
    double prompt_us =
        cost_predict_us(view->cost, tokens, cost_attended(seq->computed, tokens)) - fixed_us;
    double share_us = cost_predict_us(view->cost, 1, seq->total) - fixed_us + fixed_us / batch;
    seq->policy.sjf.work_left_us = (int64_t)(prompt_us + (answer > 1 ? answer : 1) * share_us);
}

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    return seq->arrived_us +
           (int64_t)(view->knobs->sjf_patience * (double)seq->policy.sjf.work_left_us);
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    seq->policy.sjf.answer_tokens = (int64_t)predict(state, seq);
    update_work_left(seq, view);
}

/* `on`: it runs and has exceeded its prediction. */
static void mark(struct sjf_state *s, struct sched_seq *seq, bool on) {
    s->exceeded_count += (uint32_t)on - seq->policy.sjf.is_counted;
    seq->policy.sjf.is_counted = on;
}

static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    mark(state, seq, seq->policy.sjf.has_exceeded);
}

static void on_preempt(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    mark(state, seq, false);
}

static bool on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    uint32_t generated = seq_generated(seq), max = max_answer(seq);
    if (tokens == 1 && generated % LOOK_TOKENS != 0) return false;
    if (generated > (double)seq->policy.sjf.answer_tokens * (1 + view->knobs->sjf_margin)) {
        seq->policy.sjf.answer_tokens = generated < max / 2 ? 2 * generated : max;
        seq->policy.sjf.has_exceeded = true;
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
    if (length < 1) return; /* cancelled before its first token */
    learn(&s->cells[bucket_of(seq->prompt_tokens)][bucket_of(max_answer(seq))], length);
    learn(&s->all, length);
}

/* Only a running answer that has exceeded its prediction is displaced, and only by a request whose
 * predicted work is less than half of what it has left: small differences cause no preemption. */
static bool displaces_seq(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view) {
    (void)state;
    (void)view;
    return running->policy.sjf.has_exceeded &&
           2 * waiting->policy.sjf.work_left_us < running->policy.sjf.work_left_us;
}

/* If the batch is full and none may be displaced, the queue need not be looked at. */
static bool may_admit(const void *state, const struct sched_view *view) {
    const struct sjf_state *s = state;
    return view->running_count < view->knobs->max_seqs || s->exceeded_count > 0;
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
