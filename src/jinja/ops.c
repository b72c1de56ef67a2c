/* jinja/ops.c - the arithmetic operators, with Python's meaning of each.
 *
 * Integers are 64 bits wide; a result that does not fit is an error, where Python has bigger ones.
 */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "jinja/run.h"
#include "jinja/value.h"

static const char *op_sign(enum token_kind op) {
    switch (op) {
    case T_ADD:
        return "+";
    case T_SUB:
        return "-";
    case T_MUL:
        return "*";
    case T_DIV:
        return "/";
    case T_FLOORDIV:
        return "//";
    case T_MOD:
        return "%";
    default:
        return "**";
    }
}

static enum status fail_types(struct run *r, enum token_kind op, struct value a, struct value b) {
    return jinja_run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_sign(op),
                          jinja_value_type_name(a), jinja_value_type_name(b));
}

static enum status fail_overflow(struct run *r) {
    return jinja_run_fail(r, "integer result does not fit in 64 bits");
}

/* ------------------------------------------------------------------ numbers */

static enum status int_pow(struct run *r, int64_t base, int64_t exponent, int64_t *out) {
    int64_t result = 1;
    bool overflow = false;
    while (exponent > 0) {
        if (exponent & 1) overflow = __builtin_mul_overflow(result, base, &result) || overflow;
        exponent >>= 1;
        if (overflow) return fail_overflow(r);
        if (exponent && __builtin_mul_overflow(base, base, &base)) return fail_overflow(r);
    }
    *out = result;
    return ST_OK;
}

static enum status int_divide(struct run *r, enum token_kind op, int64_t a, int64_t b,
                              struct value *out) {
    if (b == 0) return jinja_run_fail(r, "division by zero");
    if (op == T_DIV) {
        *out = jinja_value_float((double)((long double)a / (long double)b));
        return ST_OK;
    }
    if (b == -1) { /* the one quotient that can overflow */
        if (op == T_FLOORDIV && a == INT64_MIN) return fail_overflow(r);
        *out = jinja_value_int(op == T_FLOORDIV ? -a : 0);
        return ST_OK;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = jinja_value_int(op == T_FLOORDIV ? quotient : rest);
    return ST_OK;
}

static enum status float_pow(struct run *r, double a, double b, struct value *out) {
    if (a == 0 && b < 0) return jinja_run_fail(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b) && isfinite(a) && isfinite(b))
        return jinja_run_fail(r, "a complex number is not supported");
    double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b))
        return jinja_run_fail(r, "numerical result out of range");
    *out = jinja_value_float(result);
    return ST_OK;
}

static enum status int_binary(struct run *r, enum token_kind op, int64_t a, int64_t b,
                              struct value *out) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case T_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case T_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case T_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case T_POW:
        if (b < 0) return float_pow(r, (double)a, (double)b, out);
        TRY(int_pow(r, a, b, &result));
        break;
    default:
        return int_divide(r, op, a, b, out);
    }
    if (overflow) return fail_overflow(r);
    *out = jinja_value_int(result);
    return ST_OK;
}

/* The remainder takes the divisor's sign. */
static double float_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

static double float_floordiv(double a, double b) {
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static enum status float_binary(struct run *r, enum token_kind op, double a, double b,
                                struct value *out) {
    bool divides = op == T_DIV || op == T_FLOORDIV || op == T_MOD;
    if (divides && b == 0) return jinja_run_fail(r, "float division by zero");
    switch (op) {
    case T_ADD:
        *out = jinja_value_float(a + b);
        return ST_OK;
    case T_SUB:
        *out = jinja_value_float(a - b);
        return ST_OK;
    case T_MUL:
        *out = jinja_value_float(a * b);
        return ST_OK;
    case T_DIV:
        *out = jinja_value_float(a / b);
        return ST_OK;
    case T_FLOORDIV:
        *out = jinja_value_float(float_floordiv(a, b));
        return ST_OK;
    case T_MOD:
        *out = jinja_value_float(float_mod(a, b));
        return ST_OK;
    default:
        return float_pow(r, a, b, out);
    }
}

/* ------------------------------------------------------------------ texts and lists */

static enum status join_two(struct run *r, struct str a, struct str b, struct value *out) {
    char *joined = jinja_run_alloc(r, a.len + b.len, 1);
    if (!joined) return jinja_run_full(r);
    if (a.len) memcpy(joined, a.ptr, a.len);
    if (b.len) memcpy(joined + a.len, b.ptr, b.len);
    return jinja_value_text(r, (struct str){joined, a.len + b.len}, out);
}

/* Beside a text that is marked as safe HTML, one that is not gets escaped. */
static enum status add_texts(struct run *r, struct value a, struct value b, struct value *out) {
    bool markup = a.text->markup || b.text->markup;
    if (markup) {
        TRY(jinja_value_escaped(r, a, &a));
        TRY(jinja_value_escaped(r, b, &b));
    }
    TRY(join_two(r, jinja_value_str(a), jinja_value_str(b), out));
    out->text->markup = markup;
    return ST_OK;
}

static enum status add_lists(struct run *r, struct value a, struct value b, struct value *out) {
    size_t count = a.list->count + b.list->count;
    TRY(jinja_run_steps(r, count / 16));
    TRY(jinja_value_of_list(r, count, out));
    out->type = a.type;
    if (a.list->count)
        memcpy(out->list->items, a.list->items, a.list->count * sizeof(struct value));
    if (b.list->count)
        memcpy(out->list->items + a.list->count, b.list->items,
               b.list->count * sizeof(struct value));
    out->list->count = count;
    return ST_OK;
}

static enum status repeat_text(struct run *r, struct value v, int64_t times, struct value *out) {
    struct str s = jinja_value_str(v);
    size_t total;
    if (times < 0) times = 0;
    if (!size_mul(s.len, (size_t)times, &total)) return jinja_run_full(r);
    char *text = jinja_run_alloc(r, total, 1);
    if (!text) return jinja_run_full(r);
    for (size_t at = 0; at < total; at += s.len) memcpy(text + at, s.ptr, s.len);
    TRY(jinja_value_text(r, (struct str){text, total}, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

static enum status repeat_list(struct run *r, struct value v, int64_t times, struct value *out) {
    size_t total;
    if (times < 0) times = 0;
    if (!size_mul(v.list->count, (size_t)times, &total)) return jinja_run_full(r);
    TRY(jinja_run_steps(r, total / 16));
    TRY(jinja_value_of_list(r, total, out));
    out->type = v.type;
    for (size_t i = 0; i < total; i++) out->list->items[i] = v.list->items[i % v.list->count];
    out->list->count = total;
    return ST_OK;
}

static enum status repeat(struct run *r, struct value v, struct value count, struct value *out) {
    int64_t times = 0;
    if (!jinja_value_as_int(count, &times)) return fail_types(r, T_MUL, v, count);
    return v.type == V_TEXT ? repeat_text(r, v, times, out) : repeat_list(r, v, times, out);
}

static bool is_repeatable(struct value v) {
    return v.type == V_TEXT || v.type == V_LIST || v.type == V_TUPLE;
}

/* ------------------------------------------------------------------ entry points */

enum status jinja_op_binary(struct run *r, enum token_kind op, struct value a, struct value b,
                            struct value *out) {
    int64_t x, y;
    double p, q;
    if (op == T_MOD && a.type == V_TEXT) return jinja_op_percent(r, a, b, out);
    if (a.type == V_UNDEFINED) return jinja_run_fail_undefined(r, a);
    if (b.type == V_UNDEFINED) return jinja_run_fail_undefined(r, b);
    if (jinja_value_as_int(a, &x) && jinja_value_as_int(b, &y)) return int_binary(r, op, x, y, out);
    if (jinja_value_as_float(a, &p) && jinja_value_as_float(b, &q))
        return float_binary(r, op, p, q, out);
    if (op == T_ADD && a.type == V_TEXT && b.type == V_TEXT) return add_texts(r, a, b, out);
    bool are_lists = a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE);
    if (op == T_ADD && are_lists) return add_lists(r, a, b, out);
    if (op == T_MUL && is_repeatable(a)) return repeat(r, a, b, out);
    if (op == T_MUL && is_repeatable(b)) return repeat(r, b, a, out);
    return fail_types(r, op, a, b);
}

enum status jinja_op_unary(struct run *r, enum token_kind op, struct value a, struct value *out) {
    int64_t x;
    if (a.type == V_UNDEFINED) return jinja_run_fail_undefined(r, a);
    if (a.type == V_FLOAT) {
        *out = jinja_value_float(op == T_SUB ? -a.real : a.real);
        return ST_OK;
    }
    if (!jinja_value_as_int(a, &x))
        return jinja_run_fail(r, "bad operand type for unary %s: '%s'", op_sign(op),
                              jinja_value_type_name(a));
    if (op == T_SUB && x == INT64_MIN) return fail_overflow(r);
    *out = jinja_value_int(op == T_SUB ? -x : x);
    return ST_OK;
}
