/* sched/sched_plan.c - one plan; see sched/sched.h.
 *
 * Entry point: sched_plan.
 *
 * Decoding sequences come first, with one token each. The rest of the token budget goes to prompts,
 * of running and of waiting sequences, in one policy order. (A policy with runs_decodes plans
 * prompts first.) The cost is in proportion to the running sequences: of the queue only the front
 * is looked at, a bounded number of times.
 */
#include "sched/sched_int.h"

#include <string.h>

enum {
    SKIP_MAX = 8,   /* sequences of the queue skipped in one plan: they wait for a prefix */
    REKEY_MAX = 64, /* keys of the queue that are updated in one plan because they have grown */
};

/* ---- rows ---- */

static bool is_decode_row(const struct plan_row *row) {
    return row->samples && row->count - row->draft_count == 1;
}

void sched_row_add(struct planning *p, seq_idx i, uint32_t count) {
    struct sched_seq *seq = seq_at(p->s, i);
    struct plan *plan = p->plan;
    CHECK(seq->planned == 0);
    CHECK(count > 0);
    CHECK(count <= seq_left(seq));
    CHECK(plan->row_count < plan->row_cap);
    uint32_t max = p->s->knobs.max_step_tokens;

    struct slot *slot = &p->s->slots[i];
    bool samples = count == seq_left(seq);
    seq->planned = count;
    slot->row_in = p->s->plan_number;
    if (seq_is_prefilling(seq)) {
        p->has_prompt = true;
        if (!seq->is_batch) sched_share_took_turn(p->s, i);
    } else if (p->has_prompt) {
        p->is_mixed = true;
    }
    plan->rows[plan->row_count++] = (struct plan_row){.seq = i,
                                                      .first = seq->computed,
                                                      .count = count,
                                                      .samples = samples,
                                                      .takes_sampled = slot->assumes_token,
                                                      .kv = seq->kv,
                                                      .tokens = seq->tokens};
    plan->token_count += count;
    plan->batch_row_count += seq->is_batch;
    plan->sample_count += samples;
    plan->attended_tokens += cost_attended(seq->computed, count);
    p->is_solo = plan->token_count > max;
    uint32_t room = p->is_solo ? 0 : max - plan->token_count;
    uint32_t left = p->prompt_left > count ? p->prompt_left - count : 0;
    p->prompt_left = left < room ? left : room;
}

static void drop_row(struct planning *p, uint32_t r) {
    struct plan *plan = p->plan;
    struct plan_row *row = &plan->rows[r];
    plan->token_count -= row->count;
    plan->batch_row_count -= seq_at(p->s, row->seq)->is_batch;
    plan->sample_count -= row->samples;
    plan->attended_tokens -= cost_attended(row->first, row->count);
    CHECK(row->draft_count == 0); /* drafts are planned last */
    slot_unplan(&p->s->slots[row->seq]);
    *row = plan->rows[--plan->row_count]; /* the last row moves into the gap */
}

void sched_row_drop(struct planning *p, seq_idx i) {
    for (uint32_t r = 0; r < p->plan->row_count; r++)
        if (p->plan->rows[r].seq == i) {
            drop_row(p, r);
            p->is_mixed = true;
            return;
        }
    CHECK(false); /* a sequence that is planned has a row */
}

void sched_rows_drop_all(struct planning *p) {
    while (p->plan->row_count > 0) drop_row(p, p->plan->row_count - 1);
}

/* Rows of decodes before rows of prompts. */
static void sort_rows(struct planning *p) {
    struct plan *plan = p->plan;
    uint32_t count = 0;
    if (!p->is_mixed) return;
    for (int decodes = 1; decodes >= 0; decodes--)
        for (uint32_t r = 0; r < plan->row_count; r++)
            if (is_decode_row(&plan->rows[r]) == (decodes == 1))
                p->s->rows[count++] = plan->rows[r];
    CHECK(count == plan->row_count);
    memcpy(plan->rows, p->s->rows, count * sizeof(plan->rows[0]));
}

/* ---- decodes ---- */

/* Copy s->running, because preemption changes it. The oldest running sequence comes first: no other
 * may take the blocks that it needs (I5). The others follow from where the last plan ran out of
 * tokens. */
static void copy_running(struct planning *p) {
    struct sched *s = p->s;
    uint32_t count = s->running_count;
    p->order_count = count;
    if (count == 0) return;
    uint32_t start = s->decode_start < count ? s->decode_start : 0;
    memcpy(s->order, s->running + start, (count - start) * sizeof(s->order[0]));
    memcpy(s->order + (count - start), s->running, start * sizeof(s->order[0]));
    uint32_t place = (seq_at(s, s->oldest_running)->run_idx + count - start) % count;
    memmove(s->order + 1, s->order, place * sizeof(s->order[0]));
    s->order[0] = s->oldest_running;
}

static void plan_decodes(struct planning *p) {
    struct sched *s = p->s;
    for (uint32_t n = 0; n < p->order_count; n++) {
        if (n + PREFETCH_ROWS < p->order_count)
            slot_prefetch(&s->slots[s->order[n + PREFETCH_ROWS]]);
        seq_idx i = s->order[n];
        const struct sched_seq *seq = seq_at(s, i);
        /* A row planned before may have preempted it. */
        if (seq->state != SEQ_RUNNING || seq->planned > 0 || seq_left(seq) != 1) continue;
        if (sched_skips_ahead_plan(p, i)) continue;
        if (p->is_solo || p->plan->token_count >= s->knobs.max_step_tokens) {
            s->decode_start = seq->run_idx; /* the next plan starts with it */
            return;
        }
        if (sched_ensure_blocks(p, i, seq->total)) sched_row_add(p, i, 1);
    }
}

/* ---- prompts ---- */

uint32_t sched_cut_to_memory(const struct sched *s, seq_idx i, uint32_t count) {
    const struct sched_seq *seq = seq_at(s, i);
    uint32_t available = kv_cache_available(s->kv);
    if (kv_seq_need(s->kv, seq->kv, seq->computed + count) <= available) return count;
    uint32_t blocks = sched_blocks_for(s, kv_seq_tokens(s->kv, seq->kv)) + available;
    uint64_t fit = (uint64_t)blocks * s->knobs.block_size;
    if (fit <= seq->computed) return 1;
    uint32_t cut = fit - seq->computed < count ? (uint32_t)(fit - seq->computed) : count;
    return kv_seq_need(s->kv, seq->kv, seq->computed + cut) <= available ? cut : 1;
}

static void plan_prompt(struct planning *p, seq_idx i, uint32_t count) {
    struct sched *s = p->s;
    const struct sched_seq *seq = seq_at(s, i);
    if (s->lines.running_count > 0)
        sched_lines_free_blocks(p, i, kv_seq_need(s->kv, seq->kv, seq->computed + count));
    if (!s->policy->whole_prompts) count = sched_cut_to_memory(s, i, count);
    uint32_t before = kv_seq_need(s->kv, seq->kv, seq->total);
    if (!sched_ensure_blocks(p, i, seq->computed + count)) return;
    uint32_t after = kv_seq_need(s->kv, seq->kv, seq->total);
    if (p->is_pending_known) p->pending -= before > after ? before - after : 0;
    if (p->plan->token_count + count > s->knobs.max_step_tokens) sched_rows_drop_all(p);
    sched_row_add(p, i, count);
}

static void plan_running_prompt(struct planning *p, seq_idx i) {
    heap_remove(&p->s->prompts, i);
    uint32_t count = sched_chunk(p, i, seq_at(p->s, i)->computed);
    if (count > 0)
        plan_prompt(p, i, count);
    else
        heap_clear(&p->s->prompts); /* no tokens or no time left for any prompt */
}

/* ---- the queue ---- */

struct skipped {
    seq_idx list[SKIP_MAX];
    uint32_t count;
};

/* It stays WAITING and is only taken out of the heap until the end of this plan. */
static void skip_for_plan(struct planning *p, struct skipped *a, seq_idx i, enum wait_why why) {
    heap_remove(&p->s->queue, i);
    a->list[a->count++] = i;
    if (a->count == SKIP_MAX) sched_stop_admitting(p, why);
}

static void requeue_skipped(struct sched *s, const struct skipped *a) {
    for (uint32_t n = 0; n < a->count; n++)
        heap_push(&s->queue, a->list[n], seq_at(s, a->list[n])->key,
                  sched_queue_tie(s, a->list[n]));
}

/* The first sequence of the queue, after keys that have grown were updated; SEQ_NONE: none may be
 * admitted. A sequence that this plan has preempted is not admitted again by it, unless no other
 * runs (I6). */
static seq_idx queue_front(struct planning *p) {
    struct sched *s = p->s;
    while (p->is_admitting) {
        seq_idx i = heap_top(&s->queue);
        if (i == SEQ_NONE) break;
        if (s->slots[i].preempted_in == s->plan_number && s->running_count > 0) break;
        if (p->rekeyed == REKEY_MAX) return i;
        int64_t key = seq_at(s, i)->key;
        sched_rekey(s, i);
        if (seq_at(s, i)->key <= key) return i;
        p->rekeyed++;
    }
    sched_stop_admitting(p, WAIT_POLICY); /* the first was preempted, or there is none */
    return SEQ_NONE;
}

static void plan_queue_front(struct planning *p, struct skipped *a, seq_idx i) {
    struct sched *s = p->s;
    const struct sched_view *view = sched_update_view(s, p->now_us);
    if (s->policy->may_admit && !s->policy->may_admit(s->state, view)) {
        sched_stop_admitting(p, WAIT_POLICY);
        return;
    }
    if (s->running_count + s->held_batch_slots >= s->knobs.max_seqs) {
        bool is_full = s->running_count >= s->knobs.max_seqs; /* else the policy holds slots */
        if (!sched_displace(p, i, 0)) sched_stop_admitting(p, is_full ? WAIT_SEAT : WAIT_POLICY);
        return;
    }
    if (!sched_share_may_run(s, i) || sched_share_is_skipped(s, i)) {
        sched_share_skip(s, i);
        skip_for_plan(p, a, i, WAIT_POLICY);
        return;
    }
    switch (sched_admit(p, i)) {
    case ADMITTED:
        break;
    case ADMIT_SKIP:
        skip_for_plan(p, a, i, WAIT_PREFIX);
        break;
    case ADMIT_ABOVE_SHARE:
        sched_share_skip(s, i);
        skip_for_plan(p, a, i, WAIT_POLICY);
        break;
    case ADMIT_NO_MEMORY:
        if (!sched_displace(p, i, s->slots[i].seen_need)) sched_stop_admitting(p, WAIT_BLOCKS);
        break;
    case ADMIT_NO_TOKENS:
        sched_stop_admitting(p, WAIT_BUDGET);
        break;
    case ADMIT_NO_SEAT:
        sched_stop_admitting(p, WAIT_SEAT);
        break;
    }
}

static void gather_prompts(const struct planning *p) {
    struct sched *s = p->s;
    heap_clear(&s->prompts);
    if (s->prefill_count == 0) return;
    for (uint32_t n = 0; n < s->running_count; n++) {
        seq_idx i = s->running[n];
        if (seq_left(seq_at(s, i)) > 1 && !sched_skips_ahead_plan(p, i))
            heap_push(&s->prompts, i, seq_at(s, i)->key, s->slots[i].serial);
    }
}

/* The running prompt that is next, by tenants' turns and policy order: a loop, because few prompts
 * run at a time. */
static seq_idx first_prompt(const struct sched *s) {
    seq_idx first = heap_top(&s->prompts);
    if (s->shares.live_count == 0) return first;
    for (uint32_t n = 1; n < s->prompts.count; n++)
        if (sched_share_goes_before(s, s->prompts.entries[n].seq, first))
            first = s->prompts.entries[n].seq;
    return first;
}

static void plan_prompts_and_queue(struct planning *p) {
    struct sched *s = p->s;
    struct skipped skipped = {.count = 0};
    gather_prompts(p);
    while (!p->is_solo && p->plan->token_count < s->knobs.max_step_tokens) {
        seq_idx waiting = queue_front(p), running = first_prompt(s);
        if (waiting == SEQ_NONE && running == SEQ_NONE) break;
        if (running == SEQ_NONE ||
            (waiting != SEQ_NONE && sched_share_goes_before(s, waiting, running)))
            plan_queue_front(p, &skipped, waiting);
        else
            plan_running_prompt(p, running);
    }
    requeue_skipped(s, &skipped);
    heap_clear(&s->prompts);
}

/* ---- the plan ---- */

/* How many of the remaining tokens the policy gives to prompts. If the step has no rows yet, a
 * policy cannot refuse all prompts. */
static void set_prompt_budget(struct planning *p) {
    struct sched *s = p->s;
    uint32_t used = p->plan->token_count, max = s->knobs.max_step_tokens;
    p->prompt_left = used < max ? max - used : 0;
    if (!s->policy->prompt_budget) return;
    const struct sched_view *view = sched_update_view(s, p->now_us);
    uint32_t wanted = s->policy->prompt_budget(s->state, p->prompt_left, view);
    if (wanted == 0 && used == 0) return;
    if (wanted < p->prompt_left) p->prompt_left = wanted;
}

/* Give the oldest running sequence a row, whatever the policy and the budgets say (I5). */
static void force_progress(struct planning *p) {
    struct sched *s = p->s;
    uint32_t left = seq_left(seq_at(s, s->oldest_running)), max = s->knobs.max_step_tokens;
    bool is_whole = s->policy->whole_prompts || left <= max;
    plan_prompt(p, s->oldest_running, is_whole ? left : max);
    CHECK(p->plan->row_count > 0 || p->plan->moves.count > 0);
}

static void plan_rows(struct planning *p) {
    struct sched *s = p->s;
    if (!s->policy->runs_decodes) {
        plan_decodes(p);
        set_prompt_budget(p);
        plan_prompts_and_queue(p);
        return;
    }
    set_prompt_budget(p);
    plan_prompts_and_queue(p);
    const struct sched_view *view = sched_update_view(s, p->now_us);
    if (p->plan->token_count == 0 || s->policy->runs_decodes(s->state, view)) plan_decodes(p);
}

/* A plan that is not empty is under way from now on. */
static void add_under_way(struct planning *p, bool is_lines_only) {
    struct sched *s = p->s;
    if (p->plan->row_count == 0 && p->plan->moves.count == 0) return;
    s->under_way[s->under_way_count++] =
        (struct plan_under_way){p->plan, s->plan_number, is_lines_only};
    s->ahead_plans += p->is_ahead;
}

void sched_plan(struct sched *s, int64_t now_us, struct plan *plan) {
    CHECK(s->under_way_count < PLANS_UNDER_WAY_MAX);
    CHECK(!s->is_draining);
    CHECK(plan->row_cap >= s->knobs.max_seqs);
    struct planning p = {.s = s,
                         .plan = plan,
                         .now_us = now_us,
                         .is_ahead = s->under_way_count > 0,
                         .is_admitting = true,
                         .stop = WAIT_BUDGET};
    plan_clear(plan);
    s->plan_number++;
    if (p.is_ahead) sched_assume(s);
    sched_fire_timers(s, now_us);
    kv_cache_expire(s->kv, now_us);

    copy_running(&p);
    if (s->lines.running_count > 0) sched_lines_make_room(&p);
    sched_keep_free(&p);
    plan_rows(&p);
    bool is_empty = plan->token_count == 0 && plan->moves.count == 0;
    if (is_empty && s->running_count > 0 && !p.is_ahead) force_progress(&p);
    bool is_lines_only = plan->row_count == 0 && plan->moves.count == 0;
    if (s->lines.live_count > 0) sched_plan_lines(&p);
    sched_plan_drafts(&p);
    sort_rows(&p);
    plan->batch_running_count = s->lines.running_count;
    plan->batch_waiting_count = sched_lines_waiting(s);
    plan->waiting_count = s->by_arrival.count + s->forking_count + plan->batch_waiting_count;
    plan->running_count = s->running_count + s->lines.running_count;
    if (s->queue.count + s->forking_count + s->notes.started_count > 0) sched_note_queue(&p);
    add_under_way(&p, is_lines_only);
}
