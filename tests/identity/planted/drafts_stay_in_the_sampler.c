/* Rule broken: drafts leave no trace in the sampler. Here the last of several drafts is not taken
 * back, so that penalties and grammars count a token that the sequence may not have.
 * wrap: sampler_rollback */
#include "sample/sampler.h"

void __real_sampler_rollback(struct sampler *s, uint32_t count);
void __wrap_sampler_rollback(struct sampler *s, uint32_t count);

void __wrap_sampler_rollback(struct sampler *s, uint32_t count) {
    __real_sampler_rollback(s, count > 1 ? count - 1 : count);
}
