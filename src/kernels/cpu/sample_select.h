/* kernels/cpu/sample_select.h - where the shortest prefix of an order ends, without sorting.
 *
 * Things have a number, the largest going first, and a mass. What is asked is how far one must go
 * until the masses add up to so much; with masses of 1, which is the k-th. The range where the
 * numbers are thought to be is divided into 2048 buckets and the masses of each are added up; the
 * bucket that holds the end is divided again, by the bits of its numbers, at most three times.
 *
 * Lifetime: init for a number of things, deinit. Thread: its owner.
 * Memory: 4 bytes for each thing and 16 KiB, all taken by init.
 */
#ifndef KERNELS_CPU_SAMPLE_SELECT_H
#define KERNELS_CPU_SAMPLE_SELECT_H

#include <stdint.h>

#include "base/status.h"

enum { SELECT_BUCKET_BITS = 11, SELECT_BUCKETS = 1 << SELECT_BUCKET_BITS };

struct select {
    uint32_t cap;
    uint32_t *active; /* [cap], places of the things in the bucket that is looked at */
    uint64_t mass[SELECT_BUCKETS];
};

/* Borrowed for a call. */
struct select_things {
    const float *number;  /* without NaN and -0 */
    const uint64_t *mass; /* NULL: 1 each */
    uint32_t count;       /* 1 to cap */
    float first, last;    /* most are between them; a bad guess costs time, nothing else */
};

/* Where a prefix ends. */
struct select_end {
    float number;   /* what is larger is inside */
    uint32_t place; /* of those that equal it, the last inside */
};

enum status select_init(struct select *s, uint32_t cap);
void select_deinit(struct select *s); /* a zeroed one is fine */

/* The shortest prefix whose masses add up to `wanted`, from 1 to the sum of all; equal numbers go
 * by place. */
struct select_end select_prefix(struct select *s, const struct select_things *things,
                                uint64_t wanted);

#endif
