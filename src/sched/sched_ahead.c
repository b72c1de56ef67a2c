/* sched/sched_ahead.c - plans made ahead, and sequences that end under a plan; see sched/sched.h.
 *
 * Entry points: sched_assume, sched_unassume, sched_skips_ahead_plan; sched_used_until,
 * sched_linger, sched_take_oldest, sched_end_lingering.
 *
 * An ahead plan is made while another plan is under way. It first assumes that the other one
 * succeeds: each sequence with a row in it has computed the row's tokens, drafts too, and has one
 * more token if the row samples. The value of that token is not known, so nothing may read it.
 * Later sched_apply of the older plan fills in the rest: the token, the commit to the KV cache, the
 * end.
 *
 * A sequence that ends while a plan under way has a row or a move of it lingers: its block tables
 * and its index are freed when that plan is over (I8).
 */
#include "sched/sched_int.h"

/* ---- assuming ---- */

void sched_assume(struct sched *s) {
    if (s->is_assumed) return; /* an earlier ahead plan was empty */
    const struct plan *plan = s->under_way[0].plan;
    s->is_assumed = true;
    for (uint32_t r = 0; r < plan->row_count; r++) {
        if (r + PREFETCH_ROWS < plan->row_count)
            slot_prefetch(&s->slots[plan->rows[r + PREFETCH_ROWS].seq]);
        seq_idx i = plan->rows[r].seq;
        struct slot *slot = &s->slots[i];
        if (slot->seq.planned == 0) continue; /* it has ended */
        CHECK(slot->seq.state == SEQ_RUNNING);
        slot->assumed = slot->seq.planned;
        slot->assumed_drafts = slot->planned_drafts;
        slot_unplan(slot);
        slot->seq.computed += slot->assumed;
        slot->assumes_token = plan->rows[r].samples;
        slot->seq.total += slot->assumed_drafts + (uint32_t)slot->assumes_token;
        if (slot->is_prefilling) sched_update_phase(s, i); /* a decode stays one */
    }
}

void sched_unassume(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    if (slot->assumed == 0) return;
    slot->seq.computed -= slot->assumed;
    slot->seq.total -= slot->assumed_drafts + (uint32_t)slot->assumes_token;
    slot->assumed = 0;
    slot->assumed_drafts = 0;
    slot->assumes_token = false;
    sched_update_phase(s, i);
}

/* The plan under way moves blocks of it and has no row of it. */
static bool is_only_moved(const struct sched *s, const struct slot *slot) {
    return s->under_way_count > 0 && slot->moved_in >= s->under_way[0].number &&
           slot->moved_in < s->plan_number;
}

/* Six kinds: a sequence that will have all its tokens ends with the plan under way. A sequence
 * whose prompt that plan completes is forked by sched_apply, so its last block must not be written
 * before. A sequence that is only moved is recomputed if that plan fails, so a token sampled now
 * would be wrong. A sequence with one_row_at_a_time waits during its prompt. A sequence with
 * waits_for_token is not sampled for again before its last token is known. A sequence with drafts
 * in that plan waits for its result, unless all of them are likely to be accepted. */
bool sched_skips_ahead_plan(const struct planning *p, seq_idx i) {
    const struct slot *slot = &p->s->slots[i];
    const struct sched_seq *seq = &slot->seq;
    if (slot->assumed == 0) return is_only_moved(p->s, slot);
    if (seq->total == seq->total_max) return true;
    if (seq->waits_for_token && slot->assumes_token) return true;
    if (slot->assumed_drafts > 0 && !sched_drafts_are_likely(p, i)) return true;
    if (seq->one_row_at_a_time && seq->computed - slot->assumed < seq->prompt_tokens) return true;
    return slot->child_first != SEQ_NONE && seq->computed >= seq->prompt_tokens;
}

/* ---- lingering ---- */

uint64_t sched_used_until(const struct sched *s, seq_idx i) {
    const struct slot *slot = &s->slots[i];
    if (s->under_way_count == 0) return 0;
    uint64_t newest = s->under_way[s->under_way_count - 1].number;
    uint64_t until = slot->row_in > slot->moved_in ? slot->row_in : slot->moved_in;
    if (until < s->under_way[0].number) return 0;
    return until < newest ? until : newest; /* an empty plan is not under way */
}

void sched_linger(struct sched *s, seq_idx i, uint64_t until, bool has_kv, bool is_running) {
    struct slot *slot = &s->slots[i];
    slot->lingers_until = until;
    slot->lingers_with_kv = has_kv;
    slot->lingers_with_reservation = is_running;
    slot->linger_next = s->linger_first;
    s->linger_first = i;
    if (is_running)
        s->reserved_blocks += slot->reserved; /* sched_running_remove has subtracted it */
}

uint64_t sched_take_oldest(struct sched *s, const struct plan *plan) {
    CHECK(s->under_way_count > 0);
    CHECK(s->under_way[0].plan == plan);
    uint64_t number = s->under_way[0].number;
    s->lines.steps += s->under_way[0].is_lines_only;
    s->under_way[0] = s->under_way[--s->under_way_count];
    s->steps++;
    if (s->under_way_count == 0) s->is_draining = false;
    return number;
}

void sched_end_lingering(struct sched *s, uint64_t number) {
    for (seq_idx *link = &s->linger_first; *link != SEQ_NONE;) {
        seq_idx i = *link;
        struct slot *slot = &s->slots[i];
        if (slot->lingers_until > number) {
            link = &slot->linger_next;
            continue;
        }
        *link = slot->linger_next;
        slot->lingers_until = 0;
        if (slot->lingers_with_reservation) s->reserved_blocks -= slot->reserved;
        if (slot->lingers_with_kv) kv_seq_close(s->kv, slot->seq.kv);
        s->epoch++;
        if (slot->seq.state == SEQ_LINGERING) sched_slot_free(s, i);
    }
}
