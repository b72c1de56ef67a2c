/* sched/sched_notes.c - what a plan notes for the step record: seats, admissions, who waits and
 * why; see sched/plan.h.
 *
 * Entry points: sched_seat_take, sched_seat_give, sched_note_admitted, sched_note_preempted,
 * sched_stop_admitting, sched_note_queue.
 *
 * The notes change no decision. Who waits is found out again only if the queue or the reason has
 * changed since the plan before, so a long queue that does not move costs a copy of 32 entries.
 */
#include "sched/sched_int.h"

#include <string.h>

#include "base/mem.h"

enum { SEATS_A_WORD = 64 };

static uint32_t word_count(const struct sched *s) {
    return (s->knobs.max_seqs + SEATS_A_WORD - 1) / SEATS_A_WORD;
}

enum status sched_notes_init(struct sched *s) {
    uint32_t seats = s->knobs.max_seqs;
    s->notes.seats = mem_zalloc_array(word_count(s), sizeof(s->notes.seats[0]));
    s->notes.started =
        mem_zalloc_array((size_t)PLAN_ADMITTED_PARTS * seats, sizeof(s->notes.started[0]));
    if (!s->notes.seats || !s->notes.started) return ST_NOMEM;
    for (uint32_t n = 0; n < seats; n++)
        s->notes.seats[n / SEATS_A_WORD] |= (uint64_t)1 << n % SEATS_A_WORD;
    return ST_OK;
}

void sched_notes_deinit(struct sched *s) {
    mem_free(s->notes.seats);
    mem_free(s->notes.started);
}

/* ---- seats ---- */

void sched_seat_take(struct sched *s, seq_idx i) {
    uint32_t w = 0;
    while (s->notes.seats[w] == 0) {
        w++;
        CHECK(w < word_count(s)); /* fewer than max_seqs run */
    }
    uint32_t bit = (uint32_t)__builtin_ctzll(s->notes.seats[w]);
    s->notes.seats[w] &= s->notes.seats[w] - 1;
    seq_at(s, i)->seat = w * SEATS_A_WORD + bit;
}

void sched_seat_give(struct sched *s, seq_idx i) {
    uint32_t seat = seq_at(s, i)->seat;
    CHECK(seat < s->knobs.max_seqs);
    uint64_t bit = (uint64_t)1 << seat % SEATS_A_WORD;
    CHECK(!(s->notes.seats[seat / SEATS_A_WORD] & bit));
    s->notes.seats[seat / SEATS_A_WORD] |= bit;
}

/* ---- admitted and preempted ---- */

/* At most max_seqs start in a plan, and as many in each apply between two plans. */
void sched_note_admitted(struct sched *s, seq_idx i, uint32_t cached, int64_t now_us) {
    const struct slot *slot = &s->slots[i];
    CHECK(s->notes.started_count < PLAN_ADMITTED_PARTS * s->knobs.max_seqs);
    s->notes.started[s->notes.started_count++] = (struct plan_admitted){
        .request = slot->seq.request,
        .waited_us = now_us - slot->waits_since_us,
        .choice = slot->seq.choice,
        .tenant = slot->seq.tenant,
        .seat = slot->seq.seat,
        .cached = cached,
    };
}

void sched_note_preempted(struct sched *s, struct plan *plan, seq_idx i, seq_idx for_seq,
                          enum preempt_why why) {
    struct sched_seq *seq = seq_at(s, i);
    if (plan->preempted_count < plan->preempted_cap)
        plan->preempted[plan->preempted_count++] = (struct plan_preempted){
            .request = seq->request,
            .choice = seq->choice,
            .for_request = for_seq == SEQ_NONE ? 0 : seq_at(s, for_seq)->request,
            .for_choice = for_seq == SEQ_NONE ? 0 : seq_at(s, for_seq)->choice,
            .seat = seq->seat,
            .why = why,
            .swapped = seq->state == SEQ_SWAPPED,
        };
    seq->seat = SEAT_NONE;
}

/* ---- waiting ---- */

void sched_stop_admitting(struct planning *p, enum wait_why why) {
    if (!p->is_admitting) return;
    p->is_admitting = false;
    p->stop = why;
}

/* The step was full before the queue was stopped by anything else. */
static void stop_at_the_end(struct planning *p) {
    const struct sched *s = p->s;
    bool is_full = s->running_count >= s->knobs.max_seqs;
    bool is_held = s->running_count + s->held_batch_slots >= s->knobs.max_seqs;
    sched_stop_admitting(p, is_full ? WAIT_SEAT : is_held ? WAIT_POLICY : WAIT_BUDGET);
}

static void add_wait(struct queue_front *f, const struct sched_seq *seq, enum wait_why why) {
    if (f->count == PLAN_WAITS_MAX) return;
    f->waits[f->count++] = (struct plan_wait){
        .request = seq->request, .choice = seq->choice, .tenant = seq->tenant, .why = why};
}

static void add_children(const struct sched *s, seq_idx parent, struct queue_front *f) {
    for (seq_idx i = s->slots[parent].child_first; i != SEQ_NONE; i = seq_at(s, i)->next)
        add_wait(f, seq_at(s, i), WAIT_PREFIX);
}

static enum wait_why why_it_waits(const struct sched *s, const struct slot *slot,
                                  enum wait_why stop) {
    if (slot->seq.state == SEQ_SWAPPED) return WAIT_SWAPPED;
    if (slot->seen_promised) return WAIT_PREFIX;
    return sched_share_is_skipped(s, idx_of(s, &slot->seq)) ? WAIT_POLICY : stop;
}

/* f->stop is the reason of those that have none of their own. */
static void list_front(const struct sched *s, struct queue_front *f) {
    _Static_assert((int)PLAN_WAITS_MAX <= (int)HEAP_FIRST_MAX, "one call lists them");
    seq_idx first[PLAN_WAITS_MAX];
    uint32_t count = heap_first(&s->queue, first, PLAN_WAITS_MAX);
    f->count = 0;
    for (uint32_t n = 0; n < count; n++) {
        const struct slot *slot = &s->slots[first[n]];
        add_wait(f, &slot->seq, why_it_waits(s, slot, f->stop));
    }
    if (s->forking_count == 0) return;
    for (uint32_t n = 0; n < s->running_count; n++) add_children(s, s->running[n], f);
    for (uint32_t n = 0; n < count; n++) add_children(s, first[n], f);
}

static bool is_front_known(const struct sched *s, enum wait_why stop) {
    const struct queue_front *f = &s->notes.front;
    return f->is_known && f->stop == stop && f->moves == s->queue.moves &&
           f->queue_count == s->queue.count;
}

static void note_waits(struct planning *p) {
    struct sched *s = p->s;
    struct queue_front *f = &s->notes.front;
    stop_at_the_end(p);
    if (!is_front_known(s, p->stop)) {
        f->moves = s->queue.moves;
        f->queue_count = s->queue.count;
        f->stop = p->stop;
        f->is_known = true;
        list_front(s, f);
    }
    if (s->shares.live_count > 0) f->is_known = false; /* what a share allows changes with others */
    p->plan->wait_count = f->count;
    memcpy(p->plan->waits, f->waits, f->count * sizeof(f->waits[0]));
}

void sched_note_queue(struct planning *p) {
    struct sched *s = p->s;
    struct plan *plan = p->plan;
    if (s->queue.count + s->forking_count > 0) note_waits(p);
    if (s->notes.started_count == 0) return;
    CHECK(s->notes.started_count <= plan->admitted_cap);
    plan->admitted_count = s->notes.started_count;
    memcpy(plan->admitted, s->notes.started, s->notes.started_count * sizeof(s->notes.started[0]));
    s->notes.started_count = 0;
}

/* ---- invariants ---- */

/* Of the running sequences, batch lines last. */
static uint32_t nth_seat(const struct sched *s, uint32_t n) {
    bool is_own = n < s->running_count;
    return seq_at(s, is_own ? s->running[n] : s->lines.running[n - s->running_count])->seat;
}

/* Every running sequence has a seat of its own, and the others are free. */
static void verify_seats(const struct sched *s) {
    uint32_t free_count = 0;
    for (uint32_t w = 0; w < word_count(s); w++)
        free_count += (uint32_t)__builtin_popcountll(s->notes.seats[w]);
    uint32_t running = s->running_count + s->lines.running_count;
    CHECK(free_count + running == s->knobs.max_seqs);
    for (uint32_t n = 0; n < running; n++) {
        uint32_t seat = nth_seat(s, n);
        CHECK(seat < s->knobs.max_seqs);
        CHECK(!(s->notes.seats[seat / SEATS_A_WORD] >> seat % SEATS_A_WORD & 1));
        for (uint32_t k = 0; k < n; k++) CHECK(nth_seat(s, k) != seat);
    }
}

/* A list that counts as known is what would be found now. Running sequences may have changed their
 * order, and so the choices that wait for them. */
static void verify_front(const struct sched *s) {
    if (s->forking_count > 0 || !is_front_known(s, s->notes.front.stop)) return;
    struct queue_front now = {.stop = s->notes.front.stop};
    list_front(s, &now);
    CHECK(now.count == s->notes.front.count);
    for (uint32_t n = 0; n < now.count; n++) {
        CHECK(now.waits[n].request == s->notes.front.waits[n].request);
        CHECK(now.waits[n].choice == s->notes.front.waits[n].choice);
        CHECK(now.waits[n].why == s->notes.front.waits[n].why);
    }
}

void sched_notes_verify(const struct sched *s) {
    verify_seats(s);
    verify_front(s);
}
