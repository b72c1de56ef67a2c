/* jinja/attr.c - looking inside values: a.b, a['b'], a[1:2], and dotted paths.
 *
 * `a.b` looks for a method or property of the value first and for an element second; `a['b']`
 * the other way round. What is not there is undefined, not an error; looking inside an
 * undefined value is one. The sandbox gives an undefined value for attributes that would reach
 * Python's machinery or change a list or dict; calling it is an error.
 */
#include <string.h>

#include "base/utf8.h"
#include "jinja/run.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ the sandbox */

/* Methods that change what they belong to. */
static const char *const list_changers[] = {"append", "clear", "pop",    "reverse",
                                            "insert", "sort",  "extend", "remove"};
static const char *const dict_changers[] = {"clear", "pop", "popitem", "setdefault", "update"};

static bool is_listed(const char *const *list, size_t count, struct str name) {
    for (size_t i = 0; i < count; i++)
        if (str_is(name, list[i])) return true;
    return false;
}

/* Attributes that every Python object has. */
static bool is_python_internal(struct str name) {
    static const char *const names[] = {"__class__",        "__init__",
                                        "__doc__",          "__eq__",
                                        "__ne__",           "__lt__",
                                        "__le__",           "__gt__",
                                        "__ge__",           "__hash__",
                                        "__str__",          "__repr__",
                                        "__dir__",          "__format__",
                                        "__reduce__",       "__new__",
                                        "__sizeof__",       "__delattr__",
                                        "__setattr__",      "__getattribute__",
                                        "__reduce_ex__",    "__init_subclass__",
                                        "__subclasshook__", "__len__",
                                        "__iter__",         "__getitem__",
                                        "__contains__"};
    return is_listed(names, sizeof(names) / sizeof(names[0]), name);
}

static bool is_unsafe(struct value of, struct str name) {
    if (is_python_internal(name)) return true;
    if (of.type == V_LIST)
        return is_listed(list_changers, sizeof(list_changers) / sizeof(list_changers[0]), name);
    if (of.type == V_DICT)
        return is_listed(dict_changers, sizeof(dict_changers) / sizeof(dict_changers[0]), name);
    return false;
}

static enum status unsafe_undefined(struct run *r, struct value of, struct str name,
                                    struct value *out) {
    size_t mark = r->work.len;
    struct value hint;
    buf_printf(&r->work, "access to attribute '%.*s' of '%s' object is unsafe", STR_ARG(name),
               jinja_value_type_name(of));
    TRY(jinja_run_take(r, mark, &hint));
    TRY(jinja_value_undefined(r, NULL, out));
    out->undefined->hint = jinja_value_str(hint);
    return ST_OK;
}

/* ------------------------------------------------------------------ attributes */

static enum status cycler_attribute(struct run *r, struct cycler *c, struct str name,
                                    struct value *out) {
    if (str_is(name, "current")) *out = c->items[c->pos];
    if (str_is(name, "pos")) *out = jinja_value_int((int64_t)c->pos);
    if (str_is(name, "items")) return jinja_value_of_tuple(r, c->items, c->count, out);
    return ST_OK;
}

static enum status macro_attribute(struct run *r, const struct macro *m, struct str name,
                                   struct value *out) {
    if (str_is(name, "catch_kwargs")) *out = jinja_value_bool(m->takes_kwargs);
    if (str_is(name, "catch_varargs")) *out = jinja_value_bool(m->takes_varargs);
    if (str_is(name, "caller")) *out = jinja_value_bool(m->takes_caller);
    if (str_is(name, "name") && !m->name.len) *out = jinja_value_none();
    if (str_is(name, "name") && m->name.len) return jinja_value_text(r, m->name, out);
    if (!str_is(name, "arguments")) return ST_OK;
    TRY(jinja_value_of_list(r, m->params.count, out));
    out->type = V_TUPLE;
    for (uint32_t i = 0; i < m->params.count; i++) {
        struct value item;
        TRY(jinja_value_text(r, m->params.items[i]->name.name, &item));
        TRY(jinja_list_push(r, out->list, item));
    }
    return ST_OK;
}

static void range_attribute(const struct range *range, struct str name, struct value *out) {
    if (str_is(name, "start")) *out = jinja_value_int(range->start);
    if (str_is(name, "stop")) *out = jinja_value_int(range->stop);
    if (str_is(name, "step")) *out = jinja_value_int(range->step);
}

static void number_attribute(struct value of, struct str name, struct value *out) {
    bool is_float = of.type == V_FLOAT;
    int64_t whole = 0;
    jinja_value_as_int(of, &whole);
    if (str_is(name, "real")) *out = is_float ? of : jinja_value_int(whole);
    if (str_is(name, "imag")) *out = is_float ? jinja_value_float(0) : jinja_value_int(0);
    if (is_float) return;
    if (str_is(name, "numerator")) *out = jinja_value_int(whole);
    if (str_is(name, "denominator")) *out = jinja_value_int(1);
}

/* Properties, which are not called. *out stays V_MISSING where there is none. */
static enum status property(struct run *r, struct value of, struct str name, struct value *out) {
    switch (of.type) {
    case V_BOOL:
    case V_INT:
    case V_FLOAT:
        number_attribute(of, name, out);
        return ST_OK;
    case V_TUPLE:
        if (of.list->is_group && str_is(name, "grouper")) *out = of.list->items[0];
        if (of.list->is_group && str_is(name, "list")) *out = of.list->items[1];
        return ST_OK;
    case V_RANGE:
        range_attribute(of.range, name, out);
        return ST_OK;
    case V_LOOP:
        return jinja_loop_attribute(r, of.loop, name, out);
    case V_MACRO:
        return macro_attribute(r, of.macro->macro, name, out);
    case V_CYCLER:
        return cycler_attribute(r, of.cycler, name, out);
    case V_JOINER:
        if (str_is(name, "sep")) *out = of.joiner->separator;
        if (str_is(name, "used")) *out = jinja_value_bool(of.joiner->used);
        return ST_OK;
    default:
        return ST_OK;
    }
}

/* What getattr() finds: a property or a method. *out is V_MISSING where there is none. */
static enum status own_attribute(struct run *r, struct value of, struct str name,
                                 struct value *out) {
    *out = jinja_value_missing();
    if (of.type == V_UNDEFINED && is_python_internal(name))
        return unsafe_undefined(r, of, name, out);
    if (of.type == V_UNDEFINED) return jinja_run_fail_undefined(r, of);
    if (of.type == V_NAMESPACE) {
        struct value *found;
        TRY(jinja_dict_find_str(r, of.dict, name, &found));
        if (found && name.len && name.ptr[0] == '_') return unsafe_undefined(r, of, name, out);
        if (found) *out = *found;
        return ST_OK;
    }
    if (is_unsafe(of, name)) return unsafe_undefined(r, of, name, out);
    TRY(property(r, of, name, out));
    if (out->type != V_MISSING) return ST_OK;
    const struct builtin *def = jinja_method_find(of, name);
    if (!def) return ST_OK;
    struct method *method = jinja_run_alloc(r, 1, sizeof(*method));
    if (!method) return jinja_run_full(r);
    *method = (struct method){of, def};
    *out = (struct value){.type = V_METHOD, .method = method};
    return ST_OK;
}

enum status jinja_get_own_attribute(struct run *r, struct value of, struct str name,
                                    struct value *out) {
    TRY(own_attribute(r, of, name, out));
    if (out->type != V_MISSING) return ST_OK;
    struct value key;
    TRY(jinja_value_text(r, name, &key));
    return jinja_value_undefined_name(r, jinja_value_type_name(of), key, out);
}

/* ------------------------------------------------------------------ elements */

static enum status text_char(struct run *r, struct text *text, int64_t idx, struct value *out) {
    size_t from = jinja_text_offset(text, idx);
    uint32_t code;
    struct str rest = str_skip(text->bytes, from);
    TRY(jinja_run_steps(r, from / 64));
    TRY(jinja_value_text(r, str_take(rest, utf8_decode(rest, &code)), out));
    out->text->markup = text->markup;
    return ST_OK;
}

/* A tuple inside a tuple counts as not hashable, so that the recursion ends after one level. */
static bool is_hashable(struct value v) {
    if (v.type != V_TUPLE) return v.type != V_LIST && v.type != V_DICT && v.type != V_VIEW;
    for (size_t i = 0; i < v.list->count; i++)
        if (v.list->items[i].type == V_TUPLE || !is_hashable(v.list->items[i])) return false;
    return true;
}

/* What obj[key] finds. *out is V_MISSING where Python raises a lookup or type error. */
static enum status element(struct run *r, struct value of, struct value key, struct value *out) {
    int64_t idx, count;
    *out = jinja_value_missing();
    if (of.type == V_UNDEFINED) return jinja_run_fail_undefined(r, of);
    if (of.type == V_DICT) {
        struct value *found = NULL;
        if (is_hashable(key)) TRY(jinja_dict_find(r, of.dict, key, &found));
        if (found) *out = *found;
        return ST_OK;
    }
    bool is_sequence =
        of.type == V_LIST || of.type == V_TUPLE || of.type == V_TEXT || of.type == V_RANGE;
    if (!is_sequence || !jinja_value_as_int(key, &idx)) return ST_OK;
    if (!jinja_value_has_length(of, &count)) return ST_OK;
    if (idx < 0) idx += count;
    if (idx < 0 || idx >= count) return ST_OK;
    if (of.type == V_TEXT) return text_char(r, of.text, idx, out);
    *out = of.type == V_RANGE ? jinja_value_int(of.range->start + idx * of.range->step)
                              : of.list->items[idx];
    return ST_OK;
}

enum status jinja_get_attribute(struct run *r, struct value of, struct value name,
                                struct value *out) {
    TRY(own_attribute(r, of, jinja_value_str(name), out));
    if (out->type != V_MISSING) return ST_OK;
    TRY(element(r, of, name, out));
    if (out->type != V_MISSING) return ST_OK;
    return jinja_value_undefined_name(r, jinja_value_type_name(of), name, out);
}

enum status jinja_get_item(struct run *r, struct value of, struct value key, struct value *out) {
    TRY(element(r, of, key, out));
    if (out->type == V_MISSING && key.type == V_TEXT)
        TRY(own_attribute(r, of, jinja_value_str(key), out));
    if (out->type != V_MISSING) return ST_OK;
    return jinja_value_undefined_name(r, jinja_value_type_name(of), key, out);
}

/* ------------------------------------------------------------------ paths */

static bool is_all_digits(struct str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
    return s.len > 0;
}

static enum status path_step(struct run *r, struct value key, struct value fallback,
                             struct value *at) {
    TRY(jinja_get_item(r, *at, key, at));
    if (at->type == V_UNDEFINED && fallback.type != V_MISSING) *at = fallback;
    return ST_OK;
}

enum status jinja_get_path(struct run *r, struct value of, struct value path, struct value fallback,
                           struct value *out) {
    *out = of;
    if (path.type == V_NONE || path.type == V_MISSING) return ST_OK;
    if (path.type != V_TEXT) return path_step(r, path, fallback, out);
    struct str rest = jinja_value_str(path);
    for (bool more = true; more;) {
        const char *dot = rest.len ? memchr(rest.ptr, '.', rest.len) : NULL;
        struct str part = dot ? str_take(rest, (size_t)(dot - rest.ptr)) : rest;
        more = dot != NULL;
        rest = str_skip(rest, part.len + more);
        struct value key;
        int64_t number;
        if (is_all_digits(part) && str_to_i64(part, &number))
            key = jinja_value_int(number);
        else
            TRY(jinja_value_text(r, part, &key));
        TRY(path_step(r, key, fallback, out));
    }
    return ST_OK;
}

/* ------------------------------------------------------------------ slices */

struct slice {
    int64_t start, step, count;
};

static enum status bound(struct run *r, struct value v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.type == V_MISSING || v.type == V_NONE || jinja_value_as_int(v, out)) return ST_OK;
    if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
    return jinja_run_fail(r, "slice indices must be integers or None");
}

static int64_t clamp(int64_t i, int64_t count, int64_t low, int64_t high) {
    if (i < 0) i += count;
    return i < low ? low : i > high ? high : i;
}

static enum status resolve_slice(struct run *r, const struct value bounds[3], int64_t count,
                                 struct slice *out) {
    int64_t step, start, stop;
    TRY(bound(r, bounds[2], 1, &step));
    if (step == 0) return jinja_run_fail(r, "slice step cannot be zero");
    if (step < -INT64_MAX) step = -INT64_MAX;
    bool back = step < 0;
    int64_t low = back ? -1 : 0, high = back ? count - 1 : count;
    TRY(bound(r, bounds[0], 0, &start));
    TRY(bound(r, bounds[1], 0, &stop));
    bool has_start = bounds[0].type != V_MISSING && bounds[0].type != V_NONE;
    bool has_stop = bounds[1].type != V_MISSING && bounds[1].type != V_NONE;
    start = has_start ? clamp(start, count, low, high) : (back ? high : low);
    stop = has_stop ? clamp(stop, count, low, high) : (back ? low : high);
    int64_t distance = back ? start - stop : stop - start;
    int64_t stride = back ? -step : step;
    *out = (struct slice){start, step, distance > 0 ? (distance - 1) / stride + 1 : 0};
    return ST_OK;
}

static enum status slice_text(struct run *r, struct text *text, struct slice slice,
                              struct value *out) {
    if (slice.step == 1 && slice.count) { /* a borrowed part */
        size_t from = jinja_text_offset(text, slice.start);
        size_t to = jinja_text_offset(text, slice.start + slice.count);
        TRY(jinja_run_steps(r, to / 64));
        TRY(jinja_value_text(r, str_take(str_skip(text->bytes, from), to - from), out));
    } else {
        size_t mark = r->work.len;
        struct value chars;
        TRY(jinja_iter_to_list(r, (struct value){.type = V_TEXT, .text = text}, &chars));
        for (int64_t i = 0; i < slice.count; i++)
            buf_put_str(&r->work, jinja_value_str(chars.list->items[slice.start + i * slice.step]));
        TRY(jinja_run_take(r, mark, out));
    }
    out->text->markup = text->markup;
    return ST_OK;
}

static enum status slice_list(struct run *r, struct value of, struct slice slice,
                              struct value *out) {
    TRY(jinja_value_of_list(r, (size_t)slice.count, out));
    out->type = of.type;
    TRY(jinja_run_steps(r, (uint64_t)slice.count));
    for (int64_t i = 0; i < slice.count; i++)
        TRY(jinja_list_push(r, out->list, of.list->items[slice.start + i * slice.step]));
    return ST_OK;
}

static enum status slice_range(struct run *r, const struct range *range, struct slice slice,
                               struct value *out) {
    struct range *part = jinja_run_alloc(r, 1, sizeof(*part));
    if (!part) return jinja_run_full(r);
    part->start = range->start + slice.start * range->step;
    part->count = slice.count;
    if (__builtin_mul_overflow(range->step, slice.step, &part->step)) part->step = INT64_MAX;
    if (__builtin_mul_overflow(part->step, slice.count, &part->stop) ||
        __builtin_add_overflow(part->stop, part->start, &part->stop))
        part->stop = INT64_MAX;
    *out = (struct value){.type = V_RANGE, .range = part};
    return ST_OK;
}

enum status jinja_get_slice(struct run *r, struct value of, const struct value bounds[3],
                            struct value *out) {
    struct slice slice = {0};
    int64_t count;
    if (of.type == V_UNDEFINED) return jinja_run_fail_undefined(r, of);
    bool is_list = of.type == V_LIST || of.type == V_TUPLE;
    if (!is_list && of.type != V_TEXT && of.type != V_RANGE)
        return jinja_run_fail(r, "'%s' object cannot be sliced", jinja_value_type_name(of));
    if (!jinja_value_has_length(of, &count)) return jinja_run_fail(r, "cannot be sliced");
    TRY(resolve_slice(r, bounds, count, &slice));
    if (of.type == V_TEXT) return slice_text(r, of.text, slice, out);
    if (of.type == V_RANGE) return slice_range(r, of.range, slice, out);
    return slice_list(r, of, slice, out);
}
