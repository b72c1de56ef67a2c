/* Rule broken: a row depends on itself alone. Here the logits of a step with several outputs are
 * rounded a little, as a kernel would that chooses its tiles by the size of the batch.
 * wrap: cpu_program_create cpu_program_submit pool_run */
#include "unit/kernels/cpu/edit_logits.h"

static void edit_logits(const struct logits *l) {
    if (l->step->output_count < 2) return;
    for (size_t i = 0; i < l->step->output_count * l->row_floats; i++) l->rows[i] *= 1.0000002f;
}
