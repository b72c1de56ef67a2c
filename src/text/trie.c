/* text/trie.c - a prefix tree in four flat arrays.
 *
 * Built breadth first from the sorted entries, so that the children of a node lie together in
 * the order of their bytes: a step is a search among at most 256 neighbours. A node is a
 * range of entries that share their first `depth` bytes; building reads each entry once per
 * byte.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/text_int.h"

struct trie {
    uint32_t *first; /* first child of each node; the next node's first is this one's end */
    uint32_t *value; /* 0: none, else value + 1 */
    uint8_t *label;  /* byte that leads to the node */
    uint32_t count;
    uint32_t root[256]; /* child of the root by byte; 0: none */
};

struct range { /* entries [lo, hi) of a node */
    uint32_t lo, hi;
};

static int by_text(const void *a, const void *b) {
    const struct trie_entry *x = a, *y = b;
    size_t shorter = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = shorter ? memcmp(x->text.ptr, y->text.ptr, shorter) : 0;
    if (order) return order;
    if (x->text.len != y->text.len) return x->text.len < y->text.len ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

void trie_destroy(struct trie *t) {
    if (!t) return;
    mem_free(t->first);
    mem_free(t->value);
    mem_free(t->label);
    mem_free(t);
}

/* How many nodes the sorted entries need: one for each byte that the entry before lacks. */
static size_t nodes_needed(const struct trie_entry *e, size_t count) {
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        if (i > 0)
            while (same < e[i].text.len && same < e[i - 1].text.len &&
                   e[i].text.ptr[same] == e[i - 1].text.ptr[same])
                same++;
        nodes += e[i].text.len - same;
    }
    return nodes;
}

/* Take the entries that end at this node, then make a child for each byte that follows. */
static void expand(struct trie *t, struct range *ranges, uint32_t node, uint32_t depth,
                   const struct trie_entry *e) {
    struct range r = ranges[node];
    while (r.lo < r.hi && e[r.lo].text.len == depth) t->value[node] = e[r.lo++].value + 1;
    t->first[node] = t->count;
    while (r.lo < r.hi) {
        char byte = e[r.lo].text.ptr[depth];
        uint32_t hi = r.lo + 1;
        while (hi < r.hi && e[hi].text.ptr[depth] == byte) hi++;
        t->label[t->count] = (uint8_t)byte;
        ranges[t->count++] = (struct range){r.lo, hi};
        r.lo = hi;
    }
}

static void fill(struct trie *t, struct range *ranges, const struct trie_entry *e,
                 uint32_t entry_count) {
    ranges[0] = (struct range){0, entry_count};
    t->count = 1;
    uint32_t node = 0;
    for (uint32_t depth = 0; node < t->count; depth++)
        for (uint32_t level_end = t->count; node < level_end; node++)
            expand(t, ranges, node, depth, e);
    t->first[t->count] = t->count;
    for (uint32_t child = t->first[0]; child < t->first[1]; child++)
        t->root[t->label[child]] = child;
}

struct trie *trie_create(struct trie_entry *entries, size_t count) {
    if (count) qsort(entries, count, sizeof(entries[0]), by_text);
    size_t nodes = nodes_needed(entries, count);
    if (nodes >= UINT32_MAX - 2) return NULL;
    struct trie *t = mem_zalloc(sizeof(*t));
    struct range *ranges = mem_alloc_array(nodes, sizeof(ranges[0]));
    if (t) {
        t->first = mem_zalloc_array(nodes + 1, sizeof(t->first[0]));
        t->value = mem_zalloc_array(nodes, sizeof(t->value[0]));
        t->label = mem_zalloc_array(nodes, sizeof(t->label[0]));
    }
    if (!t || !ranges || !t->first || !t->value || !t->label) {
        trie_destroy(t);
        t = NULL;
    } else {
        fill(t, ranges, entries, (uint32_t)count);
        CHECK(t->count == nodes);
    }
    mem_free(ranges);
    return t;
}

bool trie_step(const struct trie *t, uint32_t *node, uint8_t byte) {
    if (*node == 0) {
        *node = t->root[byte];
        return *node != 0;
    }
    uint32_t lo = t->first[*node], hi = t->first[*node + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->label[mid] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == t->first[*node + 1] || t->label[lo] != byte) return false;
    *node = lo;
    return true;
}

bool trie_value(const struct trie *t, uint32_t node, uint32_t *value) {
    if (!t->value[node]) return false;
    *value = t->value[node] - 1;
    return true;
}
