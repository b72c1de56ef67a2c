/* sim/world_int.h - what the files of a world share.
 *
 *     world_draw.c     what a seed makes of engine, knobs and faults
 *     world_traffic.c  arrivals: what is asked, when, and when it is called off
 *     world_client.c   what a client sees: tokens, ends, and whether they are right
 *     world_plan.c     what a plan may and may not say
 *     world_lines.c    what it may and may not say about batch lines
 *     world_drafts.c   a drafter, and what a plan may and may not say about drafts
 *     world_check.c    what holds after a step, and at the end
 *     world.c          the run
 */
#ifndef SIM_WORLD_INT_H
#define SIM_WORLD_INT_H

#include "base/check.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/runner_sim.h"
#include "sim/world.h"

enum {
    REQUESTS_MAX = 6000,
    WORLD_CHOICES_MAX = 6,
    STEMS_MAX = 6,
    HISTORY_MAX = 8, /* finished texts that a later prompt may go on from */
    TOKENS_MAX = 320,
    MOVES_ONLY_MAX = 8, /* steps in a row that move blocks and compute nothing */
    REKEYED_MIN = 12,   /* keys that a plan asks for anew, if so many have grown */
    FIRED_MIN = 2,      /* timers that a plan fires at least, if so many are due */
};

/* When a client calls its request off. */
enum call_off {
    CALL_OFF_NEVER,
    CALL_OFF_AT_ONCE,   /* before the engine has looked */
    CALL_OFF_AT_TIME,   /* from arrival */
    CALL_OFF_IN_STATE,  /* when choice `call_choice` is first seen in `call_state` */
    CALL_OFF_AT_TOKEN,  /* when that choice has so many */
    CALL_OFF_UNDER_WAY, /* while a plan runs that computes it */
    CALL_OFF_LATE,      /* when everything has ended */
};

struct client_choice {
    uint32_t reported; /* tokens, prompt included, at the last event */
    uint32_t seen;     /* those that were read and were right */
    uint64_t text;     /* of those, as the runner sees it */
    uint32_t moves;    /* number of events */
    bool has_ended;
    uint64_t first_turn;    /* the turn that planned its first row; 0: none has */
    bool is_asked;          /* to end, by the client */
    bool is_faulted;        /* its row was made to fail */
    uint64_t faulted_turn;  /* and it ends in this turn at the latest */
    uint32_t preempted;     /* times */
    uint32_t overdue_turns; /* since a timer of it should have fired */
};

struct client {
    struct request *request; /* NULL once it was let go */
    uint32_t n, prompt_tokens, total_max, tenant, ended;
    uint64_t owner, seed;
    int32_t priority;
    bool ignore_end, is_slow, is_batch;
    int64_t submitted_us, expires_us; /* absolute; 0: never */
    bool has_ttft_target;
    enum call_off call_off;
    enum seq_state call_state;
    uint32_t call_choice, call_tokens;
    int64_t call_us; /* absolute */
    bool call_one;   /* only call_choice, as a stop string does */
    bool is_called;  /* it did */
    uint64_t called_turn;
    struct client_choice choices[WORLD_CHOICES_MAX];
};

enum arrivals { ARRIVE_POISSON, ARRIVE_BURSTS, ARRIVE_CLOSED_LOOP };

/* How the world's clients behave; shares are of requests. */
struct habits {
    enum arrivals arrivals;
    double gap_us;        /* mean */
    uint32_t burst;       /* at one time */
    uint32_t outstanding; /* closed loop */
    uint32_t prompt_max, answer_max, tenants, salts, n_max, stems;
    double share_stem, share_history, share_call_off, share_expires, share_targets, share_big;
    double fail_row, fail_step, slow_step; /* of steps */
};

struct text {
    int32_t tokens[TOKENS_MAX];
    uint32_t count, tenant, salt;
};

struct world {
    struct world_options options;
    struct world_outcome *out;
    struct rng rng;
    const struct sched_policy *policy;
    struct engine_options engine_options;
    struct habits habits;
    struct runner_sim_options runner_options;
    struct runner runner;
    struct sim_clock clock;
    struct engine *engine;
    const struct sched *sched;
    const struct knobs *knobs;
    int64_t typical_us; /* a step */

    struct client *clients; /* by number of request, which begins at 1 */
    uint32_t client_count;
    uint32_t *live; /* clients that have not ended */
    uint32_t live_count;
    int64_t next_arrival_us;
    struct text stems[STEMS_MAX], history[HISTORY_MAX];
    uint32_t history_count;

    uint64_t reported_tokens; /* of answers, in all events */
    uint64_t failed_turn;     /* the last turn that submitted a plan that fails */
    uint64_t turn;            /* calls of engine_step, the one under way included */
    int64_t began_us;         /* the last one */
    bool is_draining;
    bool is_abandoned;   /* destroyed under load, without a drain */
    uint64_t drain_left; /* steps */
    uint32_t moves_only;
    uint64_t evicted;     /* blocks, when the turn began */
    uint64_t ahead_plans; /* when the last plan was made */
    /* By steps of others; to them, by rows of lines, beyond the pace. */
    double lines_earned_us, lines_added_us;
    struct world_step_size {
        uint32_t rows, tokens;
        uint64_t attended;
    } last_plan;
    uint32_t queue_bound[2]; /* choices that may have lived during this turn; [1]: of lines */
    bool has_windows;
    struct rng draft_rng;
    int32_t drafting; /* sequences with drafts that have begun and not ended */
};

static inline void world_tally(struct world *w, enum world_count c) { w->out->counts[c]++; }

/* The first thing that is wrong ends the run. */
void world_wrong(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_hash(struct world *w, uint64_t value);
void world_trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool world_chance(struct world *w, double share);
uint32_t world_between(struct world *w, uint32_t min, uint32_t max);     /* uniform */
uint32_t world_log_between(struct world *w, uint32_t min, uint32_t max); /* small ones more often */

void world_draw(struct world *w);

/* NULL: the engine has no such request. */
struct client *world_client_of(const struct world *w, uint64_t request);

/* ---- world_traffic.c: struct sim_clients ---- */

void world_traffic_begin(struct world *w);
int64_t world_next_us(void *ctx);
void world_act(void *ctx, struct engine *e, int64_t now_us);
void world_call_off(struct world *w, struct client *c);
void world_call_off_by_state(struct world *w);

/* ---- world_client.c ---- */

void world_identify(void *ctx, seq_idx seq, uint64_t *owner, uint64_t *seed);
void world_on_output(void *ctx, struct choice *choice, int64_t now_us);

/* ---- world_plan.c ---- */

void world_on_plan(void *ctx, const struct plan *plan, struct sim_fault *fault);

/* ---- world_lines.c ---- */

void world_check_lines(struct world *w, const struct plan *plan);
void world_check_line_victim(struct world *w, const struct sched_seq *victim);
/* An interactive sequence is preempted: no line may run. */
void world_check_victim_beside_lines(struct world *w, const struct sched_seq *victim);

/* ---- world_drafts.c ---- */

void world_draw_drafts(struct world *w);
void world_plug_drafts(struct world *w);
void world_check_drafts(struct world *w, const struct plan *plan);
void world_count_drafts(struct world *w);

/* ---- world_check.c ---- */

void world_check_step(struct world *w);
void world_check_end(struct world *w);

/* Do the rules for several tenants hold (has_share)? By a number that is drawn anyway. */
static inline bool world_has_shares(const struct world *w) { return w->habits.tenants > 2; }

/* How many of 100 requests are batch lines; by numbers that are drawn anyway. */
static inline uint32_t world_batch_percent(const struct world *w) {
    return w->habits.salts == 3 ? 15 * w->habits.tenants : 0;
}

#endif
