/* Rule broken: a row's logits go to its own sequence. Here the first two change places when
 * there are at least four.
 * wrap: cpu_program_create cpu_program_submit pool_run */
#include "unit/kernels/cpu/edit_logits.h"

static void edit_logits(const struct logits *l) {
    float *second = l->rows + l->row_floats;
    for (size_t i = 0; l->step->output_count >= 4 && i < l->row_floats; i++) {
        float first = l->rows[i];
        l->rows[i] = second[i];
        second[i] = first;
    }
}
