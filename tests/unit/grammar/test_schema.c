/* Goal:   a JSON Schema accepts exactly its instances in canonical form, or is refused with the
 *         place and a sentence.
 * Method: tables with instances on both sides of each keyword, and with schemas that cannot be
 *         kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/grammar/grammar_lib.h"

static void test_scalars(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"true", {"1", "[]", "{\"a\":[null,true]}", "\"\""}, {"", "1 ", "{a:1}", "01", "[1,]"}},
        {"false", {NULL}, {"1", "{}", "null"}},
        {"{\"type\":\"integer\"}", {"0", "-7", "1.0", "12e2"}, {"1.5", "\"1\"", "01", "-", "1e-1"}},
        {"{\"type\":\"integer\",\"minimum\":0}", {"7", "7.0", "7.00"}, {"7.000", "7."}},
        {"{\"type\":\"number\"}", {"12.50", "0.00", "1e99"}, {"1.5000", "0.000", "1e999"}},
        {"{\"type\":\"number\",\"multipleOf\":0.5}", {"20.5", "20.00", "20.500"}, {"20.5000"}},
        {"{\"type\":\"number\",\"not\":{\"const\":7}}", {"7.5", "8"}, {"7", "7.0", "7.00"}},
        {"{\"type\":[\"null\",\"boolean\"]}", {"null", "true", "false"}, {"0", "nul", "\"a\""}},
        {"{\"enum\":[1,\"a\",null,[1,{\"x\":2}]]}",
         {"1", "1.00", "\"a\"", "null", "[1,{\"x\":2}]"},
         {"2", "\"b\"", "[1]", "true"}},
        {"{\"const\":{\"a\":1,\"b\":2}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1.0}"},
         {"{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1,\"a\":1}"}},
        {"{\"enum\":[1,5,9],\"minimum\":3}", {"5", "9"}, {"1", "7"}},
        {"{\"not\":{\"enum\":[1,\"a\"]},\"type\":[\"integer\",\"string\"]}",
         {"2", "\"b\"", "\"\""},
         {"1", "1.0", "\"a\""}},
        {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
         {"\"a\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\u0041\""},
         {"\"\"", "\"abc\"", "\"a\nb\""}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_patterns_and_formats(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"b+\"}",
         {"\"b\"", "\"abbc\""},
         {"\"\"", "\"ac\"", "\"\\b\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\S+$\",\"maxLength\":3}",
         {"\"abc\""},
         {"\"a b\"", "\"abcd\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^x\"}}",
         {"\"ax\"", "\"\""},
         {"\"x\"", "\"xa\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"1999-12-31\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"",
          "\"0000-02-29\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::1\"", "\"1:2:3:4:5:6:7:8\""},
         {"\":::1\"", "\"1:2\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}",
         {"\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\""},
         {"\"2eb8aa08\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}",
         {"\"23:59:60Z\"", "\"01:29:60+01:30\"", "\"15:59:60.5-08:00\"", "\"00:59:60+01:00\""},
         {"\"22:59:60Z\"", "\"23:59:60+01:00\"", "\"23:59:61Z\"", "\"08:30:06\"",
          "\"08:30:06.0123456789Z\""}},
        {"{\"type\":\"string\",\"format\":\"int32\"}", {"\"anything\""}, {"1"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_objects(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":true},"
         "\"required\":[\"b\"],\"additionalProperties\":false}",
         {"{\"a\":1,\"b\":[]}", "{\"b\":null}"},
         {"{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,\"c\":1}", "{\"a\":\"x\",\"b\":1}"}},
        {"{\"type\":\"object\",\"required\":[\"x\",\"y\"]}",
         {"{\"y\":1,\"x\":2}", "{\"k\":0,\"x\":1,\"y\":2}"},
         {"{\"x\":1}", "{}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"number\"},\"s$\":true},"
         "\"additionalProperties\":false}",
         {"{}", "{\"n1\":2,\"as\":\"t\"}"},
         {"{\"n\":\"x\"}", "{\"other\":1}", "{\"ns\":\"x\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2},\"maxProperties\":2}",
         {"{}", "{\"ab\":1}", "{\"a\":1,\"b\":2}"},
         {"{\"abc\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},"
         "\"additionalProperties\":false,\"minProperties\":2}",
         {"{\"a\":1,\"c\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{\"a\":1}", "{}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"properties\":{\"a\":true,"
         "\"b\":true}}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"required\":[\"a\"]}],"
         "\"type\":\"object\",\"unevaluatedProperties\":false}",
         {"{\"a\":1}"},
         {"{}", "{\"a\":1,\"b\":1}"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_arrays(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
         {"[1]", "[1,2]"},
         {"[]", "[1,2,3]", "[\"a\"]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}",
         {"[]", "[1]", "[1,2]"},
         {"[2]", "[1,2,3]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"maxContains\":2,\"items\":{\"type\":"
         "\"integer\"}}",
         {"[5]", "[1,5,5,2]"},
         {"[]", "[1]", "[5,5,5]"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"array\",\"items\":"
         "[{\"type\":\"null\"}],\"additionalItems\":{\"type\":\"boolean\"}}",
         {"[]", "[null,true]"},
         {"[true]", "[null,null]"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_unique_items(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"array\",\"uniqueItems\":true}",
         {"[]", "[1,2]", "[1,true,\"1\",[1],{\"a\":1}]", "[[1],[2]]", "[{\"a\":1},{\"a\":2}]",
          "[10,1,100]", "[\"a\",\"ab\"]", "[[1,1],[1]]"},
         {"[1,1]", "[1,1.0]", "[0,-0]", "[\"a\",\"a\"]", "[\"a\",\"\\u0061\"]",
          "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]", "[[1.0],[1]]", "[true,2,true]"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"ab\",1,true]}}",
         {"[\"a\",\"ab\"]", "[\"ab\",1,\"a\",true]", "[true]"},
         {"[\"a\",\"a\"]", "[1,\"a\",1.0]", "[true,true]", "[\"b\"]"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"array\",\"uniqueItems\":"
         "true}}",
         {"[[1,2],[2,1]]", "[[],[1]]"},
         {"[[1],[1]]", "[[2,2]]", "[[],[]]", "[[1,2],[3],[1,2]]"}},
        {"{\"properties\":{\"x\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"uniqueItems\":"
         "true}}}}",
         {"{\"x\":[[1],[1]],\"y\":[2,2]}", "{\"x\":[[\"]\"],[\"[\"]]}"},
         {"{\"x\":[[1,1]]}", "{\"x\":[[\"\\\"\",\"\\\"\"]]}", "{\"x\":[[{\"k\":[]},{\"k\":[]}]]}"}},
        {"{\"anyOf\":[{\"type\":\"array\",\"uniqueItems\":true},{\"type\":\"array\",\"items\":{"
         "\"const\":7}}]}",
         {"[7,7]", "[7,8]"},
         {"[7,7,8]", "[8,8]"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_an_item_of_a_list_is_not_begun_again(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(
        GRAMMAR_SCHEMA,
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"ab\",\"cd\"]}}");
    struct matcher m = matcher_init(g);
    assert_true(matcher_accept(&m, STR("[\"ab\","), NULL));
    assert_false(matcher_accept(&m, STR("\"a"), NULL));
    assert_true(matcher_accept(&m, STR("\"cd\""), NULL));
    assert_false(matcher_accept(&m, STR(","), NULL)); /* nothing is left */
    assert_true(matcher_accept(&m, STR("]"), NULL));
    grammar_destroy(g);
}

static void test_alternatives(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},"
         "\"additionalProperties\":false,\"type\":\"object\"},{\"properties\":{\"a\":{},\"c\":{}},"
         "\"required\":[\"a\"],\"additionalProperties\":false,\"type\":\"object\"}]}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"a\":\"x\"}", "{\"a\":1,\"c\":2}"},
         {"{\"a\":1}", "{\"c\":1}", "{\"a\":\"x\",\"b\":1}"}},
        {"{\"oneOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},{\"type\":\"array\","
         "\"items\":{\"type\":\"string\"},\"uniqueItems\":true}]}",
         {"\"a\"", "null", "[\"a\"]"},
         {"[\"a\",\"a\"]", "1"}},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2,\"type\":\"number\"}]}",
         {"1", "2.5"},
         {"3", "1.5", "\"a\""}},
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"const\":7}]}",
         {"\"a\"", "7"},
         {"\"ab\"", "8"}},
        {"{\"type\":\"integer\",\"if\":{\"minimum\":10},\"then\":{\"multipleOf\":10},\"else\":"
         "{\"multipleOf\":2}}",
         {"20", "4", "-2"},
         {"12", "3"}},
        {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
         "\"next\":"
         "{\"$ref\":\"#/$defs/n\"}},\"required\":[\"v\"],\"additionalProperties\":false}},\"$ref\":"
         "\"#/$defs/n\"}",
         {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}"},
         {"{\"v\":1,\"next\":{}}", "{\"next\":{\"v\":1}}"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]}},\"required\":[\"k\"]"
         ","
         "\"not\":{\"properties\":{\"k\":{\"const\":\"b\"}}}}",
         {"{\"k\":\"a\"}"},
         {"{\"k\":\"b\"}", "{}"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_what_cannot_be_kept_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *source, *path;
    } rows[] = {
        {"{\"$ref\":\"http://example.com/x\"}", "#"},
        {"{\"properties\":{\"a/b\":{\"pattern\":\"(?<=x)\"}}}", "#/properties/a~1b"},
        {"{\"items\":{\"type\":\"text\"}}", "#/items"},
        {"{\"$ref\":\"#\"}", "#"},
        {"{\"items\":{\"format\":\"iri\",\"type\":\"string\"}}", "#/items"},
        {"{\"type\":\"object\",\"minProperties\":3}", "#"},
        {"{\"unevaluatedProperties\":false,\"anyOf\":[{}]}", "#"},
        {"{\"allOf\":[5]}", "#/allOf/0"},
        {"{", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct grammar_options options = {.kind = GRAMMAR_SCHEMA};
        struct grammar *g = NULL;
        struct grammar_refusal why;
        if (grammar_compile(str_of(rows[i].source), &options, &g, &why) != ST_BAD)
            fail_msg("%s is not refused", rows[i].source);
        assert_string_equal(why.path, rows[i].path);
        assert_true(why.err.text[0] != 0);
    }
}

static void test_whitespace_is_an_option(void **state) {
    (void)state;
    const struct grammar_options options = {.kind = GRAMMAR_SCHEMA, .whitespace = true};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    struct str source = STR("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"}}}");
    assert_int_equal(grammar_compile(source, &options, &g, &why), ST_OK);
    assert_true(accepts(g, "{ \"a\" : [ 1 ,\n\t2 ] }"));
    assert_true(accepts(g, "{\"a\":[]}"));
    assert_false(accepts(g, "{\"a\": [1 2]}"));
    grammar_destroy(g);
    g = compile_or_fail(GRAMMAR_SCHEMA, source.ptr);
    assert_false(accepts(g, "{ \"a\":[]}"));
    grammar_destroy(g);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_patterns_and_formats),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_unique_items),
        cmocka_unit_test(test_an_item_of_a_list_is_not_begun_again),
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused_with_its_place),
        cmocka_unit_test(test_whitespace_is_an_option),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
