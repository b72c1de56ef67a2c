/* kv/prefix.c - see kv/prefix.h for the contract. */
#include "kv/prefix.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

struct cell {
    struct kv_key key;
    uint32_t value; /* KV_PREFIX_NONE: empty */
};

struct kv_prefix {
    uint32_t key_max, count;
    uint64_t mask; /* cells - 1; a power of two */
    struct cell cells[];
};

static struct kv_key key_of(struct siphash_key secret, const void *bytes, size_t len) {
    struct siphash h = siphash_of(secret, bytes, len);
    return (struct kv_key){.low = h.low, .high = h.high};
}

/* The input has one byte more than these numbers: an odd length, which the input of no block has.
 */
struct kv_key kv_key_root(struct siphash_key secret, uint64_t identity, struct kv_salt salt) {
    uint8_t input[sizeof(identity) + sizeof(salt) + 1] = {0};
    memcpy(input, &identity, sizeof(identity));
    memcpy(input + sizeof(identity), &salt, sizeof(salt));
    return key_of(secret, input, sizeof(input));
}

size_t kv_key_scratch_bytes(uint32_t count) {
    return sizeof(struct kv_key) + (size_t)count * sizeof(int32_t);
}

struct kv_key kv_key_next(struct siphash_key secret, struct kv_key before, const int32_t *tokens,
                          uint32_t count, uint8_t *scratch) {
    CHECK(count > 0);
    memcpy(scratch, &before, sizeof(before));
    memcpy(scratch + sizeof(before), tokens, (size_t)count * sizeof(int32_t));
    return key_of(secret, scratch, kv_key_scratch_bytes(count));
}

/* ---- the table ---- */

static uint64_t cell_count_for(uint32_t key_max) {
    uint64_t cells = 2;
    while (cells < 2 * (uint64_t)key_max) cells *= 2;
    return cells;
}

enum status kv_prefix_create(struct kv_prefix **out, uint32_t key_max) {
    CHECK(key_max > 0);
    uint64_t cells = cell_count_for(key_max);
    struct kv_prefix *t = mem_alloc(sizeof(*t) + cells * sizeof(t->cells[0]));
    if (!t) return ST_NOMEM;
    t->key_max = key_max;
    t->count = 0;
    t->mask = cells - 1;
    for (uint64_t i = 0; i < cells; i++) t->cells[i].value = KV_PREFIX_NONE;
    *out = t;
    return ST_OK;
}

void kv_prefix_destroy(struct kv_prefix *t) { mem_free(t); }

/* A key is a hash: its low bits select the cell where the search starts. */
static uint64_t first_cell(const struct kv_prefix *t, struct kv_key key) {
    return key.low & t->mask;
}

/* The cell of `key`, or the empty cell where it would be put. There is always an empty one. */
static uint64_t probe(const struct kv_prefix *t, struct kv_key key) {
    uint64_t i = first_cell(t, key);
    while (t->cells[i].value != KV_PREFIX_NONE && !kv_key_eq(t->cells[i].key, key))
        i = (i + 1) & t->mask;
    return i;
}

uint32_t kv_prefix_find(const struct kv_prefix *t, struct kv_key key) {
    return t->cells[probe(t, key)].value;
}

bool kv_prefix_put(struct kv_prefix *t, struct kv_key key, uint32_t value) {
    CHECK(value != KV_PREFIX_NONE);
    struct cell *c = &t->cells[probe(t, key)];
    if (c->value != KV_PREFIX_NONE || t->count == t->key_max) return false;
    *c = (struct cell){.key = key, .value = value};
    t->count++;
    return true;
}

/* Close the hole: move a later key of the same run into it, unless that would put the key before
 * its first cell. The moved key leaves a hole, which is closed in the same way. */
void kv_prefix_remove(struct kv_prefix *t, struct kv_key key) {
    uint64_t hole = probe(t, key);
    CHECK(t->cells[hole].value != KV_PREFIX_NONE);
    for (uint64_t i = (hole + 1) & t->mask; t->cells[i].value != KV_PREFIX_NONE;
         i = (i + 1) & t->mask) {
        uint64_t from_home = (i - first_cell(t, t->cells[i].key)) & t->mask;
        uint64_t from_hole = (i - hole) & t->mask;
        if (from_home < from_hole) continue;
        t->cells[hole] = t->cells[i];
        hole = i;
    }
    t->cells[hole].value = KV_PREFIX_NONE;
    t->count--;
}

uint32_t kv_prefix_count(const struct kv_prefix *t) { return t->count; }

void kv_prefix_verify(const struct kv_prefix *t) {
    uint32_t seen = 0;
    for (uint64_t i = 0; i <= t->mask; i++) {
        if (t->cells[i].value == KV_PREFIX_NONE) continue;
        CHECK(probe(t, t->cells[i].key) == i);
        seen++;
    }
    CHECK(seen == t->count);
    CHECK(seen <= t->key_max);
}
