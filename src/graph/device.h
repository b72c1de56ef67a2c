/* graph/device.h - what runs a tape.
 *
 * A plug: implementations live in kernels/, and kernels/devices.h lists them. The engine owns one
 * and drives it through this:
 *
 *     prepare          every weight, once
 *     program_create   a tape, checked, with the device's own scratch memory for it
 *     submit           a step of a program: KV moves, rows, sampling; may return before it has run
 *     collect          the result of the oldest step that was submitted to the program
 *
 * Steps run in the order of their submits, whatever program they belong to. A step's moves and
 * rows see all that the steps before it have written.
 *
 * Memory: weights, scratch and KV are the device's, and the host knows their addresses at most.
 * Tables, results and spilled blocks are host memory that the device reaches (host_alloc).
 *
 * Lifetime: opened before the model's weights are prepared, closed after the last collect.
 * Thread: one caller at a time, with one exception: while one thread waits in collect(p), another
 * thread may make any call that does not take p.
 */
#ifndef GRAPH_DEVICE_H
#define GRAPH_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "graph/kv_space.h"
#include "graph/sampling.h"
#include "graph/step.h"
#include "graph/tap.h"
#include "graph/work.h"

struct op;
struct tape;
struct weight;
struct device_program; /* the device's */

struct program_options {
    const struct tape *tape;   /* finished; outlives the program */
    const struct kv_space *kv; /* by KV group; copied; NULL for an encoder */
    uint32_t kv_group_count;
    struct step_sizes sizes; /* of the largest step */
    uint32_t slot_count;     /* places on the device, one per sequence, for the token sampled last
                            (step_token_at); 0: the output is never sampled from */
};

/* The result of a step. Valid until the next submit to the same program. */
struct device_result {
    const struct row_output *outputs; /* [output_count]; NULL if step.hands_over */
    uint32_t output_count;
    const float *rows; /* the rows that are handed over: output r at rows + r * row_floats */
    const float *kept; /* likewise, kept_floats: what the tape keeps (tape_set_kept), or NULL */
    size_t row_floats, kept_floats;
    int64_t elapsed_us; /* that the device spent on this step alone */
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

struct device_image_check {
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
    /* A version of the prepared format: it changes when the prepared bytes of any weight would
     * change. Belongs into the key. */
    const char *(*layout)(void *self);

    /* After ST_OK, prepare() reads weights from this image if it has them. Another status says why
     * the image is not used; ST_MISSING: the file does not exist. */
    enum status (*open)(void *self, const struct device_image *image, struct err *err);
    /* Stop using the image; fine if none is open. ST_BAD: part of it was damaged, and those weights
     * were prepared from the model file instead. */
    enum status (*close)(void *self, struct device_image_use *use, struct err *err);

    /* Compare the weights that were read from an image with their checksums, unless `open` was told
     * to. ST_BAD: `err` names one that differs. May run beside submit(), on any thread. */
    enum status (*check)(void *self, const struct device_image_check *check, struct err *err);

    /* An image of all that is prepared. Both may run beside submit(), on any thread. */
    enum status (*bytes)(void *self, struct str key, uint64_t *bytes, struct err *err);
    enum status (*write)(void *self, const struct device_image_out *out, struct err *err);
};

/* A step that has run, as the profiler's callback gets it. */
struct device_run {
    const struct tape *tape;
    const struct step *step;
    const struct kv_space *kv; /* by KV group; NULL for an encoder */
};

/* Where the time of one run went. work_ns is the time that a thread spent in an op; wait_ns is the
 * time that it then waited at the barrier after the op. If one thread runs an op alone, the time
 * counts as work for it and as wait for the others. work + wait is less than run_ns: waking the
 * threads and filling tables are not in it. */
struct device_times {
    uint32_t thread_count, op_count;
    int64_t run_ns;         /* of the tape; moves and sampling not included */
    const int64_t *work_ns; /* [thread_count][op_count] */
    const int64_t *wait_ns; /* the same */
};
/* `times` is valid until the next run, `run` during the call. */
typedef void device_watch_fn(void *ctx, const struct device_run *run,
                             const struct device_times *times);

/* For `jitney profile`: where time goes, and what the device could do at best. */
struct device_profiler {
    /* Call `fn` after every run, on the thread that submitted it, with the times of its ops. NULL
     * ends that. Costs nothing while there is no callback. ST_NOMEM. */
    enum status (*watch)(void *self, device_watch_fn *fn, void *ctx);

    /* Measure the ceilings. Takes a second or so. */
    enum status (*peaks)(void *self, struct peaks *out, struct err *err);
    /* Of one op of the tape that `run` ran. */
    struct work (*op_work)(void *self, const struct device_run *run, const struct op *op);
    /* Call `fn` before every product (graph/tap.h); NULL ends that. NULL: the device cannot. */
    void (*tap)(void *self, device_tap_fn *fn, void *ctx);
};

struct device_memory {
    uint64_t free_bytes, total_bytes;
};

struct device {
    const char *name; /* "cpu-avx2" */
    uint32_t depth;   /* 0: a submit runs the step. 1: a step may be submitted while the one before
                         it runs, and it pays to do so */
    uint32_t threads; /* number of host threads that compute; 0: none */
    const char *bound_to;     /* processors of its threads, "0-3,8-11"; NULL: not bound */
    const char *unbound_text; /* why they are not, where it was asked for; "" */

    /* How much memory the device has, and how much of it is free now. NULL: its memory is the
     * host's. */
    struct device_memory (*memory)(void *self);

    /* Memory of the device, zeroed; 0 when there is no room. */
    device_addr (*alloc)(void *self, size_t bytes);
    void (*free)(void *self, device_addr addr, size_t bytes);

    /* Host memory that the device reaches, zeroed, 64-byte aligned; NULL when there is no room.
     * `fd`: -1, or a file of that many bytes whose pages may be the memory, so that the system can
     * write them out when it is short; a device whose memory must stay in place ignores it. */
    void *(*host_alloc)(void *self, size_t bytes, int fd);
    void (*host_free)(void *self, void *ptr, size_t bytes);

    /* Bring a weight into the device's own layout and set `prepared`; the device frees it at
     * close. If `prepared` is set, w->data is no longer read. Preparing one twice is fine. */
    enum status (*prepare)(void *self, struct weight *w, struct err *err);
    /* The numbers of a prepared weight have changed; no step runs. NULL: the device cannot. */
    void (*update)(void *self, struct weight *w);
    const struct device_images *images; /* NULL: it keeps none */

    /* KV blocks: what their number of tokens must be a multiple of, and how many bytes one has; 0
     * if the device has no such format. */
    uint32_t kv_block_tokens;
    size_t (*kv_block_bytes)(void *self, const struct kv_shape *shape);

    /* Check a tape and allocate what is needed to run it. ST_BAD names an op that this device
     * lacks; ST_NOMEM says how much scratch memory there is no room for. */
    enum status (*program_create)(void *self, const struct program_options *options,
                                  struct device_program **out, struct err *err);
    void (*program_destroy)(void *self, struct device_program *p); /* NULL is fine */

    /* At most `depth` + 1 steps may have been submitted to a program and not collected. A status
     * other than ST_OK, of either call, means that nothing of the step can be used; ST_DEVICE: the
     * device failed, perhaps for good. A submit that fails is not collected. */
    enum status (*submit)(void *self, struct device_program *p, const struct step *step,
                          struct err *err);
    enum status (*collect)(void *self, struct device_program *p, struct device_result *out,
                           struct err *err);

    const struct device_profiler *profiler; /* NULL: no profiling */
    void (*close)(void *self);
    void *self;
};

#endif
