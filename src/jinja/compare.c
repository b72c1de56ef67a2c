/* jinja/compare.c - equality, order, hashes and membership, as in Python.
 *
 * Numbers of all kinds compare by value; texts by code point, which for UTF-8 is by byte;
 * lists and tuples element by element. Nesting is bounded by the render's depth.
 */
#include <math.h>
#include <string.h>

#include "jinja/run.h"
#include "jinja/value.h"

/* Wide enough to hold every int64 and every double exactly where it has 64 bits of mantissa. */
static long double wide(struct value v) {
    if (v.type == V_FLOAT) return (long double)v.real;
    return (long double)(v.type == V_INT ? v.integer : v.truth);
}

/* A comparison of texts is work in proportion to their size. */
static enum status charge(struct run *r, size_t bytes) { return jinja_run_steps(r, bytes / 64); }

static enum status lists_equal(struct run *r, const struct list *a, const struct list *b,
                               bool *equal) {
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count; i++)
        TRY(jinja_value_equal(r, a->items[i], b->items[i], equal));
    return ST_OK;
}

static enum status dicts_equal(struct run *r, const struct dict *a, const struct dict *b,
                               bool *equal) {
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count; i++) {
        struct value *other;
        TRY(jinja_dict_find(r, b, a->entries[i].key, &other));
        *equal = other != NULL;
        if (other) TRY(jinja_value_equal(r, a->entries[i].value, *other, equal));
    }
    return ST_OK;
}

static bool ranges_equal(const struct range *a, const struct range *b) {
    if (a->count != b->count) return false;
    if (a->count == 0) return true;
    return a->start == b->start && (a->count == 1 || a->step == b->step);
}

/* Views of keys and of items are sets; a view of values equals only itself. */
static enum status views_equal(struct run *r, const struct view *a, const struct view *b,
                               bool *equal) {
    *equal = a == b;
    if (*equal || a->kind == VIEW_VALUES || b->kind == VIEW_VALUES || a->kind != b->kind)
        return ST_OK;
    if (a->kind == VIEW_ITEMS) return dicts_equal(r, a->dict, b->dict, equal);
    *equal = a->dict->count == b->dict->count;
    for (size_t i = 0; *equal && i < a->dict->count; i++) {
        struct value *other;
        TRY(jinja_dict_find(r, b->dict, a->dict->entries[i].key, &other));
        *equal = other != NULL;
    }
    return ST_OK;
}

bool jinja_value_same(struct value a, struct value b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case V_MISSING:
    case V_NONE:
        return true;
    case V_BOOL:
        return a.truth == b.truth;
    case V_INT:
        return a.integer == b.integer;
    case V_FLOAT:
        return a.real == b.real;
    case V_TEXT:
        return a.text->markup == b.text->markup && str_eq(jinja_value_str(a), jinja_value_str(b));
    case V_METHOD:
        return false;
    default:
        return a.list == b.list; /* all others are pointers of one size */
    }
}

static enum status same_type_equal(struct run *r, struct value a, struct value b, bool *equal) {
    switch (a.type) {
    case V_UNDEFINED:
        *equal = true;
        return ST_OK;
    case V_TEXT:
        *equal = str_eq(jinja_value_str(a), jinja_value_str(b));
        return charge(r, jinja_value_str(a).len); /* they may differ in their last byte only */
    case V_LIST:
    case V_TUPLE:
        return lists_equal(r, a.list, b.list, equal);
    case V_DICT:
        return dicts_equal(r, a.dict, b.dict, equal);
    case V_RANGE:
        *equal = ranges_equal(a.range, b.range);
        return ST_OK;
    case V_VIEW:
        return views_equal(r, a.view, b.view, equal);
    case V_METHOD:
        *equal = a.method->def == b.method->def && jinja_value_same(a.method->self, b.method->self);
        return ST_OK;
    default:
        *equal = jinja_value_same(a, b);
        return ST_OK;
    }
}

enum status jinja_value_equal(struct run *r, struct value a, struct value b, bool *equal) {
    TRY(jinja_run_steps(r, 1)); /* also for numbers: a list may have millions */
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        *equal = wide(a) == wide(b);
        return ST_OK;
    }
    *equal = false;
    if (a.type != b.type) return ST_OK;
    TRY(jinja_run_enter(r));
    enum status st = same_type_equal(r, a, b, equal);
    r->depth--;
    return st;
}

static enum status lists_order(struct run *r, const struct list *a, const struct list *b,
                               const char *op, int *order) {
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool equal;
        TRY(jinja_value_equal(r, a->items[i], b->items[i], &equal));
        if (!equal) return jinja_value_order(r, a->items[i], b->items[i], op, order);
    }
    *order = (a->count > b->count) - (a->count < b->count);
    return ST_OK;
}

/* Not a number is neither less than, equal to nor greater than anything; it is made to look
 * unequal in the direction that makes `op` false. */
static int numbers_order(long double x, long double y, const char *op) {
    if (isnan(x) || isnan(y)) return op[0] == '<' ? 1 : -1;
    return (x > y) - (x < y);
}

enum status jinja_value_order(struct run *r, struct value a, struct value b, const char *op,
                              int *order) {
    if (a.type == V_UNDEFINED) return jinja_run_fail_undefined(r, a);
    if (b.type == V_UNDEFINED) return jinja_run_fail_undefined(r, b);
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        *order = numbers_order(wide(a), wide(b), op);
        return ST_OK;
    }
    if (a.type == V_TEXT && b.type == V_TEXT) {
        struct str x = jinja_value_str(a), y = jinja_value_str(b);
        *order = str_cmp(x, y);
        return charge(r, x.len < y.len ? x.len : y.len);
    }
    bool are_lists = a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE);
    if (!are_lists)
        return jinja_run_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                              jinja_value_type_name(a), jinja_value_type_name(b));
    TRY(jinja_run_enter(r));
    TRY(jinja_run_steps(r, 1));
    enum status st = lists_order(r, a.list, b.list, op, order);
    r->depth--;
    return st;
}

static uint64_t mix(uint64_t h, uint64_t x) {
    h ^= x + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2);
    h *= 0xFF51AFD7ED558CCDu;
    return h ^ (h >> 33);
}

static uint64_t hash_bytes(struct str s) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < s.len; i++) h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001B3u;
    return h ^ (h >> 32);
}

/* Equal numbers have equal hashes: a whole float hashes as the integer it is. */
static uint64_t hash_float(double real) {
    if (real == floor(real) && fabs(real) < 0x1p63) return mix(1, (uint64_t)(int64_t)real);
    uint64_t bits;
    memcpy(&bits, &real, sizeof(bits));
    return mix(2, bits);
}

static enum status hash_list(struct run *r, const struct list *list, uint64_t *hash) {
    uint64_t h = list->count, part;
    TRY(jinja_run_steps(r, list->count));
    for (size_t i = 0; i < list->count; i++) {
        TRY(jinja_value_hash(r, list->items[i], &part));
        h = mix(h, part);
    }
    *hash = h;
    return ST_OK;
}

enum status jinja_value_hash(struct run *r, struct value v, uint64_t *hash) {
    int64_t i;
    if (v.type == V_TEXT) {
        *hash = hash_bytes(jinja_value_str(v));
        return charge(r, jinja_value_str(v).len);
    }
    if (jinja_value_as_int(v, &i)) {
        *hash = mix(1, (uint64_t)i);
        return ST_OK;
    }
    switch (v.type) {
    case V_FLOAT:
        *hash = hash_float(v.real);
        return ST_OK;
    case V_LIST:
    case V_DICT:
    case V_VIEW:
        return jinja_run_fail(r, "unhashable type: '%s'", jinja_value_type_name(v));
    case V_TUPLE:
        TRY(jinja_run_enter(r));
        TRY(jinja_run_steps(r, 1));
        TRY(hash_list(r, v.list, hash));
        r->depth--;
        return ST_OK;
    default: /* by kind only: rare as keys, and equality decides */
        *hash = mix(3, v.type);
        return ST_OK;
    }
}

/* ------------------------------------------------------------------ membership */

static enum status in_text(struct run *r, struct str whole, struct value part, bool *found) {
    if (part.type != V_TEXT)
        return jinja_run_fail(r, "'in <string>' requires string as left operand, not %s",
                              jinja_value_type_name(part));
    struct str s = jinja_value_str(part);
    *found = s.len == 0 || (whole.len && jinja_str_find(whole, s, 0) != SIZE_MAX);
    return jinja_run_search(r, whole, s);
}

static enum status in_any(struct run *r, struct value whole, struct value part, bool *found) {
    struct iter *it = NULL;
    struct value item;
    bool done;
    TRY(jinja_iter_open(r, whole, &it));
    for (;;) {
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done) break;
        TRY(jinja_value_equal(r, item, part, found));
        if (*found) break;
    }
    return ST_OK;
}

enum status jinja_value_contains(struct run *r, struct value whole, struct value part,
                                 bool *found) {
    struct value *value;
    *found = false;
    switch (whole.type) {
    case V_TEXT:
        return in_text(r, jinja_value_str(whole), part, found);
    case V_DICT:
        TRY(jinja_dict_find(r, whole.dict, part, &value));
        *found = value != NULL;
        return ST_OK;
    case V_VIEW:
        if (whole.view->kind != VIEW_KEYS) return in_any(r, whole, part, found);
        TRY(jinja_dict_find(r, whole.view->dict, part, &value));
        *found = value != NULL;
        return ST_OK;
    default:
        if (!jinja_value_is_iterable(whole))
            return jinja_run_fail(r, "argument of type '%s' is not iterable",
                                  jinja_value_type_name(whole));
        return in_any(r, whole, part, found);
    }
}
