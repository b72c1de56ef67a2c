/* jinja/filters_list.c - filters over lists, dicts and all other values that can be looped
 * over, and the sorting that they share. */
#include <string.h>

#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ sorting */

struct sorter {
    struct run *r;
    struct value *keys, *values;             /* in their present order */
    struct value *spare_keys, *spare_values; /* as many */
    bool reverse;
};

/* Whether key b must be sorted before key a, which precedes it now. */
static enum status is_before(struct sorter *s, size_t b, size_t a, bool *before) {
    int order;
    if (s->reverse) {
        TRY(jinja_value_order(s->r, s->keys[a], s->keys[b], "<", &order));
    } else {
        TRY(jinja_value_order(s->r, s->keys[b], s->keys[a], "<", &order));
    }
    *before = order < 0;
    return jinja_run_steps(s->r, 1);
}

/* Stable: an element of the right half overtakes only one that it is strictly before. */
static enum status merge(struct sorter *s, size_t low, size_t middle, size_t high) {
    size_t left = low, right = middle;
    for (size_t at = low; at < high; at++) {
        bool take_right = left == middle;
        if (left < middle && right < high) TRY(is_before(s, right, left, &take_right));
        size_t from = take_right ? right++ : left++;
        s->spare_keys[at] = s->keys[from];
        s->spare_values[at] = s->values[from];
    }
    memcpy(s->keys + low, s->spare_keys + low, (high - low) * sizeof(struct value));
    memcpy(s->values + low, s->spare_values + low, (high - low) * sizeof(struct value));
    return ST_OK;
}

enum status jinja_sort_values(struct run *r, struct list *values, const struct list *keys,
                              bool reverse) {
    size_t count = values->count;
    struct sorter s = {.r = r, .values = values->items, .reverse = reverse};
    if (count < 2) return ST_OK;
    s.keys = jinja_run_alloc(r, count, sizeof(struct value));
    s.spare_keys = jinja_run_alloc(r, count, sizeof(struct value));
    s.spare_values = jinja_run_alloc(r, count, sizeof(struct value));
    if (!s.keys || !s.spare_keys || !s.spare_values) return jinja_run_full(r);
    memcpy(s.keys, keys->items, count * sizeof(struct value));
    for (size_t width = 1; width < count; width *= 2)
        for (size_t low = 0; low + width < count; low += 2 * width) {
            size_t high = low + 2 * width < count ? low + 2 * width : count;
            TRY(merge(&s, low, low + width, high));
        }
    return ST_OK;
}

static enum status fold_case(struct run *r, struct value v, bool case_sensitive,
                             struct value *out) {
    struct call call = {.self = v};
    *out = v;
    if (case_sensitive || v.type != V_TEXT) return ST_OK;
    return jinja_str_lower(r, &call, out);
}

/* What a sort compares: a list with the value of each attribute named in "a,b.c". */
static enum status sort_key(struct run *r, struct value item, struct value attribute,
                            bool case_sensitive, struct value *out) {
    TRY(jinja_value_of_list(r, 1, out));
    struct str rest = attribute.type == V_TEXT ? jinja_value_str(attribute) : STR("");
    for (bool more = true; more;) {
        const char *comma = rest.len ? memchr(rest.ptr, ',', rest.len) : NULL;
        struct str part = comma ? str_take(rest, (size_t)(comma - rest.ptr)) : rest;
        struct value path = attribute, key;
        more = comma != NULL;
        rest = str_skip(rest, part.len + more);
        if (attribute.type == V_TEXT) TRY(jinja_value_text(r, part, &path));
        TRY(jinja_get_path(r, item, path, jinja_value_missing(), &key));
        TRY(fold_case(r, key, case_sensitive, &key));
        TRY(jinja_list_push(r, out->list, key));
    }
    return ST_OK;
}

enum status jinja_filter_sort(struct run *r, struct call *call, struct value *out) {
    struct value keys, key;
    bool case_sensitive = jinja_arg_bool(call, 1, false);
    TRY(jinja_iter_to_list(r, call->self, out));
    TRY(jinja_value_of_list(r, out->list->count, &keys));
    for (size_t i = 0; i < out->list->count; i++) {
        TRY(sort_key(r, out->list->items[i], call->argv[2], case_sensitive, &key));
        TRY(jinja_list_push(r, keys.list, key));
    }
    return jinja_sort_values(r, out->list, keys.list, jinja_arg_bool(call, 0, false));
}

enum status jinja_filter_dictsort(struct run *r, struct call *call, struct value *out) {
    struct str by;
    struct value keys, key;
    TRY(jinja_arg_text(r, call, 1, STR("key"), &by));
    bool by_value = str_is(by, "value");
    if (!by_value && !str_is(by, "key"))
        return jinja_run_fail(r, "you can only sort by either \"key\" or \"value\"");
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (call->self.type != V_DICT)
        return jinja_run_fail(r, "'%s' object has no attribute 'items'",
                              jinja_value_type_name(call->self));
    const struct dict *dict = call->self.dict;
    TRY(jinja_value_of_list(r, dict->count, out));
    TRY(jinja_value_of_list(r, dict->count, &keys));
    for (size_t i = 0; i < dict->count; i++) {
        const struct value pair[] = {dict->entries[i].key, dict->entries[i].value};
        TRY(fold_case(r, pair[by_value], jinja_arg_bool(call, 0, false), &key));
        TRY(jinja_list_push(r, keys.list, key));
        TRY(jinja_value_of_tuple(r, pair, 2, &key));
        TRY(jinja_list_push(r, out->list, key));
    }
    return jinja_sort_values(r, out->list, keys.list, jinja_arg_bool(call, 2, false));
}

static enum status push_group(struct run *r, struct value grouper, struct value first,
                              struct value *groups, struct value *members) {
    TRY(jinja_value_of_list(r, 0, members));
    TRY(jinja_list_push(r, members->list, first));
    const struct value pair[] = {grouper, *members};
    struct value group;
    TRY(jinja_value_of_tuple(r, pair, 2, &group));
    group.list->is_group = true;
    return jinja_list_push(r, groups->list, group);
}

/* Sorted by the attribute; neighbours with equal ones make a group. */
enum status jinja_filter_groupby(struct run *r, struct call *call, struct value *out) {
    struct value items, keys, key, members = jinja_value_missing();
    struct value fallback = jinja_arg_given(call, 1) ? call->argv[1] : jinja_value_missing();
    bool case_sensitive = jinja_arg_bool(call, 2, false);
    TRY(jinja_iter_to_list(r, call->self, &items));
    TRY(jinja_value_of_list(r, items.list->count, &keys));
    for (size_t i = 0; i < items.list->count; i++) {
        TRY(jinja_get_path(r, items.list->items[i], call->argv[0], fallback, &key));
        TRY(fold_case(r, key, case_sensitive, &key));
        TRY(jinja_list_push(r, keys.list, key));
    }
    TRY(jinja_sort_values(r, items.list, keys.list, false));
    TRY(jinja_value_of_list(r, 0, out));
    struct value previous = jinja_value_missing();
    for (size_t i = 0; i < items.list->count; i++) {
        struct value item = items.list->items[i], grouper;
        bool equal = false;
        TRY(jinja_get_path(r, item, call->argv[0], fallback, &grouper));
        TRY(fold_case(r, grouper, case_sensitive, &key));
        TRY(jinja_value_equal(r, key, previous, &equal));
        if (equal && members.type == V_LIST)
            TRY(jinja_list_push(r, members.list, item));
        else
            TRY(push_group(r, grouper, item, out, &members));
        previous = key;
    }
    return ST_OK;
}

static enum status extreme(struct run *r, struct call *call, int wanted, struct value *out) {
    struct iter *it = NULL;
    struct value item, key, best_key = jinja_value_missing();
    bool done, case_sensitive = jinja_arg_bool(call, 0, false);
    TRY(jinja_iter_open(r, call->self, &it));
    for (;;) {
        int order = wanted;
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done) break;
        TRY(jinja_get_path(r, item, call->argv[1], jinja_value_missing(), &key));
        TRY(fold_case(r, key, case_sensitive, &key));
        if (best_key.type != V_MISSING)
            TRY(jinja_value_order(r, key, best_key, wanted < 0 ? "<" : ">", &order));
        if (order * wanted <= 0) continue;
        best_key = key;
        *out = item;
    }
    if (best_key.type != V_MISSING) return ST_OK;
    return jinja_value_undefined(r, "no aggregated item, sequence was empty", out);
}

enum status jinja_filter_min(struct run *r, struct call *call, struct value *out) {
    return extreme(r, call, -1, out);
}
enum status jinja_filter_max(struct run *r, struct call *call, struct value *out) {
    return extreme(r, call, 1, out);
}

/* ------------------------------------------------------------------ ends and lengths */

enum status jinja_filter_first(struct run *r, struct call *call, struct value *out) {
    struct iter *it = NULL;
    bool done;
    TRY(jinja_iter_open(r, call->self, &it));
    TRY(jinja_iter_next(r, it, out, &done));
    return done ? jinja_value_undefined(r, "no first item, sequence was empty", out) : ST_OK;
}

enum status jinja_filter_last(struct run *r, struct call *call, struct value *out) {
    struct value reversed;
    bool possible, done;
    if (call->self.type == V_UNDEFINED)
        return jinja_value_undefined(r, "no last item, sequence was empty", out);
    TRY(jinja_iter_reversed(r, call->self, &reversed, &possible));
    if (!possible)
        return jinja_run_fail(r, "'%s' object is not reversible",
                              jinja_value_type_name(call->self));
    TRY(jinja_iter_next(r, reversed.iter, out, &done));
    return done ? jinja_value_undefined(r, "no last item, sequence was empty", out) : ST_OK;
}

enum status jinja_filter_length(struct run *r, struct call *call, struct value *out) {
    int64_t count;
    if (call->self.type == V_LOOP)
        TRY(jinja_loop_length(r, call->self.loop, &count));
    else if (!jinja_value_has_length(call->self, &count))
        return jinja_run_fail(r, "object of type '%s' has no len()",
                              jinja_value_type_name(call->self));
    *out = jinja_value_int(count);
    return ST_OK;
}

/* ------------------------------------------------------------------ other shapes */

enum status jinja_filter_list(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_to_list(r, call->self, out);
}

enum status jinja_filter_items(struct run *r, struct call *call, struct value *out) {
    if (call->self.type == V_UNDEFINED) return jinja_iter_of_lists(r, call->self, out);
    if (call->self.type != V_DICT)
        return jinja_run_fail(r, "can only get item pairs from a mapping");
    struct view *view = jinja_run_alloc(r, 1, sizeof(*view));
    if (!view) return jinja_run_full(r);
    *view = (struct view){call->self.dict, VIEW_ITEMS};
    return jinja_iter_of_lists(r, (struct value){.type = V_VIEW, .view = view}, out);
}

enum status jinja_filter_reverse(struct run *r, struct call *call, struct value *out) {
    bool possible;
    if (call->self.type == V_TEXT) {
        const struct value bounds[3] = {jinja_value_none(), jinja_value_none(),
                                        jinja_value_int(-1)};
        return jinja_get_slice(r, call->self, bounds, out);
    }
    if (call->self.type == V_UNDEFINED) return jinja_iter_of_lists(r, call->self, out);
    TRY(jinja_iter_reversed(r, call->self, out, &possible));
    if (possible) return ST_OK;
    struct value list;
    TRY(jinja_iter_to_list(r, call->self, &list));
    TRY(jinja_iter_reversed(r, list, out, &possible));
    return jinja_iter_to_list(r, *out, out);
}

enum status jinja_filter_batch(struct run *r, struct call *call, struct value *out) {
    int64_t size;
    TRY(jinja_arg_int(r, call, 0, 1, &size));
    return jinja_iter_batch(r, call->self, size, call->argv[1], out);
}

enum status jinja_filter_slice(struct run *r, struct call *call, struct value *out) {
    struct value items, lists, list;
    int64_t slices;
    TRY(jinja_arg_int(r, call, 0, 1, &slices));
    TRY(jinja_iter_to_list(r, call->self, &items));
    if (slices == 0) return jinja_run_fail(r, "integer division or modulo by zero");
    int64_t count = (int64_t)items.list->count;
    TRY(jinja_value_of_list(r, 0, &lists));
    for (int64_t i = 0, from = 0; i < slices; i++) {
        int64_t size = count / slices + (i < count % slices);
        TRY(jinja_run_steps(r, 1));
        TRY(jinja_value_of_list(r, 0, &list));
        for (int64_t k = 0; k < size; k++)
            TRY(jinja_list_push(r, list.list, items.list->items[from + k]));
        if (jinja_arg_given(call, 1) && i >= count % slices)
            TRY(jinja_list_push(r, list.list, call->argv[1]));
        TRY(jinja_list_push(r, lists.list, list));
        from += size;
    }
    return jinja_iter_of_lists(r, lists, out);
}

enum status jinja_filter_unique(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_unique(r, call->self, jinja_arg_bool(call, 0, false), call->argv[1], out);
}

enum status jinja_filter_sum(struct run *r, struct call *call, struct value *out) {
    struct iter *it = NULL;
    struct value item;
    bool done;
    *out = call->argv[1].type == V_MISSING ? jinja_value_int(0) : call->argv[1];
    if (out->type == V_TEXT) return jinja_run_fail(r, "sum() can't sum strings");
    TRY(jinja_iter_open(r, call->self, &it));
    for (;;) {
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done) return ST_OK;
        TRY(jinja_get_path(r, item, call->argv[0], jinja_value_missing(), &item));
        TRY(jinja_op_binary(r, T_ADD, *out, item, out));
    }
}

/* ------------------------------------------------------------------ map and select */

enum status jinja_filter_map(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_map(r, call->self, call->args, out);
}
enum status jinja_filter_select(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_select(r, call->self, call->args, (struct select_mode){false, false}, out);
}
enum status jinja_filter_reject(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_select(r, call->self, call->args, (struct select_mode){false, true}, out);
}
enum status jinja_filter_selectattr(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_select(r, call->self, call->args, (struct select_mode){true, false}, out);
}
enum status jinja_filter_rejectattr(struct run *r, struct call *call, struct value *out) {
    return jinja_iter_select(r, call->self, call->args, (struct select_mode){true, true}, out);
}
