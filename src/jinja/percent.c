/* jinja/percent.c - the % operator on texts: "%s has %d" % (name, count). */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/format.h"
#include "jinja/run.h"
#include "jinja/value.h"

struct percent {
    struct run *r;
    struct value args;
    size_t next; /* index in a tuple; for any other value 1 once it was used */
    bool markup;
};

static enum status next_arg(struct percent *p, struct value *out) {
    bool is_tuple = p->args.type == V_TUPLE;
    if (p->next >= (is_tuple ? p->args.list->count : 1))
        return jinja_run_fail(p->r, "not enough arguments for format string");
    *out = is_tuple ? p->args.list->items[p->next] : p->args;
    p->next++;
    return ST_OK;
}

/* "%(name)": the argument by name. `s` begins after the parenthesis. */
static enum status named_arg(struct percent *p, struct str *s, struct value *out) {
    size_t len = 0;
    int depth = 1;
    for (; len < s->len; len++) {
        depth += (s->ptr[len] == '(') - (s->ptr[len] == ')');
        if (!depth) break;
    }
    if (depth) return jinja_run_fail(p->r, "incomplete format key");
    if (p->args.type != V_DICT) return jinja_run_fail(p->r, "format requires a mapping");
    struct str name = str_take(*s, len);
    struct value *found;
    TRY(jinja_dict_find_str(p->r, p->args.dict, name, &found));
    if (!found) return jinja_run_fail(p->r, "format() misses the argument '%.*s'", STR_ARG(name));
    *s = str_skip(*s, len + 1);
    *out = *found;
    p->next = 1;
    return ST_OK;
}

/* A number, or '*' for the next argument. */
static enum status take_size(struct percent *p, struct str *s, int64_t *out) {
    if (s->len && s->ptr[0] == '*') {
        struct value v;
        TRY(next_arg(p, &v));
        *s = str_skip(*s, 1);
        return jinja_value_as_int(v, out) ? ST_OK : jinja_run_fail(p->r, "* wants int");
    }
    for (; s->len && isdigit((unsigned char)s->ptr[0]); *s = str_skip(*s, 1))
        if (*out < INT32_MAX) *out = *out * 10 + (s->ptr[0] - '0');
    return ST_OK;
}

static void take_flags(struct str *s, struct format_spec *spec) {
    bool left = false, zero = false;
    for (; s->len && strchr("-+ #0", s->ptr[0]) && s->ptr[0]; *s = str_skip(*s, 1)) {
        char c = s->ptr[0];
        left = left || c == '-';
        zero = zero || c == '0';
        if (c == '+' || (c == ' ' && spec->sign != '+')) spec->sign = c;
        if (c == '#') spec->is_alternate = true;
    }
    spec->align = left ? '<' : zero ? '=' : '>';
    if (zero && !left) spec->fill = STR("0");
}

static enum status put_int_arg(struct percent *p, struct value v, struct format_spec *spec) {
    int64_t number = 0;
    bool is_decimal = strchr("diu", spec->type) != NULL;
    if (v.type == V_FLOAT && is_decimal) {
        if (!(fabs(v.real) < 0x1p63))
            return jinja_run_fail(p->r, "a float does not fit in a 64-bit integer");
        number = (int64_t)v.real;
    } else if (!jinja_value_as_int(v, &number)) {
        return jinja_run_fail(p->r, "%%%c format: an integer is required, not %s", spec->type,
                              jinja_value_type_name(v));
    }
    if (is_decimal) spec->type = 'd';
    return jinja_format_int(p->r, number, spec, spec->precision);
}

static enum status put_char_arg(struct percent *p, struct value v, struct format_spec *spec) {
    int64_t code;
    if (str_is(spec->fill, "0")) spec->fill = STR(" ");
    if (spec->align == '=') spec->align = '>';
    spec->precision = -1;
    if (v.type == V_TEXT && jinja_text_chars(v.text) == 1)
        return jinja_format_text(p->r, jinja_value_str(v), spec);
    if (!jinja_value_as_int(v, &code)) return jinja_run_fail(p->r, "%%c requires int or char");
    return jinja_format_char(p->r, code, spec);
}

static enum status put_text_arg(struct percent *p, struct value v, struct format_spec *spec) {
    struct run *r = p->r;
    struct value text;
    size_t mark = r->work.len;
    if (spec->type == 's')
        TRY(p->markup ? jinja_put_escaped(r, v) : jinja_put_str(r, v));
    else
        TRY(jinja_put_repr(r, v));
    TRY(jinja_run_take(r, mark, &text));
    if (spec->align == '=') spec->align = '>';
    spec->fill = STR(" ");
    return jinja_format_text(r, jinja_value_str(text), spec);
}

static enum status put_conversion(struct percent *p, struct value v, struct format_spec *spec) {
    double real;
    switch (spec->type) {
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        return put_int_arg(p, v, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jinja_value_as_float(v, &real))
            return jinja_run_fail(p->r, "must be real number, not %s", jinja_value_type_name(v));
        return jinja_format_float(p->r, real, spec);
    case 'c':
        return put_char_arg(p, v, spec);
    case 's':
    case 'r':
        return put_text_arg(p, v, spec);
    default:
        return jinja_run_fail(p->r, "unsupported format character '%c'", spec->type);
    }
}

/* One conversion; `s` begins after its '%'. */
static enum status put_one(struct percent *p, struct str *s) {
    struct format_spec spec = jinja_format_spec_default();
    struct value v = jinja_value_missing();
    if (s->len && s->ptr[0] == '(') {
        *s = str_skip(*s, 1);
        TRY(named_arg(p, s, &v));
    }
    take_flags(s, &spec);
    TRY(take_size(p, s, &spec.width));
    if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
    }
    if (s->len && s->ptr[0] == '.') {
        *s = str_skip(*s, 1);
        spec.precision = 0;
        TRY(take_size(p, s, &spec.precision));
        if (spec.precision < 0) spec.precision = 0;
    }
    while (s->len && strchr("hlL", s->ptr[0]) && s->ptr[0]) *s = str_skip(*s, 1);
    if (!s->len) return jinja_run_fail(p->r, "incomplete format");
    spec.type = s->ptr[0];
    *s = str_skip(*s, 1);
    if (spec.type == '%') {
        buf_put_char(&p->r->work, '%');
        return ST_OK;
    }
    if (v.type == V_MISSING) TRY(next_arg(p, &v));
    return put_conversion(p, v, &spec);
}

/* Arguments may be left over only where Python takes the right side for a mapping. */
static bool may_be_mapping(struct value v) {
    return v.type == V_DICT || v.type == V_LIST || v.type == V_RANGE || v.type == V_UNDEFINED;
}

enum status jinja_op_percent(struct run *r, struct value format, struct value args,
                             struct value *out) {
    struct percent p = {.r = r, .args = args, .markup = format.text->markup};
    struct str s = jinja_value_str(format);
    size_t mark = r->work.len;
    while (s.len) {
        const char *percent = memchr(s.ptr, '%', s.len);
        size_t plain = percent ? (size_t)(percent - s.ptr) : s.len;
        buf_put_str(&r->work, str_take(s, plain));
        s = str_skip(s, plain + (percent != NULL));
        TRY(jinja_run_steps(r, 1));
        if (percent) TRY(put_one(&p, &s));
    }
    size_t count = args.type == V_TUPLE ? args.list->count : 1;
    if (p.next < count && !may_be_mapping(args))
        return jinja_run_fail(r, "not all arguments converted during string formatting");
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = format.text->markup;
    return ST_OK;
}
