/* Goal:   completions are read and written as OpenAI's clients know them, and a streamed answer
 *         says the same as a whole one.
 * Method: bodies are read and compared; answers made of chosen tokens are encoded and compared
 *         byte by byte with chunks written down by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tokenizer_fixture.h"

#define HEAD                                                                                       \
    "{\"id\":\"cmpl-abc123\",\"object\":\"text_completion\",\"created\":1700000000,"               \
    "\"model\":\"m\\\"1\",\"system_fingerprint\":\"fp_0\",\"choices\":["

static const struct codec *completions(void) { return codec_find("openai.completions"); }

static struct lib_answer *ask(const char *body, uint32_t choices) {
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct api_error e = {0};
    if (lib_read_body(completions(), str_of(body), &l->request, &e) != ST_OK)
        fail_msg("%s: %s", e.param, e.message.text);
    lib_begin(l, tokenizer, NULL, choices);
    return l;
}

static void done(struct lib_answer *l) {
    lib_end(l);
    mem_free(l);
}

static void expect_stream(const struct lib_answer *l, const char *wanted) {
    struct buf out;
    buf_init(&out, 1 << 20);
    lib_stream(completions(), &l->answer, 0, &out);
    assert_string_equal(buf_text(&out), wanted);
    buf_deinit(&out);
}

/* The whole answer up to its usage. */
static void expect_whole(const struct lib_answer *l, const char *wanted) {
    struct buf out;
    buf_init(&out, 1 << 20);
    completions()->whole(&l->answer, &out);
    char *usage = strstr(out.ptr, "],\"usage\":{\"prompt_tokens\":3,");
    assert_non_null(usage);
    *usage = 0;
    assert_string_equal(out.ptr, wanted);
    buf_deinit(&out);
}

static void test_answers_have_openais_format(void **state) {
    (void)state;
    struct lib_answer *l = ask("{\"prompt\":\"Say\",\"stream\":true}", 1);
    assert_int_equal(l->request.max_tokens, 16);
    const int32_t tokens[] = {T_HELLO, '\n'};
    lib_push(l, 0, tokens, 2, 1);
    lib_finish(l, 0, FINISH_LENGTH);
    expect_stream(
        l, HEAD
        "{\"index\":0,\"text\":\"Hello\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":0,\"text\":\"\\n\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n[DONE]\n");
    expect_whole(
        l,
        HEAD "{\"index\":0,\"text\":\"Hello\\n\",\"logprobs\":null,\"finish_reason\":\"length\"}");
    done(l);
}

static void test_an_echo_begins_with_the_prompt(void **state) {
    (void)state;
    struct lib_answer *l = ask("{\"prompt\":[[72,105],[72,111]],\"echo\":true,\"stream\":true,"
                               "\"max_tokens\":0}",
                               2);
    lib_say(l, 0, STR("!"), FINISH_LENGTH);
    lib_say(l, 1, STR("?"), FINISH_LENGTH);
    expect_stream(
        l, HEAD
        "{\"index\":0,\"text\":\"Hi\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":1,\"text\":\"Ho\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":0,\"text\":\"!\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n" HEAD
        "{\"index\":1,\"text\":\"?\",\"logprobs\":null,\"finish_reason\":null}]}\n" HEAD
        "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n[DONE]\n");
    expect_whole(l, HEAD
                 "{\"index\":0,\"text\":\"Hi!\",\"logprobs\":null,\"finish_reason\":\"length\"},"
                 "{\"index\":1,\"text\":\"Ho?\",\"logprobs\":null,\"finish_reason\":\"length\"}");
    done(l);
}

static void test_log_probabilities_are_four_parallel_lists(void **state) {
    (void)state;
    struct lib_answer *l = ask("{\"prompt\":\"\",\"logprobs\":2,\"stream\":true}", 1);
    const int32_t tokens[] = {T_HELLO, 0xc3, 0xa9, 'b', T_END};
    lib_push(l, 0, tokens, 5, 1);
    lib_finish(l, 0, FINISH_STOP);
#define TOPS(more) "{\"a\":-0.5,\"b\":-1" more "}"
    expect_whole(
        l, HEAD "{\"index\":0,\"text\":\"Hello\xc3\xa9"
                "b\",\"logprobs\":{\"tokens\":[\"Hello\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"b\","
                "\"<|end|>\"],\"token_logprobs\":[-0.75,-0.75,-0.25,-0.5,0],\"top_logprobs\":"
                "[" TOPS(",\"Hello\":-0.75") "," TOPS(",\"bytes:\\\\xc3\":-0.75") "," TOPS(
                    ",\"bytes:\\\\"
                    "xa9\":-0.25") "," TOPS("") "," TOPS(",\"<|end|>\":0") "],\"text_offset\":[0,5,"
                                                                           "6,6,7]},\"finish_"
                                                                           "reason\":"
                                                                           "\"stop\"}");
    struct buf out;
    buf_init(&out, 1 << 20);
    lib_stream(completions(), &l->answer, 0, &out);
    assert_non_null(strstr(buf_text(&out), "\"text_offset\":[0]}"));
    assert_non_null(strstr(buf_text(&out), "\"text_offset\":[5,6]}"));
    assert_non_null(strstr(buf_text(&out), "\"text_offset\":[6]}"));
    assert_non_null(strstr(buf_text(&out), "\"text_offset\":[7]}"));
    buf_deinit(&out);
    done(l);
}

/* As lm-eval and the like ask, to learn how likely a text is. */
static void test_an_echo_with_log_probabilities_has_the_prompts(void **state) {
    (void)state;
    static struct token_logprob logprobs[] = {{0, 0}, {'q', -1.5f}};
    static struct sample_result tops[] = {{.top_count = 0},
                                          {.top_count = 1, .top = {{'z', -0.25f}}}};
    struct request request = {.prompt_logprobs = logprobs, .prompt_tops = tops};
    struct lib_answer *l =
        ask("{\"prompt\":\"pq\",\"logprobs\":1,\"echo\":true,\"stream\":true}", 1);
    assert_true(l->request.prompt_logprobs);
    l->tokens[0].request = &request;
    lib_push(l, 0, &(int32_t){'a'}, 1, 1);
    lib_finish(l, 0, FINISH_LENGTH);
    expect_whole(l, HEAD "{\"index\":0,\"text\":\"pqa\",\"logprobs\":{\"tokens\":[\"p\",\"q\","
                         "\"a\"],\"token_logprobs\":[null,-1.5,-0.25],\"top_logprobs\":[null,"
                         "{\"z\":-0.25,\"q\":-1.5},{\"a\":-0.5}],\"text_offset\":[0,1,2]},"
                         "\"finish_reason\":\"length\"}");
    expect_stream(l, HEAD
                  "{\"index\":0,\"text\":\"pq\",\"logprobs\":{\"tokens\":[\"p\",\"q\"],"
                  "\"token_logprobs\":[null,-1.5],\"top_logprobs\":[null,{\"z\":-0.25,\"q\":-1.5}],"
                  "\"text_offset\":[0,1]},\"finish_reason\":null}]}\n" HEAD
                  "{\"index\":0,\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],"
                  "\"token_logprobs\":[-0.25],\"top_logprobs\":[{\"a\":-0.5}],"
                  "\"text_offset\":[2]},\"finish_reason\":null}]}\n" HEAD
                  "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n"
                  "[DONE]\n");
    done(l);
}

static void test_prompts_come_as_texts_or_ids_one_or_many(void **state) {
    (void)state;
    static const struct {
        const char *prompt;
        uint32_t prompts, ids;
    } cases[] = {
        {"\"\"", 1, 0},  {"[\"a\",\"b\",\"c\"]", 3, 0}, {"[1,2,3]", 1, 3}, {"[[1,2],[3,4]]", 2, 2},
        {"[1.0]", 1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request r;
        struct api_error e = {0};
        struct buf body;
        buf_init(&body, 1 << 12);
        buf_printf(&body, "{\"prompt\":%s}", cases[i].prompt);
        if (lib_read_body(completions(), buf_str(&body), &r, &e) != ST_OK)
            fail_msg("%s: %s", cases[i].prompt, e.message.text);
        assert_int_equal(r.prompt_count, cases[i].prompts);
        for (uint32_t k = 0; k < r.prompt_count; k++)
            assert_int_equal(r.prompts[k].count, cases[i].ids);
        assert_false(r.is_chat);
        api_request_deinit(&r);
        buf_deinit(&body);
    }
}

static void expect_refusal(const char *body, const char *param, const char *code) {
    struct api_request r;
    struct api_error e = {0};
    if (lib_read_body(completions(), str_of(body), &r, &e) != ST_BAD)
        fail_msg("%s was taken", body);
    api_request_deinit(&r);
    assert_int_equal(e.status, 400);
    if (strcmp(e.param, param) != 0) fail_msg("%s: %s (%s)", body, e.param, e.message.text);
    assert_string_equal(e.code, code);
}

static void test_invalid_fields_are_refused_by_name(void **state) {
    (void)state;
    expect_refusal("{}", "prompt", "missing_required_parameter");
    expect_refusal("{\"prompt\":[]}", "prompt", "array_below_min_length");
    expect_refusal("{\"prompt\":[[]]}", "prompt", "array_below_min_length");
    expect_refusal("{\"prompt\":[\"a\",1]}", "prompt[1]", "invalid_type");
    expect_refusal("{\"prompt\":[1,\"a\"]}", "prompt[1]", "invalid_type");
    expect_refusal("{\"prompt\":[[1],[\"a\"]]}", "prompt[1][0]", "invalid_type");
    expect_refusal("{\"prompt\":[{}]}", "prompt[0]", "invalid_type");
    expect_refusal("{\"prompt\":[-1]}", "prompt", "invalid_value");
    expect_refusal("{\"prompt\":[99999999999]}", "prompt", "invalid_value");
    expect_refusal("{\"prompt\":[1e300]}", "prompt[0]", "invalid_type");
    expect_refusal("{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", "unsupported_parameter");
    expect_refusal("{\"prompt\":\"a\",\"best_of\":3}", "best_of", "unsupported_value");
    expect_refusal("{\"prompt\":\"a\",\"logprobs\":6}", "logprobs", "integer_above_max_value");
    expect_refusal("{\"prompt\":\"a\",\"logprobs\":true}", "logprobs", "invalid_type");
    expect_refusal("{\"prompt\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"],\"n\":16}",
                   "n", "integer_above_max_value");
}

static void test_a_failure_and_done_end_a_stream(void **state) {
    (void)state;
    struct lib_answer *l = ask("{\"prompt\":\"x\",\"stream\":true,\"logprobs\":0}", 1);
    lib_push(l, 0, &(int32_t){'a'}, 1, 1);
    api_refuse(&l->answer.failure, 500, NULL, NULL, "broken");
    struct buf out;
    buf_init(&out, 1 << 16);
    lib_stream(completions(), &l->answer, 1, &out);
    assert_string_equal(buf_text(&out),
                        "{\"error\":{\"message\":\"broken\",\"type\":"
                        "\"server_error\",\"param\":null,\"code\":null}}\n[DONE]\n");
    buf_deinit(&out);
    done(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_have_openais_format),
        cmocka_unit_test(test_an_echo_begins_with_the_prompt),
        cmocka_unit_test(test_log_probabilities_are_four_parallel_lists),
        cmocka_unit_test(test_an_echo_with_log_probabilities_has_the_prompts),
        cmocka_unit_test(test_prompts_come_as_texts_or_ids_one_or_many),
        cmocka_unit_test(test_invalid_fields_are_refused_by_name),
        cmocka_unit_test(test_a_failure_and_done_end_a_stream),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
