/* text/trie.h - all entries of a set that start at a place of a text. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct trie; /* opaque */
struct trie_entry {
    struct str text;
    uint32_t value;
};
/* `entries` is sorted in place. Of two equal texts the larger value stays. */
struct trie *trie_create(struct trie_entry *entries, size_t count); /* NULL: out of memory */
void trie_destroy(struct trie *t);
/* Walk: start at node 0; false when no entry continues with this byte. */
bool trie_step(const struct trie *t, uint32_t *node, uint8_t byte);
bool trie_value(const struct trie *t, uint32_t node, uint32_t *value);

#endif
