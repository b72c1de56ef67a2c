/* sched/policy_batch.c - see sched/policy_batch.h. */
#include "sched/policy_batch.h"

#include "base/check.h"

bool batch_may_admit(const void *state, const struct sched_view *view) {
    const struct batch_state *b = state;
    if (view->running_count > 0)
        return b->admitted < b->size && view->steps <= b->admitted_step + 1;
    if (view->waiting_count >= b->size_max) return true;
    return view->waiting_count > 0 && view->now_us >= view->oldest_waiting_us + b->wait_us;
}

bool batch_frees_batch_slot(const void *state, const struct sched_view *view) {
    (void)state;
    return view->running_count == 0;
}

void batch_on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)seq;
    struct batch_state *b = state;
    if (view->running_count == 1) { /* the first of a new batch: running_count includes it */
        uint32_t there = view->waiting_count + 1;
        b->size = there < b->size_max ? there : b->size_max;
        b->admitted = 0;
    }
    b->admitted++;
    b->admitted_step = view->steps;
}

/* When a batch that is not full starts: only the sequence that has waited longest has a timer. The
 * scheduler asks again when another sequence becomes the oldest. */
int64_t batch_next_timer(const void *state, const struct sched_seq *seq,
                         const struct sched_view *view) {
    const struct batch_state *b = state;
    if (seq->state != SEQ_WAITING || seq->arrived_us > view->oldest_waiting_us) return INT64_MAX;
    int64_t due_us = seq->arrived_us + b->wait_us;
    return due_us > view->now_us ? due_us
                                 : INT64_MAX; /* after that time the batch may start anyway */
}

void batch_verify(const void *state) {
    const struct batch_state *b = state;
    CHECK(b->size_max > 0);
    CHECK(b->size <= b->size_max);
}
