/* Rule broken: the number of threads changes no bit. Here the last column of each row is a
 * little larger with two.
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
    if (h->threads > 1)
        for (size_t i = 0; i < step->output_count; i++) writable[(i + 1) * width - 1] *= 1.00001f;
    if (row_floats) *row_floats = width;
    return rows;
}
