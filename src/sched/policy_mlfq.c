/* sched/policy_mlfq.c - FastServe's skip-join multi-level feedback queue.
 *
 * Short answers should not wait behind long ones, and nobody knows which is which: so everyone
 * starts high and sinks as it uses time. Queue i gives a quantum of base * 2^i. A request joins
 * the first queue whose quantum covers its prompt (it would only sink through the others), moves
 * to the end of the next queue when its quantum is used up, and returns to the first one when it
 * has waited too long. A waiting request takes the seat of a running one from a lower queue; to
 * make that cheap, blocks are kept free by swapping out the lowest ahead of need.
 *
 * Notes: level = queue; a = time used in it, us; b = when it joined it.
 */
#include "base/check.h"
#include "sched/policy.h"

enum { JOIN_BITS = 48, SPILL_SPARE_PART = 10 };

static double quantum_us(const struct knobs *k, uint32_t level) {
    return k->mlfq_quantum_ms * 1000.0 * (double)((uint64_t)1 << level);
}

static uint32_t last_level(const struct knobs *k) { return k->mlfq_levels - 1; }

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    int64_t joined = seq->policy.b & (((int64_t)1 << JOIN_BITS) - 1);
    return ((int64_t)seq->policy.level << JOIN_BITS) + joined;
}

static void join(struct sched_seq *seq, uint32_t level, int64_t now_us) {
    seq->policy = (struct policy_notes){.level = level, .a = 0, .b = now_us};
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    uint32_t tokens = seq_left(seq), level = 0;
    uint64_t attended = (uint64_t)tokens * tokens / 2;
    double prompt_us = cost_predict_us(view->cost, tokens, attended);
    while (level < last_level(view->knobs) && quantum_us(view->knobs, level) < prompt_us) level++;
    join(seq, level, view->now_us);
}

/* What its tokens cost counts as its time, the step's fixed part included: it held a seat. */
static void on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    (void)state;
    uint64_t attended = (uint64_t)tokens * seq->computed;
    seq->policy.a += (int64_t)cost_predict_us(view->cost, tokens, attended);
    if ((double)seq->policy.a <= quantum_us(view->knobs, seq->policy.level)) return;
    if (seq->policy.level < last_level(view->knobs)) join(seq, seq->policy.level + 1, view->now_us);
}

/* Seats change hands only by swapping, and some of the spill store stays free for memory that runs
 * out: who would have to be computed again keeps its seat. */
static bool can_swap(const struct sched_seq *running, const struct sched_view *view) {
    uint32_t blocks = running->computed / view->knobs->block_size + 1;
    uint32_t spare = view->knobs->spill_blocks / SPILL_SPARE_PART;
    return view->swapped_count < view->knobs->max_seqs && view->free_spill_blocks >= blocks + spare;
}

static bool displaces_seq(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view) {
    (void)state;
    return waiting->policy.level < running->policy.level && can_swap(running, view);
}

static uint32_t pick_victim(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view) {
    CHECK(count > 0);
    uint32_t worst = 0;
    for (uint32_t i = 1; i < count; i++)
        if (key(state, running[i], view) > key(state, running[worst], view)) worst = i;
    return worst;
}

/* Room for the next block of every seat, while there is more than one to choose from. */
static uint32_t blocks_to_keep_free(const void *state, const struct sched_view *view) {
    (void)state;
    if (view->running_count < 2 || view->waiting_count == 0) return 0;
    return view->running_count;
}

static int64_t next_timer(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view) {
    (void)state;
    if (seq->state != SEQ_WAITING && seq->state != SEQ_SWAPPED) return INT64_MAX;
    if (seq->policy.level == 0) return INT64_MAX;
    /* Who lost its seat has waited since its last token, not since it joined the queue. */
    int64_t since_us = seq->policy.b > seq->last_token_us ? seq->policy.b : seq->last_token_us;
    return since_us + (int64_t)(view->knobs->mlfq_starve_ms * 1000.0);
}

static void on_timer(void *state, struct sched_seq *seq, const struct sched_view *view) {
    if (next_timer(state, seq, view) <= view->now_us) join(seq, 0, view->now_us);
}

const struct sched_policy sched_policy_mlfq = {
    .name = "mlfq",
    .summary = "FastServe: multi-level feedback queues, skip-join, proactive swap",
    .displaces = true,
    .key = key,
    .displaces_seq = displaces_seq,
    .pick_victim = pick_victim,
    .blocks_to_keep_free = blocks_to_keep_free,
    .on_arrive = on_arrive,
    .on_step = on_step,
    .next_timer = next_timer,
    .on_timer = on_timer,
};
