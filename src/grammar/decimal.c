/* grammar/decimal.c - comparing decimal texts by regular expressions.
 *
 * For whole digits d1..dk and fraction digits f1..fm, "at least" is: more whole digits; or the same
 * number of them, equal up to place i and larger there; or all equal, and the fraction likewise.
 * Numbers have no leading zeros, so more digits are a larger number. Limits allow zeros at the end
 * of a fraction; decimal_any leaves them out.
 */
#include "grammar/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static bool store_digits(const char *digits, size_t count, int64_t exponent, struct decimal *out) {
    /* The value is 0.digits times ten to the exponent. */
    size_t whole = 0, fraction = 0;
    if (exponent > DECIMAL_DIGITS_MAX - 2 || exponent < -(DECIMAL_DIGITS_MAX - 40)) return false;
    for (int64_t i = 0; i < exponent; i++) {
        char d = (size_t)i < count ? digits[i] : '0';
        if (whole || d != '0') out->whole[whole++] = d;
    }
    if (whole == 0) out->whole[whole++] = '0';
    for (int64_t i = exponent; i < (int64_t)count; i++)
        out->fraction[fraction++] = i < 0 ? '0' : digits[i];
    while (fraction && out->fraction[fraction - 1] == '0') fraction--;
    out->whole[whole] = 0;
    out->fraction[fraction] = 0;
    return true;
}

static bool from_real(double v, struct decimal *out) {
    char text[64];
    int digits = 1;
    const double size = fabs(v); /* of -0.0, too */
    do snprintf(text, sizeof(text), "%.*e", digits - 1, size);
    while (strtod(text, NULL) != size && ++digits <= 17);
    char *e = strchr(text, 'e'), plain[32];
    size_t count = 0;
    if (!e) return false;
    for (char *p = text; p < e; p++)
        if (*p != '.') plain[count++] = *p;
    out->negative = v < 0;
    return store_digits(plain, count, strtol(e + 1, NULL, 10) + 1, out);
}

bool decimal_of(const struct json *v, struct decimal *out) {
    *out = (struct decimal){0};
    if (json_kind(v) == JS_REAL) return from_real(json_num(v, 0), out);
    if (json_kind(v) != JS_INT) return false;
    char text[32];
    int len = snprintf(text, sizeof(text), "%lld", (long long)json_int(v, 0));
    out->negative = text[0] == '-';
    return store_digits(text + out->negative, (size_t)len - out->negative, len - out->negative,
                        out);
}

static bool is_zero(const struct decimal *d) { return d->whole[0] == '0' && !d->fraction[0]; }

int decimal_cmp(const struct decimal *a, const struct decimal *b) {
    if (is_zero(a) && is_zero(b)) return 0;
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    int sign = a->negative ? -1 : 1;
    size_t x = strlen(a->whole), y = strlen(b->whole);
    if (x != y) return x > y ? sign : -sign;
    int order = strcmp(a->whole, b->whole);
    if (!order) order = strcmp(a->fraction, b->fraction);
    return order > 0 ? sign : order < 0 ? -sign : 0;
}

static expr_id digits(struct expr_pool *p, uint32_t min, uint32_t max) {
    return expr_repeat(p, expr_range(p, '0', '9'), min, max);
}

static expr_id lit(struct expr_pool *p, const char *text, size_t len) {
    return expr_literal(p, (struct str){text, len});
}

/* A point and at least one digit, or nothing. */
static expr_id any_fraction(struct expr_pool *p) {
    return expr_repeat(p, expr_concat(p, lit(p, ".", 1), digits(p, 1, EXPR_NO_MAX)), 0, 1);
}

static expr_id zeros(struct expr_pool *p, uint32_t min, uint32_t max) {
    return expr_repeat(p, lit(p, "0", 1), min, max);
}

static expr_id zero_fraction(struct expr_pool *p) {
    return expr_repeat(p, expr_concat(p, lit(p, ".", 1), zeros(p, 1, EXPR_NO_MAX)), 0, 1);
}

/* Digits that are not all zero. */
static expr_id not_zero(struct expr_pool *p) {
    expr_id nine = expr_range(p, '1', '9');
    return expr_concat(p, zeros(p, 0, EXPR_NO_MAX),
                       expr_concat(p, nine, digits(p, 0, EXPR_NO_MAX)));
}

/* One digit above (below) `d`, then anything. */
static expr_id beyond(struct expr_pool *p, char d, bool above, expr_id rest) {
    if (d == (above ? '9' : '0')) return EXPR_NONE;
    uint8_t low = above ? (uint8_t)(d + 1) : '0', high = above ? '9' : (uint8_t)(d - 1);
    return expr_concat(p, expr_range(p, low, high), rest);
}

/* The fraction, point included, of numbers whose whole part equals that of `d`. */
static expr_id fraction_above(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    size_t count = strlen(d->fraction);
    expr_id tail = exclusive ? not_zero(p) : digits(p, 0, EXPR_NO_MAX);
    if (count == 0) return exclusive ? expr_concat(p, lit(p, ".", 1), tail) : any_fraction(p);
    for (size_t i = count; i > 0; i--) {
        expr_id larger = beyond(p, d->fraction[i - 1], true, digits(p, 0, EXPR_NO_MAX));
        tail = expr_or(p, expr_concat(p, lit(p, d->fraction + i - 1, 1), tail), larger);
    }
    return expr_concat(p, lit(p, ".", 1), tail);
}

static expr_id fraction_below(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    size_t count = strlen(d->fraction);
    expr_id tail = exclusive ? EXPR_NONE : zeros(p, 0, EXPR_NO_MAX);
    if (count == 0) return exclusive ? EXPR_NONE : zero_fraction(p);
    for (size_t i = count; i > 0; i--) {
        expr_id smaller = beyond(p, d->fraction[i - 1], false, digits(p, 0, EXPR_NO_MAX));
        expr_id equal = expr_concat(p, lit(p, d->fraction + i - 1, 1), tail);
        tail = expr_or(p, equal, smaller);
        if (i > 1) tail = expr_or(p, tail, EXPR_EMPTY); /* a shorter fraction is smaller */
    }
    return expr_repeat(p, expr_concat(p, lit(p, ".", 1), tail), 0, 1);
}

static expr_id size_above(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    uint32_t count = (uint32_t)strlen(d->whole);
    expr_id all = fraction_above(p, d, exclusive), fraction = any_fraction(p);
    for (uint32_t i = count; i > 0; i--) {
        expr_id rest = expr_concat(p, digits(p, count - i, count - i), fraction);
        expr_id larger = beyond(p, d->whole[i - 1], true, rest);
        all = expr_or(p, expr_concat(p, lit(p, d->whole + i - 1, 1), all), larger);
    }
    expr_id longer = expr_concat(p, digits(p, count, EXPR_NO_MAX), fraction);
    return expr_or(p, all, expr_concat(p, expr_range(p, '1', '9'), longer));
}

static expr_id size_below(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    uint32_t count = (uint32_t)strlen(d->whole);
    expr_id all = fraction_below(p, d, exclusive), fraction = any_fraction(p);
    for (uint32_t i = count; i > 0; i--) {
        expr_id rest = expr_concat(p, digits(p, count - i, count - i), fraction);
        expr_id smaller = beyond(p, d->whole[i - 1], false, rest);
        if (i == 1 && count > 1 && d->whole[0] > '1')
            smaller = expr_concat(p, expr_range(p, '1', (uint8_t)(d->whole[0] - 1)), rest);
        else if (i == 1 && count > 1)
            smaller = EXPR_NONE;
        all = expr_or(p, expr_concat(p, lit(p, d->whole + i - 1, 1), all), smaller);
    }
    if (count == 1) return all;
    expr_id shorter = expr_concat(p, expr_range(p, '1', '9'), digits(p, 0, count - 2));
    shorter = expr_or(p, shorter, lit(p, "0", 1));
    return expr_or(p, all, expr_concat(p, shorter, fraction));
}

static expr_id unsigned_any(struct expr_pool *p, expr_id fraction) {
    expr_id many = expr_concat(p, expr_range(p, '1', '9'), digits(p, 0, EXPR_NO_MAX));
    return expr_concat(p, expr_or(p, lit(p, "0", 1), many), fraction);
}

static expr_id minus(struct expr_pool *p, expr_id e) { return expr_concat(p, lit(p, "-", 1), e); }

expr_id decimal_expr(struct expr_pool *p, const struct decimal *d) {
    char text[2 * DECIMAL_DIGITS_MAX + 2];
    const bool has_sign = d->negative && !is_zero(d);
    int len = snprintf(text, sizeof(text), "%s%s%s%s", has_sign ? "-" : "", d->whole,
                       d->fraction[0] ? "." : "", d->fraction);
    return lit(p, text, (size_t)len);
}

expr_id decimal_at_least(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    if (d->negative)
        return expr_or(p, unsigned_any(p, any_fraction(p)), minus(p, size_below(p, d, exclusive)));
    expr_id e = size_above(p, d, exclusive);
    if (is_zero(d) && !exclusive) e = expr_or(p, e, minus(p, size_below(p, d, false)));
    return e;
}

expr_id decimal_at_most(struct expr_pool *p, const struct decimal *d, bool exclusive) {
    if (d->negative) return minus(p, size_above(p, d, exclusive));
    expr_id below = minus(p, unsigned_any(p, any_fraction(p)));
    if (is_zero(d) && exclusive) below = minus(p, size_above(p, d, true));
    return expr_or(p, size_below(p, d, exclusive), below);
}

expr_id decimal_multiple(struct expr_pool *p, const struct decimal *d) {
    char all[2 * DECIMAL_DIGITS_MAX];
    snprintf(all, sizeof(all), "%s%s", d->whole, d->fraction);
    uint64_t unit = 0;
    if (d->negative || is_zero(d) || strlen(d->fraction) > 9) return EXPR_NONE;
    if (!str_to_u64(str_of(all), &unit) || unit > 1000000) return EXPR_NONE;
    expr_id e = expr_multiple(p, (uint32_t)unit, (uint32_t)strlen(d->fraction));
    return expr_or(p, e, minus(p, e));
}

expr_id decimal_any(struct expr_pool *p, bool has_integers, bool has_fractions, uint32_t most) {
    expr_id zero = lit(p, "0", 1), nine = expr_range(p, '1', '9'), e = EXPR_NONE;
    expr_id natural = expr_concat(p, nine, digits(p, 0, most - 1));
    expr_id fraction = expr_concat(p, digits(p, 0, most - 1), nine);
    fraction = expr_concat(p, expr_or(p, zero, natural), expr_concat(p, lit(p, ".", 1), fraction));
    if (has_integers) e = expr_or(p, zero, expr_or(p, natural, minus(p, natural)));
    if (has_fractions) e = expr_or(p, e, expr_or(p, fraction, minus(p, fraction)));
    return e;
}
