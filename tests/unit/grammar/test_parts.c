/* Goal:   a document of parts accepts exactly the texts that it describes; masks allow exactly the
 *         tokens that may follow, special ones included; schemas are relaxed or refused with their
 *         place.
 * Method: documents with texts that they accept and refuse; every mask against the acceptance of
 *         each token; documents drawn by seed against a reference that keeps the set of places
 *         which a part may end at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/rng.h"
#include "grammar/grammar_int.h"
#include "unit/grammar/grammar_lib.h"

#define MARK "\xFF"
#define THINK MARK "<think>" MARK
#define CALL "<tool_call>"

static const char *const words[] = {"a",
                                    "b",
                                    "c",
                                    "<",
                                    ">",
                                    "{",
                                    "}",
                                    "\"",
                                    ":",
                                    ",",
                                    "[",
                                    "]",
                                    "1",
                                    " ",
                                    "\n",
                                    "ab",
                                    "<t",
                                    "ol",
                                    "o",
                                    "tool_call",
                                    "<tool",
                                    "_",
                                    "_call",
                                    ">{",
                                    "}\n",
                                    "a\n",
                                    ">\n{\"",
                                    "\"a\"",
                                    "\"a\":",
                                    "a\"}",
                                    "</",
                                    "tool",
                                    "l",
                                    "call",
                                    ": ",
                                    ", ",
                                    "\xC3\xA9",
                                    "\xC3",
                                    "\xA9",
                                    "true",
                                    "x\n",
                                    CALL,
                                    "c<",
                                    "ca",
                                    "}<",
                                    "<tool_call>{",
                                    "",
                                    THINK,
                                    MARK "t" MARK,
                                    MARK "</think>" MARK,
                                    MARK "\n" MARK,
                                    "think",
                                    "\"\n",
                                    "y",
                                    "xy",
                                    "ccccccccccc",
                                    "e\xCC"};
enum { WORD_COUNT = sizeof(words) / sizeof(*words) };

static struct vocabulary *make_vocabulary(void) {
    struct str tokens[WORD_COUNT];
    struct vocabulary *v = NULL;
    for (size_t i = 0; i < WORD_COUNT; i++) tokens[i] = str_of(words[i]);
    assert_int_equal(vocabulary_create(tokens, WORD_COUNT, &v), ST_OK);
    return v;
}

static bool has_bit(const uint64_t *mask, size_t i) { return mask[i >> 6] >> (i & 63) & 1; }

enum { MASK_WORDS = (WORD_COUNT + 63) / 64 };

static void check_mask(struct matcher *m, const struct vocabulary *v, const char *where) {
    uint64_t mask[MASK_WORDS];
    for (int again = 0; again < 2; again++) { /* computed, then remembered */
        matcher_mask(m, v, mask);
        assert_int_equal(matcher_status(m, NULL), ST_OK);
        for (size_t i = 0; i < WORD_COUNT; i++) {
            struct matcher copy = matcher_copy(m);
            bool fits = words[i][0] && matcher_accept(&copy, str_of(words[i]), NULL);
            matcher_release(&copy);
            if (has_bit(mask, i) != fits) fail_msg("token %zu (%s) before %s", i, words[i], where);
        }
    }
}

#define FREE "{\"free\":[\"" CALL "\"]}"
#define SCHEMA_A                                                                                   \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"array\","  \
    "\"items\":{\"type\":\"integer\"}}},\"required\":[\"a\"],\"additionalProperties\":false}"
#define PART_A "{\"schema\":" SCHEMA_A ",\"at\":\"tools[0].parameters\"}"
#define TOOL "{\"sequence\":[{\"text\":\"" CALL "\"}," PART_A ",{\"text\":\"</tool_call>\"}]}"
#define AUTO "{\"sequence\":[" FREE ",{\"repeat\":{\"sequence\":[" TOOL "," FREE "]}}]}"

static const struct accept_case cases[] = {
    {"{\"text\":\"ab\"}", {"ab"}, {"", "a", "abc"}},
    {"{\"text\":\"\"}", {""}, {"a"}},
    {"{\"token\":\"<think>\"}", {THINK}, {"<think>", MARK "<think>", "", THINK "a"}},
    {"{\"free\":[]}", {"", "a\n\xC3", "<tool_call>"}, {THINK, MARK, "a" MARK}},
    {FREE, {"", "<tool_call", "<<tool_cal>", "\xC3\xA9"}, {CALL, "a" CALL, CALL "b", MARK}},
    {"{\"free\":[\"ab\",\"bab\",\"aa\"]}", {"ba", "bb", "a", "acb"}, {"ab", "bab", "caad"}},
    {"{\"pattern\":\"[a-c]{2,}|x\"}", {"ab", "x", "ccc"}, {"a", "xx", ""}},
    {PART_A,
     {"{\"a\":\"<tool_call>\"}", "{\"a\":\"\",\"b\":[1,2]}"},
     {"{}", "{\"a\": \"\"}", "{\"a\":\"\n\"}"}},
    {"{\"schema\":" SCHEMA_A ",\"spaced\":true}",
     {"{\"a\":\"\"}", "{\"a\": \"\", \"b\": [1, 2,3]}", "{\"a\": \"\",\"b\":[]}"},
     {"{\"a\" :\"\"}", "{ \"a\":\"\"}", "{\"a\":  \"\"}", "{\"a\":\"\" }", "{\"a\":\"\" ,\"b\":[]}",
      "{\"a\":\n\"\"}", "{\"a\":\"\",\"b\":[ 1]}", " {\"a\":\"\"}"}},
    {"{\"schema\":{\"const\":{\"x\":[1,2]}},\"spaced\":true}",
     {"{\"x\":[1,2]}", "{\"x\": [1, 2]}"},
     {"{ \"x\":[1,2]}", "{\"x\":[1,2 ]}"}},
    {"{\"grammar\":\"json\",\"source\":\"\"}", {"{}", "{\"a\":[1]}"}, {"[]", ""}},
    {"{\"grammar\":\"schema\",\"source\":\"{\\\"enum\\\":[1,true]}\"}", {"1", "true"}, {"2"}},
    {"{\"grammar\":\"regex\",\"source\":\"a+\"}", {"a", "aa"}, {"", "b"}},
    {"{\"grammar\":\"choice\",\"source\":\"[\\\"a\\\",\\\"b\\\"]\"}", {"a", "b"}, {"", "c"}},
    {"{\"grammar\":\"gbnf\",\"source\":\"root ::= \\\"(\\\" root? \\\")\\\"\"}",
     {"()", "(())"},
     {"(", "(()"}},
    {"{\"grammar\":\"lark\",\"source\":\"start: \\\"a\\\" start?\"}", {"a", "aa"}, {"", "b"}},
    {"{\"sequence\":[{\"text\":\"a\"},{\"token\":\"t\"},{\"free\":[\"b\"]},{\"text\":\"b\"}]}",
     {"a" MARK "t" MARK "b", "a" MARK "t" MARK "xx\nb"},
     {"atb", "a" MARK "t" MARK "bb", "ab"}},
    {"{\"any\":[{\"text\":\"a\"},{\"pattern\":\"[0-9]+\"},{\"text\":\"ab\"}]}",
     {"a", "ab", "12"},
     {"", "a1"}},
    {"{\"repeat\":{\"text\":\"a\"}}", {"", "a", "aaa"}, {"b"}},
    {"{\"repeat\":{\"text\":\"a\"},\"max\":0}", {""}, {"a"}},
    {"{\"repeat\":{\"text\":\"a\"},\"min\":2}", {"aa", "aaa", "aaaaa"}, {"", "a"}},
    {"{\"repeat\":{\"text\":\"a\"},\"min\":1,\"max\":3}", {"a", "aa", "aaa"}, {"", "aaaa"}},
    {"{\"repeat\":{\"text\":\"a\"},\"max\":2}", {"", "a", "aa"}, {"aaa"}},
    {"{\"repeat\":{\"text\":\"a\"},\"min\":2,\"max\":2}", {"aa"}, {"", "a", "aaa"}},
    {"{\"repeat\":{\"text\":\"a\"},\"between\":{\"text\":\",\"}}",
     {"", "a", "a,a,a"},
     {",", "a,", "aa", ",a"}},
    {"{\"repeat\":{\"text\":\"a\"},\"between\":{\"text\":\",\"},\"min\":2,\"max\":3}",
     {"a,a", "a,a,a"},
     {"", "a", "a,a,a,a", "a,a,"}},
    {"{\"some\":[{\"text\":\"a\"},{\"text\":\"b\"},{\"text\":\"c\"}],\"between\":{\"text\":\", "
     "\"}}",
     {"", "a", "b", "c", "a, b", "a, c", "b, c", "a, b, c"},
     {",", "a,", "ab", "b, a", "a, a", ", b", "a, b, c, "}},
    {"{\"some\":[{\"text\":\"a\"},{\"pattern\":\"b?\"}]}", {"", "a", "b", "ab"}, {"ba", "aa"}},
    {"{\"repeat\":{\"repeat\":{\"text\":\"a\"}},\"between\":{\"pattern\":\",?\"}}",
     {"", "a", "aa,,a", ","},
     {"b"}},
    {AUTO,
     {"", "a < b", CALL "{\"a\":\"\"}</tool_call>", "x" CALL "{\"a\":\"\"}</tool_call>y<tool_call",
      CALL "{\"a\":\"\"}</tool_call>\n" CALL "{\"a\":\"b\"}</tool_call>"},
     {CALL, CALL "{}</tool_call>", "a" CALL "b", CALL "{\"a\":\"\"}</tool_call>" CALL}},
};

static void test_each_kind_of_part_accepts_its_texts(void **state) {
    (void)state;
    check_cases(GRAMMAR_PARTS, cases, sizeof(cases) / sizeof(*cases));
}

/* Blanks between the tokens of JSON are those of all schemas; "spaced" takes none away. */
static void test_whitespace_is_an_option_of_all_schemas(void **state) {
    (void)state;
    const struct grammar_options options = {.kind = GRAMMAR_PARTS, .whitespace = true};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    assert_int_equal(grammar_compile(STR("{\"repeat\":{\"schema\":" SCHEMA_A ",\"spaced\":true}}"),
                                     &options, &g, &why),
                     ST_OK);
    assert_true(accepts(g, "{ \"a\" :\n\"\"}{\"a\":\"\"}"));
    grammar_destroy(g);
}

/* Along each text, cut at every byte, also inside characters and marks. */
static void test_a_mask_is_what_may_follow(void **state) {
    (void)state;
    struct vocabulary *v = make_vocabulary();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct grammar *g = compile_or_fail(GRAMMAR_PARTS, cases[i].source);
        for (const char *const *t = cases[i].yes; *t; t++) {
            struct matcher m = matcher_init(g);
            for (const char *at = *t; *at; at++) {
                check_mask(&m, v, at);
                assert_true(matcher_accept(&m, (struct str){at, 1}, NULL));
            }
            check_mask(&m, v, "the end");
            matcher_release(&m);
        }
        grammar_destroy(g);
    }
    vocabulary_destroy(v);
}

static bool allows(struct matcher *m, const struct vocabulary *v, const char *word) {
    uint64_t mask[MASK_WORDS];
    size_t i = 0;
    while (strcmp(words[i], word) != 0) i++;
    matcher_mask(m, v, mask);
    return has_bit(mask, i);
}

static void test_a_token_may_end_a_mark_and_go_on(void **state) {
    (void)state;
    struct vocabulary *v = make_vocabulary();
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, AUTO);
    struct matcher m = matcher_init(g);
    assert_true(allows(&m, v, ">\n{\""));
    assert_true(allows(&m, v, "<tool_call>{"));
    assert_true(matcher_accept(&m, STR("c<tool_call"), NULL));
    assert_true(allows(&m, v, ">{"));      /* it begins the call */
    assert_false(allows(&m, v, ">\n{\"")); /* which has no line end */
    assert_true(allows(&m, v, "a\n"));     /* "<tool_calla" is text */
    assert_true(matcher_accept(&m, STR(">{"), NULL));
    assert_false(allows(&m, v, "a\n"));
    assert_true(allows(&m, v, "\"a\":"));
    grammar_destroy(g);
    vocabulary_destroy(v);
}

/* Schemas know where any text may follow and leave out the tokens with control characters; free
 * text has them. */
static void test_line_ends_may_follow_in_free_text_beside_schemas(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{\"any\":[{\"free\":[]},{\"schema\":{}}]}",
        "{\"sequence\":[{\"pattern\":\"[a-zA-Z0-9<>\\n]*\"},{\"schema\":{}}]}",
        "{\"any\":[{\"schema\":{\"type\":\"string\"}},{\"free\":[\"zz\"]}]}",
        "{\"any\":[{\"schema\":{\"type\":\"string\",\"maxLength\":9}},{\"free\":[\"zz\"]}]}"};
    struct vocabulary *v = make_vocabulary();
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct grammar *g = compile_or_fail(GRAMMAR_PARTS, sources[i]);
        struct matcher m = matcher_init(g);
        assert_true(allows(&m, v, "a\n"));
        if (i != 1 && !matcher_accept(&m, STR("\""), NULL)) fail();
        check_mask(&m, v, sources[i]);
        assert_true(allows(&m, v, "a\n"));
        matcher_release(&m);
        grammar_destroy(g);
    }
    vocabulary_destroy(v);
}

static void test_special_tokens_are_allowed_where_they_are_named_only(void **state) {
    (void)state;
    static const struct {
        enum grammar_kind kind;
        const char *source;
    } others[] = {{GRAMMAR_JSON, ""},
                  {GRAMMAR_SCHEMA, "{}"},
                  {GRAMMAR_SCHEMA, "{\"not\":{\"const\":\"a\"}}"},
                  {GRAMMAR_REGEX, "(?!a)[^x]*"},
                  {GRAMMAR_REGEX, "[\\s\\S]*"},
                  {GRAMMAR_GBNF, "root ::= [^a]* ."},
                  {GRAMMAR_LARK, "start: /(.|\\n)*/"},
                  {GRAMMAR_PARTS, "{\"free\":[]}"}};
    struct vocabulary *v = make_vocabulary();
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct grammar *g = compile_or_fail(others[i].kind, others[i].source);
        struct matcher m = matcher_init(g);
        for (int step = 0; step < 2; step++) {
            assert_false(allows(&m, v, THINK));
            assert_false(allows(&m, v, MARK "\n" MARK));
            matcher_accept(&m, STR("\""), NULL);
        }
        grammar_destroy(g);
    }
    struct grammar *g = compile_or_fail(
        GRAMMAR_PARTS, "{\"sequence\":[{\"free\":[]},{\"any\":[{\"token\":\"<think>\"},{\"token\":"
                       "\"\\n\"}]},{\"schema\":{}}]}");
    struct matcher m = matcher_init(g);
    assert_true(allows(&m, v, THINK));
    assert_true(allows(&m, v, MARK "\n" MARK));
    assert_false(allows(&m, v, MARK "t" MARK));
    assert_true(matcher_accept(&m, STR(THINK), NULL));
    assert_false(allows(&m, v, THINK));
    grammar_destroy(g);
    vocabulary_destroy(v);
}

static void test_a_forced_token_has_its_marks(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(
        GRAMMAR_PARTS, "{\"sequence\":[{\"text\":\"a\"},{\"token\":\"t\"},{\"text\":\"b\"}]}");
    struct matcher m = matcher_init(g);
    char out[16];
    assert_int_equal(matcher_forced(&m, out, sizeof(out)), 5);
    assert_memory_equal(out, "a" MARK "t" MARK "b", 5);
    grammar_destroy(g);
}

/* ---- relaxed and refused ---- */

#define BAD "{\"properties\":{\"a\":{\"$dynamicRef\":\"#x\"}}}"

static void test_a_schema_that_cannot_be_kept_is_relaxed_if_it_may_be(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(
        GRAMMAR_PARTS,
        "{\"sequence\":[" PART_A ",{\"schema\":" BAD
        ",\"at\":\"tools[3]\",\"relax\":\"object\",\"spaced\":true},"
        "{\"schema\":{\"type\":\"nothing\"},\"at\":\"tools[4]\",\"relax\":\"object\"}]}");
    assert_string_equal(grammar_relaxed(g), "tools[3]#/properties/a: $dynamicRef is not supported");
    assert_true(accepts(g, "{\"a\":\"\"}{\"x\": 1, \"y\":2}{}"));
    assert_false(accepts(g, "{\"a\":\"\"}1{}"));
    assert_false(accepts(g, "{\"a\":\"\"}{}{\"x\": 1}"));
    grammar_destroy(g);
    g = compile_or_fail(GRAMMAR_PARTS, "{\"schema\":{\"type\":\"nothing\"},\"relax\":\"value\"}");
    assert_true(accepts(g, "[1]"));
    assert_true(accepts(g, "{}"));
    grammar_destroy(g);
    g = compile_or_fail(GRAMMAR_PARTS, "{\"schema\":{\"type\":\"null\"},\"relax\":\"object\"}");
    assert_string_equal(grammar_relaxed(g), "");
    assert_true(accepts(g, "null"));
    grammar_destroy(g);
    g = compile_or_fail(GRAMMAR_SCHEMA, "{}");
    assert_string_equal(grammar_relaxed(g), "");
    grammar_destroy(g);
}

/* `levels` times `before`, `inner`, `levels` times `after`. */
static char *nest(const char *before, const char *inner, const char *after, int levels) {
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < levels; i++) buf_put_text(&b, before);
    buf_put_text(&b, inner);
    for (int i = 0; i < levels; i++) buf_put_text(&b, after);
    char *text = malloc(b.len + 1);
    assert_non_null(text);
    memcpy(text, b.ptr, b.len);
    text[b.len] = 0;
    buf_deinit(&b);
    return text;
}

static void expect_refusal(const char *source, const char *path, const char *word) {
    const struct grammar_options options = {.kind = GRAMMAR_PARTS};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    if (grammar_compile(str_of(source), &options, &g, &why) != ST_BAD) fail_msg("%s", source);
    assert_null(g);
    if (strcmp(why.path, path) != 0) fail_msg("%s: at %s", source, why.path);
    if (!strstr(why.err.text, word)) fail_msg("\"%s\" does not say %s", why.err.text, word);
}

static void test_refusals_have_a_place_and_a_sentence(void **state) {
    (void)state;
    static const struct {
        const char *source, *path, *word;
    } bad[] = {
        {"", "", "cannot be read"},
        {"[", "", "cannot be read"},
        {"{}", "#", "expected an object with text"},
        {"[]", "#", "expected an object with text"},
        {"\"a\"", "#", "expected an object with text"},
        {"{\"word\":\"a\"}", "#", "expected an object with text"},
        {"{\"text\":\"a\",\"min\":1}", "#", "unknown key \"min\" beside \"text\""},
        {"{\"text\":\"a\",\"token\":\"a\"}", "#", "unknown key \"token\" beside \"text\""},
        {"{\"text\":1}", "#", "text: expected a text"},
        {"{\"token\":\"\"}", "#", "not empty"},
        {"{\"token\":[]}", "#", "token: expected a text"},
        {"{\"free\":\"a\"}", "#", "list of marks"},
        {"{\"free\":[\"\"]}", "#", "not empty"},
        {"{\"free\":[1]}", "#", "not empty"},
        {"{\"pattern\":\"(\"}", "#", "pattern: "},
        {"{\"pattern\":null}", "#", "pattern: expected a text"},
        {"{\"any\":[]}", "#", "at least one part"},
        {"{\"sequence\":[]}", "#", "at least one part"},
        {"{\"sequence\":{}}", "#", "at least one part"},
        {"{\"sequence\":[{\"text\":\"a\"},{\"any\":[{\"text\":\"a\"},{\"b\":1}]}]}",
         "#/sequence/1/any/1", "expected an object"},
        {"{\"repeat\":{\"x\":1}}", "#/repeat", "expected an object"},
        {"{\"repeat\":{\"text\":\"a\"},\"between\":7}", "#/between", "expected an object"},
        {"{\"repeat\":{\"text\":\"a\"},\"min\":-1}", "#", "min: expected a whole number"},
        {"{\"repeat\":{\"text\":\"a\"},\"max\":1.5}", "#", "max: expected a whole number"},
        {"{\"repeat\":{\"text\":\"a\"},\"max\":10001}", "#", "from 0 to 10000"},
        {"{\"repeat\":{\"text\":\"a\"},\"min\":3,\"max\":2}", "#", "min is 3 and max is 2"},
        {"{\"grammar\":\"parts\",\"source\":\"{}\"}", "#", "unknown kind \"parts\""},
        {"{\"grammar\":\"regex\"}", "#", "source: expected a text"},
        {"{\"any\":[{\"grammar\":\"gbnf\",\"source\":\"x\"}]}", "#/any/0/source, line 1", "rule"},
        {"{\"grammar\":\"gbnf\",\"source\":\"x\",\"at\":\"\"}", "line 1", "rule"},
        {"{\"grammar\":\"choice\",\"source\":\"[1]\"}", "#/source/0", "expected a text"},
        {"{\"schema\":" BAD ",\"at\":\"tools[1].parameters\"}", "tools[1].parameters#/properties/a",
         "$dynamicRef"},
        {"{\"sequence\":[{\"schema\":" BAD "}]}", "#/sequence/0/schema#/properties/a",
         "$dynamicRef"},
        {"{\"schema\":{},\"at\":1}", "#", "at: expected a text"},
        {"{\"refuse\":\"no place for it\",\"at\":\"tools[2]\"}", "tools[2]", "no place for it"},
        {"{\"schema\":{},\"relax\":1}", "#", "relax: expected \"object\" or \"value\""},
        {"{\"schema\":{},\"spaced\":\"\"}", "#", "spaced: expected true or false"},
        {"{\"schema\":7,\"at\":\"x\"}", "x#", "object or a boolean"},
        /* the first refusal stands, and one that was relaxed does not */
        {"{\"sequence\":[{\"schema\":" BAD
         ",\"relax\":\"object\"},{\"schema\":{\"type\":1},\"at\":\"y\"},"
         "{\"text\":1}]}",
         "y#", "type: expected"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        expect_refusal(bad[i].source, bad[i].path, bad[i].word);
}

static void test_depth_is_bounded(void **state) {
    (void)state;
    char *parts = nest("{\"any\":[", "{\"text\":\"a\"}", "]}", 63);
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, parts);
    assert_true(accepts(g, "a"));
    grammar_destroy(g);
    free(parts);
    char path[GRAMMAR_PATH_BYTES] = "#";
    parts = nest("{\"repeat\":", "{\"text\":\"a\"}", "}", 64);
    for (size_t i = 1; i + 1 < sizeof(path); i++) path[i] = "/repeat"[(i - 1) % 7];
    expect_refusal(parts, path, "more than 64 levels");
    free(parts);
    char *schema = nest("{\"not\":", "{}", "}", 200);
    parts = nest("{\"schema\":", schema, ",\"at\":\"deep\"}", 1);
    expect_refusal(parts, "deep#", "more than 200 levels");
    free(parts);
    parts = nest("{\"schema\":", schema, ",\"relax\":\"object\"}", 1);
    g = compile_or_fail(GRAMMAR_PARTS, parts);
    assert_non_null(strstr(grammar_relaxed(g), "200 levels"));
    grammar_destroy(g);
    free(parts);
    free(schema);
}

/* A schema that passes the budget is not relaxed. */
static void test_a_budget_that_fails_is_not_relaxed(void **state) {
    (void)state;
    const struct grammar_options options = {.kind = GRAMMAR_PARTS, .states_max = 300};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    assert_int_equal(
        grammar_compile(STR("{\"schema\":{\"pattern\":\"^(a|b)*a(a|b){9}c{99}$\",\"not\":"
                            "{\"pattern\":\"x\"}},\"relax\":\"object\"}"),
                        &options, &g, &why),
        ST_FULL);
    assert_null(g);
}

/* Many schemas with references to places of their own document. */
static void test_references_stay_in_their_schema(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(
        GRAMMAR_PARTS,
        "{\"sequence\":[{\"schema\":{\"$ref\":\"#/$defs/"
        "x\",\"$defs\":{\"x\":{\"type\":\"null\"}}}},"
        "{\"schema\":{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"boolean\"}}}},"
        "{\"schema\":{\"items\":{\"$ref\":\"#\"},\"type\":\"array\"}}]}");
    assert_true(accepts(g, "nulltrue[[],[[]]]"));
    assert_false(accepts(g, "truenull[]"));
    assert_false(accepts(g, "nulltrue[null]"));
    grammar_destroy(g);
    expect_refusal("{\"sequence\":[{\"schema\":{\"$defs\":{\"x\":{}}}},{\"schema\":{\"$ref\":"
                   "\"#/$defs/x\"},\"at\":\"second\"}]}",
                   "second#", "is not in this document");
}

/* ---- the reference ---- */

/* A set of places in a text of fewer than 64 bytes. */
typedef uint64_t places;

static places ends_of(const struct json *part, struct str text, places starts);

static places literal_ends(struct str literal, struct str text, places starts) {
    places ends = 0;
    for (size_t at = 0; at + literal.len <= text.len; at++)
        if (starts >> at & 1 && memcmp(text.ptr + at, literal.ptr, literal.len) == 0)
            ends |= UINT64_C(1) << (at + literal.len);
    return ends;
}

static bool has_mark_at_end(const struct json *marks, struct str read) {
    for (size_t i = 0; i < json_count(marks); i++) {
        struct str mark = json_str(json_at(marks, i));
        if (mark.len <= read.len && str_eq(str_skip(read, read.len - mark.len), mark)) return true;
    }
    return false;
}

static places free_ends(const struct json *marks, struct str text, places starts) {
    places ends = 0;
    for (size_t from = 0; from <= text.len; from++) {
        if (!(starts >> from & 1)) continue;
        for (size_t to = from; to <= text.len; to++) {
            if (to > from && text.ptr[to - 1] == MARK[0]) break;
            if (has_mark_at_end(marks, str_skip(str_take(text, to), from))) break;
            ends |= UINT64_C(1) << to;
        }
    }
    return ends;
}

static places repeat_ends(const struct json *part, struct str text, places starts) {
    const int64_t min = json_int(json_get(part, "min"), 0);
    const int64_t max = json_int(json_get(part, "max"), 1000);
    const struct json *between = json_get(part, "between");
    places ends = min == 0 ? starts : 0, now = starts;
    for (int64_t i = 1; i <= max && i < 70 && now; i++) {
        if (i > 1 && between) now = ends_of(between, text, now);
        now = ends_of(json_get(part, "repeat"), text, now);
        if (i >= min) ends |= now;
    }
    return ends;
}

/* The schemas and patterns that are drawn, and all their texts. */
static const struct {
    const char *part;
    const char *texts[6];
} finite[] = {
    {"{\"schema\":{\"enum\":[\"a\",1,[1]]}}", {"\"a\"", "1", "[1]"}},
    {"{\"schema\":{\"const\":{\"a\":1}},\"spaced\":true}", {"{\"a\":1}", "{\"a\": 1}"}},
    {"{\"schema\":{\"type\":\"boolean\"}}", {"true", "false"}},
    {"{\"schema\":{\"type\":\"string\",\"pattern\":\"^[ab]$\"}}", {"\"a\"", "\"b\""}},
    {"{\"pattern\":\"a|<t|b\\n\"}", {"a", "<t", "b\n"}},
    {"{\"grammar\":\"choice\",\"source\":\"[\\\"a\\\",\\\"ab\\\"]\"}", {"a", "ab"}},
};
enum { FINITE = sizeof(finite) / sizeof(*finite) };

static places finite_ends(const struct json *part, struct str text, places starts) {
    struct buf spelled;
    places ends = 0;
    buf_init(&spelled, 1000);
    json_put(part, &spelled);
    size_t k = 0;
    while (k < FINITE && !str_eq(buf_str(&spelled), str_of(finite[k].part))) k++;
    assert_true(k < FINITE);
    for (const char *const *t = finite[k].texts; *t; t++)
        ends |= literal_ends(str_of(*t), text, starts);
    buf_deinit(&spelled);
    return ends;
}

static places ends_of(const struct json *part, struct str text, places starts) {
    places ends = 0;
    const struct json *list = json_get(part, "sequence");
    if (json_get(part, "text")) return literal_ends(json_str(json_get(part, "text")), text, starts);
    if (json_get(part, "free")) return free_ends(json_get(part, "free"), text, starts);
    if (json_get(part, "repeat")) return repeat_ends(part, text, starts);
    if (json_get(part, "token")) {
        char token[40];
        snprintf(token, sizeof(token), MARK "%.*s" MARK,
                 STR_ARG(json_str(json_get(part, "token"))));
        return literal_ends(str_of(token), text, starts);
    }
    if (list) {
        for (size_t i = 0; i < json_count(list); i++)
            starts = ends_of(json_at(list, i), text, starts);
        return starts;
    }
    list = json_get(part, "any");
    if (!list) return finite_ends(part, text, starts);
    for (size_t i = 0; i < json_count(list); i++) ends |= ends_of(json_at(list, i), text, starts);
    return ends;
}

static bool reference_accepts(const struct json *doc, struct str text) {
    return ends_of(doc, text, 1) >> text.len & 1;
}

static void draw_part(struct rng *r, uint32_t depth, struct buf *out);

static void draw_list(struct rng *r, const char *key, uint32_t depth, struct buf *out) {
    const uint64_t count = 1 + rng_below(r, 3);
    buf_printf(out, "{\"%s\":[", key);
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0) buf_put_char(out, ',');
        draw_part(r, depth - 1, out);
    }
    buf_put_text(out, "]}");
}

static void draw_repeat(struct rng *r, uint32_t depth, struct buf *out) {
    const uint64_t min = rng_below(r, 3);
    buf_put_text(out, "{\"repeat\":");
    draw_part(r, depth - 1, out);
    if (rng_below(r, 2)) buf_printf(out, ",\"min\":%d", (int)min);
    if (rng_below(r, 2)) buf_printf(out, ",\"max\":%d", (int)(min + rng_below(r, 3)));
    if (rng_below(r, 2)) {
        buf_put_text(out, ",\"between\":");
        draw_part(r, depth - 1, out);
    }
    buf_put_char(out, '}');
}

static void draw_part(struct rng *r, uint32_t depth, struct buf *out) {
    static const char *const leaves[] = {
        "{\"text\":\"a\"}",     "{\"text\":\"<t\"}",           "{\"text\":\"\"}",
        "{\"text\":\"<tool\"}", "{\"token\":\"t\"}",           "{\"token\":\"<think>\"}",
        "{\"free\":[\"a\"]}",   "{\"free\":[\"<t\",\"\\n\"]}", "{\"free\":[\"ab\",\"ba\",\"cc\"]}",
        "{\"free\":[]}"};
    enum { LEAVES = sizeof(leaves) / sizeof(*leaves) };
    const uint64_t kind = rng_below(r, depth > 0 ? 6 : 2);
    if (kind == 0)
        buf_put_text(out, leaves[rng_below(r, LEAVES)]);
    else if (kind == 1)
        buf_put_text(out, finite[rng_below(r, FINITE)].part);
    else if (kind == 2)
        draw_repeat(r, depth, out);
    else
        draw_list(r, kind == 3 ? "any" : "sequence", depth, out);
}

/* Follows allowed tokens; at each place every token is compared with the mask and the reference. */
static void walk(struct rng *r, struct grammar *g, const struct vocabulary *v,
                 const struct json *doc, const char *source) {
    char text[64];
    size_t len = 0;
    struct matcher m = matcher_init(g);
    for (int step = 0; step < 9; step++) {
        uint64_t mask[MASK_WORDS];
        size_t chosen = WORD_COUNT, seen = 0;
        check_mask(&m, v, source);
        matcher_mask(&m, v, mask);
        if (matcher_is_complete(&m) != reference_accepts(doc, (struct str){text, len}))
            fail_msg("%s: %.*s", source, (int)len, text);
        for (size_t i = 0; i < WORD_COUNT; i++) {
            const size_t more = strlen(words[i]);
            if (more == 0 || len + more > 60) continue;
            memcpy(text + len, words[i], more);
            if (!has_bit(mask, i) && reference_accepts(doc, (struct str){text, len + more}))
                fail_msg("%s: %.*s is not allowed", source, (int)(len + more), text);
            if (has_bit(mask, i) && rng_below(r, ++seen) == 0) chosen = i;
        }
        if (chosen == WORD_COUNT) break;
        assert_true(matcher_accept(&m, str_of(words[chosen]), NULL));
        memcpy(text + len, words[chosen], strlen(words[chosen]));
        len += strlen(words[chosen]);
    }
    matcher_release(&m);
}

static void test_drawn_documents_agree_with_the_reference(void **state) {
    (void)state;
    enum { DOCUMENTS = 80 };
    const struct grammar_options options = {.kind = GRAMMAR_PARTS};
    struct vocabulary *v = make_vocabulary();
    for (uint64_t seed = 0; seed < DOCUMENTS; seed++) {
        struct rng r = {.seed = seed};
        struct grammar_refusal why;
        struct grammar *g = NULL;
        struct json *doc = NULL;
        struct buf b;
        buf_init(&b, 1 << 16);
        draw_part(&r, 3, &b);
        buf_put_char(&b, 0);
        assert_int_equal(buf_status(&b), ST_OK);
        assert_int_equal(json_parse(str_of(b.ptr), &json_limits_request, &doc, NULL), ST_OK);
        if (grammar_compile(str_of(b.ptr), &options, &g, &why) != ST_OK)
            fail_msg("seed %d: %s: %s", (int)seed, b.ptr, why.err.text);
        for (int i = 0; i < 3; i++) walk(&r, g, v, doc, b.ptr);
        grammar_destroy(g);
        json_destroy(doc);
        buf_deinit(&b);
    }
    vocabulary_destroy(v);
}

/* ---- cost ---- */

/* The states of free text are the beginnings of its marks, however long the text is. */
static void test_a_long_free_text_has_few_states(void **state) {
    (void)state;
    enum { TOKENS = 10000 };
    struct vocabulary *v = make_vocabulary();
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, AUTO);
    struct matcher m = matcher_init(g);
    struct rng r = {.seed = 5};
    size_t bytes = 0;
    for (int i = 0; i < TOKENS; i++) {
        uint64_t mask[MASK_WORDS];
        const char *word = words[rng_below(&r, WORD_COUNT)];
        matcher_mask(&m, v, mask);
        struct matcher next = matcher_copy(&m);
        bool fits = matcher_accept(&next, str_of(word), NULL);
        if (fits && matcher_is_complete(&next)) matcher_accept(&m, str_of(word), NULL);
        matcher_release(&next);
        if (i == TOKENS / 2) bytes = grammar_bytes(g);
    }
    assert_true(grammar_bytes(g) == bytes);
    if (grammar_states(g) > 200) fail_msg("%u states", grammar_states(g));
    grammar_destroy(g);
    vocabulary_destroy(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_of_part_accepts_its_texts),
        cmocka_unit_test(test_whitespace_is_an_option_of_all_schemas),
        cmocka_unit_test(test_a_mask_is_what_may_follow),
        cmocka_unit_test(test_a_token_may_end_a_mark_and_go_on),
        cmocka_unit_test(test_line_ends_may_follow_in_free_text_beside_schemas),
        cmocka_unit_test(test_special_tokens_are_allowed_where_they_are_named_only),
        cmocka_unit_test(test_a_forced_token_has_its_marks),
        cmocka_unit_test(test_a_schema_that_cannot_be_kept_is_relaxed_if_it_may_be),
        cmocka_unit_test(test_refusals_have_a_place_and_a_sentence),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_a_budget_that_fails_is_not_relaxed),
        cmocka_unit_test(test_references_stay_in_their_schema),
        cmocka_unit_test(test_drawn_documents_agree_with_the_reference),
        cmocka_unit_test(test_a_long_free_text_has_few_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
