/* Goal:   embeddings, tokenize, detokenize, apply-template, models and errors are read and written
 *         as clients know them.
 * Method: bodies are read and compared; answers are compared with JSON written down by hand,
 *         vectors in base64 with numbers whose bytes are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "api/embeddings.h"
#include "api/models.h"
#include "api/tokenize.h"
#include "unit/api/api_lib.h"

static struct json *parse(const char *text) {
    struct json *doc = NULL;
    assert_int_equal(json_parse(str_of(text), &json_limits_request, &doc, NULL), ST_OK);
    return doc;
}

static void expect_text(struct buf *out, const char *wanted) {
    assert_int_equal(buf_status(out), ST_OK);
    assert_string_equal(buf_text(out), wanted);
    buf_clear(out);
}

/* --- embeddings ------------------------------------------------------------------------- */

static void put_vectors(const char *body, const float *const *vectors, uint32_t count,
                        uint32_t dims, struct buf *out) {
    struct embed_request r;
    struct api_error e = {0};
    if (embed_request_read(parse(body), &r, &e) != ST_OK) fail_msg("%s", e.message.text);
    struct embed_answer a = {STR("m"), vectors, count, dims, 5};
    embed_answer_put(&r, &a, out);
    embed_request_deinit(&r);
}

static void test_vectors_are_numbers_or_base64(void **state) {
    (void)state;
    static const float one[] = {1.0f, -2.0f, 0.5f}, two[] = {0.0f, 3.0f, 4.0f};
    static const float *const vectors[] = {one, two};
    struct buf out;
    buf_init(&out, 1 << 16);
    put_vectors("{\"input\":[\"a\",\"b\"]}", vectors, 2, 3, &out);
    expect_text(&out, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,"
                      "\"embedding\":[1,-2,0.5]},{\"object\":\"embedding\",\"index\":1,"
                      "\"embedding\":[0,3,4]}],\"model\":\"m\",\"usage\":{\"prompt_tokens\":5,"
                      "\"total_tokens\":5}}");
    /* 1.0, -2.0, 0.5 are 0000803f 000000c0 0000003f in memory. */
    put_vectors("{\"input\":\"a\",\"encoding_format\":\"base64\"}", vectors, 1, 3, &out);
    expect_text(&out, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,"
                      "\"embedding\":\"AACAPwAAAMAAAAA/\"}],\"model\":\"m\",\"usage\":{"
                      "\"prompt_tokens\":5,\"total_tokens\":5}}");
    put_vectors("{\"input\":\"a\",\"encoding_format\":\"base64\",\"dimensions\":1}", vectors, 1, 3,
                &out);
    assert_non_null(strstr(buf_text(&out), "\"embedding\":\"AACAPw==\""));
    buf_deinit(&out);
}

static void test_a_shortened_vector_has_length_one(void **state) {
    (void)state;
    static const float v[] = {3.0f, 4.0f, 12.0f}, nil[] = {0.0f, 0.0f, 1.0f};
    static const float *const vectors[] = {v, nil};
    struct buf out;
    buf_init(&out, 1 << 16);
    put_vectors("{\"input\":[\"a\",\"b\"],\"dimensions\":2}", vectors, 2, 3, &out);
    assert_non_null(strstr(buf_text(&out), "\"embedding\":[0.600000024,0.800000012]"));
    assert_non_null(strstr(buf_text(&out), "\"embedding\":[0,0]"));
    buf_deinit(&out);
}

static void expect_embed_refusal(const char *body, const char *param, const char *code) {
    struct embed_request r;
    struct api_error e = {0};
    assert_int_equal(embed_request_read(parse(body), &r, &e), ST_BAD);
    embed_request_deinit(&r);
    assert_string_equal(e.param, param);
    assert_string_equal(e.code, code);
}

static void test_wrong_inputs_are_refused(void **state) {
    (void)state;
    expect_embed_refusal("{}", "input", "missing_required_parameter");
    expect_embed_refusal("{\"input\":\"\"}", "input", "string_below_min_length");
    expect_embed_refusal("{\"input\":[]}", "input", "array_below_min_length");
    expect_embed_refusal("{\"input\":{}}", "input", "invalid_type");
    expect_embed_refusal("{\"input\":[null]}", "input[0]", "invalid_type");
    expect_embed_refusal("{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format",
                         "invalid_value");
    expect_embed_refusal("{\"input\":\"a\",\"dimensions\":0}", "dimensions",
                         "integer_below_min_value");
    struct embed_request r;
    struct api_error e = {0};
    assert_int_equal(embed_request_read(parse("{\"input\":[1,2],\"dimensions\":4}"), &r, &e),
                     ST_OK);
    assert_int_equal(r.text.prompts[0].count, 2);
    assert_int_equal(embed_request_check(&r, 4, &e), ST_OK);
    assert_int_equal(embed_request_check(&r, 3, &e), ST_BAD);
    embed_request_deinit(&r);
}

static void test_at_most_2048_inputs_are_accepted(void **state) {
    (void)state;
    for (uint32_t count = API_INPUTS_MAX; count <= API_INPUTS_MAX + 1; count++) {
        struct buf body;
        struct embed_request r;
        struct api_error e = {0};
        buf_init(&body, 1 << 20);
        buf_put_text(&body, "{\"input\":[\"x\"");
        for (uint32_t i = 1; i < count; i++) buf_put_text(&body, ",\"x\"");
        buf_put_text(&body, "]}");
        assert_int_equal(embed_request_read(parse(buf_text(&body)), &r, &e),
                         count > API_INPUTS_MAX ? ST_BAD : ST_OK);
        embed_request_deinit(&r);
        buf_deinit(&body);
    }
}

/* --- tokens ----------------------------------------------------------------------------- */

static void test_both_forms_of_tokenize_are_read(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool raw, chat, special_is_text;
    } cases[] = {
        {"{\"prompt\":\"x\"}", false, false, false},
        {"{\"prompt\":\"x\",\"add_special_tokens\":false}", true, false, false},
        {"{\"content\":\"x\"}", true, false, false},
        {"{\"content\":\"x\",\"add_special\":true,\"parse_special\":false}", false, false, true},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", true, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tokenize_request r;
        struct api_error e = {0};
        assert_int_equal(tokenize_request_read(parse(cases[i].body), &r, &e), ST_OK);
        assert_int_equal(r.text.raw_prompt, cases[i].raw);
        assert_int_equal(r.text.is_chat, cases[i].chat);
        assert_int_equal(r.no_special, cases[i].special_is_text);
        if (!cases[i].chat) assert_true(str_is(r.text.prompts[0].text, "x"));
        tokenize_request_deinit(&r);
    }
    static const char *const wrong[] = {"{}", "{\"prompt\":\"x\",\"content\":\"y\"}",
                                        "{\"prompt\":[1]}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct tokenize_request r;
        struct api_error e = {0};
        assert_int_equal(tokenize_request_read(parse(wrong[i]), &r, &e), ST_BAD);
        assert_string_equal(e.param, "prompt");
        tokenize_request_deinit(&r);
    }
}

static void test_tokens_are_returned_with_pieces_or_texts(void **state) {
    (void)state;
    struct tokenizer *t = lib_tokenizer();
    const int32_t ids[] = {T_HELLO, 0xe2, T_END};
    struct tokenize_request r = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    assert_int_equal(tokenize_answer_put(&r, t, ids, 3, 64, &out), ST_OK);
    expect_text(&out, "{\"tokens\":[259,226,256],\"count\":3,\"max_model_len\":64,"
                      "\"token_strs\":null}");
    r.with_texts = true;
    assert_int_equal(tokenize_answer_put(&r, t, ids, 3, 64, &out), ST_OK);
    expect_text(&out, "{\"tokens\":[259,226,256],\"count\":3,\"max_model_len\":64,"
                      "\"token_strs\":[\"Hello\",\"\xef\xbf\xbd\",\"<|end|>\"]}");
    r = (struct tokenize_request){.with_pieces = true};
    assert_int_equal(tokenize_answer_put(&r, t, ids, 2, 64, &out), ST_OK);
    expect_text(&out, "{\"tokens\":[{\"id\":259,\"piece\":\"Hello\"},{\"id\":226,\"piece\":[226]}],"
                      "\"count\":2,\"max_model_len\":64,\"token_strs\":null}");
    buf_deinit(&out);
    tokenizer_destroy(t);
}

static enum status detokenize(const struct tokenizer *t, const char *body, struct buf *out,
                              struct api_error *e) {
    struct tokenize_request r;
    enum status st = detokenize_request_read(parse(body), &r, e);
    if (st == ST_OK) st = detokenize_answer_put(&r, t, 0, out, e);
    tokenize_request_deinit(&r);
    return st;
}

static void test_ids_become_text_again(void **state) {
    (void)state;
    struct tokenizer *t = lib_tokenizer();
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    assert_int_equal(detokenize(t, "{\"tokens\":[259,260,34]}", &out, &e), ST_OK);
    expect_text(&out, "{\"prompt\":\"Hello world\\\"\",\"content\":\"Hello world\\\"\"}");
    assert_int_equal(detokenize(t, "{\"tokens\":[34.0]}", &out, &e), ST_OK); /* JavaScript's way */
    expect_text(&out, "{\"prompt\":\"\\\"\",\"content\":\"\\\"\"}");
    assert_int_equal(detokenize(t, "{\"tokens\":[]}", &out, &e), ST_OK);
    expect_text(&out, "{\"prompt\":\"\",\"content\":\"\"}");
    assert_int_equal(detokenize(t, "{\"tokens\":[9999]}", &out, &e), ST_BAD);
    assert_int_equal(detokenize(t, "{\"tokens\":[[1]]}", &out, &e), ST_BAD);
    assert_int_equal(detokenize(t, "{\"tokens\":[\"a\"]}", &out, &e), ST_BAD);
    assert_int_equal(detokenize(t, "{\"tokens\":[1,\"a\"]}", &out, &e), ST_BAD);
    assert_int_equal(detokenize(t, "{}", &out, &e), ST_BAD);
    buf_deinit(&out);
    tokenizer_destroy(t);
}

static void test_a_template_request_is_a_conversation(void **state) {
    (void)state;
    struct tokenize_request r;
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    assert_int_equal(template_request_read(
                         parse("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":"
                               "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
                               "\"add_generation_prompt\":false}"),
                         &r, &e),
                     ST_OK);
    assert_true(r.text.is_chat && r.text.no_generation_prompt && r.text.tools);
    tokenize_request_deinit(&r);
    assert_int_equal(template_request_read(parse("{}"), &r, &e), ST_BAD);
    tokenize_request_deinit(&r);
    template_answer_put(STR("a\nb"), &out);
    expect_text(&out, "{\"prompt\":\"a\\nb\"}");
    buf_deinit(&out);
}

/* --- models and errors ------------------------------------------------------------------ */

static void test_models_are_listed(void **state) {
    (void)state;
    const struct model_info models[] = {{.id = STR("m"),
                                         .created_s = 7,
                                         .ctx_tokens = 64,
                                         .writes = true,
                                         .has_chat = true,
                                         .tools = STR("hermes"),
                                         .vocab = 9,
                                         .dims = 3,
                                         .file_bytes = 1000,
                                         .state = STR("ready")}};
    struct buf out;
    buf_init(&out, 1 << 16);
    models_put(models, 1, &out);
    expect_text(&out,
                "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":7,"
                "\"owned_by\":\"jitney\",\"max_model_len\":64,\"meta\":{\"state\":\"ready\","
                "\"writes\":true,\"embeds\":false,\"chat_template\":true,\"tools\":\"hermes\","
                "\"n_vocab\":9,\"n_ctx\":64,\"n_embd\":3,\"size\":1000}}]}");
    models_put(NULL, 0, &out);
    expect_text(&out, "{\"object\":\"list\",\"data\":[]}");
    buf_deinit(&out);
}

static void test_the_status_decides_the_error_type_and_whether_to_retry(void **state) {
    (void)state;
    static const struct {
        uint32_t status;
        const char *type;
        int temporary;
    } cases[] = {
        {400, "invalid_request_error", 0}, {401, "authentication_error", 0},
        {403, "permission_error", 0},      {404, "not_found_error", 0},
        {408, "invalid_request_error", 1}, {413, "invalid_request_error", 0},
        {429, "rate_limit_error", 1},      {500, "server_error", 0},
        {503, "unavailable_error", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error e;
        assert_int_equal(api_refuse(&e, cases[i].status, "p", "c", "%d", 5), ST_BAD);
        assert_string_equal(e.type, cases[i].type);
        assert_string_equal(e.message.text, "5");
        assert_int_equal(api_error_is_temporary(&e), cases[i].temporary);
    }
    struct api_error e;
    assert_int_equal(api_fail(&e, ST_NOMEM, "none left"), ST_NOMEM);
    assert_int_equal(e.status, 503);
    assert_int_equal(api_fail(&e, ST_DEVICE, "gone"), ST_DEVICE);
    assert_int_equal(e.status, 500);
}

static void test_an_error_is_valid_json_whatever_it_quotes(void **state) {
    (void)state;
    struct api_error e;
    struct buf out;
    struct json *doc;
    buf_init(&out, 1 << 16);
    api_refuse(&e, 400, "a\"b\xff", NULL, "bad bytes: \xff\xfe \" \\ \x01");
    api_error_put_openai(&e, STR("id"), &out);
    assert_int_equal(json_parse(buf_str(&out), &json_limits_request, &doc, NULL), ST_OK);
    assert_int_equal(json_count(json_get(doc, "error")), 4);
    assert_int_equal(json_kind(json_path(doc, "error.code")), JS_NULL);
    json_destroy(doc);
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_are_numbers_or_base64),
        cmocka_unit_test(test_a_shortened_vector_has_length_one),
        cmocka_unit_test(test_wrong_inputs_are_refused),
        cmocka_unit_test(test_at_most_2048_inputs_are_accepted),
        cmocka_unit_test(test_both_forms_of_tokenize_are_read),
        cmocka_unit_test(test_tokens_are_returned_with_pieces_or_texts),
        cmocka_unit_test(test_ids_become_text_again),
        cmocka_unit_test(test_a_template_request_is_a_conversation),
        cmocka_unit_test(test_models_are_listed),
        cmocka_unit_test(test_the_status_decides_the_error_type_and_whether_to_retry),
        cmocka_unit_test(test_an_error_is_valid_json_whatever_it_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
