/* text/models.h - BPE, unigram and WordPiece: a piece of text to ids. */
#ifndef TEXT_MODELS_H
#define TEXT_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

struct map;
struct map64;
struct regex_work;
struct trie;
struct vocab;

struct bpe_work; /* opaque */

/* One encode call's memory. */
struct work {
    struct buf fixed;           /* the input with its UTF-8 repaired */
    struct buf norm, norm_next; /* ping and pong */
    struct buf spare;           /* inside one step */
    struct pieces pieces, pieces_next;
    struct regex_work *regex;
    struct bpe_work *bpe;
    void *lattice; /* heap; unigram's best path, reused */
    size_t lattice_bytes;
};
enum status work_init(struct work *w);
void work_deinit(struct work *w);

struct bpe {
    struct map64 *merges;       /* left << 32 | right -> rank << 32 | id; NULL: by score */
    struct map *raw;            /* bytes -> id, for ignore_merges on raw bytes; may be NULL */
    uint32_t *score_ranks;      /* by id: smaller is better; NULL: by merges */
    token_id byte_ids[256];     /* of the character that represents a byte */
    token_id fallback_ids[256]; /* of "<0xNN>" */
    token_id unk;
    bool byte_fallback, fuse_unk, ignore_merges;
    struct str prefix, suffix; /* vocab arena */
    bool by_word; /* no piece joins a U+2581 to the text before it: words are separate */
};
enum status bpe_encode(const struct vocab *v, const struct bpe *b, struct str piece, bool raw,
                       struct work *work, struct tokens *out);
void bpe_fill_bytes(const struct vocab *v, struct bpe *b);
void bpe_find_words(const struct vocab *v, struct bpe *b); /* sets by_word */
enum status bpe_rank_scores(const struct vocab *v, struct bpe *b);
enum status bpe_index_raw(const struct vocab *v, struct bpe *b);
void bpe_deinit(struct bpe *b);
void bpe_work_destroy(struct bpe_work *w);

struct unigram {
    struct trie *trie;
    token_id unk;
    double min_score, max_score;
    bool byte_fallback;
    bool spm; /* SentencePiece's own arithmetic and rules (GGUF) */
    token_id fallback_ids[256];
};
enum status unigram_encode(const struct vocab *v, const struct unigram *u, struct str piece,
                           struct work *work, struct tokens *out);
void unigram_deinit(struct unigram *u);

struct wordpiece {
    struct trie *start, *inside; /* pieces that begin a word, pieces that continue it */
    token_id unk;
    uint32_t word_chars_max;
};
enum status wordpiece_encode(const struct wordpiece *w, struct str piece, struct tokens *out);
void wordpiece_deinit(struct wordpiece *w);

#endif
