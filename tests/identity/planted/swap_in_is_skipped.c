/* Rule broken: a sequence that was swapped out gets its keys and values back. Here it gets
 * blocks with whatever lay in them.
 * wrap: spill_in */
#include "engine/spill.h"

void __wrap_spill_in(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t slot,
                     uint32_t block);

void __wrap_spill_in(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t slot,
                     uint32_t block) {
    (void)s;
    (void)kv;
    (void)group;
    (void)slot;
    (void)block;
}
