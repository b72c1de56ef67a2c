/* Goal:   a conversation becomes the prompt that the model's own template renders, and invalid
 *         messages are refused.
 * Method: small tokenizers with templates, made in the test; the prompt is decoded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"
#include "unit/json_lib.h"

static const char LETTERS[] = " !\"',-.0123456789:<>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnop"
                              "qrstuvwxyz{|}\n";

/* A tokenizer whose pieces are single letters and <s>, with `template` as its chat template. */
static struct tokenizer *letters(const char *template) {
    struct buf doc, config;
    struct json *doc_json, *config_json;
    struct tokenizer *t = NULL;
    struct err err = {0};
    buf_init(&doc, 1 << 20);
    buf_init(&config, 1 << 20);
    buf_put_text(&doc,
                 "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,"
                 "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":null,"
                 "\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":"
                 "\"BPE\",\"merges\":[],\"vocab\":{\"<s>\":0");
    for (uint32_t i = 0; LETTERS[i]; i++) {
        buf_put_char(&doc, ',');
        buf_put_json_string(&doc, (struct str){&LETTERS[i], 1});
        buf_printf(&doc, ":%u", i + 1);
    }
    buf_put_text(&doc, "}}}");
    buf_put_text(&config, "{\"bos_token\":\"<s>\"");
    if (template) buf_put_text(&config, ",\"chat_template\":");
    if (template) buf_put_json_string(&config, str_of(template));
    buf_put_char(&config, '}');
    assert_int_equal(json_parse(buf_str(&doc), &json_limits_model_file, &doc_json, &err), ST_OK);
    assert_int_equal(json_parse(buf_str(&config), &json_limits_model_file, &config_json, &err),
                     ST_OK);
    if (tokenizer_create_json(doc_json, config_json, "letters", &t, &err) != ST_OK)
        fail_msg("%s", err.text);
    json_destroy(doc_json);
    json_destroy(config_json);
    buf_deinit(&doc);
    buf_deinit(&config);
    return t;
}

/* The prompt of `messages`, or the sentence that refuses them, in `out`. */
static enum status prompt_of(const char *template, const char *messages, struct buf *out) {
    struct tokenizer *t = letters(template);
    struct chat_prompt *p = NULL;
    struct tokens ids = {0};
    struct err err = {0};
    buf_init(out, 1 << 20);
    enum status st = chat_prompt_create(t, &p, &err);
    if (st == ST_OK) st = chat_prompt_encode_json(p, str_of(messages), &ids, &err);
    if (st == ST_OK)
        assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, false, out), ST_OK);
    else
        buf_put_text(out, err.text);
    tokens_deinit(&ids);
    chat_prompt_destroy(p);
    tokenizer_destroy(t);
    return st;
}

static void expect(const char *template, const char *messages, enum status status,
                   const char *text) {
    struct buf out;
    enum status st = prompt_of(template, messages, &out);
    if (!strstr(buf_text(&out), text)) fail_msg("\"%s\" is not \"%s\"", buf_text(&out), text);
    assert_int_equal(st, status);
    if (status == ST_OK) assert_string_equal(buf_text(&out), text);
    buf_deinit(&out);
}

#define TALK                                                                                       \
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"            \
    "{% if add_generation_prompt %}assistant:{% endif %}"

static void test_the_template_renders_the_prompt(void **state) {
    (void)state;
    expect(TALK, "[{\"role\":\"user\",\"content\":\"Hi\"}]", ST_OK, "<s>user: Hi\nassistant:");
    expect(TALK, "[]", ST_OK, "<s>assistant:");
    expect("{{ messages[0].extra.deep }}{{ tools }}{{ documents }}",
           "[{\"role\":\"user\",\"extra\":{\"deep\":\"yes\"}}]", ST_OK, "yesNoneNone");
}

static void test_invalid_messages_are_refused(void **state) {
    (void)state;
    expect(TALK, "{\"role\":\"user\"}", ST_BAD, "messages: not a list");
    expect(TALK, "[{\"content\":\"Hi\"}]", ST_BAD, "message 0 has no role");
    expect(TALK, "[{\"role\":\"user\",\"content\":\"Hi\"},7]", ST_BAD, "message 1 has no role");
    expect(TALK, "[", ST_BAD, "messages: ");
    expect(TALK, "", ST_BAD, "messages: ");
    /* Text that would leave its place among the variables. */
    expect(TALK, "[],\"add_generation_prompt\":false,\"x\":[]", ST_BAD, "messages: ");
}

static void test_a_template_that_refuses_or_is_wrong_says_so(void **state) {
    (void)state;
    expect(NULL, "[]", ST_MISSING, "no chat template");
    expect("{% frob %}", "[]", ST_BAD, "chat template: ");
    expect("{{ raise_exception('roles must take turns') }}", "[]", ST_BAD, "roles must take turns");
}

/* --- all that can be said about a prompt ------------------------------------------------ */

/* The trees of a turn as JSON text; NULL: not given. */
struct turn_text {
    const char *messages, *tools, *kwargs;
    bool no_generation_prompt, continue_final;
};

static void expect_turn(const char *template, const struct turn_text *given, enum status status,
                        const char *text) {
    struct json *messages = json_of(given->messages), *tools = json_of(given->tools);
    struct json *kwargs = json_of(given->kwargs);
    const struct chat_turn turn = {.messages = messages,
                                   .tools = tools,
                                   .kwargs = kwargs,
                                   .no_generation_prompt = given->no_generation_prompt,
                                   .continue_final = given->continue_final};
    struct tokenizer *t = letters(template);
    struct chat_prompt *p = NULL;
    struct err err = {0};
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(chat_prompt_create(t, &p, &err), ST_OK);
    buf_put_text(&out, "before "); /* is appended to */
    enum status st = chat_prompt_render(p, &turn, &out, NULL, &err);
    if (st != ST_OK) buf_put_text(&out, err.text);
    assert_int_equal(st, status);
    if (st == ST_OK)
        assert_string_equal(buf_text(&out) + 7, text);
    else if (!strstr(err.text, text))
        fail_msg("\"%s\" has no \"%s\"", err.text, text);
    buf_deinit(&out);
    chat_prompt_destroy(p);
    tokenizer_destroy(t);
    json_destroy(messages);
    json_destroy(tools);
    json_destroy(kwargs);
}

#define USER "{\"role\":\"user\",\"content\":\"Hi\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

static void test_tools_and_variables_reach_the_template(void **state) {
    (void)state;
    const struct turn_text turn = {.messages = "[" USER "]",
                                   .tools = "[{\"name\":\"f\"}]",
                                   .kwargs = "{\"mood\":\"good\",\"n\":2}",
                                   .no_generation_prompt = true};
    expect_turn("{{ tools[0].name }} {{ mood }} {{ n }} {{ add_generation_prompt }}", &turn, ST_OK,
                "f good 2 False");
    /* Even if they got here, they would not win. */
    const struct turn_text sly = {.messages = "[" USER "]",
                                  .kwargs = "{\"messages\":[],\"bos_token\":\"x\"}"};
    expect_turn("{{ bos_token }}{{ messages | length }}", &sly, ST_OK, "<s>1");
    assert_true(chat_prompt_is_reserved(STR("messages")));
    assert_true(chat_prompt_is_reserved(STR("eos_token")));
    assert_false(chat_prompt_is_reserved(STR("enable_thinking")));
}

static void test_a_prompt_can_end_with_the_last_message(void **state) {
    (void)state;
    struct turn_text turn = {.messages = "[" USER "," ASSISTANT("Yes, ") "]",
                             .continue_final = true};
    expect_turn(TALK, &turn, ST_OK, "<s>user: Hi\nassistant: Yes, ");
    expect_turn("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", &turn, ST_OK,
                "[Hi][Yes,");
    turn.messages = "[" ASSISTANT("ab") "," ASSISTANT("ab") "]";
    expect_turn("{% for m in messages %}{{ m.content }}.{% endfor %}", &turn, ST_OK, "ab.ab");
    expect_turn("{{ messages[0].role }}", &turn, ST_BAD, "cannot be continued");
    turn.messages = "[" ASSISTANT("") "]";
    expect_turn(TALK, &turn, ST_BAD, "cannot be continued");
    turn.messages = "[]";
    expect_turn(TALK, &turn, ST_BAD, "cannot be continued");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools_and_variables_reach_the_template),
        cmocka_unit_test(test_a_prompt_can_end_with_the_last_message),
        cmocka_unit_test(test_the_template_renders_the_prompt),
        cmocka_unit_test(test_invalid_messages_are_refused),
        cmocka_unit_test(test_a_template_that_refuses_or_is_wrong_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
