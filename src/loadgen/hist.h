/* loadgen/hist.h - a histogram of durations; its memory does not grow with a run.
 *
 * 128 slots for each doubling: a percentile is at most 0.8 % above the true one and never outside
 * the range of the durations. Count, sum, minimum and maximum are exact.
 *
 * Lifetime: zeroed storage of the caller's. Thread: its owner.
 */
#ifndef LOADGEN_HIST_H
#define LOADGEN_HIST_H

#include <stdint.h>

enum { HIST_OCTAVE_SLOTS = 128, HIST_OCTAVES = 36 };

struct hist {
    uint64_t count, sum_us, min_us, max_us;
    uint64_t slots[HIST_OCTAVE_SLOTS * HIST_OCTAVES];
};

void hist_add(struct hist *h, int64_t us); /* below 0 counts as 0 */

/* In milliseconds; 0 without durations. By nearest rank, share 0 .. 1. */
double hist_mean_ms(const struct hist *h);
double hist_at_ms(const struct hist *h, double share);

#endif
