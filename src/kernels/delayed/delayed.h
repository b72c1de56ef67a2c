/* kernels/delayed/delayed.h - a device for tests that behaves like an accelerator.
 *
 * It wraps another device and runs that one's kernels on a thread of its own: submit returns at
 * once, and a step's result is there only after a seeded delay. Everything that a careless caller
 * might get away with on a CPU goes wrong here:
 *
 *     KV memory        cannot be read or written by the host except while a step runs
 *     step tables      are read when the step runs, not when it is submitted
 *     results          are overwritten with NaN and wild tokens once they are no longer valid
 *     steps            fail on demand, one of them or all from one on
 *
 * The numbers are those of the wrapped device, bit for bit.
 *
 * Lifetime: as any device; it closes the wrapped one. Thread: as any device.
 */
#ifndef KERNELS_DELAYED_DELAYED_H
#define KERNELS_DELAYED_DELAYED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "graph/device.h"

struct delayed_options {
    uint32_t depth;    /* 0 or 1 */
    int64_t delay_us;  /* a step takes at least so long ... */
    int64_t jitter_us; /* ... and up to so much longer, drawn from the seed */
    uint64_t seed;
    uint64_t fail_step; /* number of the step that fails, from 1; 0: none */
    uint64_t lose_step; /* this step and all later ones fail; 0: none */
    uint64_t memory;    /* bytes that alloc has in all; 0: as much as the host */
};

/* "depth=1,delay=5000,jitter=0,seed=7,fail=0,lose=0,memory=0", all of them optional. ST_BAD names
 * what is wrong. */
enum status delayed_parse(struct str text, struct delayed_options *out, struct err *err);

/* `inner` has depth 0 and belongs to the device from here on, also if opening fails. */
enum status delayed_open(const struct device *inner, const struct delayed_options *options,
                         struct device *out, struct err *err);

#endif
