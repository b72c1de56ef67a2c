/* api/fields.c - see api/fields.h for the contract. */
#include "api/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api_int.h"
#include "base/check.h"
#include "base/json.h"
#include "base/str.h"

enum { LISTS_MAX = 4, NAME_BYTES_MAX = 48 };
static const double INT64_END = 9223372036854775808.0; /* INT64_MAX + 1 */

/* One row while a body is checked against it. */
struct field_check {
    const struct api_field *f;
    void *request;
    struct api_error *e;
    size_t at[LISTS_MAX]; /* index in each list along the path */
    uint32_t at_count;
};

/* --- kinds ------------------------------------------------------------------------------ */

bool field_is_int(const struct json *v) {
    if (json_kind(v) == JS_INT) return true;
    if (json_kind(v) != JS_REAL) return false;
    double real = json_num(v, 0);
    return real == floor(real) && real >= -INT64_END && real < INT64_END;
}

int64_t field_int(const struct json *v) {
    return json_kind(v) == JS_INT ? json_int(v, 0) : (int64_t)json_num(v, 0);
}

/* All kinds that a value fits. */
static uint32_t kinds_of(const struct json *v) {
    switch (json_kind(v)) {
    case JS_BOOL:
        return FIELD_BOOL;
    case JS_INT:
        return FIELD_INT | FIELD_REAL;
    case JS_REAL: /* a whole number that int64_t cannot hold is out of every range */
        return FIELD_REAL | (json_num(v, 0) == floor(json_num(v, 0)) ? FIELD_INT : 0u);
    case JS_TEXT:
        return FIELD_TEXT;
    case JS_LIST:
        return FIELD_LIST;
    case JS_MAP:
        return FIELD_MAP;
    default:
        return 0;
    }
}

static const struct {
    uint32_t kind;
    const char *name;
} kind_names[] = {
    {FIELD_BOOL, "a boolean"}, {FIELD_INT, "an integer"}, {FIELD_REAL, "a number"},
    {FIELD_TEXT, "a string"},  {FIELD_LIST, "an array"},  {FIELD_MAP, "an object"},
};
enum { KINDS = sizeof(kind_names) / sizeof(kind_names[0]) };

static void name_kinds(uint32_t kinds, char *out, size_t size) {
    size_t len = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        if (!(kinds & kind_names[i].kind)) continue;
        int n = snprintf(out + len, size - len, "%s%s", len ? " or " : "", kind_names[i].name);
        CHECK(n > 0 && len + (size_t)n < size);
        len += (size_t)n;
    }
}

static const char *name_value(const struct json *v) {
    uint32_t kinds = kinds_of(v);
    for (uint32_t i = 0; i < KINDS; i++)
        if (kinds & kind_names[i].kind) return kind_names[i].name;
    return "null";
}

static enum status refuse_kind(struct api_error *e, const struct json *v, uint32_t kinds,
                               const char *param) {
    char wanted[128];
    name_kinds(kinds, wanted, sizeof(wanted));
    return api_refuse(e, 400, param, "invalid_type", "Invalid type for '%s': expected %s, got %s.",
                      param, wanted, name_value(v));
}

static enum status refuse_missing(struct api_error *e, const char *param) {
    return api_refuse(e, 400, param, "missing_required_parameter",
                      "The required parameter '%s' is missing.", param);
}

/* --- refusals by codecs ------------------------------------------------------------------ */

#define FORMAT_PARAM(text, param)                                                                  \
    char text[API_PARAM_BYTES];                                                                    \
    do {                                                                                           \
        va_list args_;                                                                             \
        va_start(args_, param);                                                                    \
        vsnprintf(text, sizeof(text), param, args_);                                               \
        va_end(args_);                                                                             \
    } while (0)

enum status api_refuse_kind(struct api_error *e, const struct json *v, uint32_t kinds,
                            const char *param, ...) {
    FORMAT_PARAM(text, param);
    return refuse_kind(e, v, kinds, text);
}

enum status api_refuse_missing(struct api_error *e, const char *param, ...) {
    FORMAT_PARAM(text, param);
    return refuse_missing(e, text);
}

enum status api_refuse_unsupported(struct api_error *e, const char *what, const char *param, ...) {
    FORMAT_PARAM(text, param);
    return api_refuse(e, 400, text, "unsupported_parameter", "%s ('%s').", what, text);
}

/* --- checking one value ----------------------------------------------------------------- */

/* The row's path with the indices of list members filled in. */
static void write_path(const struct field_check *c, char param[API_PARAM_BYTES]) {
    size_t len = 0;
    uint32_t list = 0;
    for (const char *p = c->f->path; *p && len + 1 < API_PARAM_BYTES; p++) {
        if (p[0] == '[' && list < c->at_count) {
            int n = snprintf(param + len, API_PARAM_BYTES - len, "[%zu]", c->at[list++]);
            len += (size_t)n;
            p++; /* the closing bracket */
        } else {
            param[len++] = *p;
        }
    }
    param[len < API_PARAM_BYTES ? len : API_PARAM_BYTES - 1] = 0;
}

static bool has_limits(const struct api_field *f) { return f->min != 0 || f->max != 0; }

static enum status check_number(const struct field_check *c, const struct json *v,
                                const char *param) {
    const struct api_field *f = c->f;
    bool is_int = (f->kinds & FIELD_INT) && !(f->kinds & FIELD_REAL);
    double value = json_num(v, 0);
    bool fits = !is_int || field_is_int(v);
    if (has_limits(f) && !(value >= f->min))
        return api_refuse(
            c->e, 400, param, is_int ? "integer_below_min_value" : "decimal_below_min_value",
            "Invalid '%s': %.15g is below the minimum of %.15g.", param, value, f->min);
    if (!fits || (has_limits(f) && !(value <= f->max)))
        return api_refuse(c->e, 400, param,
                          is_int ? "integer_above_max_value" : "decimal_above_max_value",
                          "Invalid '%s': %.15g is above the maximum of %.15g.", param, value,
                          has_limits(f) ? f->max : INT64_END);
    return ST_OK;
}

static enum status check_count(const struct field_check *c, size_t count, const char *what,
                               const char *const codes[2], const char *param) {
    const struct api_field *f = c->f;
    if (!has_limits(f)) return ST_OK;
    if ((double)count < f->min)
        return api_refuse(c->e, 400, param, codes[0],
                          "Invalid '%s': %s %zu long, shorter than the minimum of %.15g.", param,
                          what, count, f->min);
    if ((double)count > f->max)
        return api_refuse(c->e, 400, param, codes[1],
                          "Invalid '%s': %s %zu long, longer than the maximum of %.15g.", param,
                          what, count, f->max);
    return ST_OK;
}

static bool is_among(struct str word, const char *words) {
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " ");
        if (str_eq(word, (struct str){p, len})) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* The words of a field as a person lists them. */
static void list_words(const char *words, char *out, size_t size) {
    size_t len = 0;
    for (; *words && len + 3 < size; words++) {
        if (*words == ' ') out[len++] = ',';
        out[len++] = *words;
    }
    out[len] = 0;
}

static enum status refuse_word(const struct field_check *c, struct str text, const char *param) {
    char words[512];
    list_words(c->f->words, words, sizeof(words));
    return api_refuse(c->e, 400, param, "invalid_value",
                      "Invalid '%s': '%.*s' is not supported; supported: %s.", param,
                      (int)(text.len > 100 ? 100 : text.len), text.ptr, words);
}

static enum status check_text(const struct field_check *c, struct str text, const char *param) {
    static const char *const codes[] = {"string_below_min_length", "string_above_max_length"};
    const struct api_field *f = c->f;
    if (f->words && !is_among(text, f->words)) return refuse_word(c, text, param);
    if (f->words || (f->kinds & FIELD_LIST)) return ST_OK;
    return check_count(c, text.len, "the string is", codes, param);
}

static enum status check_limits(const struct field_check *c, const struct json *v,
                                const char *param) {
    static const char *const list_codes[] = {"array_below_min_length", "array_above_max_length"};
    static const char *const map_codes[] = {"object_below_min_properties",
                                            "object_above_max_properties"};
    switch (json_kind(v)) {
    case JS_INT:
    case JS_REAL:
        return check_number(c, v, param);
    case JS_TEXT:
        return check_text(c, json_str(v), param);
    case JS_LIST:
        return check_count(c, json_count(v), "the array is", list_codes, param);
    case JS_MAP:
        return check_count(c, json_count(v), "the object is", map_codes, param);
    default:
        return ST_OK;
    }
}

static bool has_no_effect(const struct api_field *f, const struct json *v) {
    double neutral;
    switch (json_kind(v)) {
    case JS_BOOL:
        return json_bool(v, false) == str_is(str_of(f->fallback), "true");
    case JS_INT:
    case JS_REAL:
        if (str_to_f64(str_of(f->fallback), &neutral)) return json_num(v, 0) == neutral;
        return json_num(v, 0) <= f->max;
    case JS_TEXT:
        return json_str(v).len == 0;
    default:
        return json_count(v) == 0;
    }
}

static enum status check_value(struct field_check *c, const struct json *v, bool is_member) {
    const struct api_field *f = c->f;
    bool is_given = v && (is_member || json_kind(v) != JS_NULL);
    if (!is_given && !f->is_required) return ST_OK;

    char param[API_PARAM_BYTES];
    write_path(c, param);
    if (!is_given) return refuse_missing(c->e, param);
    if (f->use == FIELD_REFUSED && has_no_effect(f, v)) return ST_OK;
    if (f->use == FIELD_REFUSED)
        return api_refuse(c->e, 400, param, "unsupported_parameter",
                          "'%s' is not supported by this server: %s", param, f->help);
    if (!(kinds_of(v) & f->kinds)) return refuse_kind(c->e, v, f->kinds, param);
    TRY(check_limits(c, v, param));
    if (f->use == FIELD_IGNORED) return ST_OK;
    return field_store(f, v, c->request, param, c->e);
}

/* --- finding the values of a row -------------------------------------------------------- */

static enum status walk(struct field_check *c, const struct json *v, const char *path);

/* `path` is what follows a name whose value is `v`: nothing, "[]" or a dot. Recursion is as deep as
 * the path has parts. */
static enum status walk_on(struct field_check *c, const struct json *v, const char *path,
                           bool is_member) {
    if (path[0] == 0) return check_value(c, v, is_member);
    if (path[0] == '.') return walk(c, v, path + 1);
    CHECK(path[0] == '[' && path[1] == ']');
    CHECK(c->at_count < LISTS_MAX);
    if (json_kind(v) != JS_LIST) return ST_OK;
    enum status st = ST_OK;
    uint32_t list = c->at_count++;
    for (size_t i = 0; i < json_count(v) && st == ST_OK; i++) {
        c->at[list] = i;
        st = walk_on(c, json_at(v, i), path + 2, true);
    }
    c->at_count--;
    return st;
}

/* The member of `map` that the path begins with; *len: of its name. */
static const struct json *first_member(const struct json *map, const char *path, size_t *len) {
    char name[NAME_BYTES_MAX];
    *len = strcspn(path, ".[");
    CHECK(*len < sizeof(name));
    memcpy(name, path, *len);
    name[*len] = 0;
    return json_get(map, name);
}

static enum status walk(struct field_check *c, const struct json *v, const char *path) {
    if (json_kind(v) != JS_MAP) return ST_OK;
    size_t len;
    const struct json *member = first_member(v, path, &len);
    return walk_on(c, member, path + len, false);
}

/* One of 64 bits for a name. */
static uint64_t name_bit(struct str name) {
    if (name.len == 0) return 1;
    const uint32_t first = (unsigned char)name.ptr[0], last = (unsigned char)name.ptr[name.len - 1];
    return (uint64_t)1 << ((first * 5 + last * 3 + name.len) & 63);
}

/* The bits of all members of the body: a name without its bit is not among them. Most rows of the
 * table are absent from a body, and asking the map costs a hash of the name. */
static uint64_t bits_of(const struct json *body) {
    enum { MEMBERS_MAX = 64 };
    uint64_t bits = 0;
    if (json_count(body) > MEMBERS_MAX) return UINT64_MAX;
    for (struct json_iter it = json_iter_first(body); json_iter_ok(&it); json_iter_next(&it))
        bits |= name_bit(it.key);
    return bits;
}

/* The same for the body, with its bits. *absent: the last field that it does not have. */
static enum status walk_body(struct field_check *c, const struct json *body, uint64_t bits,
                             struct str *absent) {
    const char *path = c->f->path;
    size_t len = strcspn(path, ".[");
    const bool may_have = bits & name_bit((struct str){path, len});
    const struct json *member = may_have ? first_member(body, path, &len) : NULL;
    if (!member) *absent = (struct str){path, len};
    return walk_on(c, member, path + len, false);
}

/* A row of a member of a field that is absent. There are many, and they follow the field's row. */
static bool is_within(const char *path, struct str absent) {
    if (absent.len == 0 || strncmp(path, absent.ptr, absent.len) != 0) return false;
    return path[absent.len] == '.' || path[absent.len] == '[';
}

/* --- entry points ----------------------------------------------------------------------- */

const struct api_field *api_field_find(enum api_endpoint endpoint, const char *path) {
    for (uint32_t i = 0; i < api_field_count; i++)
        if ((api_fields[i].endpoints & (uint32_t)endpoint) && strcmp(api_fields[i].path, path) == 0)
            return &api_fields[i];
    return NULL;
}

enum status api_fields_read(enum api_endpoint endpoint, const struct json *body, void *request,
                            struct api_error *e) {
    if (json_kind(body) != JS_MAP)
        return api_refuse(e, 400, NULL, "invalid_type",
                          "The body must be a JSON object, but it is %s.", name_value(body));
    struct field_check c = {.request = request, .e = e};
    struct str absent = {0};
    const uint64_t bits = bits_of(body);
    for (uint32_t i = 0; i < api_field_count; i++) {
        c.f = &api_fields[i];
        if (!(c.f->endpoints & (uint32_t)endpoint) || is_within(c.f->path, absent)) continue;
        TRY(walk_body(&c, body, bits, &absent));
    }
    return ST_OK;
}
