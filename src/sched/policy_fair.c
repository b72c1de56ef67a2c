/* sched/policy_fair.c - tenants get equal shares of service, counted in tokens.
 *
 * Start-time fair queueing over virtual token counters (VTC). Service is prompt tokens plus
 * `fair_output_weight` times answer tokens. The start tag of a request is the end tag of its
 * tenant's previous request, so the tenth of ten requests sent at once waits for the other nine. It
 * is never less than the tag of the request that was admitted last, so a tenant does not save up
 * service while it sends nothing.
 *
 * The length of an answer is not known at arrival. A tag counts the prompt and half of the mean
 * answer of the tenant. What an answer takes beyond that is charged to its tenant as it is
 * generated, and moves all its waiting requests back: their keys grow. They never shrink (what a
 * request took less is offset against later charges), so the scheduler needs to ask for the key
 * again only when a sequence is at the front of the queue.
 */
#include "sched/policy_pick.h"

enum { TENANTS = 4096 }; /* counters; tenants beyond share one by their number mod TENANTS */
static const double LEARN_RATE = 0.1;
static const double EXPECTED_SHARE = 0.5; /* of the mean answer: low, because keys only grow */

struct tenant {
    double end;     /* end tag of its last request, without `charged` */
    double balance; /* service beyond what the tags have counted */
    double charged; /* the largest value of `balance` so far */
    double mean_output;
};

struct fair_state {
    struct tenant tenants[TENANTS];
    double floor; /* tag of the request that was admitted last */
};

static struct tenant *tenant_of(struct fair_state *s, const struct sched_seq *seq) {
    return &s->tenants[seq->tenant % TENANTS];
}

static int64_t tag_of(const struct fair_state *s, const struct sched_seq *seq) {
    return seq->policy.fair.start_tag + (int64_t)s->tenants[seq->tenant % TENANTS].charged;
}

/* While the batch is full no sequence can be admitted, so keys stay as they are: otherwise the
 * queue would be reordered in every step without effect. */
static int64_t key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    bool is_full = view->running_count >= view->knobs->max_seqs;
    bool is_new = seq->key == INT64_MAX;
    return is_full && !is_new && seq->state == SEQ_WAITING ? seq->key : tag_of(state, seq);
}

static void on_arrive(void *state, struct sched_seq *seq, const struct sched_view *view) {
    struct fair_state *s = state;
    struct tenant *t = tenant_of(s, seq);
    double output = EXPECTED_SHARE * t->mean_output, max = seq->total_max - seq->prompt_tokens;
    if (output > max) output = max;
    if (t->end < s->floor - t->charged) t->end = s->floor - t->charged;
    seq->policy.fair.output = seq_generated(seq);
    seq->policy.fair.start_tag = (int64_t)t->end;
    seq->policy.fair.service =
        (int64_t)(seq->prompt_tokens + view->knobs->fair_output_weight * output);
    t->end += (double)seq->policy.fair.service;
}

static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)view;
    struct fair_state *s = state;
    double tag = (double)tag_of(s, seq);
    if (tag > s->floor) s->floor = tag;
}

static void charge(struct tenant *t, double service) {
    t->balance += service;
    if (t->balance > t->charged) t->charged = t->balance;
}

/* Service so far beyond what its tag counts; negative if less. */
static double beyond_tag(const struct sched_seq *seq, uint32_t output,
                         const struct sched_view *view) {
    double taken = seq->prompt_tokens + view->knobs->fair_output_weight * output;
    return taken - (double)seq->policy.fair.service;
}

/* Charge the answer tokens of the step that go beyond the tag: one, and those that were drafted and
 * accepted. Refused drafts and steps of the prompt charge nothing. */
static bool on_step(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view) {
    (void)tokens;
    uint32_t output = seq_generated(seq);
    if (output <= seq->policy.fair.output || seq_left(seq) != 1) return false;
    double now = beyond_tag(seq, output, view);
    double before = beyond_tag(seq, seq->policy.fair.output, view);
    seq->policy.fair.output = output;
    if (now > 0) charge(tenant_of(state, seq), now - (before > 0 ? before : 0));
    return false;
}

static void on_finish(void *state, struct sched_seq *seq, const struct sched_view *view) {
    struct tenant *t = tenant_of(state, seq);
    uint32_t output = seq_generated(seq);
    double beyond = beyond_tag(seq, output, view);
    if (beyond < 0) charge(t, beyond);
    t->mean_output += LEARN_RATE * (output - t->mean_output);
}

const struct sched_policy sched_policy_fair = {
    .name = "fair",
    .summary = "equal shares of tokens for all tenants: start-time fair queueing over counters",
    .state_bytes = sizeof(struct fair_state),
    .key = key,
    .pick_victim = pick_last_in_order,
    .on_arrive = on_arrive,
    .on_admit = on_admit,
    .on_step = on_step,
    .on_finish = on_finish,
};
