/* Rule broken: a step's moves are done before its rows. Here they are done behind them.
 * wrap: cpu_program_submit cpu_program_collect */
#include "kernels/cpu/program.h"

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __real_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err);
enum status __wrap_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err);

static const struct kv_move *late;
static uint32_t late_count;

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    static struct step rows; /* the program reads it until its collect */
    rows = *step;
    late = step->moves;
    late_count = step->row_count > 0 ? step->move_count : 0;
    if (step->row_count > 0) rows.move_count = 0;
    return __real_cpu_program_submit(self, p, &rows, err);
}

enum status __wrap_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err) {
    static struct step moves;
    enum status st = __real_cpu_program_collect(self, p, out, err);
    if (late_count == 0) return st;
    struct device_result ignored;
    moves = (struct step){.hands_over = true, .moves = late, .move_count = late_count};
    __real_cpu_program_submit(self, p, &moves, err);
    __real_cpu_program_collect(self, p, &ignored, err);
    late_count = 0;
    return st;
}
