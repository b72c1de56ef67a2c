/* Rule broken: a sequence that was swapped out gets its keys and values back. Here it gets
 * blocks with whatever lay in them.
 * wrap: cpu_program_submit */
#include "identity/planted/moves.h"

void __real_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch);
void __wrap_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch);

void __wrap_cpu_program_submit(struct device_program *p, const struct step *step,
                               struct op_timer *watch) {
    __real_cpu_program_submit(p, step_without(step, KV_MOVE_IN), watch);
}
