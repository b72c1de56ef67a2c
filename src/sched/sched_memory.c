/* sched/sched_memory.c - blocks for a row, and which sequence is preempted if there are none.
 *
 * Entry points: sched_ensure_blocks, sched_displace, sched_keep_free, sched_drop_blocks.
 *
 * If a sequence needs blocks, one that comes after it in policy order and was preempted fewer than
 * preempt_max times is preempted (I4). For the oldest running sequence, by submission, any other
 * may be preempted (I5). If there is no such victim the sequence waits and keeps the blocks it has.
 * Batch lines are preempted before all others (sched_lines.c).
 */
#include "sched/sched_int.h"

/* Sequences that a policy may displace in one plan: each costs a loop over the running ones. */
enum { DISPLACE_MAX = 2 };
/* A policy may keep at most a quarter of the pool free in advance. */
enum { KEEP_FREE_PART = 4 };

static bool is_protected(const struct sched *s, seq_idx i) {
    return seq_at(s, i)->preempt_count >= s->knobs.preempt_max;
}

/* ---- preempting ---- */

/* Is copying its blocks out and back in cheaper than recomputing them? */
static bool swap_is_cheaper(const struct sched *s, const struct sched_seq *seq) {
    double moves_us = 2 * s->cost.per_move_us * sched_blocks_for(s, seq->computed);
    double again_us = cost_predict_us(&s->cost, seq->computed, cost_attended(0, seq->computed)) -
                      cost_predict_us(&s->cost, 0, 0);
    return moves_us < again_us;
}

static bool may_swap(const struct sched *s, const struct sched_seq *seq) {
    return s->knobs.spill_blocks > 0 && s->knobs.preempt != PREEMPT_RECOMPUTE &&
           s->swapped_count < s->knobs.max_seqs && seq->computed > 0;
}

static bool swap_out(struct planning *p, seq_idx i) {
    struct sched *s = p->s;
    if (!may_swap(s, seq_at(s, i))) return false;
    if (is_line(s, i) && !sched_line_may_swap(p, i)) return false;
    while (s->swapped_count + s->lines.swapped_count >= s->knobs.max_seqs ||
           kv_seq_swap_out(s->kv, seq_at(s, i)->kv, &p->plan->moves) != ST_OK)
        if (is_line(s, i) || !sched_line_unspills(s)) return false;
    s->slots[i].moved_in = s->plan_number;
    sched_running_remove(s, i);
    seq_at(s, i)->state = SEQ_SWAPPED;
    sched_queue_push(s, i);
    s->swapped_out++;
    return true;
}

void sched_drop_blocks(struct sched *s, seq_idx i) {
    struct sched_seq *seq = seq_at(s, i);
    s->recomputed_tokens += seq->computed;
    kv_seq_close(s->kv, seq->kv);
    if (seq->state == SEQ_RUNNING)
        sched_running_remove(s, i);
    else
        sched_queue_remove(s, i);
    sched_enqueue(s, i);
    s->epoch++;
}

static void add_preempted(struct planning *p, seq_idx i, seq_idx for_seq, enum preempt_why why) {
    struct sched *s = p->s;
    struct slot *slot = &s->slots[i];
    CHECK(p->plan->preempted_count < p->plan->preempted_cap);
    sched_note_preempted(s, p->plan, i, for_seq, why);
    slot->waits_since_us = p->now_us;
    slot->preempted_in = s->plan_number;
    slot->seq.preempt_count++;
    s->preempted++;
    s->epoch++;
    if (is_line(s, i)) {
        p->is_line_pending_known = false;
        return;
    }
    p->is_pending_known = false;
    if (why == PREEMPT_MEMORY) {
        sched_stop_admitting(p, WAIT_BLOCKS);
        p->lacks_blocks = true; /* it waits for those that it had */
    }
    const struct sched_view *view = sched_update_view(s, p->now_us);
    if (s->policy->on_preempt) s->policy->on_preempt(s->state, &slot->seq, view);
    sched_rekey(s, i);
}

static void remove_from_plan(struct planning *p, seq_idx i) {
    if (seq_at(p->s, i)->planned > 0) sched_row_drop(p, i);
    if (heap_has(&p->s->prompts, i)) heap_remove(&p->s->prompts, i);
}

void sched_preempt(struct planning *p, seq_idx i, seq_idx for_seq, enum preempt_why why) {
    struct sched *s = p->s;
    remove_from_plan(p, i);
    bool wants_swap = s->knobs.preempt == PREEMPT_SWAP || swap_is_cheaper(s, seq_at(s, i));
    if (!wants_swap || !swap_out(p, i)) sched_drop_blocks(s, i);
    add_preempted(p, i, for_seq, why);
}

/* ---- choosing ---- */

uint32_t sched_kept_blocks(const struct sched *s) {
    struct kv_cache_stats kv = kv_cache_stats(s->kv);
    uint32_t most = 0;
    for (uint32_t g = 0; g < KV_CACHE_GROUPS_MAX; g++)
        if (kv.groups[g].kept_count > most) most = kv.groups[g].kept_count;
    return most;
}

bool sched_release_kept(struct sched *s) {
    if (sched_kept_blocks(s) == 0) return false;
    kv_cache_expire(s->kv, INT64_MAX);
    return true;
}

/* Each includes those before it. */
enum victims {
    VICTIMS_OWN_BEHIND,  /* of the same tenant, later in policy order */
    VICTIMS_BEHIND,      /* later in policy order */
    VICTIMS_UNPROTECTED, /* that may be preempted once more */
    VICTIMS_ABOVE_SHARE, /* of no tenant within its share */
    VICTIMS_ALL,
};

/* With shares a sequence takes blocks from its own tenant, and from tenants above their share. */
static bool may_take_from(const struct sched *s, seq_idx for_seq, seq_idx i) {
    const struct sched_seq *from = seq_at(s, i), *to = seq_at(s, for_seq);
    if (from->tenant == to->tenant || !from->has_share) return true;
    return sched_share_is_above(s, i, 0);
}

/* A sequence that this plan has admitted is not preempted by it. */
static bool is_candidate(const struct planning *p, seq_idx i, seq_idx for_seq,
                         enum victims victims) {
    const struct sched *s = p->s;
    if (i == for_seq || s->slots[i].admitted_in == s->plan_number) return false;
    if (victims == VICTIMS_ALL) return true;
    if (!may_take_from(s, for_seq, i)) return false;
    if (victims == VICTIMS_ABOVE_SHARE) return true;
    if (is_protected(s, i)) return false;
    bool is_own = seq_at(s, i)->tenant == seq_at(s, for_seq)->tenant;
    if (victims == VICTIMS_OWN_BEHIND && !is_own) return false;
    return victims == VICTIMS_UNPROTECTED || sched_goes_before(s, for_seq, i);
}

static uint32_t collect(struct planning *p, seq_idx for_seq, enum victims victims) {
    struct sched *s = p->s;
    uint32_t count = 0;
    for (uint32_t n = 0; n < s->running_count; n++)
        if (is_candidate(p, s->running[n], for_seq, victims))
            s->candidates[count++] = seq_at(s, s->running[n]);
    return count;
}

static seq_idx pick(struct planning *p, uint32_t count) {
    struct sched *s = p->s;
    const struct sched_view *view = sched_update_view(s, p->now_us);
    uint32_t k = s->policy->pick_victim(s->state, s->candidates, count, view);
    CHECK(k < count);
    return idx_of(s, s->candidates[k]);
}

bool sched_needs_drain(struct planning *p) {
    if (p->is_ahead) p->plan->wants_drain = true;
    return p->is_ahead;
}

/* Make blocks available for a sequence: release retained ones, or preempt another sequence. False:
 * neither is possible. */
static bool preempt_for(struct planning *p, seq_idx for_seq) {
    if (p->is_ahead && p->plan->wants_drain) return false;
    if (p->s->lines.running_count > 0) return sched_line_yields(p, for_seq);
    uint32_t count = collect(p, for_seq, VICTIMS_BEHIND);
    if (count == 0 && sched_release_kept(p->s)) return true;
    bool is_oldest_running = for_seq == p->s->oldest_running;
    if (count == 0 && is_oldest_running) count = collect(p, for_seq, VICTIMS_UNPROTECTED);
    if (count == 0 && is_oldest_running) count = collect(p, for_seq, VICTIMS_ABOVE_SHARE);
    if (count == 0 && is_oldest_running) count = collect(p, for_seq, VICTIMS_ALL);
    if (count == 0 || sched_needs_drain(p)) return false;
    sched_preempt(p, pick(p, count), for_seq, PREEMPT_MEMORY);
    return true;
}

/* Round up to the end of a block: that takes the same blocks, and the next steps need not ask. */
uint32_t sched_end_of_block(const struct sched *s, uint32_t tokens) {
    uint64_t end = (uint64_t)sched_blocks_for(s, tokens) * s->knobs.block_size;
    return end < s->ctx_tokens ? (uint32_t)end : s->ctx_tokens;
}

bool sched_grow(struct planning *p, seq_idx i, uint32_t tokens) {
    struct slot *slot = &p->s->slots[i];
    uint32_t moves = p->plan->moves.count, end = sched_end_of_block(p->s, tokens);
    enum status st = kv_seq_grow(p->s->kv, slot->seq.kv, end, &p->plan->moves);
    if (p->plan->moves.count > moves) slot->moved_in = p->s->plan_number;
    if (st == ST_OK) slot->seq.writable_end = end;
    return st == ST_OK;
}

/* A tenant above its share does not take the blocks that it leaves to others: one of its own
 * sequences is preempted instead. False: there is none, the sequence must wait. The oldest running
 * sequence then takes what it needs (I5), and so does one whose blocks are reserved. */
static bool stays_within_share(struct planning *p, seq_idx i, uint32_t tokens) {
    struct sched *s = p->s;
    if (!seq_at(s, i)->has_share || s->policy->reserves_all) return true;
    for (;;) {
        uint32_t need = kv_seq_need(s->kv, seq_at(s, i)->kv, tokens);
        uint32_t available = kv_cache_available(s->kv);
        uint32_t left = available > need ? available - need : 0;
        if (need == 0 || sched_share_spare(s, i, need, left) == 0) return true;
        if (s->lines.running_count > 0) {
            if (!sched_line_yields(p, i)) return false;
            continue;
        }
        uint32_t count = collect(p, i, VICTIMS_OWN_BEHIND);
        if (count == 0) return i == s->oldest_running;
        if (sched_needs_drain(p)) return false;
        sched_preempt(p, pick(p, count), i, PREEMPT_MEMORY);
    }
}

bool sched_ensure_blocks(struct planning *p, seq_idx i, uint32_t tokens) {
    struct sched *s = p->s;
    struct slot *slot = &s->slots[i];
    if (tokens <= slot->seq.writable_end) return true;
    if (is_line(s, i)) return sched_line_ensure_blocks(p, i, tokens);
    bool fits = stays_within_share(p, i, tokens);
    while (fits && !sched_grow(p, i, tokens)) {
        /* There are enough blocks, so the list of moves is full: wait for the next step. */
        if (kv_seq_need(s->kv, slot->seq.kv, tokens) <= kv_cache_available(s->kv)) return false;
        fits = preempt_for(p, i);
    }
    if (!fits) p->lacks_blocks = true;
    return fits;
}

/* ---- displacing, by policy ---- */

static bool displaces(const struct sched *s, seq_idx waiting, seq_idx running) {
    if (s->policy->displaces_seq)
        return s->policy->displaces_seq(s->state, seq_at(s, waiting), seq_at(s, running), &s->view);
    return seq_at(s, waiting)->key < seq_at(s, running)->key;
}

bool sched_displace(struct planning *p, seq_idx waiting, uint64_t blocks) {
    struct sched *s = p->s;
    if (!s->policy->displaces || p->displaced == DISPLACE_MAX) return false;
    sched_update_view(s, p->now_us);
    uint64_t gain = kv_cache_available(s->kv);
    uint32_t count = 0;
    for (uint32_t n = 0; n < s->running_count; n++) {
        seq_idx i = s->running[n];
        if (is_protected(s, i) || s->slots[i].admitted_in == s->plan_number) continue;
        if (!displaces(s, waiting, i)) continue;
        s->candidates[count++] = seq_at(s, i);
        if (gain < blocks) gain += sched_blocks_for(s, kv_seq_tokens(s->kv, seq_at(s, i)->kv));
    }
    if (count == 0 || gain < blocks || sched_needs_drain(p)) return false;
    sched_preempt(p, pick(p, count), waiting, PREEMPT_POLICY);
    p->displaced++;
    return true;
}

/* Only by swapping: recomputing would cost more than a free block is worth. */
void sched_keep_free(struct planning *p) {
    struct sched *s = p->s;
    p->keep_free = 0;
    if (!s->policy->blocks_to_keep_free) return;
    uint32_t wanted = s->policy->blocks_to_keep_free(s->state, sched_update_view(s, p->now_us));
    uint32_t most = s->knobs.kv_blocks / KEEP_FREE_PART;
    p->keep_free = wanted < most ? wanted : most;
    if (p->keep_free > 0) sched_lines_free_blocks(p, SEQ_NONE, p->keep_free);
    while (s->running_count > 1 && p->displaced < DISPLACE_MAX &&
           kv_cache_available(s->kv) < p->keep_free) {
        uint32_t count = collect(p, s->oldest_running, VICTIMS_UNPROTECTED);
        if (count == 0) return;
        seq_idx victim = pick(p, count);
        if (!may_swap(s, seq_at(s, victim)) || sched_needs_drain(p)) return;
        if (!swap_out(p, victim)) return;
        add_preempted(p, victim, SEQ_NONE, PREEMPT_POLICY);
        p->displaced++;
    }
}
