/* cli/calibrate_run.h - runs a model over a text and sees what its matrices read, for `jitney
 * quantize --calibrate`.
 *
 * Lifetime: all of it is in use during calibrate_model only; the result is the caller's.
 * Thread: the main thread. Memory: the model, and 12 bytes for each column of its matrices.
 */
#ifndef CLI_CALIBRATE_RUN_H
#define CLI_CALIBRATE_RUN_H

#include <stdint.h>

#include "base/status.h"

struct args;
struct importance;
struct text_windows;

struct calibration {
    const struct text_windows *text; /* borrowed */
    struct importance *importance;   /* importance_destroy it */
};

/* `path`: of the model; the text is set. Says on standard error what it needs before it begins.
 * The flags are flags_chunk and flags_engine. ST_BAD: the device is not the CPU. */
enum status calibrate_model(const struct args *args, const char *path, struct calibration *c,
                            struct err *err);

#endif
