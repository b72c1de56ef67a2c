/* cli/batch_run.h - the run of `jitney batch`: lines to the model, results to the partial file.
 *
 * Thread: the main thread, which runs the server's loop.
 */
#ifndef CLI_BATCH_RUN_H
#define CLI_BATCH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/batch_partial.h"

struct batch_input;
struct settings;

struct batch_run_options {
    const struct settings *settings;
    const struct batch_input *input;
    struct batch_partial *partial;
    const struct batch_origin *origin; /* with the seed and the time that the partial file has */
};

struct batch_summary {
    struct batch_totals totals;
    uint32_t line_count;
    uint32_t resumed_lines; /* that had a result before this run */
    double seconds;         /* from the loaded model to the last result */
    double tokens_per_s;    /* answered in this run */
};

/* Answer the lines that have no result. `out` is filled also after a failure. As offline_run. */
enum status batch_run(const struct batch_run_options *options, struct batch_summary *out,
                      struct err *err);

#endif
