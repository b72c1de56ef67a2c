/* sched/policy_mlfq.c - FastServe's skip-join multi-level feedback queue.
 *
 * Short answers should not wait for long ones, and lengths are not known in advance. So a request
 * starts in a high queue and moves down as it uses time. Queue i has a quantum of base * 2^i. A
 * request joins the first queue whose quantum covers its prompt (it would pass the others anyway),
 * moves to the end of the next queue when its quantum is used up, and returns to the first queue
 * when it has waited too long. A waiting request displaces a running one that is two queues below
 * it or more. To make that cheap, blocks are kept free by swapping out the lowest in advance.
 *
 * A preempted sequence holds blocks in the spill store or has to be recomputed, so at most a
 * quarter of max_seqs may be preempted at one time. Without that limit the requests of a long queue
 * would alternate, a step each, and most of the time would be spent on moving blocks.
 */
#include "base/check.h"
#include "sched/policy_pick.h"

enum { JOIN_BITS = 48, DISPLACE_LEVELS = 2, OUT_PART = 4, CHARGE_STEPS = 4 };

struct mlfq_state {
    uint32_t out_count; /* sequences that are preempted now */
};

static double quantum_us(const struct knobs *k, uint32_t level) {
    return k->mlfq_quantum_ms * 1000.0 * (double)((uint64_t)1 << level);
}

static uint32_t last_level(const struct knobs *k) { return k->mlfq_levels - 1; }

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    int64_t joined = seq->policy.mlfq.joined_us & (((int64_t)1 << JOIN_BITS) - 1);
    return ((int64_t)seq->policy.mlfq.level << JOIN_BITS) + joined;
}

static void join(struct sched_seq *seq, uint32_t level, int64_t now_us) {
    seq->policy.mlfq.level = level;
    seq->policy.mlfq.used_us = 0;
    seq->policy.mlfq.joined_us = now_us;
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    uint32_t tokens = seq_left(seq), level = 0;
    uint64_t attended = (uint64_t)tokens * tokens / 2;
    double prompt_us = cost_predict_us(view->cost, tokens, attended);
    while (level < last_level(view->knobs) && quantum_us(view->knobs, level) < prompt_us) level++;
    join(seq, level, view->now_us);
}

/* A sequence is charged the predicted cost of its tokens, including the fixed part of the step.
 * Decodes are charged every CHARGE_STEPS steps, so that most steps do nothing here. */
static bool on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    (void)state;
    if (tokens == 1 && seq->run_steps % CHARGE_STEPS != 0) return false;
    /* Refused drafts are not part of `computed`. */
    uint32_t first = seq->computed > tokens ? seq->computed - tokens : 0;
    double us = cost_predict_us(view->cost, tokens, cost_attended(first, tokens));
    seq->policy.mlfq.used_us += (int64_t)(tokens == 1 ? CHARGE_STEPS * us : us);
    if ((double)seq->policy.mlfq.used_us <= quantum_us(view->knobs, seq->policy.mlfq.level))
        return false;
    if (seq->policy.mlfq.level == last_level(view->knobs)) return false;
    join(seq, seq->policy.mlfq.level + 1, view->now_us);
    return true;
}

static bool may_displace(const struct mlfq_state *m, const struct sched_view *view) {
    return m->out_count < (view->knobs->max_seqs + OUT_PART - 1) / OUT_PART;
}

/* If the batch is full and none may be displaced, the queue need not be looked at. */
static bool may_admit(const void *state, const struct sched_view *view) {
    return view->running_count < view->knobs->max_seqs || may_displace(state, view);
}

static bool displaces_seq(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view) {
    return may_displace(state, view) &&
           waiting->policy.mlfq.level + DISPLACE_LEVELS <= running->policy.mlfq.level;
}

static void on_preempt(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    struct mlfq_state *m = state;
    CHECK(!seq->policy.mlfq.is_preempted);
    seq->policy.mlfq.is_preempted = true;
    m->out_count++;
}

/* It runs again, or has ended. */
static void unmark(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    struct mlfq_state *m = state;
    m->out_count -= seq->policy.mlfq.is_preempted;
    seq->policy.mlfq.is_preempted = false;
}

/* One block for every running sequence, if there is a choice of victims. */
static uint32_t blocks_to_keep_free(const void *state, const struct sched_view *view) {
    (void)state;
    if (view->running_count < 2 || view->waiting_count == 0) return 0;
    return view->running_count;
}

static int64_t next_timer(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view) {
    (void)state;
    if (seq->state != SEQ_WAITING && seq->state != SEQ_SWAPPED) return INT64_MAX;
    if (seq->policy.mlfq.level == 0) return INT64_MAX;
    /* A preempted sequence has waited since its last token, not since it joined the queue. */
    int64_t since_us = seq->policy.mlfq.joined_us;
    if (since_us < seq->last_token_us) since_us = seq->last_token_us;
    return since_us + (int64_t)(view->knobs->mlfq_starve_ms * 1000.0);
}

static void on_timer(void *state, struct sched_seq *seq, const struct sched_view *view) {
    if (next_timer(state, seq, view) <= view->now_us) join(seq, 0, view->now_us);
}

const struct sched_policy sched_policy_mlfq = {
    .name = "mlfq",
    .summary = "FastServe: multi-level feedback queues, skip-join, proactive swap",
    .state_bytes = sizeof(struct mlfq_state),
    .displaces = true,
    .key = key,
    .may_admit = may_admit,
    .displaces_seq = displaces_seq,
    .pick_victim = pick_last_in_order,
    .blocks_to_keep_free = blocks_to_keep_free,
    .on_arrive = on_arrive,
    .on_admit = unmark,
    .on_preempt = on_preempt,
    .on_step = on_step,
    .on_finish = unmark,
    .next_timer = next_timer,
    .on_timer = on_timer,
};
