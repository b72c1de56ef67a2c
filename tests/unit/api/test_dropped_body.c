/* Goal:   a request holds what was read of its body and nothing else: fields that no codec knows
 *         are freed, texts stay as they were, and what is held is counted.
 * Method: bodies of several codecs with a large unknown field, before and after the body is
 *         dropped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/codec.h"
#include "api/embeddings.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/json.h"

enum { JUNK_BYTES = 1 << 20 };

/* A body of `fields` and a field "junk" that nobody knows. */
static void read_request(const char *codec_name, const char *fields, struct api_request *r) {
    const struct codec *codec = codec_find(codec_name);
    struct buf text;
    struct json *doc;
    struct err err = {0};
    struct api_error e = {0};
    buf_init(&text, 2 * JUNK_BYTES);
    buf_printf(&text, "{%s,\"junk\":\"", fields);
    for (int i = 0; i < JUNK_BYTES; i++) buf_put_char(&text, 'x');
    buf_put_text(&text, "\"}");
    assert_int_equal(json_parse(buf_str(&text), &json_limits_request, &doc, &err), ST_OK);
    buf_deinit(&text);
    if (codec_read_body(codec, doc, false, r, &e) != ST_OK) fail_msg("%s", e.message.text);
}

static void test_an_unknown_field_is_not_held(void **state) {
    static const char *const bodies[][2] = {
        {"openai.chat", "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"},
        {"openai.completions", "\"prompt\":\"hi\""},
        {"openai.responses", "\"input\":\"hi\""},
        {"anthropic.messages",
         "\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"},
        {"ollama.chat", "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"},
        {"ollama.generate", "\"model\":\"m\",\"prompt\":\"hi\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct api_request r;
        read_request(bodies[i][0], bodies[i][1], &r);
        assert_null(json_get(r.doc, "junk"));
        assert_true(json_memory(r.doc) < 4096);
        assert_in_range(api_request_bytes(&r), 1, 8192);
        api_request_drop_messages(&r);
        assert_null(r.messages);
        assert_in_range(api_request_bytes(&r), 0, 4096);
        api_request_deinit(&r);
    }
}

/* Requests for embeddings have no codec that repeats fields, and the most texts. */
static void test_the_inputs_of_embeddings_outlive_the_body(void **state) {
    (void)state;
    struct embed_request r;
    struct json *doc;
    struct buf text;
    struct err err = {0};
    struct api_error e = {0};
    buf_init(&text, JUNK_BYTES);
    buf_put_text(&text, "{\"model\":\"m\",\"input\":[");
    for (int i = 0; i < API_INPUTS_MAX; i++) buf_printf(&text, "%s\"t%d\"", i ? "," : "", i);
    buf_put_text(&text, "]}");
    assert_int_equal(json_parse(buf_str(&text), &json_limits_request, &doc, &err), ST_OK);
    buf_deinit(&text);
    assert_int_equal(embed_request_read(doc, &r, &e), ST_OK);
    assert_int_equal(api_request_drop_body(&r.text), ST_OK);
    assert_null(r.text.doc);
    assert_true(str_is(r.text.model, "m"));
    assert_int_equal(r.text.prompt_count, API_INPUTS_MAX);
    assert_true(str_is(r.text.prompts[API_INPUTS_MAX - 1].text, "t2047"));
    assert_in_range(api_request_bytes(&r.text), API_INPUTS_MAX * 2, API_INPUTS_MAX * 8);
    embed_request_deinit(&r);
}

static void test_texts_outlive_the_body(void **state) {
    struct api_request r;
    (void)state;
    read_request("openai.completions",
                 "\"model\":\"the-model\",\"prompt\":[\"one\",\"two\"],\"stop\":[\"s1\",\"s22\"],"
                 "\"cache_salt\":\"salt\",\"user\":\"me\"",
                 &r);
    assert_null(r.doc);
    assert_true(str_is(r.model, "the-model"));
    assert_true(str_is(r.prompts[0].text, "one"));
    assert_true(str_is(r.prompts[1].text, "two"));
    assert_true(str_is(r.stops[0], "s1"));
    assert_true(str_is(r.stops[1], "s22"));
    assert_true(str_is(r.cache_salt, "salt"));
    assert_true(str_is(r.user, "me"));
    api_request_drop_messages(&r);
    assert_int_equal(r.prompts[0].text.len, 0);
    assert_true(str_is(r.stops[1], "s22")); /* the answer is compared with it */
    api_request_deinit(&r);
}

static void test_a_text_that_was_not_given_stays_so(void **state) {
    struct api_request r;
    (void)state;
    read_request("openai.chat", "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]", &r);
    assert_null(r.model.ptr); /* else the default model would not be taken */
    api_request_deinit(&r);
}

static void test_an_echoed_prompt_is_kept_and_counted(void **state) {
    struct api_request r;
    (void)state;
    read_request("openai.completions", "\"prompt\":\"echoed\",\"echo\":true", &r);
    uint64_t before = api_request_bytes(&r);
    api_request_drop_messages(&r);
    assert_true(str_is(r.prompts[0].text, "echoed"));
    assert_int_equal(api_request_bytes(&r), before);
    api_request_deinit(&r);
}

static void test_fields_that_the_answer_repeats_are_kept(void **state) {
    struct api_request r;
    (void)state;
    read_request("openai.responses",
                 "\"input\":\"hi\",\"instructions\":\"be kind\",\"metadata\":{\"k\":\"v\"},"
                 "\"reasoning\":{\"effort\":\"low\",\"more\":\"text\"},\"temperature\":0.5",
                 &r);
    assert_true(str_is(json_str(json_get(r.doc, "instructions")), "be kind"));
    assert_true(str_is(json_str(json_path(r.doc, "metadata.k")), "v"));
    assert_true(str_is(json_str(json_path(r.doc, "reasoning.effort")), "low"));
    assert_null(json_path(r.doc, "reasoning.more"));
    assert_null(json_get(r.doc, "input"));
    api_request_deinit(&r);
}

/* A long text in any field that a request holds counts with all its bytes. `%s` is that text. */
static void test_every_field_that_is_held_is_counted(void **state) {
    (void)state;
    enum { LONG = 1 << 16 };
#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
    static const char *const bodies[][2] = {
        {"openai.chat", "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]"},
        {"openai.chat", CHAT ",\"chat_template_kwargs\":{\"a\":\"%s\"}"},
        {"openai.chat", CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                             "\"description\":\"%s\",\"parameters\":{\"type\":\"object\"}}}]"},
        {"openai.completions", "\"prompt\":\"%s\""},
        {"openai.completions", "\"prompt\":[\"hi\",\"%s\"]"},
        {"openai.responses", "\"input\":\"%s\""},
        {"openai.responses", "\"input\":\"hi\",\"instructions\":\"%s\""},
        {"openai.responses", "\"input\":\"hi\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
                             "\"description\":\"%s\",\"parameters\":{\"type\":\"object\"}}]"},
        {"anthropic.messages", "\"model\":\"m\",\"max_tokens\":9," CHAT ",\"system\":\"%s\""},
        {"anthropic.messages", "\"model\":\"m\",\"max_tokens\":9," CHAT
                               ",\"tools\":[{\"name\":\"f\",\"description\":\"%s\","
                               "\"input_schema\":{\"type\":\"object\"}}]"},
        {"ollama.generate", "\"model\":\"m\",\"prompt\":\"%s\""},
        {"ollama.generate", "\"model\":\"m\",\"prompt\":\"hi\",\"system\":\"%s\""},
    };
#undef CHAT
    static char text[LONG + 1];
    memset(text, 'x', LONG);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        const char *gap = strstr(bodies[i][1], "%s");
        struct api_request r;
        struct buf fields;
        buf_init(&fields, 2 * LONG);
        buf_put(&fields, bodies[i][1], (size_t)(gap - bodies[i][1]));
        buf_put(&fields, text, LONG);
        buf_put_text(&fields, gap + 2);
        read_request(bodies[i][0], buf_text(&fields), &r);
        if (api_request_bytes(&r) < LONG) fail_msg("%s: %s", bodies[i][0], bodies[i][1]);
        assert_in_range(api_request_bytes(&r), LONG, 2 * LONG + 8192);
        const bool is_tool = strstr(bodies[i][1], "tools") || strstr(bodies[i][1], "instructions");
        api_request_drop_messages(
            &r); /* the prompt is made: it goes, what the answer needs stays */
        if ((api_request_bytes(&r) >= LONG) != is_tool)
            fail_msg("%s: %s", bodies[i][0], bodies[i][1]);
        api_request_deinit(&r);
        buf_deinit(&fields);
    }
}

static void test_the_memory_of_a_tree_counts_values_and_not_only_texts(void **state) {
    struct err err = {0};
    struct json *maps, *text;
    (void)state;
    assert_int_equal(
        json_parse(STR("[{},{},{},{},{},{},{},{},{},{}]"), &json_limits_request, &maps, &err),
        ST_OK);
    assert_int_equal(
        json_parse(STR("[\"0123456789012345678901234567\"]"), &json_limits_request, &text, &err),
        ST_OK);
    assert_true(json_memory(maps) > 10 * json_memory(text));
    assert_int_equal(json_memory(NULL), 0);
    json_destroy(maps);
    json_destroy(text);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_an_unknown_field_is_not_held),
        cmocka_unit_test(test_the_inputs_of_embeddings_outlive_the_body),
        cmocka_unit_test(test_texts_outlive_the_body),
        cmocka_unit_test(test_a_text_that_was_not_given_stays_so),
        cmocka_unit_test(test_an_echoed_prompt_is_kept_and_counted),
        cmocka_unit_test(test_fields_that_the_answer_repeats_are_kept),
        cmocka_unit_test(test_every_field_that_is_held_is_counted),
        cmocka_unit_test(test_the_memory_of_a_tree_counts_values_and_not_only_texts),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
