/* server/ride_int.h - what the files of a ride share.
 *
 *     ride.c         birth, sinks, end, and who is live
 *     ride_submit.c  from the request to the engine
 *     ride_tell.c    from the engine's tokens to events, and from events to sinks
 *     ride_keep.c    finding a ride, and keeping those that have ended
 */
#ifndef SERVER_RIDE_INT_H
#define SERVER_RIDE_INT_H

#include <uv.h>

#include "server/ride.h"

enum { RIDE_BUCKETS = 8192 };

/* An engine's request: `user` of it points here, until the ride lets go of it. */
struct ride_part {
    struct ride *ride;
    struct request *request; /* a reference */
    uint32_t first;          /* its first choice among the ride's */
};

struct ride_choice {
    struct teller *teller;
    uint32_t taken;  /* tokens of the answer that were taken over */
    bool is_told;    /* nothing further is told of it */
    bool is_over;    /* the engine has ended it, or never had it */
    int64_t last_us; /* when its last tokens came; 0: none has */
};

struct rides {
    struct rides_options options;
    struct ride *first;                  /* all there are */
    struct ride *kept_first, *kept_last; /* the oldest first */
    struct ride *smoothing;              /* those with something on their stage */
    uint32_t live, kept, all_count;
    uint64_t kept_bytes;
    uv_timer_t keep_timer, smooth_timer;
    bool is_closed;
    struct ride *by_id[RIDE_BUCKETS], *by_request[RIDE_BUCKETS];
};

/* ---- ride.c ---- */
/* See what follows from a change: the end, being kept, being freed. The last thing that is done
 * with a ride by whoever changed it. */
void ride_settle(struct ride *r);
void ride_destroy(struct ride *r);

/* ---- ride_submit.c ---- */
void ride_prepare(struct ride *r);
void ride_cancel_parts(struct ride *r);
void ride_release_parts(struct ride *r);

/* ---- ride_tell.c ---- */
/* Sinks hear what is new. */
void ride_tell(struct ride *r);
void ride_unsmooth(struct ride *r); /* what is on its stage is told no more */
void rides_on_smooth(uv_timer_t *timer);

/* ---- ride_keep.c ---- */
void ride_list(struct ride *r); /* into the tables */
void ride_unlist(struct ride *r);
uint64_t ride_weight(const struct ride *r); /* bytes that keeping it takes */
void ride_keep(struct ride *r);
void ride_unkeep(struct ride *r);
void rides_on_keep(uv_timer_t *timer);

#endif
