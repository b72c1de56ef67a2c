/* Goal:   every line of a batch's input is read or named by its error, and output lines are as
 *         OpenAI writes them.
 * Method: files cut into chunks of every size; lines on both sides of every limit; output byte by
 *         byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/batch_lines.h"
#include "base/check.h"
#include "jobs/batches.h"

/* ---- splitting ---- */

static void split(struct str file, size_t step, struct buf *out) {
    struct line_splitter s;
    struct str line;
    line_splitter_init(&s);
    for (size_t at = 0; at < file.len || at == 0; at += step) {
        struct str chunk = str_take(str_skip(file, at), step);
        line_splitter_push(&s, chunk, at + step >= file.len);
        while (line_splitter_next(&s, &line)) {
            buf_put_str(out, line);
            buf_put_text(out, s.too_long ? "!|" : "|");
        }
    }
    assert_int_equal(buf_status(&s.held), ST_OK);
    line_splitter_deinit(&s);
}

static void test_lines_do_not_depend_on_the_chunks(void **state) {
    (void)state;
    static const struct {
        const char *file, *lines;
    } cases[] = {{"", ""},
                 {"\n", "|"},
                 {"a", "a|"},
                 {"a\n", "a|"},
                 {"a\r\nbc\r\n\r\n\nd", "a|bc|||d|"},
                 {"a\rb\n\r", "a\rb||"}};
    struct buf out;
    buf_init(&out, 1 << 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step < 20; step++) {
            buf_clear(&out);
            split(str_of(cases[i].file), step, &out);
            assert_string_equal(buf_text(&out), cases[i].lines);
        }
    }
    buf_deinit(&out);
}

static void test_a_line_that_is_too_long_is_cut(void **state) {
    (void)state;
    struct buf file, out;
    buf_init(&file, 1 << 25);
    buf_init(&out, 1 << 25);
    for (size_t i = 0; i < BATCH_LINE_BYTES_MAX; i++) buf_put_char(&file, 'x');
    buf_put_text(&file, "\nshort");
    split(buf_str(&file), 1 << 20, &out);
    assert_int_equal(out.len, BATCH_LINE_BYTES_MAX + strlen("|short|"));
    file.len = BATCH_LINE_BYTES_MAX;
    buf_put_text(&file, "yz\nshort");
    for (size_t step = 1 << 20; step <= 1 << 24; step *= 16) {
        buf_clear(&out);
        split(buf_str(&file), step, &out);
        assert_int_equal(out.len, BATCH_LINE_BYTES_MAX + strlen("!|short|"));
        assert_string_equal(buf_text(&out) + BATCH_LINE_BYTES_MAX, "!|short|");
    }
    buf_deinit(&file);
    buf_deinit(&out);
}

/* ---- checking ---- */

#define LINE(id, rest)                                                                             \
    "{\"custom_id\":" id ",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{" rest   \
    "}}"

static struct batch_check check;

static void begin(void) {
    assert_int_equal(batch_check_init(&check, STR("/v1/chat/completions")), ST_OK);
}

static void expect_order(const char *text, uint64_t order) {
    struct batch_line line;
    if (batch_check_line(&check, str_of(text), false, &line) != ST_OK)
        fail_msg("%s: %s", text, buf_text(&check.errors));
    if (line.order != order) fail_msg("%s: order %u", text, (unsigned)line.order);
}

static void test_lines_become_requests(void **state) {
    (void)state;
    struct batch_line line;
    begin();
    assert_int_equal(batch_check_line(&check, STR(" \t"), false, &line), ST_MISSING);
    assert_int_equal(batch_check_line(&check,
                                      STR(LINE("\"a\\u00e9\"", "\"model\":\"m\", \"n\" : 1e1")),
                                      false, &line),
                     ST_OK);
    assert_true(str_is(line.custom_id, "a\xc3\xa9"));
    assert_true(str_is(line.body, "{\"model\":\"m\",\"n\":10.0}"));
    assert_true(str_is(line.url, "/v1/chat/completions"));
    assert_int_equal(line.number, 0);
    assert_string_equal(check.model, "m");
    assert_int_equal(batch_check_line(&check, STR(LINE("\"b\"", "\"model\":\"m\"")), false, &line),
                     ST_OK);
    assert_int_equal(line.number, 1);
    assert_int_equal(batch_check_end(&check), ST_OK);
    assert_int_equal(check.line_count, 3);
    assert_int_equal(check.good_count, 2);
    batch_check_deinit(&check);
}

#define SYSTEM(text, user)                                                                         \
    "\"messages\":[{\"role\":\"system\",\"content\":" text "},{\"role\":\"user\",\"content\":"     \
    "\"" user "\"}]"

static void test_lines_with_a_common_prefix_run_together(void **state) {
    (void)state;
    char same[2][1024];
    begin();
    expect_order(LINE("\"1\"", SYSTEM("\"A\"", "x")), 0);
    expect_order(LINE("\"2\"", SYSTEM("\"B\"", "x")), 1);
    expect_order(LINE("\"3\"", SYSTEM("\"A\"", "y")), 0);
    expect_order(LINE("\"4\"", SYSTEM("\"B\"", "z")), 1);
    expect_order(LINE("\"5\"", "\"tools\":[{\"a\":\"b\"}]," SYSTEM("\"A\"", "x")), 4);
    expect_order(LINE("\"6\"", "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"), 5);
    expect_order(LINE("\"7\"", "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                               "\"text\":\"q\"}]}]"),
                 5);
    expect_order(LINE("\"8\"", "\"messages\":[{\"role\":\"user\",\"content\":\"r\"}]"), 7);
    for (int i = 0; i < 2; i++) /* the same first 256 bytes */
        snprintf(same[i], sizeof(same[i]),
                 LINE("\"p%d\"", "\"messages\":[{\"role\":\"user\",\"content\":\"%0256d%d\"}]"), i,
                 0, i);
    expect_order(same[0], 8);
    expect_order(same[1], 8);
    expect_order(LINE("\"9\"", ""), 10);
    batch_check_deinit(&check);
    assert_int_equal(batch_check_init(&check, STR("/v1/embeddings")), ST_OK);
    expect_order("{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":"
                 "{\"input\":\"a\"}}",
                 0);
    expect_order("{\"custom_id\":\"2\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":"
                 "{\"input\":\"b\"}}",
                 0);
    batch_check_deinit(&check);
}

static void expect_fault(const char *text, const char *code, const char *param) {
    struct batch_line line;
    char want[128];
    begin();
    assert_int_equal(
        batch_check_line(&check, STR(LINE("\"first\"", "\"model\":\"m\"")), false, &line), ST_OK);
    if (batch_check_line(&check, str_of(text), false, &line) != ST_BAD) fail_msg("%s", text);
    assert_int_equal(batch_check_end(&check), ST_BAD);
    snprintf(want, sizeof(want), "[{\"code\":\"%s\",\"line\":2,\"message\":\"", code);
    if (strncmp(buf_text(&check.errors), want, strlen(want)) != 0)
        fail_msg("%s: %s", text, buf_text(&check.errors));
    snprintf(want, sizeof(want), param ? "\"param\":\"%s\"}]" : "\"param\":null}]", param);
    if (!strstr(buf_text(&check.errors), want)) fail_msg("%s", buf_text(&check.errors));
    batch_check_deinit(&check);
}

static void test_bad_lines_are_named(void **state) {
    (void)state;
    expect_fault("{", "invalid_json_line", NULL);
    expect_fault("[]", "invalid_json_line", NULL);
    expect_fault("{} x", "invalid_json_line", NULL);
    expect_fault("{}", "missing_required_parameter", "custom_id");
    expect_fault(LINE("\"\"", ""), "missing_required_parameter", "custom_id");
    expect_fault(LINE("1", ""), "invalid_type", "custom_id");
    expect_fault(LINE("\"first\"", "\"model\":\"m\""), "duplicate_custom_id", "custom_id");
    expect_fault("{\"custom_id\":\"a\"}", "missing_required_parameter", "method");
    expect_fault("{\"custom_id\":\"a\",\"method\":\"GET\"}", "invalid_method", "method");
    expect_fault("{\"custom_id\":\"a\",\"method\":\"POST\"}", "missing_required_parameter", "url");
    expect_fault("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\"}",
                 "url_mismatch", "url");
    expect_fault("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\"}",
                 "missing_required_parameter", "body");
    expect_fault(
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":[]}",
        "invalid_type", "body");
    expect_fault(LINE("\"a\"", "\"stream\":true"), "unsupported_parameter", "body.stream");
    expect_fault(LINE("\"a\"", "\"model\":\"n\""), "model_mismatch", "body.model");
    expect_fault(LINE("\"a\"", ""), "model_mismatch", "body.model");
    expect_fault(LINE("\"a\"", "\"model\":1"), "invalid_type", "body.model");
}

/* The line's number is in the error; JSON's own would be 1 on every line. */
static void test_malformed_json_is_named_by_its_column(void **state) {
    (void)state;
    struct batch_line line;
    begin();
    expect_order(LINE("\"first\"", ""), 0);
    assert_int_equal(batch_check_line(&check, STR("{\"a\":x}"), false, &line), ST_BAD);
    assert_non_null(strstr(buf_text(&check.errors), "\"line\":2,"));
    assert_non_null(strstr(buf_text(&check.errors), "not valid JSON: column 6: "));
    batch_check_deinit(&check);
}

static void test_a_byte_order_mark_is_no_part_of_the_first_line(void **state) {
    (void)state;
    assert_true(str_is(batch_skip_mark(STR("\xEF\xBB\xBF{}")), "{}"));
    assert_true(str_is(batch_skip_mark(STR("{}")), "{}"));
    assert_int_equal(batch_skip_mark(STR("\xEF\xBB")).len, 2);
    assert_int_equal(batch_skip_mark(STR("\xEF\xBB\xBF")).len, 0);
}

#define MIXED(id, url, body)                                                                       \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"" url "\",\"body\":{" body "}}"

static void test_without_an_endpoint_lines_may_differ(void **state) {
    (void)state;
    static const char *const lines[][2] = {
        {MIXED("a", "/v1/chat/completions", "\"model\":\"m\""), "/v1/chat/completions"},
        {MIXED("b", "/v1/completions", "\"model\":\"n\""), "/v1/completions"},
        {MIXED("c", "/v1/embeddings", ""), "/v1/embeddings"},
        {MIXED("d", "/v1/responses", ""), "/v1/responses"}};
    struct batch_line line;
    assert_int_equal(batch_check_init(&check, (struct str){0}), ST_OK);
    for (uint32_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (batch_check_line(&check, str_of(lines[i][0]), false, &line) != ST_OK)
            fail_msg("%s", buf_text(&check.errors));
        assert_true(str_is(line.url, lines[i][1]));
        assert_int_equal(line.number, i);
    }
    assert_int_equal(batch_check_line(&check, STR(MIXED("e", "/v1/files", "")), false, &line),
                     ST_BAD);
    assert_int_equal(batch_check_line(&check, STR(MIXED("f", "", "")), false, &line), ST_BAD);
    assert_int_equal(batch_check_end(&check), ST_BAD);
    assert_non_null(strstr(buf_text(&check.errors), "expected /v1/chat/completions, /v1/comp"));
    batch_check_deinit(&check);
}

static enum status check_id_of(size_t len) {
    struct batch_line line;
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_put_text(&text, "{\"custom_id\":\"");
    for (size_t i = 0; i < len; i++) buf_put_char(&text, 'x');
    buf_put_text(&text, "\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{}}");
    begin();
    enum status st = batch_check_line(&check, buf_str(&text), false, &line);
    batch_check_deinit(&check);
    buf_deinit(&text);
    return st;
}

static void test_lines_have_limits(void **state) {
    (void)state;
    struct batch_line line;
    char text[256];
    assert_int_equal(check_id_of(BATCH_CUSTOM_ID_MAX), ST_OK);
    assert_int_equal(check_id_of(BATCH_CUSTOM_ID_MAX + 1), ST_BAD);
    begin();
    assert_int_equal(batch_check_line(&check, STR("x"), true, &line), ST_BAD);
    assert_non_null(strstr(buf_text(&check.errors), "line_too_long"));
    batch_check_deinit(&check);
    begin();
    assert_int_equal(batch_check_end(&check), ST_BAD);
    assert_string_equal(buf_text(&check.errors),
                        "[{\"code\":\"empty_file\",\"line\":null,\"message\":\"The input file has "
                        "no lines; expected at least one request.\",\"param\":\"input_file_id\"}]");
    batch_check_deinit(&check);
    begin();
    for (uint32_t i = 0; i < BATCH_LINES_MAX; i++) {
        snprintf(text, sizeof(text), LINE("\"%u\"", ""), i);
        assert_int_equal(batch_check_line(&check, str_of(text), false, &line), ST_OK);
    }
    assert_int_equal(batch_check_line(&check, STR(" "), false, &line), ST_MISSING);
    for (int i = 0; i < 2; i++)
        assert_int_equal(batch_check_line(&check, STR(LINE("\"a\"", "")), false, &line), ST_BAD);
    assert_true(check.is_over);
    assert_int_equal(check.error_count, 1);
    assert_non_null(strstr(buf_text(&check.errors), "too_many_tasks"));
    batch_check_deinit(&check);
}

static void test_only_the_first_errors_are_listed(void **state) {
    (void)state;
    struct batch_line line;
    begin();
    for (int i = 0; i < BATCH_ERRORS_MAX + 5; i++)
        assert_int_equal(batch_check_line(&check, STR("x"), false, &line), ST_BAD);
    assert_int_equal(batch_check_end(&check), ST_BAD);
    assert_int_equal(check.error_count, BATCH_ERRORS_MAX + 5);
    uint32_t listed = 0;
    for (const char *p = buf_text(&check.errors); (p = strstr(p, "invalid_json_line")); p++)
        listed++;
    assert_int_equal(listed, BATCH_ERRORS_MAX);
    batch_check_deinit(&check);
}

/* ---- output ---- */

static void expect_output(enum line_state line_state, uint32_t status, bool is_error,
                          const char *rest) {
    struct line_row row = {
        .line = {.number = 1, .custom_id = STR("a\"")},
        .result = {
            .state = line_state, .status = status, .request_id = STR("r"), .body = STR("{}")}};
    struct buf out, again;
    buf_init(&out, 1 << 16);
    buf_init(&again, 1 << 16);
    batch_output_put(STR("batch_1"), &row, &out);
    static const char begin_of[] = "{\"id\":\"batch_req_";
    const size_t id_end = strlen(begin_of) + 32;
    assert_memory_equal(buf_text(&out), begin_of, strlen(begin_of));
    assert_string_equal(buf_text(&out) + id_end, rest);
    assert_int_equal(batch_output_is_error(&row), is_error);
    row.line.number = 2;
    batch_output_put(STR("batch_1"), &row, &again);
    assert_int_not_equal(memcmp(buf_text(&out), buf_text(&again), id_end), 0);
    buf_deinit(&out);
    buf_deinit(&again);
}

static void test_output_lines_byte_by_byte(void **state) {
    (void)state;
    expect_output(LINE_DONE, 200, false,
                  "\",\"custom_id\":\"a\\\"\",\"response\":{\"status_code\":200,\"request_id\":"
                  "\"r\",\"body\":{}},\"error\":null}\n");
    expect_output(LINE_FAILED, 400, true,
                  "\",\"custom_id\":\"a\\\"\",\"response\":{\"status_code\":400,\"request_id\":"
                  "\"r\",\"body\":{}},\"error\":null}\n");
    expect_output(LINE_EXPIRED, 0, true,
                  "\",\"custom_id\":\"a\\\"\",\"response\":null,\"error\":{\"code\":"
                  "\"batch_expired\",\"message\":\"The batch expired before this request was "
                  "run.\"}}\n");
    expect_output(LINE_CANCELLED, 0, true,
                  "\",\"custom_id\":\"a\\\"\",\"response\":null,\"error\":{\"code\":"
                  "\"batch_cancelled\",\"message\":\"The batch was cancelled before this request "
                  "was run.\"}}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_do_not_depend_on_the_chunks),
        cmocka_unit_test(test_a_line_that_is_too_long_is_cut),
        cmocka_unit_test(test_lines_become_requests),
        cmocka_unit_test(test_lines_with_a_common_prefix_run_together),
        cmocka_unit_test(test_bad_lines_are_named),
        cmocka_unit_test(test_malformed_json_is_named_by_its_column),
        cmocka_unit_test(test_a_byte_order_mark_is_no_part_of_the_first_line),
        cmocka_unit_test(test_without_an_endpoint_lines_may_differ),
        cmocka_unit_test(test_lines_have_limits),
        cmocka_unit_test(test_only_the_first_errors_are_listed),
        cmocka_unit_test(test_output_lines_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
