/* Rule broken: the number of threads changes no bit. Here the last column of each row is a
 * little larger with two.
 * wrap: cpu_program_create cpu_program_submit pool_run */
#include "unit/kernels/cpu/edit_logits.h"

static void edit_logits(const struct logits *l) {
    for (uint32_t i = 0; l->threads > 1 && i < l->step->output_count; i++)
        l->rows[i * l->row_floats + l->vocab - 1] *= 1.00001f;
}
