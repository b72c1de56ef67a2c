/* Rule broken: a block that forks share is copied before one of them writes to it. Here the
 * block is taken and its contents are not.
 * wrap: cpu_program_submit */
#include "identity/planted/moves.h"

void __real_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch);
void __wrap_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch);

void __wrap_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch) {
    __real_cpu_program_submit(p, step_without(step, KV_MOVE_COPY), watch);
}
