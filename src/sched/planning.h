/* sched/planning.h - the state of a plan while it is made, shared by the functions that make it.
 *
 * Internal to the scheduler. Lifetime: one call of sched_plan, on its stack.
 */
#ifndef SCHED_PLANNING_H
#define SCHED_PLANNING_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/plan.h"

struct sched;

struct planning {
    struct sched *s;
    struct plan *plan;
    int64_t now_us;
    bool is_ahead;        /* another plan is under way */
    uint32_t prompt_left; /* tokens that prompts may still take */
    uint32_t keep_free;   /* blocks that admission does not use */
    uint64_t pending;     /* blocks that running sequences still need for the tokens they have */
    bool is_pending_known, is_admitting;
    uint32_t rekeyed;     /* keys updated so far; at most REKEY_MAX */
    bool has_prompt;      /* a prompt row is planned */
    bool is_mixed;        /* a decode row comes after a prompt row */
    uint32_t order_count; /* of s->order */
    bool is_solo;         /* its only row is a prompt too long to share a step */
    uint32_t displaced;   /* sequences displaced so far; at most DISPLACE_MAX */
    enum wait_why stop;   /* why no further sequence of the queue is admitted */
    bool lacks_blocks;    /* an interactive sequence waits for blocks: lines take none */
    double line_limit_us; /* how long the step may take with rows of lines */
    double others_us;     /* what it takes without lines; token_count is 0: nothing */
    double line_free_us;  /* what lines may add to it without credit, as far as the pace allows */
    double line_earned_us, line_credit_us; /* credit: earned by this step; in all */
    bool line_lacks_credit;                /* a line has no row for want of credit */
    uint64_t line_pending; /* blocks that running lines still need for the tokens they have */
    bool is_line_pending_known;
};

#endif
