/* base/map.c - see base/map.h for the contract. */
#include "base/map.h"

#include <xxhash.h>

#include "base/mem.h"
#include "base/size.h"

enum { MIN_CELLS = 16 };

struct cell {
    struct str key; /* ptr == NULL: empty */
    uint32_t hash, value;
};

struct map {
    struct cell *cells;
    size_t mask, count;
};

struct cell64 {
    uint64_t key, value;
    bool used;
};

struct map64 {
    struct cell64 *cells;
    size_t mask, count;
};

/* Cells for `count` keys at most half full: a power of two. 0 when it does not fit. */
static size_t cells_for(size_t count) {
    size_t cells = MIN_CELLS;
    while (cells / 2 < count)
        if (!size_mul(cells, 2, &cells)) return 0;
    return cells;
}

struct map *map_create(size_t expected_count) {
    size_t cells = cells_for(expected_count);
    struct map *m = cells ? mem_zalloc(sizeof(*m)) : NULL;
    if (!m) return NULL;
    m->mask = cells - 1;
    m->cells = mem_zalloc_array(cells, sizeof(m->cells[0]));
    if (m->cells) return m;
    mem_free(m);
    return NULL;
}

void map_destroy(struct map *m) {
    if (!m) return;
    mem_free(m->cells);
    mem_free(m);
}

static uint32_t hash_text(struct str key) { return (uint32_t)XXH3_64bits(key.ptr, key.len); }

static struct cell *probe(struct cell *cells, size_t mask, struct str key, uint32_t hash) {
    size_t i = hash & mask;
    while (cells[i].key.ptr && !(cells[i].hash == hash && str_eq(cells[i].key, key)))
        i = (i + 1) & mask;
    return &cells[i];
}

static enum status grow(struct map *m) {
    size_t cells = (m->mask + 1) * 2;
    struct cell *bigger = mem_zalloc_array(cells, sizeof(bigger[0]));
    if (!bigger) return ST_NOMEM;
    for (size_t i = 0; i <= m->mask; i++) {
        struct cell *old = &m->cells[i];
        if (old->key.ptr) *probe(bigger, cells - 1, old->key, old->hash) = *old;
    }
    mem_free(m->cells);
    m->cells = bigger;
    m->mask = cells - 1;
    return ST_OK;
}

enum status map_put(struct map *m, struct str key, uint32_t value) {
    if (!key.ptr) key.ptr = "";
    if (m->count * 2 > m->mask) TRY(grow(m));
    uint32_t hash = hash_text(key);
    struct cell *c = probe(m->cells, m->mask, key, hash);
    if (!c->key.ptr) m->count++;
    *c = (struct cell){.key = key, .hash = hash, .value = value};
    return ST_OK;
}

bool map_find(const struct map *m, struct str key, uint32_t *value) {
    const struct cell *c = probe(m->cells, m->mask, key, hash_text(key));
    if (!c->key.ptr) return false;
    *value = c->value;
    return true;
}

size_t map_count(const struct map *m) { return m->count; }

struct map64 *map64_create(size_t expected_count) {
    size_t cells = cells_for(expected_count);
    struct map64 *m = cells ? mem_zalloc(sizeof(*m)) : NULL;
    if (!m) return NULL;
    m->mask = cells - 1;
    m->cells = mem_zalloc_array(cells, sizeof(m->cells[0]));
    if (m->cells) return m;
    mem_free(m);
    return NULL;
}

void map64_destroy(struct map64 *m) {
    if (!m) return;
    mem_free(m->cells);
    mem_free(m);
}

/* The finaliser of MurmurHash3: every input bit reaches every output bit. */
static uint64_t mix(uint64_t key) {
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdULL;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return key ^ key >> 33;
}

static struct cell64 *probe64(struct cell64 *cells, size_t mask, uint64_t key) {
    size_t i = mix(key) & mask;
    while (cells[i].used && cells[i].key != key) i = (i + 1) & mask;
    return &cells[i];
}

static enum status grow64(struct map64 *m) {
    size_t cells = (m->mask + 1) * 2;
    struct cell64 *bigger = mem_zalloc_array(cells, sizeof(bigger[0]));
    if (!bigger) return ST_NOMEM;
    for (size_t i = 0; i <= m->mask; i++)
        if (m->cells[i].used) *probe64(bigger, cells - 1, m->cells[i].key) = m->cells[i];
    mem_free(m->cells);
    m->cells = bigger;
    m->mask = cells - 1;
    return ST_OK;
}

enum status map64_put(struct map64 *m, uint64_t key, uint64_t value) {
    if (m->count * 2 > m->mask) TRY(grow64(m));
    struct cell64 *c = probe64(m->cells, m->mask, key);
    if (!c->used) m->count++;
    *c = (struct cell64){.key = key, .value = value, .used = true};
    return ST_OK;
}

bool map64_find(const struct map64 *m, uint64_t key, uint64_t *value) {
    const struct cell64 *c = probe64(m->cells, m->mask, key);
    if (!c->used) return false;
    *value = c->value;
    return true;
}

size_t map64_count(const struct map64 *m) { return m->count; }
