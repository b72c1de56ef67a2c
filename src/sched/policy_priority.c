/* sched/policy_priority.c - higher priority first, with displacement.
 *
 * A waiting request of higher priority displaces the running request of lowest priority, the
 * youngest of equals. Within a priority it is first come, first served.
 */
#include "sched/policy_pick.h"

/* A key is priority, then arrival: 2^44 us is half a year, which leaves 19 bits of priority. */
enum { ARRIVAL_BITS = 44, PRIORITY_MAX = (1 << 18) - 1 };

static int64_t clamp_priority(int32_t p) {
    return p > PRIORITY_MAX ? PRIORITY_MAX : p < -PRIORITY_MAX ? -PRIORITY_MAX : p;
}

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    int64_t arrival = seq->order & (((int64_t)1 << ARRIVAL_BITS) - 1);
    return -clamp_priority(seq->urgency.priority) * ((int64_t)1 << ARRIVAL_BITS) + arrival;
}

static bool displaces_seq(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view) {
    (void)state;
    (void)view;
    return waiting->urgency.priority > running->urgency.priority;
}

const struct sched_policy sched_policy_priority = {
    .name = "priority",
    .summary = "higher priority first; a waiting one displaces a running lower one",
    .displaces = true,
    .key = key,
    .displaces_seq = displaces_seq,
    .pick_victim = pick_last_in_order,
};
