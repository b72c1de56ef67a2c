/* jinja/repr.c - values as text, the way Python's str() and repr() print them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/char.h"
#include "jinja/run.h"
#include "jinja/value.h"

enum { FLOAT_DIGITS_MAX = 17, FLOAT_FIXED_BELOW = 16, FLOAT_FIXED_FROM = -4 };

/* The fewest significant digits that read back as the same number, and the decimal exponent
 * of the first; `digits` gets a NUL. */
static int shortest_digits(double real, char digits[FLOAT_DIGITS_MAX + 1]) {
    char text[40];
    for (int precision = 1; precision <= FLOAT_DIGITS_MAX; precision++) {
        double back;
        snprintf(text, sizeof(text), "%.*e", precision - 1, real);
        if (precision == FLOAT_DIGITS_MAX) break;
        if (str_to_f64(str_of(text), &back) && back == real) break;
    }
    size_t len = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p != '.') digits[len++] = *p;
    digits[len] = 0;
    int64_t exponent = 0;
    struct str tail = str_of(p + 1);
    if (tail.len && tail.ptr[0] == '+') tail = str_skip(tail, 1);
    str_to_i64(tail, &exponent);
    return (int)exponent;
}

static void put_zeros(struct buf *out, int count) {
    for (int i = 0; i < count; i++) buf_put_char(out, '0');
}

void jinja_put_float(struct buf *out, double real) {
    if (isnan(real)) {
        buf_put_text(out, "nan");
        return;
    }
    if (signbit(real)) buf_put_char(out, '-');
    real = fabs(real);
    if (isinf(real)) {
        buf_put_text(out, "inf");
        return;
    }
    char digits[FLOAT_DIGITS_MAX + 1];
    int exponent = shortest_digits(real, digits);
    int len = (int)strlen(digits);
    if (exponent < FLOAT_FIXED_FROM || exponent >= FLOAT_FIXED_BELOW) {
        buf_put_char(out, digits[0]);
        if (len > 1) buf_put_char(out, '.');
        buf_put_text(out, digits + 1);
        buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    } else if (exponent < 0) {
        buf_put_text(out, "0.");
        put_zeros(out, -exponent - 1);
        buf_put_text(out, digits);
    } else if (len <= exponent + 1) {
        buf_put_text(out, digits);
        put_zeros(out, exponent + 1 - len);
        buf_put_text(out, ".0");
    } else {
        buf_put(out, digits, (size_t)exponent + 1);
        buf_put_char(out, '.');
        buf_put_text(out, digits + exponent + 1);
    }
}

static void put_repr_char(struct buf *out, uint32_t code, struct str bytes, char quote) {
    if (code == (uint32_t)quote || code == '\\') {
        buf_put_char(out, '\\');
        buf_put_char(out, (char)code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
        buf_put_text(out, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
    } else if (code >= ' ' && code < 0x7F) {
        buf_put_char(out, (char)code);
    } else if (code >= 0x80 && jinja_char_is_printable(code)) {
        buf_put_str(out, bytes);
    } else if (code < 0x100) {
        buf_printf(out, "\\x%02x", code);
    } else if (code < 0x10000) {
        buf_printf(out, "\\u%04x", code);
    } else {
        buf_printf(out, "\\U%08x", code);
    }
}

void jinja_put_text_repr(struct buf *out, struct str s) {
    bool has_single = s.len && memchr(s.ptr, '\'', s.len);
    bool has_double = s.len && memchr(s.ptr, '"', s.len);
    char quote = has_single && !has_double ? '"' : '\'';
    buf_put_char(out, quote);
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        put_repr_char(out, code, str_take(s, len), quote);
        s = str_skip(s, len);
    }
    buf_put_char(out, quote);
}

static enum status put_items(struct run *r, const struct list *list) {
    for (size_t i = 0; i < list->count; i++) {
        if (i) buf_put_text(&r->work, ", ");
        TRY(jinja_put_repr(r, list->items[i]));
    }
    return ST_OK;
}

static enum status put_sequence(struct run *r, struct value v) {
    bool is_tuple = v.type == V_TUPLE;
    buf_put_char(&r->work, is_tuple ? '(' : '[');
    TRY(put_items(r, v.list));
    if (is_tuple && v.list->count == 1) buf_put_char(&r->work, ',');
    buf_put_char(&r->work, is_tuple ? ')' : ']');
    return ST_OK;
}

static enum status put_dict(struct run *r, const struct dict *dict) {
    buf_put_char(&r->work, '{');
    for (size_t i = 0; i < dict->count; i++) {
        if (i) buf_put_text(&r->work, ", ");
        TRY(jinja_put_repr(r, dict->entries[i].key));
        buf_put_text(&r->work, ": ");
        TRY(jinja_put_repr(r, dict->entries[i].value));
    }
    buf_put_char(&r->work, '}');
    return ST_OK;
}

static enum status put_view(struct run *r, const struct view *view) {
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    buf_printf(&r->work, "%s([", names[view->kind]);
    for (size_t i = 0; i < view->dict->count; i++) {
        const struct dict_entry *e = &view->dict->entries[i];
        if (i) buf_put_text(&r->work, ", ");
        if (view->kind == VIEW_ITEMS) buf_put_char(&r->work, '(');
        if (view->kind != VIEW_VALUES) TRY(jinja_put_repr(r, e->key));
        if (view->kind == VIEW_ITEMS) buf_put_text(&r->work, ", ");
        if (view->kind != VIEW_KEYS) TRY(jinja_put_repr(r, e->value));
        if (view->kind == VIEW_ITEMS) buf_put_char(&r->work, ')');
    }
    buf_put_text(&r->work, "])");
    return ST_OK;
}

static void put_range(struct buf *out, const struct range *range) {
    buf_printf(out, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
    if (range->step != 1) buf_printf(out, ", %lld", (long long)range->step);
    buf_put_char(out, ')');
}

static enum status put_object(struct run *r, struct value v) {
    int64_t length;
    switch (v.type) {
    case V_NAMESPACE:
        buf_put_text(&r->work, "<Namespace ");
        TRY(put_dict(r, v.dict));
        buf_put_char(&r->work, '>');
        return ST_OK;
    case V_MACRO:
        buf_put_text(&r->work, "<Macro ");
        if (v.macro->macro->name.len)
            jinja_put_text_repr(&r->work, v.macro->macro->name);
        else
            buf_put_text(&r->work, "anonymous");
        buf_put_char(&r->work, '>');
        return ST_OK;
    case V_LOOP:
        TRY(jinja_loop_length(r, v.loop, &length));
        buf_printf(&r->work, "<LoopContext %lld/%lld>", (long long)v.loop->idx + 1,
                   (long long)length);
        return ST_OK;
    default:
        buf_printf(&r->work, "<%s object>", jinja_value_type_name(v));
        return ST_OK;
    }
}

static enum status put_container(struct run *r, struct value v) {
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
        return put_sequence(r, v);
    case V_DICT:
        return put_dict(r, v.dict);
    case V_VIEW:
        return put_view(r, v.view);
    default:
        return put_object(r, v);
    }
}

enum status jinja_put_repr(struct run *r, struct value v) {
    TRY(jinja_run_steps(r, 1));
    switch (v.type) {
    case V_MISSING:
    case V_UNDEFINED:
        buf_put_text(&r->work, "Undefined");
        return ST_OK;
    case V_TEXT:
        if (v.text->markup) buf_put_text(&r->work, "Markup(");
        jinja_put_text_repr(&r->work, jinja_value_str(v));
        if (v.text->markup) buf_put_char(&r->work, ')');
        break;
    case V_NONE:
        buf_put_text(&r->work, "None");
        return ST_OK;
    case V_BOOL:
        buf_put_text(&r->work, v.truth ? "True" : "False");
        return ST_OK;
    case V_INT:
        buf_printf(&r->work, "%lld", (long long)v.integer);
        return ST_OK;
    case V_FLOAT:
        jinja_put_float(&r->work, v.real);
        return ST_OK;
    case V_RANGE:
        put_range(&r->work, v.range);
        return ST_OK;
    default:
        TRY(jinja_run_enter(r));
        TRY(put_container(r, v));
        r->depth--;
        break;
    }
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

enum status jinja_put_str(struct run *r, struct value v) {
    if (v.type == V_UNDEFINED || v.type == V_MISSING) return ST_OK;
    if (v.type != V_TEXT) return jinja_put_repr(r, v);
    buf_put_str(&r->work, jinja_value_str(v));
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

enum status jinja_value_to_text(struct run *r, struct value v, struct value *out) {
    if (v.type == V_TEXT) {
        *out = v;
        return ST_OK;
    }
    size_t mark = r->work.len;
    TRY(jinja_put_str(r, v));
    return jinja_run_take(r, mark, out);
}
