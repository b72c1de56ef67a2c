/* grammar/decimal.h - decimal numbers as texts, and the texts of numbers within limits.
 *
 * Limits are exact: they are compared digit by digit, never as floating point. A number is spelled
 * without an exponent, and ends in at most two zeros behind the point: a model that writes one zero
 * tends to write another, and nothing else would end that.
 *
 * Thread: the caller's.
 */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/expr.h"

struct json;

enum { DECIMAL_DIGITS_MAX = 400 };

struct decimal {
    bool negative;
    char whole[DECIMAL_DIGITS_MAX];    /* at least "0", no leading zeros */
    char fraction[DECIMAL_DIGITS_MAX]; /* no trailing zeros, may be empty */
};

/* The shortest decimal that reads as this JSON number. False: it is none, or too long. */
bool decimal_of(const struct json *v, struct decimal *out);
int decimal_cmp(const struct decimal *a, const struct decimal *b);

/* The spellings of one number: 7, 7.0, 7.00. */
expr_id decimal_expr(struct expr_pool *p, const struct decimal *d);
/* Numbers that are at least (most) `d`; exclusive: more (less) than it. */
expr_id decimal_at_least(struct expr_pool *p, const struct decimal *d, bool exclusive);
expr_id decimal_at_most(struct expr_pool *p, const struct decimal *d, bool exclusive);
/* Multiples of `d`. EXPR_NONE: it is not positive, or its digits are more than 1,000,000. */
expr_id decimal_multiple(struct expr_pool *p, const struct decimal *d);
/* Every number without an exponent; only_integers: with nothing but zeros behind the point. */
expr_id decimal_any(struct expr_pool *p, bool only_integers);
/* The same, and with exponents of at most two digits; those of integers are not negative. */
expr_id decimal_any_exponent(struct expr_pool *p, bool only_integers);

#endif
