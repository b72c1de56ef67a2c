/* sched/heap.c - see sched/heap.h. */
#include "sched/heap.h"

#include "base/check.h"
#include "base/mem.h"

enum status heap_init(struct seq_heap *h, uint32_t cap) {
    CHECK(cap > 0);
    *h = (struct seq_heap){.cap = cap};
    h->entries = mem_alloc_array(cap, sizeof(h->entries[0]));
    h->positions = mem_alloc_array(cap, sizeof(h->positions[0]));
    if (!h->entries || !h->positions) {
        heap_deinit(h);
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < cap; i++) h->positions[i] = UINT32_MAX;
    return ST_OK;
}

void heap_deinit(struct seq_heap *h) {
    mem_free(h->entries);
    mem_free(h->positions);
    *h = (struct seq_heap){0};
}

void heap_clear(struct seq_heap *h) {
    for (uint32_t n = 0; n < h->count; n++) h->positions[h->entries[n].seq] = UINT32_MAX;
    h->count = 0;
}

static bool before(const struct heap_entry *a, const struct heap_entry *b) {
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void set_entry(struct seq_heap *h, uint32_t at, struct heap_entry e) {
    h->entries[at] = e;
    h->positions[e.seq] = at;
    h->moves++;
}

/* Move `e` up or down to its position, starting from the hole at `at`. */
static void sift(struct seq_heap *h, uint32_t at, struct heap_entry e) {
    while (at > 0 && before(&e, &h->entries[(at - 1) / 2])) {
        set_entry(h, at, h->entries[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && before(&h->entries[child + 1], &h->entries[child])) child++;
        if (!before(&h->entries[child], &e)) break;
        set_entry(h, at, h->entries[child]);
        at = child;
    }
    set_entry(h, at, e);
}

void heap_push(struct seq_heap *h, seq_idx i, int64_t key, uint64_t tie) {
    CHECK(i < h->cap);
    CHECK(!heap_has(h, i));
    uint32_t at = h->count++;
    sift(h, at, (struct heap_entry){.key = key, .tie = tie, .seq = i});
}

void heap_remove(struct seq_heap *h, seq_idx i) {
    CHECK(i < h->cap);
    CHECK(heap_has(h, i));
    uint32_t at = h->positions[i];
    h->positions[i] = UINT32_MAX;
    h->count--;
    if (at < h->count) sift(h, at, h->entries[h->count]);
}

void heap_change(struct seq_heap *h, seq_idx i, int64_t key, uint64_t tie) {
    CHECK(i < h->cap);
    CHECK(heap_has(h, i));
    sift(h, h->positions[i], (struct heap_entry){.key = key, .tie = tie, .seq = i});
}

seq_idx heap_top(const struct seq_heap *h) { return h->count ? h->entries[0].seq : SEQ_NONE; }

int64_t heap_key(const struct seq_heap *h, seq_idx i) {
    CHECK(heap_has(h, i));
    return h->entries[h->positions[i]].key;
}

/* The next one is the first of those whose parents were taken: at most one more than are taken. */
uint32_t heap_first(const struct seq_heap *h, seq_idx *out, uint32_t max) {
    uint32_t open[HEAP_FIRST_MAX + 1], open_count = h->count > 0, count = 0;
    CHECK(max <= HEAP_FIRST_MAX);
    open[0] = 0;
    while (open_count > 0 && count < max) {
        uint32_t best = 0;
        for (uint32_t n = 1; n < open_count; n++)
            if (before(&h->entries[open[n]], &h->entries[open[best]])) best = n;
        uint32_t at = open[best], child = 2 * at + 1;
        out[count++] = h->entries[at].seq;
        open[best] = open[--open_count];
        if (child < h->count) open[open_count++] = child;
        if (child + 1 < h->count) open[open_count++] = child + 1;
    }
    return count;
}

void heap_verify(const struct seq_heap *h) {
    uint32_t placed = 0;
    for (uint32_t i = 0; i < h->cap; i++) placed += heap_has(h, i);
    CHECK(placed == h->count);
    for (uint32_t n = 0; n < h->count; n++) {
        CHECK(h->positions[h->entries[n].seq] == n);
        if (n > 0) CHECK(!before(&h->entries[n], &h->entries[(n - 1) / 2]));
    }
}
