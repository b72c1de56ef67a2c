/* translate/spm_merges.c - the merges of SentencePiece BPE, from the scores of its pieces.
 *
 * SentencePiece joins the two neighbours whose piece has the best score, whatever the two are. So a
 * piece gives a merge for each place where it falls into two pieces of the vocabulary; merges are
 * ranked by score, and by id where scores are equal.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/model_file.h"
#include "text/tokenizer.h"
#include "translate/translate_int.h"

struct merge {
    double score;
    uint32_t id, left, right;
};

struct merge_list {
    const struct to_folder *f;
    uint8_t *joins;   /* heap; by id: the piece takes part in merges */
    struct merge *at; /* heap */
    size_t count, cap;
};

static enum status no_memory(const struct merge_list *l) {
    return err_set(l->f->err, ST_NOMEM, "%s: out of memory for the merges of its tokenizer",
                   model_file_path(l->f->gguf));
}

static enum status push(struct merge_list *l, const struct merge *m) {
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 1024;
        struct merge *more = mem_realloc(l->at, cap * sizeof(*more));
        if (!more) return no_memory(l);
        l->at = more;
        l->cap = cap;
    }
    l->at[l->count++] = *m;
    return ST_OK;
}

/* Text of a piece that takes part; its id, else TOKEN_NONE. */
static token_id find_joining(const struct merge_list *l, struct str text) {
    token_id id = tokenizer_find(l->f->tokenizer, text);
    return id != TOKEN_NONE && l->joins[id] ? id : TOKEN_NONE;
}

static enum status add_splits(struct merge_list *l, uint32_t id) {
    struct str piece = tokenizer_piece(l->f->tokenizer, (token_id)id);
    struct merge m = {.id = id};
    uint64_t scores;
    if (meta_list(l->f->gguf, "tokenizer.ggml.scores", &scores) != META_NONE && id < scores)
        TRY(meta_list_f64(l->f->gguf, "tokenizer.ggml.scores", id, &m.score, l->f->err));
    uint32_t code;
    for (size_t at = utf8_decode(piece, &code); at && at < piece.len;
         at += utf8_decode(str_skip(piece, at), &code)) {
        token_id left = find_joining(l, str_take(piece, at));
        token_id right = find_joining(l, str_skip(piece, at));
        if (left == TOKEN_NONE || right == TOKEN_NONE) continue;
        m.left = (uint32_t)left;
        m.right = (uint32_t)right;
        TRY(push(l, &m));
    }
    return ST_OK;
}

static int compare_u32(uint32_t a, uint32_t b) { return a < b ? -1 : a > b; }

static int compare_merges(const void *a, const void *b) {
    const struct merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->id != y->id) return compare_u32(x->id, y->id);
    return x->left != y->left ? compare_u32(x->left, y->left) : compare_u32(x->right, y->right);
}

static enum status list_merges(struct merge_list *l) {
    uint32_t count = tokenizer_vocab(l->f->tokenizer);
    l->joins = mem_zalloc((size_t)count + 1);
    if (!l->joins) return no_memory(l);
    for (uint32_t i = 0; i < count; i++) {
        enum token_type type;
        TRY(folder_token_type(l->f, i, &type));
        l->joins[i] = type == TYPE_NORMAL || type == TYPE_USER || type == TYPE_UNUSED;
    }
    for (uint32_t i = 0; i < count; i++)
        if (l->joins[i]) TRY(add_splits(l, i));
    if (l->count) qsort(l->at, l->count, sizeof(l->at[0]), compare_merges);
    return ST_OK;
}

enum status folder_put_spm_merges(const struct to_folder *f, struct buf *out) {
    struct merge_list l = {.f = f};
    const struct tokenizer *t = f->tokenizer;
    enum status st = list_merges(&l);
    for (size_t i = 0; i < l.count && st == ST_OK; i++)
        folder_put_merge(tokenizer_piece(t, (token_id)l.at[i].left),
                         tokenizer_piece(t, (token_id)l.at[i].right), i == 0, out);
    mem_free(l.at);
    mem_free(l.joins);
    return st;
}
