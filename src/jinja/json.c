/* jinja/json.c - the tojson filter: what Python's json.dumps() writes, with
 * ensure_ascii off unless the template sets it. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/run.h"
#include "jinja/value.h"

struct writer {
    struct run *r;
    struct str item_separator, key_separator;
    struct str indent; /* of one level */
    bool is_indented, is_ascii, sorts_keys;
    uint32_t level;
};

static enum status put_value(struct writer *w, struct value v);

static void put_escape(struct buf *out, uint32_t code) {
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *found = code && code < 0x80 ? strchr(letters, (int)code) : NULL;
    if (found) {
        buf_put_char(out, '\\');
        buf_put_char(out, names[found - letters]);
    } else if (code < 0x10000) {
        buf_printf(out, "\\u%04x", code);
    } else {
        uint32_t rest = code - 0x10000;
        buf_printf(out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
}

static enum status put_string(struct writer *w, struct str s) {
    struct buf *out = &w->r->work;
    TRY(jinja_run_steps(w->r, s.len / 64));
    buf_put_char(out, '"');
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        bool is_plain =
            code >= ' ' && code != '"' && code != '\\' && !(w->is_ascii && code >= 0x7F);
        if (is_plain)
            buf_put_str(out, str_take(s, len));
        else
            put_escape(out, code);
        s = str_skip(s, len);
    }
    buf_put_char(out, '"');
    return ST_OK;
}

static void put_number(struct buf *out, double real) {
    if (isnan(real))
        buf_put_text(out, "NaN");
    else if (isinf(real))
        buf_put_text(out, real < 0 ? "-Infinity" : "Infinity");
    else
        jinja_put_float(out, real);
}

static void put_newline(struct writer *w) {
    if (!w->is_indented) return;
    buf_put_char(&w->r->work, '\n');
    for (uint32_t i = 0; i < w->level; i++) buf_put_str(&w->r->work, w->indent);
}

static enum status put_array(struct writer *w, const struct list *list) {
    struct buf *out = &w->r->work;
    if (!list->count) {
        buf_put_text(out, "[]");
        return ST_OK;
    }
    buf_put_char(out, '[');
    w->level++;
    for (size_t i = 0; i < list->count; i++) {
        if (i) buf_put_str(out, w->item_separator);
        put_newline(w);
        TRY(put_value(w, list->items[i]));
    }
    w->level--;
    put_newline(w);
    buf_put_char(out, ']');
    return ST_OK;
}

/* Keys that are not texts are written as the texts that JSON would use for them. */
static enum status put_key(struct writer *w, struct value key) {
    struct buf *out = &w->r->work;
    if (key.type == V_TEXT) return put_string(w, jinja_value_str(key));
    if (!jinja_value_is_number(key) && key.type != V_NONE)
        return jinja_run_fail(w->r, "keys must be str, int, float, bool or None, not %s",
                              jinja_value_type_name(key));
    buf_put_char(out, '"');
    TRY(put_value(w, key));
    buf_put_char(out, '"');
    return ST_OK;
}

/* The entries in the order to be written; sorting compares the keys as Python does. */
static enum status ordered_keys(struct writer *w, const struct dict *dict, struct value *keys,
                                struct value *values) {
    struct run *r = w->r;
    struct value order;
    TRY(jinja_value_of_list(r, dict->count, keys));
    TRY(jinja_value_of_list(r, dict->count, values));
    TRY(jinja_value_of_list(r, dict->count, &order));
    for (size_t i = 0; i < dict->count; i++) {
        TRY(jinja_list_push(r, keys->list, dict->entries[i].key));
        TRY(jinja_list_push(r, values->list, dict->entries[i].value));
        TRY(jinja_list_push(r, order.list, dict->entries[i].key));
    }
    if (!w->sorts_keys) return ST_OK;
    TRY(jinja_sort_values(r, values->list, order.list, false));
    return jinja_sort_values(r, keys->list, order.list, false);
}

static enum status put_object(struct writer *w, const struct dict *dict) {
    struct buf *out = &w->r->work;
    struct value keys, values;
    if (!dict->count) {
        buf_put_text(out, "{}");
        return ST_OK;
    }
    TRY(ordered_keys(w, dict, &keys, &values));
    buf_put_char(out, '{');
    w->level++;
    for (size_t i = 0; i < dict->count; i++) {
        if (i) buf_put_str(out, w->item_separator);
        put_newline(w);
        TRY(put_key(w, keys.list->items[i]));
        buf_put_str(out, w->key_separator);
        TRY(put_value(w, values.list->items[i]));
    }
    w->level--;
    put_newline(w);
    buf_put_char(out, '}');
    return ST_OK;
}

static enum status put_kind(struct writer *w, struct value v) {
    struct buf *out = &w->r->work;
    switch (v.type) {
    case V_NONE:
        buf_put_text(out, "null");
        return ST_OK;
    case V_BOOL:
        buf_put_text(out, v.truth ? "true" : "false");
        return ST_OK;
    case V_INT:
        buf_printf(out, "%lld", (long long)v.integer);
        return ST_OK;
    case V_FLOAT:
        put_number(out, v.real);
        return ST_OK;
    case V_TEXT:
        return put_string(w, jinja_value_str(v));
    case V_LIST:
    case V_TUPLE:
        return put_array(w, v.list);
    case V_DICT:
        return put_object(w, v.dict);
    default:
        return jinja_run_fail(w->r, "Object of type %s is not JSON serializable",
                              jinja_value_type_name(v));
    }
}

static enum status put_value(struct writer *w, struct value v) {
    TRY(jinja_run_enter(w->r));
    TRY(jinja_run_steps(w->r, 1));
    TRY(put_kind(w, v));
    w->r->depth--;
    return buf_status(&w->r->work) == ST_OK ? ST_OK : jinja_run_full(w->r);
}

static enum status set_indent(struct writer *w, struct value indent) {
    int64_t width;
    if (indent.type == V_MISSING || indent.type == V_NONE) return ST_OK;
    w->is_indented = true;
    w->item_separator = STR(",");
    if (indent.type == V_TEXT) {
        w->indent = jinja_value_str(indent);
        return ST_OK;
    }
    if (!jinja_value_as_int(indent, &width))
        return jinja_run_fail(w->r, "indent must be an int or a str");
    if (width < 0) width = 0;
    char *blanks = jinja_run_alloc(w->r, (size_t)width, 1);
    if (!blanks) return jinja_run_full(w->r);
    memset(blanks, ' ', (size_t)width);
    w->indent = (struct str){blanks, (size_t)width};
    return ST_OK;
}

static enum status set_separators(struct writer *w, struct value pair) {
    if (pair.type == V_MISSING || pair.type == V_NONE) return ST_OK;
    bool is_pair = (pair.type == V_LIST || pair.type == V_TUPLE) && pair.list->count == 2 &&
                   pair.list->items[0].type == V_TEXT && pair.list->items[1].type == V_TEXT;
    if (!is_pair) return jinja_run_fail(w->r, "separators must be two strings");
    w->item_separator = jinja_value_str(pair.list->items[0]);
    w->key_separator = jinja_value_str(pair.list->items[1]);
    return ST_OK;
}

/* Parameters: ensure_ascii indent separators sort_keys. */
enum status jinja_to_json(struct run *r, struct call *call, struct value *out) {
    struct writer w = {.r = r, .item_separator = STR(", "), .key_separator = STR(": ")};
    size_t mark = r->work.len;
    w.is_ascii = jinja_arg_bool(call, 0, false);
    TRY(set_indent(&w, call->argv[1]));
    TRY(set_separators(&w, call->argv[2]));
    w.sorts_keys = jinja_arg_bool(call, 3, false);
    TRY(put_value(&w, call->self));
    return jinja_run_take(r, mark, out);
}
