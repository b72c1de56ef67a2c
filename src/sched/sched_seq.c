/* sched/sched_seq.c - how a sequence changes its state; see sched/sched_int.h.
 *
 * Entry points, in the order in which a sequence passes them: sched_enqueue, sched_queue_push,
 * sched_queue_remove, sched_running_add, sched_running_remove, sched_end; sched_rekey and
 * sched_fire_timers at any time.
 */
#include "sched/sched_int.h"

static const double OUTPUT_LEARN_RATE = 0.05;
enum { TIMERS_MAX = 4 }; /* that fire in one plan */

uint32_t sched_blocks_for(const struct sched *s, uint32_t tokens) {
    return tokens / s->knobs.block_size + (tokens % s->knobs.block_size != 0);
}

bool sched_goes_before(const struct sched *s, seq_idx a, seq_idx b) {
    int64_t key_a = seq_at(s, a)->key, key_b = seq_at(s, b)->key;
    return key_a != key_b ? key_a < key_b : s->slots[a].serial < s->slots[b].serial;
}

const struct sched_view *sched_update_view(struct sched *s, int64_t now_us) {
    seq_idx oldest = heap_top(&s->by_arrival);
    s->view.now_us = now_us;
    s->view.running_count = s->running_count;
    s->view.waiting_count = s->by_arrival.count;
    s->view.swapped_count = s->swapped_count;
    s->view.decode_count = s->decode_count;
    s->view.prefill_count = s->prefill_count;
    s->view.oldest_waiting_us = oldest == SEQ_NONE ? INT64_MAX : seq_at(s, oldest)->arrived_us;
    s->view.free_blocks = kv_cache_available(s->kv);
    s->view.steps = s->steps - s->lines.steps;
    if (s->is_assumed) s->view.steps += !s->under_way[0].is_lines_only;
    return &s->view;
}

/* ---- keys and timers ---- */

/* Of two sequences with equal keys the one that is swapped out goes first: it holds spill slots. */
uint64_t sched_queue_tie(const struct sched *s, seq_idx i) {
    uint64_t is_waiting = seq_at(s, i)->state == SEQ_WAITING;
    return is_waiting << 63 | s->slots[i].serial;
}

/* The earlier of its expiry and the policy's timer, which must be in the future. */
static int64_t timer_of(struct sched *s, const struct sched_seq *seq) {
    int64_t t = seq->urgency.expires_us > 0 ? seq->urgency.expires_us : INT64_MAX;
    if (!s->policy->next_timer || seq->is_batch) return t;
    int64_t wanted = s->policy->next_timer(s->state, seq, &s->view);
    if (wanted <= s->view.now_us) wanted = s->view.now_us + 1;
    return wanted < t ? wanted : t;
}

static struct seq_heap *timers_of(struct sched *s, seq_idx i) {
    return is_line(s, i) ? &s->lines.timers : &s->timers;
}

static void drop_timer(struct sched *s, seq_idx i) {
    if (s->slots[i].has_timer) heap_remove(timers_of(s, i), i);
    s->slots[i].has_timer = false;
}

void sched_set_timer(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    int64_t t = timer_of(s, &slot->seq);
    if (t == INT64_MAX) {
        drop_timer(s, i);
    } else if (!slot->has_timer) {
        heap_push(timers_of(s, i), i, t, slot->serial);
        slot->has_timer = true;
    } else if (heap_key(timers_of(s, i), i) != t) {
        heap_change(timers_of(s, i), i, t, slot->serial);
    }
}

void sched_rekey(struct sched *s, seq_idx i) {
    struct sched_seq *seq = seq_at(s, i);
    if (is_line(s, i)) return; /* lines are in the order of submission */
    sched_share_reorder(s, i);
    int64_t key = s->policy->key(s->state, seq, &s->view);
    if (key != seq->key) {
        seq->key = key;
        if (seq->state != SEQ_RUNNING && heap_has(&s->queue, i))
            heap_change(&s->queue, i, key, sched_queue_tie(s, i));
    }
    if (s->policy->next_timer) sched_set_timer(s, i);
}

static void fire_line_timers(struct sched *s, int64_t now_us) {
    for (uint32_t n = 0; n < TIMERS_MAX; n++) {
        seq_idx i = heap_top(&s->lines.timers);
        if (i == SEQ_NONE || heap_key(&s->lines.timers, i) > now_us) return;
        sched_end(s, i, FINISH_EXPIRED, now_us);
    }
}

/* A new timer is in the future, so none fires twice. If more than TIMERS_MAX are due they are
 * spread over several plans; sched_next_timer_us is in the past meanwhile. */
void sched_fire_timers(struct sched *s, int64_t now_us) {
    if (s->lines.timers.count > 0) fire_line_timers(s, now_us);
    for (uint32_t n = 0; n < TIMERS_MAX; n++) {
        seq_idx i = heap_top(&s->timers);
        if (i == SEQ_NONE || heap_key(&s->timers, i) > now_us) return;
        struct sched_seq *seq = seq_at(s, i);
        const struct sched_view *view = sched_update_view(s, now_us);
        bool is_over = seq->urgency.expires_us > 0 && seq->urgency.expires_us <= now_us;
        if (!is_over && s->policy->sheds) is_over = s->policy->sheds(s->state, seq, view);
        if (is_over) {
            sched_end(s, i, FINISH_EXPIRED, now_us);
            continue;
        }
        if (s->policy->on_timer) s->policy->on_timer(s->state, seq, view);
        sched_rekey(s, i);
        CHECK(!heap_has(&s->timers, i) || heap_key(&s->timers, i) > now_us);
    }
}

/* ---- the queue ---- */

void sched_queue_push(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    CHECK(slot->seq.state == SEQ_WAITING || slot->seq.state == SEQ_SWAPPED);
    slot->seen_need = 0;
    slot->seen_promised = false;
    if (is_line(s, i)) {
        heap_push(&s->lines.queue, i, 0, slot->serial);
        if (slot->seq.state == SEQ_SWAPPED) sched_line_swapped(s, i);
        return;
    }
    heap_push(&s->queue, i, slot->seq.key, sched_queue_tie(s, i));
    if (slot->seq.state == SEQ_WAITING)
        heap_push(&s->by_arrival, i, slot->seq.arrived_us, slot->serial);
    else
        s->swapped_count++;
    s->queue_tokens += seq_left(&slot->seq);
}

/* A policy may set a timer only for the sequence that has waited longest. When that one leaves the
 * queue, the timer of its successor is set. */
static void oldest_remove(struct sched *s, seq_idx i) {
    bool was_first = heap_top(&s->by_arrival) == i;
    heap_remove(&s->by_arrival, i);
    seq_idx first = heap_top(&s->by_arrival);
    if (!was_first || first == SEQ_NONE || !s->policy->next_timer) return;
    s->view.oldest_waiting_us = seq_at(s, first)->arrived_us;
    sched_set_timer(s, first);
}

void sched_queue_remove(struct sched *s, seq_idx i) {
    const struct sched_seq *seq = seq_at(s, i);
    if (is_line(s, i)) {
        heap_remove(&s->lines.queue, i);
        if (seq->state == SEQ_SWAPPED) sched_line_unswapped(s, i);
        return;
    }
    heap_remove(&s->queue, i);
    if (seq->state == SEQ_WAITING)
        oldest_remove(s, i);
    else
        s->swapped_count--;
    s->queue_tokens -= seq_left(seq);
}

void sched_enqueue(struct sched *s, seq_idx i) {
    struct sched_seq *seq = seq_at(s, i);
    seq->state = SEQ_WAITING;
    seq->computed = 0;
    sched_queue_push(s, i);
}

/* ---- running ---- */

static uint32_t new_reservation(const struct sched *s, seq_idx i) {
    return s->policy->reserves_all ? sched_blocks_for(s, seq_at(s, i)->total_max) : 0;
}

void sched_update_phase(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    bool is_prefilling = seq_is_prefilling(&slot->seq);
    if (is_prefilling == slot->is_prefilling) return;
    slot->is_prefilling = is_prefilling;
    if (is_line(s, i)) return; /* counts are of interactive sequences */
    s->prefill_count += is_prefilling ? 1 : -1u;
    s->decode_count += is_prefilling ? -1u : 1;
}

static seq_idx find_oldest_running(const struct sched *s) {
    seq_idx oldest_running = s->running_count > 0 ? s->running[0] : SEQ_NONE;
    for (uint32_t n = 1; n < s->running_count; n++)
        if (s->slots[s->running[n]].serial < s->slots[oldest_running].serial)
            oldest_running = s->running[n];
    return oldest_running;
}

void sched_running_add(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    struct sched_seq *seq = &slot->seq;
    CHECK(s->running_count + s->lines.running_count < s->knobs.max_seqs);
    seq->state = SEQ_RUNNING;
    seq->run_steps = 0;
    sched_seat_take(s, i);
    slot->is_prefilling = seq_is_prefilling(seq);
    if (is_line(s, i)) {
        slot->reserved = 0;
        sched_line_start(s, i);
        return;
    }
    seq->run_idx = s->running_count;
    s->running[s->running_count++] = i;
    if (s->oldest_running == SEQ_NONE || slot->serial < s->slots[s->oldest_running].serial)
        s->oldest_running = i;
    sched_share_start(s, i);
    slot->reserved = new_reservation(s, i);
    s->reserved_blocks += slot->reserved;
    if (slot->is_prefilling)
        s->prefill_count++;
    else
        s->decode_count++;
}

/* The last element moves into the gap. */
void sched_running_remove(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    struct sched_seq *seq = &slot->seq;
    CHECK(seq->state == SEQ_RUNNING);
    sched_seat_give(s, i);
    if (is_line(s, i)) {
        sched_line_stop(s, i);
        return;
    }
    CHECK(s->running[seq->run_idx] == i);
    seq_idx last = s->running[--s->running_count];
    s->running[seq->run_idx] = last;
    seq_at(s, last)->run_idx = seq->run_idx;
    if (s->oldest_running == i) s->oldest_running = find_oldest_running(s);
    sched_share_stop(s, i);
    s->reserved_blocks -= slot->reserved;
    if (slot->is_prefilling)
        s->prefill_count--;
    else
        s->decode_count--;
    if (s->running_count == 0) s->held_batch_slots = 0;
}

/* ---- choices that wait for their parent ---- */

uint32_t *sched_forking_count(struct sched *s, seq_idx i) {
    return is_line(s, i) ? &s->lines.forking_count : &s->forking_count;
}

void sched_child_unlink(struct sched *s, seq_idx child) {
    struct sched_seq *seq = seq_at(s, child);
    CHECK(seq->state == SEQ_FORKING);
    seq_idx *link = &s->slots[seq->fork_parent].child_first;
    while (*link != child) link = &seq_at(s, *link)->next;
    *link = seq->next;
    seq->next = seq->fork_parent = SEQ_NONE;
    *sched_forking_count(s, child) -= 1;
    s->notes.front.is_known = false;
}

void sched_children_to_queue(struct sched *s, seq_idx parent, int64_t now_us) {
    for (seq_idx i; (i = s->slots[parent].child_first) != SEQ_NONE;) {
        sched_child_unlink(s, i);
        sched_enqueue(s, i);
        sched_update_view(s, now_us);
        sched_rekey(s, i);
    }
}

/* ---- events and ending ---- */

void sched_event_push(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    if (slot->has_event) return;
    slot->has_event = true;
    slot->event_next = SEQ_NONE;
    if (s->event_first == SEQ_NONE)
        s->event_first = i;
    else
        s->slots[s->event_last].event_next = i;
    s->event_last = i;
}

static void stop_running(struct sched *s, seq_idx i, int64_t now_us) {
    const struct sched_policy *policy = s->policy;
    sched_running_remove(s, i);
    if (is_line(s, i)) return; /* its seat is free for any sequence */
    const struct sched_view *view = sched_update_view(s, now_us);
    if (s->running_count > 0 && policy->frees_batch_slot &&
        !policy->frees_batch_slot(s->state, view))
        s->held_batch_slots++;
}

static void end_line(struct sched *s, seq_idx i, int64_t now_us) {
    s->lines.live_count--;
    sched_children_to_queue(s, i, now_us);
}

static void end_interactive(struct sched *s, seq_idx i, int64_t now_us) {
    const struct slot *slot = &s->slots[i];
    s->live_count--;
    sched_share_end(s, i);
    if (slot->finish == FINISH_STOP || slot->finish == FINISH_LENGTH) {
        s->mean_output += OUTPUT_LEARN_RATE * (seq_generated(&slot->seq) - s->mean_output);
        sched_lines_last_token(s, i);
    }
    sched_children_to_queue(s, i, now_us);
    if (s->policy->on_finish)
        s->policy->on_finish(s->state, seq_at(s, i), sched_update_view(s, now_us));
}

void sched_end(struct sched *s, seq_idx i, enum finish_reason why, int64_t now_us) {
    struct slot *slot = &s->slots[i];
    CHECK(why != FINISH_NONE);
    bool is_running = slot->seq.state == SEQ_RUNNING;
    bool has_kv = is_running || slot->seq.state == SEQ_SWAPPED;
    uint64_t until = sched_used_until(s, i);
    sched_unassume(s, i);
    slot_unplan(slot); /* if a plan under way has a row of it, the row is dropped */
    if (has_kv && until == 0) kv_seq_close(s->kv, slot->seq.kv);
    s->epoch += is_running;
    switch (slot->seq.state) {
    case SEQ_WAITING:
    case SEQ_SWAPPED:
        sched_queue_remove(s, i);
        break;
    case SEQ_RUNNING:
        stop_running(s, i, now_us);
        break;
    case SEQ_FORKING:
        sched_child_unlink(s, i);
        break;
    default:
        CHECK(false); /* it has ended before */
    }
    slot->seq.state = SEQ_ENDED;
    slot->finish = why;
    if (until > 0) sched_linger(s, i, until, has_kv, is_running);
    drop_timer(s, i);
    s->finished++;
    if (is_line(s, i))
        end_line(s, i, now_us);
    else
        end_interactive(s, i, now_us);
    sched_event_push(s, i);
}
