/* text/decode.h - decoder stages: from a token to text. */
#ifndef TEXT_DECODE_H
#define TEXT_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/regex.h"

struct buf;

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
/* Apply a stage to one token and put the result into `out`. Not for BYTE_FALLBACK and FUSE. */
enum status decode_token(const struct decode_stage *s, struct str token, bool first, bool last,
                         struct buf *out);
/* The rules that make a chain fit for streaming; ST_BAD names the stage that breaks one. */
enum status decode_check(const struct decode_chain *c, struct err *err);
void decode_deinit(struct decode_chain *c);

#endif
