/* sched/sched.h - which sequences run in the next step, and with how many tokens.
 *
 * The mechanism that all policies share: a bounded table of sequences, a heap of waiting sequences
 * (the queue), an array of running ones, a heap of timers, a token budget and KV blocks.
 *
 *     sched_submit, sched_cancel      requests arrive and are cancelled at any time
 *     sched_plan                      select sequences, take blocks, list the rows to compute
 *     sched_apply                     advance sequences, append tokens, finish, free
 *     sched_next_event                which sequences have new tokens or have ended
 *
 * One plan may be made ahead, while the plan before it is under way. It assumes that the plan under
 * way succeeds and that no sequence ends in it. Where that is wrong, rows of the ahead plan are
 * dropped: they change no answer, no block, no entry of the prefix cache and no statistics.
 *
 * Pure arithmetic on plain structs: no clock, no device, no model, no text, no I/O. A step
 * allocates nothing and costs in proportion to the running sequences, not to the waiting ones.
 *
 * Guarantees: a request that can never fit is refused at once with the numbers. Every accepted
 * sequence ends exactly once. If a running sequence needs a block and the pool has none, another
 * one is preempted: swapped out or recomputed later. A sequence that was preempted preempt_max
 * times can be preempted only by the oldest running sequence, which can always finish (README.md,
 * I4 and I5). A sequence whose next prompt block another sequence is computing waits for it. Batch
 * lines (is_batch) get what all others leave, and yield it in the plan that needs it (I13 to I20).
 *
 * Lifetime: one per engine. Thread: the engine thread. Memory: all allocated by create.
 */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/cost.h"
#include "sched/drafts.h"
#include "sched/knobs.h"
#include "sched/plan.h"
#include "sched/policy.h"
#include "sched/seq.h"

struct sched; /* opaque */

struct sched_options {
    const struct sched_policy *policy;
    struct knobs knobs;
    struct cost_model cost;
    uint32_t ctx_tokens;  /* the longest sequence */
    uint32_t group_count; /* KV groups and their windows */
    uint32_t windows[KV_CACHE_GROUPS_MAX];
    uint64_t kv_identity;
    struct siphash_key kv_secret; /* of the keys of KV blocks */
    struct draft_source drafts;   /* propose NULL: no sequence has drafts */
    uint32_t draft_rows_max;      /* drafts in one step; 0: none */
};

enum status sched_create(struct sched **out, const struct sched_options *options, struct err *err);
void sched_destroy(struct sched *s); /* NULL is fine */
/* Sequences that may run or wait at one time: max_seqs and queue_max. It does not matter how
 * many of them run already, so a burst at an idle scheduler is accepted as far as it would be
 * later. */
uint32_t sched_live_max(const struct knobs *k);
uint32_t sched_batch_live_max(const struct knobs *k); /* batch lines, besides: 2 * max_seqs */
uint32_t sched_seq_max(const struct knobs *k);        /* every seq_idx is below this */

/* One choice of a request. `tokens` has room for total_max and its first prompt_tokens are the
 * prompt. Choices 1 .. n-1 of a request name choice 0 as `parent` and share its prompt. */
struct sched_submit {
    uint64_t request; /* the engine's number */
    uint32_t choice;
    seq_idx parent; /* SEQ_NONE for choice 0 */
    uint32_t tenant;
    bool has_share; /* there are other tenants: its tenant must not take everything */
    struct kv_salt salt;
    struct urgency urgency;
    int32_t *tokens; /* borrowed until the last event of the sequence was taken */
    uint32_t prompt_tokens, total_max;
    bool reads_no_prefix;   /* compute every token, also those that the prefix cache has */
    bool one_row_at_a_time; /* no ahead plan has a row of its prompt while a plan has one */
    bool waits_for_token;   /* no ahead plan has a row of it while a plan samples for it */
    /* A line of a batch job: it gets what others leave, and is preempted when they need it. */
    bool is_batch;
    uint32_t draft_max; /* drafts in one step, at most DRAFT_MAX; 0: none */
};

/* ST_BAD: it can never fit (`err` has the numbers). ST_FULL: the queue is full, or that of
 * batch lines. */
enum status sched_submit(struct sched *s, const struct sched_submit *in, int64_t now_us,
                         seq_idx *out, struct err *err);

/* End the sequence now, in any state; its last event is available at once. If a plan under way uses
 * the sequence, its row is dropped, and its blocks and its index stay in use until that plan is
 * applied. Does nothing if the sequence has ended. */
void sched_cancel(struct sched *s, uint64_t request, uint32_t choice, enum finish_reason why,
                  int64_t now_us);

/* Fill `plan`, which has room for max_seqs rows. If it is empty (no rows, no moves) there is
 * nothing to do until sched_next_timer_us, the next submit or the next apply. Otherwise it is under
 * way until sched_apply or sched_fail is called with it; the caller does not change it meanwhile.
 *
 * If one plan is under way, this makes an ahead plan. The caller applies the older plan first. An
 * ahead plan preempts no sequence; if a preemption is needed it sets plan->wants_drain. After
 * sched_fail the caller applies all plans under way before it calls sched_plan again. */
void sched_plan(struct sched *s, int64_t now_us, struct plan *plan);

/* The oldest plan under way was run with this result. Rows of sequences that have ended meanwhile
 * and rows that failed are dropped (plan_row.is_dropped). */
void sched_apply(struct sched *s, struct plan *plan, const struct step_result *result,
                 int64_t now_us);

/* The oldest plan under way could not be run: its sequences end with FINISH_ERROR. The others
 * continue; those whose blocks the plan should have moved are recomputed, and their rows in an
 * ahead plan are dropped. */
void sched_fail(struct sched *s, struct plan *plan, int64_t now_us);

/* The next sequence with new tokens or an end; each is returned at most once until it changes
 * again. False: there are no more. After an event with a finish reason the sequence no longer
 * exists and its tokens belong to the caller. */
struct sched_event {
    seq_idx seq; /* may be reused after the last event; if it lingers, after the last plan that uses
                    it */
    uint64_t request;
    uint32_t choice;
    uint32_t seat;  /* that it has, or had when it ended; SEAT_NONE: it was not in the batch */
    uint32_t total; /* number of tokens, prompt included */
    enum finish_reason finish;
    uint32_t cached_tokens, preempt_count;
    uint32_t drafted, accepted; /* drafts that were compared with samples; equal ones */
    int64_t admitted_us, first_token_us;
};
bool sched_next_event(struct sched *s, struct sched_event *out);

/* Another policy and other knobs from now on. No plan is under way. Knobs that are not live
 * (knobs_is_live) are as they were. queue_max is at most what it was at create; it is the caller
 * who keeps to a lower one, so that the scheduler refuses none that the caller has accepted. Every
 * sequence stays in its state; if the new policy reserves, that applies to those that are admitted
 * later. Costs in proportion to the live sequences. */
void sched_change(struct sched *s, const struct sched_policy *policy, const struct knobs *knobs,
                  int64_t now_us);

int64_t sched_next_timer_us(const struct sched *s); /* INT64_MAX: none */
bool sched_is_idle(const struct sched *s);          /* nothing waits, runs or is swapped out */

struct sched_stats {
    uint32_t waiting, running, swapped;                   /* batch lines included */
    uint32_t batch_waiting, batch_running, batch_swapped; /* of these, the batch lines */
    uint64_t steps, preempted, swapped_out, recomputed_tokens, finished;
    uint64_t ahead_plans;  /* made while another was under way, without empty ones */
    uint64_t dropped_rows; /* of sequences that had ended or are recomputed, without failed rows */
    /* Token positions in held blocks (in reserved blocks if the policy reserves) and how many of
     * them hold a token, summed over steps; waste = 1 - used / held. */
    uint64_t held_positions, used_positions;
    struct draft_stats drafts;
    uint64_t heap_moves; /* entries moved in the heaps since create: the cost of the queues */
    struct kv_cache_stats kv;
};
struct sched_stats sched_stats(const struct sched *s);
const struct cost_model *sched_cost(const struct sched *s);
/* How long a step without interactive prompts takes: what batch lines are weighed by. */
double sched_step_us(const struct sched *s, uint32_t rows, uint32_t tokens, uint64_t attended);
/* The 95th percentile of TPOT without batch lines (line_pace.h); 0: not known. */
double sched_pace_us(const struct sched *s);
struct kv_cache *sched_kv(const struct sched *s);

/* An estimate, for Retry-After, of how long a request with such a prompt would wait for its first
 * token if it arrived now: from the waiting and running sequences and the cost model. Batch lines
 * do not count. */
double sched_predict_wait_us(const struct sched *s, uint32_t prompt_tokens);
const struct sched_seq *sched_seq_at(const struct sched *s, seq_idx i);

/* CHECK all invariants; slow. */
void sched_verify(const struct sched *s);

#endif
