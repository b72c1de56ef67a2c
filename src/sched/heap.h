/* sched/heap.h - a binary heap of sequences from which any element can be removed.
 *
 * Ordered by (key, tie), smallest first. Each sequence is in it at most once. The heap stores the
 * position of each, so that removing or changing any of them is O(log n).
 *
 * Lifetime: init, use, deinit. Thread: its owner. Memory: all allocated by init.
 */
#ifndef SCHED_HEAP_H
#define SCHED_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/seq.h"

struct heap_entry {
    int64_t key;
    uint64_t tie;
    seq_idx seq;
};

struct seq_heap {
    struct heap_entry *entries;
    uint32_t *positions; /* by seq_idx; UINT32_MAX: not in it */
    uint32_t count, cap;
    uint64_t moves; /* entries moved since init: the cost of the heap */
};

enum status heap_init(struct seq_heap *h, uint32_t cap); /* for sequences 0 .. cap-1 */
void heap_deinit(struct seq_heap *h);
void heap_clear(struct seq_heap *h); /* costs in proportion to what is in it */

static inline bool heap_has(const struct seq_heap *h, seq_idx i) {
    return h->positions[i] != UINT32_MAX;
}

void heap_push(struct seq_heap *h, seq_idx i, int64_t key, uint64_t tie); /* must not be in it */
void heap_remove(struct seq_heap *h, seq_idx i);                          /* must be in it */
void heap_change(struct seq_heap *h, seq_idx i, int64_t key, uint64_t tie);
seq_idx heap_top(const struct seq_heap *h); /* SEQ_NONE if empty */
int64_t heap_key(const struct seq_heap *h, seq_idx i);
/* The first of them in order, at most HEAP_FIRST_MAX; returns how many. Changes nothing. */
enum { HEAP_FIRST_MAX = 32 };
uint32_t heap_first(const struct seq_heap *h, seq_idx *out, uint32_t max);

/* CHECK order and positions; slow. */
void heap_verify(const struct seq_heap *h);

#endif
