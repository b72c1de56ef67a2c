/* Rule broken: a row's logits go to its own sequence. Here the first two change places when
 * there are at least four.
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
    for (size_t i = 0; step->output_count >= 4 && i < width; i++) {
        float first = writable[i];
        writable[i] = writable[width + i];
        writable[width + i] = first;
    }
    if (row_floats) *row_floats = width;
    return rows;
}
