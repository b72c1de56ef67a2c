/* grammar/regex.h - regular expressions as ECMA 262 writes them, as expressions over bytes.
 *
 * Look-behind, look-ahead inside groups, back-references, word boundaries and flags are refused:
 * they are not regular, or not exact here.
 *
 * Thread: the caller's.
 */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "base/status.h"
#include "base/str.h"
#include "grammar/chars.h"
#include "grammar/expr.h"

enum regex_flag {
    REGEX_FOLD_CASE = 1, /* letters of ASCII in both cases */
    REGEX_NO_LOOK = 2,   /* refuse look-ahead: what follows the text is not known */
};

/* Texts that match as a whole. ^ and $ may stand at the ends only. */
enum status regex_whole(struct expr_pool *p, struct str source, uint32_t flags, expr_id *out,
                        struct err *err);

/* JSON strings, with their quotes, in whose text the expression is found somewhere. */
enum status regex_search_json(struct expr_pool *p, struct str source, expr_id *out,
                              struct err *err);

/* The set of characters that a class in brackets names; `at` is behind the opening bracket and is
 * moved behind the closing one. For GBNF, which shares the notation. */
enum status regex_class(struct str source, size_t *at, struct code_set *out, struct err *err);

#endif
