/* sched/sched_verify.c - every invariant of the scheduler; see sched/sched.h. */
#include "sched/sched_int.h"

struct census {
    uint32_t by_state[SEQ_ENDED + 1];
    uint32_t prompts, events, endings, open;
    uint64_t reserved, line_tokens;
};

static void verify_seq(const struct sched *s, seq_idx i) {
    const struct slot *slot = &s->slots[i];
    const struct sched_seq *seq = &slot->seq;
    bool is_waiting = seq->state == SEQ_WAITING, is_swapped = seq->state == SEQ_SWAPPED;
    bool is_running = seq->state == SEQ_RUNNING, is_ended = seq->state == SEQ_ENDED;
    CHECK(heap_has(&s->line, i) == (is_waiting || is_swapped));
    CHECK(heap_has(&s->oldest, i) == is_waiting);
    CHECK(!heap_has(&s->prompts, i));
    CHECK(heap_has(&s->timers, i) == slot->has_timer);
    CHECK((seq->fork_parent != SEQ_NONE) == (seq->state == SEQ_FORKING));
    CHECK(seq->prompt_tokens > 0);
    CHECK(seq->prompt_tokens <= seq->total);
    CHECK(seq->total <= seq->total_max);
    CHECK(seq->total < seq->total_max || is_ended);
    CHECK(seq->total_max <= s->ctx_tokens);
    CHECK(is_ended || seq->computed < seq->total);
    CHECK(seq->computed + seq->planned <= seq->total);
    if (is_waiting || seq->state == SEQ_FORKING) CHECK(seq->computed == 0);
    if (seq->planned > 0) CHECK(is_running && s->is_under_way);
    if (is_swapped) CHECK(kv_seq_is_out(s->kv, seq->kv));
    if (is_running) {
        CHECK(!kv_seq_is_out(s->kv, seq->kv));
        CHECK(kv_seq_tokens(s->kv, seq->kv) >= seq->computed + seq->planned);
        CHECK(slot->is_prompt == seq_in_prompt(seq));
    }
    if (slot->ending != FINISH_NONE && !is_ended) CHECK(s->is_under_way);
    if (is_ended) {
        CHECK(slot->has_event);
        CHECK(slot->finish != FINISH_NONE);
        CHECK(!heap_has(&s->timers, i));
        CHECK(slot->child_first == SEQ_NONE);
    }
    CHECK(sched_find(s, seq->request, seq->choice) == i);
}

static struct census take_census(const struct sched *s) {
    struct census c = {0};
    for (seq_idx i = 0; i < s->slot_count; i++) {
        const struct slot *slot = &s->slots[i];
        c.by_state[slot->seq.state]++;
        if (slot->seq.state == SEQ_FREE) continue;
        verify_seq(s, i);
        c.events += slot->has_event;
        if (heap_has(&s->line, i)) c.line_tokens += seq_left(&slot->seq);
        if (slot->seq.state != SEQ_RUNNING) continue;
        c.prompts += slot->is_prompt;
        if (s->policy->reserves_all) c.reserved += sched_blocks_for(s, slot->seq.total_max);
    }
    return c;
}

static void verify_lists(const struct sched *s, const struct census *c) {
    uint32_t events = 0, children = 0, free_count = 0;
    seq_idx i;
    for (uint32_t n = 0; n < s->running_count; n++) {
        CHECK(seq_at(s, s->run[n])->state == SEQ_RUNNING);
        CHECK(seq_at(s, s->run[n])->run_place == n);
        CHECK(s->slots[s->eldest].serial <= s->slots[s->run[n]].serial);
    }
    CHECK((s->eldest == SEQ_NONE) == (s->running_count == 0));
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
            CHECK(++children <= s->forking_count);
        }
    }
    CHECK(children == s->forking_count);
}

static void verify_counts(const struct sched *s, const struct census *c) {
    CHECK(c->by_state[SEQ_RUNNING] == s->running_count);
    CHECK(c->by_state[SEQ_SWAPPED] == s->swapped_count);
    CHECK(c->by_state[SEQ_FORKING] == s->forking_count);
    CHECK(c->by_state[SEQ_WAITING] == s->oldest.count);
    CHECK(s->line.count == s->oldest.count + s->swapped_count);
    CHECK(s->live_count == s->line.count + s->running_count + s->forking_count);
    CHECK(s->live_count <= s->live_max);
    CHECK(c->prompts == s->prompt_count);
    CHECK(s->prompt_count + s->decode_count == s->running_count);
    CHECK(c->reserved == s->reserved_blocks);
    CHECK(c->line_tokens == s->line_tokens);
    CHECK(s->running_count + s->held_seats <= s->knobs.max_seqs);
    CHECK(s->swapped_count <= s->knobs.max_seqs);
    CHECK(s->reserved_blocks <= s->knobs.kv_blocks);
    CHECK(s->is_under_way || s->ending_first == SEQ_NONE);
}

void sched_verify(const struct sched *s) {
    heap_verify(&s->line);
    heap_verify(&s->oldest);
    heap_verify(&s->timers);
    struct census c = take_census(s);
    verify_lists(s, &c);
    verify_counts(s, &c);
    kv_cache_verify(s->kv);
    if (s->policy->verify) s->policy->verify(s->state);
}
