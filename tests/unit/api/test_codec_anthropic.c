/* Goal:   /v1/messages and count_tokens: bodies become what templates and the engine need, answers
 *         and errors have the shape that Anthropic's clients read, and what cannot be served is
 *         refused by name.
 * Method: transcripts of the cases in codec_cases.h against a committed one, which
 *         tests/e2e/test_api_goldens.py reads with the anthropic package's own models; every way
 *         to portion and resume a stream; a table of bad bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/codec_cases.h"
#include "unit/api/codec_test.h"

static const struct codec *codec(void) { return codec_find("anthropic.messages"); }

static void record(struct buf *out) {
    buf_init(out, CASE_BYTES_MAX);
    transcribe_cases(codec(), anthropic_cases, CASE_COUNT(anthropic_cases), out);
    transcribe_cases(codec_find("anthropic.count_tokens"), anthropic_count_cases,
                     CASE_COUNT(anthropic_count_cases), out);
}

static void test_requests_and_answers_are_as_recorded(void **state) {
    (void)state;
    struct buf got;
    record(&got);
    expect_golden("anthropic", buf_str(&got));
    buf_deinit(&got);
}

static void test_a_stream_has_the_same_pieces_however_it_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(anthropic_cases); i++)
        expect_same_pieces(codec(), &anthropic_cases[i]);
}

#define MAX "\"max_tokens\":9,"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define BLOCK(role, block)                                                                         \
    "{\"max_tokens\":9,\"messages\":[{\"role\":\"" role "\",\"content\":[" block "]}]}"

static const struct bad_body bad[] = {
    {"{" MAX "\"messages\":[]}", "messages", NULL},
    {"{" MAX "\"x\":1}", "messages", "missing"},
    {"{" MAX "\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content[0]",
     "missing"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "max_tokens", "missing"},
    {"{" USER "\"max_tokens\":0}", "max_tokens", "minimum"},
    {"{" USER "\"max_tokens\":1.5}", "max_tokens", "an integer"},
    {"{" MAX "\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", "missing"},
    {"{" MAX "\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "missing"},
    {"{" MAX "\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "messages[0].role", "tool"},
    {"{" MAX "\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages[0].content", NULL},
    {BLOCK("user", "{\"type\":\"image\",\"source\":{}}"), "messages[0].content[0].type", "type"},
    {BLOCK("user", "{\"type\":\"document\"}"), "messages[0].content[0].type", "not supported"},
    {BLOCK("user", "{\"type\":\"tool_use\"}"), "messages[0].content[0].type", NULL},
    {BLOCK("user", "{\"type\":\"text\"}"), "messages[0].content[0].text", "missing"},
    {BLOCK("user", "{\"type\":\"text\",\"text\":5}"), "messages[0].content[0].text", NULL},
    {BLOCK("user", "{\"type\":\"tool_result\"}"), "messages[0].content[0].tool_use_id", "missing"},
    {"{" MAX
     "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\","
     "\"name\":\"f\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
     "\"t\",\"content\":[{\"type\":\"image\"}]}]}]}",
     "messages[1].content[0].content[0].type", "text"},
    {BLOCK("assistant", "{\"type\":\"tool_use\",\"name\":\"f\"}"), "messages[0].content[0].id",
     "missing"},
    {BLOCK("assistant", "{\"type\":\"tool_use\",\"id\":\"f\"}"), "messages[0].content[0].name",
     "missing"},
    {BLOCK("assistant", "{\"type\":\"tool_result\",\"tool_use_id\":\"f\"}"),
     "messages[0].content[0].type", NULL},
    {"{" MAX USER "\"system\":5}", "system", NULL},
    {"{" MAX USER "\"system\":[{\"type\":\"image\"}]}", "system[0].type", NULL},
    {"{" MAX USER "\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}", "tools[0].type",
     "custom"},
    {"{" MAX USER "\"tools\":[{\"input_schema\":{}}]}", "tools[0].name", "missing"},
    {"{" MAX USER "\"tool_choice\":{\"type\":\"any\"}}", "tool_choice", "tools"},
    {"{" MAX USER "\"tool_choice\":{\"type\":\"required\"}}", "tool_choice.type",
     "'required' is not supported; supported: auto, any, tool, none."},
    {"{" MAX USER "\"tool_choice\":{\"type\":\"tool\"}}", "tool_choice.name", "missing"},
    {"{" MAX USER "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}", "tool_choice", "'f'"},
    {"{" MAX USER "\"tool_choice\":\"auto\"}", "tool_choice", NULL},
    {"{" MAX USER "\"temperature\":1.5}", "temperature", "maximum"},
    {"{" MAX USER "\"top_k\":-7}", "top_k", "minimum"},
    {"{" MAX USER "\"stop_sequences\":[\"\"]}", "stop_sequences[0]", NULL},
    {"{" MAX USER "\"stop_sequences\":\"x\"}", "stop_sequences", NULL},
    {"{" MAX USER "\"stream\":\"yes\"}", "stream", NULL},
    {"{" MAX USER "\"thinking\":{\"type\":\"maybe\"}}", "thinking.type", NULL},
    {"{" MAX USER "\"mcp_servers\":[{}]}", "mcp_servers", "not supported"},
    {"{" MAX USER "\"container\":\"c\"}", "container", "not supported"},
    {"{" MAX USER "\"thread\":{\"type\":\"create\"}}", "thread", "send all messages"},
    {"{" MAX USER "\"output_config\":{\"format\":{\"type\":\"json_schema\"}}}",
     "output_config.format.schema", "missing"},
};

static void test_bad_bodies_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < CASE_COUNT(bad); i++) expect_refused(codec(), &bad[i]);
}

#define SHAPE(type)                                                                                \
    "{\"type\":\"error\",\"error\":{\"type\":\"" type                                              \
    "\",\"message\":\"a \\\"sentence\\\"\"},\"request_id\":\"req_1\"}"

static void test_errors_have_anthropic_s_shape_and_types(void **state) {
    (void)state;
    static const struct {
        uint32_t status;
        const char *want;
    } errors[] = {
        {400, SHAPE("invalid_request_error")}, {401, SHAPE("authentication_error")},
        {403, SHAPE("permission_error")},      {404, SHAPE("not_found_error")},
        {413, SHAPE("request_too_large")},     {422, SHAPE("invalid_request_error")},
        {429, SHAPE("rate_limit_error")},      {500, SHAPE("api_error")},
        {503, SHAPE("overloaded_error")},      {529, SHAPE("overloaded_error")},
    };
    for (size_t i = 0; i < CASE_COUNT(errors); i++)
        expect_error(codec(), errors[i].status, errors[i].want);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "write") == 0) {
        struct buf out;
        record(&out);
        int rc = write_golden("anthropic", buf_str(&out));
        buf_deinit(&out);
        return rc;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_and_answers_are_as_recorded),
        cmocka_unit_test(test_a_stream_has_the_same_pieces_however_it_is_read),
        cmocka_unit_test(test_bad_bodies_are_refused_by_name),
        cmocka_unit_test(test_errors_have_anthropic_s_shape_and_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
