/* sched/line_pace.h - the pace: the 95th percentile of TPOT without batch lines.
 *
 * TPOT is the mean time per token of a request, from its first token to its last. The pace is the
 * 95th percentile that the TPOT of the last requests would have had without lines. Lines may slow
 * faster requests up to it, so the p95 and p99 of TPOT change little.
 *
 * The time without lines cannot be measured, so it is estimated. Lines add time to a request; it
 * then runs longer, beside more rows and prompts of other requests, which add time, too. What other
 * requests add is in proportion to the time that the request runs. So without lines it would take
 *
 *     us * alone / (alone + added)
 *
 * per token: `us` is its TPOT, `alone` the time of a step with its row only, `added` the time that
 * lines added per token. So the pace does not rise because lines use it. A plain value; zeroed: no
 * request has ended yet.
 */
#ifndef SCHED_LINE_PACE_H
#define SCHED_LINE_PACE_H

#include <stdint.h>

enum {
    LINE_PACE_REQUESTS = 64, /* the last so many count */
    LINE_PACE_MIN = 20,      /* with fewer requests the pace is not known */
    LINE_PACE_TAIL = 20,     /* at most one request in this many is slower than the pace */
};

struct line_pace {
    double us[LINE_PACE_REQUESTS]; /* a ring */
    uint64_t count;                /* ended so far */
    double slow_us;
};

/* A request has ended. All times are per token: its TPOT, what lines added to it, and a step with
 * its row only. */
void line_pace_observe(struct line_pace *p, double us, double added_us, double alone_us);
double line_pace_us(const struct line_pace *p);   /* 0: not known yet */
void line_pace_verify(const struct line_pace *p); /* CHECKs that at most one in 20 is slower */

#endif
