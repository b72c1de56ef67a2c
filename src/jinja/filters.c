/* jinja/filters.c - the list of filters, and those about numbers and attributes. */
#include "jinja/filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/char.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ parsing numbers */

/* Underscores between digits are allowed. `out` gets the text without them. */
static bool drop_underscores(struct str s, char *out, size_t cap, size_t *len) {
    *len = 0;
    for (size_t i = 0; i < s.len; i++) {
        bool is_last = i + 1 == s.len;
        if (s.ptr[i] == '_') {
            if (i == 0 || is_last || s.ptr[i - 1] == '_') return false;
            continue;
        }
        if (*len + 1 >= cap) return false;
        out[(*len)++] = s.ptr[i];
    }
    out[*len] = 0;
    return true;
}

static bool is_word(struct str s, const char *word) {
    if (s.len != strlen(word)) return false;
    for (size_t i = 0; i < s.len; i++)
        if ((s.ptr[i] | 0x20) != word[i]) return false;
    return true;
}

/* Past the range of a double, Python gives infinity or zero, and so does the C library. */
static bool read_decimal(const char *text, double *out) {
    size_t len = strspn(text, "0123456789.eE+-");
    char *end;
    if (!len || text[len] || !strchr("0123456789.", text[0])) return false;
    *out = strtod(text, &end);
    return *end == 0;
}

bool jinja_parse_python_float(struct str s, double *out) {
    char text[400];
    size_t len;
    s = jinja_str_strip_space(s, true, true);
    if (!drop_underscores(s, text, sizeof(text), &len) || !len) return false;
    struct str body = {text, len};
    bool is_negative = text[0] == '-';
    if (text[0] == '-' || text[0] == '+') body = str_skip(body, 1);
    if (is_word(body, "inf") || is_word(body, "infinity"))
        *out = INFINITY;
    else if (is_word(body, "nan"))
        *out = NAN;
    else if (!read_decimal(body.ptr, out))
        return false;
    if (is_negative) *out = -*out;
    return true;
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

/* "0x", "0o", "0b" in front where the base allows it; base 0 takes the base from it. */
static struct str skip_prefix(struct str s, int64_t *base) {
    int64_t named = 0;
    if (s.len > 2 && s.ptr[0] == '0') {
        char c = (char)(s.ptr[1] | 0x20);
        named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    }
    if (named && (*base == 0 || *base == named)) {
        *base = named;
        s = str_skip(s, 2);
        if (s.len && s.ptr[0] == '_') s = str_skip(s, 1);
    }
    if (*base == 0) *base = 10;
    return s;
}

bool jinja_parse_python_int(struct str s, int64_t base, int64_t *out, bool *too_big) {
    char text[400];
    size_t len;
    *too_big = false;
    s = jinja_str_strip_space(s, true, true);
    bool is_negative = s.len && s.ptr[0] == '-';
    if (s.len && (s.ptr[0] == '-' || s.ptr[0] == '+')) s = str_skip(s, 1);
    s = skip_prefix(s, &base);
    if (!drop_underscores(s, text, sizeof(text), &len) || !len) return false;
    int64_t number = 0;
    for (size_t i = 0; i < len; i++) {
        int64_t digit = digit_value(text[i]);
        if (digit >= base) return false;
        if (__builtin_mul_overflow(number, base, &number) ||
            __builtin_add_overflow(number, is_negative ? -digit : digit, &number))
            *too_big = true;
    }
    *out = number;
    return true;
}

/* ------------------------------------------------------------------ numbers */

static enum status filter_abs(struct run *r, struct call *call, struct value *out) {
    int64_t i;
    if (call->self.type == V_FLOAT) {
        *out = jinja_value_float(fabs(call->self.real));
        return ST_OK;
    }
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (!jinja_value_as_int(call->self, &i))
        return jinja_run_fail(r, "bad operand type for abs(): '%s'",
                              jinja_value_type_name(call->self));
    if (i == INT64_MIN) return jinja_run_fail(r, "integer result does not fit in 64 bits");
    *out = jinja_value_int(i < 0 ? -i : i);
    return ST_OK;
}

static enum status int_of_float(struct run *r, double real, struct value fallback,
                                struct value *out) {
    *out = fallback;
    if (!isfinite(real)) return ST_OK;
    if (fabs(real) >= 0x1p63) return jinja_run_fail(r, "integer result does not fit in 64 bits");
    *out = jinja_value_int((int64_t)real);
    return ST_OK;
}

static enum status filter_int(struct run *r, struct call *call, struct value *out) {
    struct value v = call->self;
    struct value fallback = call->argv[0].type == V_MISSING ? jinja_value_int(0) : call->argv[0];
    int64_t base, number;
    double real;
    bool too_big;
    TRY(jinja_arg_int(r, call, 1, 10, &base));
    *out = fallback;
    if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
    if (jinja_value_as_int(v, &number)) {
        *out = jinja_value_int(number);
        return ST_OK;
    }
    if (v.type == V_FLOAT) {
        if (isinf(v.real)) return jinja_run_fail(r, "cannot convert float infinity to integer");
        return int_of_float(r, v.real, fallback, out);
    }
    if (v.type != V_TEXT) return ST_OK;
    TRY(jinja_run_steps(r, jinja_value_str(v).len / 64));
    bool base_is_right = base == 0 || (base >= 2 && base <= 36);
    if (base_is_right && jinja_parse_python_int(jinja_value_str(v), base, &number, &too_big)) {
        if (too_big) return jinja_run_fail(r, "an integer does not fit in 64 bits");
        *out = jinja_value_int(number);
        return ST_OK;
    }
    return jinja_parse_python_float(jinja_value_str(v), &real)
               ? int_of_float(r, real, fallback, out)
               : ST_OK;
}

static enum status filter_float(struct run *r, struct call *call, struct value *out) {
    double real;
    *out = call->argv[0].type == V_MISSING ? jinja_value_float(0) : call->argv[0];
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (jinja_value_as_float(call->self, &real))
        *out = jinja_value_float(real);
    else if (call->self.type == V_TEXT &&
             jinja_parse_python_float(jinja_value_str(call->self), &real))
        *out = jinja_value_float(real);
    return ST_OK;
}

/* Half to even, on the exact decimal value of the number. */
static double round_common(double real, int64_t precision) {
    char text[400];
    double rounded = real;
    if (!isfinite(real) || precision > 22) return real;
    if (precision < -22) return copysign(0, real);
    if (precision >= 0) {
        snprintf(text, sizeof(text), "%.*f", (int)precision, real);
        str_to_f64(str_of(text), &rounded);
        return rounded;
    }
    double unit = pow(10, (double)-precision);
    return nearbyint(real / unit) * unit;
}

static int64_t round_int(int64_t number, int64_t precision) {
    if (precision >= 0) return number;
    if (precision < -18) return 0;
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; i++) unit *= 10;
    int64_t rest = number % unit, whole = number - rest;
    int64_t twice = rest < 0 ? -rest : rest;
    bool is_odd = (number / unit) % 2 != 0;
    bool away = twice > unit / 2 || (twice == unit / 2 && is_odd);
    if (!away) return whole;
    return rest < 0 ? whole - unit : whole + unit;
}

static enum status filter_round(struct run *r, struct call *call, struct value *out) {
    struct str method;
    int64_t precision, whole;
    double real;
    TRY(jinja_arg_int(r, call, 0, 0, &precision));
    TRY(jinja_arg_text(r, call, 1, STR("common"), &method));
    bool is_common = str_is(method, "common"), is_ceil = str_is(method, "ceil");
    if (!is_common && !is_ceil && !str_is(method, "floor"))
        return jinja_run_fail(r, "method must be common, ceil or floor");
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (!jinja_value_as_float(call->self, &real))
        return jinja_run_fail(r, "type %s cannot be rounded", jinja_value_type_name(call->self));
    if (is_common && jinja_value_as_int(call->self, &whole)) {
        *out = jinja_value_int(round_int(whole, precision));
        return ST_OK;
    }
    if (is_common) {
        *out = jinja_value_float(round_common(real, precision));
        return ST_OK;
    }
    double unit = pow(10, (double)precision);
    double scaled = is_ceil ? ceil(real * unit) : floor(real * unit);
    if (!isfinite(scaled)) return jinja_run_fail(r, "cannot round an infinite number");
    *out = jinja_value_float(scaled == 0 ? 0 : scaled / unit); /* never a negative zero */
    return ST_OK;
}

/* ------------------------------------------------------------------ anything */

static enum status filter_attr(struct run *r, struct call *call, struct value *out) {
    struct str name;
    TRY(jinja_arg_text(r, call, 0, STR(""), &name));
    return jinja_get_own_attribute(r, call->self, name, out);
}

static enum status filter_default(struct run *r, struct call *call, struct value *out) {
    bool takes_false = jinja_arg_bool(call, 1, false);
    bool is_absent =
        call->self.type == V_UNDEFINED || (takes_false && !jinja_value_is_true(call->self));
    *out = call->self;
    if (!is_absent) return ST_OK;
    *out = call->argv[0];
    return out->type == V_MISSING ? jinja_value_text(r, STR(""), out) : ST_OK;
}

static enum status refuse(struct run *r, struct call *call, struct value *out) {
    (void)call;
    *out = jinja_value_none();
    return jinja_run_fail(r, "the filters pprint, random and urlize are not available");
}

static const struct builtin filters[] = {
    {"abs", "", 0, filter_abs},
    {"attr", "name", 1, filter_attr},
    {"batch", "linecount fill_with", 1, jinja_filter_batch},
    {"capitalize", "", 0, jinja_filter_capitalize},
    {"center", "width", 0, jinja_filter_center},
    {"count", "", 0, jinja_filter_length},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"dictsort", "case_sensitive by reverse", 0, jinja_filter_dictsort},
    {"e", "", 0, jinja_filter_escape},
    {"escape", "", 0, jinja_filter_escape},
    {"filesizeformat", "binary", 0, jinja_filter_filesizeformat},
    {"first", "", 0, jinja_filter_first},
    {"float", "default", 0, filter_float},
    {"forceescape", "", 0, jinja_filter_forceescape},
    {"format", "*", 0, jinja_filter_format},
    {"groupby", "attribute default case_sensitive", 1, jinja_filter_groupby},
    {"indent", "width first blank", 0, jinja_filter_indent},
    {"int", "default base", 0, filter_int},
    {"items", "", 0, jinja_filter_items},
    {"join", "d attribute", 0, jinja_filter_join},
    {"last", "", 0, jinja_filter_last},
    {"length", "", 0, jinja_filter_length},
    {"list", "", 0, jinja_filter_list},
    {"lower", "", 0, jinja_filter_lower},
    {"map", "*", 0, jinja_filter_map},
    {"max", "case_sensitive attribute", 0, jinja_filter_max},
    {"min", "case_sensitive attribute", 0, jinja_filter_min},
    {"pprint", "*", 0, refuse},
    {"random", "*", 0, refuse},
    {"reject", "*", 0, jinja_filter_reject},
    {"rejectattr", "*", 0, jinja_filter_rejectattr},
    {"replace", "old new count", 2, jinja_filter_replace},
    {"reverse", "", 0, jinja_filter_reverse},
    {"round", "precision method", 0, filter_round},
    {"safe", "", 0, jinja_filter_safe},
    {"select", "*", 0, jinja_filter_select},
    {"selectattr", "*", 0, jinja_filter_selectattr},
    {"slice", "slices fill_with", 1, jinja_filter_slice},
    {"sort", "reverse case_sensitive attribute", 0, jinja_filter_sort},
    {"string", "", 0, jinja_filter_string},
    {"striptags", "", 0, jinja_filter_striptags},
    {"sum", "attribute start", 0, jinja_filter_sum},
    {"title", "", 0, jinja_filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, jinja_to_json},
    {"trim", "chars", 0, jinja_filter_trim},
    {"truncate", "length killwords end leeway", 0, jinja_filter_truncate},
    {"unique", "case_sensitive attribute", 0, jinja_filter_unique},
    {"upper", "", 0, jinja_filter_upper},
    {"urlencode", "", 0, jinja_filter_urlencode},
    {"urlize", "*", 0, refuse},
    {"wordcount", "", 0, jinja_filter_wordcount},
    {"wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, jinja_filter_wordwrap},
    {"xmlattr", "autospace", 0, jinja_filter_xmlattr},
};

const struct builtin *jinja_filter_find(struct str name) {
    return jinja_builtin_find(filters, sizeof(filters) / sizeof(filters[0]), name);
}
