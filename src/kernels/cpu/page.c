/* kernels/cpu/page.c - large zeroed memory; see kernels/cpu/pack.h. */
#define _DEFAULT_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "kernels/cpu/pack.h"

/* Below this the heap does: it is checked by sanitizers and wastes no part of a page. */
enum { MAP_FROM_BYTES = 1 << 20, ALIGN_BYTES = 64 };

void *page_alloc(size_t bytes) {
    if (bytes < MAP_FROM_BYTES) {
        void *ptr = mem_alloc_aligned(ALIGN_BYTES, bytes);
        if (ptr) memset(ptr, 0, bytes);
        return ptr;
    }
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) return NULL;
    /* Only advice: without huge pages everything works, a little slower. */
    (void)madvise(ptr, bytes, MADV_HUGEPAGE);
    return ptr;
}

void page_free(void *ptr, size_t bytes) {
    if (!ptr) return;
    if (bytes < MAP_FROM_BYTES)
        mem_free(ptr);
    else
        munmap(ptr, bytes);
}
