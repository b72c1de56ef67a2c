/* sched/policy_deadline.c - least slack first; what cannot be met does not hurt what can.
 *
 * A request may name a target for its first token and for the time between tokens. The line is
 * ordered by the latest moment at which a prompt can start and still be in time. A request whose
 * first token would already be late by more than `deadline_shed` of its target is ended
 * (deadline_shed 0: it is never ended but goes behind all that can still be met). A prompt is let
 * in, and given tokens, only as far as the tightest running target between tokens allows.
 *
 * Notes: a = latest start, absolute us; b = 1 once it is known to be hopeless.
 */
#include "base/check.h"
#include "sched/policy.h"

/* Without a target: as if a minute were fine. */
static const int64_t NO_TARGET_US = 60 * 1000000;
/* Keys of hopeless requests lie behind all others. */
static const int64_t HOPELESS = (int64_t)1 << 61;

struct deadline_state {
    uint64_t step;        /* of the minimum below */
    int64_t tpot_min_us;  /* of the sequences in that step; 0: none has a target */
    int64_t gathering_us; /* the same for the step being reported */
};

static int64_t ttft_target(const struct sched_seq *seq) {
    return seq->urgency.ttft_target_us > 0 ? seq->urgency.ttft_target_us : NO_TARGET_US;
}

static double prompt_us(const struct sched_seq *seq, const struct sched_view *view) {
    uint32_t tokens = seq_left(seq);
    return cost_predict_us(view->cost, tokens, (uint64_t)tokens * seq->total / 2);
}

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    return seq->policy.b ? HOPELESS + seq->arrived_us : seq->policy.a;
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    int64_t due_us = seq->arrived_us + ttft_target(seq);
    seq->policy.a = due_us - (int64_t)prompt_us(seq, view);
    seq->policy.b = 0;
}

static bool is_started(const struct sched_seq *seq) { return seq->first_token_us > 0; }

static bool is_late(const struct sched_seq *seq, double share, int64_t now_us) {
    if (seq->urgency.ttft_target_us <= 0 || is_started(seq)) return false;
    return (double)(now_us - seq->policy.a) > share * (double)seq->urgency.ttft_target_us;
}

static bool sheds(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    double share = view->knobs->deadline_shed;
    return share > 0 && seq->state == SEQ_WAITING && is_late(seq, share, view->now_us);
}

static int64_t next_timer(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view) {
    (void)state;
    if (seq->state != SEQ_WAITING || seq->policy.b || is_started(seq)) return INT64_MAX;
    if (seq->urgency.ttft_target_us <= 0) return INT64_MAX;
    double grace = view->knobs->deadline_shed * (double)seq->urgency.ttft_target_us;
    return seq->policy.a + (int64_t)grace + 1;
}

static void on_timer(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    if (is_late(seq, view->knobs->deadline_shed, view->now_us)) seq->policy.b = 1;
}

/* The tightest target between tokens of the last whole step. on_step is called once for each
 * sequence of a step, all with the same step number. */
static void on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    (void)tokens;
    struct deadline_state *s = state;
    if (s->step != view->steps) {
        s->tpot_min_us = s->gathering_us;
        s->gathering_us = 0;
        s->step = view->steps;
    }
    int64_t target = seq->urgency.tpot_target_us;
    if (target > 0 && (s->gathering_us == 0 || target < s->gathering_us)) s->gathering_us = target;
}

static int64_t tightest(const struct deadline_state *s) {
    if (s->gathering_us == 0 || s->tpot_min_us == 0) return s->gathering_us + s->tpot_min_us;
    return s->gathering_us < s->tpot_min_us ? s->gathering_us : s->tpot_min_us;
}

/* One more sequence must leave the running ones their time between tokens. */
static bool may_admit(const void *state, const struct sched_view *view) {
    int64_t target = tightest(state);
    if (target == 0 || view->running_count == 0) return true;
    double step_us = cost_predict_us(view->cost, view->running_count + 1, 0);
    return step_us <= (double)target;
}

static uint32_t prompt_budget(const void *state, uint32_t budget, const struct sched_view *view) {
    int64_t target = tightest(state);
    if (target == 0 || view->decode_count == 0) return budget;
    return cost_tokens_within(view->cost, (double)target, view->decode_count, 0, 0, budget);
}

static uint32_t pick_victim(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view) {
    CHECK(count > 0);
    uint32_t worst = 0;
    for (uint32_t i = 1; i < count; i++)
        if (key(state, running[i], view) > key(state, running[worst], view)) worst = i;
    return worst;
}

const struct sched_policy sched_policy_deadline = {
    .name = "deadline",
    .summary = "least slack first by TTFT and TPOT targets; hopeless requests are shed or delayed",
    .state_bytes = sizeof(struct deadline_state),
    .key = key,
    .may_admit = may_admit,
    .pick_victim = pick_victim,
    .prompt_budget = prompt_budget,
    .on_arrive = on_arrive,
    .on_step = on_step,
    .sheds = sheds,
    .next_timer = next_timer,
    .on_timer = on_timer,
};
