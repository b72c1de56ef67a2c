/* net/h2_mem.c - the heap of one nghttp2 session.
 *
 * nghttp2 1.52 is not safe after an allocation has failed: a stream may keep a pointer to an item
 * that was freed on the way out. So every block of a session is in a list, and the first failure
 * ends the session: nghttp2 is not called again, its connection breaks, and the list is freed.
 *
 * Most of an idle session is the buffer in which it makes frames, 16 KiB. Nothing in it outlives a
 * frame, so while nothing is to be sent its pages go back to the system and come again as zeros.
 */
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/h2_int.h"

enum { FRAME_BYTES = 16384 }; /* the largest payload that nghttp2 sends */

struct h2_block {
    struct h2_block *next, *prev;
    _Alignas(max_align_t) char bytes[];
};

static void *failed(struct h2 *h) {
    h->is_over = h->is_poisoned = true;
    conn_break(h->conn);
    return NULL;
}

static void link_block(struct h2 *h, struct h2_block *b) {
    b->prev = NULL;
    b->next = h->blocks;
    if (b->next) b->next->prev = b;
    h->blocks = b;
}

static void unlink_block(struct h2 *h, struct h2_block *b) {
    if (b->next) b->next->prev = b->prev;
    if (b->prev)
        b->prev->next = b->next;
    else
        h->blocks = b->next;
}

static struct h2_block *block_of(void *ptr) {
    return (struct h2_block *)((char *)ptr - offsetof(struct h2_block, bytes));
}

static void *take(size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    struct h2_block *b =
        bytes < SIZE_MAX / 2 ? mem_alloc(offsetof(struct h2_block, bytes) + bytes) : NULL;
    if (!b) return failed(h);
    link_block(h, b);
    return b->bytes;
}

static void give(void *ptr, void *ctx) {
    struct h2 *h = ctx;
    if (!ptr) return;
    if (block_of(ptr) == h->frame_block) h->frame_block = NULL;
    unlink_block(h, block_of(ptr));
    mem_free(block_of(ptr));
}

static void *take_zeroed(size_t count, size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    if (bytes && count > SIZE_MAX / 2 / bytes) return failed(h);
    struct h2_block *b = mem_zalloc(offsetof(struct h2_block, bytes) + count * bytes);
    if (!b) return failed(h);
    link_block(h, b);
    return b->bytes;
}

/* While a session is made, the one block of that size is its frame buffer. */
static void *take_frame(struct h2 *h, size_t bytes) {
    char *ptr = take(bytes, h);
    if (ptr && !h->session && bytes >= FRAME_BYTES) h->frame_block = block_of(ptr);
    return ptr;
}

static void *resize(void *ptr, size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    if (!ptr) return take_frame(h, bytes);
    struct h2_block *b = block_of(ptr);
    if (b == h->frame_block) h->frame_block = NULL;
    unlink_block(h, b);
    struct h2_block *grown =
        bytes < SIZE_MAX / 2 ? mem_realloc(b, offsetof(struct h2_block, bytes) + bytes) : NULL;
    link_block(h, grown ? grown : b);
    return grown ? grown->bytes : failed(h);
}

nghttp2_mem h2_mem_of(struct h2 *h) { return (nghttp2_mem){h, take, give, take_zeroed, resize}; }

void h2_mem_trim(struct h2 *h) {
    if (!h->frame_block) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t bytes = (uintptr_t)h->frame_block->bytes;
    const uintptr_t start = (bytes + page - 1) & ~(page - 1);
    const uintptr_t end = (bytes + FRAME_BYTES) & ~(page - 1);
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

void h2_mem_free_all(struct h2 *h) {
    while (h->blocks) give(h->blocks->bytes, h);
}
