/* text/wordpiece.c - the longest piece first, from left to right; one gap and the word is
 * unknown. */
#include "text/text_int.h"

/* The longest entry at `pos`, TOKEN_NONE if there is none; *end is where it ends. */
static token_id longest(const struct trie *t, struct str word, size_t pos, size_t *end) {
    token_id found = TOKEN_NONE;
    uint32_t node = 0, value;
    for (size_t i = pos; i < word.len && trie_step(t, &node, (uint8_t)word.ptr[i]); i++) {
        if (!trie_value(t, node, &value)) continue;
        found = (token_id)value;
        *end = i + 1;
    }
    return found;
}

static bool too_long(const struct wordpiece *w, struct str word) {
    if (word.len <= w->word_chars_max) return false;
    size_t chars = 0;
    for (size_t pos = 0; pos < word.len; chars++) (void)uc_next(word, &pos);
    return chars > w->word_chars_max;
}

enum status wordpiece_encode(const struct wordpiece *w, struct str piece, struct tokens *out) {
    size_t before = out->count;
    bool bad = too_long(w, piece);
    for (size_t pos = 0; pos < piece.len && !bad;) {
        token_id id = longest(pos == 0 ? w->start : w->inside, piece, pos, &pos);
        bad = id == TOKEN_NONE;
        if (!bad) TRY(tokens_push(out, id));
    }
    if (!bad) return ST_OK;
    out->count = before;
    return tokens_push(out, w->unk);
}

void wordpiece_deinit(struct wordpiece *w) {
    trie_destroy(w->start);
    trie_destroy(w->inside);
}
