/* text/added.c - tokens that are cut out of the text before the model sees it.
 *
 * At each place the longest token wins; a match is skipped, and its text left to the model,
 * when it is special and specials are plain text, or when it must be a word by itself and is
 * not. lstrip and rstrip take the white space beside a match into it. Tokens marked
 * `normalized` are looked for after normalising, by their normalised text, which is also
 * what decoding prints.
 *
 * Cost: bytes of text times the longest added token (ADDED_BYTES_MAX at most); a place whose
 * first byte starts no token costs one look.
 */
#include <string.h>

#include "base/mem.h"
#include "text/text_int.h"

enum status added_push(struct added *a, struct added_token token) {
    if (a->count == a->cap) {
        uint32_t cap = a->cap ? a->cap * 2 : 64;
        struct added_token *tokens = mem_realloc(a->tokens, cap * sizeof(tokens[0]));
        if (!tokens) return ST_NOMEM;
        a->tokens = tokens;
        a->cap = cap;
    }
    a->tokens[a->count++] = token;
    return ST_OK;
}

void added_deinit(struct added *a) {
    mem_free(a->tokens);
    trie_destroy(a->raw);
    trie_destroy(a->normalized);
}

/* Of equal texts the first listed wins; the trie keeps the larger value, so indexes are
 * stored from the end. */
static enum status index_some(struct trie_entry *entries, size_t count, struct trie **out,
                              bool first[256]) {
    for (size_t i = 0; i < count; i++) first[(uint8_t)entries[i].text.ptr[0]] = true;
    *out = count ? trie_create(entries, count) : NULL;
    return count && !*out ? ST_NOMEM : ST_OK;
}

static enum status fill_entries(struct tokenizer *t, struct work *work, bool normalized,
                                struct trie_entry *entries, size_t *count) {
    struct added *a = &t->added;
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->tokens[i].normalized != normalized) continue;
        struct str text = a->tokens[i].text;
        bool at_start = true;
        if (normalized) {
            TRY(norm_apply(&t->norm, text, work, &text, &at_start));
            TRY(text_dup(t, text, &text));
            TRY(vocab_show(&t->vocab, (uint32_t)a->tokens[i].id, text));
        }
        if (text.len == 0) continue;
        entries[(*count)++] = (struct trie_entry){text, a->count - 1 - i};
    }
    return ST_OK;
}

enum status added_index(struct tokenizer *t) {
    struct added *a = &t->added;
    if (a->count == 0) return ST_OK;
    struct trie_entry *entries = mem_alloc_array(a->count, sizeof(entries[0]));
    struct work work;
    enum status st = work_init(&work);
    if (!entries) st = ST_NOMEM;
    for (int normalized = 0; normalized < 2 && st == ST_OK; normalized++) {
        size_t count = 0;
        st = fill_entries(t, &work, normalized, entries, &count);
        if (st != ST_OK) break;
        st = index_some(entries, count, normalized ? &a->normalized : &a->raw,
                        normalized ? a->first_normalized : a->first_raw);
    }
    work_deinit(&work);
    mem_free(entries);
    return st;
}

/* The leftmost longest match from s->pos on; s->pos moves to its end. */
static const struct added_token *find(struct added_scan *s, size_t *start, size_t *end) {
    const struct trie *t = s->normalized ? s->a->normalized : s->a->raw;
    const bool *first = s->normalized ? s->a->first_normalized : s->a->first_raw;
    for (; t && s->pos < s->text.len; s->pos++) {
        if (!first[(uint8_t)s->text.ptr[s->pos]]) continue;
        const struct added_token *found = NULL;
        uint32_t node = 0, value;
        for (size_t i = s->pos; i < s->text.len; i++) {
            if (!trie_step(t, &node, (uint8_t)s->text.ptr[i])) break;
            if (!trie_value(t, node, &value)) continue;
            found = &s->a->tokens[s->a->count - 1 - value];
            *end = i + 1;
        }
        if (!found) continue;
        *start = s->pos;
        s->pos = *end;
        return found;
    }
    return NULL;
}

static size_t char_before(struct str text, size_t pos) {
    do pos--;
    while (pos > 0 && ((uint8_t)text.ptr[pos] & 0xC0) == 0x80);
    return pos;
}

static bool stands_alone(struct str text, size_t start, size_t end) {
    size_t at;
    if (start > 0) {
        at = char_before(text, start);
        if (uc_is_word(uc_next(text, &at))) return false;
    }
    at = end;
    return end == text.len || !uc_is_word(uc_next(text, &at));
}

static size_t strip_left(struct str text, size_t start, size_t limit) {
    while (start > limit) {
        size_t before = char_before(text, start), at = before;
        if (!uc_is_space(uc_next(text, &at))) break;
        start = before;
    }
    return start;
}

static size_t strip_right(struct str text, size_t end) {
    while (end < text.len) {
        size_t at = end;
        if (!uc_is_space(uc_next(text, &at))) break;
        end = at;
    }
    return end;
}

bool plain_bytes_in(struct plain_bytes plain, size_t start, size_t end) {
    size_t low = 0, high = plain.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plain.at[middle] < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plain.count && plain.at[low] < end;
}

bool added_scan_next(struct added_scan *s, struct added_cut *cut) {
    size_t start = 0, end = 0;
    const struct added_token *token;
    while ((token = find(s, &start, &end))) {
        if (token->special && s->plain_special) continue;
        if (token->special && plain_bytes_in(s->plain, start, end)) {
            s->pos = start + 1; /* another token may begin inside */
            continue;
        }
        if (token->single_word && !stands_alone(s->text, start, end)) continue;
        if (token->lstrip) start = strip_left(s->text, start, s->taken);
        if (token->rstrip) end = strip_right(s->text, end);
        size_t before = start > s->taken ? start - s->taken : 0;
        *cut = (struct added_cut){{s->text.ptr + s->taken, before}, token->id};
        s->taken = end;
        return true;
    }
    if (s->taken >= s->text.len) return false;
    *cut = (struct added_cut){str_skip(s->text, s->taken), TOKEN_NONE};
    s->taken = s->text.len;
    return true;
}
