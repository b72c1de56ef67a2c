/* sim/world_traffic.c - what clients ask, when, and when they call it off; see sim/world_int.h. */
#include <stdatomic.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/world_int.h"

enum { SALT_BYTES = 16 };

/* ---- time ---- */

static int64_t draw_gap_us(struct world *w) {
    double mean = w->habits.gap_us;
    double gap = w->habits.arrivals == ARRIVE_BURSTS ? mean * w->habits.burst
                                                     : -mean * log(1 - rng_unit(&w->rng));
    return (int64_t)gap + 1;
}

static bool wants_more(const struct world *w) {
    if (w->is_draining || w->client_count == REQUESTS_MAX) return false;
    return w->habits.arrivals != ARRIVE_CLOSED_LOOP || w->live_count < w->habits.outstanding;
}

int64_t world_next_us(void *ctx) {
    const struct world *w = ctx;
    int64_t next_us = wants_more(w) ? w->next_arrival_us : INT64_MAX;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        if (c->call_off != CALL_OFF_AT_TIME || c->is_called) continue;
        if (c->call_us < next_us) next_us = c->call_us;
    }
    return next_us;
}

/* ---- texts ---- */

static void draw_tokens(struct world *w, int32_t *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        out[i] = (int32_t)rng_below(&w->rng, w->engine_options.vocab);
}

void world_traffic_begin(struct world *w) {
    for (uint32_t i = 0; i < w->habits.stems; i++) {
        w->stems[i].count = TOKENS_MAX;
        draw_tokens(w, w->stems[i].tokens, TOKENS_MAX);
    }
    w->next_arrival_us = w->clock.now_us + 1;
}

/* A beginning that others share, then words of its own. */
static void draw_prompt(struct world *w, struct text *out) {
    uint32_t count = world_log_between(w, 1, w->habits.prompt_max), shared = 0;
    const struct text *from = NULL;
    if (w->history_count > 0 && world_chance(w, w->habits.share_history)) {
        from = &w->history[world_between(w, 0, w->history_count - 1)];
        shared = from->count;
        if (world_chance(w, 0.8)) { /* the same client asks on */
            out->tenant = from->tenant;
            out->salt = from->salt;
        }
    } else if (world_chance(w, w->habits.share_stem)) {
        from = &w->stems[world_between(w, 0, w->habits.stems - 1)];
        shared = world_chance(w, 0.5) ? count : world_between(w, 0, count);
    }
    if (from && shared > 0) memcpy(out->tokens, from->tokens, shared * sizeof(out->tokens[0]));
    if (shared + 4 > count) count = shared + world_between(w, 0, 4);
    if (count == 0) count = 1;
    if (count > TOKENS_MAX) count = TOKENS_MAX;
    if (count > shared) draw_tokens(w, out->tokens + shared, count - shared);
    out->count = count;
}

/* ---- calling off ---- */

static void draw_call_off(struct world *w, struct client *c) {
    static const enum seq_state states[] = {SEQ_WAITING, SEQ_RUNNING, SEQ_SWAPPED, SEQ_FORKING};
    if (!world_chance(w, w->habits.share_call_off)) return;
    c->call_off = (enum call_off)world_between(w, CALL_OFF_AT_ONCE, CALL_OFF_LATE);
    c->call_state = states[world_between(w, 0, 3)];
    c->call_choice = world_between(w, 0, c->n - 1);
    c->call_tokens = c->prompt_tokens + world_log_between(w, 1, c->total_max - c->prompt_tokens);
    c->call_us = c->submitted_us + w->typical_us * world_log_between(w, 1, 300);
    c->call_one = world_chance(w, 0.3) || c->call_off == CALL_OFF_UNDER_WAY;
}

static void tally_call_off(struct world *w, const struct client *c) {
    const struct choice *choice = &c->request->choices[c->call_choice];
    if (c->ended == c->n) {
        world_tally(w, COUNT_CANCEL_LATE);
        return;
    }
    if (!choice->is_live) {
        if (!c->choices[c->call_choice].has_ended) world_tally(w, COUNT_CANCEL_UNSEEN);
        return;
    }
    const struct sched_seq *seq = sched_seq_at(w->sched, choice->seq);
    switch (seq->state) {
    case SEQ_WAITING:
        world_tally(w, COUNT_CANCEL_WAITING);
        break;
    case SEQ_RUNNING:
        world_tally(w, seq_is_prefilling(seq) ? COUNT_CANCEL_PROMPT : COUNT_CANCEL_DECODE);
        break;
    case SEQ_SWAPPED:
        world_tally(w, COUNT_CANCEL_SWAPPED);
        break;
    case SEQ_FORKING:
        world_tally(w, COUNT_CANCEL_FORKING);
        break;
    default:
        break;
    }
}

void world_call_off(struct world *w, struct client *c) {
    tally_call_off(w, c);
    c->is_called = true;
    c->called_turn = w->turn;
    for (uint32_t i = 0; i < c->n; i++)
        if (!c->call_one || i == c->call_choice) c->choices[i].is_asked = true;
    if (c->call_one) {
        engine_cancel_choice(w->engine, c->request, c->call_choice, FINISH_STOP);
        world_tally(w, COUNT_STOP_STRINGS);
    } else {
        engine_cancel(w->engine, c->request);
    }
    world_trace(w, "  call off request %lu choice %d", (unsigned long)c->request->id,
                c->call_one ? (int)c->call_choice : -1);
}

/* The step of this turn must end it, not the next one's. */
static void call_off_before_step(struct world *w, struct client *c) {
    world_call_off(w, c);
    c->called_turn = w->turn - 1;
}

static bool is_time_to_call(const struct world *w, const struct client *c) {
    const struct choice *choice = &c->request->choices[c->call_choice];
    if (c->call_off == CALL_OFF_AT_TOKEN)
        return atomic_load(&choice->ready) >= c->call_tokens &&
               !c->choices[c->call_choice].has_ended;
    if (c->call_off != CALL_OFF_IN_STATE || !choice->is_live) return false;
    return sched_seq_at(w->sched, choice->seq)->state == c->call_state;
}

void world_call_off_by_state(struct world *w) {
    for (uint32_t i = 0; i < w->live_count && !w->is_draining; i++) {
        struct client *c = &w->clients[w->live[i]];
        if (!c->is_called && is_time_to_call(w, c)) world_call_off(w, c);
    }
}

/* ---- arrivals ---- */

static void draw_urgency(struct world *w, struct urgency *u) {
    u->priority = (int32_t)world_between(w, 0, 4) - 2;
    if (world_chance(w, w->habits.share_expires))
        u->expires_us = w->typical_us * world_log_between(w, 1, 300);
    if (!world_chance(w, w->habits.share_targets)) return;
    u->ttft_target_us = w->typical_us * world_log_between(w, 1, 300);
    if (world_chance(w, 0.5)) u->tpot_target_us = w->typical_us * world_log_between(w, 1, 20);
}

/* Most requests can be served; a few are larger than everything. */
static void cut_to_fit(struct world *w, struct request_spec *spec) {
    uint32_t capacity = w->knobs->kv_blocks * w->knobs->block_size;
    uint32_t ctx = w->engine_options.sched.ctx_tokens, most = capacity < ctx ? capacity : ctx;
    if (world_chance(w, w->habits.share_big)) return;
    if (spec->prompt_tokens >= most) spec->prompt_tokens = most - 1;
    if (spec->prompt_tokens + spec->max_tokens > most)
        spec->max_tokens = most - spec->prompt_tokens;
}

static void note_client(struct world *w, const struct request_spec *spec, uint32_t salt,
                        struct request *r) {
    struct client *c = &w->clients[w->client_count];
    c->request = r;
    c->n = spec->n;
    c->prompt_tokens = spec->prompt_tokens;
    c->total_max = r->choices[0].total_max;
    c->tenant = spec->tenant;
    c->owner = (uint64_t)spec->tenant << 32 | salt;
    c->seed = spec->sample.seed;
    c->priority = spec->urgency.priority;
    c->ignore_end = spec->ignore_end;
    c->is_batch = spec->is_batch;
    c->is_slow = world_chance(w, 0.2);
    c->submitted_us = w->clock.now_us;
    c->expires_us = r->urgency.expires_us;
    c->has_ttft_target = spec->urgency.ttft_target_us > 0;
    uint64_t text = sim_text_begin(c->owner);
    for (uint32_t i = 0; i < spec->prompt_tokens; i++) text = sim_text_add(text, spec->prompt[i]);
    for (uint32_t i = 0; i < c->n; i++)
        c->choices[i] = (struct client_choice){
            .reported = c->prompt_tokens, .seen = c->prompt_tokens, .text = text};
    draw_call_off(w, c);
    w->live[w->live_count++] = w->client_count;
    w->queue_bound[c->is_batch] += c->n;
}

static void note_refused(struct world *w, const struct request_spec *spec, enum status st) {
    bool is_too_long = spec->prompt_tokens >= w->engine_options.sched.ctx_tokens;
    if (st == ST_BAD && is_too_long)
        world_tally(w, COUNT_BAD_REQUESTS);
    else if (st == ST_FULL && !is_too_long)
        world_tally(w, COUNT_INBOX_FULL);
    else if (st != ST_NOMEM) /* which is not an error here */
        world_wrong(w, "a request of %u tokens was refused as %s", spec->prompt_tokens,
                    status_name(st));
}

static void submit_one(struct world *w) {
    struct text prompt = {.tenant = world_between(w, 0, w->habits.tenants - 1),
                          .salt = world_between(w, 0, w->habits.salts - 1)};
    char salt[SALT_BYTES];
    draw_prompt(w, &prompt);
    int salt_bytes = prompt.salt ? snprintf(salt, sizeof(salt), "salt-%u", prompt.salt) : 0;
    struct request_spec spec = {.prompt = prompt.tokens,
                                .prompt_tokens = prompt.count,
                                .max_tokens = world_log_between(w, 1, w->habits.answer_max),
                                .n = world_between(w, 1, w->habits.n_max),
                                .sample = sample_params_default(),
                                .ignore_end = world_chance(w, 0.2),
                                .want_logprobs = world_chance(w, 0.1),
                                .tenant = prompt.tenant,
                                .has_share = world_has_shares(w),
                                .cache_salt = {salt, (size_t)salt_bytes}};
    spec.sample.temperature = 0;
    spec.sample.seed = rng_next(&w->rng);
    spec.want_prompt_logprobs = spec.sample.seed % 8 == 0;
    spec.is_batch = spec.sample.seed / 8 % 100 < world_batch_percent(w);
    draw_urgency(w, &spec.urgency);
    cut_to_fit(w, &spec);
    struct err err = {0};
    struct request *r = NULL;
    enum status st = engine_submit(w->engine, &spec, &r, &err);
    world_tally(w, COUNT_REQUESTS);
    if (st == ST_OK)
        note_client(w, &spec, prompt.salt, r);
    else
        note_refused(w, &spec, st);
    w->client_count++;
    if (st != ST_OK) return;
    struct client *c = &w->clients[w->client_count - 1];
    CHECK(r->id == w->client_count);
    world_trace(w, "  request %lu: %u tokens + %u, %u choices, tenant %u", (unsigned long)r->id,
                c->prompt_tokens, c->total_max - c->prompt_tokens, c->n, c->tenant);
    if (c->call_off == CALL_OFF_AT_ONCE) call_off_before_step(w, c);
}

static void arrive(struct world *w, int64_t now_us) {
    const struct habits *h = &w->habits;
    uint32_t count = h->arrivals == ARRIVE_BURSTS ? h->burst : 1;
    if (h->arrivals == ARRIVE_CLOSED_LOOP) {
        uint32_t room = h->outstanding - w->live_count;
        count = world_between(w, 1, room < 4 ? room : 4);
    }
    for (uint32_t i = 0; i < count && w->client_count < REQUESTS_MAX; i++) submit_one(w);
    w->next_arrival_us = now_us + draw_gap_us(w);
}

void world_act(void *ctx, struct engine *e, int64_t now_us) {
    struct world *w = ctx;
    CHECK(e == w->engine);
    while (wants_more(w) && w->next_arrival_us <= now_us) arrive(w, now_us);
    for (uint32_t i = 0; i < w->live_count; i++) {
        struct client *c = &w->clients[w->live[i]];
        if (c->call_off == CALL_OFF_AT_TIME && !c->is_called && c->call_us <= now_us)
            call_off_before_step(w, c);
    }
}
