/* base/mem.c - see base/mem.h for the contract. */
#include "base/mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"

enum { UNUSED_BYTES = 256 << 10 };

/* malloc(0) may return NULL, which callers would read as "out of memory". */
static size_t at_least_one(size_t bytes) { return bytes ? bytes : 1; }

void *mem_alloc(size_t bytes) { return malloc(at_least_one(bytes)); }

void *mem_zalloc(size_t bytes) { return calloc(1, at_least_one(bytes)); }

void *mem_alloc_array(size_t count, size_t bytes) {
    size_t total;
    return size_mul(count, bytes, &total) ? mem_alloc(total) : NULL;
}

void *mem_zalloc_array(size_t count, size_t bytes) {
    size_t total;
    return size_mul(count, bytes, &total) ? mem_zalloc(total) : NULL;
}

void *mem_realloc(void *ptr, size_t bytes) { return realloc(ptr, at_least_one(bytes)); }

void *mem_alloc_aligned(size_t align, size_t bytes) {
    CHECK(align >= sizeof(void *));
    CHECK((align & (align - 1)) == 0);
    size_t rounded;
    if (!size_round_up(at_least_one(bytes), align, &rounded)) return NULL;
    return aligned_alloc(align, rounded);
}

char *mem_dup(const void *ptr, size_t bytes) {
    size_t with_nul;
    if (!size_add(bytes, 1, &with_nul)) return NULL;
    char *copy = mem_alloc(with_nul);
    if (!copy) return NULL;
    if (bytes) memcpy(copy, ptr, bytes);
    copy[bytes] = 0;
    return copy;
}

void mem_free(void *ptr) { free(ptr); }

/* The C library keeps freed memory for the next allocations, also after a peak. */
void mem_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* By default both limits follow the largest block that was ever freed, up to 32 and 64 MiB.
 * mem_trim does not reach the ends of heaps other than the first thread's, so they would stay at
 * their peak. An allocator in place of the C library's, such as a sanitizer's, refuses both. */
void mem_bound_unused(void) {
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, UNUSED_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, UNUSED_BYTES);
#endif
}
