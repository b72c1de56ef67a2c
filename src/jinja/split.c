/* jinja/split.c - methods of texts that search, cut, replace and join. */
#include <string.h>

#include "base/utf8.h"
#include "jinja/char.h"
#include "jinja/methods.h"
#include "jinja/run.h"
#include "jinja/value.h"

/* A part of `v`, which stays safe HTML if `v` is. */
static enum status part_of(struct run *r, struct value v, struct str part, struct value *out) {
    TRY(jinja_value_text(r, part, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

static enum status push_part(struct run *r, struct value v, struct str part, struct value *list) {
    struct value item;
    TRY(part_of(r, v, part, &item));
    return jinja_list_push(r, list->list, item);
}

/* ------------------------------------------------------------------ searching */

/* The part of the text that the arguments from `first` on (start, end) name; *base is the
 * number of characters in front of it. false: an empty and impossible part. */
static enum status search_window(struct run *r, const struct call *call, size_t first,
                                 struct str *window, int64_t *base, bool *possible) {
    struct text *text = call->self.text;
    int64_t count = jinja_text_chars(text), start = 0, end = count;
    if (jinja_arg_given(call, first)) TRY(jinja_arg_int(r, call, first, 0, &start));
    if (jinja_arg_given(call, first + 1)) TRY(jinja_arg_int(r, call, first + 1, count, &end));
    if (start < 0) start += count;
    if (start < 0) start = 0;
    if (end < 0) end += count;
    if (end < 0) end = 0;
    if (end > count) end = count;
    *possible = start <= end;
    *base = start;
    *window = STR("");
    if (!*possible) return ST_OK;
    size_t from = jinja_text_offset(text, start), to = jinja_text_offset(text, end);
    TRY(jinja_run_steps(r, to / 64));
    *window = str_take(str_skip(text->bytes, from), to - from);
    return ST_OK;
}

static size_t str_find_last(struct str whole, struct str part) {
    if (part.len > whole.len) return SIZE_MAX;
    for (size_t at = whole.len - part.len + 1; at-- > 0;)
        if (part.len == 0 || memcmp(whole.ptr + at, part.ptr, part.len) == 0) return at;
    return SIZE_MAX;
}

static enum status search(struct run *r, struct call *call, bool last, int64_t *idx) {
    struct str window, part;
    int64_t base;
    bool possible;
    TRY(jinja_arg_text(r, call, 0, STR(""), &part));
    TRY(search_window(r, call, 1, &window, &base, &possible));
    TRY(jinja_run_search(r, window, part));
    *idx = -1;
    if (!possible) return ST_OK;
    size_t at = last ? str_find_last(window, part) : jinja_str_find(window, part, 0);
    if (at != SIZE_MAX) *idx = base + (int64_t)utf8_count(str_take(window, at));
    return ST_OK;
}

static enum status find_any(struct run *r, struct call *call, bool last, bool must,
                            struct value *out) {
    int64_t idx;
    TRY(search(r, call, last, &idx));
    if (must && idx < 0) return jinja_run_fail(r, "substring not found");
    *out = jinja_value_int(idx);
    return ST_OK;
}

enum status jinja_str_find_method(struct run *r, struct call *call, struct value *out) {
    return find_any(r, call, false, false, out);
}
enum status jinja_str_rfind(struct run *r, struct call *call, struct value *out) {
    return find_any(r, call, true, false, out);
}
enum status jinja_str_index(struct run *r, struct call *call, struct value *out) {
    return find_any(r, call, false, true, out);
}
enum status jinja_str_rindex(struct run *r, struct call *call, struct value *out) {
    return find_any(r, call, true, true, out);
}

enum status jinja_str_count(struct run *r, struct call *call, struct value *out) {
    struct str window, part;
    int64_t base, count = 0;
    bool possible;
    TRY(jinja_arg_text(r, call, 0, STR(""), &part));
    TRY(search_window(r, call, 1, &window, &base, &possible));
    TRY(jinja_run_search(r, window, part));
    if (possible && part.len == 0) count = (int64_t)utf8_count(window) + 1;
    for (size_t at = 0; possible && part.len;) {
        at = jinja_str_find(window, part, at);
        if (at == SIZE_MAX) break;
        at += part.len;
        count++;
    }
    *out = jinja_value_int(count);
    return ST_OK;
}

static enum status affix(struct run *r, struct call *call, bool at_end, struct value *out) {
    struct str window;
    int64_t base;
    bool possible;
    struct value one = call->argv[0];
    TRY(search_window(r, call, 1, &window, &base, &possible));
    const struct value *options = &one;
    size_t count = 1;
    if (one.type == V_TUPLE) {
        options = one.list->items;
        count = one.list->count;
    }
    *out = jinja_value_bool(false);
    for (size_t i = 0; i < count; i++) {
        if (options[i].type == V_UNDEFINED) return jinja_run_fail_undefined(r, options[i]);
        if (options[i].type != V_TEXT)
            return jinja_run_fail(r, "expected a str or a tuple of str, not %s",
                                  jinja_value_type_name(options[i]));
        struct str part = jinja_value_str(options[i]);
        TRY(jinja_run_steps(r, part.len / 64 + 1));
        bool matches = at_end ? str_ends(window, part) : str_starts(window, part);
        if (possible && matches) *out = jinja_value_bool(true);
    }
    return ST_OK;
}

enum status jinja_str_startswith(struct run *r, struct call *call, struct value *out) {
    return affix(r, call, false, out);
}
enum status jinja_str_endswith(struct run *r, struct call *call, struct value *out) {
    return affix(r, call, true, out);
}

enum status jinja_str_removeprefix(struct run *r, struct call *call, struct value *out) {
    struct str s = jinja_value_str(call->self), part;
    TRY(jinja_arg_text(r, call, 0, STR(""), &part));
    return part_of(r, call->self, str_starts(s, part) ? str_skip(s, part.len) : s, out);
}

enum status jinja_str_removesuffix(struct run *r, struct call *call, struct value *out) {
    struct str s = jinja_value_str(call->self), part;
    TRY(jinja_arg_text(r, call, 0, STR(""), &part));
    return part_of(r, call->self, str_ends(s, part) ? str_take(s, s.len - part.len) : s, out);
}

/* ------------------------------------------------------------------ stripping */

static bool has_char(struct str set, struct str one) {
    for (size_t at = 0; at < set.len;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(set, at), &code);
        if (str_eq(str_take(str_skip(set, at), len), one)) return true;
        at += len;
    }
    return false;
}

static enum status strip(struct run *r, struct call *call, bool left, bool right,
                         struct value *out) {
    struct str s = jinja_value_str(call->self), set;
    uint32_t code;
    TRY(jinja_run_steps(r, s.len / 64));
    if (!jinja_arg_given(call, 0))
        return part_of(r, call->self, jinja_str_strip_space(s, left, right), out);
    TRY(jinja_arg_text(r, call, 0, STR(""), &set));
    while (left && s.len) {
        size_t len = utf8_decode(s, &code);
        TRY(jinja_run_steps(r, set.len / 64 + 1));
        if (!has_char(set, str_take(s, len))) break;
        s = str_skip(s, len);
    }
    while (right && s.len) {
        size_t at = jinja_utf8_before(s, s.len, &code);
        TRY(jinja_run_steps(r, set.len / 64 + 1));
        if (!has_char(set, str_skip(s, at))) break;
        s.len = at;
    }
    return part_of(r, call->self, s, out);
}

enum status jinja_str_strip(struct run *r, struct call *call, struct value *out) {
    return strip(r, call, true, true, out);
}
enum status jinja_str_lstrip(struct run *r, struct call *call, struct value *out) {
    return strip(r, call, true, false, out);
}
enum status jinja_str_rstrip(struct run *r, struct call *call, struct value *out) {
    return strip(r, call, false, true, out);
}

/* ------------------------------------------------------------------ splitting */

static size_t word_end(struct str s) {
    size_t at = 0;
    while (at < s.len) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        if (jinja_char_is_space(code)) break;
        at += len;
    }
    return at;
}

static size_t word_start(struct str s) {
    size_t end = s.len;
    while (end > 0) {
        uint32_t code;
        size_t at = jinja_utf8_before(s, end, &code);
        if (jinja_char_is_space(code)) break;
        end = at;
    }
    return end;
}

static enum status split_words(struct run *r, struct value v, int64_t splits, bool from_right,
                               struct value *out) {
    struct str s = jinja_str_strip_space(jinja_value_str(v), !from_right, from_right);
    TRY(jinja_run_steps(r, jinja_value_str(v).len / 64));
    for (int64_t done = 0; s.len; done++) {
        struct str word;
        TRY(jinja_run_steps(r, 1));
        if (splits >= 0 && done >= splits) { /* the rest, its far end as it is */
            TRY(push_part(r, v, s, out));
            break;
        }
        if (from_right) {
            size_t at = word_start(s);
            word = str_skip(s, at);
            s = jinja_str_strip_space(str_take(s, at), false, true);
        } else {
            size_t at = word_end(s);
            word = str_take(s, at);
            s = jinja_str_strip_space(str_skip(s, at), true, false);
        }
        TRY(push_part(r, v, word, out));
    }
    return ST_OK;
}

static enum status split_at(struct run *r, struct value v, struct str separator, int64_t splits,
                            bool from_right, struct value *out) {
    struct str s = jinja_value_str(v);
    TRY(jinja_run_search(r, s, separator));
    for (int64_t done = 0; splits < 0 || done < splits; done++) {
        size_t at = from_right ? str_find_last(s, separator) : jinja_str_find(s, separator, 0);
        if (at == SIZE_MAX) break;
        TRY(jinja_run_steps(r, 1));
        if (from_right) {
            TRY(push_part(r, v, str_skip(s, at + separator.len), out));
            s = str_take(s, at);
        } else {
            TRY(push_part(r, v, str_take(s, at), out));
            s = str_skip(s, at + separator.len);
        }
    }
    return push_part(r, v, s, out);
}

static enum status split(struct run *r, struct call *call, bool from_right, struct value *out) {
    struct str separator;
    int64_t splits;
    TRY(jinja_arg_int(r, call, 1, -1, &splits));
    TRY(jinja_value_of_list(r, 0, out));
    if (jinja_arg_given(call, 0)) {
        TRY(jinja_arg_text(r, call, 0, STR(""), &separator));
        if (!separator.len) return jinja_run_fail(r, "empty separator");
        TRY(split_at(r, call->self, separator, splits, from_right, out));
    } else {
        TRY(split_words(r, call->self, splits, from_right, out));
    }
    struct list *list = out->list;
    for (size_t i = 0; from_right && i < list->count / 2; i++) {
        struct value other = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = list->items[i];
        list->items[i] = other;
    }
    return ST_OK;
}

enum status jinja_str_split(struct run *r, struct call *call, struct value *out) {
    return split(r, call, false, out);
}
enum status jinja_str_rsplit(struct run *r, struct call *call, struct value *out) {
    return split(r, call, true, out);
}

static bool is_line_end(uint32_t code) {
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

enum status jinja_text_split_lines(struct run *r, struct value v, bool keep_ends,
                                   struct value *out) {
    struct str s = jinja_value_str(v);
    TRY(jinja_value_of_list(r, 0, out));
    for (size_t start = 0, at = 0; at < s.len;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        size_t line = at;
        at += len;
        bool ends = is_line_end(code);
        if (!ends && at < s.len) continue;
        TRY(jinja_run_steps(r, (at - start) / 64 + 1));
        if (code == '\r' && at < s.len && s.ptr[at] == '\n') at++;
        size_t end = !ends || keep_ends ? at : line;
        TRY(push_part(r, v, str_take(str_skip(s, start), end - start), out));
        start = at;
    }
    return ST_OK;
}

enum status jinja_str_splitlines(struct run *r, struct call *call, struct value *out) {
    return jinja_text_split_lines(r, call->self, jinja_arg_bool(call, 0, false), out);
}

static enum status partition(struct run *r, struct call *call, bool last, struct value *out) {
    struct str s = jinja_value_str(call->self), separator, parts[3];
    TRY(jinja_arg_text(r, call, 0, STR(""), &separator));
    if (!separator.len) return jinja_run_fail(r, "empty separator");
    TRY(jinja_run_search(r, s, separator));
    size_t at = last ? str_find_last(s, separator) : jinja_str_find(s, separator, 0);
    if (at != SIZE_MAX) {
        parts[0] = str_take(s, at);
        parts[1] = separator;
        parts[2] = str_skip(s, at + separator.len);
    } else {
        parts[0] = last ? STR("") : s;
        parts[1] = STR("");
        parts[2] = last ? s : STR("");
    }
    TRY(jinja_value_of_list(r, 3, out));
    out->type = V_TUPLE;
    for (int i = 0; i < 3; i++) TRY(push_part(r, call->self, parts[i], out));
    return ST_OK;
}

enum status jinja_str_partition(struct run *r, struct call *call, struct value *out) {
    return partition(r, call, false, out);
}
enum status jinja_str_rpartition(struct run *r, struct call *call, struct value *out) {
    return partition(r, call, true, out);
}

/* ------------------------------------------------------------------ replacing, joining */

/* An empty `from` matches before every character and at the end. */
static enum status put_between(struct run *r, struct str s, struct str to, int64_t count_max) {
    int64_t count = 0;
    while (count_max < 0 || count < count_max) {
        uint32_t code;
        TRY(jinja_run_steps(r, 1));
        buf_put_str(&r->work, to);
        count++;
        if (!s.len) break;
        size_t len = utf8_decode(s, &code);
        buf_put_str(&r->work, str_take(s, len));
        s = str_skip(s, len);
    }
    buf_put_str(&r->work, s);
    return ST_OK;
}

enum status jinja_text_replace(struct run *r, struct str s, struct str from, struct str to,
                               int64_t count_max, struct value *out) {
    size_t mark = r->work.len;
    TRY(jinja_run_search(r, s, from));
    if (!from.len) {
        TRY(put_between(r, s, to, count_max));
        return jinja_run_take(r, mark, out);
    }
    for (int64_t count = 0; count_max < 0 || count < count_max; count++) {
        size_t at = jinja_str_find(s, from, 0);
        if (at == SIZE_MAX) break;
        TRY(jinja_run_steps(r, 1));
        buf_put_str(&r->work, str_take(s, at));
        buf_put_str(&r->work, to);
        s = str_skip(s, at + from.len);
    }
    buf_put_str(&r->work, s);
    return jinja_run_take(r, mark, out);
}

enum status jinja_str_replace(struct run *r, struct call *call, struct value *out) {
    struct str from, to;
    int64_t count_max;
    bool markup = call->self.text->markup;
    TRY(jinja_arg_text(r, call, 0, STR(""), &from));
    TRY(jinja_arg_text(r, call, 1, STR(""), &to));
    TRY(jinja_arg_int(r, call, 2, -1, &count_max));
    if (markup) {
        struct value escaped;
        TRY(jinja_value_escaped(r, call->argv[1], &escaped));
        to = jinja_value_str(escaped);
    }
    TRY(jinja_text_replace(r, jinja_value_str(call->self), from, to, count_max, out));
    out->text->markup = markup;
    return ST_OK;
}

enum status jinja_str_join(struct run *r, struct call *call, struct value *out) {
    struct value list;
    struct str separator = jinja_value_str(call->self);
    bool markup = call->self.text->markup;
    TRY(jinja_iter_to_list(r, call->argv[0], &list));
    size_t mark = r->work.len;
    for (size_t i = 0; i < list.list->count; i++) {
        struct value item = list.list->items[i];
        if (i) buf_put_str(&r->work, separator);
        if (item.type != V_TEXT && !markup)
            return jinja_run_fail(r, "sequence item %zu: expected str instance, %s found", i,
                                  jinja_value_type_name(item));
        TRY(markup ? jinja_put_escaped(r, item) : jinja_put_str(r, item));
    }
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = markup;
    return ST_OK;
}

enum status jinja_str_format(struct run *r, struct call *call, struct value *out) {
    return jinja_format_braces(r, call->self, call->args, out);
}

enum status jinja_str_format_map(struct run *r, struct call *call, struct value *out) {
    struct value map = call->argv[0];
    if (map.type != V_DICT) return jinja_run_fail(r, "format_map() needs a mapping");
    struct args args = {.keyword_count = 0};
    args.keyword_names = jinja_run_alloc(r, map.dict->count, sizeof(struct str));
    args.keyword_values = jinja_run_alloc(r, map.dict->count, sizeof(struct value));
    if (!args.keyword_names || !args.keyword_values) return jinja_run_full(r);
    for (size_t i = 0; i < map.dict->count; i++) {
        if (map.dict->entries[i].key.type != V_TEXT) continue;
        args.keyword_names[args.keyword_count] = jinja_value_str(map.dict->entries[i].key);
        args.keyword_values[args.keyword_count++] = map.dict->entries[i].value;
    }
    return jinja_format_braces(r, call->self, &args, out);
}
