/* engine/sim_words.c - see engine/sim_words.h for the contract. */
#include "engine/sim_words.h"

#include <stdbool.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/tokenizer.h"

enum { WORD_BYTES_MAX = 1024 };

/* What a token says about itself. */
enum word_kind { WORD_NONE, WORD_ORDINARY, WORD_LETTERS };

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Letters, with at most one space before them. */
static bool is_word(struct str text) {
    size_t i = text.len > 1 && text.ptr[0] == ' ' ? 1 : 0;
    if (i == text.len) return false;
    while (i < text.len && is_letter(text.ptr[i])) i++;
    return i == text.len;
}

static enum word_kind kind_of(struct str text) {
    if (text.len == 0) return WORD_NONE;
    return is_word(text) ? WORD_LETTERS : WORD_ORDINARY;
}

static enum status collect(struct sim_words *w, const struct tokenizer *t, uint32_t vocab,
                           enum word_kind least, struct buf *text) {
    w->count = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        token_id id = (token_id)i;
        if (tokenizer_is_special(t, id) || tokenizer_is_end(t, id)) continue;
        buf_clear(text);
        TRY(tokenizer_decode(t, &id, 1, false, text));
        if (buf_status(text) == ST_NOMEM) return ST_NOMEM;
        if (kind_of(buf_str(text)) >= least) w->list[w->count++] = id;
    }
    return ST_OK;
}

enum status sim_words_choose(struct sim_words *w, const struct tokenizer *t, uint32_t vocab,
                             struct err *err) {
    *w = (struct sim_words){.list = NULL};
    uint32_t known = tokenizer_vocab(t);
    if (known < vocab) vocab = known; /* a model's rows may be padded */
    w->list = mem_alloc_array(vocab, sizeof(w->list[0]));
    if (!w->list) return err_set(err, ST_NOMEM, "out of memory for %u words", vocab);
    struct buf text;
    buf_init(&text, WORD_BYTES_MAX);
    enum status st = collect(w, t, vocab, WORD_LETTERS, &text);
    if (st == ST_OK && w->count == 0) st = collect(w, t, vocab, WORD_ORDINARY, &text);
    buf_deinit(&text);
    if (st == ST_OK && w->count > 0) return ST_OK;
    sim_words_deinit(w);
    if (st != ST_OK) return err_set(err, st, "out of memory for the words of a vocabulary");
    return err_set(err, ST_BAD, "the vocabulary has no token with ordinary text");
}

void sim_words_deinit(struct sim_words *w) {
    mem_free(w->list);
    *w = (struct sim_words){.list = NULL};
}
