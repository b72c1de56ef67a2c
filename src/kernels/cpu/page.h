/* kernels/cpu/page.h - large zeroed memory, in huge pages where the system has them.
 *
 * Small pages cost a walk through page tables every 4 KiB of weights, a quarter of the speed
 * of a single row (bench/ops, 2026-11), and most matrices of small models are smaller than
 * what a mapping of its own is worth. So weights are taken from one arena of large mappings.
 *
 * Lifetime: everything taken from a arena is freed with it. Thread: one at a time.
 */
#ifndef KERNELS_CPU_PAGE_H
#define KERNELS_CPU_PAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/* Zeroed and 64-byte aligned; NULL when there is no room. */
void *page_alloc(size_t bytes);
void page_free(void *ptr, size_t bytes); /* NULL is fine */

/* The same, for memory of which perhaps little is used: in pages of the usual size, and in those of
 * the file `fd` of so many bytes if that is not -1 and the memory is large. page_free frees it. */
void *page_map(size_t bytes, int fd);

/* Zero-initialise it. */
struct page_arena {
    struct list chunks; /* of memory; the one in use first */
};

/* As page_alloc, but freed by page_arena_deinit alone. */
void *page_arena_take(struct page_arena *arena, size_t bytes);
void page_arena_deinit(struct page_arena *arena);

#endif
