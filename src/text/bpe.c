/* text/bpe.c - byte-pair encoding: by a list of merges, or by the scores of pieces.
 *
 * A word starts as one symbol per character (or byte); the best pair of neighbours is joined,
 * the leftmost of equals first, until no pair is left. "Best" is the smallest rank: the place
 * in the list of merges, or (SentencePiece) the place of the joined piece among all pieces
 * ordered by score. A short word is searched for its best pair again and again; a long one
 * keeps its pairs in a heap, so that n symbols cost n log n.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text_int.h"

enum { SHORT_WORD = 48 }; /* symbols; above it the heap wins (measured: even at about 40) */

#define NO_RANK UINT32_MAX
#define BLANK_MARK "\xE2\x96\x81" /* U+2581 */

struct symbol {
    uint32_t id; /* NO_ID where a character is not in the vocabulary (by score only) */
    uint32_t start, len;
    int32_t prev, next; /* -1 at the ends; len == 0: joined to the one before */
};

#define NO_ID UINT32_MAX

struct merge {
    uint64_t key; /* rank << 32 | symbol: smaller first */
    uint32_t id;
};

struct bpe_work {
    struct symbol *symbols;
    struct merge *heap;
    size_t symbol_cap, heap_cap, heap_count, count;
};

void bpe_work_destroy(struct bpe_work *w) {
    if (!w) return;
    mem_free(w->symbols);
    mem_free(w->heap);
    mem_free(w);
}

static bool reserve(void **at, size_t *cap, size_t count, size_t bytes) {
    if (count <= *cap) return true;
    size_t want = *cap * 2 > count ? *cap * 2 : count;
    void *grown = mem_realloc(*at, want * bytes);
    if (!grown) return false;
    *at = grown;
    *cap = want;
    return true;
}

/* What the pair becomes, and how good that is; NO_RANK if it cannot be joined. */
static uint32_t pair_rank(const struct vocab *v, const struct bpe *b, const char *text,
                          const struct symbol *left, const struct symbol *right, uint32_t *id) {
    if (b->merges) {
        uint64_t value;
        if (!map64_find(b->merges, (uint64_t)left->id << 32 | right->id, &value)) return NO_RANK;
        *id = (uint32_t)value;
        return (uint32_t)(value >> 32);
    }
    uint32_t len = left->len + right->len;
    if (len > v->longest) return NO_RANK;
    token_id found = vocab_find(v, (struct str){text + left->start, len});
    if (found == TOKEN_NONE) return NO_RANK;
    *id = (uint32_t)found;
    return b->score_ranks[found];
}

static void join(struct symbol *s, int32_t i, uint32_t id) {
    struct symbol *left = &s[i], *right = &s[left->next];
    left->id = id;
    left->len += right->len;
    left->next = right->next;
    right->len = 0;
    if (left->next >= 0) s[left->next].prev = i;
}

static void merge_short(const struct vocab *v, const struct bpe *b, const char *text,
                        struct symbol *s, size_t count) {
    uint32_t ranks[SHORT_WORD], ids[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = pair_rank(v, b, text, &s[i], &s[i + 1], &ids[i]);
    ranks[count - 1] = NO_RANK;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) return;
        ranks[s[best].next] = NO_RANK;
        join(s, (int32_t)best, ids[best]);
        int32_t next = s[best].next, prev = s[best].prev;
        ranks[best] = next < 0 ? NO_RANK : pair_rank(v, b, text, &s[best], &s[next], &ids[best]);
        if (prev >= 0) ranks[prev] = pair_rank(v, b, text, &s[prev], &s[best], &ids[prev]);
    }
}

static void sift_down(struct merge *heap, size_t count, size_t i) {
    struct merge moved = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= count) break;
        if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
        if (moved.key <= heap[child].key) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static void heap_push(struct bpe_work *w, struct merge m) {
    size_t i = w->heap_count++;
    while (i > 0 && w->heap[(i - 1) / 2].key > m.key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = m;
}

static struct merge heap_pop(struct bpe_work *w) {
    struct merge top = w->heap[0];
    w->heap[0] = w->heap[--w->heap_count];
    if (w->heap_count) sift_down(w->heap, w->heap_count, 0);
    return top;
}

static void push_pair(const struct vocab *v, const struct bpe *b, const char *text,
                      struct bpe_work *w, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    uint32_t id, rank = pair_rank(v, b, text, &w->symbols[left], &w->symbols[right], &id);
    if (rank != NO_RANK) heap_push(w, (struct merge){(uint64_t)rank << 32 | (uint32_t)left, id});
}

/* A pair in the heap whose symbols have changed is dropped when it comes up: each merge adds
 * two pairs and removes one symbol, so the heap never holds more than three per symbol. */
static enum status merge_long(const struct vocab *v, const struct bpe *b, const char *text,
                              struct bpe_work *w) {
    if (!reserve((void **)&w->heap, &w->heap_cap, 3 * w->count, sizeof(w->heap[0])))
        return ST_NOMEM;
    w->heap_count = 0;
    for (size_t i = 0; i + 1 < w->count; i++) {
        uint32_t id, rank = pair_rank(v, b, text, &w->symbols[i], &w->symbols[i + 1], &id);
        if (rank != NO_RANK)
            w->heap[w->heap_count++] = (struct merge){(uint64_t)rank << 32 | i, id};
    }
    for (size_t i = w->heap_count / 2; i-- > 0;) sift_down(w->heap, w->heap_count, i);
    while (w->heap_count) {
        struct merge top = heap_pop(w);
        int32_t i = (int32_t)(uint32_t)top.key;
        struct symbol *s = &w->symbols[i];
        if (s->len == 0 || s->next < 0) continue;
        uint32_t id;
        if (pair_rank(v, b, text, s, &w->symbols[s->next], &id) == NO_RANK || id != top.id)
            continue;
        join(w->symbols, i, id);
        push_pair(v, b, text, w, s->prev, i);
        push_pair(v, b, text, w, i, s->next);
    }
    return ST_OK;
}

static void add_symbol(struct bpe_work *w, uint32_t id, size_t start, size_t len) {
    int32_t i = (int32_t)w->count++;
    w->symbols[i] = (struct symbol){id, (uint32_t)start, (uint32_t)len, i - 1, -1};
    if (i > 0) w->symbols[i - 1].next = i;
}

/* One symbol per byte, by the table; a byte that is not in the vocabulary is left out, as the
 * tokenizers package leaves it out when there is no unknown token. */
static void seed_bytes(const struct bpe *b, struct str piece, struct bpe_work *w) {
    for (size_t i = 0; i < piece.len; i++) {
        token_id id = b->byte_ids[(uint8_t)piece.ptr[i]];
        if (id != TOKEN_NONE) add_symbol(w, (uint32_t)id, i, 1);
    }
}

/* The piece for one character, with the prefix and suffix that its place requires. */
static token_id find_char(const struct vocab *v, const struct bpe *b, struct str one, bool first,
                          bool last, struct buf *spelled) {
    bool prefix = !first && b->prefix.len, suffix = last && b->suffix.len;
    if (!prefix && !suffix) return vocab_find(v, one);
    spelled->len = 0;
    if (prefix) buf_put_str(spelled, b->prefix);
    buf_put_str(spelled, one);
    if (suffix) buf_put_str(spelled, b->suffix);
    return vocab_find(v, buf_str(spelled));
}

static bool fall_back(const struct bpe *b, struct str one, size_t start, struct bpe_work *w) {
    if (!b->byte_fallback) return false;
    for (size_t i = 0; i < one.len; i++)
        if (b->fallback_ids[(uint8_t)one.ptr[i]] == TOKEN_NONE) return false;
    for (size_t i = 0; i < one.len; i++)
        add_symbol(w, (uint32_t)b->fallback_ids[(uint8_t)one.ptr[i]], start + i, 1);
    return true;
}

/* One symbol per character. An unknown one becomes its bytes, or the unknown token; runs of
 * unknowns may become one. */
static enum status seed_chars(const struct vocab *v, const struct bpe *b, struct str piece,
                              struct bpe_work *w, struct buf *spelled) {
    buf_clear(spelled);
    size_t unk_start = 0, unk_len = 0;
    for (size_t pos = 0; pos < piece.len;) {
        size_t start = pos;
        (void)uc_next(piece, &pos);
        struct str one = {piece.ptr + start, pos - start};
        token_id id = find_char(v, b, one, start == 0, pos == piece.len, spelled);
        if (id == TOKEN_NONE && (fall_back(b, one, start, w) || b->unk == TOKEN_NONE)) continue;
        if (unk_len && (id != TOKEN_NONE || !b->fuse_unk)) {
            add_symbol(w, (uint32_t)b->unk, unk_start, unk_len);
            unk_len = 0;
        }
        if (id != TOKEN_NONE) {
            add_symbol(w, (uint32_t)id, start, one.len);
            continue;
        }
        if (unk_len == 0) unk_start = start;
        unk_len += one.len;
    }
    if (unk_len) add_symbol(w, (uint32_t)b->unk, unk_start, unk_len);
    return buf_status(spelled);
}

/* By score every character is a symbol, known or not: two unknown ones may join to a piece. */
static void seed_by_score(const struct vocab *v, struct str piece, struct bpe_work *w) {
    for (size_t pos = 0; pos < piece.len;) {
        size_t start = pos;
        (void)uc_next(piece, &pos);
        token_id id = vocab_find(v, (struct str){piece.ptr + start, pos - start});
        add_symbol(w, id == TOKEN_NONE ? NO_ID : (uint32_t)id, start, pos - start);
    }
}

static enum status put_symbol(const struct bpe *b, struct str piece, const struct symbol *s,
                              struct tokens *out) {
    if (s->id != NO_ID) return tokens_push(out, (token_id)s->id);
    bool bytes = true;
    for (uint32_t i = 0; i < s->len; i++)
        if (b->fallback_ids[(uint8_t)piece.ptr[s->start + i]] == TOKEN_NONE) bytes = false;
    if (!bytes) return b->unk == TOKEN_NONE ? ST_OK : tokens_push(out, b->unk);
    for (uint32_t i = 0; i < s->len; i++)
        TRY(tokens_push(out, b->fallback_ids[(uint8_t)piece.ptr[s->start + i]]));
    return ST_OK;
}

static bool whole_piece(const struct vocab *v, const struct bpe *b, struct str piece, bool raw,
                        token_id *id) {
    uint32_t found;
    if (!b->ignore_merges) return false;
    if (!map_find(raw ? b->raw : v->model, piece, &found)) return false;
    *id = (token_id)found;
    return true;
}

static enum status encode_word(const struct vocab *v, const struct bpe *b, struct str piece,
                               bool raw, struct work *work, struct tokens *out) {
    if (piece.len > INT32_MAX / 4) return ST_NOMEM;
    if (!work->bpe) work->bpe = mem_zalloc(sizeof(*work->bpe));
    struct bpe_work *w = work->bpe;
    if (!w || !reserve((void **)&w->symbols, &w->symbol_cap, piece.len, sizeof(w->symbols[0])))
        return ST_NOMEM;
    w->count = 0;
    if (raw)
        seed_bytes(b, piece, w);
    else if (b->merges)
        TRY(seed_chars(v, b, piece, w, &work->spare));
    else
        seed_by_score(v, piece, w);
    if (w->count == 0) return ST_OK;
    if (w->count <= SHORT_WORD)
        merge_short(v, b, piece.ptr, w->symbols, w->count);
    else
        TRY(merge_long(v, b, piece.ptr, w));
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next)
        TRY(put_symbol(b, piece, &w->symbols[i], out));
    return ST_OK;
}

static bool mark_at(struct str text, size_t i) {
    return str_starts(str_skip(text, i), STR(BLANK_MARK));
}

/* Where the word at the front of `text` ends: before a U+2581 that follows something else. */
static size_t word_end(struct str text) {
    const size_t mark = sizeof(BLANK_MARK) - 1;
    size_t i = 0;
    while (i < text.len && mark_at(text, i)) i += mark;
    while (i < text.len) {
        const char *hit = memchr(text.ptr + i, 0xE2, text.len - i);
        if (!hit) return text.len;
        i = (size_t)(hit - text.ptr);
        if (mark_at(text, i)) return i;
        i++;
    }
    return text.len;
}

enum status bpe_encode(const struct vocab *v, const struct bpe *b, struct str piece, bool raw,
                       struct work *work, struct tokens *out) {
    token_id whole;
    if (whole_piece(v, b, piece, raw, &whole)) return tokens_push(out, whole);
    while (piece.len) {
        size_t end = b->by_word && !raw ? word_end(piece) : piece.len;
        TRY(encode_word(v, b, str_take(piece, end), raw, work, out));
        piece = str_skip(piece, end);
    }
    return ST_OK;
}

/* SentencePiece models write a blank as U+2581 in front of a word, and hardly ever have a piece
 * with one inside. Without such pieces no merge crosses a word, and words can be done one by
 * one, which is several times as fast; U+2581 itself must be known, or a run of unknown
 * characters could cross. */
void bpe_find_words(const struct vocab *v, struct bpe *b) {
    b->by_word = vocab_find(v, STR(BLANK_MARK)) != TOKEN_NONE && !b->prefix.len && !b->suffix.len;
    for (uint32_t i = 0; b->by_word && i < v->count; i++)
        if (v->pieces[i].len && word_end(v->pieces[i]) < v->pieces[i].len) b->by_word = false;
}

void bpe_fill_bytes(const struct vocab *v, struct bpe *b) {
    static const char hex[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        char one[4], spelled[6] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        size_t len = utf8_encode(byte_char((uint8_t)i), one);
        uint32_t id;
        b->byte_ids[i] = map_find(v->all, (struct str){one, len}, &id) ? (token_id)id : TOKEN_NONE;
        b->fallback_ids[i] =
            map_find(v->all, (struct str){spelled, 6}, &id) ? (token_id)id : TOKEN_NONE;
    }
}

struct scored {
    double score;
    uint32_t id;
};

static int by_score(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Equal scores get equal ranks, so that of those the leftmost pair is joined first. */
enum status bpe_rank_scores(const struct vocab *v, struct bpe *b) {
    struct scored *order = mem_alloc_array(v->count + 1, sizeof(order[0]));
    b->score_ranks = mem_zalloc_array(v->count + 1, sizeof(b->score_ranks[0]));
    if (!order || !b->score_ranks) {
        mem_free(order);
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < v->count; i++) order[i] = (struct scored){v->scores[i], i};
    qsort(order, v->count, sizeof(order[0]), by_score);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank = i;
        b->score_ranks[order[i].id] = rank;
    }
    mem_free(order);
    return ST_OK;
}

/* The bytes that each piece stands for, so that a raw piece can be looked up whole. */
enum status bpe_index_raw(const struct vocab *v, struct bpe *b) {
    b->raw = map_create(v->count);
    if (!b->raw) return ST_NOMEM;
    struct buf bytes;
    buf_init(&bytes, PIECE_BYTES_MAX);
    enum status st = ST_OK;
    for (uint32_t i = 0; i < v->count && st == ST_OK; i++) {
        if (!v->pieces[i].ptr || vocab_find(v, v->pieces[i]) != (token_id)i) continue;
        buf_clear(&bytes);
        if (!byte_chars_decode(&bytes, v->pieces[i])) continue;
        st = buf_status(&bytes);
        struct str kept = arena_dup(v->arena, buf_str(&bytes));
        if (st == ST_OK) st = kept.ptr ? map_put(b->raw, kept, i) : ST_NOMEM;
    }
    buf_deinit(&bytes);
    return st;
}

void bpe_deinit(struct bpe *b) {
    map64_destroy(b->merges);
    map_destroy(b->raw);
    mem_free(b->score_ranks);
}
