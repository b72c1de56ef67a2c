/* text/decoder.h - decoder stages: from a token to text. */
#ifndef TEXT_DECODER_H
#define TEXT_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/regex.h"

struct buf;

enum decoder_kind {
    DECODER_REPLACE,
    DECODER_BYTE_FALLBACK,
    DECODER_METASPACE,
    DECODER_WORDPIECE,
    DECODER_WORDSTART, /* GGUF's WordPiece: U+2581 starts a word */
    DECODER_BPE,
    DECODER_CTC,
    DECODER_STRIP,
    DECODER_FUSE,
    DECODER_BYTE_LEVEL,
    DECODER_JOIN, /* no decoder at all: pieces with blanks between them */
};

struct decoder_stage {
    enum decoder_kind kind;
    struct pattern pattern; /* REPLACE */
    struct str text;        /* with, prefix, suffix, pad token; vocab arena */
    struct str delimiter;   /* CTC */
    uint32_t code;          /* METASPACE, STRIP */
    uint32_t start, stop;   /* STRIP */
    bool cleanup, drop_first;
};

enum { DECODER_STAGES_MAX = 16 };
struct decoder_chain {
    struct decoder_stage stages[DECODER_STAGES_MAX];
    uint32_t count;
};
/* Apply a stage to one token and put the result into `out`. Not for BYTE_FALLBACK and FUSE. */
enum status decoder_apply(const struct decoder_stage *s, struct str token, bool first, bool last,
                          struct buf *out);
/* The rules that make a chain fit for streaming; ST_BAD names the stage that breaks one. */
enum status decoder_check(const struct decoder_chain *c, struct err *err);
void decoder_deinit(struct decoder_chain *c);

#endif
