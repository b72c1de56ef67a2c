/* jinja/globals.c - the functions that every template can call by name. */
#include "base/utf8.h"
#include "jinja/template.h"
#include "jinja/run.h"
#include "jinja/value.h"

static enum status range_bounds(struct run *r, const struct args *args, int64_t bounds[3]) {
    size_t count = args->positional_count;
    if (args->keyword_count || count < 1 || count > 3)
        return jinja_run_fail(r, "range() takes 1 to 3 integers");
    bounds[0] = 0;
    bounds[2] = 1;
    for (size_t i = 0; i < count; i++) {
        struct value v = args->positional[i];
        if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
        if (!jinja_value_as_int(v, &bounds[count == 1 ? 1 : i]))
            return jinja_run_fail(r, "'%s' object cannot be interpreted as an integer",
                                  jinja_value_type_name(v));
    }
    if (bounds[2] == 0) return jinja_run_fail(r, "range() arg 3 must not be zero");
    return ST_OK;
}

static enum status call_range(struct run *r, struct call *call, struct value *out) {
    int64_t bounds[3];
    TRY(range_bounds(r, call->args, bounds));
    struct range *range = jinja_run_alloc(r, 1, sizeof(*range));
    if (!range) return jinja_run_full(r);
    *range = (struct range){.start = bounds[0], .stop = bounds[1], .step = bounds[2]};
    bool up = range->step > 0;
    uint64_t distance = 0, stride = up ? (uint64_t)range->step : 0 - (uint64_t)range->step;
    if (up && range->stop > range->start) distance = (uint64_t)range->stop - (uint64_t)range->start;
    if (!up && range->stop < range->start)
        distance = (uint64_t)range->start - (uint64_t)range->stop;
    uint64_t count = distance ? (distance - 1) / stride + 1 : 0;
    if (count > r->limits->range_max)
        return jinja_run_fail(r, "range too big: the sandbox allows %llu elements",
                              (unsigned long long)r->limits->range_max);
    range->count = (int64_t)count;
    *out = (struct value){.type = V_RANGE, .range = range};
    return ST_OK;
}

/* A pair of key and value from anything that has two elements. */
static enum status put_pair(struct run *r, struct dict *dict, struct value pair) {
    struct value list;
    TRY(jinja_iter_to_list(r, pair, &list));
    if (list.list->count != 2) return jinja_run_fail(r, "a dict is made of pairs");
    return jinja_dict_put(r, dict, list.list->items[0], list.list->items[1]);
}

static enum status fill_dict(struct run *r, struct dict *dict, struct value from) {
    if (from.type == V_DICT) {
        for (size_t i = 0; i < from.dict->count; i++)
            TRY(jinja_dict_put(r, dict, from.dict->entries[i].key, from.dict->entries[i].value));
        return ST_OK;
    }
    struct value list;
    TRY(jinja_iter_to_list(r, from, &list));
    for (size_t i = 0; i < list.list->count; i++) TRY(put_pair(r, dict, list.list->items[i]));
    return ST_OK;
}

static enum status call_dict(struct run *r, struct call *call, struct value *out) {
    const struct args *args = call->args;
    if (args->positional_count > 1) return jinja_run_fail(r, "dict expected at most 1 argument");
    TRY(jinja_value_of_dict(r, out));
    if (args->positional_count) TRY(fill_dict(r, out->dict, args->positional[0]));
    for (size_t i = 0; i < args->keyword_count; i++) {
        struct value key;
        TRY(jinja_value_text(r, args->keyword_names[i], &key));
        TRY(jinja_dict_put(r, out->dict, key, args->keyword_values[i]));
    }
    return ST_OK;
}

static enum status call_namespace(struct run *r, struct call *call, struct value *out) {
    TRY(call_dict(r, call, out));
    out->type = V_NAMESPACE;
    return ST_OK;
}

static enum status call_cycler(struct run *r, struct call *call, struct value *out) {
    const struct args *args = call->args;
    if (!args->positional_count || args->keyword_count)
        return jinja_run_fail(r, "cycler() needs at least one item");
    struct value copy;
    TRY(jinja_value_of_tuple(r, args->positional, args->positional_count, &copy));
    struct cycler *c = jinja_run_alloc(r, 1, sizeof(*c));
    if (!c) return jinja_run_full(r);
    *c = (struct cycler){copy.list->items, copy.list->count, 0};
    *out = (struct value){.type = V_CYCLER, .cycler = c};
    return ST_OK;
}

static enum status call_joiner(struct run *r, struct call *call, struct value *out) {
    struct joiner *j = jinja_run_alloc(r, 1, sizeof(*j));
    if (!j) return jinja_run_full(r);
    j->separator = call->argv[0];
    if (j->separator.type == V_MISSING) TRY(jinja_value_text(r, STR(", "), &j->separator));
    *out = (struct value){.type = V_JOINER, .joiner = j};
    return ST_OK;
}

static enum status call_raise(struct run *r, struct call *call, struct value *out) {
    size_t mark = r->work.len;
    *out = jinja_value_none();
    TRY(jinja_put_str(r, call->argv[0]));
    struct str text = {r->work.ptr ? r->work.ptr + mark : "", r->work.len - mark};
    return jinja_run_fail(r, "raise_exception: %.*s", STR_ARG(text));
}

static enum status call_strftime(struct run *r, struct call *call, struct value *out) {
    struct str format;
    size_t mark = r->work.len;
    TRY(jinja_arg_text(r, call, 0, STR(""), &format));
    TRY(jinja_put_time(r, format));
    return jinja_run_take(r, mark, out);
}

static enum status call_lipsum(struct run *r, struct call *call, struct value *out) {
    (void)call;
    *out = jinja_value_none();
    return jinja_run_fail(r, "lipsum() is random and therefore not available");
}

static const struct builtin globals[] = {
    {"range", "*", 0, call_range},
    {"dict", "*", 0, call_dict},
    {"namespace", "*", 0, call_namespace},
    {"cycler", "*", 0, call_cycler},
    {"joiner", "sep", 0, call_joiner},
    {"raise_exception", "message", 1, call_raise},
    {"strftime_now", "format", 1, call_strftime},
    {"lipsum", "*", 0, call_lipsum},
};

const struct builtin *jinja_global_find(struct str name) {
    return jinja_builtin_find(globals, sizeof(globals) / sizeof(globals[0]), name);
}
