/* engine/spill.h - storage for swapped-out KV blocks, in an unlinked file.
 *
 * One slot holds one block of a KV group, all its layers. Where the device can work in the file's
 * pages, the system keeps them in memory while there is room and writes them to disk when there is
 * not. The file is unlinked at once, so nothing is left behind whatever happens.
 *
 * Lifetime: as the KV space it serves. Thread: the engine thread.
 */
#ifndef ENGINE_SPILL_H
#define ENGINE_SPILL_H

#include <stdint.h>

#include "base/status.h"
#include "graph/device.h"

/* Give a space, whose block_bytes is set, `slots` slots; 0 makes nothing. `dir`: where the file is
 * made. */
enum status spill_open(struct kv_space *space, const struct device *dev, uint32_t slots,
                       const char *dir, struct err *err);
void spill_close(struct kv_space *space, const struct device *dev); /* without slots: nothing */

#endif
