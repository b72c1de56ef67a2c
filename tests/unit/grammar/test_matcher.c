/* Goal:   masks, forced bytes and the budget: a mask allows exactly the tokens that may follow, and
 *         bad input ends with a sentence within its limits.
 * Method: for each position of some instances, every token is tried one by one on a copy of the
 *         matcher and compared with the mask, also with thousands of tokens that are drawn by seed;
 *         limits are set low and must be named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include "grammar/grammar_int.h"
#include "unit/grammar/grammar_lib.h"

static const char *const words[] = {"{",    "}",    "[",      "]",       ",",        ":",
                                    "\"",   "a",    "b",      "\"a\"",   "\":",      "\",",
                                    "1",    "12",   "1,",     ".5",      "-",        "tr",
                                    "true", "ue",   "\"a\":", "{\"",     "\"}",      "}}",
                                    "]}",   "null", "\xC3",   "\xA9",    "\xC3\xA9", "\\",
                                    "\\n",  "\\\"", "ab",     "ba\",\"", "1}",       " ",
                                    "\n",   "e5",   "0",      "\"b\":",  "",         "a",
                                    "\"]",  "ny",   "00",     "\":\"",   "\xF0\x9F", "\x98\x80"};
enum { WORD_COUNT = sizeof(words) / sizeof(*words) };

static struct vocabulary *make_vocabulary(void) {
    struct str tokens[WORD_COUNT];
    struct vocabulary *v = NULL;
    for (size_t i = 0; i < WORD_COUNT; i++) tokens[i] = str_of(words[i]);
    assert_int_equal(vocabulary_create(tokens, WORD_COUNT, &v), ST_OK);
    return v;
}

static void test_a_vocabulary_knows_the_bytes_of_its_tokens(void **state) {
    (void)state;
    struct vocabulary *v = make_vocabulary();
    for (uint32_t i = 0; i < WORD_COUNT; i++)
        assert_true(str_eq(vocabulary_token(v, i), str_of(words[i])));
    vocabulary_destroy(v);
}

static void check_mask(struct matcher *m, const struct vocabulary *v, const char *where) {
    uint64_t mask[(WORD_COUNT + 63) / 64];
    assert_int_equal(vocabulary_words(v), sizeof(mask) / sizeof(*mask));
    for (int again = 0; again < 2; again++) { /* computed, then remembered */
        matcher_mask(m, v, mask);
        for (size_t i = 0; i < WORD_COUNT; i++) {
            struct matcher copy = matcher_copy(m);
            bool fits = words[i][0] && matcher_accept(&copy, str_of(words[i]), NULL);
            matcher_release(&copy);
            if ((mask[i >> 6] >> (i & 63) & 1) != fits) fail_msg("token %zu before %s", i, where);
        }
    }
}

static void test_a_mask_is_what_may_follow(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"string\"}}}",
         "{\"a\":12,\"b\":\"ab\\n\xC3\xA9\",\"c\":[true,{\"a\":null}]}"},
        {"{\"anyOf\":[{\"type\":\"number\",\"minimum\":1.5},{\"type\":\"string\",\"maxLength\":3}]"
         "}",
         "\"aba\""},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\",12,1]}}", "[12,\"ab\",1,\"a\"]"},
        {"{\"type\":\"string\",\"pattern\":\"^(ab)+$\"}", "\"abab\""},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":6}", "\"ab\xC3\xA9\\nab\""},
    };
    struct vocabulary *v = make_vocabulary();
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        struct grammar *g = compile_or_fail(GRAMMAR_SCHEMA, pairs[i][0]);
        struct matcher m = matcher_init(g);
        for (const char *at = pairs[i][1]; *at; at++) {
            check_mask(&m, v, at);
            assert_false(matcher_is_complete(&m) && !matcher_may_continue(&m));
            assert_true(matcher_accept(&m, (struct str){at, 1}, NULL));
        }
        check_mask(&m, v, "the end");
        assert_true(matcher_is_complete(&m));
        grammar_destroy(g);
    }
    vocabulary_destroy(v);
}

enum { MANY = 4000, MANY_BYTES = 64 };

/* Tokens of all kinds: words of any length, cut characters, quotes, control characters. */
static void make_tokens(char (*bytes)[MANY_BYTES], struct str *tokens) {
    static const char *const parts[] = {"a",        "bc",
                                        "name",     "x",
                                        "-",        "X",
                                        "7",        "42",
                                        " ",        "  ",
                                        "_",        "@",
                                        ".",        "/",
                                        ":",        "\"",
                                        "\",\"",    "\":",
                                        "\"}",      "\\",
                                        "\\n",      "\n",
                                        "\t",       "{",
                                        "}",        ",",
                                        "\xC3\xA9", "\xC3",
                                        "\xA9",     "\xE6\x97",
                                        "\xA5",     "\xE0",
                                        "\xED",     "\xF0",
                                        "\xC0",     "\xED\xA0",
                                        "\x7F",     "\xE6\x97\xA5",
                                        "zz",       "1234567"};
    struct rng rng = {.seed = 3};
    for (size_t i = 0; i < MANY; i++) {
        size_t len = 0, count = rng_below(&rng, 4) ? rng_below(&rng, 4) : 10;
        for (size_t k = 0; k < count; k++) {
            struct str part = str_of(parts[rng_below(&rng, sizeof(parts) / sizeof(*parts))]);
            if (len + part.len > MANY_BYTES) break;
            memcpy(bytes[i] + len, part.ptr, part.len);
            len += part.len;
        }
        tokens[i] = (struct str){bytes[i], len};
    }
}

static void check_many(const struct matcher *m, const struct vocabulary *v,
                       const struct str *tokens, const char *where) {
    static uint64_t mask[(MANY + 63) / 64];
    struct matcher at = matcher_copy(m);
    matcher_mask(&at, v, mask);
    matcher_release(&at);
    for (size_t i = 0; i < MANY; i++) {
        struct matcher copy = matcher_copy(m);
        bool fits = tokens[i].len && matcher_accept(&copy, tokens[i], NULL);
        matcher_release(&copy);
        if ((mask[i >> 6] >> (i & 63) & 1) != fits)
            fail_msg("token %zu \"%.*s\" before %s", i, (int)tokens[i].len, tokens[i].ptr, where);
    }
}

static void test_shortcuts_of_masks_are_exact(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"{\"type\":\"string\",\"maxLength\":20}", "\"name \xC3\xA9 abc zz xyz 12"},
        {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":9}", "\"name 123"},
        {"{\"type\":\"string\",\"pattern\":\"[0-9]\"}", "\"name 4 x"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9_]{2,15}$\"}", "\"name_42_zzz"},
        {"{\"type\":\"string\",\"pattern\":\"^[^0-9]*$\"}", "\"na\xE6\x97\xA5me"},
        {"{\"type\":\"string\",\"pattern\":\"^.{3}x*$\"}", "\"abcx"},
        {"{\"type\":\"string\",\"format\":\"email\"}", "\"name.x7@zz.abc"},
        {"{\"type\":\"string\",\"format\":\"uri\"}", "\"bc://name:7/a/b"},
        {"{\"not\":{\"enum\":[\"name\",\"names\"]},\"type\":\"string\"}", "\"namesx"},
        {"{\"properties\":{\"name\":{\"type\":\"integer\"},\"bc\":{}},\"patternProperties\":{\"^x-"
         "\":"
         "{\"type\":\"boolean\"}},\"additionalProperties\":{\"type\":\"null\"}}",
         "{\"name\":4,\"x-bc\":true,\"bcd\":null}"},
        {"{\"properties\":{\"name\":{}},\"propertyNames\":{\"maxLength\":6}}",
         "{\"name\":4,\"abcd\":42}"},
        {"{\"propertyNames\":{\"maxLength\":6},\"maxProperties\":2}", "{\"name\":{\"abc\":42}}"},
        {"{\"type\":\"array\",\"uniqueItems\":true}",
         "[\"a\",\"bc\",42,7,{\"name\":[\"x\",\"x\"]},[1],\"zz\"]"},
        {"{\"items\":{\"enum\":[\"a\",\"abc\",\"zz\",7]},\"uniqueItems\":true,\"type\":\"array\"}",
         "[\"zz\",\"abc\",7,\"a\"]"},
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},{\"pattern\":\"^(name|zz)+$\",\"type\":"
         "\"string\"}]}",
         "\"namezzname"},
    };
    static char bytes[MANY][MANY_BYTES];
    static struct str tokens[MANY];
    struct vocabulary *v = NULL;
    make_tokens(bytes, tokens);
    assert_int_equal(vocabulary_create(tokens, MANY, &v), ST_OK);
    for (int spaced = 0; spaced < 2; spaced++) {
        for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
            const struct grammar_options options = {.kind = GRAMMAR_SCHEMA, .whitespace = spaced};
            struct grammar *g = NULL;
            struct grammar_refusal why;
            assert_int_equal(grammar_compile(str_of(pairs[i][0]), &options, &g, &why), ST_OK);
            struct matcher m = matcher_init(g);
            for (const char *at = pairs[i][1]; *at; at++) {
                check_many(&m, v, tokens, at);
                assert_true(matcher_accept(&m, (struct str){at, 1}, NULL));
            }
            check_many(&m, v, tokens, "the end");
            grammar_destroy(g);
        }
    }
    vocabulary_destroy(v);
}

static void test_no_allowed_byte_leads_to_a_dead_end(void **state) {
    (void)state;
    /* Taking the last byte that is allowed, again and again, always ends in a whole text or goes
     * on; the second list cannot be satisfied and is left out of the choice. */
    struct grammar *g = compile_or_fail(
        GRAMMAR_SCHEMA, "{\"anyOf\":[{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":"
                        "{\"type\":\"integer\",\"minimum\":13,\"maximum\":15,\"multipleOf\":7}},"
                        "{\"type\":\"object\",\"required\":[\"z\"],\"properties\":{\"z\":false}},"
                        "{\"type\":\"integer\",\"minimum\":8,\"maximum\":13,\"multipleOf\":7}]}");
    struct matcher m = matcher_init(g);
    assert_false(accepts(g, "{\"z\":1}"));
    assert_false(matcher_accept(&m, STR("{"), NULL));
    assert_false(matcher_accept(&m, STR("1"), NULL));
    char out[64];
    size_t len = matcher_forced(&m, out, sizeof(out));
    assert_memory_equal(out, "[14", 3);
    assert_int_equal(len, 3);
    grammar_destroy(g);
}

static void test_forced_bytes_are_the_only_ones(void **state) {
    (void)state;
    char out[64];
    struct grammar *g = compile_or_fail(
        GRAMMAR_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"first_name\":{\"type\":\"integer\"}},"
        "\"required\":[\"first_name\"],\"additionalProperties\":false}");
    struct matcher m = matcher_init(g);
    assert_int_equal(matcher_forced(&m, out, sizeof(out)), 14);
    assert_memory_equal(out, "{\"first_name\":", 14);
    assert_int_equal(matcher_forced(&m, out, 3), 3);
    assert_true(matcher_accept(&m, STR("{\"first_name\":7"), NULL));
    assert_int_equal(matcher_forced(&m, out, sizeof(out)), 0);
    assert_true(matcher_accept(&m, STR("}"), NULL));
    assert_true(matcher_is_complete(&m));
    assert_false(matcher_may_continue(&m));
    assert_int_equal(matcher_forced(&m, out, sizeof(out)), 0);
    grammar_destroy(g);
}

static void test_a_rejected_text_leaves_the_matcher(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(GRAMMAR_REGEX, "abc");
    struct matcher m = matcher_init(g), copy = matcher_copy(&m);
    size_t accepted = 0;
    assert_false(matcher_accept(&m, STR("abx"), &accepted));
    assert_int_equal(accepted, 2);
    assert_int_equal(m.state, copy.state);
    assert_true(matcher_accept(&m, STR("abc"), &accepted));
    grammar_destroy(g);
}

#define RECURSION_WITHOUT_BASE                                                                     \
    "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"array\",\"minItems\":1,\"items\":"       \
    "{\"$ref\":\"#/$defs/a\"}}}}"

static void test_an_unsatisfiable_schema_is_empty(void **state) {
    (void)state;
    static const char *const sources[] = {
        "false", "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", RECURSION_WITHOUT_BASE,
        "{\"type\":\"string\",\"pattern\":\"^a$\",\"allOf\":[{\"pattern\":\"^b$\"}]}"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct grammar *g = compile_or_fail(GRAMMAR_SCHEMA, sources[i]);
        assert_true(grammar_is_empty(g));
        assert_false(accepts(g, "[]"));
        grammar_destroy(g);
    }
}

static const int64_t HOUR_US = 3600000000;
static int64_t hour_each_time(void *self) { return *(int64_t *)self += HOUR_US; }
static bool always(void *ctx) {
    (void)ctx;
    return true;
}

static void test_compiling_keeps_to_its_budget(void **state) {
    (void)state;
    int64_t now = 0;
    const struct clock clock = {"hours", hour_each_time, &now};
    const struct grammar_options rows[] = {
        {.kind = GRAMMAR_REGEX, .bytes_max = 20000},
        {.kind = GRAMMAR_REGEX, .states_max = 50},
        {.kind = GRAMMAR_REGEX, .clock = &clock},
        {.kind = GRAMMAR_REGEX, .cancelled = always},
    };
    struct buf source;
    buf_init(&source, 1 << 20);
    for (int i = 0; i < 3000; i++) buf_printf(&source, "%s(a%d|b)", i ? "|" : "", i);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct grammar *g = NULL;
        struct grammar_refusal why;
        enum status st = grammar_compile(buf_str(&source), &rows[i], &g, &why);
        assert_int_equal(st, i == 3 ? ST_CANCELLED : ST_FULL);
        assert_true(why.err.text[0] != 0);
    }
    buf_deinit(&source);
}

static void test_matching_forgets_before_it_fails(void **state) {
    (void)state;
    const struct grammar_options options = {.kind = GRAMMAR_REGEX, .bytes_max = 800000};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    /* Each of the last 40 characters is to be remembered: far more states than fit. */
    assert_int_equal(grammar_compile(STR("(a|b)*a(a|b){40}"), &options, &g, &why), ST_OK);
    struct matcher m = matcher_init(g);
    uint32_t bits = 12345;
    for (int i = 0; i < 2000; i++) {
        bits = bits * 1664525 + 1013904223;
        assert_true(matcher_accept(&m, bits >> 31 ? STR("a") : STR("b"), NULL));
        assert_true(grammar_bytes(g) <= options.bytes_max);
    }
    assert_int_equal(matcher_status(&m, NULL), ST_OK);
    grammar_destroy(g);
}

/* What one answer makes large does not stay with the others. */
static void test_a_large_answer_leaves_nothing_behind(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(GRAMMAR_REGEX, "x*|(a|b)*a(a|b){40}");
    const size_t compiled = grammar_bytes(g);
    struct matcher m = matcher_init(g), kept = matcher_init(g);
    uint32_t bits = 12345;
    assert_true(matcher_accept(&kept, STR("xx"), NULL));
    for (int i = 0; i < 3000; i++) {
        bits = bits * 1664525 + 1013904223;
        assert_true(matcher_accept(&m, bits >> 31 ? STR("a") : STR("b"), NULL));
    }
    assert_true(grammar_bytes(g) > 20 * compiled);
    matcher_release(&m);
    tables_collect(g);
    assert_true(matcher_is_complete(&kept));
    assert_true(grammar_bytes(g) < 2 * compiled);
    assert_true(matcher_accept(&kept, STR("x"), NULL));
    assert_false(matcher_accept(&kept, STR("a"), NULL));
    assert_true(accepts(g, "abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"));
    grammar_destroy(g);
}

static void test_a_step_past_the_budget_fails_one_matcher(void **state) {
    (void)state;
    const struct grammar_options options = {.kind = GRAMMAR_REGEX, .states_max = 300};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    struct err err = {0};
    assert_int_equal(grammar_compile(STR("x*|(a|b)*a(a|b){40}"), &options, &g, &why), ST_OK);
    struct matcher m = matcher_init(g), other = matcher_copy(&m);
    char text[5000];
    uint32_t bits = 12345;
    for (size_t i = 0; i < sizeof(text); i++) {
        bits = bits * 1664525 + 1013904223;
        text[i] = bits >> 31 ? 'a' : 'b';
    }
    assert_false(matcher_accept(&m, (struct str){text, sizeof(text)}, NULL));
    assert_int_equal(matcher_status(&m, &err), ST_FULL);
    assert_true(err.text[0] != 0);
    assert_false(matcher_accept(&m, STR("a"), NULL));
    assert_true(matcher_accept(&other, STR("xxx"), NULL));
    assert_int_equal(matcher_status(&other, NULL), ST_OK);
    grammar_destroy(g);
}

static void test_a_quick_hold_leaves_long_work_undone(void **state) {
    (void)state;
    enum { WAYS = 700 };
    struct buf source;
    const struct str tokens[] = {STR("a"), STR("b"), STR("abcde1"), STR("1")};
    struct vocabulary *v = NULL;
    uint64_t mask[1];
    assert_int_equal(vocabulary_create(tokens, 4, &v), ST_OK);
    buf_init(&source, 1 << 20);
    buf_printf(&source, "%s", "root ::= \"b\" \"b\" | (\"a\" (");
    for (int i = 0; i < WAYS; i++) buf_printf(&source, "%s[a-z]{1,9} \"%d\"", i ? " | " : "", i);
    buf_printf(&source, "%s", "))");
    const struct grammar_options options = {.kind = GRAMMAR_GBNF, .time_us = HOUR_US};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    assert_int_equal(grammar_compile(buf_str(&source), &options, &g, &why), ST_OK);
    struct matcher m = matcher_init(g);
    assert_true(grammar_hold(g, true));
    assert_true(matcher_accept(&m, STR("b"), NULL)); /* few units of work */
    assert_false(grammar_is_late(g));
    grammar_let_go(g);
    m = matcher_init(g);
    assert_true(matcher_accept(&m, STR("a"), NULL));
    assert_true(grammar_hold(g, true));
    matcher_mask(&m, v, mask);
    assert_true(grammar_is_late(g));
    assert_int_equal(matcher_status(&m, NULL), ST_OK);
    grammar_let_go(g);
    matcher_mask(&m, v, mask); /* it has all the time */
    assert_int_equal(mask[0], 1 | 2 | 4);
    assert_int_equal(matcher_status(&m, NULL), ST_OK);
    buf_deinit(&source);
    grammar_destroy(g);
    vocabulary_destroy(v);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_a_vocabulary_knows_the_bytes_of_its_tokens),
        cmocka_unit_test(test_a_mask_is_what_may_follow),
        cmocka_unit_test(test_shortcuts_of_masks_are_exact),
        cmocka_unit_test(test_no_allowed_byte_leads_to_a_dead_end),
        cmocka_unit_test(test_forced_bytes_are_the_only_ones),
        cmocka_unit_test(test_a_rejected_text_leaves_the_matcher),
        cmocka_unit_test(test_an_unsatisfiable_schema_is_empty),
        cmocka_unit_test(test_compiling_keeps_to_its_budget),
        cmocka_unit_test(test_matching_forgets_before_it_fails),
        cmocka_unit_test(test_a_step_past_the_budget_fails_one_matcher),
        cmocka_unit_test(test_a_large_answer_leaves_nothing_behind),
        cmocka_unit_test(test_a_quick_hold_leaves_long_work_undone),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
