/* sim/world_plan.c - what a plan may and may not say; see sim/world_int.h.
 *
 * Called by the runner when a plan is submitted: the scheduler has taken its blocks and nothing
 * of it has been computed. Here is also where things are made to go wrong.
 */
#include "sched/policy_fcfs.h"
#include "sim/world_int.h"

/* ---- rows ---- */

static const struct choice *choice_of(const struct client *c, uint32_t i) {
    return &c->request->choices[i];
}

/* Its first row begins where the prefix cache or the parent's prompt ended. */
static void check_first_row(struct world *w, const struct plan_row *row,
                            const struct sched_seq *seq, struct client_choice *mine) {
    bool is_fork = seq->choice > 0 && row->first == seq->prompt_tokens - 1;
    mine->first_turn = w->turn;
    if (seq->cached_tokens > 0) world_tally(w, COUNT_PREFIX_HITS);
    if (is_fork) world_tally(w, COUNT_FORKS);
    if (is_fork || seq->preempt_count > 0 || row->first == seq->cached_tokens) return;
    world_wrong(w, "request %lu choice %u begins at token %u and says that %u were cached",
                (unsigned long)seq->request, seq->choice, row->first, seq->cached_tokens);
}

static void check_row(struct world *w, const struct plan_row *row) {
    const struct sched_seq *seq = sched_seq_at(w->sched, row->seq);
    struct client *c = world_client_of(w, seq->request);
    if (!c || seq->state != SEQ_RUNNING || seq->choice >= c->n) {
        world_wrong(w, "sequence %u has a row and does not run", row->seq);
        return;
    }
    struct client_choice *mine = &c->choices[seq->choice];
    uint32_t own = row->count - row->draft_count;
    bool is_last = row->first + own == seq->total;
    if (own == 0 || row->first != seq->computed || row->first + own > seq->total ||
        row->samples != is_last || row->kv != seq->kv || seq->planned != row->count)
        world_wrong(w, "request %lu choice %u: a row of tokens %u to %u, %u of %u are computed",
                    (unsigned long)seq->request, seq->choice, row->first, row->first + row->count,
                    seq->computed, seq->total);
    if (row->first + row->count >= c->total_max)
        world_wrong(w, "request %lu choice %u is computed past its last token",
                    (unsigned long)seq->request, seq->choice);
    if (row->tokens != choice_of(c, seq->choice)->tokens)
        world_wrong(w, "request %lu choice %u: the row has another's tokens",
                    (unsigned long)seq->request, seq->choice);
    if (mine->has_ended)
        world_wrong(w, "request %lu choice %u is computed after its end",
                    (unsigned long)seq->request, seq->choice);
    if (row->takes_sampled) world_tally(w, COUNT_TAKES_SAMPLED);
    if (mine->first_turn == 0) check_first_row(w, row, seq, mine);
}

/* ---- budgets ---- */

static void check_budgets(struct world *w, const struct plan *plan) {
    uint32_t tokens = 0, samples = 0;
    uint64_t attended = 0;
    bool had_prompt = false;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        bool is_decode = row->count - row->draft_count == 1 && row->samples;
        if (is_decode && had_prompt) world_wrong(w, "a decode row comes after a prompt row");
        had_prompt = had_prompt || !is_decode;
        tokens += row->count;
        samples += row->samples;
        attended += cost_attended(row->first, row->count);
        for (uint32_t k = 0; k < i; k++)
            if (plan->rows[k].seq == row->seq || plan->rows[k].kv == row->kv)
                world_wrong(w, "sequence %u has two rows", row->seq);
    }
    if (tokens != plan->token_count || samples != plan->sample_count ||
        attended != plan->attended_tokens)
        world_wrong(w, "the plan's sums are not those of its rows");
    bool is_solo = w->policy->whole_prompts && plan->row_count == 1;
    if (tokens > w->knobs->max_step_tokens && !is_solo)
        world_wrong(w, "%u tokens in a step of at most %u", tokens, w->knobs->max_step_tokens);
    if (plan->row_count > w->knobs->max_seqs || plan->running_count > w->knobs->max_seqs)
        world_wrong(w, "%u rows, %u run, max_seqs is %u", plan->row_count, plan->running_count,
                    w->knobs->max_seqs);
}

/* ---- preemption ---- */

static bool eldest_runs(const struct world *w, const struct plan *plan) {
    int64_t eldest_us = INT64_MAX, planned_us = INT64_MAX;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n; k++) {
            if (!choice_of(c, k)->is_live) continue;
            const struct sched_seq *seq = sched_seq_at(w->sched, choice_of(c, k)->seq);
            if (seq->state == SEQ_RUNNING && !seq->is_batch && seq->arrived_us < eldest_us)
                eldest_us = seq->arrived_us;
        }
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        if (!seq->is_batch && seq->arrived_us < planned_us) planned_us = seq->arrived_us;
    }
    return planned_us == eldest_us;
}

/* Past preempt_max a sequence is preempted only for the oldest one, and never by policy. */
static void check_victim(struct world *w, const struct plan *plan, const struct plan_preempted *v,
                         struct client *c) {
    const struct sched_seq *seq = sched_seq_at(w->sched, choice_of(c, v->choice)->seq);
    uint32_t times = ++c->choices[v->choice].preempted;
    unsigned long id = (unsigned long)v->request;
    world_tally(w, v->why == PREEMPT_POLICY ? COUNT_DISPLACED
                   : v->swapped             ? COUNT_SWAPS_OUT
                                            : COUNT_RECOMPUTES);
    if (seq->is_batch) {
        world_check_line_victim(w, seq);
        return;
    }
    world_check_victim_beside_lines(w, seq);
    if (w->policy->reserves_all) world_wrong(w, "a policy that reserves preempts request %lu", id);
    if (seq->preempt_count < times) /* a failed step that dropped its blocks counts too */
        world_wrong(w, "request %lu was preempted %u times and %u were counted", id, times,
                    seq->preempt_count);
    if (times <= w->knobs->preempt_max) return;
    world_tally(w, COUNT_PREEMPT_PAST_MAX);
    if (v->why == PREEMPT_POLICY || !eldest_runs(w, plan))
        world_wrong(w, "request %lu is preempted for the %uth time and not for the oldest", id,
                    times);
}

static void check_preempted(struct world *w, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->preempted_count; i++) {
        const struct plan_preempted *v = &plan->preempted[i];
        struct client *c = world_client_of(w, v->request);
        if (c && v->choice < c->n && choice_of(c, v->choice)->is_live)
            check_victim(w, plan, v, c);
        else
            world_wrong(w, "request %lu was preempted and does not live",
                        (unsigned long)v->request);
    }
}

/* ---- the order of the queue ---- */

/* Does `waiting` come before `admitted` in the policy's order? Where that order is simple it is
 * computed here from the sequences; otherwise the keys that the scheduler holds are compared. */
static bool comes_before(const struct world *w, const struct sched_seq *waiting,
                         const struct sched_seq *admitted) {
    if (w->policy->key == fcfs_key && waiting->tenant == admitted->tenant)
        return waiting->arrived_us < admitted->arrived_us;
    if (w->policy == sched_policy_find("priority") &&
        waiting->urgency.priority != admitted->urgency.priority)
        return waiting->urgency.priority > admitted->urgency.priority;
    /* fair: what a tenant has used meanwhile moves the keys of all that it has waiting, but not
     * their order; a plan asks for a bounded number of them anew. */
    if (w->policy == sched_policy_find("fair")) {
        struct sched_stats n = sched_stats(w->sched);
        return n.waiting + n.swapped + n.running <= REKEYED_MIN &&
               waiting->tenant == admitted->tenant && waiting->arrived_us < admitted->arrived_us;
    }
    return waiting->key < admitted->key;
}

static uint32_t running_of(const struct world *w, uint32_t tenant) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n; k++) {
            if (!choice_of(c, k)->is_live) continue;
            const struct sched_seq *seq = sched_seq_at(w->sched, choice_of(c, k)->seq);
            count += seq->state == SEQ_RUNNING && seq->tenant == tenant && !seq->is_batch;
        }
    }
    return count;
}

/* A tenant may have reached its share only if it runs something. Others then pass it. */
static bool may_be_above_share(const struct world *w, const struct sched_seq *waiting,
                               const struct sched_seq *admitted) {
    return world_has_shares(w) && waiting->tenant != admitted->tenant &&
           running_of(w, waiting->tenant) > 0;
}

/* Only a sequence that waits for a prefix that another computes may be skipped, or one whose
 * tenant has reached its share. */
static void check_passed(struct world *w, const struct sched_seq *admitted) {
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n; k++) {
            if (!choice_of(c, k)->is_live) continue;
            const struct sched_seq *seq = sched_seq_at(w->sched, choice_of(c, k)->seq);
            if (seq->state != SEQ_WAITING && seq->state != SEQ_SWAPPED) continue;
            if (seq->is_batch) continue; /* it comes after all others */
            if (!comes_before(w, seq, admitted) || may_be_above_share(w, seq, admitted)) continue;
            struct kv_match match =
                kv_cache_match(sched_kv(w->sched), seq->salt, seq->tokens, seq->total);
            if (match.is_promised && !match.is_batch_promise && seq->state == SEQ_WAITING) {
                world_tally(w, COUNT_PROMISE_WAITS);
                continue;
            }
            world_wrong(w,
                        "request %lu (key %ld) is admitted before request %lu choice %u (key %ld, "
                        "%s), which comes first",
                        (unsigned long)admitted->request, (long)admitted->key,
                        (unsigned long)seq->request, seq->choice, (long)seq->key,
                        seq->state == SEQ_SWAPPED ? "swapped out" : "waiting");
            return;
        }
    }
}

static bool is_first_row(const struct world *w, const struct sched_seq *seq) {
    return world_client_of(w, seq->request)->choices[seq->choice].first_turn == w->turn;
}

/* Admitted by this plan; a choice that shares its parent's prompt was admitted before. */
static bool is_admitted_now(const struct world *w, const struct sched_seq *seq) {
    return seq->admitted_us == w->began_us && seq->run_steps == 0 && seq->choice == 0 &&
           is_first_row(w, seq);
}

static void check_order(struct world *w, const struct plan *plan) {
    /* A sequence preempted just now is skipped; and one that waits for a prefix may by now have
     * lost the beginning of it to one that was admitted after it was passed. */
    if (plan->preempted_count > 0 || sched_stats(w->sched).kv.evicted_blocks != w->evicted) return;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        if (!seq->is_batch && is_admitted_now(w, seq)) check_passed(w, seq);
    }
}

/* ---- tenants ---- */

/* If a plan admits sequences of one tenant only, the last one must leave the reserve to others
 * unless its tenant has less than half of the batch, the most that a share can be. */
static void check_shares(struct world *w, const struct plan *plan) {
    uint32_t running = plan->running_count - plan->batch_running_count;
    uint32_t max = w->knobs->max_seqs, free_count = max - running;
    uint32_t reserve = (uint32_t)(w->knobs->tenant_reserve * max);
    const struct sched_seq *last = NULL;
    if (reserve == 0 && w->knobs->tenant_reserve > 0 && max > 1) reserve = 1;
    if (!world_has_shares(w) || plan->preempted_count > 0 || free_count >= reserve) return;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        if (seq->run_steps > 0 || seq->is_batch) continue;
        if (last && last->tenant != seq->tenant) return; /* it may be the later one */
        if (!last || is_admitted_now(w, seq)) last = seq;
    }
    if (!last || !is_admitted_now(w, last)) return;
    uint32_t before = running_of(w, last->tenant) - 1;
    world_tally(w, COUNT_SHARES);
    if (before > 0 && before >= max / 2)
        world_wrong(w, "tenant %u runs %u of %u and leaves %u to others, expected %u", last->tenant,
                    before + 1, max, free_count, reserve);
}

/* ---- moves and faults ---- */

static void tally_moves(struct world *w, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->moves.count; i++) {
        if (plan->moves.list[i].kind == KV_MOVE_COPY) world_tally(w, COUNT_COPIES);
        if (plan->moves.list[i].kind == KV_MOVE_IN) world_tally(w, COUNT_SWAPS_IN);
    }
    w->moves_only = plan->row_count == 0 ? w->moves_only + 1 : 0;
    if (w->moves_only > MOVES_ONLY_MAX)
        world_wrong(w, "%u steps in a row move blocks and compute nothing", w->moves_only);
}

/* A plan that is submitted behind one that fails may have rows of sequences that are recomputed
 * because of that; these need not end. Nor need one whose row stands behind drafts of the plan
 * before: the row is dropped if one of them is refused. */
static void mark_faulted(struct world *w, const struct plan_row *row) {
    const struct sched_seq *seq = sched_seq_at(w->sched, row->seq);
    struct client *c = world_client_of(w, seq->request);
    bool is_behind_failed = w->options.depth > 0 && w->failed_turn + 1 == w->turn;
    bool is_behind_drafts = row->takes_sampled && w->engine_options.sched.draft_rows_max > 0;
    if (!c) return;
    c->choices[seq->choice].is_faulted = true;
    c->choices[seq->choice].faulted_turn =
        is_behind_failed || is_behind_drafts ? UINT64_MAX : w->turn + w->options.depth;
}

static void draw_fault(struct world *w, const struct plan *plan, struct sim_fault *fault) {
    const struct habits *h = &w->habits;
    if (world_chance(w, h->slow_step)) {
        fault->slow_us = w->typical_us * world_log_between(w, 1, 100);
        world_tally(w, COUNT_SLOW_STEPS);
    }
    if (world_chance(w, h->fail_step)) {
        fault->submit_fails = true;
        for (uint32_t i = 0; i < plan->row_count; i++) mark_faulted(w, &plan->rows[i]);
        w->failed_turn = w->turn;
        world_tally(w, COUNT_FAILED_STEPS);
    } else if (plan->row_count > 0 && world_chance(w, h->fail_row)) {
        fault->row_fails = true;
        fault->failed_row = world_between(w, 0, plan->row_count - 1);
        mark_faulted(w, &plan->rows[fault->failed_row]);
        world_tally(w, COUNT_FAILED_ROWS);
    }
}

/* Called off between the submit of the plan that computes it and its collect. */
static void call_off_under_way(struct world *w, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        struct client *c = world_client_of(w, seq->request);
        if (!c || c->is_called || c->call_off != CALL_OFF_UNDER_WAY) continue;
        if (c->call_choice != seq->choice || !world_chance(w, 0.3)) continue;
        c->is_called = c->choices[seq->choice].is_asked = true;
        c->called_turn = w->turn - 1; /* it ends in this very turn */
        world_tally(w, COUNT_CANCEL_UNDER_WAY);
        sched_cancel(engine_sched(w->engine), seq->request, seq->choice, FINISH_CANCELLED,
                     w->clock.now_us);
    }
}

static void trace_plan(struct world *w, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        world_hash(w, (uint64_t)row->seq << 40 ^ (uint64_t)row->first << 20 ^ row->count);
    }
    world_hash(w, (uint64_t)plan->moves.count << 32 | plan->preempted_count);
    if (!w->options.trace) return;
    world_trace(w,
                "step %lu at %ld us: %u rows, %u tokens, %u moves, %u preempted, %u wait, %u run",
                (unsigned long)w->out->counts[COUNT_STEPS], (long)w->clock.now_us, plan->row_count,
                plan->token_count, plan->moves.count, plan->preempted_count, plan->waiting_count,
                plan->running_count);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_seq *seq = sched_seq_at(w->sched, plan->rows[i].seq);
        world_trace(w, "  row: request %lu choice %u, tokens %u to %u", (unsigned long)seq->request,
                    seq->choice, plan->rows[i].first, plan->rows[i].first + plan->rows[i].count);
    }
    for (uint32_t i = 0; i < plan->preempted_count; i++)
        world_trace(w, "  preempted: request %lu choice %u, %s",
                    (unsigned long)plan->preempted[i].request, plan->preempted[i].choice,
                    plan->preempted[i].swapped ? "swapped out" : "to be recomputed");
}

void world_on_plan(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    struct world *w = ctx;
    w->began_us = w->clock.now_us;
    trace_plan(w, plan);
    check_budgets(w, plan);
    for (uint32_t i = 0; i < plan->row_count && !w->out->is_wrong; i++)
        check_row(w, &plan->rows[i]);
    if (w->out->is_wrong) return;
    check_preempted(w, plan);
    check_order(w, plan);
    check_shares(w, plan);
    world_check_lines(w, plan);
    world_check_drafts(w, plan);
    tally_moves(w, plan);
    if (plan->wants_drain) world_tally(w, COUNT_DRAINED);
    if (w->is_draining) return;
    call_off_under_way(w, plan);
    draw_fault(w, plan, fault);
}
