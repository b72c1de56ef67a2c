/* sched/knobs.h - every setting of the scheduler, in one table.
 *
 * A row: name, kind, default, range, one sentence, and the policy it belongs to (NULL: all).
 * `--set NAME=VALUE`, `jitney knobs` and messages come from the table in knobs.c.
 */
#ifndef SCHED_KNOBS_H
#define SCHED_KNOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum preempt_mode { PREEMPT_SWAP, PREEMPT_RECOMPUTE, PREEMPT_AUTO };

struct knobs {
    /* Memory and batch. */
    uint32_t kv_blocks;       /* 0: from the memory that the engine was given */
    uint32_t block_size;      /* tokens in a block */
    uint32_t max_seqs;        /* maximum number of running sequences  */
    uint32_t max_step_tokens; /* tokens computed in one step, at most */
    double step_target_ms;    /* 0: no target; else prompts get what decoding leaves of it */
    uint32_t chunk_tokens;    /* of one prompt in one step, at most; 0: no limit of its own */
    bool prefix_cache;
    uint32_t prefix_blocks; /* that the prefix cache may spread over; 0: the engine's choice */
    uint32_t kv_type;       /* 0 f16, 1 f32, 2 int8, 3 fp8, 4 int4 */
    enum preempt_mode preempt;
    uint32_t preempt_max;  /* times that one sequence may be preempted */
    uint32_t spill_blocks; /* blocks that the spill store holds; 0: no swapping */
    double watermark;      /* share of the blocks that admission leaves free */
    double tenant_reserve; /* share of slots and blocks that a tenant above its share leaves */
    uint32_t queue_max;    /* sequences accepted beside max_seqs; they wait */
    double batch_slowdown; /* share by which batch lines may slow requests */
    uint32_t draft_max;    /* drafts of one sequence in a step (sched/drafts.h) */
    uint32_t threads;      /* 0: the default of base/pool.h */

    /* Policies. */
    double static_wait_ms;       /* static: start a batch that is not full after this long */
    uint32_t dynamic_batch;      /* dynamic: start as soon as this many wait */
    double dynamic_window_ms;    /* dynamic: or as soon as one has waited this long */
    double waiting_served_ratio; /* prefill-first: waiting / running that admits prompts */
    uint32_t max_waiting_tokens; /* prefill-first: in steps: prompts start after so many decodes */
    uint32_t prefill_every;      /* prefill-first: check the ratio every this many steps */
    uint32_t mlfq_levels;        /* mlfq: queues */
    double mlfq_quantum_ms;      /* mlfq: of the first queue; doubles from one to the next */
    double mlfq_starve_ms;       /* mlfq: after this long a sequence moves to the first queue */
    double sjf_margin;           /* sjf: an answer this much over its prediction may be displaced */
    double sjf_patience;         /* sjf: times of its own work that shorter ones may pass one */
    double deadline_shed;        /* deadline: late by this share of the target, it is ended */
    double fair_output_weight;   /* fair: an output token counts as this many input tokens */
};

struct knobs knobs_default(void);

/* ST_BAD with a sentence: unknown name (with the nearest), not a number, or out of its range
 * (which is said). */
enum status knobs_set(struct knobs *k, struct str name, struct str value, struct err *err);

/* "NAME=VALUE". */
enum status knobs_set_pair(struct knobs *k, struct str pair, struct err *err);

struct knob_row {
    const char *name, *policy, *unit, *help;
    char value[32], fallback[32], range[64]; /* as text */
};
uint32_t knobs_count(void);
/* May knob number i be changed while an engine runs? Not if it decides how much memory is set
 * aside. */
bool knobs_is_live(uint32_t i);
/* Of the live ones, max_step_tokens and queue_max can be at most what they were when the engine
 * started. ST_BAD names the one that is more. */
enum status knobs_check_caps(const struct knobs *start, const struct knobs *next, struct err *err);
void knobs_show(const struct knobs *k, uint32_t i, struct knob_row *out);

#endif
