/* Rule broken: the tables of a step do not change until it is collected. Here the steps of a runner
 * share their table of output rows. Shows at depth 1 alone.
 * wrap: step_create */
#include "graph/step.h"

enum status __real_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err);
enum status __wrap_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err);

/* The steps of a runner lie side by side in it. */
enum { NEAR = 8 };

enum status __wrap_step_create(struct step **out, const struct device *dev,
                               const struct step_sizes *sizes, struct err *err) {
    static struct step **first;
    enum status st = __real_step_create(out, dev, sizes, err);
    if (st == ST_OK && first && out > first && out < first + NEAR)
        (*out)->output_row = (*first)->output_row;
    else
        first = out;
    return st;
}
