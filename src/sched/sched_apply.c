/* sched/sched_apply.c - what came of a plan; see sched/sched.h.
 *
 * Entry points: sched_apply, sched_fail.
 */
#include "sched/sched_int.h"

/* Sequences that were asked to end while the plan was under way. */
static void end_cancelled(struct sched *s, int64_t now_us) {
    while (s->ending_first != SEQ_NONE) {
        seq_idx i = s->ending_first;
        s->ending_first = s->slots[i].ending_next;
        sched_end(s, i, s->slots[i].ending, now_us);
    }
}

/* ---- numbers ---- */

/* Slots of its blocks that hold no token after this step. */
static uint32_t empty_slots(const struct sched *s, uint32_t tokens) {
    uint32_t used = tokens % s->knobs.block_size;
    return used > 0 ? s->knobs.block_size - used : 0;
}

/* How much of the held memory holds tokens, the ones just computed included. */
static void count_slots(struct sched *s, const struct plan *plan) {
    uint64_t block = s->knobs.block_size, empty = 0;
    for (uint32_t r = 0; r < plan->row_count; r++)
        empty += empty_slots(s, plan->rows[r].first + plan->rows[r].count);
    if (plan->row_count < s->running_count) {
        for (uint32_t n = 0; n < s->running_count; n++) {
            const struct sched_seq *seq = seq_at(s, s->run[n]);
            if (seq->planned == 0) empty += empty_slots(s, seq->computed);
        }
    }
    uint64_t held = kv_cache_stats(s->kv).groups[0].held_count * block;
    uint64_t used = held > empty ? held - empty : 0;
    uint64_t reserved = s->reserved_blocks * block;
    s->held_slots += held > reserved ? held : reserved;
    s->used_slots += used;
}

static void learn_cost(struct sched *s, const struct plan *plan, int64_t elapsed_us) {
    if (elapsed_us <= 0) return;
    double us = (double)elapsed_us;
    if (plan->moves.count == 0) {
        cost_observe(&s->cost, plan->token_count, plan->attended_tokens, us);
        return;
    }
    double rows_us = plan->row_count == 0
                         ? 0
                         : cost_predict_us(&s->cost, plan->token_count, plan->attended_tokens);
    if (us > rows_us) cost_observe_moves(&s->cost, plan->moves.count, us - rows_us);
}

/* ---- rows ---- */

/* The parent's prompt is there: its other choices share it, or take their own place in line. */
static void fork_children(struct sched *s, seq_idx parent, int64_t now_us) {
    const struct sched_seq *from = seq_at(s, parent);
    uint32_t shared = from->prompt_tokens - 1; /* each computes the last one for itself */
    seq_at(s, parent)->writable_end = 0;       /* its last block will be others' too */
    for (seq_idx i; (i = s->slots[parent].child_first) != SEQ_NONE;) {
        kv_seq kv;
        if (!sched_fork_fits(s, i) || kv_seq_fork(s->kv, from->kv, shared, &kv) != ST_OK) break;
        sched_child_unlink(s, i);
        sched_seat(s, i, kv, shared, now_us);
    }
    sched_children_to_line(s, parent, now_us);
}

/* The sampled token is appended; says whether the sequence has ended by it. */
static enum finish_reason append(struct sched_seq *seq, const struct row_result *result,
                                 int64_t now_us) {
    CHECK(seq->total < seq->total_max);
    if (seq->total == seq->prompt_tokens) seq->first_token_us = now_us;
    seq->tokens[seq->total++] = result->token;
    seq->last_token_us = now_us;
    if (result->is_end) return FINISH_STOP;
    return seq->total == seq->total_max ? FINISH_LENGTH : FINISH_NONE;
}

static void apply_row(struct sched *s, const struct plan_row *row, const struct row_result *result,
                      int64_t now_us) {
    struct sched_seq *seq = seq_at(s, row->seq);
    seq->planned = 0;
    if (s->slots[row->seq].ending != FINISH_NONE) return;
    CHECK(seq->state == SEQ_RUNNING);
    CHECK(seq->computed == row->first);
    if (result->failed) {
        sched_end(s, row->seq, FINISH_ERROR, now_us);
        return;
    }
    /* Blocks of a prompt may be found now, also of one that is computed token by token. */
    if (row->count > 1 || !row->samples || row->first < seq->prompt_tokens) s->epoch++;
    seq->computed += row->count;
    seq->run_steps++;
    kv_seq_commit(s->kv, seq->kv, seq->tokens, seq->computed);
    enum finish_reason finish = FINISH_NONE;
    if (row->samples) finish = append(seq, result, now_us);
    sched_reclass(s, row->seq);
    if (s->policy->on_step && s->policy->on_step(s->state, seq, row->count, &s->view))
        sched_rekey(s, row->seq);
    if (s->slots[row->seq].child_first != SEQ_NONE && seq->computed >= seq->prompt_tokens)
        fork_children(s, row->seq, now_us);
    if (finish != FINISH_NONE)
        sched_end(s, row->seq, finish, now_us);
    else if (row->samples)
        sched_event_push(s, row->seq);
}

void sched_apply(struct sched *s, const struct plan *plan, const struct step_result *result,
                 int64_t now_us) {
    CHECK(s->is_under_way);
    CHECK(result->row_count == plan->row_count);
    s->is_under_way = false;
    s->steps++;
    learn_cost(s, plan, result->elapsed_us);
    count_slots(s, plan);
    sched_look(s, now_us);
    for (uint32_t r = 0; r < plan->row_count; r++)
        apply_row(s, &plan->rows[r], &result->rows[r], now_us);
    end_cancelled(s, now_us);
}

/* ---- a plan that could not be run ---- */

static void drop_running(struct sched *s, seq_idx i, int64_t now_us) {
    sched_drop_blocks(s, i);
    seq_at(s, i)->preempt_count++;
    const struct sched_view *view = sched_look(s, now_us);
    if (s->policy->on_preempt) s->policy->on_preempt(s->state, seq_at(s, i), view);
    sched_rekey(s, i);
}

/* Its moves did not happen: whose blocks they were must compute them again. */
static void drop_moved(struct sched *s, const struct plan *plan, int64_t now_us) {
    if (plan->moves.count == 0) return;
    for (uint32_t n = s->running_count; n-- > 0;) /* the last one takes the place of one dropped */
        if (s->slots[s->run[n]].moved_in == s->plan_number) drop_running(s, s->run[n], now_us);
    for (uint32_t n = 0; n < plan->preempted_count; n++) {
        const struct plan_preempted *v = &plan->preempted[n];
        seq_idx k = sched_find(s, v->request, v->choice);
        if (k != SEQ_NONE && seq_at(s, k)->state == SEQ_SWAPPED) sched_drop_blocks(s, k);
    }
}

void sched_fail(struct sched *s, const struct plan *plan, int64_t now_us) {
    CHECK(s->is_under_way);
    s->is_under_way = false;
    s->steps++;
    for (uint32_t r = 0; r < plan->row_count; r++) seq_at(s, plan->rows[r].seq)->planned = 0;
    end_cancelled(s, now_us);
    for (uint32_t r = 0; r < plan->row_count; r++)
        if (seq_at(s, plan->rows[r].seq)->state == SEQ_RUNNING)
            sched_end(s, plan->rows[r].seq, FINISH_ERROR, now_us);
    drop_moved(s, plan, now_us);
}
