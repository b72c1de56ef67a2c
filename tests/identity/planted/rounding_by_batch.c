/* Rule broken: a row depends on itself alone. Here the logits of a step with several outputs are
 * rounded a little, as a kernel would that chooses its tiles by the size of the batch.
 * wrap: pass_run */
#include <stdint.h>

#include "engine/host.h"
#include "graph/step.h"

const float *__real_pass_run(struct host *h, const struct pass *p, const struct step *step,
                             const struct kv_space *kv, size_t *row_floats);
const float *__wrap_pass_run(struct host *h, const struct pass *p, const struct step *step,
                             const struct kv_space *kv, size_t *row_floats);

const float *__wrap_pass_run(struct host *h, const struct pass *p, const struct step *step,
                             const struct kv_space *kv, size_t *row_floats) {
    size_t width;
    const float *rows = __real_pass_run(h, p, step, kv, &width);
    float *writable = (float *)(uintptr_t)rows;
    if (step->output_count > 1)
        for (size_t i = 0; i < step->output_count * width; i++) writable[i] *= 1.0000002f;
    if (row_floats) *row_floats = width;
    return rows;
}
