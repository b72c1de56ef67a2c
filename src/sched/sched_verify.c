/* sched/sched_verify.c - every invariant of the scheduler; see sched/sched.h. */
#include "sched/sched_int.h"

struct counts {
    uint32_t by_state[SEQ_LINGERING + 1];
    uint32_t prefills, events, lingering, drafting;
    uint64_t reserved, queue_tokens;
};

/* Fields that depend on plans under way. */
static void verify_plans_of(const struct sched *s, seq_idx i) {
    const struct slot *slot = &s->slots[i];
    const struct sched_seq *seq = &slot->seq;
    bool is_over = seq->state == SEQ_ENDED || seq->state == SEQ_LINGERING;
    if (seq->planned > 0) {
        CHECK(seq->state == SEQ_RUNNING);
        CHECK(s->under_way_count > 0);
        CHECK(slot->row_in == s->under_way[s->under_way_count - 1].number);
    }
    CHECK(slot->assumed > 0 || !slot->assumes_token);
    CHECK(slot->assumed > slot->assumed_drafts || slot->assumed_drafts == 0);
    if (slot->assumed > 0) {
        CHECK(seq->state == SEQ_RUNNING);
        CHECK(s->is_assumed);
        CHECK(slot->row_in >= s->under_way[0].number);
    }
    if (slot->lingers_until > 0) {
        CHECK(is_over);
        CHECK(s->under_way_count > 0);
        CHECK(slot->lingers_until >= s->under_way[0].number);
        CHECK(slot->lingers_until <= s->under_way[s->under_way_count - 1].number);
        if (slot->lingers_with_kv) kv_seq_tokens(s->kv, seq->kv); /* CHECKs that it is open */
    }
    if (seq->state == SEQ_LINGERING) CHECK(slot->lingers_until > 0);
}

static void verify_seq(const struct sched *s, seq_idx i) {
    const struct slot *slot = &s->slots[i];
    const struct sched_seq *seq = &slot->seq;
    bool is_waiting = seq->state == SEQ_WAITING, is_swapped = seq->state == SEQ_SWAPPED;
    bool is_running = seq->state == SEQ_RUNNING;
    bool is_ended = seq->state == SEQ_ENDED || seq->state == SEQ_LINGERING;
    const struct seq_heap *queue = seq->is_batch ? &s->lines.queue : &s->queue;
    const struct seq_heap *timers = seq->is_batch ? &s->lines.timers : &s->timers;
    CHECK(heap_has(queue, i) == (is_waiting || is_swapped));
    CHECK(heap_has(&s->by_arrival, i) == (is_waiting && !seq->is_batch));
    CHECK(!heap_has(&s->prompts, i));
    CHECK(heap_has(timers, i) == slot->has_timer);
    CHECK((seq->fork_parent != SEQ_NONE) == (seq->state == SEQ_FORKING));
    CHECK(seq->prompt_tokens > 0);
    CHECK(seq->prompt_tokens <= seq->total);
    CHECK(seq->total <= seq->total_max);
    CHECK(seq->total < seq->total_max || is_ended || slot->assumes_token);
    CHECK(seq->total_max <= s->ctx_tokens);
    CHECK(is_ended || seq->computed < seq->total);
    CHECK(slot->planned_drafts < seq->planned || slot->planned_drafts == 0);
    CHECK(seq->computed + seq->planned <= seq->total + slot->planned_drafts);
    CHECK(seq->total + slot->planned_drafts < seq->total_max || slot->planned_drafts == 0);
    if (is_waiting || seq->state == SEQ_FORKING) CHECK(seq->computed == 0);
    if (is_waiting || is_swapped || seq->state == SEQ_FORKING) CHECK(seq->seat == SEAT_NONE);
    if (is_swapped) CHECK(kv_seq_is_swapped_out(s->kv, seq->kv));
    if (is_running) {
        CHECK(!kv_seq_is_swapped_out(s->kv, seq->kv));
        CHECK(kv_seq_tokens(s->kv, seq->kv) >= seq->computed + seq->planned);
        CHECK(slot->is_prefilling == seq_is_prefilling(seq));
        /* Blocks of drafts were given back; one token may have been assumed. */
        if (sched_used_until(s, i) == 0)
            CHECK(seq->writable_end <= sched_end_of_block(s, seq->total + 1));
    }
    if (is_ended) {
        CHECK(slot->has_event == (seq->state == SEQ_ENDED));
        CHECK(slot->finish != FINISH_NONE);
        CHECK(!slot->has_timer);
        CHECK(slot->child_first == SEQ_NONE);
    }
    bool is_known = seq->state != SEQ_LINGERING;
    CHECK((sched_find(s, seq->request, seq->choice) == i) == is_known);
    verify_plans_of(s, i);
}

static struct counts count_all(const struct sched *s) {
    struct counts c = {0};
    for (seq_idx i = 0; i < s->slot_count; i++) {
        const struct slot *slot = &s->slots[i];
        c.by_state[slot->seq.state]++;
        if (slot->seq.state == SEQ_FREE) continue;
        verify_seq(s, i);
        c.events += slot->has_event;
        c.drafting += slot->seq.draft_max > 0;
        c.lingering += slot->lingers_until > 0;
        if (heap_has(&s->queue, i)) c.queue_tokens += seq_left(&slot->seq);
        bool is_running = slot->seq.state == SEQ_RUNNING;
        if (is_running || (slot->lingers_until > 0 && slot->lingers_with_reservation))
            c.reserved += slot->reserved;
        c.prefills += is_running && slot->is_prefilling && !slot->seq.is_batch;
    }
    return c;
}

static void verify_lists(const struct sched *s, const struct counts *c) {
    uint32_t events = 0, children = 0, free_count = 0;
    seq_idx i;
    for (uint32_t n = 0; n < s->running_count; n++) {
        CHECK(seq_at(s, s->running[n])->state == SEQ_RUNNING);
        CHECK(seq_at(s, s->running[n])->run_idx == n);
        CHECK(!seq_at(s, s->running[n])->is_batch);
        CHECK(s->slots[s->oldest_running].serial <= s->slots[s->running[n]].serial);
    }
    CHECK((s->oldest_running == SEQ_NONE) == (s->running_count == 0));
    for (i = s->event_first; i != SEQ_NONE; i = s->slots[i].event_next) {
        CHECK(s->slots[i].has_event);
        CHECK(++events <= c->events);
    }
    CHECK(events == c->events);
    for (i = s->free_first; i != SEQ_NONE; i = seq_at(s, i)->next) {
        CHECK(seq_at(s, i)->state == SEQ_FREE);
        CHECK(++free_count <= c->by_state[SEQ_FREE]);
    }
    CHECK(free_count == c->by_state[SEQ_FREE]);
    for (seq_idx parent = 0; parent < s->slot_count; parent++) {
        if (seq_at(s, parent)->state == SEQ_FREE) continue;
        for (i = s->slots[parent].child_first; i != SEQ_NONE; i = seq_at(s, i)->next) {
            CHECK(seq_at(s, i)->fork_parent == parent);
            CHECK(++children <= s->forking_count + s->lines.forking_count);
            CHECK(seq_at(s, i)->is_batch == seq_at(s, parent)->is_batch);
        }
    }
    CHECK(children == s->forking_count + s->lines.forking_count);
}

/* The sequence of every row of a plan under way still exists, with the row's tokens (I8). */
static void verify_rows(const struct sched *s) {
    for (uint32_t n = 0; n < s->under_way_count; n++) {
        const struct plan *plan = s->under_way[n].plan;
        for (uint32_t r = 0; r < plan->row_count; r++) {
            const struct slot *slot = &s->slots[plan->rows[r].seq];
            CHECK(slot->seq.state != SEQ_FREE);
            CHECK(slot->row_in >= s->under_way[n].number);
            CHECK(slot->seq.tokens == plan->rows[r].tokens);
            CHECK(plan->rows[r].count - plan->rows[r].draft_count == 1 ||
                  !plan->rows[r].takes_sampled);
            CHECK(n > 0 || !s->is_assumed || slot->assumed == 0 ||
                  slot->assumed == plan->rows[r].count);
        }
    }
    CHECK(s->under_way_count > 0 || !s->is_assumed);
    CHECK(s->under_way_count > 0 || !s->is_draining);
    CHECK(s->under_way_count < PLANS_UNDER_WAY_MAX || s->is_assumed);
}

static void verify_counts(const struct sched *s, const struct counts *c) {
    const struct sched_lines *l = &s->lines;
    uint32_t lines_waiting = l->queue.count - l->swapped_count;
    CHECK(c->by_state[SEQ_RUNNING] == s->running_count + l->running_count);
    CHECK(c->by_state[SEQ_SWAPPED] == s->swapped_count + l->swapped_count);
    CHECK(c->by_state[SEQ_FORKING] == s->forking_count + l->forking_count);
    CHECK(c->by_state[SEQ_WAITING] == s->by_arrival.count + lines_waiting);
    CHECK(s->queue.count == s->by_arrival.count + s->swapped_count);
    CHECK(s->live_count == s->queue.count + s->running_count + s->forking_count);
    CHECK(s->live_count <= s->live_max);
    CHECK(c->prefills == s->prefill_count);
    CHECK(c->drafting == s->draft_seqs);
    CHECK(s->prefill_count + s->decode_count == s->running_count);
    CHECK(c->reserved == s->reserved_blocks);
    CHECK(c->queue_tokens == s->queue_tokens);
    CHECK(s->running_count + s->held_batch_slots <= s->knobs.max_seqs);
    CHECK(s->running_count + l->running_count <= s->knobs.max_seqs);
    CHECK(s->swapped_count + l->swapped_count <= s->knobs.max_seqs);
    CHECK(l->steps <= s->steps);
    CHECK(s->reserved_blocks <= s->knobs.kv_blocks);
    uint32_t lingering = 0;
    for (seq_idx i = s->linger_first; i != SEQ_NONE; i = s->slots[i].linger_next)
        CHECK(++lingering <= c->lingering);
    CHECK(lingering == c->lingering);
}

void sched_verify(const struct sched *s) {
    heap_verify(&s->queue);
    heap_verify(&s->by_arrival);
    heap_verify(&s->timers);
    struct counts c = count_all(s);
    verify_lists(s, &c);
    sched_notes_verify(s);
    verify_rows(s);
    verify_counts(s, &c);
    sched_share_verify(s);
    sched_lines_verify(s);
    kv_cache_verify(s->kv);
    if (s->policy->verify) s->policy->verify(s->state);
}
