/* Goal:   reading a body and writing an answer survive the failure of any one
 *         allocation: ST_NOMEM, and nothing is lost.
 * Method: the same work again and again, the first time with the first allocation failing, then
 *         the second, until no more are needed. The address sanitizer counts what is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/embeddings.h"
#include "api/tokenize.h"
#include "api/tools_as_text.h"
#include "fault/fail_alloc.h"
#include "text/chat_prompt.h"
#include "unit/api/tokenizer_fixture.h"
#include "unit/json_lib.h"

enum { ALLOCATIONS_MAX = 2000 };

typedef enum status work_fn(const char *body);

static void expect_survival(work_fn *work, const char *body) {
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        fail_alloc_at(n);
        enum status st = work(body);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        if (st != ST_NOMEM) fail_msg("allocation %ld: %s: %s", n, status_name(st), body);
    }
    assert_in_range(n, 1, ALLOCATIONS_MAX - 1);
}

static bool trees_fail; /* the values that codecs create count among the allocations */

/* Parsing keeps the real allocator, so that a body is always there. */
static struct json *parse(const char *text) {
    fail_alloc_in_jansson(false);
    struct json *doc = json_of(text);
    fail_alloc_in_jansson(trees_fail);
    return doc;
}

/* --- requests --------------------------------------------------------------------------- */

static enum status read_body(const struct codec *codec, const char *body) {
    struct api_request r;
    struct api_error e = {0};
    api_request_init(&r, codec);
    enum status st = codec->read_body(parse(body), &r, &e);
    api_request_deinit(&r);
    return st;
}

static enum status read_chat(const char *body) {
    return read_body(codec_find("openai.chat"), body);
}

static enum status read_anthropic(const char *body) {
    return read_body(codec_find("anthropic.messages"), body);
}

static enum status read_responses(const char *body) {
    return read_body(codec_find("openai.responses"), body);
}

static enum status read_ollama(const char *body) {
    return read_body(codec_find("ollama.chat"), body);
}

static enum status read_text(const char *body) {
    return read_body(codec_find("openai.completions"), body);
}

static enum status read_embeddings(const char *body) {
    static const float one[] = {1, 2, 3};
    static const float *const vectors[] = {one, one};
    struct embed_request r;
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    enum status st = embed_request_read(parse(body), &r, &e);
    if (st == ST_OK) {
        struct embed_answer a = {STR("m"), vectors, 2, 3, 2};
        embed_answer_put(&r, &a, &out);
        st = buf_status(&out);
    }
    buf_deinit(&out);
    embed_request_deinit(&r);
    return st;
}

static enum status read_tokens(const char *body) {
    struct tokenize_request r;
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    enum status st = detokenize_request_read(parse(body), &r, &e);
    if (st == ST_OK) st = detokenize_answer_put(&r, tokenizer, 0, &out, &e);
    r.with_pieces = r.with_texts = true;
    if (st == ST_OK)
        st = tokenize_answer_put(&r, tokenizer, r.text.prompts[0].ids, r.text.prompts[0].count, 9,
                                 &out);
    buf_deinit(&out);
    tokenize_request_deinit(&r);
    return st;
}

#define TALK                                                                                       \
    "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]},"         \
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\","          \
    "\"arguments\":\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\",\"content\":\"7\"}],"                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static void test_reading_bodies_reports_every_failed_allocation(void **state) {
    (void)state;
    expect_survival(read_chat, "{" TALK ",\"logit_bias\":{\"1\":2},\"reasoning_effort\":\"low\","
                               "\"chat_template_kwargs\":{\"x\":[1]}}");
    expect_survival(read_text, "{\"prompt\":[[1,2],[3]]}");
    expect_survival(read_text, "{\"prompt\":[\"a\",\"b\"]}");
    expect_survival(read_text, "{\"prompt\":\"a\",\"speculation\":{\"drafter\":\"suffix\"},"
                               "\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":"
                               "\"text\",\"text\":\"ab\"},{\"type\":\"text\",\"text\":\"cd\"}]}}");
    expect_survival(read_embeddings, "{\"input\":[\"a\",\"b\"],\"dimensions\":2}");
    expect_survival(read_tokens, "{\"tokens\":[72,255]}");
    expect_survival(read_tokens, "{\"tokens\":[]}");
}

#define ASK "{\"role\":\"user\",\"content\":\"Hi\"}"

static void test_building_messages_reports_every_failed_allocation(void **state) {
    (void)state;
    trees_fail = true;
    expect_survival(read_chat,
                    "{\"messages\":[" ASK
                    ",{\"role\":\"user\",\"name\":\"n\",\"content\":[{\"type\":"
                    "\"text\",\"text\":\"Hi\"}]}],\"tools\":[{\"type\":\"function\",\"function\":"
                    "{\"name\":\"f\"}}],\"reasoning_effort\":\"low\","
                    "\"chat_template_kwargs\":{\"x\":[1]}}");
    expect_survival(
        read_anthropic,
        "{\"max_tokens\":1,\"system\":\"s\",\"messages\":[" ASK ",{\"role\":\"assistant\","
        "\"content\":[{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{\"a\":1}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i\"}]}],"
        "\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}]"
        "}");
    expect_survival(read_responses, "{\"instructions\":\"s\",\"input\":[" ASK
                                    ",{\"type\":\"function_call\",\"call_id\":"
                                    "\"i\",\"name\":\"f\",\"arguments\":\"\"},{\"type\":"
                                    "\"function_call_output\",\"call_id\":\"i\",\"output\":"
                                    "\"7\"}],\"tools\":[{"
                                    "\"type\":\"function\",\"name\":\"f\"}],"
                                    "\"reasoning\":{\"effort\":\"low\"}}");
    expect_survival(
        read_ollama,
        "{\"model\":\"m\",\"think\":\"low\",\"messages\":[" ASK ",{\"role\":\"assistant\","
        "\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"7\"}]}");
    trees_fail = false;
    fail_alloc_in_jansson(false);
}

/* --- answers ---------------------------------------------------------------------------- */

static struct lib_answer *answer; /* read outside the failures */

static enum status write_events(const char *text) {
    struct lib_answer *l = answer;
    struct event_writer *w = NULL;
    struct event_log *log = NULL;
    bool has_stopped = false;
    enum finish_reason finish = FINISH_STOP;
    const struct event_writer_options o = {
        .request = &l->request,
        .tokenizer = tokenizer,
        .tools = tool_form_find("hermes"),
        .thinks = think_form_find("think"),
    };
    enum status st = event_log_create(&log, 1 << 20);
    if (st == ST_OK) st = event_writer_create(&o, &w, NULL);
    for (; st == ST_OK && *text; text++)
        st = event_writer_push(w, &(int32_t){(uint8_t)*text}, 1, log, &has_stopped);
    if (st == ST_OK) st = event_writer_finish(w, &finish, log);
    event_writer_destroy(w);
    event_log_destroy(log);
    return st;
}

static enum status write_stream(const char *unused) {
    struct encoder e;
    struct buf out;
    (void)unused;
    buf_init(&out, 1 << 20);
    encoder_init(&e, answer->request.codec, &answer->answer, 0, FRAMING_SSE);
    while (!encoder_run(&e, 4, &out)) {
    }
    enum status st = e.status == ST_OK ? buf_status(&out) : e.status;
    encoder_deinit(&e);
    buf_deinit(&out);
    return st;
}

static enum status write_whole(const char *unused) {
    struct buf out;
    (void)unused;
    buf_init(&out, 1 << 20);
    answer->request.codec->whole(&answer->answer, &out);
    enum status st = buf_status(&out);
    buf_deinit(&out);
    return st;
}

static void with_answer(const char *codec, const char *body, const char *text) {
    struct api_error e = {0};
    answer = mem_zalloc(sizeof(*answer));
    assert_int_equal(lib_read_body(codec_find(codec), str_of(body), &answer->request, &e), ST_OK);
    const struct lib_forms forms = {tool_form_find("hermes"), think_form_find("think")};
    lib_begin_with(answer, tokenizer, forms, 1);
    lib_say(answer, 0, str_of(text), FINISH_STOP);
    expect_survival(write_events, text);
    expect_survival(write_stream, "stream");
    expect_survival(write_whole, "whole");
    lib_end(answer);
    mem_free(answer);
}

static void test_writing_answers_reports_every_failed_allocation(void **state) {
    (void)state;
    with_answer("openai.chat",
                "{" TALK ",\"stop\":\"zz\",\"stream\":true,\"logprobs\":true,\"top_logprobs\":1,"
                "\"stream_options\":{\"include_usage\":true},\"return_token_ids\":true}",
                "ab <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>z");
    with_answer("openai.chat",
                "{" TALK ",\"tool_choice\":\"required\",\"stream\":true,\"stream_options\":"
                "{\"continuous_usage_stats\":true}}",
                "\"a\":1}}</tool_call>");
    with_answer("openai.responses", "{\"input\":\"x\",\"stream\":true}",
                "\n<think>\na \n b<c\n</think>\n\nd");
    with_answer("anthropic.messages",
                "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                "\"thinking\":{\"type\":\"enabled\"}}",
                "<think>a</think>b");
    with_answer("ollama.chat",
                "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                "<think>a");
    with_answer("openai.completions",
                "{\"prompt\":[112,113],\"echo\":true,\"logprobs\":1,\"stream\":true}",
                "h\xc3\xa9llo");
}

/* --- prompts ---------------------------------------------------------------------------- */

static struct json *messages, *tools, *kwargs, *calls; /* parsed outside the failures */

static enum status render(const char *unused) {
    struct chat_prompt *p = NULL;
    struct tokens ids = {0};
    struct buf out;
    (void)unused;
    const struct chat_turn turn = {
        .messages = messages, .tools = tools, .kwargs = kwargs, .continue_final = true};
    buf_init(&out, 1 << 20);
    enum status st = chat_prompt_create(tokenizer, &p, NULL);
    if (st == ST_OK) st = chat_prompt_render(p, &turn, &out, NULL, NULL);
    if (st == ST_OK) st = chat_prompt_encode_turn(p, &turn, &ids, NULL);
    tokens_deinit(&ids);
    buf_deinit(&out);
    chat_prompt_destroy(p);
    return st;
}

static enum status convert(const char *unused) {
    struct json *out = NULL;
    (void)unused;
    enum status st = tools_as_text(calls, tools, &out);
    json_destroy(out);
    return st;
}

static void test_rendering_prompts_reports_every_failed_allocation(void **state) {
    (void)state;
    messages = json_of("[" ASK "]");
    tools = json_of("[{}]");
    kwargs = json_of("{\"x\":1}");
    calls =
        json_of("[" ASK ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"7\"}]");
    fail_alloc_in_jansson(true);
    expect_survival(render, "a prompt");
    expect_survival(convert, "tools as text");
    fail_alloc_in_jansson(false);
    json_destroy(messages);
    json_destroy(tools);
    json_destroy(kwargs);
    json_destroy(calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_bodies_reports_every_failed_allocation),
        cmocka_unit_test(test_building_messages_reports_every_failed_allocation),
        cmocka_unit_test(test_writing_answers_reports_every_failed_allocation),
        cmocka_unit_test(test_rendering_prompts_reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
