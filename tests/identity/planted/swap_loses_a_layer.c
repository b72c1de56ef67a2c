/* Rule broken: all layers of a block are swapped. Here the last layer's tile stays behind.
 * wrap: spill_out */
#include "engine/spill.h"

void __real_spill_out(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t block,
                      uint32_t slot);
void __wrap_spill_out(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t block,
                      uint32_t slot);

void __wrap_spill_out(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t block,
                      uint32_t slot) {
    struct kv_memory short_kv = *kv;
    short_kv.spaces[group].layers--;
    __real_spill_out(s, &short_kv, group, block, slot);
}
