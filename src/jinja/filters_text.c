/* jinja/filters_text.c - filters that make texts: case, cutting, joining, escaping. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/template.h"
#include "jinja/char.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ by way of methods */

/* Filters turn what they get into a text first; the method of the same name does the rest. */
static enum status as_method(struct run *r, struct call *call, method_fn *method,
                             struct value *out) {
    TRY(jinja_value_to_text(r, call->self, &call->self));
    return method(r, call, out);
}

enum status jinja_filter_capitalize(struct run *r, struct call *call, struct value *out) {
    return as_method(r, call, jinja_str_capitalize, out);
}
enum status jinja_filter_lower(struct run *r, struct call *call, struct value *out) {
    return as_method(r, call, jinja_str_lower, out);
}
enum status jinja_filter_upper(struct run *r, struct call *call, struct value *out) {
    return as_method(r, call, jinja_str_upper, out);
}
enum status jinja_filter_trim(struct run *r, struct call *call, struct value *out) {
    return as_method(r, call, jinja_str_strip, out);
}
enum status jinja_filter_center(struct run *r, struct call *call, struct value *out) {
    if (call->argv[0].type == V_MISSING) call->argv[0] = jinja_value_int(80);
    return as_method(r, call, jinja_str_center, out);
}
enum status jinja_filter_string(struct run *r, struct call *call, struct value *out) {
    return jinja_value_to_text(r, call->self, out);
}

enum status jinja_filter_format(struct run *r, struct call *call, struct value *out) {
    const struct args *args = call->args;
    struct value format, values;
    if (args->positional_count && args->keyword_count)
        return jinja_run_fail(r, "can't handle positional and keyword arguments at the same time");
    TRY(jinja_value_to_text(r, call->self, &format));
    if (!args->keyword_count) {
        TRY(jinja_value_of_tuple(r, args->positional, args->positional_count, &values));
        return jinja_op_percent(r, format, values, out);
    }
    TRY(jinja_value_of_dict(r, &values));
    for (size_t i = 0; i < args->keyword_count; i++) {
        struct value key;
        TRY(jinja_value_text(r, args->keyword_names[i], &key));
        TRY(jinja_dict_put(r, values.dict, key, args->keyword_values[i]));
    }
    return jinja_op_percent(r, format, values, out);
}

enum status jinja_filter_replace(struct run *r, struct call *call, struct value *out) {
    struct value s, from, to;
    int64_t count_max = -1;
    TRY(jinja_value_to_text(r, call->self, &s));
    TRY(jinja_value_to_text(r, call->argv[0], &from));
    TRY(jinja_value_to_text(r, call->argv[1], &to));
    if (jinja_arg_given(call, 2)) TRY(jinja_arg_int(r, call, 2, -1, &count_max));
    return jinja_text_replace(r, jinja_value_str(s), jinja_value_str(from), jinja_value_str(to),
                              count_max, out);
}

enum status jinja_filter_join(struct run *r, struct call *call, struct value *out) {
    struct iter *it = NULL;
    struct value item, separator;
    bool done;
    if (call->argv[0].type == V_MISSING)
        TRY(jinja_value_text(r, STR(""), &separator));
    else
        TRY(jinja_value_to_text(r, call->argv[0], &separator));
    TRY(jinja_iter_open(r, call->self, &it));
    size_t mark = r->work.len;
    for (bool first = true;; first = false) {
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done) return jinja_run_take(r, mark, out);
        if (jinja_arg_given(call, 1))
            TRY(jinja_get_path(r, item, call->argv[1], jinja_value_missing(), &item));
        if (!first) buf_put_str(&r->work, jinja_value_str(separator));
        TRY(jinja_put_str(r, item));
    }
}

/* ------------------------------------------------------------------ words and lines */

static bool starts_word(uint32_t code) {
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' ||
           jinja_char_is_space(code);
}

/* Unlike the method, only white space, a hyphen and opening brackets part words. */
enum status jinja_filter_title(struct run *r, struct call *call, struct value *out) {
    struct value v;
    TRY(jinja_value_to_text(r, call->self, &v));
    struct str s = jinja_value_str(v);
    size_t mark = r->work.len;
    bool at_start = true, was_separator = false;
    TRY(jinja_run_steps(r, s.len / 16));
    for (size_t at = 0; at < s.len;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        bool is_separator = starts_word(code);
        if (at_start || is_separator != was_separator)
            jinja_put_upper(&r->work, code);
        else
            jinja_put_lower(&r->work, s, at, code);
        at_start = false;
        was_separator = is_separator;
        at += len;
    }
    return jinja_run_take(r, mark, out);
}

enum status jinja_filter_wordcount(struct run *r, struct call *call, struct value *out) {
    struct value v;
    int64_t count = 0;
    bool in_word = false;
    TRY(jinja_value_to_text(r, call->self, &v));
    struct str s = jinja_value_str(v);
    TRY(jinja_run_steps(r, s.len / 16));
    while (s.len) {
        uint32_t code;
        s = str_skip(s, utf8_decode(s, &code));
        bool is_word = code == '_' || jinja_char_is_alnum(code);
        count += is_word && !in_word;
        in_word = is_word;
    }
    *out = jinja_value_int(count);
    return ST_OK;
}

static enum status indent_unit(struct run *r, struct call *call, struct str *out) {
    int64_t width;
    if (call->argv[0].type == V_TEXT) {
        *out = jinja_value_str(call->argv[0]);
        return ST_OK;
    }
    TRY(jinja_arg_int(r, call, 0, 4, &width));
    if (width < 0) width = 0;
    char *blanks = jinja_run_alloc(r, (size_t)width, 1);
    if (!blanks) return jinja_run_full(r);
    memset(blanks, ' ', (size_t)width);
    *out = (struct str){blanks, (size_t)width};
    return ST_OK;
}

enum status jinja_filter_indent(struct run *r, struct call *call, struct value *out) {
    struct value v = call->self, lines, with_end;
    struct str unit;
    bool first = jinja_arg_bool(call, 1, false), blank = jinja_arg_bool(call, 2, false);
    if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
    if (v.type != V_TEXT)
        return jinja_run_fail(r, "indent needs a str, not '%s'", jinja_value_type_name(v));
    TRY(indent_unit(r, call, &unit));
    size_t mark = r->work.len;
    buf_put_str(&r->work, jinja_value_str(v));
    buf_put_char(&r->work, '\n');
    TRY(jinja_run_take(r, mark, &with_end));
    TRY(jinja_text_split_lines(r, with_end, false, &lines));
    for (size_t i = 0; i < lines.list->count; i++) {
        struct str line = jinja_value_str(lines.list->items[i]);
        if (i) buf_put_char(&r->work, '\n');
        bool indented = i == 0 ? first : blank || line.len > 0;
        if (indented) buf_put_str(&r->work, unit);
        buf_put_str(&r->work, line);
    }
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

enum status jinja_filter_truncate(struct run *r, struct call *call, struct value *out) {
    struct str end, s;
    int64_t length, leeway = 5, count;
    TRY(jinja_arg_int(r, call, 0, 255, &length));
    TRY(jinja_arg_text(r, call, 2, STR("..."), &end));
    if (jinja_arg_given(call, 3)) TRY(jinja_arg_int(r, call, 3, 5, &leeway));
    int64_t end_chars = (int64_t)utf8_count(end);
    if (length < end_chars) return jinja_run_fail(r, "truncate needs a length of its end or more");
    if (leeway < 0) return jinja_run_fail(r, "truncate needs a leeway of 0 or more");
    if (!jinja_value_has_length(call->self, &count))
        return jinja_run_fail(r, "object of type '%s' has no len()",
                              jinja_value_type_name(call->self));
    *out = call->self;
    if (count <= length || count - length <= leeway) return ST_OK;
    if (call->self.type != V_TEXT)
        return jinja_run_fail(r, "truncate needs a str, not '%s'",
                              jinja_value_type_name(call->self));
    s = str_take(jinja_value_str(call->self),
                 jinja_text_offset(call->self.text, length - end_chars));
    if (!jinja_arg_bool(call, 1, false)) { /* give up the word that was cut */
        size_t blank = s.len;
        while (blank > 0 && s.ptr[blank - 1] != ' ') blank--;
        if (blank > 0) s.len = blank - 1;
    }
    struct value head, tail;
    TRY(jinja_value_text(r, s, &head));
    TRY(jinja_value_text(r, end, &tail));
    head.text->markup = call->self.text->markup;
    return jinja_op_binary(r, T_ADD, head, tail, out);
}

/* ------------------------------------------------------------------ HTML and URLs */

static enum status put_html(struct run *r, struct str s) {
    TRY(jinja_run_steps(r, s.len / 64));
    for (size_t i = 0; i < s.len; i++) {
        switch (s.ptr[i]) {
        case '&':
            buf_put_text(&r->work, "&amp;");
            break;
        case '<':
            buf_put_text(&r->work, "&lt;");
            break;
        case '>':
            buf_put_text(&r->work, "&gt;");
            break;
        case '"':
            buf_put_text(&r->work, "&#34;");
            break;
        case '\'':
            buf_put_text(&r->work, "&#39;");
            break;
        default:
            buf_put_char(&r->work, s.ptr[i]);
            break;
        }
    }
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

enum status jinja_put_escaped(struct run *r, struct value v) {
    struct value text;
    TRY(jinja_value_to_text(r, v, &text));
    if (text.text->markup) return jinja_put_str(r, text);
    return put_html(r, jinja_value_str(text));
}

enum status jinja_value_escaped(struct run *r, struct value v, struct value *out) {
    size_t mark = r->work.len;
    TRY(jinja_put_escaped(r, v));
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = true;
    return ST_OK;
}

enum status jinja_filter_escape(struct run *r, struct call *call, struct value *out) {
    return jinja_value_escaped(r, call->self, out);
}

enum status jinja_filter_forceescape(struct run *r, struct call *call, struct value *out) {
    struct value text;
    TRY(jinja_value_to_text(r, call->self, &text));
    TRY(jinja_value_text(r, jinja_value_str(text), &text));
    return jinja_value_escaped(r, text, out);
}

enum status jinja_filter_safe(struct run *r, struct call *call, struct value *out) {
    struct value text;
    TRY(jinja_value_to_text(r, call->self, &text));
    TRY(jinja_value_text(r, jinja_value_str(text), out));
    out->text->markup = true;
    return ST_OK;
}

static enum status put_quoted(struct run *r, struct value v, bool for_query) {
    struct value text;
    TRY(jinja_value_to_text(r, v, &text));
    struct str s = jinja_value_str(text);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool is_plain = (c < 0x80 && isalnum(c)) || c == '_' || c == '.' || c == '-' || c == '~' ||
                        (c == '/' && !for_query);
        if (is_plain)
            buf_put_char(&r->work, (char)c);
        else if (c == ' ' && for_query)
            buf_put_char(&r->work, '+');
        else
            buf_printf(&r->work, "%%%02X", c);
    }
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

enum status jinja_filter_urlencode(struct run *r, struct call *call, struct value *out) {
    struct value pairs = call->self, list, pair;
    size_t mark = r->work.len;
    if (call->self.type == V_TEXT || !jinja_value_is_iterable(call->self)) {
        TRY(put_quoted(r, call->self, false));
        return jinja_run_take(r, mark, out);
    }
    struct view view = {call->self.dict, VIEW_ITEMS};
    if (call->self.type == V_DICT) pairs = (struct value){.type = V_VIEW, .view = &view};
    TRY(jinja_iter_to_list(r, pairs, &list));
    for (size_t i = 0; i < list.list->count; i++) {
        TRY(jinja_iter_to_list(r, list.list->items[i], &pair));
        if (pair.list->count != 2) return jinja_run_fail(r, "urlencode needs pairs");
        if (i) buf_put_char(&r->work, '&');
        TRY(put_quoted(r, pair.list->items[0], true));
        buf_put_char(&r->work, '=');
        TRY(put_quoted(r, pair.list->items[1], true));
    }
    return jinja_run_take(r, mark, out);
}

static bool is_attribute_name(struct str s) {
    for (size_t i = 0; i < s.len; i++)
        if (strchr(" \t\n\r\f\v/>=", s.ptr[i])) return false;
    return true;
}

enum status jinja_filter_xmlattr(struct run *r, struct call *call, struct value *out) {
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (call->self.type != V_DICT) return jinja_run_fail(r, "xmlattr needs a mapping");
    size_t mark = r->work.len;
    bool autospace = jinja_arg_bool(call, 0, true), any = false;
    for (size_t i = 0; i < call->self.dict->count; i++) {
        const struct dict_entry *e = &call->self.dict->entries[i];
        if (e->value.type == V_NONE || e->value.type == V_UNDEFINED) continue;
        if (e->key.type != V_TEXT || !is_attribute_name(jinja_value_str(e->key)))
            return jinja_run_fail(r, "invalid character in attribute name");
        if (any || autospace) buf_put_char(&r->work, ' ');
        any = true;
        TRY(jinja_put_escaped(r, e->key));
        buf_put_text(&r->work, "=\"");
        TRY(jinja_put_escaped(r, e->value));
        buf_put_char(&r->work, '"');
    }
    return jinja_run_take(r, mark, out);
}

/* The entities that HTML escaping makes, a few common ones, and numbers. */
static size_t entity(struct str s, uint32_t *code) {
    static const struct {
        const char *name;
        uint32_t code;
    } known[] = {{"&amp;", '&'},   {"&lt;", '<'},       {"&gt;", '>'},     {"&quot;", '"'},
                 {"&apos;", '\''}, {"&nbsp;", 0xA0},    {"&raquo;", 0xBB}, {"&laquo;", 0xAB},
                 {"&copy;", 0xA9}, {"&hellip;", 0x2026}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        *code = known[i].code;
        if (str_starts(s, str_of(known[i].name))) return strlen(known[i].name);
    }
    if (!str_starts(s, STR("&#"))) return 0;
    bool is_hex = s.len > 2 && (s.ptr[2] == 'x' || s.ptr[2] == 'X');
    size_t at = is_hex ? 3 : 2, first = at;
    for (*code = 0; at < s.len && *code < 0x110000; at++) {
        unsigned char c = (unsigned char)s.ptr[at];
        if (!(is_hex ? isxdigit(c) : isdigit(c))) break;
        uint32_t digit = (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
        *code = *code * (is_hex ? 16 : 10) + digit;
    }
    bool is_bad = *code == 0 || *code >= 0x110000 || (*code >= 0xD800 && *code < 0xE000);
    if (at == first || is_bad) return 0;
    return at + (at < s.len && s.ptr[at] == ';');
}

static void put_without_tags(struct buf *out, struct str s) {
    while (s.len) {
        size_t start = jinja_str_find(s, STR("<"), 0);
        bool is_comment = start != SIZE_MAX && str_starts(str_skip(s, start), STR("<!--"));
        size_t end = start == SIZE_MAX ? SIZE_MAX
                     : is_comment      ? jinja_str_find(s, STR("-->"), start + 4)
                                       : jinja_str_find(s, STR(">"), start);
        if (end == SIZE_MAX) break;
        buf_put_str(out, str_take(s, start));
        s = str_skip(s, end + (is_comment ? 3 : 1));
    }
    buf_put_str(out, s);
}

enum status jinja_filter_striptags(struct run *r, struct call *call, struct value *out) {
    struct value text, words;
    size_t mark = r->work.len;
    TRY(jinja_value_to_text(r, call->self, &text));
    TRY(jinja_run_steps(r, jinja_value_str(text).len / 16));
    put_without_tags(&r->work, jinja_value_str(text));
    TRY(jinja_run_take(r, mark, &text));
    struct call split = {.self = text};
    TRY(jinja_str_split(r, &split, &words));
    for (size_t i = 0; i < words.list->count; i++) {
        struct str s = jinja_value_str(words.list->items[i]);
        if (i) buf_put_char(&r->work, ' ');
        while (s.len) {
            uint32_t code;
            char bytes[4];
            size_t len = entity(s, &code);
            if (len)
                buf_put(&r->work, bytes, utf8_encode(code, bytes));
            else
                buf_put_char(&r->work, s.ptr[0]);
            s = str_skip(s, len ? len : 1);
        }
    }
    return jinja_run_take(r, mark, out);
}

enum status jinja_filter_filesizeformat(struct run *r, struct call *call, struct value *out) {
    static const char prefixes[] = "kMGTPEZY";
    bool binary = jinja_arg_bool(call, 0, false);
    double bytes, base = binary ? 1024 : 1000;
    size_t mark = r->work.len;
    bool is_number = jinja_value_as_float(call->self, &bytes);
    if (call->self.type == V_TEXT)
        is_number = jinja_parse_python_float(jinja_value_str(call->self), &bytes);
    if (!is_number || !isfinite(bytes)) return jinja_run_fail(r, "filesizeformat needs a number");
    if (bytes == 1) {
        buf_put_text(&r->work, "1 Byte");
    } else if (bytes < base) {
        buf_printf(&r->work, "%.0f Bytes", trunc(bytes));
    } else {
        size_t i = 0;
        double unit = base * base;
        for (; i < 7 && bytes >= unit; i++) unit *= base;
        char letter = binary && i == 0 ? 'K' : prefixes[i];
        buf_printf(&r->work, "%.1f %c%sB", base * bytes / unit, letter, binary ? "i" : "");
    }
    return jinja_run_take(r, mark, out);
}
