/* Goal:   Ollama's /api/chat and /api/generate with Ollama's own defaults, its small bodies, and
 *         its embeddings, in the shape that its clients read; what cannot be served is refused by
 *         name.
 * Method: transcripts of the cases in codec_cases.h and of the small bodies against a committed
 *         one, which tests/e2e/test_api_goldens.py reads with the ollama package's own models;
 *         every way to portion and resume a stream; a table of bad bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/ollama.h"
#include "unit/api/codec_cases.h"
#include "unit/api/codec_test.h"

static const struct codec *chat(void) { return codec_find("ollama.chat"); }
static const struct codec *generate(void) { return codec_find("ollama.generate"); }

static const struct ollama_model models[] = {
    {.name = CASE_STR("tiny"),
     .modified_s = 1700000000,
     .bytes = 102400,
     .digest = CASE_STR("0011223344556677"),
     .format = CASE_STR("gguf"),
     .family = CASE_STR("llama"),
     .quantization = CASE_STR("Q4_1"),
     .chat_template = CASE_STR("{% for m in messages %}\n\"{{ m }}\"{% endfor %}"),
     .parameter_count = 134515008,
     .ctx_tokens = 2048,
     .dims = 576,
     .has_tools = true,
     .has_thoughts = true},
    {.name = CASE_STR("minilm"), .parameter_count = 7610000000, .is_embedder = true},
};

static void record_bodies(struct buf *out) {
    buf_put_text(out, "== version\n");
    ollama_version_put("0.1.0", out);
    buf_put_text(out, "\n== tags\n");
    ollama_tags_put(models, 2, out);
    buf_put_text(out, "\n== ps\n");
    ollama_ps_put(models, 2, out);
    buf_put_text(out, "\n== show\n");
    ollama_show_put(&models[0], out);
    buf_put_text(out, "\n== show_embedder\n");
    ollama_show_put(&models[1], out);
    buf_put_char(out, '\n');
}

static void record(struct buf *out) {
    buf_init(out, CASE_BYTES_MAX);
    buf_put_text(out, "=== chat\n");
    transcribe_cases(chat(), ollama_chat_cases, CASE_COUNT(ollama_chat_cases), out);
    buf_put_text(out, "=== generate\n");
    transcribe_cases(generate(), ollama_generate_cases, CASE_COUNT(ollama_generate_cases), out);
    buf_put_text(out, "=== bodies\n");
    record_bodies(out);
}

static void test_requests_and_answers_are_as_recorded(void **state) {
    (void)state;
    struct buf got;
    record(&got);
    expect_golden("ollama", buf_str(&got));
    buf_deinit(&got);
}

static void test_a_stream_has_the_same_pieces_however_it_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(ollama_chat_cases); i++)
        expect_same_pieces(chat(), &ollama_chat_cases[i]);
    for (size_t i = 0; i < CASE_COUNT(ollama_generate_cases); i++)
        expect_same_pieces(generate(), &ollama_generate_cases[i]);
}

static void test_ollama_s_defaults_hold(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    struct str body = STR("{\"model\":\"m\",\"prompt\":\"x\",\"options\":{\"num_predict\":-1}}");
    assert_int_equal(case_read_body(generate(), body, &r, &e), ST_OK);
    assert_true(r.stream);
    assert_true(generate()->streams_by_default && chat()->streams_by_default);
    assert_true(r.sample.temperature == 0.8f && r.sample.top_p == 0.9f);
    assert_true(r.sample.repetition_penalty == 1.1f);
    assert_int_equal(r.sample.top_k, 40);
    assert_int_equal(r.sample.penalty_window, 64);
    assert_false(r.has_max_tokens);
    assert_false(r.has_seed);
    api_request_deinit(&r);
}

static void test_ollamas_values_for_no_limit_and_a_random_seed_are_read(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    struct str body = STR("{\"prompt\":\"x\",\"options\":{\"num_predict\":0,\"seed\":-1}}");
    assert_int_equal(case_read_body(generate(), body, &r, &e), ST_OK);
    assert_false(r.has_max_tokens);
    assert_false(r.has_seed);
    api_request_deinit(&r);
}

#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"

static const struct bad_body bad_chats[] = {
    {"{\"messages\":5}", "messages", NULL},
    {"{\"messages\":[5]}", "messages[0]", NULL},
    {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "missing"},
    {"{\"messages\":[{\"role\":\"boss\",\"content\":\"x\"}]}", "messages[0].role", "boss"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content", NULL},
    {"{\"messages\":[{\"role\":\"user\",\"images\":[\"aGk=\"]}]}", "messages[0].images",
     "not supported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
     "\"arguments\":\"{}\"}}]}]}",
     "messages[0].tool_calls[0].function.arguments", NULL},
    {"{" SAID "\"format\":\"xml\"}", "format", "not supported"},
    {"{" SAID "\"format\":[]}", "format", "an array"},
    {"{" SAID "\"stream\":\"no\"}", "stream", NULL},
    {"{" SAID "\"think\":[]}", "think", NULL},
    {"{" SAID "\"logprobs\":true}", "logprobs", "not supported"},
    {"{" SAID "\"options\":7}", "options", NULL},
    {"{" SAID "\"options\":{\"temperature\":\"hot\"}}", "options.temperature", NULL},
    {"{" SAID "\"options\":{\"temperature\":-1}}", "options.temperature", "minimum"},
    {"{" SAID "\"options\":{\"num_predict\":-3}}", "options.num_predict", "minimum"},
    {"{" SAID "\"options\":{\"stop\":[5]}}", "options.stop[0]", NULL},
    {"{" SAID "\"options\":{\"repeat_last_n\":-5}}", "options.repeat_last_n", "minimum"},
    {"{" SAID "\"options\":{\"mirostat\":2}}", "options.mirostat", "not supported"},
    {"{" SAID "\"tools\":[{}]}", "tools[0].function", "missing"},
};

static const struct bad_body bad_generates[] = {
    {"{\"prompt\":[]}", "prompt", NULL},
    {"{\"prompt\":\"x\",\"images\":[\"aGk=\"]}", "images", "not supported"},
    {"{\"prompt\":\"x\",\"template\":\"{{ .Prompt }}\"}", "template", "not supported"},
    {"{\"prompt\":\"x\",\"suffix\":\"y\"}", "suffix", "not supported"},
    {"{\"prompt\":\"x\",\"context\":[1,2]}", "context", "not supported"},
    {"{\"prompt\":\"x\",\"raw\":\"y\"}", "raw", NULL},
    {"{\"prompt\":\"x\",\"system\":5}", "system", NULL},
};

static void test_bad_bodies_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(bad_chats); i++) expect_refused(chat(), &bad_chats[i]);
    for (size_t i = 0; i < CASE_COUNT(bad_generates); i++)
        expect_refused(generate(), &bad_generates[i]);
}

static void test_errors_are_one_sentence(void **state) {
    (void)state;
    expect_error(chat(), 404, "{\"error\":\"a \\\"sentence\\\"\"}");
}

static void test_the_model_to_show_is_read(void **state) {
    (void)state;
    struct json *body;
    struct err err = {0};
    struct api_error e = {0};
    struct str model;
    assert_int_equal(json_parse(STR("{\"name\":\"old\"}"), &json_limits_request, &body, &err),
                     ST_OK);
    assert_int_equal(ollama_show_read(body, &model, &e), ST_OK);
    assert_true(str_is(model, "old"));
    json_destroy(body);
    assert_int_equal(json_parse(STR("{\"model\":5}"), &json_limits_request, &body, &err), ST_OK);
    assert_int_equal(ollama_show_read(body, &model, &e), ST_BAD);
    assert_string_equal(e.param, "model");
    json_destroy(body);
}

static enum status read_embed(const char *text, bool is_old, struct embed_request *r,
                              struct api_error *e) {
    struct json *body;
    struct err err = {0};
    assert_int_equal(json_parse(str_of(text), &json_limits_request, &body, &err), ST_OK);
    return is_old ? ollama_embeddings_read(body, r, e) : ollama_embed_read(body, r, e);
}

static void test_embedding_requests_are_read_and_answered(void **state) {
    (void)state;
    static const float v0[] = {3, 4, 12}, v1[] = {1, 0, 0};
    static const float *const vectors[] = {v0, v1};
    const struct embed_answer answer = {
        .model = STR("minilm"), .vectors = vectors, .count = 2, .dims = 3, .prompt_tokens = 9};
    struct embed_request r;
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, CASE_BYTES_MAX);
    assert_int_equal(read_embed("{\"model\":\"minilm\",\"input\":[\"a\",\"b\"],\"dimensions\":2}",
                                false, &r, &e),
                     ST_OK);
    assert_int_equal(r.text.prompt_count, 2);
    assert_true(str_is(r.text.prompts[1].text, "b"));
    ollama_embed_put(&r, &answer, 1500, &out);
    assert_string_equal(buf_text(&out),
                        "{\"model\":\"minilm\",\"embeddings\":[[0.600000024,0.800000012],[1,0]],"
                        "\"total_duration\":1500000,\"load_duration\":0,\"prompt_eval_count\":9}");
    embed_request_deinit(&r);

    buf_clear(&out);
    assert_int_equal(read_embed("{\"model\":\"minilm\",\"prompt\":\"a\"}", true, &r, &e), ST_OK);
    ollama_embeddings_put(&r, &answer, &out);
    assert_string_equal(buf_text(&out), "{\"embedding\":[3,4,12]}");
    embed_request_deinit(&r);

    assert_int_equal(read_embed("{\"input\":[\"a\",7]}", false, &r, &e), ST_BAD);
    assert_string_equal(e.param, "input[1]");
    embed_request_deinit(&r);
    assert_int_equal(read_embed("{}", false, &r, &e), ST_BAD);
    assert_string_equal(e.param, "input");
    embed_request_deinit(&r);
    assert_int_equal(read_embed("{\"prompt\":null}", true, &r, &e), ST_BAD);
    assert_string_equal(e.param, "prompt");
    assert_string_equal(e.code, "missing_required_parameter");
    embed_request_deinit(&r);
    buf_deinit(&out);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "write") == 0) {
        struct buf out;
        record(&out);
        int rc = write_golden("ollama", buf_str(&out));
        buf_deinit(&out);
        return rc;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_and_answers_are_as_recorded),
        cmocka_unit_test(test_a_stream_has_the_same_pieces_however_it_is_read),
        cmocka_unit_test(test_ollama_s_defaults_hold),
        cmocka_unit_test(test_ollamas_values_for_no_limit_and_a_random_seed_are_read),
        cmocka_unit_test(test_bad_bodies_are_refused_by_name),
        cmocka_unit_test(test_errors_are_one_sentence),
        cmocka_unit_test(test_the_model_to_show_is_read),
        cmocka_unit_test(test_embedding_requests_are_read_and_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
