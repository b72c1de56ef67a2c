/* grammar/ebnf_reader.h - what the readers of GBNF and Lark share: a place in the source. */
#ifndef GRAMMAR_EBNF_READER_H
#define GRAMMAR_EBNF_READER_H

#include "grammar/ebnf.h"

struct buf;

struct ebnf_reader {
    struct ebnf e;
    struct str source;
    size_t at;
    uint32_t line, depth;
};

int reader_peek(const struct ebnf_reader *r, size_t ahead); /* -1 at the end */
bool reader_take(struct ebnf_reader *r, const char *text);
void reader_skip(struct ebnf_reader *r, size_t bytes); /* counts lines */
enum status reader_refuse(struct ebnf_reader *r, const char *what);
/* Letters, digits, '-' and '_'; empty if there are none. */
struct str reader_word(struct ebnf_reader *r);
/* A text in double quotes, its opening quote taken; escapes as in C, \xHH, \uHHHH. */
enum status reader_text(struct ebnf_reader *r, struct buf *out);
/* A decimal number; false: there is none, or it is above REPEAT_MAX. */
bool reader_number(struct ebnf_reader *r, uint32_t *out);

#endif
