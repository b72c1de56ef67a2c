/* grammar/vocabulary.c - building the trees of tokens from the sorted list of their bytes. */
#include "grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar.h"

enum { PART_TOKENS_MIN = 512, PART_MASKS_MAX = 1000 }; /* parts that have a mask of their own */

struct entry {
    struct str bytes;
    uint32_t token;
    uint32_t chars; /* of plain text; 0: it is none */
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

/* A tree that is being made; parts[node]: the sorted texts that begin with the path to the node. */
struct building {
    struct vocabulary *vocabulary;
    struct token_tree *tree;
    const struct entry *sorted;
    struct text_part *parts;
};

/* Adds a node for each byte at `depth` of the texts from `first` to `end`, which are longer.
 * Returns how many. */
static uint16_t add_family(struct building *b, uint32_t first, uint32_t end, uint32_t depth) {
    struct token_tree *t = b->tree;
    const uint32_t start = t->node_count;
    while (first < end) {
        const char byte = b->sorted[first].bytes.ptr[depth];
        uint32_t next = first + 1;
        while (next < end && b->sorted[next].bytes.ptr[depth] == byte) next++;
        b->parts[t->node_count] = (struct text_part){.first = first, .end = next};
        t->nodes[t->node_count++] =
            (struct vocabulary_node){.token = TOKEN_ABSENT, .byte = (uint8_t)byte};
        first = next;
    }
    return (uint16_t)(t->node_count - start);
}

/* Notes the tokens that end at a node, and adds its children. */
static void expand(struct building *b, uint32_t node, uint32_t depth) {
    struct vocabulary_node *n = &b->tree->nodes[node];
    uint32_t first = b->parts[node].first;
    const uint32_t end = b->parts[node].end;
    for (; first < end && b->sorted[first].bytes.len == depth + 1; first++) {
        b->vocabulary->next_alike[b->sorted[first].token] = n->token;
        n->has_alike |= n->token != TOKEN_ABSENT;
        n->token = b->sorted[first].token;
    }
    n->children = b->tree->node_count;
    n->child_count = add_family(b, first, end, depth + 1);
}

static void fill_tree(struct building *b, uint32_t count) {
    uint32_t at[VOCABULARY_TOKEN_BYTES_MAX + 1], ends[VOCABULARY_TOKEN_BYTES_MAX + 1];
    uint32_t depth = 0;
    at[0] = 0;
    ends[0] = b->tree->root_count = add_family(b, 0, count, 0);
    for (;;) {
        if (at[depth] == ends[depth]) {
            if (depth == 0) return;
            depth--;
            continue;
        }
        const uint32_t node = at[depth]++;
        expand(b, node, depth);
        const struct vocabulary_node *n = &b->tree->nodes[node];
        if (n->child_count == 0) continue;
        depth++;
        at[depth] = n->children;
        ends[depth] = n->children + n->child_count;
    }
}

/* The tree of sorted tokens; *parts, by node, is the caller's to free. */
static bool make_tree(struct vocabulary *v, struct token_tree *t, const struct entry *sorted,
                      uint32_t count, struct text_part **parts) {
    const uint32_t node_count = count_nodes(sorted, count);
    t->nodes = mem_alloc_array(node_count + 1, sizeof(*t->nodes));
    *parts = mem_alloc_array(node_count + 1, sizeof(**parts));
    if (!t->nodes || !*parts) return false;
    struct building b = {v, t, sorted, *parts};
    fill_tree(&b, count);
    CHECK(t->node_count == node_count);
    return true;
}

/* The same where the parts are not needed. */
static bool make_plain_tree(struct vocabulary *v, struct token_tree *t, const struct entry *sorted,
                            uint32_t count) {
    struct text_part *parts = NULL;
    bool made = make_tree(v, t, sorted, count, &parts);
    mem_free(parts);
    return made;
}

/* The bytes of whole characters at the start. */
static size_t whole_len(struct str bytes) {
    for (size_t cut = 0; cut < 4 && cut < bytes.len; cut++) {
        uint8_t c = (uint8_t)bytes.ptr[bytes.len - 1 - cut];
        if (c < 0x80) return bytes.len;
        if (c < 0xC0) continue;
        size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        return cut + 1 < len ? bytes.len - 1 - cut : bytes.len;
    }
    return bytes.len;
}

/* Whether the bytes begin a character and do not end it. The second byte decides about overlong
 * forms, surrogates and numbers that are too large; a character that begins so is completed. */
static bool is_cut_char(struct str bytes) {
    char whole[4] = {0};
    const uint8_t lead = (uint8_t)bytes.ptr[0];
    size_t len = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    memcpy(whole, bytes.ptr, bytes.len);
    for (size_t i = bytes.len; i < len; i++)
        whole[i] = (char)(i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80);
    return utf8_is_valid((struct str){whole, len});
}

/* The number of characters of plain text, a cut one at the end included; 0: it is none. */
static uint32_t text_chars(struct str bytes) {
    const struct str whole = str_take(bytes, whole_len(bytes));
    const struct str cut = str_skip(bytes, whole.len);
    if (!utf8_is_valid(whole) || (cut.len && !is_cut_char(cut))) return 0;
    for (size_t i = 0; i < whole.len; i++) {
        uint8_t c = (uint8_t)whole.ptr[i];
        if (c < 0x20 || c == '"' || c == '\\') return 0;
    }
    return (uint32_t)utf8_count(whole) + (cut.len > 0);
}

/* Whether a control character comes before all quotes and escapes. */
static bool has_control(struct str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t c = (uint8_t)bytes.ptr[i];
        if (c < 0x20) return true;
        if (c == '"' || c == '\\') return false;
    }
    return false;
}

/* Moves the entries of one kind from `sorted` to `out`, both in order. Returns how many. */
enum token_kind { TOKEN_TEXT, TOKEN_CONTROL, TOKEN_REST };
static uint32_t take_kind(const struct entry *sorted, uint32_t count, enum token_kind kind,
                          struct entry *out) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        enum token_kind k = sorted[i].chars                ? TOKEN_TEXT
                            : has_control(sorted[i].bytes) ? TOKEN_CONTROL
                                                           : TOKEN_REST;
        if (k == kind) out[taken++] = sorted[i];
    }
    return taken;
}

static bool is_inner(uint8_t byte) { return (byte & 0xC0) == 0x80; } /* not the first of a char */

/* Notes at each node how long the texts go on below it. Children come behind their node. */
static void note_chars(struct text_class *c) {
    for (uint32_t i = c->tree.node_count; i-- > 0;) {
        const struct vocabulary_node *n = &c->tree.nodes[i];
        for (uint32_t k = n->children; k < n->children + n->child_count; k++) {
            uint32_t chars = c->parts[k].chars_below + !is_inner(c->tree.nodes[k].byte);
            if (chars > c->parts[i].chars_below) c->parts[i].chars_below = (uint16_t)chars;
        }
    }
    for (uint32_t i = 0; i < c->tree.node_count; i++) {
        const struct vocabulary_node *n = &c->tree.nodes[i];
        if (n->child_count && is_inner(c->tree.nodes[n->children].byte))
            c->parts[i].chars_below = TEXT_SPLIT;
    }
}

static uint32_t part_count(const struct text_class *c, uint32_t node) {
    return c->parts[node].end - c->parts[node].first;
}

static void set_bit(uint64_t *mask, uint32_t token) {
    mask[token >> 6] |= UINT64_C(1) << (token & 63);
}

static bool make_part_masks(struct text_class *c, uint32_t words) {
    uint32_t masks = 0;
    for (uint32_t i = 0; i < c->tree.node_count && masks < PART_MASKS_MAX; i++)
        if (c->parts[i].chars_below != TEXT_SPLIT && part_count(c, i) >= PART_TOKENS_MIN)
            c->parts[i].mask = (uint16_t)++masks;
    c->part_masks = mem_zalloc_array((size_t)masks * words + 1, sizeof(*c->part_masks));
    if (!c->part_masks) return false;
    for (uint32_t i = 0; i < c->tree.node_count; i++) {
        if (!c->parts[i].mask) continue;
        uint64_t *mask = c->part_masks + (size_t)(c->parts[i].mask - 1) * words;
        for (uint32_t k = 0; k < part_count(c, i); k++)
            set_bit(mask, c->tokens[c->parts[i].first + k]);
    }
    return true;
}

bool word_has(int word_class, uint8_t byte) {
    bool is_lower = byte >= 'a' && byte <= 'z';
    return is_lower ||
           (word_class > 0 && ((byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9')));
}

static bool is_word(int word_class, const struct entry *e) {
    bool is_one = e->chars <= WORD_CHARS_MAX;
    for (size_t i = 0; i < e->bytes.len && is_one; i++)
        is_one = word_has(word_class, (uint8_t)e->bytes.ptr[i]);
    return is_one;
}

/* Makes the tree of the sorted texts. */
static bool make_class(struct vocabulary *v, struct text_class *c, const struct entry *sorted,
                       uint32_t count) {
    if (!make_tree(v, &c->tree, sorted, count, &c->parts)) return false;
    c->tokens = mem_alloc_array(count + 1, sizeof(*c->tokens));
    if (!c->tokens) return false;
    for (uint32_t i = 0; i < count; i++) c->tokens[i] = sorted[i].token;
    note_chars(c);
    return make_part_masks(c, vocabulary_words(v));
}

/* The texts that are longer than the class go to `long_ones`, the others to the mask. */
static bool make_text_class(struct vocabulary *v, struct text_class *c, const struct entry *sorted,
                            uint32_t count, struct entry *long_ones) {
    uint32_t kept = 0;
    c->mask = mem_zalloc_array(vocabulary_words(v) + 1, sizeof(*c->mask));
    if (!c->mask) return false;
    for (uint32_t i = 0; i < count; i++) {
        if (sorted[i].chars > c->chars)
            long_ones[kept++] = sorted[i];
        else
            set_bit(c->mask, sorted[i].token);
    }
    return make_class(v, c, long_ones, kept);
}

static bool make_word_class(struct vocabulary *v, int word_class, const struct entry *sorted,
                            uint32_t count, struct entry *others) {
    struct text_class *c = &v->words[word_class];
    uint32_t kept = 0;
    c->mask = mem_zalloc_array(vocabulary_words(v) + 1, sizeof(*c->mask));
    if (!c->mask) return false;
    for (uint32_t i = 0; i < count; i++) {
        if (is_word(word_class, &sorted[i]))
            set_bit(c->mask, sorted[i].token);
        else
            others[kept++] = sorted[i];
    }
    return make_class(v, c, others, kept);
}

static int compare_lengths(const void *x, const void *y) {
    const struct long_text *a = x, *b = y;
    if (a->chars != b->chars) return a->chars < b->chars ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

static bool make_long_texts(struct vocabulary *v, const struct entry *sorted, uint32_t count) {
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < count; i++) wanted += sorted[i].chars >= TEXT_LENGTHS;
    v->long_texts = mem_alloc_array((size_t)wanted + 1, sizeof(*v->long_texts));
    if (!v->long_texts) return false;
    for (uint32_t i = 0; i < count; i++)
        if (sorted[i].chars >= TEXT_LENGTHS)
            v->long_texts[v->long_count++] = (struct long_text){sorted[i].chars, sorted[i].token};
    qsort(v->long_texts, v->long_count, sizeof(*v->long_texts), compare_lengths);
    return true;
}

static bool make_lengths(struct vocabulary *v, const struct entry *sorted, uint32_t count) {
    const size_t words = vocabulary_words(v);
    if (!make_long_texts(v, sorted, count)) return false;
    v->lengths = mem_zalloc_array(words * TEXT_LENGTHS + 1, sizeof(*v->lengths));
    if (!v->lengths) return false;
    for (uint32_t i = 0; i < count; i++)
        if (sorted[i].chars < TEXT_LENGTHS)
            set_bit(v->lengths + sorted[i].chars * words, sorted[i].token);
    for (size_t i = words; i < words * TEXT_LENGTHS; i++) v->lengths[i] |= v->lengths[i - words];
    return true;
}

static bool make_classes(struct vocabulary *v, const struct entry *sorted, uint32_t count,
                         struct entry *scratch) {
    static const uint16_t chars[TEXT_CLASSES] = {0, 8, 16, 32, TEXT_CHARS_MAX};
    for (int i = 0; i < TEXT_CLASSES; i++) {
        v->texts[i].chars = chars[i];
        if (!make_text_class(v, &v->texts[i], sorted, count, scratch)) return false;
    }
    for (int i = 0; i < WORD_CLASSES; i++)
        if (!make_word_class(v, i, sorted, count, scratch)) return false;
    return make_lengths(v, sorted, count);
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
    struct entry *some = mem_alloc_array(count + 1, sizeof(*some));
    struct entry *scratch = mem_alloc_array(count + 1, sizeof(*scratch));
    uint32_t used = 0;
    enum status st = ST_NOMEM;
    if (!v || !sorted || !some || !scratch) goto done;
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i].len == 0 || tokens[i].len > VOCABULARY_TOKEN_BYTES_MAX) continue;
        sorted[used++] =
            (struct entry){.bytes = tokens[i], .token = i, .chars = text_chars(tokens[i])};
    }
    qsort(sorted, used, sizeof(*sorted), compare_entries);
    v->count = count;
    v->next_alike = mem_alloc_array(count + 1, sizeof(*v->next_alike));
    if (!v->next_alike || !copy_bytes(v, tokens, count)) goto done;
    uint32_t taken = take_kind(sorted, used, TOKEN_CONTROL, some);
    if (!make_plain_tree(v, &v->controls, some, taken)) goto done;
    taken = take_kind(sorted, used, TOKEN_REST, some);
    if (!make_plain_tree(v, &v->rest, some, taken)) goto done;
    taken = take_kind(sorted, used, TOKEN_TEXT, some);
    if (!make_classes(v, some, taken, scratch)) goto done;
    *out = v;
    st = ST_OK;
done:
    mem_free(scratch);
    mem_free(some);
    mem_free(sorted);
    if (st != ST_OK) vocabulary_destroy(v);
    return st;
}

static void free_class(struct text_class *c) {
    mem_free(c->mask);
    mem_free(c->tree.nodes);
    mem_free(c->parts);
    mem_free(c->tokens);
    mem_free(c->part_masks);
}

void vocabulary_destroy(struct vocabulary *v) {
    if (!v) return;
    for (int i = 0; i < TEXT_CLASSES; i++) free_class(&v->texts[i]);
    for (int i = 0; i < WORD_CLASSES; i++) free_class(&v->words[i]);
    mem_free(v->controls.nodes);
    mem_free(v->rest.nodes);
    mem_free(v->lengths);
    mem_free(v->long_texts);
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
