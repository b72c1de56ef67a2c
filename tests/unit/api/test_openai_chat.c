/* Goal:   chat completions are read and written as OpenAI's clients know them, and a streamed
 *         answer says the same as a whole one.
 * Method: bodies are read and compared; answers made of chosen tokens are encoded and compared
 *         byte by byte with chunks written down by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/codec.h"
#include "unit/api/tokenizer_fixture.h"
#include "unit/json_lib.h"

#define HELLO_MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define HEAD(object)                                                                               \
    "{\"id\":\"chatcmpl-abc123\",\"object\":\"" object "\",\"created\":1700000000,"                \
    "\"model\":\"m\\\"1\",\"system_fingerprint\":\"fp_0\",\"choices\":["
#define CHUNK HEAD("chat.completion.chunk")
#define USAGE(out, total) USAGE_WITH(out, total, "0")
#define USAGE_WITH(out, total, thoughts)                                                           \
    "{\"prompt_tokens\":3,\"completion_tokens\":" out ",\"total_tokens\":" total                   \
    ",\"prompt_tokens_details\":{\"cached_tokens\":1,\"audio_tokens\":0},"                         \
    "\"completion_tokens_details\":{\"reasoning_tokens\":" thoughts ",\"audio_tokens\":0,"         \
    "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"

static const struct codec *chat(void) { return codec_find("openai.chat"); }

static struct lib_answer *ask(const char *body, uint32_t choices) {
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct api_error e = {0};
    if (lib_read_body(chat(), str_of(body), &l->request, &e) != ST_OK)
        fail_msg("%s: %s", e.param, e.message.text);
    lib_begin(l, tokenizer, tool_form_find("hermes"), choices);
    return l;
}

static void done(struct lib_answer *l) {
    lib_end(l);
    mem_free(l);
}

static void expect_stream(const struct lib_answer *l, const char *wanted) {
    struct buf out;
    buf_init(&out, 1 << 20);
    lib_stream(chat(), &l->answer, 0, &out);
    assert_string_equal(buf_text(&out), wanted);
    buf_deinit(&out);
}

static void expect_whole(const struct lib_answer *l, const char *wanted) {
    struct buf out;
    buf_init(&out, 1 << 20);
    chat()->whole(&l->answer, &out);
    assert_string_equal(buf_text(&out), wanted);
    buf_deinit(&out);
}

/* --- answers ---------------------------------------------------------------------------- */

static void test_a_stream_consists_of_openais_chunks(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"stream\":true}", 1);
    const int32_t tokens[] = {T_HELLO, T_WORLD, '"', T_END};
    lib_push(l, 0, tokens, 4, 1);
    lib_finish(l, 0, FINISH_STOP);
    expect_stream(
        l,
        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
              "\"logprobs\":null,\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"logprobs\":null,"
              "\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\" world\"},\"logprobs\":null,"
              "\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"\\\"\"},\"logprobs\":null,"
              "\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n"
              "[DONE]\n");
    done(l);
}

static void test_a_whole_answer_is_openais_object(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"n\":2}", 2);
    lib_say(l, 0, STR("Hi\n"), FINISH_STOP);
    lib_say(l, 1, STR("\xc3\xa9"), FINISH_LENGTH);
    expect_whole(l, HEAD("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\","
                                            "\"content\":\"Hi\\n\",\"refusal\":null,"
                                            "\"annotations\":[]},\"logprobs\":null,"
                                            "\"finish_reason\":\"stop\"},{\"index\":1,"
                                            "\"message\":{\"role\":\"assistant\",\"content\":"
                                            "\"\xc3\xa9\",\"refusal\":null,\"annotations\":[]},"
                                            "\"logprobs\":null,\"finish_reason\":\"length\"}],"
                                            "\"usage\":" USAGE("5", "8") "}");
    done(l);
}

static void test_usage_is_in_every_chunk_if_requested(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"stream\":true,\"stream_options\":"
                               "{\"continuous_usage_stats\":true}}",
                               1);
    const int32_t tokens[] = {T_HELLO, T_END};
    lib_push(l, 0, tokens, 2, 1);
    lib_finish(l, 0, FINISH_STOP);
#define SO_FAR(out, total)                                                                         \
    "],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":" out ",\"total_tokens\":" total "}}"  \
    "\n"
    expect_stream(
        l,
        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
              "\"logprobs\":null,\"finish_reason\":null}" SO_FAR("0", "2") CHUNK
        "{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"logprobs\":null,"
        "\"finish_reason\":null}" SO_FAR("1", "3") CHUNK
        "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}" SO_FAR(
            "2", "4") "[DONE]\n");
    done(l);
}

/* As vLLM, llama.cpp and Ollama have it. */
static void test_a_seed_of_minus_one_is_a_random_seed(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"seed\":-1}", 1);
    assert_false(l->request.has_seed);
    done(l);
}

static void test_usage_comes_last_and_only_if_requested(void **state) {
    (void)state;
    struct lib_answer *l =
        ask("{" HELLO_MESSAGES ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", 1);
    lib_say(l, 0, STR("A"), FINISH_LENGTH);
    expect_stream(
        l,
        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
              "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"A\"},\"logprobs\":null,"
              "\"finish_reason\":null}],\"usage\":null}\n" CHUNK
              "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],"
              "\"usage\":null}\n" CHUNK "],\"usage\":" USAGE("1", "4") "}\n[DONE]\n");
    done(l);
}

#define ENTRY(token, logprob, bytes, tops)                                                         \
    "{\"token\":" token ",\"logprob\":" logprob ",\"bytes\":" bytes ",\"top_logprobs\":[" tops "]" \
    "}"

static void test_log_probabilities_are_sent_with_the_text_of_their_tokens(void **state) {
    (void)state;
    struct lib_answer *l =
        ask("{" HELLO_MESSAGES ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":1}", 1);
    const int32_t tokens[] = {0xc3, 0xa9, T_END}; /* two tokens make one character */
    lib_push(l, 0, tokens, 3, 1);
    lib_finish(l, 0, FINISH_STOP);
#define TOP "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}"
#define BOTH                                                                                       \
    ENTRY("\"\xef\xbf\xbd\"", "-0.75", "[195]", TOP)                                               \
    "," ENTRY("\"\xef\xbf\xbd\"", "-0.25", "[169]", TOP)
#define LAST ENTRY("\"<|end|>\"", "0", "[60,124,101,110,100,124,62]", TOP)
    expect_stream(
        l,
        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
              "\"logprobs\":null,\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"\xc3\xa9\"},\"logprobs\":{\"content\":[" BOTH
              "],\"refusal\":null},\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[" LAST
              "],\"refusal\":null},\"finish_reason\":null}]}\n" CHUNK
              "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n"
              "[DONE]\n");
    expect_whole(l, HEAD("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\","
                                            "\"content\":\"\xc3\xa9\",\"refusal\":null,"
                                            "\"annotations\":[]},\"logprobs\":{\"content\":[" BOTH
                                            "," LAST "],\"refusal\":null},\"finish_reason\":"
                                            "\"stop\"}],\"usage\":" USAGE("3", "6") "}");
    done(l);
}

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"

static void test_tool_calls_begin_with_their_id_and_name(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES "," TOOLS ",\"stream\":true}", 1);
    int32_t call = T_CALL; /* a special token that the parser needs */
    struct str rest = STR("{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>");
    lib_push(l, 0, &call, 1, 1);
    lib_say(l, 0, rest, FINISH_STOP);
    struct buf out;
    buf_init(&out, 1 << 20);
    lib_stream(chat(), &l->answer, 0, &out);
    char id[CALL_ID_BYTES];
    answer_call_id(&l->answer, 0, 0, "call_", id);
    assert_int_equal(strlen(id), 29);
    struct buf first;
    buf_init(&first, 1 << 10);
    buf_printf(&first,
               "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"%s\",\"type\":\"function\","
               "\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}",
               id);
    assert_non_null(strstr(buf_text(&out), buf_text(&first)));
    assert_non_null(strstr(buf_text(&out), "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":"
                                           "{\"arguments\":\"{\"}}]}"));
    assert_non_null(strstr(buf_text(&out), "\"finish_reason\":\"tool_calls\""));
    assert_null(strstr(buf_text(&out), "tool_call>"));
    buf_clear(&out);
    chat()->whole(&l->answer, &out);
    buf_clear(&first);
    buf_printf(&first,
               "\"content\":null,\"refusal\":null,\"annotations\":[],\"tool_calls\":[{\"id\":"
               "\"%s\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
               "\"{\\\"a\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"",
               id);
    assert_non_null(strstr(buf_text(&out), buf_text(&first)));
    buf_deinit(&first);
    buf_deinit(&out);
    done(l);
}

static void test_ids_of_calls_have_the_length_that_the_template_requires(void **state) {
    (void)state;
    struct tokenizer *mistral = byte_tokenizer(
        STR("{% if messages[0].tool_call_id|length != 9 %}{{ raise_exception('no') }}{% endif %}"));
    const struct answer plain = {.tokenizer = tokenizer, .id = "x"};
    const struct answer strict = {.tokenizer = mistral, .id = "x"};
    char one[CALL_ID_BYTES], other[CALL_ID_BYTES];
    answer_call_id(&plain, 0, 0, "call_", one);
    answer_call_id(&plain, 0, 1, "call_", other);
    assert_int_equal(strlen(one), strlen("call_") + 24);
    assert_string_not_equal(one, other);
    answer_call_id(&strict, 0, 0, "call_", one);
    answer_call_id(&strict, 1, 0, "call_", other);
    assert_int_equal(strlen(one), 9);
    assert_string_not_equal(one, other);
    tokenizer_destroy(mistral);
}

static void test_a_failure_and_done_end_a_stream(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"stream\":true}", 1);
    const int32_t token = 'x';
    lib_push(l, 0, &token, 1, 1);
    api_refuse(&l->answer.failure, 500, NULL, "engine_failed", "the engine said \"no\"");
    struct buf out;
    buf_init(&out, 1 << 20);
    lib_stream(chat(), &l->answer, 2, &out);
    assert_string_equal(buf_text(&out),
                        "{\"error\":{\"message\":\"the engine said \\\"no\\\"\",\"type\":"
                        "\"server_error\",\"param\":null,\"code\":\"engine_failed\"}}\n[DONE]\n");
    buf_deinit(&out);
    done(l);
}

static void test_token_ids_are_returned_if_requested(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"return_token_ids\":true}", 1);
    lib_say(l, 0, STR("AB"), FINISH_STOP);
    struct buf out;
    buf_init(&out, 1 << 20);
    chat()->whole(&l->answer, &out);
    assert_non_null(strstr(buf_text(&out), "\"finish_reason\":\"stop\",\"token_ids\":[65,66]}"));
    assert_non_null(strstr(buf_text(&out), "},\"prompt_token_ids\":[112,113]}"));
    buf_clear(&out);
    lib_stream(chat(), &l->answer, 0, &out);
    assert_non_null(strstr(buf_text(&out), "\"token_ids\":[]}],\"prompt_token_ids\":[112,113]}"));
    assert_non_null(strstr(buf_text(&out), "\"token_ids\":[66]}]}"));
    buf_deinit(&out);
    done(l);
}

static void test_a_resumed_view_skips_the_pieces_already_sent(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"stream\":true}", 1);
    struct buf all, rest;
    buf_init(&all, 1 << 20);
    buf_init(&rest, 1 << 20);
    lib_say(l, 0, STR("Hello, world"), FINISH_STOP);
    lib_stream(chat(), &l->answer, 0, &all);
    const char *from = buf_text(&all);
    for (uint32_t after = 0; after <= 15; after++) {
        buf_clear(&rest);
        lib_stream(chat(), &l->answer, after, &rest);
        assert_string_equal(buf_text(&rest), from);
        if (*from) from = strchr(from, '\n') + 1;
    }
    assert_string_equal(from, "");
    buf_deinit(&all);
    buf_deinit(&rest);
    done(l);
}

static void test_nothing_is_written_before_the_first_event(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"stream\":true}", 1);
    struct encoder e;
    struct buf out;
    buf_init(&out, 1 << 20);
    encoder_init(&e, chat(), &l->answer, 0, FRAMING_SSE);
    assert_true(encoder_run(&e, 8, &out));
    assert_int_equal(e.pieces, 0);
    api_refuse(&l->answer.failure, 503, NULL, NULL, "no");
    assert_true(encoder_run(&e, 8, &out));
    assert_int_equal(e.pieces, 2); /* the failure and the end mark, and no role before them */
    encoder_deinit(&e);
    buf_deinit(&out);
    done(l);
}

/* --- requests --------------------------------------------------------------------------- */

static void expect_messages(const char *body, const char *messages) {
    struct api_request r;
    struct api_error e = {0};
    enum status st = lib_read_body(chat(), str_of(body), &r, &e);
    if (st != ST_OK) fail_msg("%s: %s: %s", body, e.param, e.message.text);
    assert_true(r.is_chat);
    if (!json_is(r.messages, messages)) fail_msg("%s", body);
    api_request_deinit(&r);
}

static void test_messages_get_the_form_that_templates_read(void **state) {
    (void)state;
    expect_messages("{" HELLO_MESSAGES "}", "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    expect_messages("{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
                    "\"text\":\"a\\\"\"},{\"type\":\"text\",\"text\":\"b\"}]}]}",
                    "[{\"role\":\"system\",\"content\":\"a\\\"b\"}]");
    expect_messages(
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1.5}\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":\"oops\"}}]},{\"role\":\"tool\","
        "\"tool_call_id\":\"c1\",\"content\":\"7\"}]}",
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5}}},{\"type\":"
        "\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"oops\"}}]},{\"role\":\"tool\","
        "\"name\":\"f\",\"tool_call_id\":\"c1\",\"content\":\"7\"}]");
    expect_messages("{\"messages\":[{\"role\":\"function\",\"name\":\"f\",\"content\":\"7\"},"
                    "{\"role\":\"assistant\"}]}",
                    "[{\"role\":\"tool\",\"name\":\"f\",\"content\":\"7\"},"
                    "{\"role\":\"assistant\",\"content\":\"\"}]");
}

/* The arguments of call `i` of the only message. */
static const struct json *arguments_of(const struct api_request *r, size_t i) {
    const struct json *calls = json_get(json_at(r->messages, 0), "tool_calls");
    return json_get(json_get(json_at(calls, i), "function"), "arguments");
}

static void test_arguments_of_all_calls_together_are_bounded(void **state) {
    (void)state;
    enum { CALLS = 3, VALUES = 45000 }; /* two calls are below values_max, three are above it */
    struct api_request r;
    struct api_error e = {0};
    struct buf body;
    buf_init(&body, 1 << 24);
    buf_put_text(&body, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
    for (uint32_t c = 0; c < CALLS; c++) {
        buf_printf(&body, "%s{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[0",
                   c ? "," : "");
        for (uint32_t i = 0; i < VALUES; i++) buf_put_text(&body, ",0");
        buf_put_text(&body, "]}\"}}");
    }
    buf_put_text(&body, "]}]}");
    assert_int_equal(buf_status(&body), ST_OK);
    assert_int_equal(lib_read_body(chat(), buf_str(&body), &r, &e), ST_OK);
    assert_int_equal(json_kind(arguments_of(&r, 0)), JS_MAP);
    assert_int_equal(json_kind(arguments_of(&r, 1)), JS_MAP);
    assert_int_equal(json_kind(arguments_of(&r, 2)), JS_TEXT);
    api_request_drop_messages(&r);
    assert_null(r.messages);
    api_request_deinit(&r);
    buf_deinit(&body);
}

static void expect_refusal(const char *body, const char *param, const char *code,
                           const char *word) {
    struct api_request r;
    struct api_error e = {0};
    if (lib_read_body(chat(), str_of(body), &r, &e) != ST_BAD) fail_msg("%s was taken", body);
    api_request_deinit(&r);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.type, "invalid_request_error");
    assert_string_equal(e.param, param);
    if (code) assert_string_equal(e.code, code);
    if (!strstr(e.message.text, word)) fail_msg("\"%s\" has no \"%s\"", e.message.text, word);
}

static void test_invalid_fields_are_refused_by_name(void **state) {
    (void)state;
    expect_refusal("{}", "messages", "missing_required_parameter", "messages");
    expect_refusal("[]", "", "invalid_type", "an array");
    expect_refusal("{\"messages\":[]}", "messages", "array_below_min_length", "0");
    expect_refusal("{\"messages\":[{}]}", "messages[0].role", "missing_required_parameter", "");
    expect_refusal("{\"messages\":[7]}", "messages[0]", "invalid_type", "an integer");
    expect_refusal("{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content",
                   "missing_required_parameter", "");
    expect_refusal("{\"messages\":[{\"role\":\"king\",\"content\":\"\"}]}", "messages[0].role",
                   "invalid_value", "king");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                   "\"image_url\":{\"url\":\"x\"}}]}]}",
                   "messages[0].content[0].type", "unsupported_parameter", "images");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"dance\"}]}]}",
                   "messages[0].content[0].type", "invalid_value", "dance");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
                   "messages[0].content[0].text", "missing_required_parameter", "");
    expect_refusal("{" HELLO_MESSAGES ",\"temperature\":2.5}", "temperature",
                   "decimal_above_max_value", "2.5");
    expect_refusal("{" HELLO_MESSAGES ",\"n\":1.5}", "n", "invalid_type", "an integer");
    expect_refusal("{" HELLO_MESSAGES ",\"seed\":9223372036854775808}", "seed",
                   "integer_above_max_value", "");
    expect_refusal("{" HELLO_MESSAGES ",\"top_logprobs\":3}", "top_logprobs", NULL, "logprobs");
    expect_refusal("{" HELLO_MESSAGES ",\"stream_options\":{}}", "stream_options", NULL, "stream");
    expect_refusal("{" HELLO_MESSAGES ",\"response_format\":{\"type\":\"grammar\"}}",
                   "response_format.type", "invalid_value", "'grammar'");
    expect_refusal("{" HELLO_MESSAGES ",\"modalities\":[\"text\",\"audio\"]}", "modalities[1]",
                   "invalid_value", "audio");
    expect_refusal("{" HELLO_MESSAGES ",\"functions\":[{\"name\":\"f\"}]}", "functions",
                   "unsupported_parameter", "tools");
    expect_refusal("{" HELLO_MESSAGES ",\"prompt_logprobs\":0}", "prompt_logprobs",
                   "unsupported_parameter", "");
    expect_refusal("{" HELLO_MESSAGES ",\"stop\":[\"a\",\"\"]}", "stop[1]",
                   "string_below_min_length", "");
    expect_refusal("{" HELLO_MESSAGES ",\"stop_token_ids\":[-1]}", "stop_token_ids",
                   "invalid_value", "");
    expect_refusal("{" HELLO_MESSAGES ",\"logit_bias\":{\"x\":1}}", "logit_bias", "invalid_value",
                   "'x'");
    expect_refusal("{" HELLO_MESSAGES ",\"logit_bias\":{\"5\":101}}", "logit_bias", "invalid_value",
                   "101");
    expect_refusal("{" HELLO_MESSAGES ",\"logit_bias\":{\"5\":\"1\"}}", "logit_bias.5",
                   "invalid_type", "a string");
    expect_refusal("{" HELLO_MESSAGES ",\"chat_template_kwargs\":{\"messages\":[]}}",
                   "chat_template_kwargs", "invalid_value", "messages");
    expect_refusal("{" HELLO_MESSAGES ",\"min_tokens\":5,\"max_tokens\":4}", "min_tokens",
                   "invalid_value", "4");
    expect_refusal("{" HELLO_MESSAGES ",\"tool_choice\":\"auto\"}", "tool_choice", NULL, "tools");
    expect_refusal("{" HELLO_MESSAGES "," TOOLS ",\"tool_choice\":\"maybe\"}", "tool_choice",
                   "invalid_value",
                   "'maybe' is not supported; supported: none, auto, required, or {");
    expect_refusal("{" HELLO_MESSAGES "," TOOLS
                   ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
                   "tool_choice", "invalid_value", "'g'");
    expect_refusal("{" HELLO_MESSAGES ",\"continue_final_message\":true,"
                   "\"add_generation_prompt\":true}",
                   "continue_final_message", NULL, "");
}

static void test_every_field_reaches_the_request(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    const char *body =
        "{" HELLO_MESSAGES
        ",\"model\":\"m\",\"max_tokens\":5,\"max_completion_tokens\":7,\"temperature\":0.5,"
        "\"top_p\":0.25,\"top_k\":-1,\"min_p\":0.125,\"repetition_penalty\":1.5,\"seed\":-2,"
        "\"n\":2.0,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[3,4],\"logit_bias\":{\"7\":-100},"
        "\"logprobs\":true,\"top_logprobs\":2,\"ignore_eos\":true,\"min_tokens\":1,"
        "\"include_stop_str_in_output\":true,\"skip_special_tokens\":false,\"priority\":3,"
        "\"cache_salt\":\"s\",\"user\":\"u\",\"presence_penalty\":null,\"unknown\":{\"x\":[]},"
        "\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":\"low\","
        "\"ttft_target_ms\":1.5,\"deadline_ms\":2000,\"smooth_ms\":40,\"audio\":null,"
        "\"grammar\":\"\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"]}";
    if (lib_read_body(chat(), str_of(body), &r, &e) != ST_OK) fail_msg("%s", e.message.text);
    assert_true(str_is(r.model, "m"));
    assert_true(r.has_max_tokens);
    assert_int_equal(r.max_tokens, 7);
    assert_float_equal(r.sample.temperature, 0.5, 0);
    assert_float_equal(r.sample.top_p, 0.25, 0);
    assert_int_equal(r.sample.top_k, 0);
    assert_float_equal(r.sample.min_p, 0.125, 0);
    assert_float_equal(r.sample.repetition_penalty, 1.5, 0);
    assert_true(r.has_seed);
    assert_true(r.sample.seed == UINT64_MAX - 1);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.stop_count, 2);
    assert_true(str_is(r.stops[1], "bc"));
    assert_int_equal(r.stop_token_count, 2);
    assert_int_equal(r.stop_tokens[1], 4);
    assert_int_equal(r.sample.bias_count, 1);
    assert_int_equal(r.sample.bias[0].token, 7);
    assert_float_equal(r.sample.bias[0].bias, -100, 0);
    assert_true(r.logprobs && r.ignore_end && r.include_stop && r.keep_special);
    assert_int_equal(r.sample.top_logprobs, 2);
    assert_int_equal(r.min_tokens, 1);
    assert_int_equal(r.urgency.priority, -3);
    assert_int_equal(r.urgency.ttft_target_us, 1500);
    assert_int_equal(r.urgency.expires_us, 2000000);
    assert_int_equal(r.smooth_ms, 40);
    assert_true(str_is(r.cache_salt, "s") && str_is(r.user, "u"));
    const struct json *kwargs = r.template_kwargs;
    assert_int_equal(json_count(kwargs), 2);
    assert_true(str_is(json_str(json_get(kwargs, "reasoning_effort")), "low"));
    assert_int_equal(json_kind(json_get(kwargs, "enable_thinking")), JS_BOOL);
    api_request_deinit(&r);
}

static void test_tool_choice_decides_which_tools_the_template_sees(void **state) {
    (void)state;
    static const struct {
        const char *choice;
        enum tool_choice wanted;
        const char *tools;
    } cases[] = {
        {"null", TOOLS_AUTO,
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
         "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"},
        {"\"none\"", TOOLS_NONE, ""},
        {"\"required\"", TOOLS_REQUIRED,
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
         "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"},
        {"{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", TOOLS_NAMED,
         "[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request r;
        struct api_error e = {0};
        struct buf body;
        buf_init(&body, 1 << 12);
        buf_printf(&body,
                   "{" HELLO_MESSAGES ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                   "\"f\"}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],"
                   "\"parallel_tool_calls\":false,\"tool_choice\":%s}",
                   cases[i].choice);
        assert_int_equal(lib_read_body(chat(), buf_str(&body), &r, &e), ST_OK);
        assert_int_equal(r.tool_choice, cases[i].wanted);
        assert_true(json_is(r.tools, cases[i].tools));
        assert_true(r.one_tool_call);
        api_request_deinit(&r);
        buf_deinit(&body);
    }
}

static void test_the_only_tool_that_is_required_is_named(void **state) {
    (void)state;
    struct lib_answer *l = ask("{" HELLO_MESSAGES ",\"tools\":[{\"type\":\"function\",\"function\":"
                               "{\"name\":\"f\"}}],\"tool_choice\":\"required\"}",
                               1);
    assert_int_equal(l->request.tool_choice, TOOLS_NAMED);
    assert_true(str_is(l->request.tool_name, "f"));
    done(l);
}

/* --- thoughts --------------------------------------------------------------------------- */

static struct lib_answer *ask_thinking(const char *body) {
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct api_error e = {0};
    if (lib_read_body(chat(), str_of(body), &l->request, &e) != ST_OK)
        fail_msg("%s: %s", e.param, e.message.text);
    lib_begin_with(l, tokenizer, (struct lib_forms){NULL, think_form_find("think")}, 1);
    return l;
}

#define DELTA(member)                                                                              \
    CHUNK "{\"index\":0,\"delta\":{" member "},\"logprobs\":null,\"finish_reason\":null}],"        \
          "\"usage\":null}\n"

static void test_thoughts_are_reasoning_content(void **state) {
    (void)state;
    static const int32_t tokens[] = {'<', 't', 'h', 'i', 'n', 'k', '>', T_HELLO, '"', '<',
                                     '/', 't', 'h', 'i', 'n', 'k', '>', '\n',    'a', T_END};
    struct lib_answer *l = ask_thinking("{" HELLO_MESSAGES ",\"stream\":true,\"stream_options\":"
                                        "{\"include_usage\":true}}");
    lib_push(l, 0, tokens, 20, 1);
    lib_finish(l, 0, FINISH_STOP);
    expect_stream(
        l, DELTA("\"role\":\"assistant\",\"content\":\"\",\"refusal\":null")
               DELTA("\"reasoning_content\":\"Hello\"") DELTA("\"reasoning_content\":\"\\\"\"")
                   DELTA("\"content\":\"a\"") CHUNK
        "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":null}\n" CHUNK "],\"usage\":" USAGE_WITH("20", "23", "17") "}\n[DONE]\n");
    expect_whole(l, HEAD("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\","
                                            "\"content\":\"a\",\"reasoning_content\":"
                                            "\"Hello\\\"\",\"refusal\":null,"
                                            "\"annotations\":[]},\"logprobs\":null,"
                                            "\"finish_reason\":\"stop\"}],\"usage\":" USAGE_WITH(
                                                "20", "23", "17") "}");
    done(l);
}

static void test_a_cut_thought_leaves_an_empty_content(void **state) {
    (void)state;
    struct lib_answer *l = ask_thinking("{" HELLO_MESSAGES "}");
    lib_say(l, 0, STR("<think>Hm"), FINISH_LENGTH);
    expect_whole(l, HEAD("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\","
                                            "\"content\":\"\",\"reasoning_content\":\"Hm\","
                                            "\"refusal\":null,\"annotations\":[]},"
                                            "\"logprobs\":null,\"finish_reason\":\"length\"}],"
                                            "\"usage\":" USAGE_WITH("9", "12", "9") "}");
    done(l);
}

static void test_fields_of_thoughts_are_stored(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        struct api_thinking want;
        const char *kwargs;
    } cases[] = {
        {"\"n\":1", {0}, ""},
        {"\"reasoning_format\":\"none\"", {.in_text = true}, ""},
        {"\"reasoning_format\":\"auto\"", {0}, ""},
        {"\"reasoning_format\":\"deepseek\"", {0}, ""},
        {"\"include_reasoning\":false", {.is_hidden = true}, ""},
        {"\"include_reasoning\":true", {0}, ""},
        {"\"reasoning\":{\"exclude\":true}", {.is_hidden = true}, ""},
        {"\"thinking_token_budget\":0", {.has_budget = true}, ""},
        {"\"thinking_token_budget\":-1", {0}, ""},
        {"\"thinking_budget_tokens\":9", {.has_budget = true, .budget_tokens = 9}, ""},
        {"\"reasoning\":{\"max_tokens\":8}", {.has_budget = true, .budget_tokens = 8}, ""},
        {"\"reasoning_effort\":\"low\"", {0}, "{\"reasoning_effort\":\"low\"}"},
        {"\"reasoning\":{\"effort\":\"high\"}", {0}, "{\"reasoning_effort\":\"high\"}"},
        {"\"reasoning_effort\":\"none\"",
         {0},
         "{\"reasoning_effort\":\"none\",\"enable_thinking\":false}"},
        {"\"chat_template_kwargs\":{\"enable_thinking\":true},\"reasoning_effort\":\"none\"",
         {0},
         "{\"enable_thinking\":true,\"reasoning_effort\":\"none\"}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request r;
        struct api_error e = {0};
        struct buf body, kwargs;
        buf_init(&body, 1 << 10);
        buf_init(&kwargs, 1 << 10);
        buf_printf(&body, "{" HELLO_MESSAGES ",%s}", cases[i].fields);
        assert_int_equal(lib_read_body(chat(), buf_str(&body), &r, &e), ST_OK);
        const struct api_thinking *got = &r.thinking, *want = &cases[i].want;
        assert_int_equal(got->in_text, want->in_text);
        assert_int_equal(got->is_hidden, want->is_hidden);
        assert_int_equal(got->has_budget, want->has_budget);
        assert_int_equal(got->budget_tokens, want->budget_tokens);
        if (r.template_kwargs) json_put(r.template_kwargs, &kwargs);
        assert_string_equal(buf_text(&kwargs), cases[i].kwargs);
        api_request_deinit(&r);
        buf_deinit(&body);
        buf_deinit(&kwargs);
    }
}

static void test_a_format_that_gives_thoughts_twice_is_refused(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    assert_int_equal(
        lib_read_body(chat(), STR("{" HELLO_MESSAGES ",\"reasoning_format\":\"deepseek-legacy\"}"),
                      &r, &e),
        ST_BAD);
    assert_string_equal(e.param, "reasoning_format");
    assert_non_null(strstr(e.message.text, "deepseek"));
    api_request_deinit(&r);
}

static void test_reasoning_is_another_name_of_reasoning_content(void **state) {
    (void)state;
    static const char *const members[] = {"\"reasoning\":\"T\"", "\"reasoning_content\":\"T\"",
                                          "\"reasoning\":\"other\",\"reasoning_content\":\"T\""};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        struct api_request r;
        struct api_error e = {0};
        struct buf body, got;
        buf_init(&body, 1 << 10);
        buf_init(&got, 1 << 10);
        buf_printf(&body, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",%s}]}",
                   members[i]);
        assert_int_equal(lib_read_body(chat(), buf_str(&body), &r, &e), ST_OK);
        json_put(r.messages, &got);
        assert_string_equal(buf_text(&got), "[{\"role\":\"assistant\",\"reasoning_content\":"
                                            "\"T\",\"content\":\"a\"}]");
        api_request_deinit(&r);
        buf_deinit(&body);
        buf_deinit(&got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_consists_of_openais_chunks),
        cmocka_unit_test(test_a_whole_answer_is_openais_object),
        cmocka_unit_test(test_usage_is_in_every_chunk_if_requested),
        cmocka_unit_test(test_a_seed_of_minus_one_is_a_random_seed),
        cmocka_unit_test(test_usage_comes_last_and_only_if_requested),
        cmocka_unit_test(test_log_probabilities_are_sent_with_the_text_of_their_tokens),
        cmocka_unit_test(test_tool_calls_begin_with_their_id_and_name),
        cmocka_unit_test(test_ids_of_calls_have_the_length_that_the_template_requires),
        cmocka_unit_test(test_a_failure_and_done_end_a_stream),
        cmocka_unit_test(test_token_ids_are_returned_if_requested),
        cmocka_unit_test(test_a_resumed_view_skips_the_pieces_already_sent),
        cmocka_unit_test(test_nothing_is_written_before_the_first_event),
        cmocka_unit_test(test_messages_get_the_form_that_templates_read),
        cmocka_unit_test(test_arguments_of_all_calls_together_are_bounded),
        cmocka_unit_test(test_invalid_fields_are_refused_by_name),
        cmocka_unit_test(test_every_field_reaches_the_request),
        cmocka_unit_test(test_tool_choice_decides_which_tools_the_template_sees),
        cmocka_unit_test(test_the_only_tool_that_is_required_is_named),
        cmocka_unit_test(test_thoughts_are_reasoning_content),
        cmocka_unit_test(test_a_cut_thought_leaves_an_empty_content),
        cmocka_unit_test(test_fields_of_thoughts_are_stored),
        cmocka_unit_test(test_a_format_that_gives_thoughts_twice_is_refused),
        cmocka_unit_test(test_reasoning_is_another_name_of_reasoning_content),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
