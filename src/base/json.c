/* base/json.c - see base/json.h for the contract. */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/utf8.h"

const struct json_limits json_limits_model_file = {
    .bytes_max = 256u << 20, .depth_max = 64, .values_max = 8u << 20};
const struct json_limits json_limits_request = {
    .bytes_max = 8u << 20, .depth_max = 64, .values_max = 100000};

/* What a scan without a parser can count: brackets, and one value for each comma and bracket
 * outside strings. It over-counts nothing that jansson would accept by more than a constant. */
struct census {
    uint32_t depth, depth_max;
    size_t values;
    bool has_big; /* a whole number that int64_t cannot hold */
};

enum { BIG_DIGITS_MIN = 19 }; /* the least that can be too many for int64_t */

static const char *skip_string(const char *p, const char *end) {
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\' && p + 1 < end) p++;
    return p;
}

static bool starts_number(char c) { return c == '-' || (c >= '0' && c <= '9'); }

/* The number, or what looks like one, that begins at `p`. */
static struct str number_at(const char *p, const char *end) {
    const char *q = p + 1;
    while (q < end && (starts_number(*q) || *q == '+' || *q == '.' || *q == 'e' || *q == 'E')) q++;
    return (struct str){p, (size_t)(q - p)};
}

/* Python writes whole numbers of any size, and tokenizer_config.json often has one of 31 digits
 * for "no limit"; jansson takes none past int64_t. */
static bool is_big(struct str number) {
    int64_t value;
    if (number.len < BIG_DIGITS_MIN) return false;
    for (size_t i = 1; i < number.len; i++)
        if (number.ptr[i] < '0' || number.ptr[i] > '9') return false;
    return !str_to_i64(number, &value);
}

static struct census take_census(struct str text) {
    struct census c = {.values = 1};
    const char *end = text.ptr + text.len;
    for (const char *p = text.ptr; p < end; p++) {
        switch (*p) {
        case '"':
            p = skip_string(p, end);
            break;
        case '[':
        case '{':
            c.values++;
            if (++c.depth > c.depth_max) c.depth_max = c.depth;
            break;
        case ']':
        case '}':
            c.depth -= c.depth > 0;
            break;
        case ',':
        case ':':
            c.values++;
            break;
        default:
            if (!starts_number(*p)) break;
            c.has_big |= is_big(number_at(p, end));
            p += number_at(p, end).len - 1;
            break;
        }
    }
    return c;
}

/* The text with every such number as one with a fraction of zero. */
static void put_widened(struct str text, struct buf *out) {
    const char *end = text.ptr + text.len, *copied = text.ptr;
    for (const char *p = text.ptr; p < end; p++) {
        if (*p == '"') p = skip_string(p, end);
        if (p >= end || !starts_number(*p)) continue;
        struct str number = number_at(p, end);
        p += number.len - 1;
        if (!is_big(number)) continue;
        buf_put(out, copied, (size_t)(p + 1 - copied));
        buf_put_text(out, ".0");
        copied = p + 1;
    }
    buf_put(out, copied, (size_t)(end - copied));
}

static json_t *load(struct str text, size_t flags, json_error_t *said) {
    return json_loadb(text.ptr, text.len, flags, said);
}

static json_t *load_widened(struct str text, size_t flags, json_error_t *said) {
    struct buf wide;
    buf_init(&wide, 2 * text.len);
    put_widened(text, &wide);
    *said = (json_error_t){.line = 1, .text = "out of memory"};
    json_t *root = buf_status(&wide) == ST_OK ? load(buf_str(&wide), flags, said) : NULL;
    buf_deinit(&wide);
    return root;
}

size_t json_count_values(struct str text) { return take_census(text).values; }

enum status json_parse(struct str text, const struct json_limits *limits, struct json **out,
                       struct err *err) {
    CHECK(limits);
    if (text.len > limits->bytes_max)
        return err_set(err, ST_BAD, "JSON of %zu bytes, at most %zu are read", text.len,
                       limits->bytes_max);
    struct census c = take_census(text);
    if (c.depth_max > limits->depth_max)
        return err_set(err, ST_BAD, "JSON nested %u deep, at most %u is read", c.depth_max,
                       limits->depth_max);
    if (c.values > limits->values_max)
        return err_set(err, ST_BAD, "JSON of about %zu values, at most %zu are read", c.values,
                       limits->values_max);

    json_error_t said;
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    if (limits->unique_keys) flags |= JSON_REJECT_DUPLICATES;
    json_t *root = c.has_big ? load_widened(text, flags, &said) : load(text, flags, &said);
    if (!root)
        return err_set(err, ST_BAD, "JSON line %d column %d: %s", said.line, said.column,
                       said.text);
    *out = (struct json *)root;
    return ST_OK;
}

void json_destroy(struct json *doc) { json_decref((json_t *)doc); }

static const json_t *raw(const struct json *v) { return (const json_t *)v; }

enum json_kind json_kind(const struct json *v) {
    if (!v) return JS_NONE;
    switch (json_typeof(raw(v))) {
    case JSON_OBJECT:
        return JS_MAP;
    case JSON_ARRAY:
        return JS_LIST;
    case JSON_STRING:
        return JS_TEXT;
    case JSON_INTEGER:
        return JS_INT;
    case JSON_REAL:
        return JS_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JS_BOOL;
    case JSON_NULL:
        return JS_NULL;
    }
    return JS_NONE;
}

struct str json_str(const struct json *v) {
    if (json_kind(v) != JS_TEXT) return STR("");
    return (struct str){json_string_value(raw(v)), json_string_length(raw(v))};
}

int64_t json_int(const struct json *v, int64_t fallback) {
    if (json_kind(v) == JS_INT) return json_integer_value(raw(v));
    if (json_kind(v) != JS_REAL) return fallback;
    double real = json_real_value(raw(v));
    if (real != floor(real) || fabs(real) > 0x1p53) return fallback;
    return (int64_t)real;
}

double json_num(const struct json *v, double fallback) {
    if (json_kind(v) == JS_INT) return (double)json_integer_value(raw(v));
    return json_kind(v) == JS_REAL ? json_real_value(raw(v)) : fallback;
}

bool json_bool(const struct json *v, bool fallback) {
    return json_kind(v) == JS_BOOL ? json_is_true(raw(v)) : fallback;
}

size_t json_count(const struct json *v) {
    if (json_kind(v) == JS_LIST) return json_array_size(raw(v));
    return json_kind(v) == JS_MAP ? json_object_size(raw(v)) : 0;
}

struct json *json_at(const struct json *v, size_t i) {
    if (json_kind(v) != JS_LIST) return NULL;
    return (struct json *)json_array_get(raw(v), i);
}

struct json *json_get(const struct json *v, const char *key) {
    if (json_kind(v) != JS_MAP) return NULL;
    return (struct json *)json_object_get(raw(v), key);
}

struct json *json_path(const struct json *v, const char *path) {
    struct json *found = json_get(v, path);
    const char *dot = found ? NULL : strchr(path, '.');
    if (!dot) return found;
    char key[64];
    size_t len = (size_t)(dot - path);
    if (len >= sizeof(key)) return NULL;
    memcpy(key, path, len);
    key[len] = 0;
    return json_path(json_get(v, key), dot + 1); /* as deep as the path has dots */
}

static struct json_iter iter_at(const struct json *map, void *pos) {
    struct json_iter it = {.map = map, .pos = pos};
    if (!pos) return it;
    it.key = (struct str){json_object_iter_key(pos), json_object_iter_key_len(pos)};
    it.value = (struct json *)json_object_iter_value(pos);
    return it;
}

/* Jansson's iterators want a mutable object, but reading through one changes nothing. */
static json_t *unconst(const struct json *v) { return (json_t *)(uintptr_t)v; }

struct json_iter json_iter_first(const struct json *v) {
    if (json_kind(v) != JS_MAP) return iter_at(v, NULL);
    return iter_at(v, json_object_iter(unconst(v)));
}

bool json_iter_ok(const struct json_iter *it) { return it->pos != NULL; }

void json_iter_next(struct json_iter *it) {
    *it = iter_at(it->map, json_object_iter_next(unconst(it->map), it->pos));
}

/* Recursion goes as deep as the document, which json_parse has limited. */
size_t json_weight(const struct json *v) {
    size_t bytes = 1 + json_str(v).len;
    if (json_kind(v) == JS_LIST)
        for (size_t i = 0; i < json_count(v); i++) bytes += json_weight(json_at(v, i));
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it))
        bytes += it.key.len + json_weight(it.value);
    return bytes;
}

/* Measured with glibc: what jansson allocates for a value, a key, and an empty map or list. */
enum { VALUE_BYTES = 48, KEY_BYTES = 80, MAP_BYTES = 272, LIST_BYTES = 112 };

size_t json_memory(const struct json *v) {
    size_t bytes = VALUE_BYTES + json_str(v).len;
    if (!v) return 0;
    if (json_kind(v) == JS_LIST) {
        bytes += LIST_BYTES;
        for (size_t i = 0; i < json_count(v); i++)
            bytes += 2 * sizeof(void *) + json_memory(json_at(v, i));
    }
    if (json_kind(v) == JS_MAP) bytes += MAP_BYTES;
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it))
        bytes += KEY_BYTES + it.key.len + json_memory(it.value);
    return bytes;
}

/* --- building --------------------------------------------------------------------------- */

struct json *json_map_create(void) {
    return (struct json *)json_object();
}
struct json *json_list_create(void) {
    return (struct json *)json_array();
}
struct json *json_bool_create(bool truth) {
    return (struct json *)json_boolean(truth);
}
struct json *json_null_create(void) {
    return (struct json *)json_null();
}

struct json *json_text_create(struct str text) {
    if (utf8_is_valid(text))
        return (struct json *)json_stringn_nocheck(text.len ? text.ptr : "", text.len);
    struct buf valid;
    buf_init(&valid, 3 * text.len); /* U+FFFD has three bytes */
    utf8_put_lossy(&valid, text);
    json_t *v = NULL;
    if (buf_status(&valid) == ST_OK) v = json_stringn_nocheck(valid.ptr, valid.len);
    buf_deinit(&valid);
    return (struct json *)v;
}

struct json *json_pin(const struct json *v) {
    return (struct json *)json_incref(unconst(v));
}

/* Jansson refuses NULL, and on every refusal drops the reference it was given. */
enum status json_set(struct json *map, struct str key, struct json *value) {
    int refused = json_object_setn_new_nocheck((json_t *)map, key.ptr, key.len, (json_t *)value);
    return refused ? ST_NOMEM : ST_OK;
}

enum status json_push(struct json *list, struct json *value) {
    return json_array_append_new((json_t *)list, (json_t *)value) ? ST_NOMEM : ST_OK;
}

/* --- writing ---------------------------------------------------------------------------- */

/* The fewest digits that read back as the same number, and never as a whole one. */
static void put_real(double v, struct buf *out) {
    char text[32];
    double again = 0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (str_to_f64(str_of(text), &again) && again == v) break;
    }
    buf_put_text(out, text);
    if (!strpbrk(text, ".e")) buf_put_text(out, ".0");
}

static void put_members(const struct json *v, struct buf *out) {
    const char *comma = "";
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it)) {
        buf_put_text(out, comma);
        buf_put_json_string(out, it.key);
        buf_put_char(out, ':');
        json_put(it.value, out);
        comma = ",";
    }
}

/* Recursion goes as deep as the document, which json_parse has limited. */
void json_put(const struct json *v, struct buf *out) {
    switch (json_kind(v)) {
    case JS_NONE:
    case JS_NULL:
        buf_put_text(out, "null");
        return;
    case JS_BOOL:
        buf_put_text(out, json_bool(v, false) ? "true" : "false");
        return;
    case JS_INT:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(raw(v)));
        return;
    case JS_REAL:
        put_real(json_real_value(raw(v)), out);
        return;
    case JS_TEXT:
        buf_put_json_string(out, json_str(v));
        return;
    case JS_LIST:
        buf_put_char(out, '[');
        for (size_t i = 0; i < json_count(v); i++) {
            if (i) buf_put_char(out, ',');
            json_put(json_at(v, i), out);
        }
        buf_put_char(out, ']');
        return;
    case JS_MAP:
        buf_put_char(out, '{');
        put_members(v, out);
        buf_put_char(out, '}');
        return;
    }
}
