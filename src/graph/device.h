/* graph/device.h - what runs a tape.
 *
 * A plug: implementations live in kernels/. The engine owns one and drives it through this.
 *
 * Lifetime: opened before the model's weights are prepared, closed after the last run.
 * Thread: one caller at a time.
 */
#ifndef GRAPH_DEVICE_H
#define GRAPH_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"

struct kv_space;
struct step;
struct tape;
struct weight;

/* One run: a finished tape over scratch memory and KV, both from alloc(). */
struct device_run {
    const struct tape *tape;
    const struct step *step;
    uint8_t *slab;
    const struct kv_space *kv; /* by KV group; NULL for an encoder */
};

struct device {
    const char *name; /* "cpu-avx2" */

    /* Zeroed, 64-byte aligned; NULL when there is no room. */
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *ptr, size_t bytes);

    /* Bring a weight into the device's own layout and set `prepared`; the device frees it at
     * close. After it the file's bytes are no longer read, unless the weight is an embedding
     * table. Preparing one twice is fine. */
    enum status (*prepare)(void *self, struct weight *w, struct err *err);

    /* ST_BAD with the op's name if the tape holds one that this device lacks. Comes before the
     * tape's first run: whatever the device needs for running it is made here. */
    enum status (*check)(void *self, const struct tape *t, struct err *err);

    /* Run all ops; results are in the slab when it returns. */
    void (*run)(void *self, const struct device_run *run);

    /* Lend the device's host threads to a job that is not a tape (sampling): `fn` is called once
     * on each of them, as pool_run does. */
    void (*parallel)(void *self, pool_fn *fn, void *ctx);

    void (*close)(void *self);
    void *self;
};

#endif
