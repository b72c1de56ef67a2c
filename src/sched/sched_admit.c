/* sched/sched_admit.c - whether the first sequence of the queue is admitted, with how many tokens.
 *
 * Entry points: sched_chunk, sched_admit, sched_start_running, sched_fork_fits.
 *
 * Memory is checked before a sequence is admitted (I3). A policy that reserves (reserves_all)
 * counts the blocks that every running sequence needs until its end. The others are optimistic:
 * blocks for the whole prompt must be available besides those that running prompts still need, and
 * a watermark stays free for the answers. If answers grow beyond that, a sequence is preempted
 * (sched_memory.c).
 */
#include "sched/sched_int.h"

enum {
    PROMISE_LOOKS_MAX = 64, /* attempts without progress before a promised prefix is ignored */
    PROMPT_FLOOR = 16, /* tokens of a prompt in a step without other rows, despite the target */
};

/* ---- tokens ---- */

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* A prompt that is never split is computed in one step: together with the other rows if it fits;
 * otherwise, if it is the first prompt of the step, without the decodes. */
static uint32_t whole_chunk(const struct planning *p, uint32_t left) {
    if (left <= p->prompt_left || !p->has_prompt) return left;
    return 0;
}

static uint32_t within_target(const struct planning *p, uint32_t first, uint32_t max) {
    const struct sched *s = p->s;
    double target_us = s->knobs.step_target_ms * 1000;
    if (!(target_us > 0)) return max;
    uint32_t fit = cost_tokens_within(&s->cost, target_us, p->plan->token_count,
                                      p->plan->attended_tokens, first, max);
    if (fit < PROMPT_FLOOR && p->plan->token_count == 0) fit = min_u32(PROMPT_FLOOR, max);
    return fit;
}

uint32_t sched_chunk(struct planning *p, seq_idx i, uint32_t first) {
    const struct knobs *k = &p->s->knobs;
    uint32_t left = seq_at(p->s, i)->total - first;
    if (p->is_solo) return 0;
    if (is_line(p->s, i)) return sched_line_chunk(p, i, first);
    if (left == 1) return p->plan->token_count < k->max_step_tokens ? 1 : 0;
    if (p->s->policy->whole_prompts) return whole_chunk(p, left);
    uint32_t count = min_u32(left, p->prompt_left);
    if (k->chunk_tokens > 0) count = min_u32(count, k->chunk_tokens);
    return count > 0 ? within_target(p, first, count) : 0;
}

/* ---- memory ---- */

uint32_t sched_watermark(const struct sched *s) {
    return (uint32_t)(s->knobs.watermark * s->knobs.kv_blocks) + 1;
}

static uint64_t pending_of(const struct sched *s, const seq_idx *list, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t n = 0; n < count; n++) {
        const struct sched_seq *seq = seq_at(s, list[n]);
        sum += kv_seq_need(s->kv, seq->kv, seq->total);
    }
    return sum;
}

/* Blocks that running sequences still need for the tokens they have; computed once in a plan. */
static uint64_t pending_blocks(struct planning *p) {
    if (!p->is_pending_known) p->pending = pending_of(p->s, p->s->running, p->s->running_count);
    p->is_pending_known = true;
    return p->pending;
}

static uint64_t line_pending_blocks(struct planning *p) {
    const struct sched_lines *l = &p->s->lines;
    if (!p->is_line_pending_known) p->line_pending = pending_of(p->s, l->running, l->running_count);
    p->is_line_pending_known = true;
    return p->line_pending;
}

/* Does no sequence run that sequence i could wait for? It must fit then (I6). */
static bool runs_alone(const struct sched *s, seq_idx i) {
    return s->running_count == 0 && (!is_line(s, i) || s->lines.running_count == 0);
}

/* A line leaves what the policy keeps free, and a block for each interactive sequence that runs or
 * is a choice that waits for its parent. */
static uint64_t wanted_by_line(struct planning *p, uint32_t need) {
    const struct sched *s = p->s;
    uint64_t spare = (uint64_t)sched_watermark(s) + s->running_count + 2 * s->forking_count;
    if (spare < p->keep_free) spare = p->keep_free;
    return need + pending_blocks(p) + line_pending_blocks(p) + spare;
}

/* How many blocks must be available before a sequence that needs `need` more is admitted. */
static uint64_t wanted_blocks(struct planning *p, seq_idx i, uint32_t need) {
    const struct sched *s = p->s;
    if (runs_alone(s, i)) return need;
    if (is_line(s, i)) return wanted_by_line(p, need);
    if (s->policy->reserves_all) return need;
    uint64_t wanted = need + pending_blocks(p), available = kv_cache_available(s->kv);
    uint32_t for_others =
        sched_share_spare(s, i, need, available > wanted ? available - wanted : 0);
    uint32_t spare = sched_watermark(s);
    if (spare < p->keep_free) spare = p->keep_free;
    if (spare < for_others) spare = for_others;
    s->slots[i].seen_above = for_others > 0;
    return wanted + spare;
}

static bool reservation_fits(const struct sched *s, seq_idx i) {
    uint32_t need = sched_blocks_for(s, seq_at(s, i)->total_max);
    uint64_t all = s->reserved_blocks + need + sched_kept_blocks(s), max = s->knobs.kv_blocks;
    if (all > max || s->running_count == 0) return all <= max;
    s->slots[i].seen_above = sched_share_spare(s, i, need, max - all) > 0;
    return !s->slots[i].seen_above;
}

/* If no sequence runs, the first of the queue must fit: retained blocks are released for it
 * (I6). */
static void release_kept_if_idle(struct sched *s, seq_idx i) {
    if (runs_alone(s, i)) sched_release_kept(s);
}

/* Does a sequence that needs `need` more blocks fit now? If not, seen_need is set. */
static bool memory_fits(struct planning *p, seq_idx i, uint32_t need) {
    struct sched *s = p->s;
    struct slot *slot = &s->slots[i];
    uint64_t wanted = wanted_blocks(p, i, need);
    bool fits = wanted <= kv_cache_available(s->kv);
    if (!is_line(s, i)) {
        if (!fits) fits = sched_lines_free_blocks(p, i, wanted);
        if (fits && s->policy->reserves_all) fits = reservation_fits(s, i);
    }
    if (fits) return true;
    slot->seen_epoch = s->epoch;
    slot->seen_need = wanted < UINT32_MAX ? (uint32_t)wanted : UINT32_MAX;
    return false;
}

/* memory_fits was false. */
static enum admission no_memory(const struct slot *slot) {
    return slot->seen_above ? ADMIT_ABOVE_SHARE : ADMIT_NO_MEMORY;
}

/* ---- starting to run ---- */

void sched_start_running(struct sched *s, seq_idx i, kv_seq kv, uint32_t computed, int64_t now_us) {
    struct slot *slot = &s->slots[i];
    bool is_first = slot->seq.admitted_us == 0;
    slot->seq.kv = kv;
    slot->seq.computed = computed;
    slot->seq.writable_end = 0; /* its last block may be shared */
    slot->admitted_in = s->plan_number;
    sched_running_add(s, i);
    if (is_first) slot->seq.admitted_us = now_us;
    if (is_line(s, i)) return;
    const struct sched_view *view = sched_update_view(s, now_us);
    if (s->policy->on_admit) s->policy->on_admit(s->state, &slot->seq, view);
    sched_rekey(s, i);
}

/* The first row of a sequence that was just admitted. A whole prompt that does not fit together
 * with the rows that are planned already replaces them. */
static void add_first_row(struct planning *p, seq_idx i, uint32_t count) {
    if (p->plan->token_count + count > p->s->knobs.max_step_tokens) sched_rows_drop_all(p);
    if (!sched_ensure_blocks(p, i, seq_at(p->s, i)->computed + count)) return;
    sched_row_add(p, i, count);
    uint32_t need = kv_seq_need(p->s->kv, seq_at(p->s, i)->kv, seq_at(p->s, i)->total);
    if (is_line(p->s, i))
        p->line_pending += need;
    else
        p->pending += need;
}

/* ---- a sequence that waits ---- */

/* If nothing has changed since the last attempt, the result is the same. */
static bool is_unchanged(struct planning *p, seq_idx i, enum admission *out) {
    const struct sched *s = p->s;
    const struct slot *slot = &s->slots[i];
    if (slot->seen_epoch != s->epoch || runs_alone(s, i)) return false;
    *out = slot->seen_promised ? ADMIT_SKIP : no_memory(slot);
    if (slot->seen_promised) return true;
    if (slot->seen_need == 0 || kv_cache_available(s->kv) >= slot->seen_need) return false;
    if (is_line(s, i)) return true;
    p->lacks_blocks = true;
    return s->lines.running_count == 0; /* otherwise lines are preempted for it */
}

/* Another sequence computes the block that it needs next: wait as long as that makes progress
 * (I7). An interactive sequence does not wait for a line. */
static bool waits_for_promise(struct sched *s, struct slot *slot, struct kv_match match) {
    bool was_promised = slot->seen_promised;
    if (match.tokens > slot->seen_match) slot->promise_looks = 0;
    slot->seen_match = match.tokens;
    bool is_other = match.is_promised && !runs_alone(s, idx_of(s, &slot->seq));
    if (match.is_batch_promise && !slot->seq.is_batch) is_other = false;
    slot->seen_promised = is_other && slot->promise_looks++ < PROMISE_LOOKS_MAX;
    if (slot->seen_promised != was_promised)
        s->notes.front.is_known = false; /* its reason to wait */
    slot->seen_epoch = s->epoch;
    return slot->seen_promised;
}

static struct kv_match look_up(const struct sched *s, const struct sched_seq *seq) {
    if (seq->reads_no_prefix) return (struct kv_match){.tokens = 0};
    return kv_cache_match(s->kv, seq->salt, seq->tokens, seq->total);
}

/* Open block tables with its prefix attached, if memory allows for the rest. */
static bool open_tables(struct planning *p, seq_idx i, kv_seq *kv, uint32_t *computed) {
    struct sched *s = p->s;
    const struct sched_seq *seq = seq_at(s, i);
    if (kv_seq_open(s->kv, seq->salt, kv) != ST_OK) return false;
    if (seq->is_batch) kv_seq_mark_batch(s->kv, *kv);
    *computed = seq->reads_no_prefix ? 0 : kv_seq_attach(s->kv, *kv, seq->tokens, seq->total);
    /* Only now is it known how many blocks of the prefix were cached, and so counted as
     * available. */
    if (memory_fits(p, i, kv_seq_need(s->kv, *kv, seq->total))) return true;
    kv_seq_close(s->kv, *kv);
    return false;
}

/* Lines are preempted for it, if they have all seats. */
static bool has_seat(struct planning *p, seq_idx i) {
    if (is_line(p->s, i)) return sched_line_has_seat(p->s);
    return sched_lines_free_seats(p, i, 1);
}

static enum admission admit_waiting(struct planning *p, seq_idx i) {
    struct sched *s = p->s;
    struct slot *slot = &s->slots[i];
    enum admission known;
    if (is_unchanged(p, i, &known)) return known;
    slot->seen_need = 0;
    slot->seen_above = false;

    struct kv_match match = look_up(s, &slot->seq);
    if (waits_for_promise(s, slot, match)) return ADMIT_SKIP;
    uint32_t count = sched_chunk(p, i, match.tokens);
    if (count == 0) return ADMIT_NO_TOKENS;
    if (!has_seat(p, i)) return ADMIT_NO_SEAT;
    uint32_t at_least = sched_blocks_for(s, slot->seq.total) - match.tokens / s->knobs.block_size;
    release_kept_if_idle(s, i);
    kv_seq kv;
    uint32_t computed;
    if (!memory_fits(p, i, at_least) || !open_tables(p, i, &kv, &computed)) return no_memory(slot);
    CHECK(computed == match.tokens);

    if (slot->seq.preempt_count == 0)
        slot->seq.cached_tokens = min_u32(computed, slot->seq.prompt_tokens);
    sched_queue_remove(s, i);
    sched_start_running(s, i, kv, computed, p->now_us);
    sched_note_admitted(s, i, computed, p->now_us);
    add_first_row(p, i, count);
    return ADMITTED;
}

/* ---- a sequence that is swapped out ---- */

static enum admission admit_swapped(struct planning *p, seq_idx i) {
    struct sched *s = p->s;
    struct slot *slot = &s->slots[i];
    uint32_t count = sched_chunk(p, i, slot->seq.computed);
    /* The plan under way swaps it out; if that plan fails there is nothing to swap in. */
    if (count == 0 || sched_used_until(s, i) > 0) return ADMIT_NO_TOKENS;
    if (!has_seat(p, i)) return ADMIT_NO_SEAT;
    release_kept_if_idle(s, i);
    slot->seen_above = false;
    if (!memory_fits(p, i, kv_seq_need(s->kv, slot->seq.kv, slot->seq.total)))
        return no_memory(slot);
    if (kv_seq_swap_in(s->kv, slot->seq.kv, &p->plan->moves) != ST_OK) {
        /* The list of moves is full. If it has no moves yet, it is too short for this sequence. */
        if (p->plan->moves.count == 0) sched_drop_blocks(s, i);
        return ADMIT_NO_TOKENS;
    }
    slot->moved_in = s->plan_number;
    sched_queue_remove(s, i);
    sched_start_running(s, i, slot->seq.kv, slot->seq.computed, p->now_us);
    sched_note_admitted(s, i, 0, p->now_us);
    add_first_row(p, i, count);
    return ADMITTED;
}

enum admission sched_admit(struct planning *p, seq_idx i) {
    return seq_at(p->s, i)->state == SEQ_SWAPPED ? admit_swapped(p, i) : admit_waiting(p, i);
}

/* ---- a further choice of a request ---- */

/* It shares the prompt's blocks; it needs a copy of the last block, and one more. */
bool sched_fork_fits(const struct sched *s, seq_idx child) {
    uint64_t available = kv_cache_available(s->kv), wanted = 2 + sched_watermark(s);
    if (is_line(s, child)) return sched_line_has_seat(s) && available >= wanted + s->running_count;
    if (s->running_count + s->lines.running_count >= s->knobs.max_seqs) return false;
    if (!sched_share_may_run(s, child)) return false;
    if (s->policy->reserves_all) return reservation_fits(s, child);
    return available >= wanted && sched_share_spare(s, child, 2, available - 2) == 0;
}
