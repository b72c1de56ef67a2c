/* Goal:   every row of the table of fields does what it says: each wrong kind, each limit, each
 *         missing field is refused by name, and everything else is taken.
 * Method: bodies are made from the table itself. For each row of each endpoint the smallest valid
 *         body that has the field is built around a value of every kind and on both sides of every
 *         limit. What the rows claim in total is compared with a few facts written down by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "api/embeddings.h"
#include "api/fields.h"
#include "api/request.h"
#include "api/tokenize.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"

enum { ENDPOINTS = 15, PATH_BYTES = 128, LIMIT_MAX = 5000 };

/* A body under construction: `value` stands at `path`, or nothing does. */
struct sketch {
    enum api_endpoint endpoint;
    const char *path;
    const char *value; /* JSON; NULL: the field is left out */
    struct buf *out;
};

static const struct api_field *row_of(const struct sketch *p, const char *path) {
    return api_field_find(p->endpoint, path);
}

/* Whether `path` lies on the way to the plan's field, or is it. */
static bool leads_to(const struct sketch *p, const char *path) {
    size_t len = strlen(path);
    return strncmp(p->path, path, len) == 0 &&
           (p->path[len] == 0 || p->path[len] == '.' || p->path[len] == '[');
}

static void put_at(const struct sketch *p, const char *path);

/* A map with the members that it must have, and the one that leads on. */
static void put_map(const struct sketch *p, const char *path) {
    size_t len = strlen(path);
    const char *comma = "";
    char seen[4096] = " ";
    buf_put_char(p->out, '{');
    for (uint32_t i = 0; i < api_field_count; i++) {
        const struct api_field *f = &api_fields[i];
        if (!(f->endpoints & (uint32_t)p->endpoint) || strncmp(f->path, path, len) != 0) continue;
        if (len && f->path[len] != '.') continue;
        const char *name = f->path + len + (len > 0);
        if (name[strcspn(name, ".[")] != 0) continue; /* deeper down */
        bool is_wanted = f->is_required || leads_to(p, f->path);
        if (strcmp(f->path, p->path) == 0 && !p->value) is_wanted = false;
        char key[80];
        snprintf(key, sizeof(key), " %s ", name);
        if (!is_wanted || strstr(seen, key)) continue; /* a path may have several rows */
        strncat(seen, key + 1, sizeof(seen) - strlen(seen) - 1);
        buf_printf(p->out, "%s\"%s\":", comma, name);
        put_at(p, f->path);
        comma = ",";
    }
    buf_put_char(p->out, '}');
}

static void put_list(const struct sketch *p, const char *path, uint32_t count) {
    char member[PATH_BYTES];
    snprintf(member, sizeof(member), "%s[]", path);
    const struct api_field *list = row_of(p, path);
    buf_put_char(p->out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(p->out, ',');
        if (row_of(p, member))
            put_at(p, member);
        else
            buf_put_text(p->out, list->store == STORE_STOPS ? "\"x\"" : "1");
    }
    buf_put_char(p->out, ']');
}

static void put_text_of(const struct sketch *p, size_t len) {
    buf_put_char(p->out, '"');
    for (size_t i = 0; i < len; i++) buf_put_char(p->out, 'x');
    buf_put_char(p->out, '"');
}

/* The plainest valid value of a row. */
static void put_valid(const struct sketch *p, const struct api_field *f) {
    if (f->words) {
        buf_printf(p->out, "\"%.*s\"", (int)strcspn(f->words, " "), f->words);
    } else if (f->kinds & FIELD_TEXT) {
        put_text_of(p, f->min > 1 ? (size_t)f->min : 1);
    } else if (f->kinds & FIELD_MAP) {
        put_map(p, f->path);
    } else if (f->kinds & FIELD_LIST) {
        put_list(p, f->path, f->min > 0 ? (uint32_t)f->min : 0);
    } else if (f->kinds & FIELD_BOOL) {
        buf_put_text(p->out, "true");
    } else {
        buf_printf(p->out, "%.17g", f->min > 0 ? f->min : 1);
    }
}

static void put_at(const struct sketch *p, const char *path) {
    const struct api_field *f = row_of(p, path);
    char next[PATH_BYTES];
    CHECK(f);
    if (strcmp(path, p->path) == 0 && p->value) {
        buf_put_text(p->out, p->value);
        return;
    }
    bool is_on_the_way = leads_to(p, path) && strcmp(path, p->path) != 0;
    snprintf(next, sizeof(next), "%s[]", path);
    if (is_on_the_way && leads_to(p, next))
        put_list(p, path, 1);
    else if (is_on_the_way)
        put_map(p, path);
    else
        put_valid(p, f);
}

/* --- judging ---------------------------------------------------------------------------- */

union any_request {
    struct api_request text;
    struct embed_request embed;
    struct tokenize_request tokenize;
};

static enum status judge_text(enum api_endpoint endpoint, struct str body, struct api_error *e) {
    union any_request r = {0};
    struct json *doc = NULL;
    struct err err = {0};
    if (json_parse(body, &json_limits_model_file, &doc, &err) != ST_OK)
        fail_msg("%s in %.*s", err.text, STR_ARG(body));
    api_request_init(&r.text, NULL);
    r.text.doc = doc;
    *e = (struct api_error){0};
    enum status st = api_fields_read(endpoint, doc, &r, e);
    api_request_deinit(&r.text);
    return st;
}

static enum status judge(enum api_endpoint endpoint, const char *path, const char *value,
                         struct api_error *e) {
    struct buf body;
    struct sketch p = {endpoint, path, value, &body};
    buf_init(&body, 1 << 26);
    put_map(&p, "");
    enum status st = judge_text(endpoint, buf_str(&body), e);
    buf_deinit(&body);
    return st;
}

/* "messages[].role" as an error names it for a list's first member. */
static void spell(const char *path, char out[PATH_BYTES]) {
    size_t len = 0;
    for (const char *c = path; *c; c++) {
        out[len++] = *c;
        if (*c == '[') out[len++] = '0';
    }
    out[len] = 0;
}

static void expect(enum api_endpoint endpoint, const struct api_field *f, const char *value,
                   const char *code) {
    struct api_error e;
    char param[PATH_BYTES];
    spell(f->path, param);
    enum status st = judge(endpoint, f->path, value, &e);
    const char *shown = value ? value : "nothing";
    if (!code && st != ST_OK)
        fail_msg("%s (%u) = %.60s: %s", f->path, endpoint, shown, e.message.text);
    if (!code) return;
    if (st == ST_OK) fail_msg("%s (%u) = %.60s was taken", f->path, endpoint, shown);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.type, "invalid_request_error");
    if (strncmp(e.param, param, strlen(param)) != 0)
        fail_msg("%s (%u) = %.60s: the error names %s: %s", param, endpoint, shown, e.param,
                 e.message.text);
    if (strcmp(e.code ? e.code : "null", code) != 0)
        fail_msg("%s (%u) = %.60s: %s instead of %s", param, endpoint, shown, e.code, code);
}

/* Whether the endpoint's first row of that path is this one: the others are never reached. */
static bool is_first(enum api_endpoint endpoint, const struct api_field *f) {
    return (f->endpoints & (uint32_t)endpoint) && api_field_find(endpoint, f->path) == f;
}

/* Try something on every row of every endpoint; how often that was. */
typedef uint32_t try_fn(enum api_endpoint endpoint, const struct api_field *f);

static uint32_t try_all(try_fn *try_row) {
    uint32_t tried = 0;
    for (uint32_t bit = 0; bit < ENDPOINTS; bit++)
        for (uint32_t i = 0; i < api_field_count; i++)
            if (is_first((enum api_endpoint)(1u << bit), &api_fields[i]))
                tried += try_row((enum api_endpoint)(1u << bit), &api_fields[i]);
    return tried;
}

static bool is_member(const struct api_field *f) {
    size_t len = strlen(f->path);
    return len > 2 && f->path[len - 1] == ']';
}

/* --- tests ------------------------------------------------------------------------------ */

static uint32_t try_wrong_kinds(enum api_endpoint endpoint, const struct api_field *f) {
    static const struct {
        const char *value;
        uint32_t kinds;
    } values[] = {
        {"true", FIELD_BOOL}, {"7", FIELD_INT | FIELD_REAL},
        {"7.5", FIELD_REAL},  {"\"x\"", FIELD_TEXT},
        {"[]", FIELD_LIST},   {"{}", FIELD_MAP},
    };
    uint32_t tried = 0;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (f->use == FIELD_REFUSED || (f->kinds & values[i].kinds)) continue;
        expect(endpoint, f, values[i].value, "invalid_type");
        tried++;
    }
    return tried;
}

static void test_a_value_of_a_wrong_kind_is_refused_by_name(void **state) {
    (void)state;
    assert_true(try_all(try_wrong_kinds) > 1000);
}

static uint32_t try_null(enum api_endpoint endpoint, const struct api_field *f) {
    const char *code = is_member(f) ? "invalid_type" : NULL;
    if (f->is_required) code = "missing_required_parameter";
    if (f->use == FIELD_REFUSED) code = NULL;
    expect(endpoint, f, "null", code);
    return 1;
}

static void test_null_counts_as_not_given(void **state) {
    (void)state;
    assert_true(try_all(try_null) > 200);
}

static uint32_t try_nothing(enum api_endpoint endpoint, const struct api_field *f) {
    if (is_member(f)) return 0;
    expect(endpoint, f, NULL, f->is_required ? "missing_required_parameter" : NULL);
    return f->is_required;
}

static void test_a_required_field_that_is_missing_is_named(void **state) {
    (void)state;
    assert_true(try_all(try_nothing) > 20);
}

static bool is_refused(const struct api_field *f) { return f->use == FIELD_REFUSED; }

static uint32_t try_numbers(enum api_endpoint endpoint, const struct api_field *f) {
    bool is_int = (f->kinds & FIELD_INT) && !(f->kinds & FIELD_REAL);
    bool is_huge = f->max > 0x1p53; /* a step is lost in the digits of its limits */
    if (!(f->kinds & (FIELD_INT | FIELD_REAL)) || is_refused(f)) return 0;
    if (f->min == 0 && f->max == 0) return 0;
    const char *below = is_int ? "integer_below_min_value" : "decimal_below_min_value";
    const char *above = is_int ? "integer_above_max_value" : "decimal_above_max_value";
    double step = is_int ? 1 : 0.0078125;
    const struct {
        double value;
        const char *code;
    } cases[] = {
        {f->min, NULL},
        {is_huge ? f->max / 2 : f->max, NULL},
        {is_huge ? -1e20 : f->min - step, below},
        {is_huge ? f->max : f->max + step, above}, /* 2^63 is past the largest int64_t */
        {-1e300, below},
        {1e300, above},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "%.17g", cases[i].value);
        expect(endpoint, f, text, cases[i].code);
    }
    return 1;
}

static void test_numbers_are_checked_against_their_limits(void **state) {
    (void)state;
    assert_true(try_all(try_numbers) > 50);
}

/* A list, map or text of `count`, in place of the row's field. */
static void expect_count(enum api_endpoint endpoint, const struct api_field *f, double count,
                         const char *code) {
    struct buf value;
    struct sketch p = {endpoint, "", NULL, &value};
    buf_init(&value, 1 << 24);
    if (f->kinds & FIELD_LIST) {
        put_list(&p, f->path, (uint32_t)count);
    } else if (f->kinds & FIELD_MAP) {
        for (uint32_t i = 0; i < (uint32_t)count; i++)
            buf_printf(&value, "%s\"%u\":%s", i ? "," : "{", i,
                       f->store == STORE_METADATA ? "\"\"" : "1");
        buf_put_text(&value, count > 0 ? "}" : "{}");
    } else {
        put_text_of(&p, (size_t)count);
    }
    expect(endpoint, f, buf_text(&value), code);
    buf_deinit(&value);
}

static uint32_t try_counts(enum api_endpoint endpoint, const struct api_field *f) {
    bool is_list = f->kinds & FIELD_LIST, is_map = !is_list && (f->kinds & FIELD_MAP);
    if (!(f->kinds & (FIELD_TEXT | FIELD_LIST | FIELD_MAP)) || is_refused(f)) return 0;
    if (f->words || f->max < 1) return 0;
    const char *below = is_list  ? "array_below_min_length"
                        : is_map ? "object_below_min_properties"
                                 : "string_below_min_length";
    const char *above = is_list  ? "array_above_max_length"
                        : is_map ? "object_above_max_properties"
                                 : "string_above_max_length";
    if (f->min > 0) expect_count(endpoint, f, f->min - 1, below);
    expect_count(endpoint, f, f->min, NULL);
    if (f->max > LIMIT_MAX) return 0;
    expect_count(endpoint, f, f->max - 1, NULL);
    expect_count(endpoint, f, f->max, NULL);
    expect_count(endpoint, f, f->max + 1, above);
    return 1;
}

static void test_texts_lists_and_maps_are_checked_against_their_limits(void **state) {
    (void)state;
    assert_true(try_all(try_counts) > 50);
}

static uint32_t try_words(enum api_endpoint endpoint, const struct api_field *f) {
    if (!f->words) return 0;
    expect(endpoint, f, "\"abracadabra\"", "invalid_value");
    expect(endpoint, f, "\"\"", "invalid_value");
    for (const char *w = f->words; *w;) {
        char word[64];
        size_t len = strcspn(w, " ");
        snprintf(word, sizeof(word), "\"%.*s\"", (int)len, w);
        expect(endpoint, f, word, NULL);
        w += len + (w[len] == ' ');
    }
    return 1;
}

static void test_a_value_that_the_row_does_not_list_is_refused(void **state) {
    (void)state;
    assert_true(try_all(try_words) > 10);
}

static uint32_t try_refused(enum api_endpoint endpoint, const struct api_field *f) {
    static const char *const asks[] = {"\"x\"", "[1]", "{\"a\":1}", "true", "5"};
    static const char *const nothings[] = {"\"\"", "[]", "{}", "false"};
    if (!is_refused(f)) return 0;
    const bool is_flag = f->fallback && strcmp(f->fallback, "true") == 0;
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
        if (!is_flag || strcmp(asks[i], "true") != 0)
            expect(endpoint, f, asks[i], "unsupported_parameter");
    for (size_t i = 0; i < sizeof(nothings) / sizeof(nothings[0]); i++)
        if (!is_flag || strcmp(nothings[i], "false") != 0) expect(endpoint, f, nothings[i], NULL);
    if (!f->fallback) return 1;
    expect(endpoint, f, f->fallback, NULL);
    expect(endpoint, f, is_flag ? "false" : "0.5", "unsupported_parameter");
    return 1;
}

static void test_unsupported_fields_are_refused_unless_without_effect(void **state) {
    (void)state;
    assert_true(try_all(try_refused) > 30);
}

static void test_unknown_fields_are_ignored(void **state) {
    (void)state;
    struct api_error e;
    assert_int_equal(judge_text(EP_EMBEDDINGS,
                                STR("{\"input\":\"x\",\"frobnicate\":[{}],\"stream_options."
                                    "include_usage\":7,\"messages\":5}"),
                                &e),
                     ST_OK);
    assert_int_equal(judge_text(EP_EMBEDDINGS, STR("[1]"), &e), ST_BAD);
    assert_int_equal(judge_text(EP_EMBEDDINGS, STR("null"), &e), ST_BAD);
}

/* Empty names and very many names, too; the known one is among them, first or last. */
static void test_a_field_is_found_among_many_unknown_ones(void **state) {
    (void)state;
    for (uint32_t unknown = 0; unknown < 200; unknown += 33) {
        for (int is_first = 0; is_first < 2; is_first++) {
            struct api_error e;
            struct buf body;
            buf_init(&body, 1 << 16);
            buf_printf(&body, "{%s", is_first ? "\"input\":7,\"\":0" : "\"\":0");
            for (uint32_t i = 0; i < unknown; i++) buf_printf(&body, ",\"field_%u\":%u", i, i);
            buf_printf(&body, "%s}", is_first ? "" : ",\"input\":7");
            assert_int_equal(judge_text(EP_EMBEDDINGS, buf_str(&body), &e), ST_BAD);
            assert_string_equal(e.param, "input");
            assert_string_equal(e.code, "invalid_type");
            buf_deinit(&body);
        }
    }
}

static void test_every_row_is_complete(void **state) {
    (void)state;
    for (uint32_t i = 0; i < api_field_count; i++) {
        const struct api_field *f = &api_fields[i];
        assert_true(f->endpoints != 0 && f->endpoints >> ENDPOINTS == 0);
        assert_true(f->kinds != 0);
        assert_true(f->min <= f->max || f->use == FIELD_REFUSED);
        if (!f->help || strlen(f->help) < 5 || f->help[strlen(f->help) - 1] != '.')
            fail_msg("%s: \"%s\" is no sentence", f->path, f->help ? f->help : "");
        if (f->fallback) {
            struct json *v;
            assert_int_equal(json_parse(str_of(f->fallback), &json_limits_request, &v, NULL),
                             ST_OK);
            json_destroy(v);
        }
        for (uint32_t bit = 0; bit < ENDPOINTS; bit++) { /* what encloses it is there, before it */
            char outer[PATH_BYTES];
            if (!(f->endpoints >> bit & 1)) continue;
            snprintf(outer, sizeof(outer), "%s", f->path);
            char *cut = is_member(f) ? strrchr(outer, '[') : strrchr(outer, '.');
            if (!cut) continue;
            *cut = 0;
            const struct api_field *row = api_field_find((enum api_endpoint)(1u << bit), outer);
            if (!row || row >= f) fail_msg("%s stands without %s", f->path, outer);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_of_a_wrong_kind_is_refused_by_name),
        cmocka_unit_test(test_null_counts_as_not_given),
        cmocka_unit_test(test_a_required_field_that_is_missing_is_named),
        cmocka_unit_test(test_numbers_are_checked_against_their_limits),
        cmocka_unit_test(test_texts_lists_and_maps_are_checked_against_their_limits),
        cmocka_unit_test(test_a_value_that_the_row_does_not_list_is_refused),
        cmocka_unit_test(test_unsupported_fields_are_refused_unless_without_effect),
        cmocka_unit_test(test_unknown_fields_are_ignored),
        cmocka_unit_test(test_a_field_is_found_among_many_unknown_ones),
        cmocka_unit_test(test_every_row_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
