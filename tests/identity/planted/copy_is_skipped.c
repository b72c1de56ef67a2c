/* Rule broken: a block that forks share is copied before one of them writes to it. Here the
 * block is taken and its contents are not.
 * wrap: cpu_program_submit */
#include "identity/planted/moves.h"

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    return __real_cpu_program_submit(self, p, step_without(step, KV_MOVE_COPY), err);
}
