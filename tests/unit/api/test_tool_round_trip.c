/* Goal:   what a chat template writes for an assistant's tool calls, its form reads back.
 * Method: render a conversation that ends with tool calls, take the assistant's turn out of it,
 *         parse it with the form that is found for the template, and compare text, names and
 *         arguments. Then render the parsed calls: the same bytes. Templates of the families, where
 *         JITNEY_TEST_DATA has them, and short ones here, after the families' conventions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "api/tools.h"
#include "jinja/template.h"
#include "unit/json_lib.h"
#include "unit/text/tok_lib.h"

enum { BYTES_MAX = 1 << 22, CALLS_MAX = 4 };

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"description\":\"City\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"add\","
    "\"description\":\"Sum.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
    "\"number\",\"description\":\"X\"}}}}}]";

static const char *const names[] = {"get_weather", "add"};
static const char *const args[] = {
    "{\"city\": \"Z\303\274rich \\\"}]\\\\ \\n 'x'\", \"days\": [1, 2.5, true, null], \"more\": "
    "{\"k\": {\"j\": \"</tool>\"}}}",
    "{\"x\": -3}"};

struct round {
    const char *name;        /* of the template */
    const char *form;        /* that it has */
    const char *text;        /* of the message before the calls; NULL: the template writes none */
    const char *skip, *tail; /* what the turn has before and after the model's answer */
    uint32_t calls;
    const char *source; /* of the template; NULL: a file */
};

/* What was parsed. */
struct parsed {
    struct buf text;
    struct buf names[CALLS_MAX], args[CALLS_MAX];
    uint32_t count;
};

static void on_text(void *ctx, struct str text) {
    buf_put_str(&((struct parsed *)ctx)->text, text);
}

static void on_call(void *ctx, uint32_t call, struct str name) {
    struct parsed *got = ctx;
    assert_true(call < CALLS_MAX);
    buf_init(&got->names[call], BYTES_MAX);
    buf_init(&got->args[call], BYTES_MAX);
    buf_put_str(&got->names[call], name);
    got->count = call + 1;
}

static void on_args(void *ctx, uint32_t call, struct str piece) {
    buf_put_str(&((struct parsed *)ctx)->args[call], piece);
}

static void parsed_deinit(struct parsed *got) {
    buf_deinit(&got->text);
    for (uint32_t i = 0; i < got->count; i++) buf_deinit(&got->names[i]);
    for (uint32_t i = 0; i < got->count; i++) buf_deinit(&got->args[i]);
}

static void put_message(struct buf *out, const char *text, struct str name, struct str arguments,
                        uint32_t call) {
    if (call == 0) {
        buf_put_text(out, ",{\"role\":\"assistant\",\"content\":");
        buf_put_json_string(out, str_of(text));
        buf_put_text(out, ",\"tool_calls\":[");
    } else {
        buf_put_char(out, ',');
    }
    buf_printf(out, "{\"type\":\"function\",\"id\":\"abcdefg0%u\",\"function\":{\"name\":\"", call);
    buf_put_str(out, name);
    buf_put_text(out, "\",\"arguments\":");
    buf_put_str(out, arguments);
    buf_put_text(out, "}}");
}

/* Render a user's message and then, if `tail` is not "", the assistant's. */
static void render(const struct round *r, struct str source, const char *tail, struct buf *out) {
    struct buf vars;
    struct template *t = NULL;
    struct err err = {0};
    buf_init(&vars, BYTES_MAX);
    buf_init(out, BYTES_MAX);
    buf_printf(&vars,
               "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_generation_prompt\":%s,"
               "\"tools\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}%s]}",
               tail[0] ? "false" : "true", tools_text, tail);
    struct json *tree = json_of(buf_text(&vars));
    enum status st = template_create(source, &t, &err);
    if (st == ST_OK) st = template_render(t, tree, 0, &template_limits_default, out, &err);
    if (st != ST_OK) fail_msg("%s: %s", r->name, err.text);
    template_destroy(t);
    json_destroy(tree);
    buf_deinit(&vars);
}

/* The model's part of the rendered conversation. */
static struct str answer_of(const struct round *r, struct str prompt, struct str whole) {
    if (!str_starts(whole, prompt))
        fail_msg("%s: %.*s\n is not the beginning of %.*s", r->name, STR_ARG(prompt),
                 STR_ARG(whole));
    struct str turn = str_skip(whole, prompt.len);
    assert_true(str_starts(turn, str_of(r->skip)));
    turn = str_skip(turn, strlen(r->skip));
    if (!str_ends(turn, str_of(r->tail))) fail_msg("%s: %.*s", r->name, STR_ARG(turn));
    return str_take(turn, turn.len - strlen(r->tail));
}

static void parse(const struct tool_form *form, struct str answer, struct parsed *got) {
    struct tool_parser *p;
    struct json *tools = json_of(tools_text);
    const struct tool_callbacks callbacks = {on_text, on_call, on_args, got};
    *got = (struct parsed){.count = 0};
    buf_init(&got->text, BYTES_MAX);
    assert_int_equal(tool_parser_create(form, tools, &p), ST_OK);
    assert_int_equal(tool_parser_push(p, answer, &callbacks), ST_OK);
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    tool_parser_destroy(p);
    json_destroy(tools);
}

static bool is_same_json(const char *a, const char *b) {
    struct json *left = json_of(a), *right = json_of(b);
    struct buf text;
    buf_init(&text, BYTES_MAX);
    json_put(right, &text);
    bool is_same = json_is(left, buf_text(&text));
    buf_deinit(&text);
    json_destroy(left);
    json_destroy(right);
    return is_same;
}

static void check_parsed(const struct round *r, struct str answer, struct parsed *got) {
    if (!str_is(str_trim(buf_str(&got->text)), r->text ? r->text : ""))
        fail_msg("%s: %.*s\n text \"%s\"", r->name, STR_ARG(answer), buf_text(&got->text));
    if (got->count != r->calls)
        fail_msg("%s: %u calls in %.*s", r->name, got->count, STR_ARG(answer));
    for (uint32_t i = 0; i < got->count; i++) {
        assert_true(str_is(buf_str(&got->names[i]), names[i]));
        if (!is_same_json(buf_text(&got->args[i]), args[i]))
            fail_msg("%s: %s", r->name, buf_text(&got->args[i]));
    }
}

static void check_round(const struct round *r, struct str source) {
    struct buf tail, prompt, first, second;
    struct parsed got;
    const char *text = r->text ? r->text : "";
    const struct tool_form *form = tool_form_of_template(source);
    assert_non_null(form);
    assert_string_equal(form->name, r->form);
    buf_init(&tail, BYTES_MAX);
    for (uint32_t i = 0; i < r->calls; i++)
        put_message(&tail, text, str_of(names[i]), str_of(args[i]), i);
    buf_put_text(&tail, "]}");
    render(r, source, "", &prompt);
    render(r, source, buf_text(&tail), &first);
    struct str answer = answer_of(r, buf_str(&prompt), buf_str(&first));
    parse(form, answer, &got);
    check_parsed(r, answer, &got);

    buf_clear(&tail);
    for (uint32_t i = 0; i < got.count; i++)
        put_message(&tail, text, buf_str(&got.names[i]), buf_str(&got.args[i]), i);
    buf_put_text(&tail, "]}");
    render(r, source, buf_text(&tail), &second);
    assert_true(str_eq(buf_str(&first), buf_str(&second)));
    parsed_deinit(&got);
    buf_deinit(&tail);
    buf_deinit(&prompt);
    buf_deinit(&first);
    buf_deinit(&second);
}

static const struct round families[] = {
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "Let me see.", "", "<|im_end|>\n", 2, NULL},
    {"Qwen-Qwen3-0.6B", "hermes", "Let me see.", "<think>\n\n</think>\n\n", "<|im_end|>\n", 2,
     NULL},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", NULL, "", "<|im_end|>\n", 2, NULL},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3", NULL, "", "<|eot_id|>", 1, NULL},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3", NULL, "", "<|eot_id|>", 1, NULL},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", NULL, "", "</s>", 2, NULL},
};

static void test_templates_of_families(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        char name[128], path[1024];
        struct err err = {0};
        struct buf source;
        snprintf(name, sizeof(name), "templates/%s.jinja", families[i].name);
        if (!tok_data_path(path, sizeof(path), name)) skip();
        buf_init(&source, BYTES_MAX);
        assert_int_equal(file_read(path, &source, &err), ST_OK);
        check_round(&families[i], buf_str(&source));
        buf_deinit(&source);
    }
}

#define TURNS(user, calls, generation)                                                             \
    "{% for m in messages %}{% if m.role == 'user' %}" user "{% else %}" calls                     \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}" generation "{% endif %}"
#define EACH(call, between)                                                                        \
    "{% for t in m.tool_calls %}{% set c = t.function %}" call "{% if not loop.last %}" between    \
    "{% endif %}{% endfor %}"
#define JSON_CALL "{\"name\": \"{{ c.name }}\", \"arguments\": {{ c.arguments | tojson }}}"
#define NAMED(assign) "{% for k, v in c.arguments.items() %}{{ k }}" assign

static const struct round conventions[] = {
    {"SmolLM3", "hermes", "So.", "", "<|im_end|>\n", 2,
     "{% if tools %}{{ tools }}{% endif %}" TURNS(
         "<|im_start|>user\n{{ m.content }}<|im_end|>\n",
         "<|im_start|>assistant\n{{ m.content }}" EACH("<tool_call>" JSON_CALL "</tool_call>",
                                                       "\n") "{{ '<|im_end|>\n' }}",
         "{{ '<|im_start|>assistant\n' }}")},
    {"Mistral v7", "mistral", "So.", "", "</s>", 2,
     "{% if tools %}{{ tools }}{% endif %}" TURNS(
         "[INST]{{ m.content }}[/INST]",
         "{{ m.content }}[TOOL_CALLS][" EACH("{\"name\": \"{{ c.name }}\", \"arguments\": {{ "
                                             "c.arguments | tojson }}, \"id\": \"{{ t.id }}\"}",
                                             ", ") "]</s>",
         "")},
    {"Mistral v11", "mistral", "So.", "", "</s>", 2,
     "{% if tools %}{{ tools }}{% endif %}" TURNS(
         "[INST]{{ m.content }}[/INST]",
         "{{ m.content }}" EACH("[TOOL_CALLS]{{ c.name }}[CALL_ID]{{ t.id }}[ARGS]{{ c.arguments | "
                                "tojson }}",
                                "") "</s>",
         "")},
    {"Mistral v13", "mistral", "So.", "", "</s>", 2,
     "{% if tools %}{{ tools }}{% endif %}" TURNS(
         "[INST]{{ m.content }}[/INST]",
         "{{ m.content }}" EACH("[TOOL_CALLS]{{ c.name }}[ARGS]{{ c.arguments | tojson }}",
                                "") "</s>",
         "")},
    {"Llama 3 with tag", "llama3", NULL, "", "<|eom_id|>", 2,
     "{% if tools %}{{ tools }}{% endif %}" TURNS(
         "U {{ m.content }}",
         "A <|python_tag|>" EACH("{\"type\": \"function\", \"name\": \"{{ c.name }}\", "
                                 "\"parameters\": {{ c.arguments | tojson }}}",
                                 "; ") "<|eom_id|>",
         "{{ 'A ' }}")},
    {"Phi-4-mini", "phi4", "So.", "", "<|end|>", 2,
     "<|tool|>{{ tools | tojson }}<|/tool|>" TURNS(
         "<|user|>{{ m.content }}<|end|>",
         "<|assistant|>{{ m.content }}<|tool_call|>[" EACH(JSON_CALL,
                                                           ", ") "]<|/tool_call|><|end|>",
         "<|assistant|>")},
    {"Phi-4-mini functools", "phi4", NULL, "", "<|end|>", 2,
     "{{ tools | tojson }} functools" TURNS(
         "<|user|>{{ m.content }}<|end|>",
         "<|assistant|>functools[" EACH(JSON_CALL, ", ") "]<|end|>", "<|assistant|>")},
    {"Granite 3.3", "granite", "So.", "", "<|end_of_text|>", 2,
     "{{ tools | tojson }}" TURNS(
         "U {{ m.content }}",
         "A {{ m.content }}<|tool_call|>[" EACH(JSON_CALL, ", ") "]<|end_of_text|>", "{{ 'A ' }}")},
    {"Granite 3.1", "granite", NULL, "", "<|end_of_text|>", 2,
     "{{ tools | tojson }} <tool_call> followed by a JSON list" TURNS(
         "U {{ m.content }}", "A <tool_call>[" EACH(JSON_CALL, ", ") "]<|end_of_text|>",
         "{{ 'A ' }}")},
    {"Llama 3.2 pythonic", "pythonic", NULL, "", "<|eot_id|>", 2,
     "{{ tools | tojson }} [func_name1(params_name1=params_value1)]" TURNS(
         "U {{ m.content }}",
         "A [" EACH(
             "{{ c.name }}(" NAMED("={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}") ")",
             ", ") "]<|eot_id|>",
         "{{ 'A ' }}")},
    {"Llama 4", "pythonic", "So.", "", "<|eot|>", 2,
     "{{ tools | tojson }}" TURNS(
         "U {{ m.content }}",
         "A {{ m.content }}<|python_start|>[" EACH(
             "{{ c.name }}(" NAMED("={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}") ")",
             ", ") "]<|python_end|><|eot|>",
         "{{ 'A ' }}")},
    {"Gemma 3", "gemma", "So.", "", "<end_of_turn>\n", 2,
     "{{ tools | tojson }} in ```tool_code" TURNS(
         "<start_of_turn>user\n{{ m.content }}<end_of_turn>\n",
         "<start_of_turn>model\n{{ m.content }}```tool_code\n" EACH(
             "{{ c.name }}(" NAMED("={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}") ")",
             "{{ '\n' }}") "{{ '\n```<end_of_turn>\n' }}",
         "{{ '<start_of_turn>model\n' }}")},
    {"FunctionGemma", "gemma", "So.", "", "<end_of_turn>", 2,
     "{% macro put(v) %}{% if v is string %}<escape>{{ v }}<escape>{% elif v is boolean %}{{ "
     "'true' "
     "if v else 'false' }}{% elif v is mapping %}{{ '{' }}{% for k, w in v.items() %}{{ k }}:{{ "
     "put(w) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif v is iterable %}[{% for w in "
     "v %}{{ put(w) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% "
     "endmacro %}{{ tools | tojson }}" TURNS(
         "U {{ m.content }}",
         "A {{ m.content }}" EACH("<start_function_call>call:{{ c.name }}{{ '{' }}" NAMED(
                                      ":{{ put(v) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' "
                                      "}}") "<end_function_call>",
                                  "") "<end_of_turn>",
         "{{ 'A ' }}")},
    {"Gemma 4", "gemma", "So.", "", "<end_of_turn>", 2,
     "{% macro put(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is boolean %}{{ "
     "'true' "
     "if v else 'false' }}{% elif v is mapping %}{{ '{' }}{% for k, w in v.items() %}{{ k }}:{{ "
     "put(w) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif v is iterable %}[{% for w in "
     "v %}{{ put(w) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% "
     "endmacro %}{{ tools | tojson }}" TURNS(
         "U {{ m.content }}",
         "A {{ m.content }}" EACH("<|tool_call>call:{{ c.name }}{{ '{' }}" NAMED(
                                      ":{{ put(v) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' "
                                      "}}") "<tool_call|>",
                                  "") "<end_of_turn>",
         "{{ 'A ' }}")},
};

static void test_templates_of_conventions(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(conventions) / sizeof(conventions[0]); i++)
        check_round(&conventions[i], str_of(conventions[i].source));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_of_conventions),
        cmocka_unit_test(test_templates_of_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
