/* jinja/value.h - the values that a template computes with; for this folder only.
 *
 * Values behave as the Python objects they represent: the same equality, order, truth and
 * printed form. Lists and dicts never change once a template can see them (the sandbox refuses
 * every method that would), so they are shared freely; only namespaces, iterators, cyclers,
 * joiners and loops have state.
 *
 * Lifetime: everything lives in the arena of one render, except constants, which live in the
 * template's and are never written to. Thread: the one that renders.
 */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct arena;
struct buf;
struct builtin;
struct json;
struct run;

enum value_type {
    V_MISSING, /* no value at all: an unset variable, an argument not given */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_TEXT,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW, /* what dict.keys(), values() and items() give */
    V_ITER, /* a generator: gives each element once */
    V_NAMESPACE,
    V_MACRO,
    V_LOOP,
    V_CYCLER,
    V_JOINER,
    V_FUNCTION, /* a global one */
    V_METHOD,   /* a function bound to a value */
};

struct value {
    enum value_type type;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct text *text;
        struct list *list; /* V_LIST and V_TUPLE */
        struct dict *dict; /* V_DICT and V_NAMESPACE */
        struct range *range;
        struct view *view;
        struct iter *iter;
        struct undefined *undefined; /* NULL: its origin is not known */
        struct macro_value *macro;
        struct loop *loop;
        struct cycler *cycler;
        struct joiner *joiner;
        const struct builtin *function;
        struct method *method;
    };
};

enum { CHARS_UNKNOWN = -1 };

struct text {
    struct str bytes; /* valid UTF-8 */
    int64_t chars;    /* CHARS_UNKNOWN until they are counted */
    bool markup;      /* marked as safe HTML: text joined to it is escaped */
};

struct list {
    struct value *items;
    size_t count, cap;
    bool is_group; /* a pair made by groupby, whose parts have names */
};

struct dict_entry {
    struct value key, value;
    uint64_t hash;
};

/* Keeps the order of insertion. `index` is an open-addressed table of entry numbers plus one;
 * small dicts have none and are searched from the front. */
struct dict {
    struct dict_entry *entries;
    size_t count, cap;
    uint32_t *index;
    size_t index_cap;
};

struct range {
    int64_t start, stop, step, count;
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct view {
    struct dict *dict;
    enum view_kind kind;
};

/* Where an undefined value came from, for the error message if it is used. */
struct undefined {
    struct str hint;   /* the whole message, or empty */
    struct value name; /* what was looked for */
    const char *owner; /* in a value of this type, or NULL for a variable */
};

struct cycler {
    struct value *items;
    size_t count, pos;
};

struct joiner {
    struct value separator;
    bool used;
};

struct method {
    struct value self;
    const struct builtin *def;
};

/* Making values. */
struct value jinja_value_none(void);
struct value jinja_value_bool(bool truth);
struct value jinja_value_int(int64_t integer);
struct value jinja_value_float(double real);
struct value jinja_value_missing(void);

struct text *jinja_text_in_arena(struct arena *arena,
                                 struct str bytes); /* borrows; NULL when full */
enum status jinja_value_text(struct run *r, struct str bytes, struct value *out);      /* borrows */
enum status jinja_value_text_copy(struct run *r, struct str bytes, struct value *out); /* copies */
enum status jinja_value_of_list(struct run *r, size_t cap, struct value *out);
enum status jinja_value_of_tuple(struct run *r, const struct value *items, size_t count,
                                 struct value *out);
enum status jinja_value_of_dict(struct run *r, struct value *out);
enum status jinja_value_of_json(struct run *r, const struct json *json, struct value *out);
enum status jinja_value_undefined(struct run *r, const char *hint, struct value *out);
enum status jinja_value_undefined_name(struct run *r, const char *owner, struct value name,
                                       struct value *out);

enum status jinja_list_push(struct run *r, struct list *list, struct value item);
enum status jinja_dict_put(struct run *r, struct dict *dict, struct value key, struct value value);
/* *found is NULL when absent; an error when the key cannot be hashed. */
enum status jinja_dict_find(struct run *r, const struct dict *dict, struct value key,
                            struct value **found);
enum status jinja_dict_find_str(struct run *r, const struct dict *dict, struct str key,
                                struct value **found);

/* Inspecting values. */
const char *jinja_value_type_name(struct value v);
bool jinja_value_is_true(struct value v);
bool jinja_value_is_number(struct value v);             /* bool too, as in Python */
bool jinja_value_as_int(struct value v, int64_t *out);  /* an int or a bool */
bool jinja_value_as_float(struct value v, double *out); /* any number */
bool jinja_value_is_mapping(struct value v);
bool jinja_value_has_length(struct value v, int64_t *count); /* what len() accepts */
enum status jinja_value_equal(struct run *r, struct value a, struct value b, bool *equal);
bool jinja_value_same(struct value a, struct value b); /* Python's `is`, where that can be known */
/* *order < 0, 0, > 0. `op` names the operator in the error message if they have no order. */
enum status jinja_value_order(struct run *r, struct value a, struct value b, const char *op,
                              int *order);
enum status jinja_value_hash(struct run *r, struct value v, uint64_t *hash);
enum status jinja_value_contains(struct run *r, struct value whole, struct value part, bool *found);

struct str jinja_value_str(struct value v);                            /* the bytes of a V_TEXT */
size_t jinja_str_find(struct str whole, struct str part, size_t from); /* SIZE_MAX: not there */
int64_t jinja_text_chars(struct text *text);
/* Byte offset of character `idx`, which is at most the number of characters. */
size_t jinja_text_offset(struct text *text, int64_t idx);

/* Printing: append Python's str() or repr() to the work buffer, or make a text of it. */
enum status jinja_put_str(struct run *r, struct value v);
enum status jinja_put_repr(struct run *r, struct value v);
void jinja_put_float(struct buf *out, double real);
void jinja_put_text_repr(struct buf *out, struct str s);
enum status jinja_value_to_text(struct run *r, struct value v, struct value *out);

#endif
