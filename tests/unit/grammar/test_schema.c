/* Goal:   a JSON Schema accepts exactly its instances in canonical form, or is refused with the
 *         place and a sentence.
 * Method: tables with instances on both sides of each keyword, and with schemas that cannot be
 *         kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "unit/grammar/grammar_lib.h"

static void test_scalars(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"true", {"1", "[]", "{\"a\":[null,true]}", "\"\""}, {"", "1 ", "{a:1}", "01", "[1,]"}},
        {"false", {NULL}, {"1", "{}", "null"}},
        {"{\"type\":\"integer\"}",
         {"0", "-7", "1200", "1234567890123456789012345678901234567890"},
         {"1.5", "\"1\"", "01", "-", "1e-1", "1.0", "12e2", "-0",
          "12345678901234567890123456789012345678901"}},
        {"{\"type\":\"integer\",\"minimum\":0}", {"7", "0"}, {"7.0", "7.", "-0", "-1"}},
        {"{\"type\":\"number\"}",
         {"12.5", "0", "-0.25", "100", "0.3333333333333333333333333333333333333333"},
         {"12.50", "0.0", "1.0", "-0", "-0.0", "1e9", "1.", ".5",
          "0.33333333333333333333333333333333333333333"}},
        {"{\"type\":\"number\",\"minimum\":1e60,\"maximum\":1e60}",
         {"1000000000000000000000000000000000000000000000000000000000000"},
         {"1"}},
        {"{\"type\":\"number\",\"multipleOf\":0.5}", {"20.5", "20"}, {"20.0", "20.50", "20.25"}},
        {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {"7.5"}, {"7", "7.0", "7.00"}},
        {"{\"type\":\"number\",\"not\":{\"const\":7}}", {"7.5", "8"}, {"7", "7.0", "7.00"}},
        {"{\"type\":\"number\",\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}",
         {"4", "5.5"},
         {"4.5", "5", "5.0"}},
        {"{\"type\":[\"null\",\"boolean\"]}", {"null", "true", "false"}, {"0", "nul", "\"a\""}},
        {"{\"enum\":[1,\"a\",null,[1,{\"x\":2}]]}",
         {"1", "\"a\"", "null", "[1,{\"x\":2}]"},
         {"2", "1.0", "\"b\"", "[1]", "true"}},
        {"{\"const\":{\"a\":1,\"b\":2}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
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
        {"{\"type\":\"string\",\"pattern\":\"^[\\\\p{L}\\\\p{Nd}_]{2}$\"}",
         {"\"a1\"", "\"\xC3\xA9\xE4\xB8\xAD\"", "\"\xD9\xA3_\""},
         {"\"a-\"", "\"a\"",
          "\"\xE2\x82\xAC"
          "a\"",
          "\"\\n\\n\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(^a{2}$|^b$)$\"}",
         {"\"aa\"", "\"b\""},
         {"\"aab\"", "\"xb\"", "\"a\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(^a+$)|(^b:(c|d)$)\"}",
         {"\"a\"", "\"b:c\""},
         {"\"ab\"", "\"xb:c\"", "\"b:\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(a|b)$$\"}", {"\"a\"", "\"b\""}, {"\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\P{Cc}+$\"}", {"\"a\\\"\""}, {"\"a\\n\"", "\"\""}},
        {"{\"type\":\"string\",\"format\":\"iri\"}",
         {"\"http://\xC6\x92.\xC3\xB8/\xC3\xA9?q#f\"", "\"urn:x\""},
         {"\"/a\"", "\"a b:c\"", "\"http://\\\\x\""}},
        {"{\"type\":\"string\",\"format\":\"iri-reference\"}",
         {"\"/\xC3\xA9\"", "\"#\xC6\x92\"", "\"\""},
         {"\"\\\\\\\\x\"", "\"#a\\\\b\""}},
        {"{\"type\":\"string\",\"format\":\"uri-template\"}",
         {"\"http://x/{term:1}/{+a,b*}\"", "\"\"", "\"/a\""},
         {"\"/{\"", "\"/{}\"", "\"/a}\"", "\"{a:0}\""}},
        {"{\"type\":\"string\",\"format\":\"idn-email\"}",
         {"\"\xEC\x8B\xA4@example.org\"", "\"a.b@c\""},
         {"\"a@\"", "\"2962\"", "\".a@b\""}},
        {"{\"$schema\":\"http://example.com/schemas/self-desc/1-0-0#\",\"type\":\"integer\"}",
         {"1"},
         {"\"\""}},
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

/* A schema's own properties, then those of what it refers to, each where it stands. */
static void test_properties_keep_the_order_of_the_schema(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"$defs\":{\"base\":{\"properties\":{\"a\":true}}},\"allOf\":[{\"$ref\":\"#/$defs/"
         "base\"},{"
         "\"properties\":{\"b\":true}}]}",
         {"{\"a\":1,\"b\":2}", "{\"b\":2}"},
         {"{\"b\":2,\"a\":1}"}},
        {"{\"properties\":{\"c\":true},\"allOf\":[{\"properties\":{\"x\":true},\"allOf\":[{"
         "\"properties\":{"
         "\"a\":true}}]},{\"properties\":{\"b\":true}}]}",
         {"{\"c\":1,\"x\":1,\"a\":1,\"b\":2}"},
         {"{\"c\":1,\"x\":1,\"b\":1,\"a\":2}", "{\"x\":1,\"c\":1}"}},
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
          "[10,1,100]", "[\"a\",\"ab\"]"},
         {"[1,1]", "[1,1.0]", "[0,-0]", "[\"a\",\"a\"]", "[\"a\",\"\\u0061\"]",
          "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]", "[[1],[1]]", "[true,2,true]"}},
        {"{\"type\":\"array\",\"uniqueItems\":true}",
         {"[9007199254740993,9007199254740992]", "[0.12345678901234567891,0.12345678901234567892]",
          "[1,\"1\",\"#1\",\"$1\"]",
          "[{\"a\":[10000000000000000001]},{\"a\":[10000000000000000002]}]",
          "[true,false,null,-1,1.5]", "[[1,1],[1]]", "[\"\\\"1\",\"1\"]"},
         {"[9007199254740993,9007199254740993]", "[\"#1\",1,\"#1\"]", "[{\"1\":-1},{\"1\":-1}]"}},
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

/* No beginning is accepted that no number continues: an answer would have no token left. */
static void test_a_multiple_has_no_digits_that_lead_nowhere(void **state) {
    (void)state;
    struct grammar *g = compile_or_fail(
        GRAMMAR_SCHEMA,
        "{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":1,\"multipleOf\":0.25}");
    struct matcher m = matcher_init(g);
    assert_true(matcher_accept(&m, STR("0."), NULL));
    assert_false(matcher_accept(&m, STR("0"), NULL));
    assert_false(matcher_accept(&m, STR("1"), NULL));
    assert_true(matcher_accept(&m, STR("2"), NULL));
    assert_false(matcher_accept(&m, STR("0"), NULL));
    assert_true(matcher_accept(&m, STR("5"), NULL));
    assert_true(matcher_is_complete(&m));
    assert_false(matcher_accept(&m, STR("0"), NULL));
    grammar_destroy(g);
}

/* Arrays of a few long texts in many orders need more than the budget, if each is remembered. */
static void test_items_of_a_list_keep_to_the_budget(void **state) {
    (void)state;
    enum { TEXTS = 4, LENGTH = 60, ARRAYS = 1000 };
    const struct grammar_options options = {.kind = GRAMMAR_SCHEMA, .bytes_max = 1100000};
    char texts[TEXTS][LENGTH + 3], schema[2000], array[2000];
    struct grammar *g = NULL;
    struct grammar_refusal why;
    size_t len = (size_t)snprintf(schema, sizeof(schema),
                                  "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[");
    for (int i = 0; i < TEXTS; i++) {
        memset(texts[i], 'a' + i, LENGTH + 2);
        texts[i][0] = texts[i][LENGTH + 1] = '"';
        texts[i][LENGTH + 2] = 0;
        len += (size_t)snprintf(schema + len, sizeof(schema) - len, "%s%s", i ? "," : "", texts[i]);
    }
    snprintf(schema + len, sizeof(schema) - len, "]}}");
    assert_int_equal(grammar_compile(str_of(schema), &options, &g, &why), ST_OK);
    uint32_t bits = 12345;
    for (int i = 0; i < ARRAYS; i++) {
        uint32_t order[TEXTS] = {0, 1, 2, 3};
        for (uint32_t k = TEXTS - 1; k > 0; k--) {
            bits = bits * 1664525 + 1013904223;
            uint32_t other = (bits >> 16) % (k + 1), kept = order[k];
            order[k] = order[other];
            order[other] = kept;
        }
        len = 0;
        for (int k = 0; k < TEXTS; k++)
            len += (size_t)snprintf(array + len, sizeof(array) - len, "%s%s", k ? "," : "[",
                                    texts[order[k]]);
        snprintf(array + len, sizeof(array) - len, "]");
        if (!accepts(g, array)) fail_msg("array %d was rejected", i);
    }
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

/* Told apart by a property that a schema beside oneOf requires: exclusions would be too many. */
static void test_alternatives_that_are_apart(void **state) {
    (void)state;
    char schema[6000];
    size_t len =
        (size_t)snprintf(schema, sizeof(schema),
                         "{\"allOf\":[{\"type\":\"object\",\"required\":[\"kind\"]}],\"oneOf\":[");
    for (int i = 0; i < 12; i++)
        len += (size_t)snprintf(
            schema + len, sizeof(schema) - len,
            "%s{\"properties\":{\"kind\":{\"enum\":[\"%c\"]},\"a\":{\"minimum\":%d},"
            "\"b\":{\"maxLength\":%d},\"c\":{\"type\":\"array\",\"maxItems\":%d}}}",
            i ? "," : "", 'a' + i, i, i, i);
    snprintf(schema + len, sizeof(schema) - len, "]}");
    struct grammar *g = compile_or_fail(GRAMMAR_SCHEMA, schema);
    assert_true(accepts(g, "{\"kind\":\"b\",\"a\":1,\"b\":\"x\",\"c\":[0]}"));
    assert_false(accepts(g, "{\"kind\":\"b\",\"a\":1,\"b\":\"x\",\"c\":[0,0]}"));
    assert_false(accepts(g, "{\"a\":1}"));
    assert_true(grammar_bytes(g) < 1000000);
    grammar_destroy(g);
}

static void test_negations_of_parts(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true},\"additionalProperties\":false}"
         "}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"c\":0,\"b\":1}"},
         {"{}", "{\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"z\":true},"
         "\"not\":{\"additionalProperties\":{\"type\":\"integer\"}}}",
         {"{\"a\":1,\"z\":\"x\"}", "{\"b\":\"x\"}", "{\"b\":1,\"b\":\"x\"}",
          "{\"z\":null,\"b\":1}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"z\":2}", "{\"b\":\"x\",\"b\":1}", "{\"a\":\"x\"}"}},
        {"{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}}",
         {"{\"x\":1}", "{\"y\":1,\"xy\":false}"},
         {"{}", "{\"x\":null}", "{\"y\":1}", "{\"xa\":1,\"xa\":null}"}},
        {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":2}}}",
         {"{\"abc\":1}", "{\"a\":1,\"abc\":2}"},
         {"{}", "{\"ab\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"dependentRequired\":{\"a\":[\"b\"]}}}",
         {"{\"a\":1}", "{\"a\":1,\"c\":1}"},
         {"{}", "{\"a\":1,\"b\":1}", "{\"b\":1}"}},
        {"{\"not\":{\"dependentSchemas\":{\"a\":{\"required\":[\"b\"]}},\"minItems\":1}}",
         {"{\"a\":1}", "[]"},
         {"{}", "{\"a\":1,\"b\":1}", "[1]", "1"}},
        {"{\"if\":{\"dependentRequired\":{\"a\":[\"b\"]},\"dependentSchemas\":{\"b\":false}},"
         "\"else\":{\"required\":[\"z\"]}}",
         {"1.5", "{\"c\":1}", "{\"a\":1,\"z\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"type\":\"null\"},true],\"items\":{"
         "\"type\":"
         "\"integer\"}}}",
         {"[1]", "[null,1,true]", "[null,1,2,false,3]"},
         {"[]", "[null]", "[null,\"x\",1,2]"}},
        {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"array\",\"not\":{"
         "\"items\":{\"type\":\"integer\"}}}",
         {"[\"a\"]", "[1,null]"},
         {"[]", "[1,2]"}},
        {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\",\"not\":{"
         "\"minimum\":3,\"exclusiveMinimum\":true,\"maximum\":7,\"exclusiveMaximum\":false}}",
         {"3", "2", "8"},
         {"4", "7"}},
        {"{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1},\"minContains\":2,"
         "\"maxContains\":3}}",
         {"[]", "[1,2]", "[1,1,1,1]"},
         {"[1,1]", "[1,0,1,1]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"allOf\":[{\"contains\":{\"const\":2}}]}",
         {"[1,2]", "[2,0,1]"},
         {"[1]", "[2,2]", "[]"}},
        {"{\"oneOf\":[{\"type\":\"array\",\"uniqueItems\":true},{\"maxItems\":1}]}",
         {"[1,2]", "7"},
         {"[1]", "[]", "[1,1]"}},
    };
    check_cases(GRAMMAR_SCHEMA, cases, sizeof(cases) / sizeof(*cases));
}

static void test_unevaluated_parts_beside_alternatives(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"properties\":{\"a\":true},"
         "\"anyOf\":[{"
         "\"properties\":{\"b\":{\"const\":1}},\"required\":[\"b\"]},{\"properties\":{\"c\":{"
         "\"const\":"
         "2}},\"required\":[\"c\"]}]}",
         {"{\"a\":0,\"b\":1}", "{\"c\":2}", "{\"b\":1,\"c\":2}"},
         {"{\"a\":0}", "{\"b\":1,\"c\":3}", "{\"b\":1,\"d\":0}"}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"if\":{\"properties\":{\"k\":{"
         "\"const\":1}},"
         "\"required\":[\"k\"]},\"then\":{\"properties\":{\"x\":true}},\"else\":{\"properties\":{"
         "\"y\":"
         "true}}}",
         {"{\"k\":1,\"x\":0}", "{\"k\":1}", "{\"y\":0}", "{}"},
         {"{\"x\":0}", "{\"k\":1,\"y\":0}", "{\"k\":2}"}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"properties\":{\"a\":true},"
         "\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":true}}}}",
         {"{\"a\":1,\"b\":1}", "{}"},
         {"{\"b\":1}", "{\"a\":1,\"c\":1}"}},
        {"{\"type\":\"array\",\"unevaluatedItems\":false,\"oneOf\":[{\"prefixItems\":[{\"const\":1}"
         "]},{"
         "\"prefixItems\":[{\"const\":2},true]}]}",
         {"[1]", "[2,0]"},
         {"[1,0]", "[2,0,0]", "[]"}},
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
        {"{\"items\":{\"format\":\"idn-hostname\",\"type\":\"string\"}}", "#/items"},
        {"{\"$schema\":\"http://x/2020-12/without-validation\"}", "#"},
        {"{\"type\":\"object\",\"minProperties\":3}", "#"},
        {"{\"not\":{\"uniqueItems\":true}}", "#/not"},
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
        cmocka_unit_test(test_properties_keep_the_order_of_the_schema),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_unique_items),
        cmocka_unit_test(test_an_item_of_a_list_is_not_begun_again),
        cmocka_unit_test(test_a_multiple_has_no_digits_that_lead_nowhere),
        cmocka_unit_test(test_items_of_a_list_keep_to_the_budget),
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_alternatives_that_are_apart),
        cmocka_unit_test(test_negations_of_parts),
        cmocka_unit_test(test_unevaluated_parts_beside_alternatives),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused_with_its_place),
        cmocka_unit_test(test_whitespace_is_an_option),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
