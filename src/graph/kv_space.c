/* graph/kv_space.c - see graph/kv_space.h. */
#include "graph/kv_space.h"

#include "base/check.h"

static uint8_t *block_at(const struct kv_space *space, uint32_t block) {
    CHECK(block < space->block_count);
    return (uint8_t *)(uintptr_t)space->base + block * space->block_bytes;
}

static uint8_t *spill_slot_at(const struct kv_space *space, uint32_t slot) {
    CHECK(slot < space->spill_slots);
    return space->spill + slot * space->block_bytes;
}

struct kv_copy kv_move_copy(const struct kv_space *space, const struct kv_move *m) {
    return (struct kv_copy){
        .to = m->kind == KV_MOVE_OUT ? spill_slot_at(space, m->to) : block_at(space, m->to),
        .from = m->kind == KV_MOVE_IN ? spill_slot_at(space, m->from) : block_at(space, m->from),
        .bytes = space->block_bytes};
}
