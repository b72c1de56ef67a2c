/* net/h2_mem.c - the heap of one nghttp2 session.
 *
 * nghttp2 1.52 is not safe after an allocation has failed: a stream may keep a pointer to an item
 * that the error path has freed. So every allocation of a session is in a list, and the first
 * failure ends the session: nghttp2 is not called again, the connection fails, and the list is
 * freed.
 *
 * The largest part of an idle session is the 16 KiB buffer in which it builds frames. It holds
 * nothing between two frames, so while nothing is to be sent its pages are returned to the system,
 * which gives them back as zeros.
 */
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/h2_int.h"

enum { FRAME_BYTES = 16384 }; /* the largest payload that nghttp2 sends */

struct h2_allocation {
    struct list_link link;
    _Alignas(max_align_t) char bytes[];
};

static void *failed(struct h2 *h) {
    h->is_over = h->is_out_of_memory = true;
    conn_fail(h->conn);
    return NULL;
}

static void link_allocation(struct h2 *h, struct h2_allocation *b) {
    b->link = (struct list_link){0};
    list_push_first(&h->allocations, &b->link);
}

static struct h2_allocation *allocation_of(void *ptr) {
    return (struct h2_allocation *)((char *)ptr - offsetof(struct h2_allocation, bytes));
}

static void *take(size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    struct h2_allocation *b =
        bytes < SIZE_MAX / 2 ? mem_alloc(offsetof(struct h2_allocation, bytes) + bytes) : NULL;
    if (!b) return failed(h);
    link_allocation(h, b);
    return b->bytes;
}

static void give(void *ptr, void *ctx) {
    struct h2 *h = ctx;
    if (!ptr) return;
    if (allocation_of(ptr) == h->frame_allocation) h->frame_allocation = NULL;
    list_remove(&h->allocations, &allocation_of(ptr)->link);
    mem_free(allocation_of(ptr));
}

static void *take_zeroed(size_t count, size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    if (bytes && count > SIZE_MAX / 2 / bytes) return failed(h);
    struct h2_allocation *b = mem_zalloc(offsetof(struct h2_allocation, bytes) + count * bytes);
    if (!b) return failed(h);
    link_allocation(h, b);
    return b->bytes;
}

/* While a session is being created, the one allocation of that size is its frame buffer. */
static void *take_frame(struct h2 *h, size_t bytes) {
    char *ptr = take(bytes, h);
    if (ptr && !h->session && bytes >= FRAME_BYTES) h->frame_allocation = allocation_of(ptr);
    return ptr;
}

static void *resize(void *ptr, size_t bytes, void *ctx) {
    struct h2 *h = ctx;
    if (!ptr) return take_frame(h, bytes);
    struct h2_allocation *b = allocation_of(ptr);
    if (b == h->frame_allocation) h->frame_allocation = NULL;
    list_remove(&h->allocations, &b->link);
    struct h2_allocation *grown =
        bytes < SIZE_MAX / 2 ? mem_realloc(b, offsetof(struct h2_allocation, bytes) + bytes) : NULL;
    link_allocation(h, grown ? grown : b);
    return grown ? grown->bytes : failed(h);
}

nghttp2_mem h2_mem_of(struct h2 *h) { return (nghttp2_mem){h, take, give, take_zeroed, resize}; }

void h2_mem_trim(struct h2 *h) {
    if (!h->frame_allocation) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t bytes = (uintptr_t)h->frame_allocation->bytes;
    const uintptr_t start = (bytes + page - 1) & ~(page - 1);
    const uintptr_t end = (bytes + FRAME_BYTES) & ~(page - 1);
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

void h2_mem_free_all(struct h2 *h) {
    struct list_link *l;
    while ((l = h->allocations.first)) give(LIST_ITEM(l, struct h2_allocation, link)->bytes, h);
}
