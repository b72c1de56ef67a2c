/* engine/engine.c - see engine/engine.h for the contract.
 *
 * Entry points: engine_step (read it first), engine_create, engine_start, engine_submit,
 * engine_next, engine_stats, engine_liveness.
 */
#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/grammars.h"
#include "engine/recorder.h"

/* An idle engine wakes at least this often, also without a request or a timer. */
static const int64_t IDLE_WAIT_US = 1000000;

/* Statistics, updated by every step. */
struct numbers {
    struct sched_stats sched;
    double kv_used_share;
    uint64_t step_tokens, step_sizes[ENGINE_STEP_SIZES], prompt_tokens, answer_tokens;
    double wait_us, wait_us_per_token; /* predicted: of an empty prompt, and for each token of it */
    struct cost_profile cost;
};

/* A plan from its submit to its collect. */
struct flight {
    struct plan plan;
    enum status submitted; /* other than ST_OK: there is nothing to collect */
    struct err err;        /* why it failed; empty: it did not */
    int64_t began_us;      /* when its plan was made */
    int64_t sched_us;      /* spent planning and applying it */
    int64_t submit_us;     /* spent in the runner's submit */
    int64_t predicted_us;  /* how long it takes, by the cost model */
};

enum { FLIGHTS = RUNNER_DEPTH_MAX + 1 };

struct engine {
    const struct clock *clock;
    struct runner runner;
    bool is_plugged;
    struct sched *sched;
    struct sched_options sched_options; /* at the start; engine/control.h has those in force */
    struct flight flights[FLIGHTS];     /* a ring: flight_count of them from flight_first on */
    uint32_t flight_first, flight_count;
    bool is_draining; /* no plan is made before all flights are collected (plan.wants_drain) */
    struct mailbox *mailbox;
    struct recorder *recorder;
    struct control *control;
    _Atomic unsigned places; /* engine_places */
    uint32_t batch_places;   /* engine_batch_places */
    int64_t target_us;       /* step_target_ms */
    struct request_bounds bounds;
    struct cache_salts *salts;
    struct spec *spec;
    int32_t *ends; /* bounds.ends */

    /* The engine thread only. */
    struct choice **choices; /* by seq_idx; NULL: free */
    uint32_t choice_cap;
    struct err step_err; /* why the last collected plan failed; empty: it did not */
    int64_t done_us;     /* when the last plan was collected */

    /* Any thread. */
    atomic_ullong next_id, submitted, refused, step_count;
    atomic_uint failed_steps;                      /* in a row */
    atomic_llong sched_us, step_us, step_began_us; /* step_began_us 0: between steps */
    atomic_llong turn_us;                          /* when a turn last began or ended */
    pthread_mutex_t stats_lock;
    struct numbers numbers; /* as of the last step; under stats_lock */

    pthread_t thread, watch_thread;
    bool is_running, is_watched;
    atomic_bool stopping;
    int64_t stall_limit_us;
    stall_fn *on_stall;
    void *stall_ctx;
};

/* The choice's last event is published: end its sequence and release its request. */
static void release_choice(struct engine *e, struct choice *c, uint32_t total) {
    if (c->seq != SEQ_NONE) {
        e->runner.end(e->runner.self, c->seq);
        spec_end(e->spec, c->seq, c->tokens, total, c->prompt_tokens);
        e->choices[c->seq] = NULL;
    }
    c->seq = SEQ_NONE;
    c->is_live = false;
    request_unref(c->request);
}

static void publish(struct engine *e, struct choice *c, enum finish_reason finish, int64_t now_us) {
    if (finish != FINISH_NONE) {
        c->finished_us = now_us;
        atomic_store(&c->finish, finish);
    }
    mailbox_post_output(e->mailbox, c);
}

/* End a choice that the scheduler did not accept. */
static void refuse(struct engine *e, struct choice *c, const struct err *why, int64_t now_us) {
    /* The first error text stays: a client may be reading it when the next choice is refused. */
    if (!c->request->refusal.text[0]) c->request->refusal = *why;
    atomic_fetch_add(&e->refused, 1);
    recorder_arrived(e->recorder, c);
    recorder_ended(e->recorder, c, 0, SEAT_NONE, FINISH_REFUSED, now_us);
    publish(e, c, FINISH_REFUSED, now_us);
}

static enum status submit_choice(struct engine *e, struct choice *c, seq_idx parent, int64_t now_us,
                                 struct err *err) {
    struct request *r = c->request;
    /* Every token of the prompt is computed, and each row after the one before it. */
    bool needs_prompt = (c->index == 0 && r->prompt_logprobs) || r->on_logits;
    struct sched_submit in = {.request = r->id,
                              .choice = c->index,
                              .parent = parent,
                              .tenant = r->tenant,
                              .has_share = r->has_share,
                              .salt = r->salt,
                              .urgency = r->urgency,
                              .tokens = c->tokens,
                              .prompt_tokens = c->prompt_tokens,
                              .total_max = c->total_max,
                              .reads_no_prefix = needs_prompt,
                              .one_row_at_a_time = needs_prompt,
                              .waits_for_token = r->waits_for_token,
                              .is_batch = r->is_batch,
                              .draft_max = c->drafter ? r->draft_max : 0};
    TRY(sched_submit(e->sched, &in, now_us, &c->seq, err));
    CHECK(c->seq < e->choice_cap);
    e->choices[c->seq] = c;
    recorder_arrived(e->recorder, c);
    c->is_live = true;
    request_ref(r); /* until release_choice */
    struct runner_seq info = {.sampler = c->sampler,
                              .prompt_tokens = c->prompt_tokens,
                              .ignore_end = r->ignore_end,
                              .ends = r->ends,
                              .end_count = r->end_count,
                              .has_grammar = r->grammar != NULL,
                              .settling = &c->settling,
                              .forces_text = r->forces_text,
                              .logprobs = c->logprobs,
                              .tops = c->tops,
                              .on_logits = r->on_logits,
                              .logits_ctx = r->logits_ctx};
    if (c->index == 0) { /* the others share its prompt */
        info.prompt_logprobs = r->prompt_logprobs;
        info.prompt_tops = r->prompt_tops;
    }
    e->runner.begin(e->runner.self, c->seq, &info);
    struct sampling draw;
    sampler_describe_guess(c->sampler, 0, &draw);
    spec_begin(e->spec, c->seq, c->drafter, &draw);
    return ST_OK;
}

static void accept_request(struct engine *e, struct request *r, int64_t now_us) {
    seq_idx parent = SEQ_NONE;
    for (uint32_t i = 0; i < r->n; i++) {
        struct err err = {0};
        struct choice *c = &r->choices[i];
        if (submit_choice(e, c, parent, now_us, &err) != ST_OK)
            refuse(e, c, &err, now_us);
        else if (i == 0)
            parent = c->seq;
    }
    request_unref(r); /* the inbox's reference */
}

static void cancel_choices(struct engine *e, struct request *r, uint32_t choices,
                           enum finish_reason why, int64_t now_us) {
    for (uint32_t i = 0; i < r->n; i++)
        if ((choices >> i & 1) && r->choices[i].is_live)
            sched_cancel(e->sched, r->id, i, why, now_us);
    request_unref(r);
}

static void accept_submitted(struct engine *e, int64_t now_us) {
    for (struct request *r; (r = mailbox_take_submitted(e->mailbox));) accept_request(e, r, now_us);
}

/* New and cancelled requests. A cancelled request was submitted earlier, so the submissions are
 * taken first and the scheduler knows every request that is cancelled. */
static void inbox_take_all(struct engine *e, int64_t now_us) {
    uint32_t choices;
    enum finish_reason why;
    for (struct request *r; (r = mailbox_take_cancelled(e->mailbox, &choices, &why));) {
        accept_submitted(e, now_us);
        cancel_choices(e, r, choices, why, now_us);
    }
    accept_submitted(e, now_us);
}

/* Why a request ends with FINISH_ERROR: its plan failed, or its row alone. */
static void note_failure(const struct engine *e, const struct choice *c) {
    struct request *r = c->request;
    if (r->refusal.text[0]) return;
    if (e->step_err.text[0]) {
        r->refusal = e->step_err;
        r->is_step_failed = true;
        return;
    }
    r->grammar_failure = sampler_explain(c->sampler, &r->refusal);
    if (r->grammar_failure == ST_OK)
        err_set(&r->refusal, ST_DEVICE,
                "no token is possible: the model's logits are not numbers, or every token is "
                "forbidden by a bias");
}

/* For the usage of requests with a prediction: which tokens of the answer were drafts. */
static void note_predicted(struct engine *e, const struct plan *plan) {
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct plan_row *row = &plan->rows[r];
        const struct choice *c = row->accepted && !row->is_dropped ? e->choices[row->seq] : NULL;
        if (!c || !c->predicted) continue;
        uint32_t first = row->first + row->count - row->draft_count - c->prompt_tokens;
        for (uint32_t i = first; i < first + row->accepted; i++)
            atomic_fetch_or_explicit(&c->predicted[i / 8], (uint8_t)(1u << i % 8),
                                     memory_order_relaxed);
    }
}

/* The end or stop token that ended the choice; -1: the client ended it. */
static int32_t end_token(const struct choice *c, uint32_t total) {
    int32_t last = c->tokens[total - 1];
    return total > c->prompt_tokens && request_ends_at(c->request, last) ? last : -1;
}

/* The request wants only its prompt computed: the token sampled after it is not published. */
static void hide_answer(const struct choice *c, struct sched_event *event) {
    event->total = c->prompt_tokens;
    if (event->finish == FINISH_STOP) event->finish = FINISH_LENGTH;
}

/* Publish the new tokens and the ends of all sequences that have any. */
static void outbox_publish(struct engine *e, int64_t now_us) {
    struct sched_event event;
    while (sched_next_event(e->sched, &event)) {
        struct choice *c = e->choices[event.seq];
        CHECK(c);
        CHECK(c->request->id == event.request);
        atomic_store_explicit(&c->cached_tokens, event.cached_tokens, memory_order_relaxed);
        c->preempt_count = event.preempt_count;
        atomic_store_explicit(&c->drafted, event.drafted, memory_order_relaxed);
        c->accepted = event.accepted;
        c->admitted_us = event.admitted_us;
        c->first_token_us = event.first_token_us;
        if (event.finish != FINISH_NONE)
            recorder_ended(e->recorder, c, event.total - c->prompt_tokens, event.seat, event.finish,
                           now_us);
        uint32_t total = event.total;
        if (c->request->is_prompt_only) hide_answer(c, &event);
        atomic_store_explicit(&c->ready, event.total, memory_order_release);
        if (event.finish == FINISH_ERROR) note_failure(e, c);
        if (event.finish == FINISH_STOP) c->ended_by = end_token(c, event.total);
        publish(e, c, event.finish, now_us);
        if (event.finish != FINISH_NONE) release_choice(e, c, total);
    }
    mailbox_flush(e->mailbox);
}

/* A plan made ahead waits for the one before it: its time begins where the other's ends, so that
 * the times of two records never overlap. */
static void record_step(struct engine *e, const struct flight *f, enum status st, int64_t now_us) {
    int64_t at_us = f->began_us > e->done_us ? f->began_us : e->done_us;
    struct record_times times = {.step = atomic_load(&e->step_count),
                                 .at_us = at_us,
                                 .elapsed_us = now_us - at_us,
                                 .sched_us = f->sched_us,
                                 .submit_us = f->submit_us,
                                 .predicted_us = f->predicted_us,
                                 .target_us = e->target_us};
    recorder_step(e->recorder, &times, &f->plan);
    atomic_fetch_add(&e->sched_us, f->sched_us);
    atomic_fetch_add(&e->step_us, now_us - at_us);
    atomic_fetch_add(&e->step_count, 1);
    atomic_store(&e->failed_steps, st == ST_OK ? 0 : atomic_load(&e->failed_steps) + 1);
    e->done_us = now_us;
}

/* Which of ENGINE_STEP_SIZES a step of so many tokens is. */
static uint32_t step_size(uint32_t tokens) {
    uint32_t size = 0;
    while (size < ENGINE_STEP_SIZES - 1 && tokens > 1u << size) size++;
    return size;
}

/* The fullest of the groups. */
static double kv_used_share(const struct engine *e, const struct kv_cache_stats *kv) {
    uint32_t held = 0, blocks = e->sched_options.knobs.kv_blocks;
    for (uint32_t g = 0; g < e->sched_options.group_count; g++)
        if (kv->groups[g].held_count > held) held = kv->groups[g].held_count;
    return (double)held / blocks;
}

/* A row that samples gives one answer token, and one for each draft that was accepted. Its input
 * was the answer token before and drafts, or, if it has more other tokens, a prompt. Dropped rows
 * do not count. */
static void count_tokens(const struct plan *plan, struct numbers *n) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (row->is_dropped) continue;
        tokens += row->count;
        if (!row->samples || row->count - row->draft_count > 1) n->prompt_tokens += row->count;
        n->answer_tokens += row->accepted + (uint32_t)row->samples;
    }
    n->step_tokens += tokens;
    if (tokens > 0) n->step_sizes[step_size(tokens)]++;
}

/* `applied`: the plan that was applied since the last call; NULL: none. */
static void keep_numbers(struct engine *e, const struct plan *applied) {
    enum { TOKENS_PROBE = 1024 };
    struct numbers *n = &e->numbers;
    pthread_mutex_lock(&e->stats_lock);
    n->sched = sched_stats(e->sched);
    n->kv_used_share = kv_used_share(e, &n->sched.kv);
    n->wait_us = sched_predict_wait_us(e->sched, 0);
    double probe_us = sched_predict_wait_us(e->sched, TOKENS_PROBE);
    n->wait_us_per_token = (probe_us - n->wait_us) / TOKENS_PROBE; /* a prompt's part is linear */
    n->cost = cost_learned(sched_cost(e->sched));
    if (applied) count_tokens(applied, n);
    pthread_mutex_unlock(&e->stats_lock);
    const struct sched_stats *s = &n->sched;
    uint32_t lines = s->batch_running + s->batch_swapped;
    mailbox_set_live(e->mailbox, false, s->waiting - s->batch_waiting,
                     s->running + s->swapped - lines);
    mailbox_set_live(e->mailbox, true, s->batch_waiting, lines);
}

/* ---- the step ---- */

static struct flight *flight_at(struct engine *e, uint32_t place) {
    return &e->flights[(e->flight_first + place) % FLIGHTS];
}

/* `now_us`, just read from the engine's clock, on the real one: what scheduling takes is measured
 * also where time is simulated. */
static int64_t real_us(const struct engine *e, int64_t now_us) {
    return e->clock == &clock_real ? now_us : clock_now(&clock_real);
}

static int64_t predict_us(const struct engine *e, const struct plan *plan) {
    const struct cost_model *cost = sched_cost(e->sched);
    double us = cost_predict_us(cost, plan->token_count, plan->attended_tokens);
    if (plan->moves.count > 0) us += plan->moves.count * cost->per_move_us;
    return (int64_t)us;
}

/* Plan the next step and give it to the runner, also while another one is under way. False: there
 * was nothing to plan. */
static bool submit_next(struct engine *e, int64_t now_us) {
    CHECK(e->flight_count < FLIGHTS);
    struct flight *f = flight_at(e, e->flight_count);
    f->began_us = now_us;
    f->sched_us = -real_us(e, now_us);
    f->err = (struct err){0};
    inbox_take_all(e, now_us); /* new and cancelled requests */
    if (e->is_draining) return false;
    sched_plan(e->sched, now_us, &f->plan); /* who runs, how many tokens, which KV blocks */
    int64_t planned_us = clock_now(&clock_real);
    f->sched_us += planned_us;
    e->is_draining = f->plan.wants_drain && e->flight_count > 0;
    if (f->plan.row_count == 0 && f->plan.moves.count == 0) {
        recorder_empty_plan(e->recorder, &f->plan);
        return false;
    }
    f->predicted_us = predict_us(e, &f->plan);
    e->flight_count++;
    f->submit_us = -planned_us;
    f->submitted = e->runner.submit(e->runner.self, &f->plan, &f->err);
    f->submit_us += clock_now(&clock_real);
    if (f->submitted != ST_OK) e->is_draining = true;
    return true;
}

/* Take the result of the oldest plan under way and apply it. A device of depth 0 has computed it in
 * submit; one of depth 1 is waited for here. */
static enum status collect_oldest(struct engine *e) {
    struct flight *f = flight_at(e, 0);
    struct step_result result;
    enum status st = f->submitted;
    if (st == ST_OK) st = e->runner.collect(e->runner.self, &result, &f->err);
    int64_t now_us = clock_now(e->clock);
    f->sched_us -= real_us(e, now_us);
    if (st == ST_OK)
        sched_apply(e->sched, &f->plan, &result, now_us); /* advance, finish, free           */
    else
        sched_fail(e->sched, &f->plan, now_us); /* its sequences end; the others go on        */
    e->flight_first = (e->flight_first + 1) % FLIGHTS;
    e->flight_count--;
    e->step_err = f->err;
    e->is_draining = (e->is_draining || st != ST_OK) && e->flight_count > 0;
    if (st == ST_OK) note_predicted(e, &f->plan);
    recorder_rows(e->recorder, e->sched, &f->plan);
    keep_numbers(e, &f->plan); /* before clients act on what they see        */
    outbox_publish(e, now_us); /* new tokens and ends, to the clients        */
    int64_t end_us = clock_now(e->clock);
    f->sched_us += real_us(e, end_us);
    record_step(e, f, st, end_us);
    return st;
}

static uint32_t policy_place(const struct sched_policy *policy) {
    uint32_t place = 0;
    while (sched_policies[place] && sched_policies[place] != policy) place++;
    return place;
}

static void set_places(struct engine *e, const struct knobs *k) {
    atomic_store(&e->places, sched_live_max(k));
    mailbox_set_max(e->mailbox, sched_live_max(k));
}

/* What other threads have asked for. A change needs an empty pipeline: until all plans under way
 * are collected no further one is made. */
static void serve_control(struct engine *e, int64_t now_us) {
    struct control_rules rules;
    if (control_take(e->control, &rules)) {
        e->is_draining = e->flight_count > 0;
        if (e->is_draining) return;
        CHECK(rules.knobs.max_step_tokens <= e->sched_options.knobs.max_step_tokens);
        sched_change(e->sched, rules.policy, &rules.knobs, now_us);
        set_places(e, &rules.knobs);
        e->target_us = (int64_t)(rules.knobs.step_target_ms * 1000);
        recorder_set_policy(e->recorder, policy_place(rules.policy));
    }
    control_finish(e->control, sched_kv(e->sched));
}

/* One turn of the engine: plan and submit one step, collect one. The time that scheduling takes is
 * measured in real time, also with a simulated clock. */
enum status engine_step(struct engine *e, bool *did_work) {
    int64_t began_us = clock_now(e->clock);
    enum status st = ST_OK;
    atomic_store(&e->turn_us, began_us);
    atomic_store(&e->step_began_us, began_us);
    if (control_is_asked(e->control)) serve_control(e, began_us);
    bool submitted = submit_next(e, began_us);
    *did_work = submitted || e->flight_count > 0;
    if (e->flight_count > e->runner.depth || (!submitted && e->flight_count > 0)) {
        st = collect_oldest(e);
        atomic_store(&e->turn_us, e->done_us);
    } else {
        int64_t now_us = clock_now(e->clock);
        keep_numbers(e, NULL);
        outbox_publish(e, now_us);
        if (e->flight_count == 0) recorder_flush(e->recorder, now_us);
        atomic_store(&e->turn_us, now_us);
    }
    atomic_store(&e->step_began_us, 0);
    return st;
}

/* How long to sleep when there is nothing to do. */
static int64_t idle_us(const struct engine *e) {
    int64_t next_us = sched_next_timer_us(e->sched);
    if (next_us == INT64_MAX) return IDLE_WAIT_US;
    int64_t left_us = next_us - clock_now(e->clock);
    return left_us < 0 ? 0 : left_us < IDLE_WAIT_US ? left_us : IDLE_WAIT_US;
}

/* Collects the plans under way first, so that the runner has none when it is closed. */
static void cancel_all(struct engine *e) {
    while (e->flight_count > 0) collect_oldest(e);
    int64_t now_us = clock_now(e->clock);
    inbox_take_all(e, now_us);
    for (uint32_t i = 0; i < e->choice_cap; i++)
        if (e->choices[i])
            sched_cancel(e->sched, e->choices[i]->request->id, e->choices[i]->index,
                         FINISH_CANCELLED, now_us);
    keep_numbers(e, NULL);
    outbox_publish(e, now_us);
    recorder_flush(e->recorder, now_us);
}

static void *engine_main(void *arg) {
    struct engine *e = arg;
    while (!atomic_load(&e->stopping)) {
        bool did_work;
        engine_step(e, &did_work);
        if (!did_work) mailbox_wait(e->mailbox, idle_us(e));
    }
    cancel_all(e);
    return NULL;
}

static void sleep_us(int64_t us) {
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* A stall is reported once: `reported_us` is the beginning of the last step reported. */
static void *watch_main(void *arg) {
    struct engine *e = arg;
    int64_t reported_us = 0, sleep_for_us = e->stall_limit_us / 8 + 1;
    if (sleep_for_us > 200000) sleep_for_us = 200000;
    while (!atomic_load(&e->stopping)) {
        int64_t began_us = atomic_load(&e->step_began_us);
        int64_t stalled_us = began_us ? clock_now(e->clock) - began_us : 0;
        if (stalled_us > e->stall_limit_us && reported_us != began_us) {
            reported_us = began_us;
            e->on_stall(e->stall_ctx, stalled_us);
        }
        sleep_us(sleep_for_us);
    }
    return NULL;
}

static enum status create_parts(struct engine *e, const struct engine_options *o, struct err *err) {
    const struct knobs *k = &o->sched.knobs;
    uint32_t moves = KV_CACHE_GROUPS_MAX + 2 * k->max_seqs +
                     2 * (k->spill_blocks + k->kv_blocks) * o->sched.group_count;
    e->salts = cache_salts_create(&o->secret);
    if (!e->salts) return err_set(err, ST_NOMEM, "out of memory for an engine");
    struct sched_options sched = o->sched;
    struct spec_options spec = {
        .fallback = o->speculate, .vocab = o->vocab, .seq_max = sched_seq_max(k)};
    TRY(spec_create(&e->spec, &spec, err));
    sched.drafts = spec_source(e->spec);
    sched.kv_secret = cache_salts_block_secret(e->salts);
    TRY(sched_create(&e->sched, &sched, err));
    e->numbers.cost = cost_learned(sched_cost(e->sched));
    e->choice_cap = sched_seq_max(k);
    e->choices = mem_zalloc_array(e->choice_cap, sizeof(struct choice *));
    e->ends = mem_alloc_array(o->end_count + (size_t)1, sizeof(*e->ends));
    if (e->ends && o->end_count > 0) memcpy(e->ends, o->ends, o->end_count * sizeof(*e->ends));
    e->bounds = (struct request_bounds){.vocab = o->vocab,
                                        .ctx_tokens = o->sched.ctx_tokens,
                                        .ends = e->ends,
                                        .end_count = o->end_count,
                                        .spec = e->spec};
    bool made = e->choices && e->ends &&
                mailbox_create(&e->mailbox, sched_live_max(k), sched_batch_live_max(k)) == ST_OK &&
                recorder_create(&e->recorder, o->record_bytes, k->max_seqs, &e->numbers.sched,
                                sched_kv(e->sched)) == ST_OK;
    atomic_store(&e->places, sched_live_max(k));
    e->batch_places = sched_batch_live_max(k);
    struct control_rules rules = {o->sched.policy, *k};
    made = made && control_create(&e->control, &rules) == ST_OK;
    if (made) recorder_set_policy(e->recorder, policy_place(o->sched.policy));
    for (uint32_t i = 0; i < FLIGHTS && made; i++)
        made = plan_init(&e->flights[i].plan, k->max_seqs, moves) == ST_OK;
    return made ? ST_OK : err_set(err, ST_NOMEM, "out of memory for an engine");
}

enum status engine_create(struct engine **out, const struct engine_options *options,
                          struct err *err) {
    struct engine *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory for an engine");
    e->clock = options->clock ? options->clock : &clock_real;
    e->sched_options = options->sched;
    e->target_us = (int64_t)(options->sched.knobs.step_target_ms * 1000);
    pthread_mutex_init(&e->stats_lock, NULL);
    enum status st = create_parts(e, options, err);
    if (st == ST_OK)
        *out = e;
    else
        engine_destroy(e);
    return st;
}

const struct kv_cache *engine_kv(const struct engine *e) { return sched_kv(e->sched); }

struct spec *engine_spec(const struct engine *e) {
    return e->spec;
}

void engine_plug(struct engine *e, const struct runner *runner) {
    CHECK(!e->is_plugged);
    CHECK(runner->depth <= RUNNER_DEPTH_MAX);
    e->runner = *runner;
    e->is_plugged = true;
}

void engine_destroy(struct engine *e) {
    if (!e) return;
    engine_stop(e);
    if (e->is_plugged && e->mailbox) cancel_all(e);
    if (e->is_plugged) e->runner.close(e->runner.self);
    mailbox_destroy(e->mailbox);
    recorder_destroy(e->recorder);
    control_destroy(e->control);
    for (uint32_t i = 0; i < FLIGHTS; i++) plan_deinit(&e->flights[i].plan);
    sched_destroy(e->sched);
    cache_salts_destroy(e->salts);
    spec_destroy(e->spec);
    mem_free(e->choices);
    mem_free(e->ends);
    pthread_mutex_destroy(&e->stats_lock);
    mem_free(e);
}

void engine_watch(struct engine *e, int64_t limit_us, stall_fn *on_stall, void *ctx) {
    CHECK(!e->is_running);
    e->stall_limit_us = limit_us;
    e->on_stall = on_stall;
    e->stall_ctx = ctx;
}

enum status engine_start(struct engine *e, struct err *err) {
    CHECK(e->is_plugged);
    CHECK(!e->is_running);
    atomic_store(&e->stopping, false);
    int rc = pthread_create(&e->thread, NULL, engine_main, e);
    if (rc != 0)
        return err_set(err, ST_NOMEM, "cannot start the engine's thread: %s", strerror(rc));
    e->is_running = true;
    if (!e->on_stall) return ST_OK;
    rc = pthread_create(&e->watch_thread, NULL, watch_main, e);
    if (rc != 0) {
        engine_stop(e);
        return err_set(err, ST_NOMEM, "cannot start the watchdog's thread: %s", strerror(rc));
    }
    e->is_watched = true;
    return ST_OK;
}

void engine_stop(struct engine *e) {
    if (!e->is_running) return;
    atomic_store(&e->stopping, true);
    mailbox_wake(e->mailbox);
    pthread_join(e->thread, NULL);
    if (e->is_watched) pthread_join(e->watch_thread, NULL);
    e->is_running = e->is_watched = false;
}

static enum status refuse_full(const struct engine *e, const struct request_spec *spec,
                               struct err *err) {
    if (spec->is_batch)
        return err_set(err, ST_FULL,
                       "at most %u batch lines may run or wait (2 * max_seqs); try again later",
                       e->batch_places);
    return err_set(
        err, ST_FULL,
        "the queue is full: at most %u sequences may run or wait (max_seqs + queue_max); "
        "try again later",
        engine_places(e));
}

enum status engine_submit(struct engine *e, const struct request_spec *spec, struct request **out,
                          struct err *err) {
    uint64_t id = atomic_fetch_add(&e->next_id, 1) + 1;
    struct request *r;
    TRY(request_create(spec, id, &e->bounds, clock_now(e->clock), &r, err));
    r->salt = cache_salts_find(e->salts, spec->tenant, spec->cache_salt);
    enum status st = request_create_drafters(r, spec, &e->bounds, err);
    if (st == ST_OK && mailbox_submit(e->mailbox, r, !spec->wakes_later) != ST_OK)
        st = refuse_full(e, spec, err);
    if (st != ST_OK) {
        request_unref(r);
        return st;
    }
    atomic_fetch_add(&e->submitted, 1);
    *out = r;
    return ST_OK;
}

void engine_wake(struct engine *e) { mailbox_notify(e->mailbox); }

void engine_cancel(struct engine *e, struct request *r) {
    mailbox_cancel(e->mailbox, r, UINT32_MAX, FINISH_CANCELLED);
}

void engine_cancel_choice(struct engine *e, struct request *r, uint32_t choice,
                          enum finish_reason why) {
    CHECK(choice < r->n);
    mailbox_cancel(e->mailbox, r, 1u << choice, why);
}

uint32_t engine_places(const struct engine *e) { return atomic_load(&e->places); }
uint32_t engine_batch_places(const struct engine *e) { return e->batch_places; }

struct choice *engine_next(struct engine *e, int64_t timeout_us) {
    return mailbox_take_output(e->mailbox, timeout_us);
}

uint32_t engine_next_many(struct engine *e, struct choice **out, uint32_t max) {
    return mailbox_take_outputs(e->mailbox, out, max);
}

void engine_set_hook(struct engine *e, output_hook *hook, void *ctx) {
    mailbox_set_hook(e->mailbox, hook, ctx);
}

static int64_t stalled_us(const struct engine *e) {
    int64_t began_us = atomic_load(&e->step_began_us);
    return began_us ? clock_now(e->clock) - began_us : 0;
}

struct engine_stats engine_stats(struct engine *e) {
    pthread_mutex_lock(&e->stats_lock);
    struct numbers n = e->numbers;
    pthread_mutex_unlock(&e->stats_lock);
    struct engine_stats s = {.sched = n.sched,
                             .step_tokens = n.step_tokens,
                             .prompt_tokens = n.prompt_tokens,
                             .answer_tokens = n.answer_tokens,
                             .submitted = atomic_load(&e->submitted),
                             .refused = atomic_load(&e->refused),
                             .waiting = mailbox_waiting(e->mailbox),
                             .kv_used_share = n.kv_used_share,
                             .sched_us = atomic_load(&e->sched_us),
                             .step_us = atomic_load(&e->step_us),
                             .stalled_us = stalled_us(e),
                             .predicted_wait_us = n.wait_us + 512 * n.wait_us_per_token,
                             .cost = n.cost};
    memcpy(s.step_sizes, n.step_sizes, sizeof(s.step_sizes));
    return s;
}

double engine_predict_wait_us(struct engine *e, uint32_t prompt_tokens) {
    pthread_mutex_lock(&e->stats_lock);
    double us = e->numbers.wait_us + prompt_tokens * e->numbers.wait_us_per_token;
    pthread_mutex_unlock(&e->stats_lock);
    return us;
}

struct engine_liveness engine_liveness(const struct engine *e) {
    int64_t turn_us = atomic_load(&e->turn_us);
    return (struct engine_liveness){.steps = atomic_load(&e->step_count),
                                    .quiet_us = turn_us ? clock_now(e->clock) - turn_us : 0,
                                    .stalled_us = stalled_us(e),
                                    .failed_steps = atomic_load(&e->failed_steps)};
}

struct control *engine_control(const struct engine *e) {
    return e->control;
}

uint64_t engine_ask_map(struct engine *e) {
    uint64_t ticket = control_ask_map(e->control);
    mailbox_wake(e->mailbox);
    return ticket;
}

enum status engine_ask_change(struct engine *e, const struct control_rules *rules,
                              uint64_t *ticket) {
    TRY(control_ask_change(e->control, rules, ticket));
    mailbox_wake(e->mailbox);
    return ST_OK;
}

struct record_ring *engine_records(const struct engine *e) {
    return recorder_ring(e->recorder);
}

/* Every live sequence and its choice refer to each other. */
void engine_verify(const struct engine *e) {
    sched_verify(e->sched);
    for (uint32_t i = 0; i < e->choice_cap; i++) {
        const struct choice *c = e->choices[i];
        if (!c) continue;
        CHECK(c->seq == i);
        CHECK(c->is_live);
        CHECK(sched_seq_at(e->sched, i)->request == c->request->id);
    }
}

struct sched *engine_sched(struct engine *e) {
    return e->sched;
}
