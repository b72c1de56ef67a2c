/* Rule broken: random numbers follow from seed and position. Here they follow from how many
 * tokens were sampled before, by whomever.
 * wrap: sampler_pick */
#include "sample/sampler.h"

enum status __real_sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                                const float *logits, uint64_t position, struct sample_result *out);
enum status __wrap_sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                                const float *logits, uint64_t position, struct sample_result *out);

static _Atomic uint64_t calls;

enum status __wrap_sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                                const float *logits, uint64_t position, struct sample_result *out) {
    (void)position;
    return __real_sampler_pick(s, scratch, logits, calls++, out);
}
