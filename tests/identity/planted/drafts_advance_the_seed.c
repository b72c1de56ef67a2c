/* Rule broken: drafts use up no random numbers. Here every draft that is taken back moves the
 * positions on which later random numbers depend.
 * wrap: sampler_describe sampler_rollback */
#include "sample/sampler.h"

enum status __real_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);
enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out);
void __real_sampler_rollback(struct sampler *s, uint32_t count);
void __wrap_sampler_rollback(struct sampler *s, uint32_t count);

static _Atomic uint64_t taken_back;

void __wrap_sampler_rollback(struct sampler *s, uint32_t count) {
    taken_back += count;
    __real_sampler_rollback(s, count);
}

enum status __wrap_sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                                    struct sampling_tables *tables, struct sampling *out) {
    return __real_sampler_describe(s, position + taken_back, is_pending, tables, out);
}
