/* tests/gpu/check.h - counting what holds and what does not, without a test library.
 *
 * The program runs on machines that have a driver and little else, so it links nothing that they
 * may lack. A suite goes on after a failure; the first few of each are printed.
 */
#ifndef TESTS_GPU_CHECK_H
#define TESTS_GPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* A measured number, for --json: key, then type of weights. */
struct figure {
    const char *key;
    char type[64];
    double value;
};
enum { FIGURES_MAX = 64 };

struct checks {
    const char *device; /* that is compared with the CPU: "cuda:0" */
    const char *models; /* folder of the golden models */
    const char
        *variants;     /* options behind the device's name that are compared, as "/,graphs=off" */
    const char *shape; /* steps, compare: of this model alone; NULL: the usual ones */
    const char *model, *tokens, *out; /* logits: what to compute; NULL: not given */
    uint32_t chunk;                   /* logits: rows of one step */
    bool is_quick;                    /* fewer and smaller cases, for an emulated card */
    bool has_details;                 /* times of kinds of ops, too */
    uint32_t passed, failed;
    uint32_t suite_failed;
    struct figure figures[FIGURES_MAX];
    uint32_t figure_count;
};

/* One fact. Prints the text if it does not hold. */
void check_that(struct checks *c, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Keep a number; those past FIGURES_MAX are lost. The texts are constants. */
void check_figure(struct checks *c, const char *key, const char *type, double value);

typedef void suite_fn(struct checks *c);
suite_fn suite_rows, suite_products, suite_attention, suite_sampling, suite_models, suite_steps;
suite_fn suite_batches, suite_fp8, suite_resident;
suite_fn suite_time, suite_compare, suite_options, suite_attention_speed; /* measure alone */
suite_fn suite_logits; /* writes them to a file */

#endif
