/* text/pretok.h - pre-tokenizer steps: text to pieces. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/regex.h"
#include "text/text_limits.h"

struct work;

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

/* The steps that a value of tokenizer.ggml.pre means. */
struct pretok_name {
    const char *name;
    const char *splits[6]; /* regular expressions, each isolating its matches */
    uint32_t digits;       /* a pretok_kind put before (see digits_last), or 0 */
    bool digits_last;      /* ... or after the splits */
    bool ignore_merges, add_bos, add_sep;
};
const struct pretok_name *pretok_name_find(struct str name); /* NULL: unknown */
extern const char pretok_gpt2_pattern[];

#endif
