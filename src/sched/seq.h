/* sched/seq.h - a sequence as the scheduler sees it: one stream of tokens.
 *
 * Prefill and decode are not different states. A sequence has `total` tokens, of which `computed`
 * have keys and values; a prompt, a decode step, a prefix hit and a recomputation after preemption
 * differ only in these two numbers.
 *
 *     WAITING --admitted--> RUNNING --finished--> ENDED --last event taken--> FREE
 *        ^  ^               |  ^ |                   |                          ^
 *        |  |               |  | |                   +--a plan under way--> LINGERING
 *        |  |               |  | |                      still uses it
 *        |  +--recompute----+  | +--swap out--> SWAPPED --swap in--> RUNNING
 *        |                     | parent's prompt computed
 *        +--no room--------- FORKING
 *
 * FORKING: a choice 1 .. n-1 of a request, which waits until choice 0, its parent, has computed the
 * prompt that they share. It becomes RUNNING then if the batch and the blocks have room for it,
 * else WAITING; WAITING also if the parent ends first.
 *
 * A sequence can be cancelled in any state; it is then ENDED. An ended sequence that a plan under
 * way still uses keeps its blocks and its entry in the table until that plan is applied; once its
 * last event has been taken too, its state is LINGERING.
 *
 * A policy reads this struct. It writes only `policy`, its own notes.
 */
#ifndef SCHED_SEQ_H
#define SCHED_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/cache.h"

typedef uint32_t seq_idx; /* index into the scheduler's table of sequences */
#define SEQ_NONE UINT32_MAX
#define SEAT_NONE UINT32_MAX

enum seq_state {
    SEQ_FREE,
    SEQ_WAITING,
    SEQ_RUNNING,
    SEQ_SWAPPED,
    SEQ_FORKING,
    SEQ_ENDED,
    SEQ_LINGERING,
};

enum finish_reason {
    FINISH_NONE,      /* it has not ended */
    FINISH_STOP,      /* an end token or a stop string */
    FINISH_LENGTH,    /* max_tokens, or the context is full */
    FINISH_CANCELLED, /* by the client or the operator */
    FINISH_EXPIRED,   /* its deadline passed, or the policy shed it */
    FINISH_REFUSED,   /* it can never be served */
    FINISH_ERROR,     /* its computation failed */
};
const char *finish_name(enum finish_reason r); /* "stop", "length", "cancelled", ... */

/* How urgent a request is. Zero: not given. */
struct urgency {
    int32_t priority; /* larger is more important */
    int64_t ttft_target_us, tpot_target_us;
    int64_t expires_us; /* absolute; past it the request ends with FINISH_EXPIRED */
};

/* Per-sequence memory of the policy: a scheduler has one policy, so one member is in use. A policy
 * that is not listed stores nothing. Zeroed at submission. */
union policy_notes {
    struct {
        int64_t used_us;   /* compute time in its queue */
        int64_t joined_us; /* when it joined its queue */
        uint32_t level;    /* its queue, 0 is the first */
        bool is_preempted;
    } mlfq;
    struct {
        int64_t answer_tokens; /* predicted */
        int64_t work_left_us;  /* predicted */
        bool has_exceeded;     /* its answer is longer than predicted */
        bool is_counted;       /* in the state's exceeded_count */
    } sjf;
    struct {
        int64_t latest_start_us; /* of its prompt, to meet the target */
        bool is_hopeless;        /* it can no longer meet the target */
    } deadline;
    struct {
        int64_t start_tag; /* without later charges */
        int64_t service;   /* that the tags count for it */
        uint32_t output;   /* answer tokens that are charged, or that the tags count */
    } fair;
};

struct sched_seq {
    /* What every step uses, in one cache line. */
    enum seq_state state;
    kv_seq kv;       /* valid while RUNNING or SWAPPED, and while an ended sequence lingers */
    int32_t *tokens; /* request memory, room for total_max; the scheduler appends */
    uint32_t prompt_tokens, total, total_max;
    uint32_t computed;     /* tokens whose keys and values are in the cache or the spill store */
    uint32_t planned;      /* tokens that the newest plan computes, drafts too; 0: it has no row */
    uint32_t writable_end; /* positions [computed, writable_end) are in blocks that it may write */
    uint32_t run_steps;    /* steps that it was part of since it was last admitted */
    uint32_t run_idx;      /* in the scheduler's array `running` */
    int64_t last_token_us;
    int64_t key; /* policy->key at the last event */

    union policy_notes policy;
    int64_t arrived_us, admitted_us, first_token_us;
    int64_t order; /* its place in the order of arrival; with has_share tenants take turns in it */
    seq_idx next;  /* in the scheduler's lists */
    uint32_t preempt_count;
    uint32_t cached_tokens; /* of the prompt, found in the prefix cache at its first admission */
    seq_idx fork_parent;    /* FORKING: the choice whose prompt it waits for */

    /* Who it is, in one cache line: the step record copies it for every row. */
    uint64_t request; /* the engine's number for the request */
    uint32_t choice;  /* 0 .. n-1 */
    uint32_t tenant;
    /* Its place in the batch, below max_seqs, from its admission until it ends or is preempted; no
     * other sequence has it then. SEAT_NONE: it has none. An ended sequence remembers its last. */
    uint32_t seat;
    struct kv_salt salt;
    bool has_share;         /* it may take only what its tenant's share allows */
    bool reads_no_prefix;   /* it takes nothing from the prefix cache */
    bool one_row_at_a_time; /* no ahead plan has a row of its prompt while a plan has one */
    bool waits_for_token;   /* no ahead plan has a row of it while a plan samples for it */
    bool is_batch;          /* a batch line (sched/lines.h); no policy sees one */
    uint8_t draft_max;      /* drafts in one step (sched/drafts.h); 0: none */
    struct urgency urgency;
};

/* Tokens still to be computed before the next one can be sampled: 1 for a sequence that decodes. */
static inline uint32_t seq_left(const struct sched_seq *s) { return s->total - s->computed; }
/* More than one token is left to compute. Also true while an answer is recomputed after a
 * preemption; false for a prompt with one token left. */
static inline bool seq_is_prefilling(const struct sched_seq *s) { return seq_left(s) > 1; }
static inline uint32_t seq_generated(const struct sched_seq *s) {
    return s->total - s->prompt_tokens;
}

#endif
