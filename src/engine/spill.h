/* engine/spill.h - where KV blocks go that had to leave the cache: a file without a name.
 *
 * One slot holds one block of a KV group, all its layers. The file is mapped: the system keeps
 * it in memory while there is room and writes it to disk when there is not. It is unlinked at
 * once, so nothing is left behind whatever happens.
 *
 * Lifetime: as the KV memory it serves. Thread: the engine thread.
 */
#ifndef ENGINE_SPILL_H
#define ENGINE_SPILL_H

#include <stdint.h>

#include "base/status.h"
#include "engine/host.h"

struct spill {
    uint8_t *base[KV_GROUPS_MAX]; /* mapped; NULL: no slots */
    size_t slot_bytes[KV_GROUPS_MAX];
    uint32_t slots, tiles_per_block, group_count;
};

/* `dir`: where the file is made. slots == 0 makes nothing. */
enum status spill_open(struct spill *s, const struct kv_memory *kv, uint32_t tiles_per_block,
                       uint32_t slots, const char *dir, struct err *err);
void spill_close(struct spill *s); /* a zeroed one is fine */

/* Blocks are the cache's: tiles_per_block tiles of the KV space each. */
void spill_out(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t block,
               uint32_t slot);
void spill_in(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t slot,
              uint32_t block);

/* From block to block within the KV memory. */
void kv_memory_copy(const struct kv_memory *kv, uint32_t tiles_per_block, uint32_t group,
                    uint32_t from, uint32_t to);

#endif
