/* Goal:   a file of tools, an answer with calls and the conversation that keeps it survive the
 *         failure of any one allocation: ST_NOMEM, and nothing is lost.
 * Method: the first allocation fails, then the second, until none is left. Leaks show in the
 *         sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/chat_answer.h"
#include "cli/dialog.h"
#include "cli/tools_file.h"
#include "fault/fail_alloc.h"

#define EXAMPLE TEST_SOURCE_DIR "/../examples/tools.json"

enum { RUNS_MAX = 10000, TEXT_BYTES_MAX = 1 << 20 };

static enum status load_tools(void) {
    struct tool_set *set = NULL;
    struct err err = {0};
    enum status st = tools_file_load(EXAMPLE, &set, &err);
    if (st == ST_OK) tool_set_destroy(set);
    return st;
}

static enum status take_calls(struct chat_answer *a) {
    const struct call_piece pieces[] = {
        {.index = 0, .id = STR("a"), .name = STR("f"), .args = STR("{")},
        {.index = 0, .args = STR("}")},
        {.index = 1, .id = STR("b"), .name = STR("g")},
    };
    struct err err = {0};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        TRY(chat_answer_take_call(a, &pieces[i], &err));
    return ST_OK;
}

static enum status add_messages(struct dialog *d, const struct chat_answer *a) {
    struct err err = {0};
    TRY(dialog_add(d, "user", STR("hello"), &err));
    TRY(dialog_add_message(d, chat_answer_message(a, true), &err));
    return dialog_add_result(d, STR("a"), STR("f"), STR("result"), &err);
}

/* Keep the answer and a result; save and load the conversation. Values of trees may fail where
 * trees are built; the parser reports its own lack of memory as bad JSON. */
static enum status keep(struct dialog *d, const struct chat_answer *a, struct buf *text) {
    struct json *saved = NULL;
    struct err err = {0};
    fail_alloc_in_jansson(true);
    enum status st = add_messages(d, a);
    fail_alloc_in_jansson(false);
    TRY(st);
    fail_alloc_in_jansson(true);
    struct json *shared = dialog_messages(d);
    fail_alloc_in_jansson(false);
    if (!shared) return ST_NOMEM;
    assert_int_equal(json_count(shared), dialog_count(d));
    json_destroy(shared);
    dialog_put_json(d, text);
    TRY(buf_status(text));
    TRY(json_parse(buf_str(text), &json_limits_request, &saved, &err));
    fail_alloc_in_jansson(true);
    st = dialog_load_json(d, saved, &err);
    fail_alloc_in_jansson(false);
    json_destroy(saved);
    return st;
}

static enum status converse(void) {
    struct dialog *d = NULL;
    struct chat_answer answer;
    struct buf text;
    TRY(dialog_open(NULL, "test", &d, NULL));
    chat_answer_init(&answer, false);
    buf_init(&text, TEXT_BYTES_MAX);
    enum status st = take_calls(&answer);
    if (st == ST_OK) st = keep(d, &answer, &text);
    if (st == ST_OK) assert_int_equal(dialog_count(d), 3);
    buf_deinit(&text);
    chat_answer_deinit(&answer);
    dialog_close(d);
    return st;
}

static void fail_each(enum status (*work)(void)) {
    long n = 0;
    for (;; n++) {
        fail_alloc_at(n);
        enum status st = work();
        if (!fail_alloc_stop()) break;
        if (st != ST_NOMEM) fail_msg("%s when allocation %ld fails", status_name(st), n);
        assert_true(n < RUNS_MAX);
    }
    assert_true(n > 5);
    assert_int_equal(work(), ST_OK);
}

static void test_a_file_of_tools(void **state) {
    (void)state;
    fail_each(load_tools);
}

static void test_an_answer_with_calls(void **state) {
    (void)state;
    fail_each(converse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_of_tools),
        cmocka_unit_test(test_an_answer_with_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
