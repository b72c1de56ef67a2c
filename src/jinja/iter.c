/* jinja/iter.c - everything that can be looped over, one element at a time.
 *
 * Filters such as map and select are lazy, as in Python: they hold the iterator that they draw
 * from and compute each element when it is needed; an element is returned once.
 */
#include <string.h>

#include "base/utf8.h"
#include "jinja/run.h"
#include "jinja/value.h"

enum iter_kind {
    ITER_LIST,
    ITER_LIST_REVERSED,
    ITER_TEXT,
    ITER_VIEW,
    ITER_VIEW_REVERSED,
    ITER_RANGE,
    ITER_MAP_PATH,
    ITER_MAP_FILTER,
    ITER_SELECT,
    ITER_UNIQUE,
    ITER_BATCH,
    ITER_FOR, /* a loop with a filter: for x in y if z */
};

struct iter {
    enum iter_kind kind;
    size_t pos;
    struct value of;     /* the list, text, view or range */
    struct value source; /* of lazy ones: opened for the first element */
    struct iter *from;   /* and then drawn from */
    struct value path;   /* an attribute to look up, or V_MISSING */
    struct value fallback;
    struct value name; /* of the filter or test; V_MISSING: plain truth */
    struct args args;
    bool keep_false, case_sensitive;
    struct dict *seen;
    int64_t size;
    const struct for_parts *parts;
    struct frame *frame;
};

static enum status new_iter(struct run *r, enum iter_kind kind, struct iter **out) {
    *out = jinja_run_alloc(r, 1, sizeof(**out));
    if (!*out) return jinja_run_full(r);
    (*out)->kind = kind;
    return ST_OK;
}

static struct value value_of_iter(struct iter *it) {
    return (struct value){.type = V_ITER, .iter = it};
}

bool jinja_value_is_iterable(struct value v) {
    switch (v.type) {
    case V_UNDEFINED:
    case V_TEXT:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_ITER:
    case V_LOOP:
        return true;
    default:
        return false;
    }
}

static enum status view_of(struct run *r, struct dict *dict, enum view_kind kind,
                           struct value *out) {
    struct view *view = jinja_run_alloc(r, 1, sizeof(*view));
    if (!view) return jinja_run_full(r);
    *view = (struct view){dict, kind};
    *out = (struct value){.type = V_VIEW, .view = view};
    return ST_OK;
}

enum status jinja_iter_open(struct run *r, struct value v, struct iter **out) {
    enum iter_kind kind;
    switch (v.type) {
    case V_ITER:
        *out = v.iter;
        return ST_OK;
    case V_UNDEFINED:
        TRY(jinja_value_of_list(r, 0, &v));
        kind = ITER_LIST;
        break;
    case V_LIST:
    case V_TUPLE:
        kind = ITER_LIST;
        break;
    case V_TEXT:
        kind = ITER_TEXT;
        break;
    case V_DICT:
        TRY(view_of(r, v.dict, VIEW_KEYS, &v));
        kind = ITER_VIEW;
        break;
    case V_VIEW:
        kind = ITER_VIEW;
        break;
    case V_RANGE:
        kind = ITER_RANGE;
        break;
    default:
        return jinja_run_fail(r, "'%s' object is not iterable", jinja_value_type_name(v));
    }
    TRY(new_iter(r, kind, out));
    (*out)->of = v;
    return ST_OK;
}

/* ------------------------------------------------------------------ plain ones */

static enum status next_char(struct run *r, struct iter *it, struct value *out, bool *done) {
    struct str rest = str_skip(jinja_value_str(it->of), it->pos);
    *done = rest.len == 0;
    if (*done) return ST_OK;
    uint32_t code;
    size_t len = utf8_decode(rest, &code);
    it->pos += len;
    return jinja_value_text(r, str_take(rest, len), out); /* no longer marked as safe HTML */
}

static enum status next_entry(struct run *r, struct iter *it, struct value *out, bool *done) {
    const struct view *view = it->of.view;
    *done = it->pos >= view->dict->count;
    if (*done) return ST_OK;
    size_t idx = it->pos++;
    if (it->kind == ITER_VIEW_REVERSED) idx = view->dict->count - 1 - idx;
    const struct dict_entry *e = &view->dict->entries[idx];
    if (view->kind == VIEW_ITEMS) {
        const struct value pair[] = {e->key, e->value};
        return jinja_value_of_tuple(r, pair, 2, out);
    }
    *out = view->kind == VIEW_KEYS ? e->key : e->value;
    return ST_OK;
}

static void next_item(struct iter *it, struct value *out, bool *done) {
    const struct list *list = it->of.list;
    *done = it->pos >= list->count;
    if (*done) return;
    size_t idx = it->pos++;
    *out = list->items[it->kind == ITER_LIST ? idx : list->count - 1 - idx];
}

static void next_number(struct iter *it, struct value *out, bool *done) {
    const struct range *range = it->of.range;
    *done = (int64_t)it->pos >= range->count;
    if (!*done) *out = jinja_value_int(range->start + (int64_t)it->pos++ * range->step);
}

/* ------------------------------------------------------------------ lazy ones */

/* The next element of the source. map and select accept any false value, such as None, as an empty
 * source. */
static enum status draw(struct run *r, struct iter *it, struct value *out, bool *done) {
    if (!it->from) {
        bool skips_empty =
            it->kind == ITER_MAP_PATH || it->kind == ITER_MAP_FILTER || it->kind == ITER_SELECT;
        if (skips_empty && !jinja_value_is_true(it->source)) it->source.type = V_UNDEFINED;
        TRY(jinja_iter_open(r, it->source, &it->from));
    }
    return jinja_iter_next(r, it->from, out, done);
}

static enum status call_named(struct run *r, struct iter *it, bool is_filter, struct value item,
                              struct value *out) {
    const char *what = is_filter ? "filter" : "test";
    if (it->name.type == V_UNDEFINED) return jinja_run_fail_undefined(r, it->name);
    if (it->name.type != V_TEXT) return jinja_run_fail(r, "the name of a %s must be a str", what);
    struct str name = jinja_value_str(it->name);
    const struct builtin *def = is_filter ? jinja_filter_find(name) : jinja_test_find(name);
    if (!def) return jinja_run_fail(r, "no %s named '%.*s'", what, STR_ARG(name));
    return jinja_builtin_call(r, def, item, &it->args, out);
}

static enum status next_selected(struct run *r, struct iter *it, struct value *out, bool *done) {
    for (;;) {
        struct value item, judged;
        TRY(draw(r, it, &item, done));
        if (*done) return ST_OK;
        judged = item;
        if (it->path.type != V_MISSING)
            TRY(jinja_get_path(r, item, it->path, jinja_value_missing(), &judged));
        if (it->name.type != V_MISSING) TRY(call_named(r, it, false, judged, &judged));
        *out = item;
        if (jinja_value_is_true(judged) != it->keep_false) return ST_OK;
    }
}

static enum status lower_text(struct run *r, struct value v, struct value *out) {
    *out = v;
    if (v.type != V_TEXT) return ST_OK;
    const struct builtin *lower = jinja_filter_find(STR("lower"));
    const struct args none = {0};
    return jinja_builtin_call(r, lower, v, &none, out);
}

static enum status next_unique(struct run *r, struct iter *it, struct value *out, bool *done) {
    for (;;) {
        struct value key, *found;
        TRY(draw(r, it, out, done));
        if (*done) return ST_OK;
        key = *out;
        if (it->path.type != V_MISSING)
            TRY(jinja_get_path(r, key, it->path, jinja_value_missing(), &key));
        if (!it->case_sensitive) TRY(lower_text(r, key, &key));
        TRY(jinja_dict_find(r, it->seen, key, &found));
        if (found) continue;
        return jinja_dict_put(r, it->seen, key, jinja_value_none());
    }
}

static enum status next_batch(struct run *r, struct iter *it, struct value *out, bool *done) {
    struct value item;
    TRY(jinja_value_of_list(r, 0, out));
    for (;;) {
        TRY(draw(r, it, &item, done));
        if (*done) break;
        TRY(jinja_list_push(r, out->list, item));
        if ((int64_t)out->list->count == it->size) return ST_OK;
    }
    if (!out->list->count) return ST_OK;
    *done = false;
    while (it->fallback.type != V_MISSING && (int64_t)out->list->count < it->size)
        TRY(jinja_list_push(r, out->list, it->fallback));
    return ST_OK;
}

/* The value that the loop's target holds: of several names, a tuple of their values. */
static enum status target_value(struct run *r, const struct frame *f, const struct node *target,
                                struct value *out) {
    if (target->kind == N_NAME) {
        *out = f->slots[target->name.slot];
        return ST_OK;
    }
    TRY(jinja_value_of_list(r, target->list.count, out));
    out->type = V_TUPLE;
    for (uint32_t i = 0; i < target->list.count; i++) {
        struct value item;
        TRY(target_value(r, f, target->list.items[i], &item));
        TRY(jinja_list_push(r, out->list, item));
    }
    return ST_OK;
}

static enum status next_for(struct run *r, struct iter *it, struct value *out, bool *done) {
    for (;;) {
        struct value item, kept;
        TRY(draw(r, it, &item, done));
        if (*done) return ST_OK;
        TRY(jinja_assign(r, it->frame, it->parts->test_target, item));
        TRY(jinja_eval(r, it->frame, it->parts->test, &kept));
        if (jinja_value_is_true(kept))
            return target_value(r, it->frame, it->parts->test_target, out);
    }
}

static enum status next_lazy(struct run *r, struct iter *it, struct value *out, bool *done) {
    struct value item;
    switch (it->kind) {
    case ITER_MAP_PATH:
        TRY(draw(r, it, &item, done));
        return *done ? ST_OK : jinja_get_path(r, item, it->path, it->fallback, out);
    case ITER_MAP_FILTER:
        TRY(draw(r, it, &item, done));
        return *done ? ST_OK : call_named(r, it, true, item, out);
    case ITER_SELECT:
        return next_selected(r, it, out, done);
    case ITER_UNIQUE:
        return next_unique(r, it, out, done);
    case ITER_BATCH:
        return next_batch(r, it, out, done);
    default:
        return next_for(r, it, out, done);
    }
}

enum status jinja_iter_next(struct run *r, struct iter *it, struct value *out, bool *done) {
    TRY(jinja_run_steps(r, 1));
    switch (it->kind) {
    case ITER_LIST:
    case ITER_LIST_REVERSED:
        next_item(it, out, done);
        return ST_OK;
    case ITER_TEXT:
        return next_char(r, it, out, done);
    case ITER_VIEW:
    case ITER_VIEW_REVERSED:
        return next_entry(r, it, out, done);
    case ITER_RANGE:
        next_number(it, out, done);
        return ST_OK;
    default:
        TRY(jinja_run_enter(r));
        TRY(next_lazy(r, it, out, done));
        r->depth--;
        return ST_OK;
    }
}

/* ------------------------------------------------------------------ making them */

enum status jinja_iter_to_list(struct run *r, struct value v, struct value *out) {
    struct iter *it = NULL;
    struct value item;
    bool done;
    TRY(jinja_iter_open(r, v, &it));
    TRY(jinja_value_of_list(r, 0, out));
    for (;;) {
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done) return ST_OK;
        TRY(jinja_list_push(r, out->list, item));
    }
}

enum status jinja_iter_reversed(struct run *r, struct value v, struct value *out, bool *possible) {
    struct iter *it = NULL;
    *possible = true;
    if (v.type == V_RANGE) { /* the same numbers from the other end */
        struct range *back = jinja_run_alloc(r, 1, sizeof(*back));
        if (!back) return jinja_run_full(r);
        const struct range *range = v.range;
        back->count = range->count;
        back->start = range->count ? range->start + (range->count - 1) * range->step : 0;
        back->step = -range->step;
        v.range = back;
        TRY(jinja_iter_open(r, v, &it));
    } else if (v.type == V_LIST || v.type == V_TUPLE || v.type == V_TEXT) {
        bool markup = v.type == V_TEXT && v.text->markup;
        if (v.type == V_TEXT) TRY(jinja_iter_to_list(r, v, &v));
        for (size_t i = 0; markup && i < v.list->count; i++) v.list->items[i].text->markup = true;
        TRY(new_iter(r, ITER_LIST_REVERSED, &it));
        it->of = v;
    } else if (v.type == V_DICT || v.type == V_VIEW) {
        if (v.type == V_DICT) TRY(view_of(r, v.dict, VIEW_KEYS, &v));
        TRY(new_iter(r, ITER_VIEW_REVERSED, &it));
        it->of = v;
    } else {
        *possible = false;
        return ST_OK;
    }
    *out = value_of_iter(it);
    return ST_OK;
}

/* `args` belongs to a call that is over before the iterator is used. */
static enum status keep_args(struct run *r, const struct args *args, size_t skip,
                             struct args *out) {
    *out = (struct args){.keyword_count = args->keyword_count};
    if (args->positional_count > skip) out->positional_count = args->positional_count - skip;
    out->positional = jinja_run_alloc(r, out->positional_count, sizeof(struct value));
    out->keyword_names = jinja_run_alloc(r, args->keyword_count, sizeof(struct str));
    out->keyword_values = jinja_run_alloc(r, args->keyword_count, sizeof(struct value));
    if (!out->positional || !out->keyword_names || !out->keyword_values) return jinja_run_full(r);
    for (size_t i = 0; i < out->positional_count; i++)
        out->positional[i] = args->positional[i + skip];
    for (size_t i = 0; i < args->keyword_count; i++) {
        out->keyword_names[i] = args->keyword_names[i];
        out->keyword_values[i] = args->keyword_values[i];
    }
    return ST_OK;
}

static enum status map_by_path(struct run *r, struct value v, const struct args *args,
                               struct value *out) {
    struct iter *it = NULL;
    TRY(new_iter(r, ITER_MAP_PATH, &it));
    it->source = v;
    for (size_t i = 0; i < args->keyword_count; i++) {
        struct str name = args->keyword_names[i];
        if (str_is(name, "attribute"))
            it->path = args->keyword_values[i];
        else if (str_is(name, "default"))
            it->fallback = args->keyword_values[i];
        else
            return jinja_run_fail(r, "map() got an unexpected keyword argument '%.*s'",
                                  STR_ARG(name));
    }
    if (it->fallback.type == V_NONE) it->fallback = jinja_value_missing();
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_map(struct run *r, struct value v, const struct args *args,
                           struct value *out) {
    bool by_path = false;
    for (size_t i = 0; i < args->keyword_count; i++)
        by_path = by_path || str_is(args->keyword_names[i], "attribute");
    if (by_path && !args->positional_count) return map_by_path(r, v, args, out);
    struct iter *it = NULL;
    TRY(new_iter(r, ITER_MAP_FILTER, &it));
    it->source = v;
    if (!args->positional_count) /* an error only when the first element is needed */
        TRY(jinja_value_undefined(r, "map() needs the name of a filter", &it->name));
    else
        it->name = args->positional[0];
    TRY(keep_args(r, args, 1, &it->args));
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_select(struct run *r, struct value v, const struct args *args,
                              struct select_mode mode, struct value *out) {
    struct iter *it = NULL;
    size_t used = 0;
    TRY(new_iter(r, ITER_SELECT, &it));
    it->source = v;
    it->keep_false = mode.keep_false;
    if (mode.by_attribute) {
        if (!args->positional_count) return jinja_run_fail(r, "missing the name of an attribute");
        it->path = args->positional[used++];
    }
    if (args->positional_count > used) it->name = args->positional[used++];
    TRY(keep_args(r, args, used, &it->args));
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_unique(struct run *r, struct value v, bool case_sensitive,
                              struct value attribute, struct value *out) {
    struct iter *it = NULL;
    struct value seen;
    TRY(new_iter(r, ITER_UNIQUE, &it));
    TRY(jinja_value_of_dict(r, &seen));
    it->source = v;
    it->seen = seen.dict;
    it->case_sensitive = case_sensitive;
    if (attribute.type != V_NONE) it->path = attribute;
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_batch(struct run *r, struct value v, int64_t size, struct value fill,
                             struct value *out) {
    struct iter *it = NULL;
    TRY(new_iter(r, ITER_BATCH, &it));
    it->source = v;
    it->size = size;
    if (fill.type != V_NONE) it->fallback = fill;
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_of_lists(struct run *r, struct value list, struct value *out) {
    struct iter *it = NULL;
    TRY(jinja_iter_open(r, list, &it));
    *out = value_of_iter(it);
    return ST_OK;
}

enum status jinja_iter_filtered(struct run *r, struct value v, const struct for_parts *parts,
                                struct frame *outer, struct iter **out) {
    TRY(new_iter(r, ITER_FOR, out));
    (*out)->source = v;
    (*out)->parts = parts;
    TRY(jinja_frame_open(r, outer, parts->test_scope, &(*out)->frame));
    TRY(jinja_frame_load(r, (*out)->frame));
    return jinja_iter_open(r, v, &(*out)->from);
}
