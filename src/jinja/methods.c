/* jinja/methods.c - which methods each type of value has, and those of dicts, lists,
 * loops and the other small types. */
#include "jinja/methods.h"

#include <math.h>

#include "jinja/run.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ dicts */

static enum status dict_get(struct run *r, struct call *call, struct value *out) {
    struct value *found;
    TRY(jinja_dict_find(r, call->self.dict, call->argv[0], &found));
    *out = found ? *found : call->argv[1].type == V_MISSING ? jinja_value_none() : call->argv[1];
    return ST_OK;
}

static enum status make_view(struct run *r, struct call *call, enum view_kind kind,
                             struct value *out) {
    struct view *view = jinja_run_alloc(r, 1, sizeof(*view));
    if (!view) return jinja_run_full(r);
    *view = (struct view){call->self.dict, kind};
    *out = (struct value){.type = V_VIEW, .view = view};
    return ST_OK;
}

static enum status dict_items(struct run *r, struct call *call, struct value *out) {
    return make_view(r, call, VIEW_ITEMS, out);
}
static enum status dict_keys(struct run *r, struct call *call, struct value *out) {
    return make_view(r, call, VIEW_KEYS, out);
}
static enum status dict_values(struct run *r, struct call *call, struct value *out) {
    return make_view(r, call, VIEW_VALUES, out);
}

/* Nothing can change a dict or list, so a copy can share everything. */
static enum status copy_self(struct run *r, struct call *call, struct value *out) {
    (void)r;
    *out = call->self;
    return ST_OK;
}

/* ------------------------------------------------------------------ sequences */

static enum status sequence_index(struct run *r, struct call *call, struct value *out) {
    struct value list;
    int64_t start, end;
    TRY(jinja_iter_to_list(r, call->self, &list));
    int64_t count = (int64_t)list.list->count;
    TRY(jinja_arg_int(r, call, 1, 0, &start));
    TRY(jinja_arg_int(r, call, 2, count, &end));
    if (start < 0) start += count;
    if (start < 0) start = 0;
    if (end < 0) end += count;
    for (int64_t i = start; i < end && i < count; i++) {
        bool equal;
        TRY(jinja_value_equal(r, list.list->items[i], call->argv[0], &equal));
        if (!equal) continue;
        *out = jinja_value_int(i);
        return ST_OK;
    }
    return jinja_run_fail(r, "value is not in the %s", jinja_value_type_name(call->self));
}

static enum status sequence_count(struct run *r, struct call *call, struct value *out) {
    struct value list;
    int64_t count = 0;
    TRY(jinja_iter_to_list(r, call->self, &list));
    for (size_t i = 0; i < list.list->count; i++) {
        bool equal;
        TRY(jinja_value_equal(r, list.list->items[i], call->argv[0], &equal));
        count += equal;
    }
    *out = jinja_value_int(count);
    return ST_OK;
}

/* ------------------------------------------------------------------ numbers */

static enum status int_bit_length(struct run *r, struct call *call, struct value *out) {
    int64_t number = 0, bits = 0;
    (void)r;
    jinja_value_as_int(call->self, &number);
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    for (; magnitude; magnitude >>= 1) bits++;
    *out = jinja_value_int(bits);
    return ST_OK;
}

static enum status float_is_integer(struct run *r, struct call *call, struct value *out) {
    (void)r;
    *out = jinja_value_bool(isfinite(call->self.real) && floor(call->self.real) == call->self.real);
    return ST_OK;
}

/* ------------------------------------------------------------------ loops and cyclers */

static enum status loop_cycle(struct run *r, struct call *call, struct value *out) {
    size_t count = call->args->positional_count;
    if (!count || call->args->keyword_count) return jinja_run_fail(r, "no items for cycling given");
    *out = call->args->positional[(size_t)call->self.loop->idx % count];
    return ST_OK;
}

static enum status loop_changed(struct run *r, struct call *call, struct value *out) {
    struct loop *loop = call->self.loop;
    struct value now;
    bool equal;
    if (call->args->keyword_count) return jinja_run_fail(r, "changed() takes no keyword arguments");
    TRY(jinja_value_of_tuple(r, call->args->positional, call->args->positional_count, &now));
    TRY(jinja_value_equal(r, loop->changed, now, &equal));
    if (!equal) loop->changed = now;
    *out = jinja_value_bool(!equal);
    return ST_OK;
}

static enum status cycler_next(struct run *r, struct call *call, struct value *out) {
    struct cycler *c = call->self.cycler;
    (void)r;
    *out = c->items[c->pos];
    c->pos = (c->pos + 1) % c->count;
    return ST_OK;
}

static enum status cycler_reset(struct run *r, struct call *call, struct value *out) {
    (void)r;
    call->self.cycler->pos = 0;
    *out = jinja_value_none();
    return ST_OK;
}

/* ------------------------------------------------------------------ tables */

static const struct builtin text_methods[] = {
    {"capitalize", "", 0, jinja_str_capitalize},
    {"casefold", "", 0, jinja_str_casefold},
    {"center", "/width fillchar", 1, jinja_str_center},
    {"count", "/sub start end", 1, jinja_str_count},
    {"endswith", "/suffix start end", 1, jinja_str_endswith},
    {"expandtabs", "tabsize", 0, jinja_str_expandtabs},
    {"find", "/sub start end", 1, jinja_str_find_method},
    {"format", "*", 0, jinja_str_format},
    {"format_map", "/mapping", 1, jinja_str_format_map},
    {"index", "/sub start end", 1, jinja_str_index},
    {"isalnum", "", 0, jinja_str_isalnum},
    {"isalpha", "", 0, jinja_str_isalpha},
    {"isascii", "", 0, jinja_str_isascii},
    {"isdecimal", "", 0, jinja_str_isdecimal},
    {"isdigit", "", 0, jinja_str_isdigit},
    {"isidentifier", "", 0, jinja_str_isidentifier},
    {"islower", "", 0, jinja_str_islower},
    {"isnumeric", "", 0, jinja_str_isnumeric},
    {"isprintable", "", 0, jinja_str_isprintable},
    {"isspace", "", 0, jinja_str_isspace},
    {"istitle", "", 0, jinja_str_istitle},
    {"isupper", "", 0, jinja_str_isupper},
    {"join", "/iterable", 1, jinja_str_join},
    {"ljust", "/width fillchar", 1, jinja_str_ljust},
    {"lower", "", 0, jinja_str_lower},
    {"lstrip", "/chars", 0, jinja_str_lstrip},
    {"partition", "/sep", 1, jinja_str_partition},
    {"removeprefix", "/prefix", 1, jinja_str_removeprefix},
    {"removesuffix", "/suffix", 1, jinja_str_removesuffix},
    {"replace", "/old new count", 2, jinja_str_replace},
    {"rfind", "/sub start end", 1, jinja_str_rfind},
    {"rindex", "/sub start end", 1, jinja_str_rindex},
    {"rjust", "/width fillchar", 1, jinja_str_rjust},
    {"rpartition", "/sep", 1, jinja_str_rpartition},
    {"rsplit", "sep maxsplit", 0, jinja_str_rsplit},
    {"rstrip", "/chars", 0, jinja_str_rstrip},
    {"split", "sep maxsplit", 0, jinja_str_split},
    {"splitlines", "keepends", 0, jinja_str_splitlines},
    {"startswith", "/prefix start end", 1, jinja_str_startswith},
    {"strip", "/chars", 0, jinja_str_strip},
    {"swapcase", "", 0, jinja_str_swapcase},
    {"title", "", 0, jinja_str_title},
    {"upper", "", 0, jinja_str_upper},
    {"zfill", "/width", 1, jinja_str_zfill},
};

static const struct builtin dict_methods[] = {{"copy", "", 0, copy_self},
                                              {"get", "/key default", 1, dict_get},
                                              {"items", "", 0, dict_items},
                                              {"keys", "", 0, dict_keys},
                                              {"values", "", 0, dict_values}};

static const struct builtin list_methods[] = {{"copy", "", 0, copy_self},
                                              {"count", "/value", 1, sequence_count},
                                              {"index", "/value start stop", 1, sequence_index}};

static const struct builtin tuple_methods[] = {{"count", "/value", 1, sequence_count},
                                               {"index", "/value start stop", 1, sequence_index}};

static const struct builtin int_methods[] = {{"bit_length", "", 0, int_bit_length},
                                             {"conjugate", "", 0, copy_self}};
static const struct builtin float_methods[] = {{"is_integer", "", 0, float_is_integer},
                                               {"conjugate", "", 0, copy_self}};

static const struct builtin loop_methods[] = {{"cycle", "*", 0, loop_cycle},
                                              {"changed", "*", 0, loop_changed}};

static const struct builtin cycler_methods[] = {{"next", "", 0, cycler_next},
                                                {"reset", "", 0, cycler_reset}};

#define FIND_IN(table, name) jinja_builtin_find(table, sizeof(table) / sizeof((table)[0]), name)

const struct builtin *jinja_method_find(struct value self, struct str name) {
    switch (self.type) {
    case V_TEXT:
        return FIND_IN(text_methods, name);
    case V_DICT:
        return FIND_IN(dict_methods, name);
    case V_LIST:
        return FIND_IN(list_methods, name);
    case V_TUPLE:
    case V_RANGE:
        return FIND_IN(tuple_methods, name);
    case V_BOOL:
    case V_INT:
        return FIND_IN(int_methods, name);
    case V_FLOAT:
        return FIND_IN(float_methods, name);
    case V_LOOP:
        return FIND_IN(loop_methods, name);
    case V_CYCLER:
        return FIND_IN(cycler_methods, name);
    default:
        return NULL;
    }
}
