/* text/unigram.c - the most probable way to cut a text into pieces (Viterbi).
 *
 * best[i] is the best way to cover the first i bytes. From each character on, every piece that
 * starts there is tried; a character that is no piece by itself may be the unknown token, at a
 * price. The tokenizers package computes in double, SentencePiece in float, and ties are
 * decided by that, so both are done: `spm` chooses.
 *
 * A piece may be as long as the longest of the vocabulary; n bytes cost n times that.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/map.h"
#include "text/text_int.h"

#define UNK_PENALTY 10.0

struct best {
    double score;
    uint32_t start; /* where the last piece starts */
    token_id id;    /* TOKEN_NONE: not reached */
};

struct lattice {
    const struct vocab *v;
    const struct unigram *u;
    struct str text;
    struct best *best;
};

static void offer(const struct lattice *l, size_t from, size_t to, token_id id, double score) {
    struct best *b = &l->best[to];
    double sum = l->u->spm ? (double)((float)score + (float)l->best[from].score)
                           : score + l->best[from].score;
    if (b->id != TOKEN_NONE && !(sum > b->score)) return;
    *b = (struct best){sum, (uint32_t)from, id};
}

/* SentencePiece gives a user-defined piece a score that beats any other cut of it. */
static double piece_score(const struct lattice *l, token_id id, size_t chars) {
    if (l->u->spm && l->v->kinds[id] == PIECE_USER)
        return (double)((float)chars * (float)l->u->max_score - 0.1f);
    return l->v->scores[id];
}

static void try_from(const struct lattice *l, size_t from, size_t char_len) {
    uint32_t node = 0, value;
    bool single = false;
    for (size_t to = from; to < l->text.len;) {
        if (!trie_step(l->u->trie, &node, (uint8_t)l->text.ptr[to])) break;
        to++;
        if (!trie_value(l->u->trie, node, &value)) continue;
        if (l->u->spm && l->v->kinds[value] == PIECE_UNUSED) continue;
        if (to - from == char_len) single = true;
        offer(l, from, to, (token_id)value, piece_score(l, (token_id)value, to - from));
    }
    if (!single) offer(l, from, from + char_len, l->u->unk, l->u->min_score - UNK_PENALTY);
}

static enum status put_bytes(const struct unigram *u, struct str text, bool *done,
                             struct tokens *out) {
    *done = false;
    for (size_t i = 0; i < text.len; i++)
        if (u->fallback_ids[(uint8_t)text.ptr[i]] == TOKEN_NONE) return ST_OK;
    for (size_t i = 0; i < text.len; i++)
        TRY(tokens_push(out, u->fallback_ids[(uint8_t)text.ptr[i]]));
    *done = true;
    return ST_OK;
}

/* A run of unknowns: its bytes, or one unknown token. */
static enum status put_unknown(const struct lattice *l, size_t start, size_t end,
                               struct tokens *out) {
    struct str run = {l->text.ptr + start, end - start};
    token_id known = l->u->spm ? TOKEN_NONE : vocab_find(l->v, run);
    if (known != TOKEN_NONE) return tokens_push(out, known);
    bool done = false;
    if (l->u->byte_fallback) TRY(put_bytes(l->u, run, &done, out));
    if (done || l->u->unk == TOKEN_NONE) return ST_OK;
    return tokens_push(out, l->u->unk);
}

/* The best path lies backwards; turn it round in place by writing ends over starts. */
static size_t turn_round(struct best *best, size_t end) {
    size_t next_start = end;
    while (end > 0) {
        size_t start = best[end].start;
        best[end].start = (uint32_t)next_start; /* from here on: where the next piece ends */
        next_start = end;
        end = start;
    }
    return next_start; /* the end of the first piece */
}

static enum status put_path(const struct lattice *l, struct tokens *out) {
    size_t start = 0, end = turn_round(l->best, l->text.len);
    bool unknown = false;
    size_t unk_start = 0;
    while (start < l->text.len) {
        token_id id = l->best[end].id;
        size_t next_end = l->best[end].start;
        bool is_unk = id == l->u->unk;
        if (is_unk && !unknown) unk_start = start;
        if (!is_unk && unknown) TRY(put_unknown(l, unk_start, start, out));
        if (!is_unk) TRY(tokens_push(out, id));
        unknown = is_unk;
        start = end;
        end = next_end;
    }
    return unknown ? put_unknown(l, unk_start, start, out) : ST_OK;
}

enum status unigram_encode(const struct vocab *v, const struct unigram *u, struct str piece,
                           struct work *work, struct tokens *out) {
    if (piece.len == 0) return ST_OK;
    if (piece.len >= UINT32_MAX / 2) return ST_NOMEM;
    size_t bytes = (piece.len + 1) * sizeof(struct best);
    if (bytes > work->lattice_bytes) {
        void *grown = mem_realloc(work->lattice, bytes);
        if (!grown) return ST_NOMEM;
        work->lattice = grown;
        work->lattice_bytes = bytes;
    }
    struct lattice l = {v, u, piece, work->lattice};
    for (size_t i = 0; i <= piece.len; i++) l.best[i] = (struct best){0, 0, TOKEN_NONE};
    for (size_t pos = 0; pos < piece.len;) {
        size_t from = pos;
        (void)uc_next(piece, &pos);
        try_from(&l, from, pos - from);
    }
    return put_path(&l, out);
}

void unigram_deinit(struct unigram *u) { trie_destroy(u->trie); }
