/* Rule broken: a sequence that was swapped out gets its keys and values back. Here it gets
 * blocks with whatever lay in them.
 * wrap: cpu_program_submit */
#include "identity/planted/moves.h"

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    return __real_cpu_program_submit(self, p, step_without(step, KV_MOVE_IN), err);
}
