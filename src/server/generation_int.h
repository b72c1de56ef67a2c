/* server/generation_int.h - what the files of a generation share.
 *
 *     generation.c         birth, sinks, end, and who is live
 *     generation_submit.c  from the request to the engine
 *     generation_deliver.c    from the engine's tokens to events, and from events to sinks
 *     generation_keep.c    finding a generation, and keeping those that have ended
 */
#ifndef SERVER_GENERATION_INT_H
#define SERVER_GENERATION_INT_H

#include <uv.h>

#include "server/generation.h"

enum { GENERATION_BUCKETS = 8192 };

/* An engine's request: `user` of it points here, until the generation lets go of it. */
struct generation_part {
    struct generation *generation;
    struct request *request; /* a reference */
    uint32_t first;          /* its first choice among the generation's */
};

struct generation_choice {
    struct event_writer *writer;
    uint32_t taken;  /* tokens of the answer that were taken over */
    bool is_told;    /* nothing further is told of it */
    bool is_over;    /* the engine has ended it, or never had it */
    int64_t last_us; /* when its last tokens came; 0: none has */
};

struct generations {
    struct generations_options options;
    struct list items;     /* all generations */
    struct list kept;      /* ended and findable, the oldest first */
    struct list smoothing; /* with text on their smoother's stage */
    uint32_t live;         /* started and not ended */
    uint64_t kept_bytes;
    uv_timer_t keep_timer, smooth_timer;
    bool is_closed;
    struct generation *by_id[GENERATION_BUCKETS], *by_request[GENERATION_BUCKETS];
};

/* ---- generation.c ---- */
/* See what follows from a change: the end, being kept, being freed. The last thing that is done
 * with a generation by whoever changed it. */
void generation_check_end(struct generation *gen);
void generation_destroy(struct generation *gen);

/* ---- generation_submit.c ---- */
void generation_cancel_parts(struct generation *gen);
void generation_release_parts(struct generation *gen);

/* ---- generation_deliver.c ---- */
/* Sinks hear what is new. */
void generation_deliver(struct generation *gen);
void generation_stop_smoothing(struct generation *gen); /* what is on its stage is told no more */
void generations_on_smooth(uv_timer_t *timer);

/* ---- generation_keep.c ---- */
void generation_index_add(struct generation *gen); /* into the tables */
void generation_index_remove(struct generation *gen);
uint64_t generation_kept_bytes(const struct generation *gen); /* bytes that keeping it takes */
void generation_keep(struct generation *gen);
void generation_unkeep(struct generation *gen);
void generations_drop_oldest(struct generations *all); /* there is one */
void generations_on_keep(uv_timer_t *timer);

#endif
