/* Goal:   what a request asks to be kept with its answer is read, outlives the body, is refused by
 *         name without a store, and is repeated in the response object.
 * Method: bodies of chat and responses; response objects in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/conversation_items.h"
#include "unit/api/codec_case.h"
#include "unit/json_lib.h"

#define CHAT(rest) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" rest "}"

static enum status read_kept(const char *codec, const char *body, struct api_request *r,
                             struct api_error *e) {
    return codec_read_body(codec_find(codec), json_of(body), false, r, e);
}

static void expect_kept(const char *codec, const char *body, struct api_request *r) {
    struct api_error e = {0};
    if (read_kept(codec, body, r, &e) != ST_OK) fail_msg("%s: %s", body, e.message.text);
}

static void test_what_is_kept_outlives_the_body(void **state) {
    (void)state;
    struct api_request r;
    expect_kept("openai.responses",
                "{\"input\":\"x\",\"store\":true,\"previous_response_id\":\"resp_1\",\"metadata\":"
                "{\"k\":\"v\"}}",
                &r);
    assert_true(r.keeping.store);
    assert_false(r.keeping.background);
    assert_true(str_is(r.keeping.previous, "resp_1"));
    assert_int_equal(r.keeping.conversation.len, 0);
    assert_string_equal(buf_text(&r.keeping.metadata), "{\"k\":\"v\"}");
    api_request_deinit(&r);
    expect_kept("openai.responses", "{\"input\":\"x\",\"conversation\":{\"id\":\"conv_1\"}}", &r);
    assert_true(str_is(r.keeping.conversation, "conv_1"));
    assert_false(r.keeping.store);
    api_request_deinit(&r);
    expect_kept("openai.responses", "{\"input\":\"x\",\"conversation\":\"conv_2\"}", &r);
    assert_true(str_is(r.keeping.conversation, "conv_2"));
    api_request_deinit(&r);
    expect_kept("openai.chat", CHAT(",\"store\":true,\"metadata\":{\"a\":\"b\"}"), &r);
    assert_true(r.keeping.store);
    assert_string_equal(buf_text(&r.keeping.metadata), "{\"a\":\"b\"}");
    api_request_deinit(&r);
}

static void test_a_background_answer_is_stored(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    expect_kept("openai.responses", "{\"input\":\"x\",\"background\":true}", &r);
    assert_true(r.keeping.background);
    assert_true(r.keeping.store);
    api_request_deinit(&r);
    const char *both = "{\"input\":\"x\",\"background\":true,\"store\":false}";
    assert_int_equal(read_kept("openai.responses", both, &r, &e), ST_BAD);
    assert_string_equal(e.param, "store");
    api_request_deinit(&r);
}

static void expect_refusal(const char *codec, const char *body, const char *field) {
    struct api_request r;
    struct api_error e = {0};
    expect_kept(codec, body, &r);
    assert_int_equal(api_keeping_refuse(&r, &e), field ? ST_BAD : ST_OK);
    assert_string_equal(e.param, field ? field : "");
    if (field) {
        assert_int_equal(e.status, 400);
        assert_non_null(strstr(e.message.text, "without --data-dir"));
    }
    api_request_deinit(&r);
}

static void test_without_a_store_the_field_is_named(void **state) {
    (void)state;
    expect_refusal("openai.responses", "{\"input\":\"x\"}", NULL);
    expect_refusal("openai.responses", "{\"input\":\"x\",\"store\":false}", NULL);
    expect_refusal("openai.responses", "{\"input\":\"x\",\"metadata\":{\"a\":\"b\"}}", NULL);
    expect_refusal("openai.responses", "{\"input\":\"x\",\"previous_response_id\":\"\"}", NULL);
    expect_refusal("openai.responses", "{\"input\":\"x\",\"store\":true}", "store");
    expect_refusal("openai.responses", "{\"input\":\"x\",\"background\":true}", "background");
    expect_refusal("openai.responses", "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}",
                   "previous_response_id");
    expect_refusal("openai.responses", "{\"input\":\"x\",\"conversation\":\"c\"}", "conversation");
    expect_refusal("openai.chat", CHAT(",\"store\":true"), "store");
    expect_refusal("openai.chat", CHAT(",\"metadata\":{}"), NULL);
}

static void test_ids_of_conversations_have_a_limit(void **state) {
    (void)state;
    for (size_t len = 512; len <= 513; len++) {
        struct api_request r;
        struct api_error e = {0};
        struct buf body;
        buf_init(&body, 1 << 16);
        buf_put_text(&body, "{\"input\":\"x\",\"conversation\":\"");
        for (size_t i = 0; i < len; i++) buf_put_char(&body, 'c');
        buf_put_text(&body, "\"}");
        assert_int_equal(read_kept("openai.responses", buf_text(&body), &r, &e),
                         len == 512 ? ST_OK : ST_BAD);
        api_request_deinit(&r);
        buf_deinit(&body);
    }
}

/* ---- the response object ---- */

static void begin_run(struct case_run *run, const char *body, enum finish_reason finish) {
    const struct codec_case c = {
        .name = "kept", .finish = finish, .events = {CASE_TEXT("a")}, .body = body};
    *run = (struct case_run){.choice = {0}};
    expect_kept("openai.responses", body, &run->request);
    assert_int_equal(case_answer(run, &c), ST_OK);
}

static void expect_in_state(const struct answer *a, const char *status, const char *const *words) {
    const struct codec *codec = codec_find("openai.responses");
    struct buf out;
    buf_init(&out, CASE_BYTES_MAX);
    codec->state(a, status, &out);
    assert_int_equal(buf_status(&out), ST_OK);
    json_destroy(json_of(buf_text(&out)));
    for (; *words; words++)
        if (!strstr(buf_text(&out), *words)) fail_msg("no %s in %s", *words, buf_text(&out));
    buf_deinit(&out);
}

static void test_the_response_repeats_what_is_kept(void **state) {
    (void)state;
    struct case_run run;
    struct buf out;
    buf_init(&out, CASE_BYTES_MAX);
    begin_run(&run,
              "{\"input\":\"x\",\"background\":true,\"previous_response_id\":\"resp_\\\"1\","
              "\"metadata\":{\"k\":\"v\"}}",
              FINISH_STOP);
    codec_find("openai.responses")->whole(&run.answer, &out);
    assert_non_null(strstr(buf_text(&out), "\"background\":true"));
    assert_non_null(strstr(buf_text(&out), "\"store\":true"));
    assert_non_null(strstr(buf_text(&out), "\"previous_response_id\":\"resp_\\\"1\""));
    assert_non_null(strstr(buf_text(&out), "\"metadata\":{\"k\":\"v\"}"));
    case_deinit(&run);
    begin_run(&run, "{\"input\":\"x\",\"conversation\":\"conv_1\"}", FINISH_STOP);
    buf_clear(&out);
    codec_find("openai.responses")->whole(&run.answer, &out);
    assert_non_null(strstr(buf_text(&out), "\"conversation\":{\"id\":\"conv_1\"}"));
    case_deinit(&run);
    buf_deinit(&out);
}

static void test_an_answer_that_is_not_complete_has_a_state(void **state) {
    (void)state;
    static const char *const queued[] = {"\"status\":\"queued\"", "\"output\":[],\"usage\":null",
                                         "\"error\":null", "\"background\":true", NULL};
    static const char *const cancelled[] = {"\"status\":\"cancelled\"", "\"text\":\"a\"",
                                            "\"error\":null", "\"usage\":{", NULL};
    static const char *const failed[] = {
        "\"status\":\"failed\"", "\"error\":{\"code\":\"server_error\",\"message\":\"", NULL};
    static const char *const lost[] = {"\"status\":\"failed\"", "\"output\":[],", NULL};
    struct case_run run;
    begin_run(&run, "{\"input\":\"x\",\"background\":true}", FINISH_NONE);
    expect_in_state(&run.answer, "failed", failed);
    run.answer.failure = (struct api_error){0};
    expect_in_state(&run.answer, "queued", queued);
    expect_in_state(&run.answer, "cancelled", cancelled);
    struct answer bare = run.answer; /* as it is known after a restart */
    bare.log = NULL;
    bare.choices = NULL;
    bare.choice_count = 0;
    api_refuse(&bare.failure, 500, NULL, NULL, "lost");
    expect_in_state(&bare, "queued", queued);
    expect_in_state(&bare, "failed", lost);
    case_deinit(&run);
}

static void test_output_items_are_those_of_the_response(void **state) {
    (void)state;
    struct case_run run;
    struct buf items, whole;
    buf_init(&items, CASE_BYTES_MAX);
    buf_init(&whole, CASE_BYTES_MAX);
    begin_run(&run, "{\"input\":\"x\"}", FINISH_STOP);
    responses_output_items(&run.answer, &items);
    codec_find("openai.responses")->whole(&run.answer, &whole);
    assert_true(str_starts(buf_str(&items), STR("[{\"id\":\"msg_")));
    const char *at = strstr(buf_text(&whole), "\"output\":");
    assert_non_null(at);
    assert_memory_equal(at + strlen("\"output\":"), items.ptr, items.len);
    buf_deinit(&items);
    buf_deinit(&whole);
    case_deinit(&run);
}

static void test_sequence_numbers_and_pieces(void **state) {
    (void)state;
    struct case_run run;
    struct buf rest;
    buf_init(&rest, CASE_BYTES_MAX);
    begin_run(&run, "{\"input\":\"x\"}", FINISH_STOP);
    assert_int_equal(case_stream(&run, encoder_after_sequence(3), 1, &rest), ST_OK);
    const char *at = strstr(buf_text(&rest), "\"sequence_number\":");
    assert_non_null(at);
    assert_memory_equal(at, "\"sequence_number\":4,", 20);
    assert_int_equal(encoder_after_sequence(0), 1);
    assert_int_equal(encoder_after_sequence(UINT32_MAX), UINT32_MAX);
    assert_int_equal(encoder_after_sequence(UINT64_MAX), UINT32_MAX);
    buf_deinit(&rest);
    case_deinit(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_kept_outlives_the_body),
        cmocka_unit_test(test_a_background_answer_is_stored),
        cmocka_unit_test(test_without_a_store_the_field_is_named),
        cmocka_unit_test(test_ids_of_conversations_have_a_limit),
        cmocka_unit_test(test_the_response_repeats_what_is_kept),
        cmocka_unit_test(test_an_answer_that_is_not_complete_has_a_state),
        cmocka_unit_test(test_output_items_are_those_of_the_response),
        cmocka_unit_test(test_sequence_numbers_and_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
