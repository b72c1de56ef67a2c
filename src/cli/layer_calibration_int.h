/* cli/layer_calibration_int.h - layer by layer calibration without a command line, for
 * layer_calibration.c and its tests.
 */
#ifndef CLI_LAYER_CALIBRATION_INT_H
#define CLI_LAYER_CALIBRATION_INT_H

#include "cli/layer_calibration.h"
#include "cli/text_windows.h"

struct layer_calibration_source {
    const char *path;
    const struct text_windows *text; /* read during the call */
    const char *isa;                 /* NULL: "auto" */
    uint32_t threads, chunk_tokens;
};

enum status layer_calibration_start(const struct layer_calibration_source *source,
                                    const struct layer_calibration_options *options,
                                    struct layer_calibration **out, struct err *err);

/* [tokens][dim]: what the next layer reads, or the last one has made. */
const float *layer_calibration_states(const struct layer_calibration *c);

#endif
