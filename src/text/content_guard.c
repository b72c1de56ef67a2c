/* text/content_guard.c - see text/content_guard.h for the contract.
 *
 * A mark stands in front of a character. For a whole spelling that is its second one, for a part at
 * the end of a text the part's last one, for a part at its beginning the first one: the first byte
 * of each is inside every token that the spelling, or the part with a neighbour, could become.
 */
#include "text/content_guard.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text_int.h"

enum {
    MARK_FIRST = 0xFDD0, /* the noncharacters of this block */
    MARK_COUNT = 32,
    MARK_BYTES = 3, /* EF B7 90 .. EF B7 AF */
};

struct content_guard {
    struct trie *spellings; /* of the control tokens */
    struct trie *reversed;  /* their bytes from the last to the first */
    size_t longest;
    bool first[256]; /* bytes that a spelling begins with */
};

/* ---- create ---- */

static size_t control_count(const struct added *a) {
    size_t count = 0;
    for (uint32_t i = 0; i < a->count; i++) count += a->tokens[i].special && a->tokens[i].text.len;
    return count;
}

static char *reversed_copy(struct str text) {
    char *copy = mem_dup(text.ptr, text.len);
    for (size_t i = 0; copy && i < text.len; i++) copy[i] = text.ptr[text.len - 1 - i];
    return copy;
}

static enum status index_reversed(struct content_guard *g, struct trie_entry *entries,
                                  size_t count) {
    size_t copied = 0;
    while (copied < count) {
        char *copy = reversed_copy(entries[copied].text);
        if (!copy) break;
        entries[copied++].text.ptr = copy;
    }
    if (copied == count) g->reversed = trie_create(entries, count);
    for (size_t i = 0; i < copied; i++) mem_free((void *)(uintptr_t)entries[i].text.ptr);
    return g->reversed ? ST_OK : ST_NOMEM;
}

static enum status index_all(struct content_guard *g, const struct added *a, size_t count) {
    struct trie_entry *entries = mem_alloc_array(count, sizeof(entries[0]));
    size_t used = 0;
    if (!entries) return ST_NOMEM;
    for (uint32_t i = 0; i < a->count; i++) {
        struct str text = a->tokens[i].text;
        if (!a->tokens[i].special || text.len == 0) continue;
        entries[used++] = (struct trie_entry){text, i};
        g->first[(uint8_t)text.ptr[0]] = true;
        if (text.len > g->longest) g->longest = text.len;
    }
    g->spellings = trie_create(entries, used);
    enum status st = g->spellings ? index_reversed(g, entries, used) : ST_NOMEM;
    mem_free(entries);
    return st;
}

enum status content_guard_create(const struct tokenizer *t, struct content_guard **out) {
    size_t count = control_count(&t->added);
    *out = NULL;
    if (count == 0) return ST_OK;
    struct content_guard *g = mem_zalloc(sizeof(*g));
    if (!g) return ST_NOMEM;
    enum status st = index_all(g, &t->added, count);
    if (st == ST_OK)
        *out = g;
    else
        content_guard_destroy(g);
    return st;
}

void content_guard_destroy(struct content_guard *g) {
    if (!g) return;
    trie_destroy(g->spellings);
    trie_destroy(g->reversed);
    mem_free(g);
}

/* ---- where a text needs marks ---- */

static bool is_inside_char(struct str text, size_t at) {
    return at < text.len && ((uint8_t)text.ptr[at] & 0xC0) == 0x80;
}

/* The second character of the spelling in bytes [at, last]; the first if there is no second. */
static size_t second_char(struct str text, size_t at, size_t last) {
    size_t second = at + 1;
    while (is_inside_char(text, second)) second++;
    return second <= last ? second : at;
}

static size_t last_char(struct str text) {
    size_t at = text.len - 1;
    while (at > 0 && is_inside_char(text, at)) at--;
    return at;
}

/* Letters, digits, blanks: every text begins and ends with some, and templates compare whole words
 * ("text", "function"). Of a spelling in two texts one has its signs, and that one is marked. */
static bool is_word(struct str part) {
    for (size_t i = 0; i < part.len; i++) {
        char c = part.ptr[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_letter && c != '_' && c != ' ') return false;
    }
    return true;
}

/* Does a spelling, or a part of one that reaches the end of the text, begin at `at`? *mark_at is
 * then where the mark goes. */
static bool begins_at(const struct content_guard *g, struct str text, size_t at, size_t *mark_at) {
    uint32_t node = 0, value;
    if (!g->first[(uint8_t)text.ptr[at]]) return false;
    for (size_t i = at; i < text.len; i++) {
        if (!trie_step(g->spellings, &node, (uint8_t)text.ptr[i])) return false;
        if (trie_value(g->spellings, node, &value)) {
            *mark_at = second_char(text, at, i);
            return true;
        }
    }
    *mark_at = last_char(text);
    return !is_word(str_skip(text, at));
}

/* Is the beginning of the text the end of a spelling? */
static bool continues_spelling(const struct content_guard *g, struct str text) {
    size_t most = text.len < g->longest ? text.len : g->longest;
    for (size_t len = 1; len <= most; len++) {
        uint32_t node = 0;
        size_t left = len;
        while (left > 0 && trie_step(g->reversed, &node, (uint8_t)text.ptr[left - 1])) left--;
        if (left == 0 && !is_word(str_take(text, len))) return true;
    }
    return false;
}

/* The next byte from `from` on that gets a mark; text.len: none. */
static size_t next_mark(const struct content_guard *g, struct str text, size_t from) {
    size_t mark_at;
    if (from == 0 && text.len > 0 && continues_spelling(g, text)) return 0;
    /* A part that reaches the end is marked there; a spelling inside it comes first. */
    size_t first = text.len;
    for (size_t at = from > 0 ? from - 1 : 0; at < first; at++)
        if (begins_at(g, text, at, &mark_at) && mark_at >= from && mark_at < first) first = mark_at;
    return first;
}

/* ---- trees ---- */

/* `mark` empty: the tree is only searched. */
struct marking {
    const struct content_guard *g;
    struct str mark;
    bool is_needed; /* a text needs a mark */
    uint32_t used;  /* a bit for each noncharacter that a text contains */
};

static void search_text(struct marking *m, struct str text) {
    static const uint8_t lead[] = {0xEF, 0xB7};
    m->is_needed = m->is_needed || next_mark(m->g, text, 0) < text.len;
    for (size_t at = 0; at + MARK_BYTES <= text.len; at++) {
        const char *found = memchr(text.ptr + at, lead[0], text.len - at - MARK_BYTES + 1);
        if (!found) return;
        at = (size_t)(found - text.ptr);
        uint8_t second = (uint8_t)found[1], last = (uint8_t)found[2];
        if (second == lead[1] && last >= 0x90 && last < 0xB0) m->used |= 1u << (last - 0x90);
    }
}

static void search_tree(struct marking *m, const struct json *v) {
    if (json_kind(v) == JS_TEXT) search_text(m, json_str(v));
    for (size_t i = 0; json_kind(v) == JS_LIST && i < json_count(v); i++)
        search_tree(m, json_at(v, i));
    if (json_kind(v) != JS_MAP) return;
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it)) {
        search_text(m, it.key);
        search_tree(m, it.value);
    }
}

static void put_marked(const struct marking *m, struct str text, struct buf *out) {
    for (size_t from = 0; from < text.len;) {
        size_t at = next_mark(m->g, text, from);
        buf_put_str(out, (struct str){text.ptr + from, at - from});
        if (at == text.len) return;
        buf_put_str(out, m->mark);
        buf_put_char(out, text.ptr[at]);
        from = at + 1;
    }
}

static struct json *copy_marked(const struct marking *m, const struct json *v);

static struct json *list_marked(const struct marking *m, const struct json *v) {
    struct json *list = json_list_create();
    for (size_t i = 0; i < json_count(v); i++)
        if (json_push(list, copy_marked(m, json_at(v, i))) != ST_OK) {
            json_destroy(list);
            return NULL;
        }
    return list;
}

/* `role` of a message is the server's to check, and no text of the client's. */
static struct json *map_marked(const struct marking *m, const struct json *v, bool is_message) {
    struct json *map = json_map_create();
    enum status st = map ? ST_OK : ST_NOMEM;
    struct json_iter it = json_iter_first(v);
    for (; st == ST_OK && json_iter_ok(&it); json_iter_next(&it)) {
        struct buf key;
        bool is_role = is_message && str_is(it.key, "role");
        buf_init(&key, SIZE_MAX);
        put_marked(m, it.key, &key);
        st = buf_status(&key);
        if (st == ST_OK)
            st = json_set(map, buf_str(&key),
                          is_role ? json_pin(it.value) : copy_marked(m, it.value));
        buf_deinit(&key);
    }
    if (st == ST_OK) return map;
    json_destroy(map);
    return NULL;
}

static struct json *text_marked(const struct marking *m, struct str text) {
    struct buf out;
    buf_init(&out, SIZE_MAX);
    put_marked(m, text, &out);
    struct json *v = buf_status(&out) == ST_OK ? json_text_create(buf_str(&out)) : NULL;
    buf_deinit(&out);
    return v;
}

/* NULL: out of memory. */
static struct json *copy_marked(const struct marking *m, const struct json *v) {
    switch (json_kind(v)) {
    case JS_TEXT:
        return text_marked(m, json_str(v));
    case JS_LIST:
        return list_marked(m, v);
    case JS_MAP:
        return map_marked(m, v, false);
    default:
        return json_pin(v);
    }
}

static bool is_own_text(const struct json *message) {
    return str_is(json_str(json_get(message, "role")), "assistant");
}

static struct json *copy_messages(const struct marking *m, const struct json *messages) {
    struct json *list = json_list_create();
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *message = json_at(messages, i);
        struct json *item = is_own_text(message) ? json_pin(message) : map_marked(m, message, true);
        if (json_push(list, item) == ST_OK) continue;
        json_destroy(list);
        return NULL;
    }
    return list;
}

/* ---- entry points ---- */

static void search_turn(struct marking *m, const struct marked_turn *turn) {
    for (size_t i = 0; i < json_count(turn->messages); i++) {
        const struct json *message = json_at(turn->messages, i);
        bool needed = m->is_needed;
        search_tree(m, message);
        if (is_own_text(message)) m->is_needed = needed; /* searched for noncharacters only */
    }
    search_tree(m, turn->tools);
    search_tree(m, turn->kwargs);
}

static enum status replace(struct json **tree, struct json *by) {
    if (!by && *tree) return ST_NOMEM;
    json_destroy(*tree);
    *tree = by;
    return ST_OK;
}

static enum status mark_turn(struct marking *m, struct marked_turn *turn, struct err *err) {
    uint32_t free_marks = ~m->used, which = 0;
    char mark[4];
    if (free_marks == 0)
        return err_set(err, ST_BAD,
                       "the messages contain the spelling of a control token and every character "
                       "from U+FDD0 to U+FDEF; leave out one of these characters");
    while (!(free_marks >> which & 1)) which++;
    turn->mark = MARK_FIRST + which;
    m->mark = (struct str){mark, utf8_encode(turn->mark, mark)};
    enum status st = replace(&turn->messages, copy_messages(m, turn->messages));
    if (st == ST_OK && turn->tools) st = replace(&turn->tools, copy_marked(m, turn->tools));
    if (st == ST_OK && turn->kwargs) st = replace(&turn->kwargs, copy_marked(m, turn->kwargs));
    return st == ST_OK ? ST_OK : err_set(err, st, "out of memory for the messages");
}

enum status content_guard_mark(const struct content_guard *g, const struct json *messages,
                               const struct json *tools, const struct json *kwargs,
                               struct marked_turn *out, struct err *err) {
    *out = (struct marked_turn){
        .messages = json_pin(messages), .tools = json_pin(tools), .kwargs = json_pin(kwargs)};
    struct marking m = {.g = g};
    if (!g) return ST_OK;
    search_turn(&m, out);
    return m.is_needed ? mark_turn(&m, out, err) : ST_OK;
}

void marked_turn_deinit(struct marked_turn *m) {
    json_destroy(m->messages);
    json_destroy(m->tools);
    json_destroy(m->kwargs);
    *m = (struct marked_turn){.mark = 0};
}

void text_places_deinit(struct text_places *p) {
    mem_free(p->at);
    *p = (struct text_places){.at = NULL};
}

static enum status push_place(struct text_places *p, size_t at) {
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 16;
        size_t *grown = mem_realloc(p->at, cap * sizeof(*grown));
        if (!grown) return ST_NOMEM;
        p->at = grown;
        p->cap = cap;
    }
    p->at[p->count++] = at;
    return ST_OK;
}

enum status content_guard_unmark(uint32_t mark, struct buf *text, size_t start,
                                 struct text_places *out) {
    char bytes[4];
    if (mark == 0) return ST_OK;
    utf8_encode(mark, bytes);
    size_t to = start;
    for (size_t from = start; from < text->len;) {
        bool is_mark =
            text->len - from >= MARK_BYTES && memcmp(text->ptr + from, bytes, MARK_BYTES) == 0;
        if (is_mark) {
            TRY(push_place(out, to));
            from += MARK_BYTES;
        } else {
            text->ptr[to++] = text->ptr[from++];
        }
    }
    text->len = to;
    if (text->ptr) text->ptr[to] = 0;
    return ST_OK;
}
