/* grammar/vocabulary.c - building the trees of tokens from the sorted list of their bytes. */
#include "grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar.h"

struct entry {
    struct str bytes;
    uint32_t token;
};

static int compare_entries(const void *x, const void *y) {
    const struct entry *a = x, *b = y;
    int order = str_cmp(a->bytes, b->bytes);
    if (order) return order;
    return (a->token > b->token) - (a->token < b->token);
}

/* Bytes at the start of `b` that `a` has, too. */
static size_t common_len(struct str a, struct str b) {
    size_t len = 0;
    while (len < a.len && len < b.len && a.ptr[len] == b.ptr[len]) len++;
    return len;
}

static uint32_t count_nodes(const struct entry *sorted, uint32_t count) {
    uint32_t nodes = 0;
    struct str before = {0};
    for (uint32_t i = 0; i < count; i++) {
        nodes += (uint32_t)(sorted[i].bytes.len - common_len(before, sorted[i].bytes));
        before = sorted[i].bytes;
    }
    return nodes;
}

static void fill_tree(struct vocabulary *v, struct token_tree *t, const struct entry *sorted,
                      uint32_t count) {
    uint32_t open[VOCABULARY_TOKEN_BYTES_MAX] = {0}; /* nodes on the path to the last one */
    size_t depth = 0;
    uint32_t at = 0;
    struct str before = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct str s = sorted[i].bytes;
        size_t shared = common_len(before, s);
        for (; depth > shared; depth--) t->nodes[open[depth - 1]].end = at;
        for (; depth < s.len; depth++) {
            open[depth] = at;
            t->nodes[at++] = (struct vocabulary_node){
                .token = TOKEN_ABSENT, .depth = (uint16_t)depth, .byte = (uint8_t)s.ptr[depth]};
        }
        struct vocabulary_node *last = &t->nodes[open[depth - 1]];
        v->next_alike[sorted[i].token] = last->token;
        last->token = sorted[i].token;
        before = s;
    }
    for (; depth > 0; depth--) t->nodes[open[depth - 1]].end = at;
}

/* The tree of sorted tokens. */
static bool make_tree(struct vocabulary *v, struct token_tree *t, const struct entry *sorted,
                      uint32_t count) {
    t->node_count = count_nodes(sorted, count);
    t->nodes = mem_alloc_array(t->node_count + 1, sizeof(*t->nodes));
    if (!t->nodes) return false;
    fill_tree(v, t, sorted, count);
    return true;
}

/* The number of characters of plain text; 0: it is none. */
static uint32_t text_chars(struct str bytes) {
    if (!utf8_is_valid(bytes)) return 0;
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t c = (uint8_t)bytes.ptr[i];
        if (c < 0x20 || c == '"' || c == '\\') return 0;
    }
    return (uint32_t)utf8_count(bytes);
}

/* Notes the tokens that are plain text and leaves the others in `sorted`; returns their number. */
static uint32_t take_text(struct vocabulary *v, struct entry *sorted, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chars = text_chars(sorted[i].bytes), token = sorted[i].token;
        if (chars > v->text_chars_max) v->text_chars_max = chars;
        if (chars)
            v->text[token >> 6] |= UINT64_C(1) << (token & 63);
        else
            sorted[kept++] = sorted[i];
    }
    return kept;
}

static bool copy_bytes(struct vocabulary *v, const struct str *tokens, uint32_t count) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += tokens[i].len;
    if (total > UINT32_MAX) return false;
    v->bytes = mem_alloc(total + 1);
    v->starts = mem_zalloc_array(count + (size_t)1, sizeof(*v->starts));
    if (!v->bytes || !v->starts) return false;
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i].len > 0) memcpy(v->bytes + v->starts[i], tokens[i].ptr, tokens[i].len);
        v->starts[i + 1] = v->starts[i] + (uint32_t)tokens[i].len;
    }
    return true;
}

enum status vocabulary_create(const struct str *tokens, uint32_t count, struct vocabulary **out) {
    struct vocabulary *v = mem_zalloc(sizeof(*v));
    struct entry *sorted = mem_alloc_array(count + 1, sizeof(*sorted));
    uint32_t used = 0;
    if (!v || !sorted) goto fail;
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i].len > 0 && tokens[i].len <= VOCABULARY_TOKEN_BYTES_MAX)
            sorted[used++] = (struct entry){tokens[i], i};
    qsort(sorted, used, sizeof(*sorted), compare_entries);
    v->count = count;
    v->next_alike = mem_alloc_array(count + 1, sizeof(*v->next_alike));
    v->text = mem_zalloc_array(vocabulary_words(v) + 1, sizeof(*v->text));
    if (!v->next_alike || !v->text || !copy_bytes(v, tokens, count)) goto fail;
    if (!make_tree(v, &v->all, sorted, used)) goto fail;
    if (!make_tree(v, &v->rest, sorted, take_text(v, sorted, used))) goto fail;
    mem_free(sorted);
    *out = v;
    return ST_OK;
fail:
    mem_free(sorted);
    vocabulary_destroy(v);
    return ST_NOMEM;
}

void vocabulary_destroy(struct vocabulary *v) {
    if (!v) return;
    mem_free(v->all.nodes);
    mem_free(v->rest.nodes);
    mem_free(v->text);
    mem_free(v->next_alike);
    mem_free(v->bytes);
    mem_free(v->starts);
    mem_free(v);
}

uint32_t vocabulary_count(const struct vocabulary *v) { return v->count; }

uint32_t vocabulary_words(const struct vocabulary *v) { return (v->count + 63) / 64; }

struct str vocabulary_token(const struct vocabulary *v, uint32_t token) {
    CHECK(token < v->count);
    return (struct str){v->bytes + v->starts[token], v->starts[token + 1] - v->starts[token]};
}
