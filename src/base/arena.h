/* base/arena.h - memory with one lifetime, freed all at once, up to a stated limit.
 *
 * Blocks come from chunks that grow with use; nothing is freed singly. A request past the
 * limit returns NULL and the arena stays usable.
 *
 * Lifetime: create, use, destroy. Thread: its owner.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

struct arena; /* opaque */

struct arena *arena_create(size_t limit_bytes); /* NULL when out of memory */
void arena_destroy(struct arena *a);            /* NULL is fine */
void arena_reset(struct arena *a);              /* forget everything; keeps its newest chunk */

void *arena_alloc(struct arena *a, size_t bytes);                      /* aligned for any type */
void *arena_zalloc_array(struct arena *a, size_t count, size_t bytes); /* zeroed, checked */
struct str arena_dup(struct arena *a, struct str s); /* ptr == NULL when full; NUL behind it */

/* Why the last request that got NULL got it: ST_FULL (the limit) or ST_NOMEM (the heap). */
enum status arena_status(const struct arena *a);

size_t arena_used(const struct arena *a); /* bytes asked for since the last reset */

#endif
