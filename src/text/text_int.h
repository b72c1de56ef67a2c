/* text/text_int.h - what the tokenizer's files share; no other folder includes it.
 *
 * A tokenizer is data: a vocabulary, a list of normaliser steps, a list of pre-tokenizer
 * steps, one model, a post-processor and a list of decoder stages. The readers
 * (tokenizer_gguf.c, tokenizer_json.c) fill it, and nothing changes it afterwards. A call that
 * encodes has its own struct work, so calls never meet.
 *
 * Texts inside are valid UTF-8: tokenizer_encode repairs its input once. Sizes that a file
 * states are held against the limits below before anything is allocated.
 */
#ifndef TEXT_TEXT_INT_H
#define TEXT_TEXT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/tokenizer.h"

struct arena;
struct json;
struct map;
struct map64;

enum {
    VOCAB_MAX = 1 << 22,        /* ids; the largest vocabularies today have 2^18 */
    PIECE_BYTES_MAX = 1 << 16,  /* of one entry of the vocabulary */
    ADDED_BYTES_MAX = 1 << 10,  /* of one added token: the search costs this much per byte */
    ADDED_MAX = 1 << 20,        /* added tokens */
    STEPS_MAX = 64,             /* steps of a chain, nested sequences flattened */
    NESTING_MAX = 8,            /* sequences inside sequences */
    PATTERN_BYTES_MAX = 1 << 16 /* of one regular expression */
};
#define TEXT_BYTES_MAX ((size_t)1 << 31) /* of a text on its way; normalising can grow it */
#define VOCAB_BYTES_MAX ((size_t)1 << 28)

/* ---- unicode.c: what a character is ---- */

bool uc_is_space(uint32_t c); /* White_Space */
bool uc_is_letter(uint32_t c);
bool uc_is_number(uint32_t c); /* Nd, Nl, No */
bool uc_is_punct(uint32_t c);  /* ASCII punctuation and symbols, and P* elsewhere */
bool uc_is_word(uint32_t c);   /* letters, marks, digits, connectors: \w */
bool uc_is_mark(uint32_t c);   /* Mn, Mc, Me */
bool uc_is_mark_nonspacing(uint32_t c);
bool uc_is_other(uint32_t c); /* Cc, Cf, Co, Cs, Cn */
bool uc_is_cjk(uint32_t c);   /* what BERT calls a Chinese character */

/* The next character of valid text at *pos, which moves on. */
uint32_t uc_next(struct str text, size_t *pos);
void uc_put(struct buf *out, uint32_t c);

/* GPT-2's alphabet: a printable character for every byte. */
uint32_t byte_char(uint8_t byte);
int char_byte(uint32_t c); /* -1 if `c` stands for no byte */
void byte_chars_put(struct buf *out, struct str bytes);
/* The bytes that a piece stands for; false, with nothing put, if a character is outside. */
bool byte_chars_decode(struct buf *out, struct str piece);
int byte_of_spelling(struct str piece); /* "<0xE2>" gives 0xE2; -1 if it is not one */

/* ---- vocab.c: pieces and ids ---- */

enum piece_kind { /* GGUF's numbers */
                  PIECE_NONE = 0,
                  PIECE_NORMAL = 1,
                  PIECE_UNKNOWN = 2,
                  PIECE_CONTROL = 3,
                  PIECE_USER = 4,
                  PIECE_UNUSED = 5,
                  PIECE_BYTE = 6,
};

struct vocab {
    struct arena *arena; /* the bytes of all pieces */
    struct str *pieces;  /* by id; ptr == NULL: no such id */
    struct str *shown; /* by id; what decoding starts from where it is not the piece; may be NULL */
    uint8_t *kinds;    /* by id; enum piece_kind */
    double *scores;    /* by id; NULL if the model has none */
    struct map *model; /* text -> id, what the model may produce */
    struct map *all;   /* text -> id, added tokens first */
    uint32_t count, cap; /* ids are below count */
    uint32_t longest;    /* bytes of the longest piece */
};

enum status vocab_init(struct vocab *v, uint32_t expected_count);
void vocab_deinit(struct vocab *v);
/* Give `id` a piece; the text is copied. ST_BAD past the limits above. */
enum status vocab_set(struct vocab *v, uint32_t id, struct str text, enum piece_kind kind,
                      struct err *err);
token_id vocab_find(const struct vocab *v, struct str text); /* what the model may produce */
/* Decode `id` as `text`, which outlives the vocabulary. Once all pieces are set. */
enum status vocab_show(struct vocab *v, uint32_t id, struct str text);

/* ---- trie.c: all entries of a set that start at a place of a text ---- */

struct trie; /* opaque */
struct trie_entry {
    struct str text;
    uint32_t value;
};
/* `entries` is sorted in place. Of two equal texts the larger value stays. */
struct trie *trie_create(struct trie_entry *entries, size_t count); /* NULL: out of memory */
void trie_destroy(struct trie *t);
/* Walk: start at node 0; false when no entry goes on with this byte. */
bool trie_step(const struct trie *t, uint32_t *node, uint8_t byte);
bool trie_value(const struct trie *t, uint32_t node, uint32_t *value);

/* ---- regex.c: patterns as Oniguruma reads them, run by PCRE2 in linear time ---- */

struct regex;      /* opaque; shared by all threads */
struct regex_work; /* opaque; one per call that searches */

/* `what` names the part of the file for the sentence. */
enum status regex_create(struct str pattern, const char *what, struct regex **out, struct err *err);
void regex_destroy(struct regex *re);
struct regex_work *regex_work_create(void); /* NULL: out of memory */
void regex_work_destroy(struct regex_work *w);

struct regex_search {
    const struct regex *re;
    struct regex_work *work;
    struct str text;
    size_t pos, last_end;
    uint64_t budget; /* bytes of long windows still allowed: what keeps time linear */
    bool any;
};
void regex_search_init(struct regex_search *s, const struct regex *re, struct regex_work *work,
                       struct str text);
bool regex_search_next(struct regex_search *s, size_t *start, size_t *end);

/* A literal or a regular expression. */
struct pattern {
    struct regex *re; /* NULL: literal */
    char *literal;    /* heap */
    size_t literal_len;
};
void pattern_deinit(struct pattern *p);
struct pattern_search {
    const struct pattern *p;
    struct regex_search re;
    struct str text;
    size_t pos;
};
void pattern_search_init(struct pattern_search *s, const struct pattern *p, struct regex_work *work,
                         struct str text);
bool pattern_search_next(struct pattern_search *s, size_t *start, size_t *end);
/* `text` with every match replaced. */
void pattern_replace(const struct pattern *p, struct str with, struct regex_work *work,
                     struct str text, struct buf *out);

/* ---- normalize.c, nf.c, charsmap.c: text to text ---- */

struct charsmap; /* SentencePiece's compiled table of replacements */
enum status charsmap_create(struct str blob, struct charsmap **out, struct err *err);
void charsmap_destroy(struct charsmap *m);
/* Longest (or, as the tokenizers package does, shortest) entry at the start of `text`: its
 * length, 0 if none, and what replaces it. */
size_t charsmap_longest(const struct charsmap *m, struct str text, struct str *with);
size_t charsmap_shortest(const struct charsmap *m, struct str text, struct str *with);

enum nf_form { NF_C, NF_D, NF_KC, NF_KD };
enum status nf_apply(enum nf_form form, struct str text, struct buf *out);

enum norm_kind {
    NORM_BERT,
    NORM_LOWER,
    NORM_NF,
    NORM_STRIP_ACCENTS,
    NORM_STRIP,
    NORM_REPLACE,
    NORM_PREPEND,
    NORM_NMT,
    NORM_PRECOMPILED, /* as the tokenizers package applies it: by grapheme */
    NORM_BYTE_LEVEL,
    NORM_SPM, /* as SentencePiece does it: table, blanks joined, blank to U+2581 */
};

struct norm_step {
    enum norm_kind kind;
    enum nf_form form;
    bool clean, cjk, accents, lower; /* NORM_BERT */
    bool left, right;                /* NORM_STRIP */
    bool join_blanks, add_blank;     /* NORM_SPM */
    struct pattern pattern;          /* NORM_REPLACE */
    struct str text;                 /* NORM_REPLACE, NORM_PREPEND; vocab arena */
    struct charsmap *map;            /* NORM_PRECOMPILED, NORM_SPM; may be NULL */
    const struct trie *user;         /* NORM_SPM: spellings left as they are; may be NULL */
};

struct norm_chain {
    struct norm_step steps[STEPS_MAX];
    uint32_t count;
};

/* *at_start stays true only while the first character still is the text's first one. The
 * result is in work->norm, or is `text` itself when there is nothing to do. */
struct work;
enum status norm_apply(const struct norm_chain *c, struct str text, struct work *work,
                       struct str *out, bool *at_start);
void norm_deinit(struct norm_chain *c);

/* ---- pretok.c: text to pieces ---- */

enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS };

enum pretok_kind {
    PRETOK_SPLIT,        /* pattern, behavior, invert */
    PRETOK_BYTE_LEVEL,   /* add_prefix, use_regex */
    PRETOK_METASPACE,    /* replacement, prepend, split */
    PRETOK_DIGITS,       /* each by itself */
    PRETOK_DIGIT_RUNS,   /* runs */
    PRETOK_DIGIT_GROUPS, /* threes, counted from the right */
    PRETOK_PUNCT,        /* behavior */
    PRETOK_WORDS,        /* "Whitespace": \w+|[^\w\s]+ */
    PRETOK_BLANKS,       /* "WhitespaceSplit" */
    PRETOK_BERT,
    PRETOK_CHAR, /* "CharDelimiterSplit" */
};

enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct pretok_step {
    enum pretok_kind kind;
    enum split_behavior behavior;
    bool invert, add_prefix, use_regex, split;
    enum prepend_scheme prepend;
    uint32_t code; /* replacement or delimiter */
    struct pattern pattern;
};

struct pretok_chain {
    struct pretok_step steps[STEPS_MAX];
    uint32_t count;
    struct regex *gpt2; /* for PRETOK_BYTE_LEVEL with use_regex */
    bool raw_bytes;     /* the last step is BYTE_LEVEL and the model reads bytes itself */
};

struct piece {
    size_t start, len;
    bool first; /* starts where the whole text starts */
};

struct pieces {
    struct buf text;
    struct piece *at; /* heap */
    size_t count, cap;
    enum status status;
};

/* The pieces of `text` in work->pieces. */
enum status pretok_apply(const struct pretok_chain *c, struct str text, bool at_start,
                         struct work *work);
void pretok_deinit(struct pretok_chain *c);

/* The steps that a tokenizer.ggml.pre stands for. */
struct pretok_name {
    const char *name;
    const char *splits[6]; /* regular expressions, each isolating its matches */
    uint32_t digits;       /* a pretok_kind put before (see digits_last), or 0 */
    bool digits_last;      /* ... or after the splits */
    bool ignore_merges, add_bos, add_sep;
};
const struct pretok_name *pretok_name_find(struct str name); /* NULL: unknown */
extern const char pretok_gpt2_pattern[];

/* ---- models ---- */

struct bpe_work;                /* opaque */
struct work {                   /* one encode call's memory */
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
    token_id byte_ids[256];     /* of the character that stands for a byte */
    token_id fallback_ids[256]; /* of "<0xNN>" */
    token_id unk;
    bool byte_fallback, fuse_unk, ignore_merges;
    struct str prefix, suffix; /* vocab arena */
    bool by_word; /* no piece joins a U+2581 to what stands before it: words are apart */
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
    struct trie *start, *inside; /* pieces that begin a word, pieces that go on (no prefix) */
    token_id unk;
    uint32_t word_chars_max;
};
enum status wordpiece_encode(const struct wordpiece *w, struct str piece, struct tokens *out);
void wordpiece_deinit(struct wordpiece *w);

/* ---- added.c: tokens cut out of the text before everything else ---- */

struct added_token {
    struct str text; /* vocab arena */
    token_id id;
    bool special, lstrip, rstrip, single_word, normalized;
};

struct added {
    struct added_token *tokens; /* heap */
    uint32_t count, cap;
    struct trie *raw, *normalized; /* text -> index into tokens; NULL if there are none */
    bool first_raw[256], first_normalized[256];
};
enum status added_push(struct added *a, struct added_token token);
void added_deinit(struct added *a);

struct tokenizer;
enum status added_index(struct tokenizer *t); /* once all are known; normalises spellings */

/* The next cut: the text before it (may be empty), and the token (TOKEN_NONE for the text
 * behind the last one). */
struct added_cut {
    struct str before;
    token_id id;
};
struct added_scan {
    const struct added *a;
    struct str text;
    size_t pos;   /* where the search goes on */
    size_t taken; /* everything before it has been given out */
    bool normalized, plain_special;
};
bool added_scan_next(struct added_scan *s, struct added_cut *cut);

/* ---- postproc.c ---- */

enum { POST_SEQUENCE = -2, POST_ITEMS_MAX = 64 };
struct post { /* ids, and POST_SEQUENCE where the text's ids go */
    token_id items[POST_ITEMS_MAX];
    uint32_t count;
};
/* Put `outer`, whose sequences stand for what `p` gives, in the place of `p`. */
bool post_nest(struct post *p, const struct post *outer); /* false: too many items */

/* ---- decode.c; detok.c ---- */

enum decode_kind {
    DECODE_REPLACE,
    DECODE_BYTE_FALLBACK,
    DECODE_METASPACE,
    DECODE_WORDPIECE,
    DECODE_WORDSTART, /* GGUF's WordPiece: U+2581 starts a word */
    DECODE_BPE,
    DECODE_CTC,
    DECODE_STRIP,
    DECODE_FUSE,
    DECODE_BYTE_LEVEL,
    DECODE_JOIN, /* no decoder at all: pieces with blanks between them */
};

struct decode_stage {
    enum decode_kind kind;
    struct pattern pattern; /* REPLACE */
    struct str text;        /* with, prefix, suffix, pad token; vocab arena */
    struct str delimiter;   /* CTC */
    uint32_t code;          /* METASPACE, STRIP */
    uint32_t start, stop;   /* STRIP */
    bool cleanup, drop_first;
};

enum { DECODE_STAGES_MAX = 16 };
struct decode_chain {
    struct decode_stage stages[DECODE_STAGES_MAX];
    uint32_t count;
};
/* What a stage makes of one token, put into `out`. Not for BYTE_FALLBACK and FUSE. */
enum status decode_token(const struct decode_stage *s, struct str token, bool first, bool last,
                         struct buf *out);
/* The rules that make a chain fit for streaming; ST_BAD names the stage that breaks one. */
enum status decode_check(const struct decode_chain *c, struct err *err);
void decode_deinit(struct decode_chain *c);

/* ---- tokenizer.c ---- */

enum tok_model { TOK_BPE, TOK_SPM, TOK_UNIGRAM, TOK_WORDPIECE };

struct tokenizer {
    enum tok_model model;
    struct vocab vocab;
    struct added added;
    struct norm_chain norm;
    struct pretok_chain pretok;
    struct bpe bpe;
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct post post;
    struct decode_chain decode;
    struct trie *user; /* GGUF unigram: spellings that normalising leaves alone */
    token_id bos, eos;
    token_id more_ends[2]; /* GGUF: end of turn, end of message */
    uint32_t more_end_count;
    uint8_t *flags;                                /* by id: TOKEN_SPECIAL, TOKEN_END; heap */
    struct str chat_template, chat_template_tools; /* vocab arena */
};
enum { TOKEN_SPECIAL = 1, TOKEN_END = 2 };

struct model_file;
enum status tokenizer_read_gguf(struct tokenizer *t, struct model_file *f, struct err *err);
enum status tokenizer_read_json(struct tokenizer *t, const struct json *doc, struct err *err);
enum status norm_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status pretok_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status post_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status decode_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status pattern_read(struct pattern *p, const struct json *v, const char *what,
                         struct err *err);
enum status text_dup(struct tokenizer *t, struct str text, struct str *out); /* vocab arena */

#endif
