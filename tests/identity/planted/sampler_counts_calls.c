/* Rule broken: random numbers follow from seed and position. Here they follow from how many
 * tokens were sampled before, by whomever.
 * wrap: sampler_describe */
#include "sample/sampler.h"

enum status __real_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);
enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);

static _Atomic uint64_t calls;

enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out) {
    (void)position;
    return __real_sampler_describe(s, calls++, is_pending, tables, out);
}
