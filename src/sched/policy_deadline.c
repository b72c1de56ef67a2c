/* sched/policy_deadline.c - requests that can still meet their targets go first.
 *
 * A request may have a target for its first token (TTFT) and for the mean time between tokens
 * (TPOT). From these and the cost model follows the latest time at which its prompt can start. The
 * queue is in the order of these times, the earliest first. Past its latest start a request is
 * hopeless: it goes behind all requests that can still meet their target and, when it is late by
 * more than `deadline_shed` of its target, it is ended (0: never). So under overload the time is
 * spent on requests that meet their targets.
 *
 * The prompt tokens of a step are limited so that the tightest TPOT target of the running sequences
 * is kept with a margin, and no sequence is admitted whose token in every step would break it. A
 * step has drafts only as long as it keeps that target: a sequence without drafts gets one token
 * from it.
 */
#include "sched/policy_pick.h"

/* The TTFT target of a request without one. */
static const int64_t NO_TARGET_US = 60 * 1000000;
/* Added to the keys of hopeless requests, so that they are larger than all others. */
static const int64_t HOPELESS = (int64_t)1 << 61;
/* The share of a TPOT target that a step is planned to take. The rest is for steps that take longer
 * than predicted. */
static const double PACE_SHARE = 0.8;

/* Full steps that other prompts may take before a prompt at the front of the queue. */
enum { AHEAD_STEPS = 3 };

struct deadline_state {
    uint64_t step;        /* the step that gathering_us belongs to */
    int64_t tpot_min_us;  /* the smallest TPOT target in the last complete step; 0: no target */
    int64_t gathering_us; /* the same for the step whose on_step calls are coming in */
};

static int64_t tightest(const struct deadline_state *s) {
    if (s->gathering_us == 0 || s->tpot_min_us == 0) return s->gathering_us + s->tpot_min_us;
    return s->gathering_us < s->tpot_min_us ? s->gathering_us : s->tpot_min_us;
}

static uint32_t prompt_budget(const void *state, uint32_t budget, const struct sched_view *view) {
    double pace_us = PACE_SHARE * (double)tightest(state);
    if (!(pace_us > 0) || view->decode_count == 0) return budget;
    return cost_tokens_within(view->cost, pace_us, view->decode_count, 0, 0, budget);
}

static double drafts_within_us(const void *state, const struct sched_view *view) {
    return view->decode_count > 0 ? PACE_SHARE * (double)tightest(state) : 0;
}

/* Would one more sequence break the tightest TPOT target? */
static bool may_admit(const void *state, const struct sched_view *view) {
    double pace_us = PACE_SHARE * (double)tightest(state);
    if (!(pace_us > 0) || view->running_count == 0) return true;
    return cost_predict_us(view->cost, view->running_count + 1, 0) <= pace_us;
}

/* How long its prompt takes once it is at the front of the queue. If there are no other prompts:
 * its own steps, with the decodes. Otherwise steps are full: one is under way when it reaches the
 * front, and some are taken by prompts that arrive later and are more urgent. */
static double prompt_us(const struct deadline_state *s, const struct sched_seq *seq,
                        const struct sched_view *view) {
    uint32_t left = seq_left(seq);
    uint32_t budget = prompt_budget(s, view->knobs->max_step_tokens, view);
    if (budget == 0) budget = 1;
    uint32_t steps = (left - 1) / budget + 1;
    double own_us = cost_predict_us(view->cost, left, cost_attended(seq->computed, left)) +
                    steps * cost_predict_us(view->cost, view->decode_count, 0);
    if (view->prefill_count == 0 && view->waiting_count <= 1) return own_us;
    double full_us =
        (steps + AHEAD_STEPS) * cost_predict_us(view->cost, view->decode_count + budget, 0);
    return own_us > full_us ? own_us : full_us;
}

/* ---- the queue ---- */

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    return seq->policy.deadline.is_hopeless ? HOPELESS + seq->arrived_us
                                            : seq->policy.deadline.latest_start_us;
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    int64_t target = seq->urgency.ttft_target_us;
    int64_t due_us = seq->arrived_us + (target > 0 ? target : NO_TARGET_US);
    seq->policy.deadline.latest_start_us = due_us - (int64_t)prompt_us(state, seq, view);
    seq->policy.deadline.is_hopeless =
        target > 0 && seq->policy.deadline.latest_start_us < view->now_us;
}

/* Only a request that waits for its first token can miss its TTFT target. */
static bool is_timed(const struct sched_seq *seq) {
    return seq->urgency.ttft_target_us > 0 && seq->first_token_us == 0 && seq->state == SEQ_WAITING;
}

/* When to end it; INT64_MAX if never. */
static int64_t shed_us(const struct sched_seq *seq, const struct sched_view *view) {
    double grace = view->knobs->deadline_shed * (double)seq->urgency.ttft_target_us;
    return grace > 0 ? seq->policy.deadline.latest_start_us + (int64_t)grace : INT64_MAX;
}

static bool sheds(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    return is_timed(seq) && view->now_us > shed_us(seq, view);
}

static int64_t next_timer(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view) {
    (void)state;
    if (!is_timed(seq)) return INT64_MAX;
    int64_t at_us = seq->policy.deadline.is_hopeless ? shed_us(seq, view)
                                                     : seq->policy.deadline.latest_start_us;
    return at_us < INT64_MAX ? at_us + 1 : at_us;
}

static void on_timer(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    if (is_timed(seq) && view->now_us > seq->policy.deadline.latest_start_us)
        seq->policy.deadline.is_hopeless = true;
}

/* ---- the tightest TPOT target ---- */

/* A target that the sequence could not meet even if it ran alone is ignored: it is missed anyway,
 * and all others would be slowed down for it. */
static void update_target(struct deadline_state *s, const struct sched_seq *seq,
                          const struct sched_view *view) {
    int64_t target = seq->urgency.tpot_target_us;
    if (target <= 0 || (s->gathering_us != 0 && target >= s->gathering_us)) return;
    if (PACE_SHARE * (double)target < cost_predict_us(view->cost, 1, seq->total)) return;
    s->gathering_us = target;
}

static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    update_target(state, seq, view);
}

/* Called once for each sequence of a step, all with the same step number. */
static bool on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    (void)tokens;
    struct deadline_state *s = state;
    if (s->step != view->steps) {
        s->tpot_min_us = s->gathering_us;
        s->gathering_us = 0;
        s->step = view->steps;
    }
    update_target(s, seq, view);
    return false;
}

const struct sched_policy sched_policy_deadline = {
    .name = "deadline",
    .summary = "by TTFT and TPOT targets: the most urgent first, missed ones delayed or ended",
    .state_bytes = sizeof(struct deadline_state),
    .key = key,
    .may_admit = may_admit,
    .pick_victim = pick_last_in_order,
    .prompt_budget = prompt_budget,
    .drafts_within_us = drafts_within_us,
    .on_arrive = on_arrive,
    .on_admit = on_admit,
    .on_step = on_step,
    .sheds = sheds,
    .next_timer = next_timer,
    .on_timer = on_timer,
};
