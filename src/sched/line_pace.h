/* sched/line_pace.h - how slow the slow requests are without batch lines.
 *
 * The pace is a mean time per token, from the first token of a request to its last: the one that
 * one in twenty of the last requests would have exceeded without lines. Lines may slow every other
 * request down to it, so the tail of the times stays where it is.
 *
 * What a request would have taken without lines is not measured, but it follows from what is: lines
 * add time to a request, and while it takes longer it meets more of the others, their rows and
 * their prompts. Without lines it takes
 *
 *     us * alone / (alone + added)
 *
 * per token, where `alone` is a step with its row only: what others add is in proportion to the
 * time that it runs. So lines do not raise the pace by using it. A plain value; zeroed: no request
 * has ended yet.
 */
#ifndef SCHED_LINE_PACE_H
#define SCHED_LINE_PACE_H

#include <stdint.h>

enum {
    LINE_PACE_REQUESTS = 64, /* the last so many count */
    LINE_PACE_MIN = 20,      /* fewer than these tell nothing about a tail */
    LINE_PACE_TAIL = 20,     /* one in so many is slower than the pace */
};

struct line_pace {
    double us[LINE_PACE_REQUESTS]; /* a ring */
    uint64_t count;                /* ended so far */
    double slow_us;
};

/* A request has ended, after so much time per token; lines have added some of it. */
void line_pace_observe(struct line_pace *p, double us, double added_us, double alone_us);
double line_pace_us(const struct line_pace *p);   /* 0: not known yet */
void line_pace_verify(const struct line_pace *p); /* CHECKs that it is the time of one in twenty */

#endif
