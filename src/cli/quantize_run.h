/* cli/quantize_run.h - one run of `jitney quantize`, and the plug for what it writes.
 *
 *     open -> calibrate -> write -> (report, from `readable`) -> publish -> close
 *
 * With --plan there is nothing to write: open -> calibrate -> close.
 *
 * Lifetime: during the command. Thread: the main thread.
 */
#ifndef CLI_QUANTIZE_RUN_H
#define CLI_QUANTIZE_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/progress_bar.h"
#include "cli/quantize_plan.h"
#include "cli/text_windows.h"

struct args;
struct model_file;

/* What all outputs need of the command. */
struct quantize_run {
    const struct args *args;
    char in[MODEL_PATH_BYTES];
    const char *out;  /* NULL: --plan */
    const char *type; /* as it was given; "mixed" with a target */
    struct quantize_target target;
    struct quantize_plan *plan; /* of a target, once it is calibrated */
    struct model_file *f;
    struct text_windows calibration_text; /* no window: without --calibrate */
    struct progress_bar bar;
};

struct quantize_counts {
    size_t tensors, converted, fallbacks;
    uint64_t elems, bytes_in, bytes_out; /* of all tensors */
    uint64_t file_bytes;                 /* of the new files */
    size_t weighed;                      /* matrices that calibration has changed */
};

/* An implementation keeps its state in memory of its own: `self`. */
struct quantize_output {
    const char *name; /* "gguf" */

    /* The name of the type as it is printed, or NULL: not one of this output's. */
    const char *(*find_type)(struct str type);
    const char *(*known_types)(void); /* "Q4_0, Q4_1" */

    /* Do the other flags fit the type? NULL: they always do. EXIT_USAGE: `err` says which does
     * not. */
    enum exit_code (*check)(const struct quantize_run *q, struct err *err);

    /* q->f is open. *self is closed also after a failure; it may be NULL then. */
    enum status (*open)(struct quantize_run *q, void **self, struct err *err);
    enum status (*calibrate)(void *self, struct err *err); /* --calibrate is given */
    enum status (*write)(void *self, struct err *err);

    /* A path from which the new model can be opened before it has its name. */
    enum status (*readable)(void *self, char path[MODEL_PATH_BYTES], struct err *err);
    enum status (*publish)(void *self, struct err *err);
    void (*close)(void *self); /* NULL is fine; what was not published is gone */

    void (*count)(const void *self, struct quantize_counts *out); /* file_bytes: once written */
};

extern const struct quantize_output quantize_gguf, quantize_folder;
extern const struct flag flags_folder[]; /* of quantize_folder alone */

/* A callback for the bar of `ctx`, which shows elements as bytes of float32. */
void quantize_on_progress(void *ctx, uint64_t done, uint64_t total);

#endif
