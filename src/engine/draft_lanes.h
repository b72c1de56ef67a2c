/* engine/draft_lanes.h - which sequences a draft model keeps keys and values of, and of which text.
 *
 * A *lane* is room for the keys and values of one sequence: blocks of its own, always the same. The
 * sequences that ask for drafts get the lanes. A sequence gives its lane back when it ends; if none
 * is free, a sequence that has not asked for some time loses its lane. A lane remembers the tokens
 * that its keys and values belong to. If drafts were refused, the text goes on with other tokens:
 * what both begin with is still used, and the rest is overwritten before it is read.
 *
 * Numbers only: no device memory. Lifetime: one per draft model. Thread: the engine thread.
 * Memory: all taken by create.
 */
#ifndef ENGINE_DRAFT_LANES_H
#define ENGINE_DRAFT_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/sampling.h"
#include "sched/drafts.h"

enum { DRAFT_LANE_IDLE_CALLS = 64 }; /* after so many calls without an ask, others may take it */

struct draft_lane {
    uint32_t index;
    seq_idx seq;       /* SEQ_NONE: the lane is free */
    int32_t *tokens;   /* [tokens_max] of the keys and values: the first `computed` */
    uint32_t computed; /* positions with keys and values */
    uint32_t final;    /* of these, so many belong to tokens that cannot change any more */
    uint64_t asked_in; /* the last call in which the sequence asked */
};

struct draft_lanes {
    struct draft_lane *lanes; /* [count] */
    uint32_t count, seq_max;
    uint32_t tokens_max;   /* of a sequence, drafts included */
    uint32_t vocab;        /* tokens of the text are below this */
    struct draft_who *who; /* [seq_max] */
    uint64_t call;
};

struct draft_lanes_options {
    uint32_t count, seq_max, tokens_max, vocab;
};
enum status draft_lanes_init(struct draft_lanes *s, const struct draft_lanes_options *options,
                             struct err *err);
void draft_lanes_deinit(struct draft_lanes *s); /* a zeroed one is fine */

void draft_lanes_begin(struct draft_lanes *s, seq_idx seq, const struct sampling *draw);
void draft_lanes_end(struct draft_lanes *s, seq_idx seq);
/* How the sequence is sampled, but for the position. */
const struct sampling *draft_lanes_draw(const struct draft_lanes *s, seq_idx seq);

/* A call of several asks begins. */
void draft_lanes_next_call(struct draft_lanes *s);
/* The lane of the sequence, which may have been given to it now. Keys and values of the first
 * `computed` tokens of its text, and of no others, are there; at least one token is missing. NULL:
 * there is no lane for it, or the text does not fit. */
struct draft_lane *draft_lanes_find(struct draft_lanes *s, const struct draft_ask *ask);
/* The keys and values of `count` further tokens are there. */
void draft_lane_extend(const struct draft_lanes *s, struct draft_lane *lane, const int32_t *tokens,
                       uint32_t count);

void draft_lanes_verify(const struct draft_lanes *s);

#endif
