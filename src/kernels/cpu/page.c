/* kernels/cpu/page.c - see kernels/cpu/page.h for the contract. */
#define _DEFAULT_SOURCE
#include "kernels/cpu/page.h"

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    MAP_FROM_BYTES = 1 << 20, /* below, the heap: sanitizers watch it, and no page is wasted */
    HUGE_BYTES = 2 << 20,
    CHUNK_BYTES = 32 << 20,
    ALIGN_BYTES = 64,
};

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

void *page_map(size_t bytes, int fd) {
    if (bytes < MAP_FROM_BYTES) return page_alloc(bytes);
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    return ptr == MAP_FAILED ? NULL : ptr;
}

void page_free(void *ptr, size_t bytes) {
    if (!ptr) return;
    if (bytes < MAP_FROM_BYTES)
        mem_free(ptr);
    else
        munmap(ptr, bytes);
}

struct page_chunk {
    struct list_link in_arena;
    uint8_t *base;
    size_t bytes, used;
};

/* A chunk with room for `bytes`; its first byte lies at the start of a huge page. */
static struct page_chunk *chunk_create(size_t bytes) {
    size_t wanted = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, padded;
    if (!size_add(wanted, HUGE_BYTES, &padded)) return NULL;
    struct page_chunk *c = mem_zalloc(sizeof(*c));
    if (!c) return NULL;
    c->base = page_alloc(padded);
    if (!c->base) {
        mem_free(c);
        return NULL;
    }
    c->bytes = padded;
    c->used = (HUGE_BYTES - (uintptr_t)c->base % HUGE_BYTES) % HUGE_BYTES;
    return c;
}

void *page_arena_take(struct page_arena *arena, size_t bytes) {
    size_t rounded;
    if (!size_round_up(bytes, ALIGN_BYTES, &rounded)) return NULL;
    struct page_chunk *c = LIST_ITEM(arena->chunks.first, struct page_chunk, in_arena);
    if (!c || c->bytes - c->used < rounded) {
        c = chunk_create(rounded);
        if (!c) return NULL;
        list_push_first(&arena->chunks, &c->in_arena);
    }
    uint8_t *ptr = c->base + c->used;
    c->used += rounded;
    return ptr;
}

void page_arena_deinit(struct page_arena *arena) {
    for (struct list_link *l; (l = list_pop_first(&arena->chunks));) {
        struct page_chunk *c = LIST_ITEM(l, struct page_chunk, in_arena);
        page_free(c->base, c->bytes);
        mem_free(c);
    }
}
