/* Goal:   batches are read and written as OpenAI's and Anthropic's clients expect.
 * Method: bodies on both sides of every limit; objects byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/batch_objects.h"
#include "api/message_batches.h"
#include "jobs/batches.h"
#include "unit/json_lib.h"

/* ---- OpenAI: creating ---- */

#define CREATE(window, rest)                                                                       \
    "{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/responses\",\"completion_window\":" window   \
        rest "}"

static enum status read_create(const char *json, struct batch_create *out, struct api_error *e) {
    struct json *body = json_of(json);
    enum status st = batch_create_read(body, out, e);
    json_destroy(body); /* the strings are not looked at afterwards */
    return st;
}

static void test_bodies_that_create_a_batch(void **state) {
    (void)state;
    struct batch_create c;
    struct api_error e = {0};
    struct json *body = json_of(
        CREATE("\"24h\"", ",\"metadata\":{\"a\":\"b\"},\"output_expires_after\":{\"anchor\":"
                          "\"created_at\",\"seconds\":3600}"));
    assert_int_equal(batch_create_read(body, &c, &e), ST_OK);
    assert_true(str_is(c.input_file, "file-1"));
    assert_true(str_is(c.endpoint, "/v1/responses"));
    assert_true(str_is(c.window, "24h"));
    assert_int_equal(c.window_s, 86400);
    assert_int_equal(c.output_after_s, 3600);
    assert_string_equal(buf_text(&c.metadata), "{\"a\":\"b\"}");
    batch_create_deinit(&c);
    json_destroy(body);
}

static void expect_window(const char *json, int64_t want_s) {
    struct batch_create c;
    struct api_error e = {0};
    enum status st = read_create(json, &c, &e);
    assert_int_equal(st, want_s ? ST_OK : ST_BAD);
    if (want_s)
        assert_int_equal(c.window_s, want_s);
    else
        assert_string_equal(e.param, "completion_window");
    batch_create_deinit(&c);
}

static void test_windows_are_a_number_and_a_unit(void **state) {
    (void)state;
    expect_window(CREATE("\"1s\"", ""), 1);
    expect_window(CREATE("\"10m\"", ""), 600);
    expect_window(CREATE("\"1h\"", ""), 3600);
    expect_window(CREATE("\"30d\"", ""), 30 * 86400);
    expect_window(CREATE("\"720h\"", ""), 30 * 86400);
    expect_window(CREATE("\"0h\"", ""), 0);
    expect_window(CREATE("\"31d\"", ""), 0);
    expect_window(CREATE("\"721h\"", ""), 0);
    expect_window(CREATE("\"24\"", ""), 0);
    expect_window(CREATE("\"h\"", ""), 0);
    expect_window(CREATE("\"\"", ""), 0);
    expect_window(CREATE("\"-1h\"", ""), 0);
    expect_window(CREATE("\"18446744073709551615d\"", ""), 0);
    expect_window(CREATE("24", ""), 0);
}

static void expect_bad_create(const char *json, const char *param) {
    struct batch_create c;
    struct api_error e = {0};
    if (read_create(json, &c, &e) != ST_BAD) fail_msg("%s was read", json);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.param, param);
    batch_create_deinit(&c);
}

static void test_bad_bodies_are_refused_by_name(void **state) {
    (void)state;
    expect_bad_create("[]", "body");
    expect_bad_create("{}", "input_file_id");
    expect_bad_create("{\"input_file_id\":1}", "input_file_id");
    expect_bad_create("{\"input_file_id\":\"\"}", "input_file_id");
    expect_bad_create("{\"input_file_id\":\"f\"}", "endpoint");
    expect_bad_create("{\"input_file_id\":\"f\",\"endpoint\":\"/v1/moderations\"}", "endpoint");
    expect_bad_create("{\"input_file_id\":\"f\",\"endpoint\":\"/v1/completions\"}",
                      "completion_window");
    expect_bad_create(CREATE("\"24h\"", ",\"metadata\":{\"a\":1}"), "metadata.a");
    expect_bad_create(CREATE("\"24h\"", ",\"output_expires_after\":1"), "output_expires_after");
    expect_bad_create(CREATE("\"24h\"", ",\"output_expires_after\":{\"seconds\":3600}"),
                      "output_expires_after.anchor");
    expect_bad_create(CREATE("\"24h\"", ",\"output_expires_after\":{\"anchor\":\"created_at\"}"),
                      "output_expires_after.seconds");
    expect_bad_create(
        CREATE("\"24h\"", ",\"output_expires_after\":{\"anchor\":\"created_at\",\"seconds\":3599}"),
        "output_expires_after.seconds");
    expect_bad_create(
        CREATE("\"24h\"",
               ",\"output_expires_after\":{\"anchor\":\"created_at\",\"seconds\":2592001}"),
        "output_expires_after.seconds");
    expect_bad_create(
        CREATE("\"24h\"", ",\"output_expires_after\":{\"anchor\":\"now\",\"seconds\":3600}"),
        "output_expires_after.anchor");
}

/* ---- OpenAI: the object ---- */

static struct batch_row finished_batch(void) {
    return (struct batch_row){
        .id = STR("batch_1"),
        .state = BATCH_COMPLETED,
        .endpoint = STR("/v1/chat/completions"),
        .model = STR("m"),
        .input_file = STR("file-1"),
        .output_file = STR("file-2"),
        .window = STR("24h"),
        .metadata = STR("{\"a\":\"b\"}"),
        .created_s = 1700000000,
        .in_progress_s = 1700000001,
        .expires_s = 1700086400,
        .finalizing_s = 1700000002,
        .completed_s = 1700000003,
        .total = 3,
        .completed = 2,
        .failed = 1,
        .prompt_tokens = 7,
        .cached_tokens = 3,
        .answer_tokens = 5,
    };
}

static void test_batch_objects_byte_by_byte(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 1 << 16);
    struct batch_row row = finished_batch();
    batch_object_put(&row, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"batch_1\",\"object\":\"batch\",\"endpoint\":\"/v1/chat/completions\","
        "\"model\":\"m\",\"errors\":null,\"input_file_id\":\"file-1\",\"completion_window\":"
        "\"24h\",\"status\":\"completed\",\"output_file_id\":\"file-2\",\"error_file_id\":null,"
        "\"created_at\":1700000000,\"in_progress_at\":1700000001,\"expires_at\":1700086400,"
        "\"finalizing_at\":1700000002,\"completed_at\":1700000003,\"failed_at\":null,"
        "\"expired_at\":null,\"cancelling_at\":null,\"cancelled_at\":null,\"request_counts\":"
        "{\"total\":3,\"completed\":2,\"failed\":1},\"usage\":{\"input_tokens\":7,"
        "\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":5,"
        "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":12},\"metadata\":"
        "{\"a\":\"b\"}}");
    buf_clear(&out);
    struct batch_row failed = {.id = STR("batch_2"),
                               .state = BATCH_FAILED,
                               .errors = STR("[{\"code\":\"empty_file\"}]"),
                               .failed_s = 9};
    batch_object_put(&failed, &out);
    assert_non_null(strstr(
        buf_text(&out), "\"errors\":{\"object\":\"list\",\"data\":[{\"code\":\"empty_file\"}]}"));
    assert_non_null(strstr(buf_text(&out), "\"status\":\"failed\""));
    assert_non_null(strstr(buf_text(&out), "\"failed_at\":9,"));
    assert_non_null(strstr(buf_text(&out), "\"metadata\":null}"));
    buf_deinit(&out);
}

/* ---- Anthropic: the object ---- */

static void expect_message_batch(const struct batch_row *row, const char *want) {
    struct buf out;
    buf_init(&out, 1 << 16);
    message_batch_object_put(row, STR("http://h:1"), &out);
    assert_string_equal(buf_text(&out), want);
    buf_deinit(&out);
}

static void test_message_batches_byte_by_byte(void **state) {
    (void)state;
    struct batch_row row = finished_batch();
    row.id = STR("msgbatch_1");
    row.cancelled = 4;
    row.expired = 5;
    expect_message_batch(
        &row, "{\"id\":\"msgbatch_1\",\"type\":\"message_batch\",\"processing_status\":\"ended\","
              "\"request_counts\":{\"processing\":0,\"succeeded\":2,\"errored\":1,\"canceled\":4,"
              "\"expired\":5},\"created_at\":\"2023-11-14T22:13:20Z\",\"expires_at\":"
              "\"2023-11-15T22:13:20Z\",\"ended_at\":\"2023-11-14T22:13:23Z\","
              "\"cancel_initiated_at\":null,\"archived_at\":null,\"results_url\":"
              "\"http://h:1/v1/messages/batches/msgbatch_1/results\"}");
    row.state = BATCH_CANCELLING;
    row.cancelling_s = 1700000002;
    expect_message_batch(
        &row,
        "{\"id\":\"msgbatch_1\",\"type\":\"message_batch\",\"processing_status\":\"canceling\","
        "\"request_counts\":{\"processing\":3,\"succeeded\":0,\"errored\":0,\"canceled\":0,"
        "\"expired\":0},\"created_at\":\"2023-11-14T22:13:20Z\",\"expires_at\":"
        "\"2023-11-15T22:13:20Z\",\"ended_at\":null,\"cancel_initiated_at\":"
        "\"2023-11-14T22:13:22Z\",\"archived_at\":null,\"results_url\":null}");
    struct buf out;
    buf_init(&out, 1 << 16);
    row.state = BATCH_FINALIZING;
    message_batch_object_put(&row, STR(""), &out);
    assert_non_null(strstr(buf_text(&out), "\"processing_status\":\"in_progress\""));
    buf_clear(&out);
    message_batch_deleted_put(row.id, &out);
    assert_string_equal(buf_text(&out),
                        "{\"id\":\"msgbatch_1\",\"type\":\"message_batch_deleted\"}");
    buf_deinit(&out);
}

static void expect_result(enum line_state line_state, uint32_t status, const char *want) {
    struct line_row row = {.line = {.custom_id = STR("a")},
                           .result = {.state = line_state, .status = status, .body = STR("{}")}};
    struct buf out;
    buf_init(&out, 1 << 16);
    message_batch_result_put(&row, &out);
    assert_string_equal(buf_text(&out), want);
    buf_deinit(&out);
}

static void test_results_of_message_batches(void **state) {
    (void)state;
    expect_result(LINE_DONE, 200,
                  "{\"custom_id\":\"a\",\"result\":{\"type\":\"succeeded\",\"message\":{}}}\n");
    expect_result(LINE_FAILED, 400,
                  "{\"custom_id\":\"a\",\"result\":{\"type\":\"errored\",\"error\":{}}}\n");
    expect_result(LINE_CANCELLED, 0, "{\"custom_id\":\"a\",\"result\":{\"type\":\"canceled\"}}\n");
    expect_result(LINE_EXPIRED, 0, "{\"custom_id\":\"a\",\"result\":{\"type\":\"expired\"}}\n");
}

/* ---- Anthropic: creating ---- */

/* Reads all requests; ST_MISSING means that all were right. */
static enum status read_requests(struct str text, uint32_t *count, struct api_error *e) {
    struct message_batch b;
    struct batch_line line;
    enum status st = message_batch_init(&b, text, e);
    while (st == ST_OK) st = message_batch_next(&b, &line, e);
    *count = b.count;
    message_batch_deinit(&b);
    return st;
}

static void test_requests_are_read_one_by_one(void **state) {
    (void)state;
    static const char text[] =
        " {\"x\":[{\"requests\":1}],\"requests\" : [ "
        "{\"custom_id\":\"a\",\"params\":{\"max_tokens\":"
        "5,\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"]}\\\"\"}]}} ,\n"
        "{\"params\":{ \"system\":\"T\" },\"custom_id\":\"B-_9\"},{\"custom_id\":\"c\",\"params\":"
        "{\"system\":\"S\"}}] , \"y\":null} ";
    struct message_batch b;
    struct batch_line line;
    struct api_error e = {0};
    assert_int_equal(message_batch_init(&b, str_of(text), &e), ST_OK);
    assert_int_equal(message_batch_next(&b, &line, &e), ST_OK);
    assert_true(str_is(line.custom_id, "a"));
    assert_true(str_is(line.url, "/v1/messages"));
    assert_true(str_is(line.body, "{\"max_tokens\":5,\"system\":\"S\",\"messages\":[{\"role\":"
                                  "\"user\",\"content\":\"]}\\\"\"}]}"));
    assert_int_equal(line.order, 0);
    assert_int_equal(message_batch_next(&b, &line, &e), ST_OK);
    assert_true(str_is(line.custom_id, "B-_9"));
    assert_true(str_is(line.body, "{\"system\":\"T\"}"));
    assert_int_equal(line.order, 1);
    assert_int_equal(line.number, 1);
    assert_int_equal(message_batch_next(&b, &line, &e), ST_OK);
    assert_int_equal(line.order, 0); /* the same system prompt as the first */
    assert_int_equal(message_batch_next(&b, &line, &e), ST_MISSING);
    message_batch_deinit(&b);
}

static void expect_bad_requests(const char *text, const char *word) {
    struct api_error e = {0};
    uint32_t count;
    enum status st = read_requests(str_of(text), &count, &e);
    if (st != ST_BAD) fail_msg("%s: %s", text, status_name(st));
    assert_int_equal(e.status, 400);
    if (!strstr(e.message.text, word)) fail_msg("%s: no '%s' in: %s", text, word, e.message.text);
}

#define ONE(id) "{\"custom_id\":" id ",\"params\":{}}"
#define SIXTY_FOUR "0123456789012345678901234567890123456789012345678901234567890123"

static void test_bad_requests_are_refused_by_name(void **state) {
    (void)state;
    struct api_error e = {0};
    uint32_t count;
    expect_bad_requests("", "malformed at byte 0");
    expect_bad_requests("[]", "malformed at byte 0");
    expect_bad_requests("{", "malformed");
    expect_bad_requests("{}", "'requests' is missing");
    expect_bad_requests("{\"requests\":1}", "expected an array");
    expect_bad_requests("{\"requests\":[]}", "1 to 100000");
    expect_bad_requests("{\"requests\":[ ]}", "1 to 100000");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") "}", "malformed");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") "]", "malformed");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") "]} x", "without its requests");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") "],\"requests\":[]}", "duplicate");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") ",]}", "comma");
    expect_bad_requests("{\"requests\":[," ONE("\"a\"") "]}", "missing");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") ONE("\"b\"") "]}", "expected a comma");
    expect_bad_requests("{\"requests\":[{]}]}", "malformed");
    expect_bad_requests("{\"requests\":[1]}", "expected an object");
    expect_bad_requests("{\"requests\":[{\"params\":{}}]}", "requests[0].custom_id");
    expect_bad_requests("{\"requests\":[" ONE("1") "]}", "requests[0].custom_id");
    expect_bad_requests("{\"requests\":[" ONE("\"\"") "]}", "1 to 64");
    expect_bad_requests("{\"requests\":[" ONE("\"a b\"") "]}", "1 to 64");
    expect_bad_requests("{\"requests\":[" ONE("\"" SIXTY_FOUR "0\"") "]}", "1 to 64");
    expect_bad_requests("{\"requests\":[" ONE("\"a\"") "," ONE("\"a\"") "]}",
                        "already the custom_id of requests[0]");
    expect_bad_requests("{\"requests\":[{\"custom_id\":\"a\"}]}", "requests[0].params");
    expect_bad_requests("{\"requests\":[{\"custom_id\":\"a\",\"params\":[]}]}",
                        "requests[0].params");
    expect_bad_requests("{\"requests\":[{\"custom_id\":\"a\",\"params\":{\"stream\":true}}]}",
                        "cannot stream");
    assert_int_equal(
        read_requests(STR("{\"requests\":[" ONE("\"" SIXTY_FOUR "\"") "]}"), &count, &e),
        ST_MISSING);
    assert_int_equal(count, 1);
}

static void test_a_message_batch_has_at_most_so_many_requests(void **state) {
    (void)state;
    struct buf text;
    struct api_error e = {0};
    uint32_t count;
    buf_init(&text, 1 << 26);
    buf_put_text(&text, "{\"requests\":[");
    for (uint32_t i = 0; i < MESSAGE_BATCH_REQUESTS_MAX; i++)
        buf_printf(&text, "%s" ONE("\"r%u\""), i ? "," : "", i);
    const size_t len = text.len;
    buf_put_text(&text, "]}");
    assert_int_equal(read_requests(buf_str(&text), &count, &e), ST_MISSING);
    assert_int_equal(count, MESSAGE_BATCH_REQUESTS_MAX);
    text.len = len;
    buf_put_text(&text, "," ONE("\"more\"") "]}");
    assert_int_equal(read_requests(buf_str(&text), &count, &e), ST_BAD);
    assert_string_equal(e.param, "requests");
    buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_that_create_a_batch),
        cmocka_unit_test(test_windows_are_a_number_and_a_unit),
        cmocka_unit_test(test_bad_bodies_are_refused_by_name),
        cmocka_unit_test(test_batch_objects_byte_by_byte),
        cmocka_unit_test(test_message_batches_byte_by_byte),
        cmocka_unit_test(test_results_of_message_batches),
        cmocka_unit_test(test_requests_are_read_one_by_one),
        cmocka_unit_test(test_bad_requests_are_refused_by_name),
        cmocka_unit_test(test_a_message_batch_has_at_most_so_many_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
