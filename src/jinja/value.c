/* jinja/value.c - creating and inspecting values. See jinja/value.h.
 *
 * Entry points, in order: constructors; lists and dicts; inspection; texts by character.
 * Equality, order and hashing are in compare.c.
 */
#include "jinja/value.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/utf8.h"
#include "jinja/run.h"

enum { DICT_INDEX_FROM = 8, DICT_COUNT_MAX = 1 << 30 };

/* ------------------------------------------------------------------ constructors */

struct value jinja_value_missing(void) {
    return (struct value){.type = V_MISSING};
}
struct value jinja_value_none(void) {
    return (struct value){.type = V_NONE};
}
struct value jinja_value_bool(bool truth) {
    return (struct value){.type = V_BOOL, .truth = truth};
}
struct value jinja_value_int(int64_t i) {
    return (struct value){.type = V_INT, .integer = i};
}
struct value jinja_value_float(double real) {
    return (struct value){.type = V_FLOAT, .real = real};
}

struct text *jinja_text_in_arena(struct arena *arena, struct str bytes) {
    struct text *text = arena_alloc(arena, sizeof(*text));
    if (!text) return NULL;
    *text = (struct text){.bytes = bytes, .chars = CHARS_UNKNOWN};
    return text;
}

enum status jinja_value_text(struct run *r, struct str bytes, struct value *out) {
    struct text *text = jinja_text_in_arena(r->arena, bytes);
    if (!text) return jinja_run_full(r);
    *out = (struct value){.type = V_TEXT, .text = text};
    return ST_OK;
}

enum status jinja_value_text_copy(struct run *r, struct str bytes, struct value *out) {
    TRY(jinja_run_steps(r, bytes.len / 64));
    struct str copy = arena_dup(r->arena, bytes);
    if (!copy.ptr) return jinja_run_full(r);
    return jinja_value_text(r, copy, out);
}

enum status jinja_value_of_list(struct run *r, size_t cap, struct value *out) {
    struct list *list = jinja_run_alloc(r, 1, sizeof(*list));
    if (!list) return jinja_run_full(r);
    if (cap) {
        list->items = jinja_run_alloc(r, cap, sizeof(struct value));
        if (!list->items) return jinja_run_full(r);
    }
    list->cap = cap;
    *out = (struct value){.type = V_LIST, .list = list};
    return ST_OK;
}

enum status jinja_value_of_tuple(struct run *r, const struct value *items, size_t count,
                                 struct value *out) {
    TRY(jinja_value_of_list(r, count, out));
    out->type = V_TUPLE;
    if (count) memcpy(out->list->items, items, count * sizeof(*items));
    out->list->count = count;
    return ST_OK;
}

enum status jinja_value_of_dict(struct run *r, struct value *out) {
    struct dict *dict = jinja_run_alloc(r, 1, sizeof(*dict));
    if (!dict) return jinja_run_full(r);
    *out = (struct value){.type = V_DICT, .dict = dict};
    return ST_OK;
}

enum status jinja_value_undefined(struct run *r, const char *hint, struct value *out) {
    struct undefined *u = jinja_run_alloc(r, 1, sizeof(*u));
    if (!u) return jinja_run_full(r);
    u->hint = str_of(hint);
    *out = (struct value){.type = V_UNDEFINED, .undefined = u};
    return ST_OK;
}

enum status jinja_value_undefined_name(struct run *r, const char *owner, struct value name,
                                       struct value *out) {
    TRY(jinja_value_undefined(r, NULL, out));
    out->undefined->owner = owner;
    out->undefined->name = name;
    return ST_OK;
}

/* ------------------------------------------------------------------ lists and dicts */

enum status jinja_list_push(struct run *r, struct list *list, struct value item) {
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        struct value *grown = jinja_run_alloc(r, cap, sizeof(*grown));
        if (!grown) return jinja_run_full(r);
        if (list->count) memcpy(grown, list->items, list->count * sizeof(*grown));
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count++] = item;
    return ST_OK;
}

static void index_add(struct dict *dict, size_t entry) {
    size_t mask = dict->index_cap - 1;
    size_t at = dict->entries[entry].hash & mask;
    while (dict->index[at]) at = (at + 1) & mask;
    dict->index[at] = (uint32_t)entry + 1;
}

static enum status dict_grow(struct run *r, struct dict *dict) {
    size_t cap = dict->cap ? dict->cap * 2 : 4;
    if (cap > DICT_COUNT_MAX) return jinja_run_full(r);
    struct dict_entry *grown = jinja_run_alloc(r, cap, sizeof(*grown));
    if (!grown) return jinja_run_full(r);
    if (dict->count) memcpy(grown, dict->entries, dict->count * sizeof(*grown));
    dict->entries = grown;
    dict->cap = cap;
    if (cap <= DICT_INDEX_FROM) return ST_OK;
    dict->index_cap = cap * 2;
    dict->index = jinja_run_alloc(r, dict->index_cap, sizeof(*dict->index));
    if (!dict->index) return jinja_run_full(r);
    for (size_t i = 0; i < dict->count; i++) index_add(dict, i);
    return ST_OK;
}

static enum status entry_matches(struct run *r, const struct dict_entry *e, struct value key,
                                 uint64_t hash, bool *matches) {
    *matches = false;
    return e->hash == hash ? jinja_value_equal(r, e->key, key, matches) : ST_OK;
}

/* Keys come from clients, who can choose ones that meet at one place of the index, so each look is
 * charged. */
static enum status find_hashed(struct run *r, const struct dict *dict, struct value key,
                               uint64_t hash, struct value **found) {
    bool matches;
    *found = NULL;
    if (!dict->index) {
        for (size_t i = 0; i < dict->count; i++) {
            TRY(entry_matches(r, &dict->entries[i], key, hash, &matches));
            if (!matches) continue;
            *found = &dict->entries[i].value;
            break;
        }
        return ST_OK;
    }
    size_t mask = dict->index_cap - 1;
    uint64_t looks = 0;
    for (size_t at = hash & mask; dict->index[at]; at = (at + 1) & mask) {
        struct dict_entry *e = &dict->entries[dict->index[at] - 1];
        looks++;
        TRY(entry_matches(r, e, key, hash, &matches));
        if (!matches) continue;
        *found = &e->value;
        break;
    }
    return jinja_run_steps(r, looks > 1 ? looks - 1 : 0);
}

enum status jinja_dict_find(struct run *r, const struct dict *dict, struct value key,
                            struct value **found) {
    uint64_t hash;
    TRY(jinja_value_hash(r, key, &hash));
    return find_hashed(r, dict, key, hash, found);
}

enum status jinja_dict_put(struct run *r, struct dict *dict, struct value key, struct value value) {
    uint64_t hash;
    struct value *found;
    TRY(jinja_value_hash(r, key, &hash));
    TRY(find_hashed(r, dict, key, hash, &found));
    if (found) {
        *found = value;
        return ST_OK;
    }
    if (dict->count == dict->cap) TRY(dict_grow(r, dict));
    dict->entries[dict->count] = (struct dict_entry){key, value, hash};
    if (dict->index) index_add(dict, dict->count);
    dict->count++;
    return ST_OK;
}

/* A text on the stack needs no arena. */
enum status jinja_dict_find_str(struct run *r, const struct dict *dict, struct str key,
                                struct value **found) {
    struct text text = {.bytes = key, .chars = CHARS_UNKNOWN};
    return jinja_dict_find(r, dict, (struct value){.type = V_TEXT, .text = &text}, found);
}

/* ------------------------------------------------------------------ from JSON */

static enum status list_of_json(struct run *r, const struct json *json, struct value *out) {
    size_t count = json_count(json);
    TRY(jinja_value_of_list(r, count, out));
    for (size_t i = 0; i < count; i++) {
        struct value item;
        TRY(jinja_value_of_json(r, json_at(json, i), &item));
        TRY(jinja_list_push(r, out->list, item));
    }
    return ST_OK;
}

static enum status dict_of_json(struct run *r, const struct json *json, struct value *out) {
    TRY(jinja_value_of_dict(r, out));
    for (struct json_iter it = json_iter_first(json); json_iter_ok(&it); json_iter_next(&it)) {
        struct value key, item;
        TRY(jinja_value_text(r, it.key, &key));
        TRY(jinja_value_of_json(r, it.value, &item));
        TRY(jinja_dict_put(r, out->dict, key, item));
    }
    return ST_OK;
}

/* Texts are borrowed: the tree outlives the render. */
enum status jinja_value_of_json(struct run *r, const struct json *json, struct value *out) {
    TRY(jinja_run_enter(r));
    TRY(jinja_run_steps(r, 1));
    enum status st = ST_OK;
    switch (json_kind(json)) {
    case JS_BOOL:
        *out = jinja_value_bool(json_bool(json, false));
        break;
    case JS_INT:
        *out = jinja_value_int(json_int(json, 0));
        break;
    case JS_REAL:
        *out = jinja_value_float(json_num(json, 0));
        break;
    case JS_TEXT:
        st = jinja_value_text(r, json_str(json), out);
        break;
    case JS_LIST:
        st = list_of_json(r, json, out);
        break;
    case JS_MAP:
        st = dict_of_json(r, json, out);
        break;
    default:
        *out = jinja_value_none();
        break;
    }
    r->depth--;
    return st;
}

/* ------------------------------------------------------------------ inspection */

const char *jinja_value_type_name(struct value v) {
    static const char *const names[] = {[V_MISSING] = "missing",   [V_UNDEFINED] = "Undefined",
                                        [V_NONE] = "NoneType",     [V_BOOL] = "bool",
                                        [V_INT] = "int",           [V_FLOAT] = "float",
                                        [V_TEXT] = "str",          [V_LIST] = "list",
                                        [V_TUPLE] = "tuple",       [V_DICT] = "dict",
                                        [V_RANGE] = "range",       [V_VIEW] = "dict view",
                                        [V_ITER] = "generator",    [V_NAMESPACE] = "Namespace",
                                        [V_MACRO] = "Macro",       [V_LOOP] = "LoopContext",
                                        [V_CYCLER] = "Cycler",     [V_JOINER] = "Joiner",
                                        [V_FUNCTION] = "function", [V_METHOD] = "builtin method"};
    return names[v.type];
}

bool jinja_value_is_number(struct value v) {
    return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT;
}

bool jinja_value_as_int(struct value v, int64_t *out) {
    if (v.type != V_INT && v.type != V_BOOL) return false;
    *out = v.type == V_INT ? v.integer : v.truth;
    return true;
}

bool jinja_value_as_float(struct value v, double *out) {
    int64_t i;
    if (v.type == V_FLOAT)
        *out = v.real;
    else if (jinja_value_as_int(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

bool jinja_value_is_mapping(struct value v) { return v.type == V_DICT; }

bool jinja_value_has_length(struct value v, int64_t *count) {
    switch (v.type) {
    case V_UNDEFINED:
        *count = 0;
        return true;
    case V_TEXT:
        *count = jinja_text_chars(v.text);
        return true;
    case V_LIST:
    case V_TUPLE:
        *count = (int64_t)v.list->count;
        return true;
    case V_DICT:
        *count = (int64_t)v.dict->count;
        return true;
    case V_RANGE:
        *count = v.range->count;
        return true;
    case V_VIEW:
        *count = (int64_t)v.view->dict->count;
        return true;
    default:
        return false;
    }
}

bool jinja_value_is_true(struct value v) {
    int64_t count;
    switch (v.type) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.truth;
    case V_INT:
        return v.integer != 0;
    case V_FLOAT:
        return v.real != 0.0;
    case V_TEXT:
        return v.text->bytes.len > 0;
    default:
        return jinja_value_has_length(v, &count) ? count > 0 : true;
    }
}

/* ------------------------------------------------------------------ texts by character */

struct str jinja_value_str(struct value v) {
    return v.text->bytes;
}

size_t jinja_str_find(struct str whole, struct str part, size_t from) {
    if (part.len == 0) return from <= whole.len ? from : SIZE_MAX;
    while (from + part.len <= whole.len) {
        const char *hit = memchr(whole.ptr + from, part.ptr[0], whole.len - from - part.len + 1);
        if (!hit) break;
        from = (size_t)(hit - whole.ptr);
        if (memcmp(hit, part.ptr, part.len) == 0) return from;
        from++;
    }
    return SIZE_MAX;
}

int64_t jinja_text_chars(struct text *text) {
    if (text->chars == CHARS_UNKNOWN) text->chars = (int64_t)utf8_count(text->bytes);
    return text->chars;
}

size_t jinja_text_offset(struct text *text, int64_t idx) {
    if (jinja_text_chars(text) == (int64_t)text->bytes.len) return (size_t)idx;
    size_t at = 0;
    for (; idx > 0; idx--) {
        unsigned char c = (unsigned char)text->bytes.ptr[at];
        at += c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    }
    return at;
}
