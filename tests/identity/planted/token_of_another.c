/* Rule broken: a row takes the token that was sampled for its own sequence. Here, of two rows that
 * wait for a token, the second one takes that of the first. Shows at depth 1 alone.
 * wrap: cpu_program_submit */
#include "kernels/cpu/program.h"

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    int32_t first = 0;
    for (uint32_t r = 0; r < step->row_count; r++) {
        if (step->token[r] >= 0) continue;
        if (first < 0) step->token[r] = first;
        first = step->token[r];
    }
    return __real_cpu_program_submit(self, p, step, err);
}
