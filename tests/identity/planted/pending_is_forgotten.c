/* Rule broken: a token that is not known yet counts in the penalties. Here a step that is described
 * before the one in front of it has sampled is described as if it had. Shows at depth 1 alone.
 * wrap: sampler_describe */
#include "sample/sampler.h"

enum status __real_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);
enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);

enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out) {
    (void)is_pending;
    return __real_sampler_describe(s, position, false, tables, out);
}
