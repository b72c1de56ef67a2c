/* grammar/decimal.h - decimal numbers as texts, and the texts of numbers within limits.
 *
 * Limits are exact: they are compared digit by digit, never as floating point. Each number has one
 * spelling: no exponent, no zero at the end of a fraction, and an integer has no fraction. So the
 * complement of a set of numbers is the complement of their spellings, programs that read an
 * integer find one, and a model cannot write zeros for ever.
 *
 * Thread: the caller's.
 */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/expr.h"

struct json;

enum {
    DECIMAL_DIGITS_MAX = 400,
    DECIMAL_DIGITS_USUAL = 40, /* every 128-bit integer and the range of a 32-bit float fit */
};

struct decimal {
    bool negative;
    char whole[DECIMAL_DIGITS_MAX];    /* at least "0", no leading zeros */
    char fraction[DECIMAL_DIGITS_MAX]; /* no trailing zeros, may be empty */
};

/* The shortest decimal that reads as this JSON number. False: it is none, or too long. */
bool decimal_of(const struct json *v, struct decimal *out);
int decimal_cmp(const struct decimal *a, const struct decimal *b);

/* The spelling of one number. */
expr_id decimal_expr(struct expr_pool *p, const struct decimal *d);
/* Numbers that are at least (most) `d`; exclusive: more (less) than it. */
expr_id decimal_at_least(struct expr_pool *p, const struct decimal *d, bool exclusive);
expr_id decimal_at_most(struct expr_pool *p, const struct decimal *d, bool exclusive);
/* Multiples of `d`. EXPR_NONE: it is not positive, or its digits are more than 1,000,000. */
expr_id decimal_multiple(struct expr_pool *p, const struct decimal *d);
/* Numbers of at most `most` digits before the point and as many behind it. */
expr_id decimal_any(struct expr_pool *p, bool has_integers, bool has_fractions, uint32_t most);

#endif
