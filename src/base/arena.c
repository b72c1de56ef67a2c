/* base/arena.c - see base/arena.h for the contract.
 *
 * Chunks form a list, newest first; only the newest is bumped. A block too large for a chunk
 * of the usual size gets a chunk of its own. The list is freed from the newest chunk on and never
 * otherwise searched, so a single pointer in each chunk is enough and base/list.h is not used.
 */
#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { CHUNK_FIRST_BYTES = 4096, CHUNK_MAX_BYTES = 1 << 20 };

struct chunk {
    struct chunk *next;
    size_t cap, used;
    alignas(max_align_t) char bytes[];
};

struct arena {
    struct chunk *newest;
    size_t limit_bytes, held_bytes, used_bytes;
    size_t next_cap;
    enum status status; /* of the last request that failed */
};

struct arena *arena_create(size_t limit_bytes) {
    struct arena *a = mem_zalloc(sizeof(*a));
    if (!a) return NULL;
    a->limit_bytes = limit_bytes;
    a->next_cap = CHUNK_FIRST_BYTES;
    return a;
}

static void free_chunks(struct chunk *c) {
    while (c) {
        struct chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

void arena_destroy(struct arena *a) {
    if (!a) return;
    free_chunks(a->newest);
    mem_free(a);
}

void arena_reset(struct arena *a) {
    if (a->newest) {
        free_chunks(a->newest->next);
        a->newest->next = NULL;
        a->newest->used = 0;
        a->held_bytes = a->newest->cap;
    }
    a->used_bytes = 0;
}

static struct chunk *add_chunk(struct arena *a, size_t need) {
    size_t cap = a->next_cap > need ? a->next_cap : need;
    size_t room = a->limit_bytes - a->held_bytes;
    a->status = ST_FULL;
    if (need > room) return NULL;
    if (cap > room) cap = room;
    size_t total;
    if (!size_add(sizeof(struct chunk), cap, &total)) return NULL;
    struct chunk *c = mem_alloc(total);
    a->status = c ? ST_OK : ST_NOMEM;
    if (!c) return NULL;
    *c = (struct chunk){.next = a->newest, .cap = cap};
    a->newest = c;
    a->held_bytes += cap;
    if (a->next_cap < CHUNK_MAX_BYTES) a->next_cap *= 2;
    return c;
}

void *arena_alloc(struct arena *a, size_t bytes) {
    size_t need;
    if (!size_round_up(bytes ? bytes : 1, alignof(max_align_t), &need)) return NULL;
    struct chunk *c = a->newest;
    if (!c || c->cap - c->used < need) c = add_chunk(a, need);
    if (!c) return NULL;
    void *block = c->bytes + c->used;
    c->used += need;
    a->used_bytes += need;
    return block;
}

void *arena_zalloc_array(struct arena *a, size_t count, size_t bytes) {
    size_t total;
    if (!size_mul(count, bytes, &total)) return NULL;
    void *block = arena_alloc(a, total);
    if (block) memset(block, 0, total);
    return block;
}

struct str arena_dup(struct arena *a, struct str s) {
    size_t total;
    if (!size_add(s.len, 1, &total)) return (struct str){NULL, 0};
    char *copy = arena_alloc(a, total);
    if (!copy) return (struct str){NULL, 0};
    if (s.len) memcpy(copy, s.ptr, s.len);
    copy[s.len] = 0;
    return (struct str){copy, s.len};
}

enum status arena_status(const struct arena *a) { return a->status == ST_OK ? ST_FULL : a->status; }

size_t arena_used(const struct arena *a) { return a->used_bytes; }
