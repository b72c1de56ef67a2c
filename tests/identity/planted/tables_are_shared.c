/* Rule broken: the tables of a step do not change until it is collected. Here the steps of a runner
 * share their table of output rows. Shows at depth 1 alone.
 * wrap: step_create step_destroy */
#include "graph/step.h"

enum status __real_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err);
enum status __wrap_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err);

void __real_step_destroy(struct step *step, const struct device *dev);
void __wrap_step_destroy(struct step *step, const struct device *dev);

/* The steps of a runner lie side by side in it. */
enum { NEAR = 8 };

static struct step **first;
static struct step *first_step; /* NULL: it has been destroyed */

enum status __wrap_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err) {
    enum status st = __real_step_create(out, dev, sizes, err);
    if (st == ST_OK && first_step && out > first && out < first + NEAR) {
        (*out)->output_row = first_step->output_row;
    } else {
        first = out;
        first_step = st == ST_OK ? *out : NULL;
    }
    return st;
}

void __wrap_step_destroy(struct step *step, const struct device *dev) {
    if (step == first_step) first_step = NULL;
    __real_step_destroy(step, dev);
}
