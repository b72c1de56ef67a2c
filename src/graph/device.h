/* graph/device.h - what runs a tape.
 *
 * A plug: implementations live in kernels/. The engine owns one and drives it through this.
 *
 * Lifetime: opened before the model's weights are prepared, closed after the last run.
 * Thread: one caller at a time.
 */
#ifndef GRAPH_DEVICE_H
#define GRAPH_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/str.h"

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

/* An image that weights may be taken from. */
struct device_image {
    const char *path;
    struct str key; /* what it must have been made of; equal keys, equal weights */
    bool verify;    /* look at the checksum of every weight */
};

/* An image that is being written, into an empty file. */
struct device_image_out {
    int fd;
    struct str key;
    bool (*may_go_on)(void *ctx); /* asked often; false: ST_CANCELLED */
    void *ctx;
};

/* Where prepared weights came from. */
struct device_image_use {
    uint32_t read, made;
};

/* Prepared weights in a file, an *image*, so that a later start reads them instead of making them
 * again. What an image holds is the device's business; which file it is, its caller's. */
struct device_images {
    /* Changes with whatever changes the bytes that are made of a weight; belongs into the key. */
    const char *(*layout)(void *self);

    /* From here on prepare() takes weights from it, as far as it holds them. Not ST_OK: why it is
     * not used; ST_MISSING if there is none. */
    enum status (*open)(void *self, const struct device_image *image, struct err *err);
    /* No further weights are taken, whether one is open or not. ST_BAD: some of it was damaged;
     * those weights were made instead, and are as good as the others. */
    enum status (*close)(void *self, struct device_image_use *use, struct err *err);

    /* An image of all that is prepared. Both may run beside run(), on any thread. */
    enum status (*bytes)(void *self, struct str key, uint64_t *bytes, struct err *err);
    enum status (*write)(void *self, const struct device_image_out *out, struct err *err);
};

/* Where the time of one run went. A thread's times are those of its walk along the tape: in an
 * op, and at the meeting behind it until all had come; of an op that one thread does for all, the
 * others wait. What is missing to run_ns lies before, between and behind: waking the threads,
 * tables that are filled first. */
struct device_times {
    uint32_t thread_count, op_count;
    int64_t run_ns;         /* all of run() */
    const int64_t *work_ns; /* [thread_count][op_count] */
    const int64_t *wait_ns; /* the same */
};
/* `times` is valid until the next run, `run` during the call. */
typedef void device_watch_fn(void *ctx, const struct device_run *run,
                             const struct device_times *times);

struct device {
    const char *name; /* "cpu-avx2" */

    /* Zeroed, 64-byte aligned; NULL when there is no room. */
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *ptr, size_t bytes);

    /* Bring a weight into the device's own layout and set `prepared`; the device frees it at
     * close. After it the file's bytes are no longer read. Preparing one twice is fine. */
    enum status (*prepare)(void *self, struct weight *w, struct err *err);
    const struct device_images *images; /* NULL: it keeps none */

    /* ST_BAD with the op's name if the tape holds one that this device lacks. Comes before the
     * tape's first run: whatever the device needs for running it is made here. */
    enum status (*check)(void *self, const struct tape *t, struct err *err);

    /* Run all ops; results are in the slab when it returns. */
    void (*run)(void *self, const struct device_run *run);

    /* Lend the device's host threads to a job that is not a tape (sampling): `fn` is called once
     * on each of them, as pool_run does. */
    void (*parallel)(void *self, pool_fn *fn, void *ctx);

    /* Have `fn` called behind every run, on the caller's thread, with where its time went; NULL
     * ends it. Costs nothing while nobody watches. ST_NOMEM. */
    enum status (*watch)(void *self, device_watch_fn *fn, void *ctx);

    void (*close)(void *self);
    void *self;
};

#endif
