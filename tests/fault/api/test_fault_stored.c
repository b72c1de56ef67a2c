/* Goal:   reading and writing files, batches, conversations and what a request keeps survives the
 *         failure of any one allocation: ST_NOMEM, and nothing is lost.
 * Method: the same work again and again, the first time with the first allocation failing, then
 *         the second, until no more are needed. The address sanitizer counts what is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/batch_lines.h"
#include "api/batch_objects.h"
#include "api/codec.h"
#include "api/conversation_items.h"
#include "api/message_batches.h"
#include "api/stored_objects.h"
#include "fault/fail_alloc.h"
#include "jobs/batches.h"
#include "unit/json_lib.h"

enum { ALLOCATIONS_MAX = 500, OUT_MAX = 1 << 20 };

typedef enum status work_fn(const char *text);

static void expect_survival(work_fn *work, const char *text) {
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        fail_alloc_at(n);
        enum status st = work(text);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        if (st != ST_NOMEM) fail_msg("allocation %ld: %s: %s", n, status_name(st), text);
    }
    assert_in_range(n, 1, ALLOCATIONS_MAX - 1);
}

static enum status read_lines(const char *text) {
    struct line_splitter s;
    struct batch_check c;
    struct batch_line line;
    struct str part;
    line_splitter_init(&s);
    enum status st = batch_check_init(&c, STR("/v1/responses"));
    for (struct str rest = str_of(text); rest.len && st == ST_OK; rest = str_skip(rest, 9)) {
        line_splitter_push(&s, str_take(rest, 9), rest.len <= 9);
        while (st == ST_OK && line_splitter_next(&s, &part))
            st = batch_check_line(&c, part, s.too_long, &line);
        if (st == ST_OK) st = buf_status(&s.held);
    }
    if (st == ST_OK) st = batch_check_end(&c);
    batch_check_deinit(&c);
    line_splitter_deinit(&s);
    return st;
}

/* The errors of a file are kept as text. */
static enum status list_errors(const char *text) {
    struct batch_check c;
    struct batch_line line;
    enum status st = batch_check_init(&c, STR("/v1/responses"));
    if (st == ST_OK && batch_check_line(&c, str_of(text), false, &line) == ST_BAD) {
        st = batch_check_end(&c);
        if (st == ST_BAD) st = ST_OK;
    }
    batch_check_deinit(&c);
    return st;
}

static enum status read_requests(const char *text) {
    struct message_batch b;
    struct batch_line line;
    struct api_error e = {0};
    enum status st = message_batch_init(&b, str_of(text), &e);
    while (st == ST_OK) st = message_batch_next(&b, &line, &e);
    message_batch_deinit(&b);
    return st == ST_MISSING ? ST_OK : st;
}

static enum status read_create(const char *text) {
    struct json *doc = json_of(text);
    struct batch_create c;
    struct api_error e = {0};
    enum status st = batch_create_read(doc, &c, &e);
    batch_create_deinit(&c);
    json_destroy(doc);
    return st;
}

static enum status read_conversation(const char *text) {
    struct json *doc = json_of(text);
    struct conversation_create c;
    struct api_error e = {0};
    enum status st = conversation_create_read(doc, STR("S"), &c, &e);
    conversation_create_deinit(&c);
    json_destroy(doc);
    return st;
}

static enum status merge(const char *text) {
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = responses_merge(str_of(text), STR("[{\"id\":\"a\"}]"), &out, &e);
    buf_deinit(&out);
    return st;
}

static enum status list_items(const char *text) {
    const struct page_choice choice = {.limit = 2};
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = items_page_put(str_of(text), &choice, STR(""), &out, &e);
    buf_deinit(&out);
    return st;
}

static enum status put_chat(const char *text) {
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = chat_stored_put(str_of(text), STR("{\"a\":\"b\"}"), &out);
    buf_deinit(&out);
    return st;
}

static enum status read_kept(const char *text) {
    struct api_request r;
    struct api_error e = {0};
    enum status st = codec_read_body(codec_find("openai.responses"), json_of(text), false, &r, &e);
    api_request_deinit(&r);
    return st;
}

#define LINE(id)                                                                                   \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":{\"input\":" \
    "\"" id "\"}}\n"

static void test_batches(void **state) {
    (void)state;
    fail_alloc_in_jansson(false);
    expect_survival(read_lines, LINE("a") LINE("b"));
    expect_survival(list_errors, "{}");
    expect_survival(read_requests, "{\"requests\":[{\"custom_id\":\"a\",\"params\":{}},"
                                   "{\"custom_id\":\"b\",\"params\":{\"system\":\"s\"}}]}");
    expect_survival(read_create, "{\"input_file_id\":\"f\",\"endpoint\":\"/v1/responses\","
                                 "\"completion_window\":\"24h\",\"metadata\":{\"a\":\"b\"}}");
}

static void test_conversations(void **state) {
    (void)state;
    fail_alloc_in_jansson(false);
    expect_survival(read_conversation, "{\"metadata\":{\"a\":\"b\"},\"items\":[{\"role\":\"user\","
                                       "\"content\":\"x\"}]}");
    expect_survival(merge, "{\"input\":\"x\",\"store\":true}");
    expect_survival(list_items, "[{\"id\":\"a\"},{\"id\":\"b\"}]");
    expect_survival(put_chat, "{\"id\":\"a\"}");
    expect_survival(read_kept, "{\"input\":\"x\",\"conversation\":\"c\",\"metadata\":{\"a\":"
                               "\"b\"}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_conversations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
