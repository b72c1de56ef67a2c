/* spec/drafter_ngram.c - prompt lookup: what followed the last tokens when they occurred before.
 *
 * An n-gram is n consecutive tokens. Its *place* is the position behind its last token. The index
 * finds the latest place of every n-gram of the final text, for n from ngram_min to ngram_max.
 * A place counts only if a final token follows it, so the end of the text never matches itself.
 * The longest n-gram that is found decides; its latest place is copied from.
 *
 * The index is a list of *parts*. The first part holds the places below 1,024. Each further part
 * holds as many places as all parts before it: 1,024 to 2,047, then 2,048 to 4,095, and so on. A
 * part has one hash table for each n, in open addressing. A table stores places only: the text
 * says which n-gram ends there. So
 *
 * - nothing is ever moved: a longer text opens the next part, whose memory was not touched before;
 * - the newest part that holds an n-gram holds its latest place.
 *
 * Cost: a token is inserted once for each n; a look-up probes each part at most once for each n,
 * which for 32,768 tokens are 6 parts. A probe looks at PROBES_MAX entries at most. If an n-gram
 * finds no entry among them it is left out: then a guess is lost, and a client that chooses tokens
 * with equal hashes cannot make the index slow.
 */
#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "spec/drafter.h"
#include "spec/speculate_option.h"

enum { FIRST_PART = 1024, PARTS_MAX = 23, PROBES_MAX = 64 };

_Static_assert(FIRST_PART == 1 << 10, "part_of relies on it");

struct part {
    size_t first;           /* of its entries */
    uint32_t table_entries; /* of the table of one n; the tables follow each other */
};

struct ngram {
    uint32_t ngram_min, ngram_max;
    uint32_t place_max; /* places from 1 to this are indexed */
    uint32_t indexed;   /* so many of them are */
    size_t entry_count;
    struct part parts[PARTS_MAX];
    uint32_t entries[]; /* a place; 0: free */
};

static uint32_t part_of(uint32_t place) {
    return place < FIRST_PART ? 0 : 31u - (uint32_t)__builtin_clz(place) - 9u;
}

static uint64_t hash_add(uint64_t hash, int32_t token) {
    hash = (hash ^ (uint32_t)token) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static bool is_equal(const int32_t *a, const int32_t *b, uint32_t count) {
    for (uint32_t i = 1; i <= count; i++)
        if (a[-(ptrdiff_t)i] != b[-(ptrdiff_t)i]) return false;
    return true;
}

/* The entry of the n-gram that ends before `end`: the one that holds it, or a free one, or NULL if
 * neither is among the first PROBES_MAX. */
static uint32_t *find_entry(struct ngram *g, uint32_t part, uint32_t n, uint64_t hash,
                            const int32_t *tokens, const int32_t *end) {
    const struct part *p = &g->parts[part];
    uint32_t *table = g->entries + p->first + (size_t)(n - g->ngram_min) * p->table_entries;
    uint32_t i = (uint32_t)((hash >> 32) * p->table_entries >> 32);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        if (table[i] == 0 || is_equal(tokens + table[i], end, n)) return &table[i];
        if (++i == p->table_entries) i = 0;
    }
    return NULL;
}

static void insert_place(struct ngram *g, const int32_t *tokens, uint32_t place) {
    const int32_t *end = tokens + place;
    uint64_t hash = 0;
    for (uint32_t n = 1; n <= g->ngram_max && n <= place; n++) {
        hash = hash_add(hash, *(end - n));
        if (n < g->ngram_min) continue;
        uint32_t *entry = find_entry(g, part_of(place), n, hash, tokens, end);
        if (entry) *entry = place;
    }
}

/* Index the places that a final token follows. */
static void index_final(struct ngram *g, const int32_t *tokens, uint32_t known) {
    while (g->indexed < g->place_max && g->indexed + 1 < known)
        insert_place(g, tokens, ++g->indexed);
}

/* The latest place of the n-gram that ends before `end`; 0: none. */
static uint32_t find_place(struct ngram *g, uint32_t n, uint64_t hash, const int32_t *tokens,
                           const int32_t *end) {
    for (uint32_t part = part_of(g->indexed) + 1; part-- > 0;) {
        const uint32_t *entry = find_entry(g, part, n, hash, tokens, end);
        if (entry && *entry) return *entry;
    }
    return 0;
}

static uint32_t find_longest(struct ngram *g, const int32_t *tokens, uint32_t count) {
    uint64_t hashes[SPECULATE_NGRAM_LIMIT + 1] = {0};
    const int32_t *end = tokens + count;
    uint32_t n = 0;
    for (; n < g->ngram_max && n < count; n++) hashes[n + 1] = hash_add(hashes[n], *(end - n - 1));
    for (; n >= g->ngram_min; n--) {
        uint32_t place = find_place(g, n, hashes[n], tokens, end);
        if (place) return place;
    }
    return 0;
}

/* Where the copied text reaches its own end it goes on with what was copied: a text that repeats
 * itself is continued for as long as the caller likes. */
static uint32_t propose(void *self, const int32_t *tokens, uint32_t known, uint32_t count,
                        uint32_t max, int32_t *out) {
    struct ngram *g = self;
    CHECK(known <= count);
    index_final(g, tokens, known);
    uint32_t place = find_longest(g, tokens, count);
    if (place == 0) return 0;
    uint32_t left = count - place; /* tokens of the text behind the place */
    for (uint32_t i = 0; i < max; i++) out[i] = i < left ? tokens[place + i] : out[i - left];
    return max;
}

/* Fill in the parts. Returns how many entries they need together. */
static size_t divide(struct part *parts, uint32_t place_max, uint32_t tables) {
    size_t total = 0;
    for (uint32_t i = 0; i <= part_of(place_max); i++) {
        uint64_t first = i ? UINT64_C(512) << i : 0, end = UINT64_C(1024) << i;
        if (end > (uint64_t)place_max + 1) end = (uint64_t)place_max + 1;
        /* A table is at most 4/5 full. */
        parts[i].table_entries = (uint32_t)((end - first) + (end - first) / 4 + 1);
        parts[i].first = total;
        total += (size_t)parts[i].table_entries * tables;
    }
    return total;
}

static enum status create(const struct drafter_setup *setup, void **self, struct err *err) {
    struct part parts[PARTS_MAX] = {{0}};
    if (setup->ngram_min < 1 || setup->ngram_max < setup->ngram_min ||
        setup->ngram_max > SPECULATE_NGRAM_LIMIT)
        return err_set(err, ST_BAD, "ngram: %u to %u tokens; expected 1 <= MIN <= MAX <= %d",
                       setup->ngram_min, setup->ngram_max, SPECULATE_NGRAM_LIMIT);
    CHECK(setup->tokens_max <= INT32_MAX);
    uint32_t tables = setup->ngram_max - setup->ngram_min + 1;
    uint32_t place_max = setup->tokens_max > 1 ? setup->tokens_max - 1 : 1;
    size_t entry_count = divide(parts, place_max, tables), bytes;
    /* Zeroed by the allocator, so memory that no token reaches is never touched. */
    struct ngram *g = NULL;
    if (size_mul(entry_count, sizeof(g->entries[0]), &bytes) && size_add(bytes, sizeof(*g), &bytes))
        g = mem_zalloc(bytes);
    if (!g)
        return err_set(err, ST_NOMEM, "out of memory for drafts of %u tokens", setup->tokens_max);
    g->ngram_min = setup->ngram_min;
    g->ngram_max = setup->ngram_max;
    g->place_max = place_max;
    g->entry_count = entry_count;
    for (uint32_t i = 0; i < PARTS_MAX; i++) g->parts[i] = parts[i];
    if (setup->prompt) index_final(g, setup->prompt, setup->prompt_tokens);
    *self = g;
    return ST_OK;
}

static size_t bytes_for(const struct drafter_setup *setup) {
    struct part parts[PARTS_MAX];
    uint32_t place_max = setup->tokens_max > 1 ? setup->tokens_max - 1 : 1;
    uint32_t tables = setup->ngram_max - setup->ngram_min + 1;
    return sizeof(struct ngram) + divide(parts, place_max, tables) * sizeof(uint32_t);
}

static size_t bytes_held(const void *self) {
    const struct ngram *g = self;
    return sizeof(*g) + g->entry_count * sizeof(g->entries[0]);
}

/* Every entry is a place that is indexed, in the part that it belongs to. */
static void verify(const void *self) {
    const struct ngram *g = self;
    uint32_t tables = g->ngram_max - g->ngram_min + 1;
    size_t seen = 0;
    CHECK(g->indexed <= g->place_max);
    for (uint32_t part = 0; part <= part_of(g->place_max); part++) {
        const struct part *p = &g->parts[part];
        CHECK(p->first == seen);
        for (size_t i = 0; i < (size_t)p->table_entries * tables; i++) {
            uint32_t place = g->entries[seen++];
            CHECK(place <= g->indexed);
            CHECK(place == 0 || part_of(place) == part);
        }
    }
    CHECK(seen == g->entry_count);
}

const struct drafter drafter_ngram = {
    .name = "ngram",
    .summary = "what followed the last tokens when they occurred before in the same text",
    .create = create,
    .destroy = mem_free,
    .propose = propose,
    .bytes_for = bytes_for,
    .bytes = bytes_held,
    .verify = verify,
};
