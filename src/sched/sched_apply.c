/* sched/sched_apply.c - applying the results of a plan; see sched/sched.h.
 *
 * Entry points: sched_apply, sched_fail.
 */
#include "sched/sched_int.h"

#include <string.h>

/* ---- statistics ---- */

/* Token positions of a sequence's last block that hold no token. */
static uint32_t empty_positions(const struct sched *s, uint32_t tokens) {
    uint32_t used = tokens % s->knobs.block_size;
    return used > 0 ? s->knobs.block_size - used : 0;
}

/* Of the sequences in the list that have no row in the plan. */
static uint64_t empty_without_row(const struct sched *s, const seq_idx *list, uint32_t count,
                                  bool is_assumed) {
    uint64_t empty = 0;
    for (uint32_t n = 0; n < count; n++) {
        const struct slot *slot = &s->slots[list[n]];
        if ((is_assumed ? slot->assumed : slot->seq.planned) == 0)
            empty += empty_positions(s, slot->seq.computed);
    }
    return empty;
}

/* How many token positions in held blocks hold a token, including those just computed. */
static void count_positions(struct sched *s, const struct plan *plan, bool is_assumed) {
    uint64_t block = s->knobs.block_size, empty = 0;
    for (uint32_t r = 0; r < plan->row_count; r++)
        empty += empty_positions(s, plan->rows[r].first + plan->rows[r].count);
    if (plan->row_count < s->running_count + s->lines.running_count)
        empty += empty_without_row(s, s->running, s->running_count, is_assumed) +
                 empty_without_row(s, s->lines.running, s->lines.running_count, is_assumed);
    uint64_t held = kv_cache_held(s->kv) * block;
    uint64_t used = held > empty ? held - empty : 0;
    uint64_t reserved = s->reserved_blocks * block;
    s->held_positions += held > reserved ? held : reserved;
    s->used_positions += used;
}

/* The price of a token in a prompt is less than that of one in a decode row. Lines add many decode
 * rows, and so do drafts. So that interactive prompts get the same chunks as without, the cost
 * model sees no step with drafts; of steps with lines it sees those of lines alone that have a
 * prompt. It is never shown what it has predicted itself: its errors would grow. */
static void learn_rows(struct sched *s, const struct plan *plan, double us) {
    uint32_t rows = plan->row_count, tokens = plan->token_count, lines = plan->batch_row_count;
    uint64_t attended = plan->attended_tokens;
    bool has_prompt = tokens - plan->draft_count > rows;
    if (plan->draft_count == 0 && (lines == 0 || (lines == rows && has_prompt)))
        cost_observe(&s->cost, tokens, attended, us);
    if (!has_prompt) cost_rows_observe(&s->lines.cost, &s->cost, tokens, attended, us);
}

static void learn_cost(struct sched *s, const struct plan *plan, int64_t elapsed_us) {
    if (elapsed_us <= 0) return;
    double us = (double)elapsed_us;
    if (plan->moves.count == 0) {
        learn_rows(s, plan, us);
        return;
    }
    double rows_us = plan->row_count == 0
                         ? 0
                         : cost_predict_us(&s->cost, plan->token_count, plan->attended_tokens);
    if (us > rows_us) cost_observe_moves(&s->cost, plan->moves.count, us - rows_us);
}

/* ---- rows ---- */

/* The parent's prompt is computed: its other choices share it, or enter the queue by themselves. */
static void fork_children(struct sched *s, seq_idx parent, int64_t now_us) {
    const struct sched_seq *from = seq_at(s, parent);
    uint32_t shared = from->prompt_tokens - 1; /* each choice computes the last token itself */
    seq_at(s, parent)->writable_end = 0;       /* its last block will be shared */
    for (seq_idx i; (i = s->slots[parent].child_first) != SEQ_NONE;) {
        kv_seq kv;
        if (!sched_fork_fits(s, i) || kv_seq_fork(s->kv, from->kv, shared, &kv) != ST_OK) break;
        sched_child_unlink(s, i);
        sched_start_running(s, i, kv, shared, now_us);
        sched_note_admitted(s, i, shared, now_us);
    }
    sched_children_to_queue(s, parent, now_us);
}

/* Count the row's tokens as computed, and the token that it samples. Where drafts were refused,
 * a row of the sequence in an ahead plan is dropped: it starts behind them. */
static void advance(struct sched *s, const struct plan_row *row) {
    struct slot *slot = &s->slots[row->seq];
    struct sched_seq *seq = &slot->seq;
    uint32_t refused = row->draft_count - row->accepted;
    if (slot->assumed == 0) { /* else sched_assume has done that for an ahead plan */
        seq->computed += row->count;
        seq->total += row->draft_count + (uint32_t)row->samples;
        CHECK(seq->total <= seq->total_max);
    }
    if (slot->assumed == 0 || refused > 0) slot_unplan(slot);
    slot->assumed = 0;
    slot->assumed_drafts = 0;
    slot->assumes_token = false;
    seq->computed -= refused;
    seq->total -= refused;
    CHECK(seq->computed == row->first + row->count - refused);
}

/* Store the sampled token and those that it forces; returns the finish reason if the sequence ends
 * with them. Accepted drafts are stored already. Forced tokens are computed like a prompt. */
static enum finish_reason append(struct sched_seq *seq, const struct row_result *result,
                                 int64_t now_us) {
    CHECK(seq->total - 1 == seq->computed);
    if (seq->computed == seq->prompt_tokens) seq->first_token_us = now_us;
    seq->tokens[seq->computed] = result->token;
    seq->last_token_us = now_us;
    uint32_t room = seq->total_max - seq->total;
    if (result->forced_count > 0) {
        uint32_t count = result->forced_count < room ? result->forced_count : room;
        memcpy(seq->tokens + seq->total, result->forced, count * sizeof(seq->tokens[0]));
        seq->total += count;
    }
    if (result->forced_count > room) return FINISH_LENGTH;
    if (result->is_end) return FINISH_STOP;
    return seq->total == seq->total_max ? FINISH_LENGTH : FINISH_NONE;
}

/* Does the row still count? Not if the sequence has ended or is to be recomputed. Of two plans
 * under way the rows of the older one are those that were assumed. */
static bool is_live_row(const struct sched *s, const struct plan_row *row, bool is_assumed) {
    const struct slot *slot = &s->slots[row->seq];
    uint32_t count = is_assumed ? slot->assumed : slot->seq.planned;
    if (count == 0) return false;
    CHECK(count == row->count);
    CHECK(slot->seq.state == SEQ_RUNNING);
    CHECK(slot->seq.computed == row->first + (is_assumed ? count : 0));
    return true;
}

/* The row's result is unusable: end its sequence. */
static void fail_row(struct sched *s, struct plan_row *row, bool is_assumed, int64_t now_us) {
    row->is_dropped = true;
    if (is_assumed)
        sched_unassume(s, row->seq);
    else
        slot_unplan(&s->slots[row->seq]);
    sched_end(s, row->seq, FINISH_ERROR, now_us);
}

static void drop_row(struct sched *s, struct plan_row *row) {
    row->is_dropped = true;
    s->dropped_rows++;
}

/* The row has no result yet: as if it had not been planned. No later plan has a row of it, because
 * only a sequence with waits_for_token is late. */
static void sit_out(struct sched *s, struct plan_row *row, bool is_assumed) {
    CHECK(row->samples);
    CHECK(seq_at(s, row->seq)->waits_for_token);
    drop_row(s, row);
    if (is_assumed)
        sched_unassume(s, row->seq);
    else
        slot_unplan(&s->slots[row->seq]);
}

static void apply_row(struct sched *s, struct plan_row *row, const struct row_result *result,
                      bool is_assumed, int64_t now_us) {
    struct sched_seq *seq = seq_at(s, row->seq);
    if (!is_live_row(s, row, is_assumed)) {
        drop_row(s, row);
        sched_drafts_give_back(s, row->seq);
        return;
    }
    if (result->failed) {
        fail_row(s, row, is_assumed, now_us);
        return;
    }
    if (result->is_late) {
        sit_out(s, row, is_assumed);
        return;
    }
    /* New blocks of a prompt can be found in the prefix cache from now on. */
    if (row->count > 1 || !row->samples || row->first < seq->prompt_tokens) s->epoch++;
    row->accepted = result->accepted;
    if (row->draft_count > 0) sched_drafts_learn(s, row, result);
    advance(s, row);
    seq->run_steps++;
    kv_seq_commit(s->kv, seq->kv, seq->tokens, seq->computed);
    enum finish_reason finish = FINISH_NONE;
    if (row->samples && seq->computed == seq->prompt_tokens) sched_lines_first_token(s, row->seq);
    if (row->samples) finish = append(seq, result, now_us);
    /* A decode stays one, unless tokens were forced. */
    if (s->slots[row->seq].is_prefilling || result->forced_count > 0)
        sched_update_phase(s, row->seq);
    if (s->policy->on_step && !is_line(s, row->seq) &&
        s->policy->on_step(s->state, seq, row->count, &s->view))
        sched_rekey(s, row->seq);
    if (s->slots[row->seq].child_first != SEQ_NONE && seq->computed >= seq->prompt_tokens)
        fork_children(s, row->seq, now_us);
    if (finish != FINISH_NONE)
        sched_end(s, row->seq, finish, now_us);
    else if (row->samples)
        sched_event_push(s, row->seq);
    if (s->draft_seqs > 0) sched_drafts_give_back(s, row->seq);
}

void sched_apply(struct sched *s, struct plan *plan, const struct step_result *result,
                 int64_t now_us) {
    CHECK(result->row_count == plan->row_count);
    uint64_t number = sched_take_oldest(s, plan);
    bool is_assumed = s->is_assumed;
    s->is_assumed = false;
    sched_lines_count_time(s, plan, (double)result->elapsed_us);
    learn_cost(s, plan, result->elapsed_us);
    count_positions(s, plan, is_assumed);
    sched_update_view(s, now_us);
    for (uint32_t r = 0; r < plan->row_count; r++) {
        if (r + PREFETCH_ROWS < plan->row_count) {
            const struct plan_row *later = &plan->rows[r + PREFETCH_ROWS];
            slot_prefetch(&s->slots[later->seq]);
            __builtin_prefetch(&later->tokens[later->first + later->count], 1);
        }
        apply_row(s, &plan->rows[r], &result->rows[r], is_assumed, now_us);
    }
    sched_end_lingering(s, number);
}

/* ---- a plan that failed ---- */

static void drop_running(struct sched *s, struct plan *plan, seq_idx i, int64_t now_us) {
    slot_unplan(&s->slots[i]); /* an ahead plan's row of it is dropped */
    sched_drop_blocks(s, i);
    sched_note_preempted(s, plan, i, SEQ_NONE, PREEMPT_FAILED);
    s->slots[i].waits_since_us = now_us;
    seq_at(s, i)->preempt_count++;
    if (is_line(s, i)) return;
    const struct sched_view *view = sched_update_view(s, now_us);
    if (s->policy->on_preempt) s->policy->on_preempt(s->state, seq_at(s, i), view);
    sched_rekey(s, i);
}

/* The plan's moves did not happen: the sequences whose blocks they were are recomputed. */
static void drop_moved(struct sched *s, struct plan *plan, uint64_t number, int64_t now_us) {
    if (plan->moves.count == 0) return;
    for (uint32_t n = s->running_count; n-- > 0;) /* backwards: the last one moves into the gap */
        if (s->slots[s->running[n]].moved_in == number)
            drop_running(s, plan, s->running[n], now_us);
    for (uint32_t n = s->lines.running_count; n-- > 0;)
        if (s->slots[s->lines.running[n]].moved_in == number)
            drop_running(s, plan, s->lines.running[n], now_us);
    for (uint32_t n = 0; n < plan->preempted_count; n++) {
        const struct plan_preempted *v = &plan->preempted[n];
        seq_idx k = sched_find(s, v->request, v->choice);
        if (k != SEQ_NONE && seq_at(s, k)->state == SEQ_SWAPPED) sched_drop_blocks(s, k);
    }
}

void sched_fail(struct sched *s, struct plan *plan, int64_t now_us) {
    uint64_t number = sched_take_oldest(s, plan);
    bool is_assumed = s->is_assumed;
    s->is_assumed = false;
    s->is_draining = s->under_way_count > 0;
    for (uint32_t r = 0; r < plan->row_count; r++) {
        struct plan_row *row = &plan->rows[r];
        if (is_live_row(s, row, is_assumed))
            fail_row(s, row, is_assumed, now_us);
        else
            drop_row(s, row);
        sched_drafts_give_back(s, row->seq);
    }
    drop_moved(s, plan, number, now_us);
    sched_end_lingering(s, number);
}
