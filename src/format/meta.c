/* format/meta.c - the typed getters of facts; see format/model_file.h for the contract.
 *
 * A reader returns a fact with its type (struct meta_value); the getters here compare the type with
 * the one that the caller expects, for all kinds of file.
 */
#include <math.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/utf8.h"
#include "format/format_int.h"

enum { SHOWN_TEXT_BYTES = 80, SHOWN_ITEMS = 8 };

static const char *kind_name(enum meta_type kind) {
    switch (kind) {
    case META_NONE:
        return "nothing";
    case META_BOOL:
        return "a boolean";
    case META_INT:
        return "a whole number";
    case META_REAL:
        return "a number with a fraction";
    case META_STR:
        return "text";
    case META_LIST:
        return "a list";
    case META_MAP:
        return "a map";
    }
    return "something else";
}

static bool look_up(const struct model_file *f, const char *key, struct meta_value *out) {
    *out = (struct meta_value){.kind = META_NONE};
    return f->format->find(f, str_of(key), out) && out->kind != META_NONE;
}

static enum status refuse(const struct model_file *f, const char *key, enum meta_type got,
                          const char *expected, struct err *err) {
    return err_set(err, ST_BAD, "%s: key %s: is %s, expected %s", f->path, key, kind_name(got),
                   expected);
}

/* A number with a fraction of zero is whole: configurations write 4096.0. From 2^53 on a
 * double cannot represent every whole number, so larger ones are refused. */
static bool whole_of(const struct meta_value *v, bool *negative, uint64_t *whole) {
    if (v->kind == META_INT) {
        *negative = v->negative;
        *whole = v->whole;
        return true;
    }
    if (v->kind != META_REAL || !(fabs(v->real) <= 0x1p53) || v->real != floor(v->real))
        return false;
    *negative = v->real < 0;
    *whole = (uint64_t)(int64_t)v->real;
    return true;
}

static double real_of(const struct meta_value *v) {
    if (v->kind == META_REAL) return v->real;
    return v->negative ? (double)(int64_t)v->whole : (double)v->whole;
}

enum status meta_u64(const struct model_file *f, const char *key, bool *found, uint64_t *out,
                     struct err *err) {
    struct meta_value v;
    *found = look_up(f, key, &v);
    if (!*found) return ST_OK;
    bool negative;
    uint64_t whole;
    if (!whole_of(&v, &negative, &whole))
        return refuse(f, key, v.kind, "a whole number that is not negative", err);
    if (negative)
        return err_set(err, ST_BAD, "%s: key %s: is %lld, expected a number that is not negative",
                       f->path, key, (long long)whole);
    *out = whole;
    return ST_OK;
}

enum status meta_f64(const struct model_file *f, const char *key, bool *found, double *out,
                     struct err *err) {
    struct meta_value v;
    *found = look_up(f, key, &v);
    if (!*found) return ST_OK;
    if (v.kind != META_INT && v.kind != META_REAL) return refuse(f, key, v.kind, "a number", err);
    if (!isfinite(real_of(&v)))
        return err_set(err, ST_BAD, "%s: key %s: is %g, expected a finite number", f->path, key,
                       v.real);
    *out = real_of(&v);
    return ST_OK;
}

enum status meta_bool(const struct model_file *f, const char *key, bool *found, bool *out,
                      struct err *err) {
    struct meta_value v;
    *found = look_up(f, key, &v);
    if (!*found) return ST_OK;
    if (v.kind != META_BOOL) return refuse(f, key, v.kind, "true or false", err);
    *out = v.truth;
    return ST_OK;
}

enum status meta_str(const struct model_file *f, const char *key, bool *found, struct str *out,
                     struct err *err) {
    struct meta_value v;
    *found = look_up(f, key, &v);
    if (!*found) return ST_OK;
    if (v.kind != META_STR) return refuse(f, key, v.kind, "text", err);
    *out = v.text;
    return ST_OK;
}

enum meta_type meta_kind(const struct model_file *f, const char *key) {
    struct meta_value v;
    return look_up(f, key, &v) ? v.kind : META_NONE;
}

enum meta_type meta_list(const struct model_file *f, const char *key, uint64_t *count) {
    struct meta_value v;
    *count = 0;
    if (!look_up(f, key, &v) || v.kind != META_LIST) return META_NONE;
    *count = v.count;
    return v.item_kind;
}

/* Item `i` of the list under `key`; the caller has checked that the list exists. */
static struct meta_value item_of(const struct model_file *f, const char *key, uint64_t i) {
    struct meta_value list, item = {.kind = META_NONE};
    CHECK(look_up(f, key, &list));
    CHECK(list.kind == META_LIST);
    CHECK(i < list.count);
    f->format->item(f, &list, i, &item);
    return item;
}

static enum status refuse_item(const struct model_file *f, const char *key, uint64_t i,
                               enum meta_type got, const char *expected, struct err *err) {
    return err_set(err, ST_BAD, "%s: key %s: item %llu is %s, expected %s", f->path, key,
                   (unsigned long long)i, kind_name(got), expected);
}

enum status meta_list_str(const struct model_file *f, const char *key, uint64_t i, struct str *out,
                          struct err *err) {
    struct meta_value v = item_of(f, key, i);
    if (v.kind != META_STR) return refuse_item(f, key, i, v.kind, "text", err);
    *out = v.text;
    return ST_OK;
}

enum status meta_list_i64(const struct model_file *f, const char *key, uint64_t i, int64_t *out,
                          struct err *err) {
    struct meta_value v = item_of(f, key, i);
    bool negative;
    uint64_t whole;
    if (!whole_of(&v, &negative, &whole))
        return refuse_item(f, key, i, v.kind, "a whole number", err);
    if (!negative && whole > INT64_MAX)
        return err_set(err, ST_BAD, "%s: key %s: item %llu is %llu, expected less than 2^63",
                       f->path, key, (unsigned long long)i, (unsigned long long)whole);
    *out = (int64_t)whole;
    return ST_OK;
}

enum status meta_list_f64(const struct model_file *f, const char *key, uint64_t i, double *out,
                          struct err *err) {
    struct meta_value v = item_of(f, key, i);
    if (v.kind != META_INT && v.kind != META_REAL)
        return refuse_item(f, key, i, v.kind, "a number", err);
    if (isnan(real_of(&v)))
        return err_set(err, ST_BAD, "%s: key %s: item %llu is not a number", f->path, key,
                       (unsigned long long)i);
    *out = real_of(&v);
    return ST_OK;
}

size_t meta_count(const struct model_file *f) { return f->key_count; }

struct str meta_key(const struct model_file *f, size_t i) {
    CHECK(i < f->key_count);
    return f->keys[i];
}

static void put_text(struct str text, struct buf *out) {
    struct str head = str_take(text, SHOWN_TEXT_BYTES);
    if (head.len < text.len) head.len = utf8_complete_len(head);
    buf_put_json_string(out, head);
    if (head.len < text.len) buf_printf(out, "... (%zu bytes)", text.len);
}

static void put_scalar(const struct meta_value *v, struct buf *out) {
    switch (v->kind) {
    case META_BOOL:
        buf_put_text(out, v->truth ? "true" : "false");
        return;
    case META_INT:
        if (v->negative)
            buf_printf(out, "%lld", (long long)v->whole);
        else
            buf_printf(out, "%llu", (unsigned long long)v->whole);
        return;
    case META_REAL:
        buf_printf(out, "%.9g", v->real);
        return;
    case META_STR:
        put_text(v->text, out);
        return;
    case META_LIST:
        buf_printf(out, "[%llu items]", (unsigned long long)v->count);
        return;
    case META_MAP:
        buf_printf(out, "{%llu keys}", (unsigned long long)v->count);
        return;
    case META_NONE:
        buf_put_text(out, "null");
        return;
    }
}

void meta_put_value(const struct model_file *f, size_t i, struct buf *out) {
    struct meta_value v = {.kind = META_NONE};
    f->format->find(f, meta_key(f, i), &v);
    if (v.kind != META_LIST) {
        put_scalar(&v, out);
        return;
    }
    buf_put_char(out, '[');
    for (uint64_t k = 0; k < v.count && k < SHOWN_ITEMS; k++) {
        struct meta_value item = {.kind = META_NONE};
        f->format->item(f, &v, k, &item);
        if (k) buf_put_text(out, ", ");
        put_scalar(&item, out);
    }
    if (v.count > SHOWN_ITEMS) buf_printf(out, ", ... (%llu items)", (unsigned long long)v.count);
    buf_put_char(out, ']');
}
