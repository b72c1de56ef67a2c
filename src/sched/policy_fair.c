/* sched/policy_fair.c - tenants share by what they use, counted in tokens.
 *
 * Each tenant has a counter of service: tokens computed for it, an output token weighing
 * `fair_output_weight` input tokens. The line is ordered by a start tag. A request is tagged when
 * it arrives with its tenant's last tag plus the service that the request before it is expected
 * to take, and never before the tag of whoever was admitted last: so a tenant who was away has
 * saved up nothing, and a tenant who sends ten requests at once waits ten times. What a request
 * really took is set against what was expected; the difference moves the tags of the tenant's
 * waiting requests (their keys grow; the scheduler asks again at the front of the line).
 *
 * Notes: a = start tag, without the tenant's correction; b = expected service.
 */
#include "base/check.h"
#include "sched/policy.h"

enum { TENANTS = 4096 }; /* counters; tenants beyond share one by their number mod TENANTS */
static const double LEARN_RATE = 0.1;

struct tenant {
    double tag;        /* finish tag of its last request, without the correction */
    double correction; /* service taken beyond what was expected */
    double mean_output;
};

struct fair_state {
    struct tenant tenants[TENANTS];
    double floor; /* tag of whoever was admitted last */
    double mean_output;
};

static struct tenant *tenant_of(struct fair_state *s, const struct sched_seq *seq) {
    return &s->tenants[seq->tenant % TENANTS];
}

static double expected_output(const struct fair_state *s, const struct tenant *t,
                              const struct sched_seq *seq) {
    double max = seq->total_max - seq->prompt_tokens;
    double mean = t->mean_output > 0 ? t->mean_output : s->mean_output;
    return mean > 0 && mean < max ? mean : max;
}

static void init(void *state, const struct knobs *knobs) {
    (void)knobs;
    struct fair_state *s = state;
    s->floor = 0;
}

static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    const struct fair_state *s = state;
    double correction = s->tenants[seq->tenant % TENANTS].correction;
    return seq->policy.a + (int64_t)(correction > 0 ? correction : 0);
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    struct fair_state *s = state;
    struct tenant *t = tenant_of(s, seq);
    double service =
        seq->prompt_tokens + view->knobs->fair_output_weight * expected_output(s, t, seq);
    double earliest = s->floor - (t->correction > 0 ? t->correction : 0);
    if (t->tag < earliest) {
        t->tag = s->floor;
        t->correction = 0;
    }
    seq->policy.a = (int64_t)t->tag;
    seq->policy.b = (int64_t)service;
    t->tag += service;
}

static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    struct fair_state *s = state;
    double tag = (double)key(state, seq, view);
    if (tag > s->floor) s->floor = tag;
}

/* A request that took less than expected lowers the correction, at most to a deficit of what
 * it gave back: keys never shrink below their tags. */
static void on_finish(void *state, struct sched_seq *seq, const struct sched_view *view) {
    struct fair_state *s = state;
    struct tenant *t = tenant_of(s, seq);
    double output = seq_generated(seq);
    double service = seq->prompt_tokens + view->knobs->fair_output_weight * output;
    t->correction += service - (double)seq->policy.b;
    if (t->correction < 0) {
        t->tag += t->correction;
        t->correction = 0;
    }
    t->mean_output += LEARN_RATE * (output - t->mean_output);
    s->mean_output += LEARN_RATE * (output - s->mean_output);
}

static uint32_t pick_victim(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view) {
    CHECK(count > 0);
    uint32_t worst = 0;
    for (uint32_t i = 1; i < count; i++)
        if (key(state, running[i], view) > key(state, running[worst], view)) worst = i;
    return worst;
}

const struct sched_policy sched_policy_fair = {
    .name = "fair",
    .summary = "tenants share by tokens served: start-time fair queueing with correction",
    .state_bytes = sizeof(struct fair_state),
    .init = init,
    .key = key,
    .pick_victim = pick_victim,
    .on_arrive = on_arrive,
    .on_admit = on_admit,
    .on_finish = on_finish,
};
