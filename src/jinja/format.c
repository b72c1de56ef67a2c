/* jinja/format.c - see jinja/format.h; and the mini-language of str.format(). */
#include "jinja/format.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/template.h"
#include "jinja/run.h"

enum {
    PRECISION_MAX = 1000,
    NUMBER_BYTES_MAX = 1400, /* the largest double with PRECISION_MAX decimals */
    FIELD_NESTING_MAX = 2,
};

struct format_spec jinja_format_spec_default(void) {
    return (struct format_spec){.fill = STR(" "), .sign = '-', .precision = -1};
}

/* ------------------------------------------------------------------ padding */

static enum status put_fill(struct run *r, struct str fill, int64_t count) {
    TRY(jinja_run_steps(r, (uint64_t)count / 16));
    for (int64_t i = 0; i < count; i++) buf_put_str(&r->work, fill);
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

static enum status put_padded(struct run *r, struct str prefix, struct str body,
                              const struct format_spec *spec, char align) {
    int64_t missing = spec->width - (int64_t)(utf8_count(prefix) + utf8_count(body));
    int64_t left = 0, middle = 0;
    if (missing < 0) missing = 0;
    if ((uint64_t)missing > r->limits->memory_max) return jinja_run_full(r);
    if (align == '>') left = missing;
    if (align == '^') left = missing / 2;
    if (align == '=') middle = missing;
    TRY(put_fill(r, spec->fill, left));
    buf_put_str(&r->work, prefix);
    TRY(put_fill(r, spec->fill, middle));
    buf_put_str(&r->work, body);
    return put_fill(r, spec->fill, missing - left - middle);
}

enum status jinja_format_text(struct run *r, struct str s, const struct format_spec *spec) {
    struct text text = {.bytes = s, .chars = CHARS_UNKNOWN};
    if (spec->precision >= 0 && spec->precision < jinja_text_chars(&text))
        s = str_take(s, jinja_text_offset(&text, spec->precision));
    return put_padded(r, STR(""), s, spec, spec->align ? spec->align : '<');
}

enum status jinja_format_char(struct run *r, int64_t code, const struct format_spec *spec) {
    char bytes[4];
    bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (code < 0 || code > 0x10FFFF || is_surrogate)
        return jinja_run_fail(r, "%%c argument is not a character");
    struct str s = {bytes, utf8_encode((uint32_t)code, bytes)};
    return put_padded(r, STR(""), s, spec, spec->align ? spec->align : '<');
}

/* ------------------------------------------------------------------ numbers */

/* Separators between groups of digits, and leading zeros up to the width. */
static struct str group_digits(struct str digits, const struct format_spec *spec, size_t others,
                               char out[NUMBER_BYTES_MAX * 3]) {
    size_t size =
        spec->type == 'b' || spec->type == 'o' || spec->type == 'x' || spec->type == 'X' ? 4 : 3;
    size_t whole = 0;
    while (whole < digits.len && isxdigit((unsigned char)digits.ptr[whole])) whole++;
    if (size == 3)
        for (whole = 0; whole < digits.len && isdigit((unsigned char)digits.ptr[whole]);) whole++;
    size_t wanted = whole, tail = digits.len - whole;
    bool zero_fill = spec->align == '=' && str_is(spec->fill, "0");
    while (zero_fill && wanted && wanted < NUMBER_BYTES_MAX &&
           wanted + (wanted - 1) / size + tail + others < (size_t)spec->width)
        wanted++;
    size_t len = 0;
    for (size_t i = 0; i < wanted; i++) {
        size_t left = wanted - i;
        out[len++] = left > whole ? '0' : digits.ptr[whole - left];
        if (left > 1 && (left - 1) % size == 0) out[len++] = spec->grouping;
    }
    memcpy(out + len, digits.ptr + whole, tail);
    return (struct str){out, len + tail};
}

static enum status put_number(struct run *r, bool is_negative, const char *base_prefix,
                              struct str digits, const struct format_spec *spec) {
    char prefix[8], grouped[NUMBER_BYTES_MAX * 3];
    char sign[2] = {is_negative ? '-' : spec->sign, 0};
    if (!is_negative && spec->sign == '-') sign[0] = 0;
    snprintf(prefix, sizeof(prefix), "%s%s", sign, base_prefix);
    if (spec->grouping) digits = group_digits(digits, spec, strlen(prefix), grouped);
    return put_padded(r, str_of(prefix), digits, spec, spec->align ? spec->align : '>');
}

static size_t digits_of(uint64_t number, uint32_t base, bool upper, char out[64]) {
    const char *names = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[64];
    size_t len = 0;
    do {
        reversed[len++] = names[number % base];
        number /= base;
    } while (number);
    for (size_t i = 0; i < len; i++) out[i] = reversed[len - 1 - i];
    return len;
}

enum status jinja_format_int(struct run *r, int64_t number, const struct format_spec *spec,
                             int64_t digits_min) {
    char digits[NUMBER_BYTES_MAX], raw[64];
    char type = spec->type;
    uint32_t base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    char prefix[3] = {'0', type, 0};
    if (!spec->is_alternate || base == 10) prefix[0] = 0;
    if (digits_min > PRECISION_MAX) return jinja_run_fail(r, "a precision over %d", PRECISION_MAX);
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t len = digits_of(magnitude, base, type == 'X', raw);
    size_t zeros = digits_min > (int64_t)len ? (size_t)digits_min - len : 0;
    memset(digits, '0', zeros);
    memcpy(digits + zeros, raw, len);
    return put_number(r, number < 0, prefix, (struct str){digits, zeros + len}, spec);
}

/* Without a type but with a precision: as 'g', but it always looks like a float. */
static void print_general(double number, int precision, char out[NUMBER_BYTES_MAX]) {
    char probe[NUMBER_BYTES_MAX];
    int64_t exponent = 0;
    if (precision == 0) precision = 1;
    snprintf(probe, sizeof(probe), "%.*e", precision - 1, number);
    struct str tail = str_of(strchr(probe, 'e') ? strchr(probe, 'e') + 1 : "0");
    if (tail.ptr[0] == '+') tail = str_skip(tail, 1);
    str_to_i64(tail, &exponent);
    if (exponent == precision - 1 && precision > 1) {
        char *e = strchr(probe, 'e'), *end = e;
        while (end > probe && end[-1] == '0') end--;
        if (end > probe && end[-1] == '.') end--;
        snprintf(out, NUMBER_BYTES_MAX, "%.*s%s", (int)(end - probe), probe, e);
        return;
    }
    snprintf(out, NUMBER_BYTES_MAX, "%.*g", precision, number);
    size_t len = strlen(out);
    if (!strpbrk(out, ".en")) memcpy(out + len, ".0", 3);
}

/* The format has to be a literal for the compiler to check it. */
static void print_typed(double number, char type, int precision, bool alternate,
                        char out[NUMBER_BYTES_MAX]) {
    const size_t size = NUMBER_BYTES_MAX;
    switch (type) {
    case 'e':
        snprintf(out, size, alternate ? "%#.*e" : "%.*e", precision, number);
        break;
    case 'E':
        snprintf(out, size, alternate ? "%#.*E" : "%.*E", precision, number);
        break;
    case 'f':
        snprintf(out, size, alternate ? "%#.*f" : "%.*f", precision, number);
        break;
    case 'F':
        snprintf(out, size, alternate ? "%#.*F" : "%.*F", precision, number);
        break;
    case 'G':
        snprintf(out, size, alternate ? "%#.*G" : "%.*G", precision, number);
        break;
    default:
        snprintf(out, size, alternate ? "%#.*g" : "%.*g", precision, number);
        break;
    }
}

static void print_float(double number, const struct format_spec *spec, char out[NUMBER_BYTES_MAX]) {
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    char type = spec->type == 'n' ? 'g' : spec->type;
    if (type == '%') {
        snprintf(out, NUMBER_BYTES_MAX - 1, "%.*f", precision, number * 100);
        size_t len = strlen(out);
        memcpy(out + len, "%", 2);
    } else if (type) {
        print_typed(number, type, precision, spec->is_alternate, out);
    } else {
        print_general(number, precision, out);
    }
}

enum status jinja_format_float(struct run *r, double number, const struct format_spec *spec) {
    char digits[NUMBER_BYTES_MAX];
    if (spec->precision > PRECISION_MAX)
        return jinja_run_fail(r, "a precision over %d", PRECISION_MAX);
    bool is_negative = signbit(number) && !isnan(number);
    double magnitude = fabs(number);
    if (!spec->type && spec->precision < 0) {
        size_t mark = r->work.len;
        struct value text;
        jinja_put_float(&r->work, magnitude);
        TRY(jinja_run_take(r, mark, &text));
        return put_number(r, is_negative, "", jinja_value_str(text), spec);
    }
    print_float(magnitude, spec, digits);
    return put_number(r, is_negative, "", str_of(digits), spec);
}

/* ------------------------------------------------------------------ "{:...}" */

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static size_t take_number(struct str *s, int64_t *out) {
    size_t len = 0;
    int64_t number = 0;
    for (; len < s->len && isdigit((unsigned char)s->ptr[len]); len++)
        if (number < INT32_MAX) number = number * 10 + (s->ptr[len] - '0');
    if (len) *out = number;
    *s = str_skip(*s, len);
    return len;
}

static bool take_char(struct str *s, char c) {
    if (!s->len || s->ptr[0] != c) return false;
    *s = str_skip(*s, 1);
    return true;
}

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static enum status parse_spec(struct run *r, struct str s, struct format_spec *spec) {
    uint32_t code;
    *spec = jinja_format_spec_default();
    bool has_fill = false;
    size_t first = s.len ? utf8_decode(s, &code) : 0;
    if (s.len > first && is_align(s.ptr[first])) {
        spec->fill = str_take(s, first);
        spec->align = s.ptr[first];
        has_fill = true;
        s = str_skip(s, first + 1);
    } else if (s.len && is_align(s.ptr[0])) {
        spec->align = s.ptr[0];
        s = str_skip(s, 1);
    }
    if (s.len && (s.ptr[0] == '+' || s.ptr[0] == '-' || s.ptr[0] == ' ')) {
        spec->sign = s.ptr[0];
        s = str_skip(s, 1);
    }
    take_char(&s, 'z');
    spec->is_alternate = take_char(&s, '#');
    if (take_char(&s, '0') && !has_fill) {
        spec->fill = STR("0");
        if (!spec->align) spec->align = '=';
    }
    take_number(&s, &spec->width);
    if (take_char(&s, ',')) spec->grouping = ',';
    if (take_char(&s, '_')) spec->grouping = '_';
    if (take_char(&s, '.') && !take_number(&s, &spec->precision))
        return jinja_run_fail(r, "format specifier missing precision");
    if (s.len) {
        spec->type = s.ptr[0];
        s = str_skip(s, 1);
    }
    return s.len ? jinja_run_fail(r, "invalid format specifier") : ST_OK;
}

static bool is_one_of(char type, const char *types) {
    return type == 0 || strchr(types, type) != NULL;
}

static enum status format_number(struct run *r, struct value v, struct format_spec *spec) {
    int64_t whole;
    double real = 0;
    bool is_int = jinja_value_as_int(v, &whole);
    jinja_value_as_float(v, &real);
    if (spec->type == '%' || !is_int || (spec->type && strchr("eEfFgG", spec->type))) {
        if (!is_one_of(spec->type, "eEfFgGn%"))
            return jinja_run_fail(r, "unknown format code '%c' for object of type 'float'",
                                  spec->type);
        return jinja_format_float(r, real, spec);
    }
    if (!is_one_of(spec->type, "bcdoxXn"))
        return jinja_run_fail(r, "unknown format code '%c' for object of type 'int'", spec->type);
    if (spec->precision >= 0)
        return jinja_run_fail(r, "precision not allowed in integer format specifier");
    if (spec->type == 'c') return jinja_format_char(r, whole, spec);
    if (spec->type == 'n' || spec->type == 0) spec->type = 'd';
    return jinja_format_int(r, whole, spec, 0);
}

enum status jinja_format_value(struct run *r, struct value v, struct str spec_text) {
    struct format_spec spec;
    if (!spec_text.len) return jinja_put_str(r, v);
    if (!jinja_value_is_number(v) && v.type != V_TEXT)
        return jinja_run_fail(r, "unsupported format string passed to %s.__format__",
                              jinja_value_type_name(v));
    TRY(parse_spec(r, spec_text, &spec));
    if (v.type != V_TEXT) return format_number(r, v, &spec);
    if (spec.align == '=' && str_is(spec.fill, "0")) spec.align = '<';
    bool is_allowed = is_one_of(spec.type, "s") && spec.sign == '-' && !spec.grouping &&
                      !spec.is_alternate && spec.align != '=';
    if (!is_allowed) return jinja_run_fail(r, "bad format specifier for object of type 'str'");
    return jinja_format_text(r, jinja_value_str(v), &spec);
}

/* ------------------------------------------------------------------ "{}" */

struct fields {
    struct run *r;
    const struct args *args;
    int64_t next;      /* the next automatic number; -1 once numbers are given */
    bool is_automatic; /* whether one was used */
    bool markup;
};

static enum status put_template(struct fields *f, struct str s, int nesting);

static enum status numbered(struct fields *f, struct str name, int64_t *idx) {
    if (name.len == 0) {
        if (f->next < 0)
            return jinja_run_fail(f->r, "cannot switch from manual to automatic field numbering");
        f->is_automatic = true;
        *idx = f->next++;
        return ST_OK;
    }
    if (f->is_automatic)
        return jinja_run_fail(f->r, "cannot switch from automatic to manual field numbering");
    f->next = -1;
    return str_to_i64(name, idx) ? ST_OK
                                 : jinja_run_fail(f->r, "too many digits in a field number");
}

static enum status first_value(struct fields *f, struct str name, struct value *out) {
    bool is_number = true;
    for (size_t i = 0; i < name.len; i++)
        is_number = is_number && isdigit((unsigned char)name.ptr[i]);
    if (is_number) {
        int64_t idx;
        TRY(numbered(f, name, &idx));
        if (idx >= (int64_t)f->args->positional_count)
            return jinja_run_fail(f->r, "replacement index %lld out of range for positional args",
                                  (long long)idx);
        *out = f->args->positional[idx];
        return ST_OK;
    }
    for (size_t i = 0; i < f->args->keyword_count; i++) {
        if (!str_eq(f->args->keyword_names[i], name)) continue;
        *out = f->args->keyword_values[i];
        return ST_OK;
    }
    return jinja_run_fail(f->r, "format() misses the argument '%.*s'", STR_ARG(name));
}

/* name, then any number of .attribute and [element] */
static enum status field_value(struct fields *f, struct str path, struct value *out) {
    size_t len = 0;
    while (len < path.len && path.ptr[len] != '.' && path.ptr[len] != '[') len++;
    TRY(first_value(f, str_take(path, len), out));
    path = str_skip(path, len);
    while (path.len) {
        bool is_item = path.ptr[0] == '[';
        struct value key;
        int64_t number;
        path = str_skip(path, 1);
        for (len = 0; len < path.len; len++)
            if (is_item ? path.ptr[len] == ']' : path.ptr[len] == '.' || path.ptr[len] == '[')
                break;
        if (len == 0) return jinja_run_fail(f->r, "empty attribute in format string");
        if (is_item && len == path.len) return jinja_run_fail(f->r, "missing ']' in format string");
        TRY(jinja_value_text(f->r, str_take(path, len), &key));
        if (is_item && isdigit((unsigned char)path.ptr[0]) &&
            str_to_i64(jinja_value_str(key), &number))
            key = jinja_value_int(number);
        TRY(is_item ? jinja_get_item(f->r, *out, key, out)
                    : jinja_get_attribute(f->r, *out, key, out));
        path = str_skip(path, len + is_item);
        bool is_bad = is_item && path.len && path.ptr[0] != '.' && path.ptr[0] != '[';
        if (is_bad) return jinja_run_fail(f->r, "only '.' or '[' may follow ']' in format string");
    }
    return ST_OK;
}

static enum status convert(struct run *r, char conversion, struct value *v) {
    size_t mark = r->work.len;
    if (conversion == 's') {
        TRY(jinja_put_str(r, *v));
    } else if (conversion == 'r') {
        TRY(jinja_put_repr(r, *v));
    } else {
        return jinja_run_fail(r, "unknown conversion '!%c' in format string", conversion);
    }
    return jinja_run_take(r, mark, v);
}

/* The text between the braces: path, "!conversion", ":spec". */
static enum status put_field(struct fields *f, struct str field, int nesting) {
    struct run *r = f->r;
    size_t len = 0;
    int brackets = 0;
    for (; len < field.len; len++) {
        brackets += (field.ptr[len] == '[') - (field.ptr[len] == ']');
        if (brackets <= 0 && (field.ptr[len] == '!' || field.ptr[len] == ':')) break;
    }
    struct value v, spec;
    TRY(field_value(f, str_take(field, len), &v));
    field = str_skip(field, len);
    if (take_char(&field, '!')) {
        if (!field.len)
            return jinja_run_fail(r, "end of format string while looking for conversion");
        TRY(convert(r, field.ptr[0], &v));
        field = str_skip(field, 1);
        if (field.len && field.ptr[0] != ':')
            return jinja_run_fail(r, "expected ':' after conversion specifier");
    }
    take_char(&field, ':');
    size_t mark = r->work.len;
    TRY(put_template(f, field, nesting + 1));
    TRY(jinja_run_take(r, mark, &spec));
    if (!f->markup || nesting) return jinja_format_value(r, v, jinja_value_str(spec));
    if (v.type != V_TEXT || !v.text->markup) {
        TRY(jinja_format_value(r, v, jinja_value_str(spec)));
        TRY(jinja_run_take(r, mark, &v));
    }
    return jinja_put_escaped(r, v);
}

/* Where the field that starts at s[0] ends: the closing brace; s.len if there is none. */
static size_t field_end(struct str s) {
    int depth = 1;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '{') depth++;
        if (s.ptr[i] == '}' && --depth == 0) return i;
    }
    return s.len;
}

static enum status put_template(struct fields *f, struct str s, int nesting) {
    if (nesting > FIELD_NESTING_MAX) return jinja_run_fail(f->r, "max string recursion exceeded");
    while (s.len) {
        char c = s.ptr[0];
        bool is_doubled = (c == '{' || c == '}') && s.len > 1 && s.ptr[1] == c && !nesting;
        if ((c != '{' && c != '}') || is_doubled) {
            buf_put_char(&f->r->work, c);
            s = str_skip(s, is_doubled ? 2 : 1);
            continue;
        }
        if (c == '}') return jinja_run_fail(f->r, "single '}' encountered in format string");
        s = str_skip(s, 1);
        size_t end = field_end(s);
        if (end == s.len) return jinja_run_fail(f->r, "expected '}' before end of string");
        TRY(jinja_run_steps(f->r, 1));
        TRY(put_field(f, str_take(s, end), nesting));
        s = str_skip(s, end + 1);
    }
    return buf_status(&f->r->work) == ST_OK ? ST_OK : jinja_run_full(f->r);
}

enum status jinja_format_braces(struct run *r, struct value format, const struct args *args,
                                struct value *out) {
    struct fields f = {.r = r, .args = args, .markup = format.text->markup};
    size_t mark = r->work.len;
    TRY(put_template(&f, jinja_value_str(format), 0));
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = f.markup;
    return ST_OK;
}
