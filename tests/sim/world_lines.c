/* sim/world_lines.c - what a plan may and may not say about batch lines; see sim/world_int.h.
 *
 * Interactive sequences are all others. The world judges by the plan and by the states of the
 * sequences after it, not by what the scheduler keeps about lines.
 */
#include "sim/world_int.h"

/* A cost of rows is added up in another order here. */
static const double ROUNDING = 1 + 1e-6;

/* The figures of a plan's rows, of both kinds. */
struct kinds {
    uint32_t rows[2], tokens[2]; /* [1]: of lines */
    uint64_t attended;           /* of interactive rows, without drafts */
    uint64_t all_attended;       /* of all */
    bool admits_line;
    bool has_prompt; /* of a sequence that is not a line */
};

static struct kinds kinds_of(const struct world *w, const struct plan *plan) {
    struct kinds k = {0};
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        const struct sched_seq *seq = sched_seq_at(w->sched, row->seq);
        k.rows[seq->is_batch]++;
        const uint32_t own = row->count - row->draft_count;
        k.tokens[seq->is_batch] += own;
        k.all_attended += cost_attended(row->first, own);
        if (!seq->is_batch && own > 1) k.has_prompt = true;
        if (!seq->is_batch) k.attended += cost_attended(row->first, own);
        if (seq->is_batch && seq->run_steps == 0 && seq->admitted_us == w->began_us)
            k.admits_line = true;
    }
    return k;
}

static const struct sched_seq *live_seq(const struct world *w, const struct client *c, uint32_t k) {
    const struct choice *choice = &c->request->choices[k];
    return choice->is_live ? sched_seq_at(w->sched, choice->seq) : NULL;
}

static bool is_ahead_plan(const struct world *w) {
    return sched_stats(w->sched).ahead_plans > w->ahead_plans;
}

/* When the step begins: after the plan before it, if that is under way. */
static double begin_us(const struct world *w) {
    const struct world_step_size *last = &w->last_plan;
    double left_us = sched_step_us(w->sched, last->rows, last->tokens, last->attended);
    return (double)w->began_us + (is_ahead_plan(w) ? left_us : 0);
}

/* How long the step may take so that this sequence keeps to the pace. */
static double limit_of(const struct world *w, const struct sched_seq *seq, double pace_us) {
    if (seq->total <= seq->prompt_tokens) return pace_us; /* no token yet */
    double tokens = seq->total - seq->prompt_tokens - (seq->planned > 0 ? 0 : 1);
    double since_us = seq->first_token_us > 0 ? begin_us(w) - (double)seq->first_token_us : 0;
    return tokens * pace_us - since_us;
}

/* The share by which requests at the pace may become slower. */
static double tail_share(const struct world *w) {
    return w->knobs->batch_slowdown < 0.1 ? w->knobs->batch_slowdown : 0.1;
}

/* How long the step may take so that every sequence that is not a line keeps to the pace. */
static double pace_limit_us(const struct world *w) {
    double pace_us = sched_pace_us(w->sched) * (1 + tail_share(w)), least = pace_us;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n && !c->is_batch; k++) {
            const struct sched_seq *seq = live_seq(w, c, k);
            if (!seq || seq->state != SEQ_RUNNING) continue;
            const double limit = limit_of(w, seq, pace_us);
            if (limit < least) least = limit;
        }
    }
    return least;
}

/* Without credit: up to the pace, but no more than a share of the step's time. */
static double free_us(const struct world *w, double others_us) {
    const double slack_us = pace_limit_us(w) - others_us;
    const double share_us = w->knobs->batch_slowdown * others_us;
    return slack_us < 0 ? 0 : slack_us < share_us ? slack_us : share_us;
}

/* Rows of lines are within the time that a step has; what they add beyond what is free is within
 * the credit that steps of others have earned; none are beside a prompt of others. */
static void check_time(struct world *w, const struct plan *plan, const struct kinds *k) {
    const double us = sched_step_us(w->sched, plan->row_count,
                                    plan->token_count - plan->draft_count, k->all_attended);
    const double others_us =
        k->rows[0] > 0 ? sched_step_us(w->sched, k->rows[0], k->tokens[0], k->attended) : 0;
    const double target_us = w->knobs->step_target_ms * 1000;
    const double slowdown = w->knobs->batch_slowdown;
    w->lines_earned_us += others_us * (sched_pace_us(w->sched) > 0 ? tail_share(w) : slowdown);
    if (k->rows[1] == 0 || plan->row_count == 1) return;
    world_tally(w, k->rows[0] > 0 ? COUNT_LINES_BESIDE : COUNT_LINES_ALONE);
    if (target_us > 0 && us > target_us * ROUNDING)
        world_wrong(w, "a step of %u rows and %u of lines takes %.0f us, expected at most %.0f",
                    k->rows[0], k->rows[1], us, target_us);
    if (k->rows[0] == 0) return;
    if (k->has_prompt) world_wrong(w, "%u rows of lines are beside a prompt", k->rows[1]);
    const double from_us = others_us + free_us(w, others_us);
    if (from_us > others_us) world_tally(w, COUNT_LINES_IN_PACE);
    if (us > from_us) w->lines_added_us += us - from_us;
    if (w->lines_added_us > w->lines_earned_us * ROUNDING + 1)
        world_wrong(w, "lines have added %.0f us to steps of others, which earned %.0f",
                    w->lines_added_us, w->lines_earned_us);
}

/* No line gets a seat or blocks that the first of the queue waits for. A policy that reserves may
 * keep a sequence waiting for blocks that are free. */
static void check_waits(struct world *w, const struct plan *plan, const struct kinds *k) {
    if (!k->admits_line || plan->wait_count == 0) return;
    for (uint32_t i = 0; i < plan->wait_count; i++) {
        const struct plan_wait *wait = &plan->waits[i];
        bool is_blocks = wait->why == WAIT_BLOCKS && !w->policy->reserves_all;
        if (wait->why != WAIT_SEAT && !is_blocks) continue;
        world_wrong(w, "a line is admitted while request %lu waits for %s",
                    (unsigned long)wait->request, is_blocks ? "blocks" : "a seat");
        return;
    }
}

/* A line that ran before this plan, and still does; of those, the one that was submitted last. */
static const struct sched_seq *last_running_line(const struct world *w) {
    const struct sched_seq *last = NULL;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n && c->is_batch; k++) {
            const struct sched_seq *seq = live_seq(w, c, k);
            if (!seq || seq->state != SEQ_RUNNING || seq->run_steps == 0) continue;
            if (!last || seq->arrived_us > last->arrived_us) last = seq;
        }
    }
    return last;
}

void world_check_line_victim(struct world *w, const struct sched_seq *victim) {
    const struct sched_seq *last = last_running_line(w);
    world_tally(w, COUNT_LINES_PREEMPTED);
    if (last && last->arrived_us > victim->arrived_us)
        world_wrong(w, "line %lu is preempted before line %lu, which came later",
                    (unsigned long)victim->request, (unsigned long)last->request);
}

void world_check_victim_beside_lines(struct world *w, const struct sched_seq *victim) {
    const struct sched_seq *last = last_running_line(w);
    if (last)
        world_wrong(w, "request %lu is preempted while line %lu runs",
                    (unsigned long)victim->request, (unsigned long)last->request);
}

/* Those before it in the queue wait for a prefix, or are choices that wait for their parent. */
static void check_line_order(struct world *w, const struct sched_seq *admitted) {
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n && c->is_batch; k++) {
            const struct sched_seq *seq = live_seq(w, c, k);
            if (!seq || (seq->state != SEQ_WAITING && seq->state != SEQ_SWAPPED)) continue;
            if (seq->arrived_us >= admitted->arrived_us) continue;
            struct kv_match match =
                kv_cache_match(sched_kv(w->sched), seq->salt, seq->tokens, seq->total);
            if (match.is_promised && seq->state == SEQ_WAITING) continue;
            world_wrong(w, "line %lu is admitted before line %lu, which came first",
                        (unsigned long)admitted->request, (unsigned long)seq->request);
        }
    }
}

/* An ahead plan for lines alone would delay interactive sequences that have no row in it. */
static void check_ahead(struct world *w, const struct kinds *k) {
    if (k->rows[0] == 0 && k->rows[1] > 0)
        world_wrong(w, "an ahead plan has %u rows of lines alone", k->rows[1]);
}

/* static and dynamic wait for more; the others admit if no interactive sequence runs. */
static int64_t window_us(const struct world *w) {
    double ms = w->policy == sched_policy_find("static") ? w->knobs->static_wait_ms
                                                         : w->knobs->dynamic_window_ms;
    return w->policy->frees_batch_slot ? (int64_t)(ms * 1000) : 0;
}

/* If no interactive sequence runs, the first that waits is admitted: lines are not in its way. */
static void check_idle(struct world *w, const struct plan *plan, const struct kinds *k) {
    if (k->rows[0] > 0 || k->rows[1] == 0 || plan->preempted_count > 0) return;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t n = 0; n < c->n && !c->is_batch; n++) {
            const struct sched_seq *seq = live_seq(w, c, n);
            if (!seq || (seq->state != SEQ_WAITING && seq->state != SEQ_SWAPPED)) continue;
            if (seq->arrived_us + window_us(w) > w->began_us) continue;
            world_wrong(w, "lines run, and request %lu waits although no other runs",
                        (unsigned long)seq->request);
            return;
        }
    }
}

/* Who gets a step: interactive sequences first. */
static void check_precedence(struct world *w, const struct plan *plan, const struct kinds *k) {
    uint64_t ahead_plans = sched_stats(w->sched).ahead_plans;
    bool is_ahead = is_ahead_plan(w);
    uint32_t others = plan->running_count - plan->batch_running_count;
    bool lacks_seat = plan->wait_count > 0 && plan->waits[0].why == WAIT_SEAT;
    w->ahead_plans = ahead_plans;
    bool has_line = is_ahead ? k->rows[1] > 0 : plan->batch_running_count > 0;
    if (lacks_seat && has_line)
        world_wrong(w, "request %lu waits for the seat of a line",
                    (unsigned long)plan->waits[0].request);
    if (is_ahead)
        check_ahead(w, k);
    else if (others == 0)
        check_idle(w, plan, k);
}

void world_check_lines(struct world *w, const struct plan *plan) {
    struct kinds k = kinds_of(w, plan);
    bool evicts = sched_stats(w->sched).kv.evicted_blocks != w->evicted;
    check_time(w, plan, &k);
    check_waits(w, plan, &k);
    check_precedence(w, plan, &k);
    w->last_plan =
        (struct world_step_size){plan->row_count, plan->token_count, plan->attended_tokens};
    for (uint32_t i = 0; i < plan->row_count && plan->preempted_count == 0 && !evicts; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        bool is_new = seq->run_steps == 0 && seq->admitted_us == w->began_us && seq->choice == 0;
        if (seq->is_batch && is_new) check_line_order(w, seq);
    }
}
