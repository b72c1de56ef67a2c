/* Goal:   every field that can say what an answer must be leads to the same source of a grammar; a
 *         request has at most one, and none beside tools that the model may call.
 * Method: one body for each field, read through its codec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/codec.h"
#include "base/json.h"
#include "grammar/grammar.h"

#define SCHEMA "{\"type\":\"object\",\"required\":[\"b\",\"a\"]}"
#define SCHEMA_TEXT "\"{\\\"type\\\":\\\"object\\\",\\\"required\\\":[\\\"b\\\",\\\"a\\\"]}\""
#define TALK "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"

static enum status read_with(const char *codec, const char *body, struct api_request *r,
                             struct api_error *e) {
    struct json *doc = NULL;
    struct err err = {{0}};
    if (json_parse(str_of(body), &json_limits_request, &doc, &err) != ST_OK)
        fail_msg("%s in %s", err.text, body);
    *e = (struct api_error){0};
    return codec_read_body(codec_find(codec), doc, false, r, e);
}

static const struct {
    const char *codec, *body, *field;
    enum grammar_kind kind;
    const char *source;
} cases[] = {
    {"openai.chat", TALK "\"response_format\":{\"type\":\"json_object\"}}", "response_format.type",
     GRAMMAR_JSON, ""},
    {"openai.chat",
     TALK "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
          "\"strict\":true,\"schema\":" SCHEMA "}}}",
     "response_format.json_schema.schema", GRAMMAR_SCHEMA, SCHEMA},
    {"openai.chat",
     TALK "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
          "\"strict\":false,\"schema\":false}}}",
     "response_format.json_schema.schema", GRAMMAR_SCHEMA, "false"},
    {"openai.chat", TALK "\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}}",
     "response_format.schema", GRAMMAR_SCHEMA, SCHEMA},
    {"openai.chat", TALK "\"structured_outputs\":{\"json\":" SCHEMA "}}", "structured_outputs.json",
     GRAMMAR_SCHEMA, SCHEMA},
    {"openai.chat", TALK "\"structured_outputs\":{\"regex\":\"a+\"}}", "structured_outputs.regex",
     GRAMMAR_REGEX, "a+"},
    {"openai.chat", TALK "\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}}",
     "structured_outputs.choice", GRAMMAR_CHOICE, "[\"a\",\"b\"]"},
    {"openai.chat", TALK "\"structured_outputs\":{\"grammar\":\"start: \\\"a\\\"\"}}",
     "structured_outputs.grammar", GRAMMAR_LARK, "start: \"a\""},
    {"openai.chat", TALK "\"structured_outputs\":{\"json_object\":true}}",
     "structured_outputs.json_object", GRAMMAR_JSON, ""},
    {"openai.chat", TALK "\"guided_json\":" SCHEMA_TEXT "}", "guided_json", GRAMMAR_SCHEMA, SCHEMA},
    {"openai.chat", TALK "\"guided_json\":{}}", "guided_json", GRAMMAR_SCHEMA, "{}"},
    {"openai.chat", TALK "\"guided_regex\":\"[a-z]\",\"guided_choice\":null}", "guided_regex",
     GRAMMAR_REGEX, "[a-z]"},
    {"openai.chat", TALK "\"guided_choice\":[\"a\"],\"guided_regex\":\"\"}", "guided_choice",
     GRAMMAR_CHOICE, "[\"a\"]"},
    {"openai.chat", TALK "\"guided_grammar\":\"root ::= [a]\"}", "guided_grammar", GRAMMAR_GBNF,
     "root ::= [a]"},
    {"openai.chat", TALK "\"grammar\":\"root ::= [a]\",\"guided_choice\":[]}", "grammar",
     GRAMMAR_GBNF, "root ::= [a]"},
    {"openai.chat", TALK "\"json_schema\":" SCHEMA "}", "json_schema", GRAMMAR_SCHEMA, SCHEMA},
    {"openai.chat", TALK "\"regex\":\"a\"}", "regex", GRAMMAR_REGEX, "a"},
    {"openai.chat", TALK "\"ebnf\":\"root ::= [a]\"}", "ebnf", GRAMMAR_GBNF, "root ::= [a]"},
    {"openai.chat", TALK TOOLS "\"tool_choice\":\"none\",\"regex\":\"a\"}", "regex", GRAMMAR_REGEX,
     "a"},
    {"openai.completions", "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\"}}",
     "response_format.type", GRAMMAR_JSON, ""},
    {"openai.responses",
     "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
     "\"schema\":" SCHEMA "}}}",
     "text.format.schema", GRAMMAR_SCHEMA, SCHEMA},
    {"anthropic.messages",
     TALK
     "\"max_tokens\":9,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":" SCHEMA
     "}}}",
     "output_config.format.schema", GRAMMAR_SCHEMA, SCHEMA},
    {"anthropic.messages",
     TALK "\"max_tokens\":9,\"output_format\":{\"type\":\"json_schema\",\"schema\":" SCHEMA "}}",
     "output_format.schema", GRAMMAR_SCHEMA, SCHEMA},
    {"ollama.chat", TALK "\"format\":\"json\"}", "format", GRAMMAR_JSON, ""},
    {"ollama.chat", TALK "\"format\":" SCHEMA "}", "format", GRAMMAR_SCHEMA, SCHEMA},
    {"ollama.generate", "{\"model\":\"m\",\"prompt\":\"x\",\"format\":" SCHEMA "}", "format",
     GRAMMAR_SCHEMA, SCHEMA},
};

static void test_every_field_leads_to_a_source(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request r;
        struct api_error e;
        if (read_with(cases[i].codec, cases[i].body, &r, &e) != ST_OK)
            fail_msg("%s: %s", cases[i].body, e.message.text);
        assert_true(r.grammar.is_given);
        assert_string_equal(r.grammar.field, cases[i].field);
        assert_int_equal(r.grammar.kind, cases[i].kind);
        struct str source = buf_str(&r.grammar.source);
        if (!str_is(source, cases[i].source))
            fail_msg("%s: \"%.*s\"", cases[i].body, STR_ARG(source));
        api_request_drop_messages(&r);
        assert_int_equal(r.grammar.source.len, 0);
        api_request_deinit(&r);
    }
}

static void test_values_that_say_nothing_give_no_grammar(void **state) {
    (void)state;
    static const char *const bodies[] = {
        TALK "\"response_format\":{\"type\":\"text\"}}",
        TALK "\"response_format\":null,\"structured_outputs\":null}",
        TALK "\"structured_outputs\":{}}",
        TALK "\"structured_outputs\":{\"json\":null,\"json_object\":false,\"choice\":[]}}",
        TALK "\"grammar\":\"\",\"guided_regex\":\"\",\"guided_json\":\"\",\"json_schema\":null}",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct api_request r;
        struct api_error e;
        if (read_with("openai.chat", bodies[i], &r, &e) != ST_OK)
            fail_msg("%s: %s", bodies[i], e.message.text);
        assert_false(r.grammar.is_given);
        api_request_deinit(&r);
    }
}

static void test_two_grammars_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *codec, *body, *param, *word;
    } refused[] = {
        {"openai.chat", TALK "\"guided_json\":{},\"guided_regex\":\"a+\"}", "guided_regex",
         "'guided_json'"},
        {"openai.chat", TALK "\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}}",
         "structured_outputs.regex", "'structured_outputs.json'"},
        {"openai.chat", TALK "\"response_format\":{\"type\":\"json_object\"},\"regex\":\"a\"}",
         "regex", "'response_format.type'"},
        {"openai.chat", TALK "\"response_format\":{\"type\":\"json_schema\"}}",
         "response_format.json_schema.schema", "missing"},
        {"openai.responses", "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}",
         "text.format.schema", "missing"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct api_request r;
        struct api_error e;
        assert_int_equal(read_with(refused[i].codec, refused[i].body, &r, &e), ST_BAD);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, refused[i].param);
        if (!strstr(e.message.text, refused[i].word)) fail_msg("%s", e.message.text);
        api_request_deinit(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_leads_to_a_source),
        cmocka_unit_test(test_values_that_say_nothing_give_no_grammar),
        cmocka_unit_test(test_two_grammars_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
