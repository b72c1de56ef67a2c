/* Goal:   /v1/responses: bodies become what templates and the engine need, answers have the shape
 *         that OpenAI's clients read, whole and as a stream, and what cannot be served is refused
 *         by name.
 * Method: transcripts of the cases in codec_cases.h against a committed one, which
 *         tests/e2e/test_api_goldens.py reads with the openai package's own models; every way to
 *         portion and resume a stream; a table of bad bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text/tokenizer.h"
#include "unit/api/codec_cases.h"
#include "unit/api/codec_test.h"
#include "unit/text/tok_lib.h"

static const struct codec *codec(void) { return codec_find("openai.responses"); }

static void record(struct buf *out) {
    buf_init(out, CASE_BYTES_MAX);
    transcribe_cases(codec(), responses_cases, CASE_COUNT(responses_cases), out);
}

static void test_requests_and_answers_are_as_recorded(void **state) {
    (void)state;
    struct buf got;
    record(&got);
    expect_golden("responses", buf_str(&got));
    buf_deinit(&got);
}

static void test_a_stream_has_the_same_pieces_however_it_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(responses_cases); i++)
        expect_same_pieces(codec(), &responses_cases[i]);
}

#define IN "\"input\":\"x\","

static const struct bad_body bad[] = {
    {"{}", "input", "missing"},
    {"[]", "", NULL},
    {"{\"input\":5}", "input", "an integer"},
    {"{\"input\":[]}", "input", "minimum"},
    {"{\"input\":[5]}", "input[0]", NULL},
    {"{\"input\":[{\"content\":\"a\"}]}", "input[0].role", "missing"},
    {"{\"input\":[{\"role\":\"user\"}]}", "input[0].content", "missing"},
    {"{\"input\":[{\"role\":\"boss\",\"content\":\"a\"}]}", "input[0].role", "boss"},
    {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
     "input[0].content[0].type", "images"},
    {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]}",
     "input[0].content[0].text", "missing"},
    {"{\"input\":[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]}", "input[0].content[0].type",
     "missing"},
    {"{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", "input[0].call_id", "missing"},
    {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\"}]}", "input[0].name", "missing"},
    {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"},"
     "{\"type\":\"function_call_output\",\"call_id\":\"c\"}]}",
     "input[1].output", "missing"},
    {"{\"input\":[{\"type\":\"function_call_output\",\"output\":\"c\"}]}", "input[0].call_id",
     "missing"},
    {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input[0].type", "stored"},
    {"{\"input\":[{\"type\":\"computer_call\",\"id\":\"x\"}]}", "input[0].type", "not supported"},
    {"{" IN "\"previous_response_id\":1}", "previous_response_id", "a string"},
    {"{" IN "\"background\":\"yes\"}", "background", "a boolean"},
    {"{" IN "\"store\":1}", "store", "a boolean"},
    {"{" IN "\"conversation\":{}}", "conversation.id", "missing"},
    {"{" IN "\"metadata\":{\"a\":1}}", "metadata.a", "a string"},
    {"{" IN "\"previous_response_id\":\"resp_1\",\"conversation\":\"conv_1\"}",
     "previous_response_id", "Only one of"},
    {"{" IN "\"prompt\":{\"id\":\"p\"}}", "prompt", "not supported"},
    {"{" IN "\"truncation\":\"auto\"}", "truncation", "disabled"},
    {"{" IN "\"text\":{\"format\":{\"type\":\"grammar\"}}}", "text.format.type", "'grammar'"},
    {"{" IN "\"include\":[\"file_search_call.results\"]}", "include[0]", NULL},
    {"{" IN "\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type", "web_search"},
    {"{" IN "\"tools\":[{\"type\":\"function\"}]}", "tools[0].name", "missing"},
    {"{" IN "\"tool_choice\":\"required\"}", "tool_choice", "tools"},
    {"{" IN "\"tool_choice\":\"perhaps\"}", "tool_choice",
     "'perhaps' is not supported; supported: none, auto, required, or {\"type\": \"function\", "
     "\"name\""},
    {"{" IN "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}", "tool_choice", "'f'"},
    {"{" IN "\"max_output_tokens\":0}", "max_output_tokens", "minimum"},
    {"{" IN "\"max_output_tokens\":\"9\"}", "max_output_tokens", "a string"},
    {"{" IN "\"temperature\":2.5}", "temperature", "maximum"},
    {"{" IN "\"top_p\":\"x\"}", "top_p", NULL},
    {"{" IN "\"stream\":1}", "stream", NULL},
    {"{" IN "\"instructions\":[]}", "instructions", NULL},
    {"{" IN "\"metadata\":[]}", "metadata", NULL},
    {"{" IN "\"reasoning\":{\"effort\":\"immense\"}}", "reasoning.effort", NULL},
};

static void test_bad_bodies_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(bad); i++) expect_refused(codec(), &bad[i]);
}

static void test_unsupported_fields_without_effect_are_accepted(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    struct str body = STR("{\"input\":\"x\",\"previous_response_id\":null,\"background\":false,"
                          "\"include\":[],\"tools\":[],\"tool_choice\":\"auto\",\"unheard_of\":1}");
    assert_int_equal(case_read_body(codec(), body, &r, &e), ST_OK);
    assert_int_equal(r.tool_choice, TOOLS_NONE);
    assert_null(r.tools);
    api_request_deinit(&r);
}

/* Log-probabilities need real tokens: four letters of a made-up vocabulary. */
static const char vocabulary[] = "{\"added_tokens\":[],\"decoder\":{\"type\":\"Fuse\"},\"model\":{"
                                 "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3},"
                                 "\"merges\":[]}}";

static void test_log_probabilities_come_with_the_text(void **state) {
    (void)state;
    const struct codec_case c = {.name = "logprobs",
                                 .body = "{\"input\":\"x\",\"top_logprobs\":1,\"include\":"
                                         "[\"message.output_text.logprobs\"]}",
                                 .finish = FINISH_NONE,
                                 .events = {CASE_TEXT("a"), CASE_TEXT("b")}};
    const struct api_event mute = {.kind = EVENT_TEXT, .first_token = 2, .token_count = 1};
    const struct api_event last = {.kind = EVENT_FINISH, .finish = FINISH_STOP, .first_token = 3};
    struct token_logprob logprobs[] = {{0, -0.5f}, {1, -0.25f}, {2, -0.0f}};
    struct sample_result tops[] = {{.top_count = 1, .top = {{2, -0.125f}}},
                                   {.top_count = 1, .top = {{3, -0.0625f}}},
                                   {.top_count = 0}};
    struct case_run run = {.choice = {0}};
    struct api_error e = {0};
    struct err err = {0};
    struct tokenizer *t;
    struct buf out;
    assert_int_equal(tok_parse(str_of(vocabulary), &t, &err), ST_OK);
    assert_int_equal(case_read_body(codec(), str_of(c.body), &run.request, &e), ST_OK);
    assert_true(run.request.logprobs);
    assert_int_equal(run.request.sample.top_logprobs, 1);
    assert_int_equal(case_answer(&run, &c), ST_OK);
    assert_int_equal(event_log_add(run.answer.log, &mute), ST_OK); /* as for an end token */
    assert_int_equal(event_log_add(run.answer.log, &last), ST_OK);
    run.answer.failure = (struct api_error){0};
    run.answer.finished_count = 1;
    run.choice.finish = FINISH_STOP;
    run.answer.tokenizer = t;
    run.tokens.logprobs = logprobs;
    run.tokens.tops = tops;

    static const char first[] = "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":"
                                "[{\"token\":\"c\",\"logprob\":-0.125,\"bytes\":[99]}]}";
    static const char second[] =
        "{\"token\":\"b\",\"logprob\":-0.25,\"bytes\":[98],\"top_logprobs\":"
        "[{\"token\":\"d\",\"logprob\":-0.0625,\"bytes\":[100]}]}";
    static const char third[] =
        "{\"token\":\"c\",\"logprob\":0,\"bytes\":[99],\"top_logprobs\":[]}";
    char all[512], one[512];
    snprintf(all, sizeof(all), "\"logprobs\":[%s,%s,%s]", first, second, third);
    snprintf(one, sizeof(one), "\"delta\":\"b\",\"logprobs\":[%s]", second);
    buf_init(&out, CASE_BYTES_MAX);
    codec()->whole(&run.answer, &out);
    if (!strstr(buf_text(&out), all)) fail_msg("no %s in %s", all, buf_text(&out));
    buf_clear(&out);
    assert_int_equal(case_stream(&run, 0, 1, &out), ST_OK);
    assert_non_null(strstr(buf_text(&out), one));
    const char *at = buf_text(&out);
    for (uint32_t i = 0; i < 4; i++) { /* text, part, item, response: all that the end repeats */
        at = strstr(at, all);
        assert_non_null(at);
        at++;
    }
    buf_deinit(&out);
    case_deinit(&run);
    tokenizer_destroy(t);
}

/* A view from the beginning after a failure has what the first view had. */
static void test_pieces_before_a_failure_do_not_depend_on_it(void **state) {
    (void)state;
    const struct codec_case c = {.name = "failing",
                                 .body = "{\"input\":\"x\"}",
                                 .finish = FINISH_NONE,
                                 .events = {CASE_TEXT("a")}};
    struct case_run run = {.choice = {0}};
    struct api_error e = {0};
    struct buf before, after;
    buf_init(&before, CASE_BYTES_MAX);
    buf_init(&after, CASE_BYTES_MAX);
    assert_int_equal(case_read_body(codec(), str_of(c.body), &run.request, &e), ST_OK);
    assert_int_equal(case_answer(&run, &c), ST_OK);
    const struct api_error failure = run.answer.failure;
    run.answer.failure = (struct api_error){0};
    assert_int_equal(case_stream(&run, 0, 1, &before), ST_OK);
    run.answer.failure = failure;
    assert_int_equal(case_stream(&run, 0, 1, &after), ST_OK);
    expect_same_text("before the failure", str_take(buf_str(&after), before.len), buf_str(&before));
    assert_non_null(strstr(buf_text(&after) + before.len, "\"code\":\"server_error\""));
    buf_clear(&after);
    run.answer.failure.status = 499; /* cancelled: nothing was wrong with the prompt */
    assert_int_equal(case_stream(&run, 0, 1, &after), ST_OK);
    assert_null(strstr(buf_text(&after), "invalid_prompt"));
    buf_deinit(&before);
    buf_deinit(&after);
    case_deinit(&run);
}

static void test_errors_have_openai_s_shape(void **state) {
    (void)state;
    expect_error(
        codec(), 400,
        "{\"error\":{\"message\":\"a \\\"sentence\\\"\",\"type\":\"invalid_request_error\","
        "\"param\":\"field\",\"code\":null}}");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "write") == 0) {
        struct buf out;
        record(&out);
        int rc = write_golden("responses", buf_str(&out));
        buf_deinit(&out);
        return rc;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_and_answers_are_as_recorded),
        cmocka_unit_test(test_a_stream_has_the_same_pieces_however_it_is_read),
        cmocka_unit_test(test_bad_bodies_are_refused_by_name),
        cmocka_unit_test(test_unsupported_fields_without_effect_are_accepted),
        cmocka_unit_test(test_log_probabilities_come_with_the_text),
        cmocka_unit_test(test_pieces_before_a_failure_do_not_depend_on_it),
        cmocka_unit_test(test_errors_have_openai_s_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
