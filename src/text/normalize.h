/* text/normalize.h - normaliser steps: text to text. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/regex.h"
#include "text/text_limits.h"

struct buf;
struct trie;

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
    const struct trie *user;         /* NORM_SPM: tokens left as they are; may be NULL */
};

struct norm_chain {
    struct norm_step steps[STEPS_MAX];
    uint32_t count;
};

/* *at_start stays true only while the first character comes from the text's first one. The
 * result is in work->norm, or is `text` itself when there is nothing to do. */
struct work;
enum status norm_apply(const struct norm_chain *c, struct str text, struct work *work,
                       struct str *out, bool *at_start);
void norm_deinit(struct norm_chain *c);

#endif
