/* sim/world_check.c - what holds after a step, and at the end; see sim/world_int.h. */
#include <stdatomic.h>
#include <string.h>

#include "sim/world_int.h"

/* ---- one client ---- */

/* mlfq: no sequence waits in a lower queue for longer than the starvation guard allows. */
static bool is_starving(const struct world *w, const struct sched_seq *seq) {
    if (w->policy != sched_policy_find("mlfq")) return false;
    bool waits = seq->state == SEQ_WAITING || seq->state == SEQ_SWAPPED;
    int64_t since_us = seq->policy.mlfq.joined_us;
    if (since_us < seq->last_token_us) since_us = seq->last_token_us;
    int64_t starve_us = (int64_t)(w->knobs->mlfq_starve_ms * 1000);
    return waits && seq->policy.mlfq.level > 0 && w->began_us > since_us + starve_us;
}

/* A plan fires a bounded number of timers, so some may be a few turns late. */
static void check_overdue(struct world *w, const struct client *c, struct client_choice *mine,
                          const struct sched_seq *seq) {
    bool is_expired = c->expires_us > 0 && c->expires_us <= w->began_us;
    bool is_overdue = is_expired || is_starving(w, seq);
    mine->overdue_turns = is_overdue ? mine->overdue_turns + 1 : 0;
    if (mine->overdue_turns <= w->runner_options.seq_max / FIRED_MIN + 2) return;
    world_wrong(w, "request %lu choice %u %s", (unsigned long)seq->request, seq->choice,
                is_expired ? "lives on after it expired" : "starves in a lower queue");
}

/* The client knows all the tokens there are, and nothing lives on that must have ended. */
static void check_live_choice(struct world *w, struct client *c, uint32_t i) {
    const struct choice *choice = &c->request->choices[i];
    const struct sched_seq *seq = sched_seq_at(w->sched, choice->seq);
    unsigned long id = (unsigned long)c->request->id;
    if (seq->request != c->request->id || seq->choice != i) {
        world_wrong(w, "request %lu choice %u: its sequence is another's", id, i);
        return;
    }
    if (atomic_load(&choice->ready) != seq->total)
        world_wrong(w, "request %lu choice %u: %u tokens were reported, there are %u", id, i,
                    atomic_load(&choice->ready), seq->total);
    if (c->choices[i].is_asked && c->called_turn < w->turn)
        world_wrong(w, "request %lu choice %u lives on after it was called off", id, i);
    if (c->choices[i].is_faulted && w->turn >= c->choices[i].faulted_turn)
        world_wrong(w, "request %lu choice %u lives on after its row failed", id, i);
    check_overdue(w, c, &c->choices[i], seq);
}

static void check_client(struct world *w, struct client *c, uint32_t *begun) {
    for (uint32_t i = 0; i < c->n; i++) {
        bool is_live = c->request->choices[i].is_live, has_ended = c->choices[i].has_ended;
        if (is_live == has_ended) {
            world_wrong(w, "request %lu choice %u: %s", (unsigned long)c->request->id, i,
                        is_live ? "ended and still exists" : "is gone and was not reported");
            return;
        }
        if (is_live) check_live_choice(w, c, i);
        *begun += is_live;
    }
}

/* ---- after a step ---- */

static void drop_ended(struct world *w) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->live_count; i++) {
        struct client *c = &w->clients[w->live[i]];
        if (c->ended < c->n) {
            w->live[kept++] = w->live[i];
            continue;
        }
        bool is_cancel_pending = c->is_called && c->called_turn == w->turn;
        if (atomic_load(&c->request->refs) != 1 && !is_cancel_pending)
            world_wrong(w, "request %lu has ended and is still held",
                        (unsigned long)c->request->id);
        if (c->call_off == CALL_OFF_LATE && !c->is_called) world_call_off(w, c);
        request_unref(c->request);
        c->request = NULL;
    }
    w->live_count = kept;
}

static void check_counts(struct world *w, uint32_t begun) {
    struct sched_stats n = sched_stats(w->sched);
    if (runner_sim_begun(&w->runner) != begun)
        world_wrong(w, "%u sequences have begun at the runner, %u live",
                    runner_sim_begun(&w->runner), begun);
    if (n.running > w->knobs->max_seqs)
        world_wrong(w, "%u run, max_seqs is %u", n.running, w->knobs->max_seqs);
    uint32_t lines = n.batch_waiting + n.batch_running + n.batch_swapped;
    uint32_t others = n.waiting + n.running + n.swapped - lines;
    if (others > w->knobs->queue_max + w->knobs->max_seqs)
        world_wrong(w, "%u sequences run or wait, at most %u may", others,
                    w->knobs->queue_max + w->knobs->max_seqs);
    if (lines > 2 * w->knobs->max_seqs)
        world_wrong(w, "%u batch lines run or wait, at most %u may", lines, 2 * w->knobs->max_seqs);
    uint64_t counted = engine_stats(w->engine).answer_tokens;
    if (counted != w->reported_tokens)
        world_wrong(w, "the engine counts %lu answer tokens, clients have received %lu",
                    (unsigned long)counted, (unsigned long)w->reported_tokens);
    if (n.waiting + n.running + n.swapped != begun)
        world_wrong(w, "%u wait, %u run, %u are swapped out, of %u", n.waiting, n.running,
                    n.swapped, begun);
}

void world_check_step(struct world *w) {
    uint32_t begun = 0;
    for (uint32_t i = 0; i < w->live_count && !w->out->is_wrong; i++)
        check_client(w, &w->clients[w->live[i]], &begun);
    if (w->out->is_wrong) return;
    check_counts(w, begun);
    if (w->options.verify_every > 0 && w->turn % w->options.verify_every == 0)
        engine_verify(w->engine);
    drop_ended(w);
}

/* ---- at the end ---- */

void world_check_end(struct world *w) {
    struct sched_stats n = sched_stats(w->sched);
    engine_verify(w->engine);
    if (!sched_is_idle(w->sched)) world_wrong(w, "the scheduler is not idle at the end");
    if (w->live_count > 0) world_wrong(w, "%u requests never ended", w->live_count);
    for (uint32_t g = 0; g < w->engine_options.sched.group_count; g++) {
        const struct kv_pool_stats *p = &n.kv.groups[g];
        if (p->held_count > 0 ||
            p->free_count + p->cached_count + p->kept_count != w->knobs->kv_blocks)
            world_wrong(w, "group %u at the end: %u held, %u free, %u cached of %u blocks", g,
                        p->held_count, p->free_count, p->cached_count, w->knobs->kv_blocks);
    }
    if (n.kv.spilled_blocks > 0)
        world_wrong(w, "%u blocks are left in the spill store", n.kv.spilled_blocks);
    if (w->drafting != 0) world_wrong(w, "%d drafters never ended", w->drafting);
    if (runner_sim_begun(&w->runner) > 0)
        world_wrong(w, "%u sequences never ended at the runner", runner_sim_begun(&w->runner));
    w->out->counts[COUNT_EVICTIONS] += n.kv.evicted_blocks;
}
