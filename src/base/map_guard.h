/* base/map_guard.h - a mapped file that becomes shorter does not end the process.
 *
 * Reading a page of a mapped file that the file no longer has, or that its disk cannot deliver,
 * raises SIGBUS, whose default action ends the process. The handler of this module puts pages of
 * zeros in place of the missing ones and marks the map as *damaged*; the thread that was reading
 * goes on. So a caller that computes with bytes of a map looks at the mark afterwards, and discards
 * the result if it is set. A SIGBUS outside all guarded maps has the effect that it had before.
 *
 * Lifetime: added after mmap, removed before munmap; the handler stays. Thread: any.
 * Memory: a static table; the handler takes no lock and allocates nothing.
 */
#ifndef BASE_MAP_GUARD_H
#define BASE_MAP_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { MAP_GUARDS_MAX = 4096 };

struct map_guard; /* an entry of the table */

/* Guard `len` bytes from `ptr`, the start of a page. NULL: MAP_GUARDS_MAX maps are guarded. */
struct map_guard *map_guard_add(const void *ptr, size_t len);
void map_guard_remove(struct map_guard *g); /* NULL is fine */
/* Has a page of it been replaced by zeros? It stays true until the guard is removed. */
bool map_guard_is_damaged(const struct map_guard *g);

#endif
