/* Goal:   the grammar of arguments in tags is that of the tool's schema: members in its order,
 *         required ones required, strings as free text or choices, other values as schemas; what
 *         cannot be kept is refused for a strict tool only.
 * Method: a table of schemas and the part (grammar/grammar.h) that is written for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tools.h"
#include "grammar/grammar.h"
#include "unit/json_lib.h"

#define MEMBER(key, value)                                                                         \
    "{\"sequence\":[{\"text\":\"<parameter=" key ">\\n\"}," value                                  \
    ",{\"text\":\"\\n</parameter>\\n\"}]}"
#define OPTIONAL(key, value) "{\"repeat\":" MEMBER(key, value) ",\"max\":1}"
#define FREE "{\"free\":[\"</parameter>\"]}"
#define ONE(schema) "{\"type\":\"object\",\"properties\":{\"a\":" schema "},\"required\":[\"a\"]}"
#define TEXT_REFUSED                                                                               \
    "{\"refuse\":\"the model writes the text between tags; a format, an open pattern and "         \
    "alternatives cannot be kept there\",\"at\":\"tools[0].parameters/properties/a\"}"
#define OBJECT_REFUSED                                                                             \
    "{\"refuse\":\"the model writes arguments between tags; only objects with 'properties' and "   \
    "'required' can be kept\",\"at\":\"tools[0].parameters\"}"
#define PATTERN(text) "{\"free\":[\"</parameter>\"],\"pattern\":\"" text "\"" PLACE "}"
#define PLACE ",\"at\":\"tools[0].parameters/properties/a\""
#define SEQUENCE(members) "{\"sequence\":[" members "]}"
#define AT ",\"spaced\":true,\"at\":\"tools[0].parameters/properties/a\""

static const struct {
    const char *parameters;
    bool strict;
    const char *part;
} cases[] = {
    {"null", false, SEQUENCE("{\"text\":\"\"}")},
    {"{\"type\":\"object\",\"properties\":{}}", true, SEQUENCE("{\"text\":\"\"}")},
    {ONE("{\"type\":\"string\"}"), true, SEQUENCE(MEMBER("a", FREE))},
    {"{\"properties\":{\"b\":{\"type\":\"string\"},\"a\":{\"type\":\"string\"}},\"required\":["
     "\"a\"],\"additionalProperties\":false}",
     true, SEQUENCE(OPTIONAL("b", FREE) "," MEMBER("a", FREE))},
    {ONE("{\"type\":\"string\",\"description\":\"d\",\"title\":\"t\",\"default\":\"x\"}"), true,
     SEQUENCE(MEMBER("a", FREE))},
    {ONE("{\"type\":\"string\",\"enum\":[\"x\\n\",\"\\\"\"]}"), true,
     SEQUENCE(MEMBER("a", "{\"any\":[{\"text\":\"x\\n\"},{\"text\":\"\\\"\"}]}"))},
    {ONE("{\"enum\":[\"x\",1]}"), true,
     SEQUENCE(
         MEMBER("a", "{\"any\":[{\"text\":\"x\"},{\"schema\":{\"const\":1},\"spaced\":true}]}"))},
    {ONE("{\"const\":\"x\"}"), true, SEQUENCE(MEMBER("a", "{\"text\":\"x\"}"))},
    {ONE("{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}"), true,
     SEQUENCE(MEMBER("a", PATTERN("[\\\\s\\\\S]{2,5}")))},
    {ONE("{\"type\":\"string\",\"minLength\":1}"), true,
     SEQUENCE(MEMBER("a", PATTERN("[\\\\s\\\\S]{1,}")))},
    {ONE("{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}"), true,
     SEQUENCE(MEMBER("a", PATTERN("^[a-z]+$")))},
    {ONE("{\"type\":\"string\",\"pattern\":\"[a-z]+\"}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":\"string\",\"pattern\":\"[a-z]+\"}"), false, SEQUENCE(MEMBER("a", FREE))},
    {ONE("{\"type\":\"string\",\"pattern\":\"^a|b$\"}"), true, SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":\"string\",\"pattern\":\"^a\\\\$\"}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":\"string\",\"format\":\"date\"}"), true, SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}"), true,
     SEQUENCE(MEMBER("a", FREE))},
    {ONE("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\",\"properties\":{}}]}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{}"), true, SEQUENCE(MEMBER("a", FREE))},
    {ONE("{\"type\":\"integer\",\"minimum\":1}"), true,
     SEQUENCE(MEMBER("a", "{\"schema\":{\"type\":\"integer\",\"minimum\":1}" AT "}"))},
    {ONE("{\"type\":\"boolean\"}"), false,
     SEQUENCE(MEMBER("a", "{\"schema\":{\"type\":\"boolean\"}" AT ",\"relax\":\"value\"}"))},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/R\"}},\"required\":[\"a\"],"
     "\"$defs\":{\"R\":{\"type\":\"array\"}}}",
     true,
     SEQUENCE(MEMBER("a", "{\"schema\":{\"$ref\":\"#/$defs/R\",\"$defs\":{\"R\":{\"type\":"
                          "\"array\"}}}" AT "}"))},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/R\"}},\"required\":[\"a\"],"
     "\"$defs\":{\"R\":{\"type\":\"string\"}}}",
     true, SEQUENCE(MEMBER("a", FREE))},
    {"{\"type\":\"object\",\"properties\":{},\"minProperties\":1}", true, OBJECT_REFUSED},
    {"{\"type\":\"object\",\"properties\":{},\"minProperties\":1}", false,
     SEQUENCE("{\"text\":\"\"}")},
    {"{\"type\":\"object\"}", false,
     "{\"repeat\":{\"sequence\":[{\"text\":\"<parameter=\"},{\"pattern\":\"[A-Za-z0-9_.-]{1,64}\"},"
     "{\"text\":\">\\n\"}," FREE ",{\"text\":\"\\n</parameter>\\n\"}]}}"},
    {"{\"type\":\"object\",\"additionalProperties\":false}", true, SEQUENCE("{\"text\":\"\"}")},
    /* Text that is read as something else, or as the end of the value. */
    {ONE("{\"enum\":[\"1\",2]}"), true, SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":[\"string\",\"null\"],\"enum\":[\"null\",\"b\"]}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":\"string\",\"enum\":[\"x</parameter>\"]}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    {ONE("{\"type\":\"string\",\"const\":\"x</parameter>\"}"), true,
     SEQUENCE(MEMBER("a", TEXT_REFUSED))},
    /* Keys that end early, names without a property, a schema for other properties. */
    {"{\"properties\":{\"a>b\":{\"type\":\"null\"}}}", true, OBJECT_REFUSED},
    {"{\"properties\":{\"a>b\":{\"type\":\"null\"}}}", false, SEQUENCE("{\"text\":\"\"}")},
    {"{\"properties\":{},\"required\":[\"b\"]}", true, OBJECT_REFUSED},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", true, OBJECT_REFUSED},
};

static void put(const char *form, const char *parameters, bool strict, struct buf *out) {
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_printf(&text, "{\"name\":\"f\",\"parameters\":%s}", parameters);
    struct json *function = json_of(buf_text(&text));
    buf_init(out, 1 << 16);
    tool_form_find(form)->shapes[0].put_args(function, STR("tools[0].parameters"), strict, out);
    json_destroy(json_of(buf_text(out))); /* it is JSON */
    json_destroy(function);
    buf_deinit(&text);
}

static void test_each_schema_has_its_part(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out;
        put("qwen3_coder", cases[i].parameters, cases[i].strict, &out);
        if (!str_is(buf_str(&out), cases[i].part))
            fail_msg("%s:\n part     %s\n expected %s", cases[i].parameters, buf_text(&out),
                     cases[i].part);
        buf_deinit(&out);
    }
}

static void test_other_forms_write_their_own_tags(void **state) {
    (void)state;
    struct buf out;
    put("glm4", ONE("{\"type\":\"string\"}"), true, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"sequence\":[{\"sequence\":[{\"text\":\"<arg_key>a</arg_key>\\n<arg_"
        "value>\"},{\"free\":[\"</arg_value>\"]},{\"text\":\"</arg_value>\\n\"}]}]}");
    buf_deinit(&out);
    put("kimi", "{\"type\":\"object\"}", true, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"sequence\":[{\"pattern\":\"[0-9]{1,4}\"},{\"any\":[{\"text\":\"<|tool_call_argument_"
        "begin|>\"},{\"token\":\"<|tool_call_argument_begin|>\"}]},{\"schema\":{\"type\":"
        "\"object\"}"
        ",\"spaced\":true,\"at\":\"tools[0].parameters\"}]}");
    buf_deinit(&out);
    put("kimi", "null", false, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"sequence\":[{\"pattern\":\"[0-9]{1,4}\"},{\"any\":[{\"text\":\"<|tool_call_argument_"
        "begin|>\"},{\"token\":\"<|tool_call_argument_begin|>\"}]},{\"schema\":{\"type\":"
        "\"object\"}"
        ",\"spaced\":true,\"at\":\"tools[0].parameters\",\"relax\":\"object\"}]}");
    buf_deinit(&out);
}

static void test_what_cannot_be_kept_is_refused_by_the_grammar(void **state) {
    (void)state;
    static const char *const parts[] = {TEXT_REFUSED, OBJECT_REFUSED};
    for (size_t i = 0; i < 2; i++) {
        struct grammar *g = NULL;
        struct grammar_refusal why = {0};
        const struct grammar_options options = {.kind = GRAMMAR_PARTS};
        assert_int_equal(grammar_compile(str_of(parts[i]), &options, &g, &why), ST_BAD);
        assert_non_null(strstr(why.err.text, "between tags"));
        assert_non_null(strstr(why.path, "tools[0].parameters"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_schema_has_its_part),
        cmocka_unit_test(test_other_forms_write_their_own_tags),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused_by_the_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
