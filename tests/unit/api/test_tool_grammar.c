/* Goal:   an answer is held to what the request demands: calls of its tools with arguments of their
 *         schemas, one or several, at the beginning or in the middle of text, behind thoughts.
 * Method: bodies of chat requests, a form and perhaps a form of thoughts; the grammar that comes of
 *         them is compiled and asked about texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/think.h"
#include "api/tool_grammar.h"
#include "unit/api/tokenizer_fixture.h"
#include "unit/grammar/grammar_lib.h"

enum { SOURCE_MAX = 1 << 20 };

#define TOOL(name, schema)                                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" schema "}}"
#define CITY                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":9}},"        \
    "\"required\":[\"city\"],\"additionalProperties\":false}"
#define NONE "{\"type\":\"object\",\"additionalProperties\":false}"
#define TOOLS "\"tools\":[" TOOL("weather", CITY) "," TOOL("clock", NONE) "]"
#define STRICT(name, schema)                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name                                        \
    "\",\"strict\":true,\"parameters\":" schema "}}"
#define STRICT_TOOLS "\"tools\":[" STRICT("weather", CITY) "," STRICT("clock", NONE) "]"
#define MIXED_TOOLS "\"tools\":[" STRICT("weather", CITY) "," TOOL("clock", NONE) "]"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

#define CALL(name, args)                                                                           \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"
#define ROME CALL("weather", "{\"city\": \"Rome\"}")
#define CLOCK CALL("clock", "{}")

static const struct think_form think = {.name = "t", .open = "<think>", .close = "</think>"};

struct shape_case {
    const char *form; /* of calls; NULL: none */
    bool thinks, is_open;
    const char *members; /* of the body, beside the messages */
    const char *yes[10], *no[12];
};

static struct answer_shape shape_of(const struct shape_case *c, const struct api_request *r) {
    return (struct answer_shape){.request = r,
                                 .tokenizer = tokenizer,
                                 .tools = c->form ? tool_form_find(c->form) : NULL,
                                 .thinks = c->thinks ? &think : NULL,
                                 .in_thought = c->is_open};
}

static void read_case(const struct shape_case *c, struct api_request *r) {
    struct api_error e = {0};
    struct buf body;
    buf_init(&body, SOURCE_MAX);
    buf_printf(&body, "{" MESSAGES "%s%s}", c->members[0] ? "," : "", c->members);
    if (lib_read_body(codec_find("openai.chat"), buf_str(&body), r, &e) != ST_OK)
        fail_msg("%s: %s", c->members, e.message.text);
    buf_deinit(&body);
}

/* Whether the grammar accepts a text in which "<tool_call>", which the tokenizer has as a special
 * token, is that token. */
static bool accepts_answer(struct grammar *g, const char *text) {
    static const char mark[] = "<tool_call>";
    struct buf bytes;
    buf_init(&bytes, SOURCE_MAX);
    for (const char *at; (at = strstr(text, mark)); text = at + strlen(mark)) {
        buf_put_str(&bytes, (struct str){text, (size_t)(at - text)});
        buf_printf(&bytes, "%c%s%c", GRAMMAR_TOKEN_MARK, mark, GRAMMAR_TOKEN_MARK);
    }
    buf_put_text(&bytes, text);
    buf_put_char(&bytes, 0);
    const bool is_accepted = accepts(g, bytes.ptr);
    buf_deinit(&bytes);
    return is_accepted;
}

static void check_case(const struct shape_case *c) {
    struct api_request r;
    struct buf source;
    read_case(c, &r);
    const struct answer_shape shape = shape_of(c, &r);
    assert_true(answer_shape_is_needed(&shape));
    buf_init(&source, SOURCE_MAX);
    assert_int_equal(answer_shape_put(&shape, &source), ST_OK);
    buf_put_char(&source, 0);
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, source.ptr);
    for (const char *const *t = c->yes; *t; t++)
        if (!accepts_answer(g, *t)) fail_msg("%s\ndoes not accept %s", source.ptr, *t);
    for (const char *const *t = c->no; *t; t++)
        if (accepts_answer(g, *t)) fail_msg("%s\naccepts %s", source.ptr, *t);
    grammar_destroy(g);
    buf_deinit(&source);
    api_request_deinit(&r);
}

static const struct shape_case forced_cases[] = {
    {.form = "hermes",
     .members = TOOLS ",\"tool_choice\":\"required\"",
     .yes = {ROME, CLOCK, CALL("weather", "{\"city\":\"Rome\"}")},
     .no = {"", "Rome", " " ROME, ROME "\n" CLOCK, ROME " ", CALL("weather", "{}"),
            CALL("weather", "{\"city\": \"Constantinople\"}"), CALL("clock", "{\"a\": 1}"),
            CALL("clocks", "{}"), "<tool_call>\n{\"name\": \"clock\""}},
    {.form = "hermes",
     .members = TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":true",
     .yes = {ROME, ROME "\n" CLOCK, CLOCK "\n" CLOCK "\n" ROME},
     .no = {"", ROME CLOCK, ROME "\n", ROME "\ntext"}},
    {.form = "hermes",
     .members = TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}",
     .yes = {CLOCK},
     .no = {"", ROME, CLOCK "\n" CLOCK, "text"}},
    {.form = "mistral",
     .members = TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":true",
     .yes = {"[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}]",
             "[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}, {\"name\": \"weather\", "
             "\"arguments\": {\"city\": \"\"}}]"},
     .no = {"[TOOL_CALLS][]", "[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}",
            "[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}},]"}},
    {.form = "llama3",
     .members = TOOLS ",\"tool_choice\":\"required\"",
     .yes = {"{\"name\": \"clock\", \"parameters\": {}}"},
     .no = {"{\"name\": \"clock\", \"arguments\": {}}", "{}", "x"}},
};

static void test_a_forced_answer_is_one_call_of_a_tool(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(forced_cases) / sizeof(forced_cases[0]); i++)
        check_case(&forced_cases[i]);
}

/* Each form's calls of weather {"city": "Rome"} and clock {}, and one that is wrong. */
static const struct shape_case form_cases[] = {
    {.form = "pythonic",
     .yes = {"[weather(city=\"Rome\")]", "[clock()]"},
     .no = {"[weather()]", "[clock(a=1)]", "[weather(city=3)]", "[rain()]"}},
    {.form = "phi4",
     .yes = {"<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]<|/tool_call|>"},
     .no = {"<|tool_call|>[]<|/tool_call|>",
            "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {}}]<|/tool_call|>"}},
    {.form = "granite",
     .yes = {"<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]"},
     .no = {"<|tool_call|>[{\"name\": \"weather\", \"arguments\": {}}]"}},
    {.form = "qwen3_coder",
     .yes = {"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
             "</tool_call>",
             "<tool_call>\n<function=clock>\n</function>\n</tool_call>"},
     .no = {"<tool_call>\n<function=weather>\n</function>\n</tool_call>",
            "<tool_call>\n<function=clock>\n<parameter=a>\n1\n</parameter>\n</function>\n"
            "</tool_call>"}},
    {.form = "glm4",
     .yes = {"<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
             "</tool_call>"},
     .no = {"<tool_call>weather\n</tool_call>", "<tool_call>rain\n</tool_call>"}},
    {.form = "kimi",
     .yes = {"<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:7<|tool_call_argument_"
             "begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
     .no = {"<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:7<|tool_call_argument_"
            "begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>"}},
    {.form = "gemma",
     .yes = {"```tool_code\nweather(city=\"Rome\")\n```"},
     .no = {"```tool_code\nweather()\n```", "```tool_code\n```"}},
};

static void test_every_form_holds_a_forced_call(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(form_cases) / sizeof(form_cases[0]); i++) {
        struct shape_case c = form_cases[i];
        c.members = TOOLS ",\"tool_choice\":\"required\"";
        check_case(&c);
    }
}

#define DEMANDED(schema) "\"tool_choice\":\"required\",\"tools\":[" TOOL("f", schema) "]"
#define OPEN "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}"
#define NESTED                                                                                     \
    "{\"type\":\"object\",\"$defs\":{\"I\":{" OPEN "}},\"properties\":{\"i\":{\"type\":\"array\"," \
    "\"items\":{\"$ref\":\"#/$defs/I\"}},\"o\":{\"anyOf\":[{" OPEN "},{\"type\":\"null\"}]}}}"

static const struct shape_case closed_cases[] = {
    {.form = "hermes",
     .members = DEMANDED("{" OPEN "}"),
     .yes = {CALL("f", "{}"), CALL("f", "{\"a\": 1}")},
     .no = {CALL("f", "{\"b\": 1}"), CALL("f", "{\"a\": 1, \"b\": 1}")}},
    {.form = "hermes",
     .members = "\"tools\":[" STRICT("f", "{" OPEN "}") "]",
     .yes = {CALL("f", "{\"a\": 1}")},
     .no = {CALL("f", "{\"a\": 1, \"b\": 1}")}},
    {.form = "hermes",
     .members = DEMANDED(NESTED),
     .yes = {CALL("f", "{\"i\": [{\"a\": 1}], \"o\": {\"a\": 1}}"), CALL("f", "{\"o\": null}")},
     .no = {CALL("f", "{\"i\": [{\"b\": 1}]}"), CALL("f", "{\"o\": {\"b\": 1}}")}},
    /* The client says that there are others, or lists none. */
    {.form = "hermes",
     .members = DEMANDED("{" OPEN ",\"additionalProperties\":true}"),
     .yes = {CALL("f", "{\"a\": 1, \"b\": 1}")}},
    {.form = "hermes",
     .members = DEMANDED("{\"type\":\"object\"}"),
     .yes = {CALL("f", "{\"b\": 1}")}},
    {.form = "hermes",
     .members = DEMANDED("{" OPEN ",\"required\":[\"b\"]}"),
     .yes = {CALL("f", "{\"b\": 1}")},
     .no = {CALL("f", "{}")}},
    /* Conjunctions and negations are left alone: closed parts would forbid or allow others. */
    {.form = "hermes",
     .members = DEMANDED("{" OPEN ",\"allOf\":[{\"properties\":{\"b\":{\"type\":\"null\"}},"
                         "\"required\":[\"b\"]}]}"),
     .yes = {CALL("f", "{\"a\": 1, \"b\": null}")},
     .no = {CALL("f", "{\"a\": 1}")}},
    {.form = "hermes",
     .members = DEMANDED("{" OPEN ",\"anyOf\":[{\"properties\":{\"b\":{\"type\":\"null\"}},"
                         "\"required\":[\"b\"]}]}"),
     .yes = {CALL("f", "{\"a\": 1, \"b\": null}")}},
    {.form = "hermes",
     .members = DEMANDED("{\"oneOf\":[{" OPEN "},{\"properties\":{\"b\":{\"type\":\"null\"}},"
                         "\"required\":[\"b\"]}]}"),
     .yes = {CALL("f", "{\"a\": 1}")},
     .no = {CALL("f", "{\"b\": null}")}},
};

static void test_arguments_are_those_that_the_schema_lists(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(closed_cases) / sizeof(closed_cases[0]); i++)
        check_case(&closed_cases[i]);
}

static const struct shape_case auto_cases[] = {
    {.form = "hermes",
     .members = STRICT_TOOLS,
     .yes = {"", "Hello, 1 < 2 and {\"name\": 3}", ROME, "I look. " ROME " Well?\n" CLOCK "\n",
             ROME "\n" CLOCK, "<tool_cal", "<tool_call"},
     .no = {"<tool_call>", "a<tool_call>b", CALL("weather", "{}"), CALL("nothing", "{}"),
            ROME "<tool_call>", "x" CALL("weather", "{\"city\": 3}")}},
    {.form = "hermes",
     .members = STRICT_TOOLS ",\"parallel_tool_calls\":false",
     .yes = {"", "text", "a " ROME, ROME " b"},
     .no = {ROME "\n" CLOCK, ROME " x " CLOCK}},
    /* A mark that is no special token of the model. */
    {.form = "mistral",
     .members = STRICT_TOOLS,
     .yes = {"", "[TOOL_CALL] [TOOL", "x [TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}] y"},
     .no = {"[TOOL_CALLS]", "x[TOOL_CALLS] y",
            "[TOOL_CALLS][{\"name\": \"clocks\", \"arguments\": {}}]"}},
    /* Blanks are the model's own, and so are the arguments of a tool that is not strict. */
    {.form = "hermes",
     .members = MIXED_TOOLS,
     .yes =
         {ROME, "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}</tool_call>",
          "<tool_call> { \"name\" : \"weather\" ,\n \"arguments\" : {\n  \"city\": \"Rome\" }\n}  "
          "</tool_call> x",
          CALL("clock", "{\"a\": [1]}")},
     .no = {"<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>", CALL("clock", "3")}},
    /* No mark begins a call, and a tool is strict: what begins like JSON is a call. */
    {.form = "llama3",
     .members =
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"clock\",\"strict\":true,"
         "\"parameters\":" NONE "}}]",
     .yes = {"", "Hello {\"a\": 1}", "{\"name\": \"clock\", \"parameters\": {}}"},
     .no = {"{\"a\": 1}", "{\"name\": \"clock\", \"parameters\": {\"a\": 1}}"}},
    /* With a schema for the answer: a call, or that. */
    {.form = "hermes",
     .members =
         TOOLS ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
               "\"schema\":" CITY "}}",
     .yes = {ROME, "{\"city\":\"Rome\"}"},
     .no = {"", "text", "text" ROME, "{}"}},
};

static void test_calls_may_begin_inside_text(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(auto_cases) / sizeof(auto_cases[0]); i++)
        check_case(&auto_cases[i]);
}

static const struct shape_case think_cases[] = {
    {.form = "hermes",
     .thinks = true,
     .members = TOOLS ",\"tool_choice\":\"required\"",
     .yes = {ROME, "<think>\nwell <tool_cal {\n</think>\n\n" ROME, "<think></think>" CLOCK},
     .no = {"<think>", "<think>x</think>", "x<think></think>" ROME, "<think>" ROME}},
    {.form = "hermes",
     .thinks = true,
     .is_open = true,
     .members = TOOLS ",\"tool_choice\":\"required\"",
     .yes = {"well\n</think>\n\n" ROME, "</think>" ROME, "<think></think>" ROME},
     .no = {ROME, "<think>" ROME, "x"}},
    {.thinks = true,
     .members = "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
                "\"schema\":" CITY "}}",
     .yes = {"{\"city\":\"Rome\"}", "<think>any { text</think>\n{\"city\":\"Rome\"}"},
     .no = {"", "<think></think>", "<think></think>text", "text"}},
    {.form = "hermes",
     .thinks = true,
     .members = STRICT_TOOLS,
     .yes = {"", "text", "<think>hm</think>\n\ntext " ROME, "<think>{\"a\"</think>x"},
     .no = {"<think></think><tool_call>"}},
};

static void test_grammars_begin_behind_thoughts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(think_cases) / sizeof(think_cases[0]); i++)
        check_case(&think_cases[i]);
}

/* Granite's answer stands between marks of its own, which the model may write or not. */
static void test_an_answer_may_stand_between_the_marks_of_its_form(void **state) {
    (void)state;
    const struct shape_case c = {.form = "hermes",
                                 .members = TOOLS ",\"tool_choice\":\"required\""};
    struct api_request r;
    struct buf source;
    read_case(&c, &r);
    struct answer_shape shape = shape_of(&c, &r);
    shape.thinks = think_form_find("granite");
    buf_init(&source, SOURCE_MAX);
    assert_int_equal(answer_shape_put(&shape, &source), ST_OK);
    buf_put_char(&source, 0);
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, source.ptr);
    assert_true(accepts_answer(g, "<think>hm</think>\n<response>" CLOCK "</response>"));
    assert_true(accepts_answer(g, "<think>hm</think>\n" CLOCK));
    assert_false(accepts_answer(g, "<think>hm</think>\n</response>" CLOCK));
    grammar_destroy(g);
    buf_deinit(&source);
    api_request_deinit(&r);
}

static void test_where_nothing_is_demanded_nothing_is_held(void **state) {
    (void)state;
    static const struct shape_case cases[] = {
        {.form = "hermes", .members = ""},
        {.form = "hermes", .members = TOOLS ",\"tool_choice\":\"none\""},
        {.form = "hermes", .thinks = true, .members = ""},
        {.form = "hermes", .members = TOOLS}, /* not strict, and the model need not call */
        {.members = TOOLS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request r;
        read_case(&cases[i], &r);
        const struct answer_shape shape = shape_of(&cases[i], &r);
        assert_false(answer_shape_is_needed(&shape));
        api_request_deinit(&r);
    }
}

static void test_a_special_token_spelled_as_text_begins_no_call(void **state) {
    (void)state;
    const struct shape_case c = {.form = "hermes", .members = STRICT_TOOLS};
    struct api_request r;
    struct buf source;
    read_case(&c, &r);
    const struct answer_shape shape = shape_of(&c, &r);
    buf_init(&source, SOURCE_MAX);
    assert_int_equal(answer_shape_put(&shape, &source), ST_OK);
    buf_put_char(&source, 0);
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, source.ptr);
    assert_true(accepts(g, "a <tool_call"));
    assert_false(accepts(g, "a <tool_call> b"));
    assert_false(accepts(g, ROME));
    assert_true(accepts_answer(g, ROME));
    grammar_destroy(g);
    buf_deinit(&source);
    api_request_deinit(&r);
}

/* Remote references cannot be kept. */
#define BAD "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"https://example.com/x\"}}}"

#define LONG                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":300},"       \
    "\"id\":{\"type\":\"string\",\"pattern\":\"^[^x]*$\"}},\"required\":[\"city\"]}"
#define TAGS(name, members) "<tool_call>\n<function=" name ">\n" members "</function>\n</tool_call>"
#define TAG(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

/* What the parser reads as a call, or as the end of a value, is that in the grammar, too. */
static const struct shape_case sound_cases[] = {
    {.form = "qwen3_coder",
     .members = "\"tools\":[" STRICT("weather", LONG) "],\"tool_choice\":\"required\"",
     .yes = {TAGS("weather", TAG("city", "Rome")), TAGS("weather", TAG("city", "</p>\n\n")),
             TAGS("weather", TAG("city", "") TAG("id", "<a\n"))},
     .no = {TAGS("weather", TAG("city", "Rome") TAG("made_up", "1")),
            TAGS("weather", TAG("city", "Rome") TAG("city", "Oslo")),
            TAGS("weather", TAG("city", "") TAG("id", "") TAG("id", "")),
            TAGS("weather", TAG("city", "</parameter>"))}},
    {.form = "qwen3_coder",
     .members = STRICT_TOOLS,
     .yes = {"", "a <function", TAGS("clock", ""), "Text.\n" TAGS("clock", "") "\nText."},
     .no = {"<function=clock>\n" TAG("made_up", "1") "</function>", "Text.\n<function=clock>",
            TAGS("clock", "") "<function=clock>"}},
    {.form = "gemma",
     .members = STRICT_TOOLS,
     .yes = {"", "```json\n{}\n```", "```tool_code\nclock()\n```", "`` <start"},
     .no = {"```tool_call\n{\"name\": \"clock\", \"arguments\": {\"a\": 1}}\n```",
            "Text.\n<start_function_call>call:clock{a:1}<end_function_call>",
            "<|tool_call>call:clock{a:1}<tool_call|>", "```tool_code\nclock(a=1)\n```"}},
    {.form = "llama3",
     .members = STRICT_TOOLS,
     .yes = {"", "Text.", "a < b", "{\"name\": \"clock\", \"parameters\": {}}"},
     .no = {"Text. <|python_tag|>{\"name\": \"clock\", \"parameters\": {\"a\": 1}}"}},
    /* Tools that are not strict are called as the model likes. */
    {.form = "qwen3_coder",
     .members = MIXED_TOOLS,
     .yes = {TAGS("clock", ""), TAGS("clock", TAG("zone", "CET")),
             TAGS("weather", TAG("city", "Rome"))},
     .no = {TAGS("weather", ""), TAGS("weather", TAG("zone", "CET"))}},
};

static void test_what_is_read_as_a_call_is_held(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(sound_cases) / sizeof(*sound_cases); i++)
        check_case(&sound_cases[i]);
}

/* Tools that are too large are held to their names, whatever the form. */
static void test_each_form_can_leave_schemas_out(void **state) {
    (void)state;
    static const struct {
        const char *form, *text;
    } cases[] = {
        {"hermes", CALL("weather", "{\"a\": [1]}")},
        {"qwen3_coder", TAGS("weather", TAG("a", "[1]") TAG("b", "x"))},
        {"glm4",
         "<tool_call>weather\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
        {"kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
                 "<|tool_call_argument_begin|>{\"a\": [1]}<|tool_call_end|>"
                 "<|tool_calls_section_end|>"},
        {"pythonic", "[weather(a=[1], b=\"x\")]"},
        {"pythonic", "[weather()]"},
        {"gemma", "```tool_code\nweather(a={\"b\":1})\n```"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct shape_case c = {.form = cases[i].form,
                                     .members = TOOLS ",\"tool_choice\":\"required\""};
        struct api_request r;
        struct buf source;
        read_case(&c, &r);
        struct answer_shape shape = shape_of(&c, &r);
        shape.is_loose = true;
        buf_init(&source, SOURCE_MAX);
        assert_int_equal(answer_shape_put(&shape, &source), ST_OK);
        struct grammar *g = compile_or_fail(GRAMMAR_PARTS, buf_text(&source));
        if (strstr(buf_text(&source), "city") || !accepts_answer(g, cases[i].text))
            fail_msg("%s\ndoes not accept %s", buf_text(&source), cases[i].text);
        grammar_destroy(g);
        buf_deinit(&source);
        api_request_deinit(&r);
    }
}

static enum status compile(const char *members, bool is_loose, struct grammar **g,
                           struct grammar_refusal *why) {
    const struct shape_case c = {.form = "hermes", .members = members};
    const struct grammar_options options = {.kind = GRAMMAR_PARTS};
    struct api_request r;
    struct buf source;
    read_case(&c, &r);
    struct answer_shape shape = shape_of(&c, &r);
    shape.is_loose = is_loose;
    buf_init(&source, SOURCE_MAX);
    assert_int_equal(answer_shape_put(&shape, &source), ST_OK);
    enum status st = grammar_compile(buf_str(&source), &options, g, why);
    buf_deinit(&source);
    api_request_deinit(&r);
    return st;
}

static void test_a_schema_that_cannot_be_kept_is_relaxed_or_refused(void **state) {
    (void)state;
    struct grammar *g = NULL;
    struct grammar_refusal why;
    const char *lax =
        "\"tool_choice\":\"required\",\"tools\":[" TOOL("f", NONE) "," TOOL("g", BAD) "]";
    assert_int_equal(compile(lax, false, &g, &why), ST_OK);
    assert_true(accepts_answer(g, CALL("g", "{\"b\": [1]}")));
    assert_false(accepts_answer(g, CALL("f", "{\"b\": [1]}")));
    assert_int_equal(strncmp(grammar_relaxed(g), "tools[1].function.parameters", 28), 0);
    grammar_destroy(g);
    const char *strict = "\"tool_choice\":\"required\",\"tools\":[" TOOL(
        "f", NONE) ",{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,"
                   "\"parameters\":" BAD "}}]";
    assert_int_equal(compile(strict, false, &g, &why), ST_BAD);
    assert_int_equal(strncmp(why.path, "tools[1].function.parameters#", 29), 0);
    assert_int_equal(compile(strict, true, &g, &why), ST_OK);
    assert_true(accepts_answer(g, CALL("f", "{\"b\": [1]}")));
    grammar_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read_as_a_call_is_held),
        cmocka_unit_test(test_each_form_can_leave_schemas_out),
        cmocka_unit_test(test_a_forced_answer_is_one_call_of_a_tool),
        cmocka_unit_test(test_every_form_holds_a_forced_call),
        cmocka_unit_test(test_arguments_are_those_that_the_schema_lists),
        cmocka_unit_test(test_calls_may_begin_inside_text),
        cmocka_unit_test(test_grammars_begin_behind_thoughts),
        cmocka_unit_test(test_an_answer_may_stand_between_the_marks_of_its_form),
        cmocka_unit_test(test_where_nothing_is_demanded_nothing_is_held),
        cmocka_unit_test(test_a_special_token_spelled_as_text_begins_no_call),
        cmocka_unit_test(test_a_schema_that_cannot_be_kept_is_relaxed_or_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
