/* Goal:   batches: states go forward only, a result is counted once, and the end of a batch is one
 *         step: output ready, final state, no lines.
 * Method: each case is a script of verbs inside one operation or several. */
#include "unit/jobs/store_lib.h"

static int set_up(void **state) {
    static struct test_store t;
    test_open(&t);
    *state = &t;
    return 0;
}
static int tear_down(void **state) {
    struct test_store *t = *state;
    test_check(t);
    test_close(t);
    return 0;
}

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        enum status got_ = (expression);                                                           \
        if (got_ != (expected))                                                                    \
            return err_set(err, ST_CANCELLED, "line %d: %s: %s: %s", __LINE__, #expression,        \
                           status_name(got_), err->text);                                          \
    } while (0)
#define EXPECT_TRUE(expression)                                                                    \
    do {                                                                                           \
        if (!(expression))                                                                         \
            return err_set(err, ST_CANCELLED, "line %d: not %s", __LINE__, #expression);           \
    } while (0)

static const struct str B = {"b1", 2};

static enum status insert(struct store_db *db, struct err *err) {
    const struct batch_row row = {.id = B,
                                  .owner = STR("ann"),
                                  .kind = BATCH_OPENAI,
                                  .endpoint = STR("/v1/chat/completions"),
                                  .input_file = STR("f1"),
                                  .window = STR("24h"),
                                  .metadata = STR("{}"),
                                  .seed = UINT64_MAX,
                                  .created_s = 10,
                                  .expires_s = 99};
    return batches_insert(db, &row, err);
}

static enum status add_line(struct store_db *db, uint32_t number, uint64_t order, struct err *err) {
    char id[16];
    snprintf(id, sizeof(id), "id-%u", number);
    const struct batch_line line = {.number = number,
                                    .custom_id = str_of(id),
                                    .url = STR("/v1/x"),
                                    .body = STR("{\"a\":1}"),
                                    .order = order};
    return batches_add_line(db, B, &line, err);
}

/* `count` lines that run in the reverse order of input, and the batch in progress. */
static enum status start(struct store_db *db, uint32_t count, struct err *err) {
    EXPECT(insert(db, err), ST_OK);
    for (uint32_t i = 0; i < count; i++) EXPECT(add_line(db, i, count - i, err), ST_OK);
    return batches_start(db, B, count, STR("smollm2"), 20, err);
}

static enum status put(struct store_db *db, uint32_t number, enum line_state state,
                       struct err *err) {
    const struct line_result r = {.number = number,
                                  .state = state,
                                  .status = 200,
                                  .request_id = STR("r"),
                                  .body = STR("{\"b\":2}"),
                                  .prompt_tokens = 5,
                                  .cached_tokens = 2,
                                  .answer_tokens = 3};
    return batches_put_result(db, B, &r, err);
}

static enum status expect_counts(struct store_db *db, enum batch_state state, const char *expected,
                                 struct err *err) {
    struct batch_row b;
    char text[96];
    TRY(batches_find(db, STR("ann"), B, &b, err));
    snprintf(text, sizeof(text), "%u: %u %u %u %u, %u tokens", b.total, b.completed, b.failed,
             b.cancelled, b.expired, (unsigned)b.answer_tokens);
    bool same = b.state == state && strcmp(text, expected) == 0;
    if (!same)
        err_set(err, ST_CANCELLED, "%s %s, expected %s %s", batch_state_name(b.state), text,
                batch_state_name(state), expected);
    batch_row_deinit(&b);
    return same ? ST_OK : ST_CANCELLED;
}

static bool note_line(void *ctx, const struct batch_line *line) {
    char *seen = ctx;
    size_t len = strlen(seen);
    snprintf(seen + len, 128 - len, "%u ", line->number);
    return true;
}
static enum status expect_waiting(struct store_db *db, struct line_place after, uint32_t limit,
                                  const char *expected, struct err *err) {
    char seen[128] = "";
    TRY(batches_waiting(db, B, after, limit, note_line, seen, err));
    if (strcmp(seen, expected) == 0) return ST_OK;
    return err_set(err, ST_CANCELLED, "waiting: \"%s\", expected \"%s\"", seen, expected);
}

static bool note_result(void *ctx, const struct line_row *row) {
    char *seen = ctx;
    size_t len = strlen(seen);
    snprintf(seen + len, 128 - len, "%u:%d:%u:%zu ", row->line.number, (int)row->result.state,
             row->result.status, row->result.body.len);
    return true;
}
static enum status expect_results(struct store_db *db, int64_t after, uint32_t limit,
                                  const char *expected, struct err *err) {
    char seen[128] = "";
    TRY(batches_results(db, B, after, limit, note_result, seen, err));
    if (strcmp(seen, expected) == 0) return ST_OK;
    return err_set(err, ST_CANCELLED, "results: \"%s\", expected \"%s\"", seen, expected);
}

static enum status add_output(struct store_db *db, struct str id, struct err *err) {
    const struct file_row row = {.id = id, .owner = STR("ann"), .purpose = STR("batch_output")};
    EXPECT(files_create(db, &row, err), ST_OK);
    return files_append(db, id, STR("{}\n"), err);
}

/* ---- cases ---- */

static enum status whole_life(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    const struct line_place first = {0, -1};
    EXPECT(start(db, 4, err), ST_OK);
    EXPECT(insert(db, err), ST_BAD);
    EXPECT(expect_counts(db, BATCH_IN_PROGRESS, "4: 0 0 0 0, 0 tokens", err), ST_OK);
    EXPECT(expect_waiting(db, first, 9, "3 2 1 0 ", err), ST_OK);
    EXPECT(expect_waiting(db, first, 2, "3 2 ", err), ST_OK);
    EXPECT(expect_waiting(db, (struct line_place){2, 2}, 9, "1 0 ", err), ST_OK);
    EXPECT(put(db, 2, LINE_DONE, err), ST_OK);
    EXPECT(put(db, 2, LINE_FAILED, err), ST_OK); /* the second result of a line */
    EXPECT(put(db, 0, LINE_FAILED, err), ST_OK);
    EXPECT(put(db, 7, LINE_DONE, err), ST_MISSING);
    EXPECT(expect_counts(db, BATCH_IN_PROGRESS, "4: 1 1 0 0, 6 tokens", err), ST_OK);
    EXPECT(expect_waiting(db, first, 9, "3 1 ", err), ST_OK);
    const struct batch_end early = {.state = BATCH_COMPLETED, .now_s = 30};
    EXPECT(batches_finish(db, B, &early, err), ST_BAD);
    EXPECT(batches_finalize(db, B, LINE_EXPIRED, 30, err), ST_OK);
    EXPECT(expect_counts(db, BATCH_FINALIZING, "4: 1 1 0 2, 6 tokens", err), ST_OK);
    EXPECT(put(db, 1, LINE_DONE, err), ST_OK); /* too late: without effect */
    EXPECT(batches_finalize(db, B, LINE_CANCELLED, 31, err), ST_OK);
    EXPECT(expect_counts(db, BATCH_FINALIZING, "4: 1 1 0 2, 6 tokens", err), ST_OK);
    EXPECT(expect_waiting(db, first, 9, "", err), ST_OK);
    EXPECT(expect_results(db, -1, 9, "0:2:200:7 1:4:0:0 2:1:200:7 3:4:0:0 ", err), ST_OK);
    EXPECT(expect_results(db, 1, 1, "2:1:200:7 ", err), ST_OK);
    EXPECT(store_check(db, err), ST_OK);
    EXPECT(add_output(db, STR("out"), err), ST_OK);
    EXPECT(batches_delete(db, STR("ann"), B, err), ST_BAD);
    const struct batch_end end = {.state = BATCH_EXPIRED, .output_file = STR("out"), .now_s = 40};
    EXPECT(batches_finish(db, B, &end, err), ST_OK);
    EXPECT(batches_finish(db, B, &early, err), ST_OK); /* without effect */
    EXPECT(expect_counts(db, BATCH_EXPIRED, "4: 1 1 0 2, 6 tokens", err), ST_OK);
    EXPECT(batches_cancel(db, STR("ann"), B, 50, err), ST_BAD);
    struct file_row file;
    EXPECT(files_find(db, STR("ann"), STR("out"), &file, err), ST_OK);
    file_row_deinit(&file);
    struct batch_row row;
    EXPECT(batches_find(db, STR(""), B, &row, err), ST_OK);
    bool same = row.expired_s == 40 && row.completed_s == 0 && row.finalizing_s == 30 &&
                row.in_progress_s == 20 && row.seed == UINT64_MAX && row.cached_tokens == 4 &&
                str_is(row.output_file, "out") && str_is(row.model, "smollm2");
    batch_row_deinit(&row);
    EXPECT_TRUE(same);
    return ST_OK;
}

static enum status count_open(struct store_db *db, void *ctx, struct err *err) {
    uint32_t *count = ctx;
    int64_t at = 0;
    struct batch_row row;
    for (*count = 0;; ++*count) {
        enum status st = batches_next_open(db, at, &at, &row, err);
        if (st != ST_OK) return st == ST_MISSING ? ST_OK : st;
        batch_row_deinit(&row);
    }
}

static void test_a_batch_goes_from_validation_to_its_end(void **state) {
    struct test_store *t = *state;
    uint32_t open = 9;
    assert_st(test_run(t, whole_life, NULL), ST_OK);
    assert_st(test_read(t, count_open, &open), ST_OK);
    assert_int_equal(open, 0);
    test_check(t);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, count_open, &open), ST_OK);
    assert_int_equal(open, 0);
}

static enum status insert_alone(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    return insert(db, err);
}

static enum status find_newness(struct store_db *db, void *ctx, struct err *err) {
    int64_t at = 0;
    struct batch_row row;
    TRY(batches_next_open(db, 0, &at, &row, err));
    batch_row_deinit(&row);
    *(bool *)ctx = batches_is_new(db, at);
    return ST_OK;
}

static void test_a_batch_is_new_until_the_store_is_opened_again(void **state) {
    struct test_store *t = *state;
    bool is_new = false;
    assert_st(test_run(t, insert_alone, NULL), ST_OK);
    assert_st(test_read(t, find_newness, &is_new), ST_OK);
    assert_true(is_new);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, find_newness, &is_new), ST_OK);
    assert_false(is_new);
}

static enum status validate(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    EXPECT(insert(db, err), ST_OK);
    EXPECT(add_line(db, 0, 0, err), ST_OK);
    const struct batch_line same_id = {.number = 1, .custom_id = STR("id-0")};
    EXPECT(batches_add_line(db, B, &same_id, err), ST_BAD);
    EXPECT_TRUE(strstr(err->text, "line 1"));
    const struct batch_line same_line = {.number = 0, .custom_id = STR("other")};
    EXPECT(batches_add_line(db, B, &same_line, err), ST_BAD);
    EXPECT(put(db, 0, LINE_DONE, err), ST_BAD);
    EXPECT(batches_finalize(db, B, LINE_CANCELLED, 30, err), ST_BAD);
    EXPECT(batches_clear_lines(db, B, err), ST_OK);
    EXPECT(add_line(db, 0, 0, err), ST_OK); /* as if it were the first time */
    EXPECT(batches_start(db, B, 1, STR("m"), 20, err), ST_OK);
    EXPECT(batches_clear_lines(db, B, err), ST_BAD);
    EXPECT(batches_fail(db, B, STR("[]"), 21, err), ST_OK); /* without effect */
    EXPECT(expect_counts(db, BATCH_IN_PROGRESS, "1: 0 0 0 0, 0 tokens", err), ST_OK);
    return store_check(db, err);
}

static void test_lines_are_validated_again_after_they_were_cleared(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, validate, NULL), ST_OK);
}

static enum status fail_validation(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    EXPECT(insert(db, err), ST_OK);
    EXPECT(add_line(db, 0, 0, err), ST_OK);
    EXPECT(batches_fail(db, B, STR("[{\"line\":2}]"), 25, err), ST_OK);
    EXPECT(batches_start(db, B, 1, STR("m"), 26, err), ST_OK); /* without effect */
    EXPECT(add_line(db, 1, 0, err), ST_BAD);
    EXPECT(expect_counts(db, BATCH_FAILED, "0: 0 0 0 0, 0 tokens", err), ST_OK);
    EXPECT(batches_cancel(db, STR("bob"), B, 27, err), ST_MISSING);
    EXPECT(batches_cancel(db, STR("ann"), B, 27, err), ST_BAD);
    uint32_t count = 0;
    EXPECT(batches_expire(db, 25, 5, &count, err), ST_OK);
    EXPECT_TRUE(count == 0);
    EXPECT(batches_expire(db, 26, 5, &count, err), ST_OK);
    EXPECT_TRUE(count == 1);
    struct batch_row row;
    EXPECT(batches_find(db, STR(""), B, &row, err), ST_MISSING);
    return store_check(db, err);
}

static void test_a_batch_that_is_invalid_fails(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, fail_validation, NULL), ST_OK);
}

static enum status cancel_running(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    EXPECT(start(db, 3, err), ST_OK);
    EXPECT(put(db, 0, LINE_DONE, err), ST_OK);
    EXPECT(batches_cancel(db, STR("ann"), B, 30, err), ST_OK);
    EXPECT(batches_cancel(db, STR("ann"), B, 31, err), ST_OK); /* without effect */
    EXPECT(put(db, 1, LINE_DONE, err), ST_OK);                 /* it was under way */
    EXPECT(batches_finalize(db, B, LINE_CANCELLED, 32, err), ST_OK);
    EXPECT(expect_counts(db, BATCH_CANCELLING, "3: 2 0 1 0, 6 tokens", err), ST_OK);
    EXPECT(store_check(db, err), ST_OK);
    const struct batch_end end = {.state = BATCH_CANCELLED, .now_s = 33};
    EXPECT(batches_finish(db, B, &end, err), ST_OK);
    EXPECT(expect_counts(db, BATCH_CANCELLED, "3: 2 0 1 0, 6 tokens", err), ST_OK);
    EXPECT(batches_delete(db, STR("ann"), B, err), ST_OK);
    EXPECT(batches_delete(db, STR("ann"), B, err), ST_MISSING);
    return ST_OK;
}

static void test_results_of_a_cancelled_batch_stay(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, cancel_running, NULL), ST_OK);
}

static enum status cancel_validating(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    EXPECT(insert(db, err), ST_OK);
    EXPECT(add_line(db, 0, 0, err), ST_OK);
    EXPECT(batches_cancel(db, STR("ann"), B, 30, err), ST_OK);
    EXPECT(add_line(db, 1, 0, err), ST_BAD);
    EXPECT(batches_start(db, B, 2, STR("m"), 31, err), ST_OK); /* without effect */
    EXPECT(batches_finalize(db, B, LINE_CANCELLED, 32, err), ST_OK);
    EXPECT(expect_results(db, -1, 9, "", err), ST_OK);
    EXPECT(expect_counts(db, BATCH_CANCELLING, "0: 0 0 0 0, 0 tokens", err), ST_OK);
    return store_check(db, err);
}

static void test_a_batch_that_is_cancelled_early_has_no_lines(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, cancel_validating, NULL), ST_OK);
}

static bool note_batch(void *ctx, const struct batch_row *row) {
    char *seen = ctx;
    size_t len = strlen(seen);
    snprintf(seen + len, 64 - len, "%.*s ", STR_ARG(row->id));
    return true;
}
static enum status expect_page(struct store_db *db, const struct batches_page *page,
                               const char *expected, struct err *err) {
    char seen[64] = "";
    TRY(batches_list(db, page, note_batch, seen, err));
    if (strcmp(seen, expected) == 0) return ST_OK;
    return err_set(err, ST_CANCELLED, "\"%s\", expected \"%s\"", seen, expected);
}
static enum status list_batches(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    const struct str ids[] = {STR("b1"), STR("b2"), STR("b3"), STR("b4")};
    for (int i = 0; i < 4; i++) {
        const struct batch_row row = {.id = ids[i],
                                      .owner = i == 1 ? STR("bob") : STR("ann"),
                                      .kind = i == 2 ? BATCH_ANTHROPIC : BATCH_OPENAI};
        EXPECT(batches_insert(db, &row, err), ST_OK);
    }
    struct batches_page page = {.owner = STR("ann"), .kind = BATCH_OPENAI, .limit = 1};
    EXPECT(expect_page(db, &page, "b4 ", err), ST_OK);
    page.after = STR("b4");
    EXPECT(expect_page(db, &page, "b1 ", err), ST_OK);
    page = (struct batches_page){.kind = BATCH_OPENAI, .limit = 9, .ascending = true};
    EXPECT(expect_page(db, &page, "b1 b2 b4 ", err), ST_OK);
    page.after = STR("b7");
    EXPECT(expect_page(db, &page, "", err), ST_MISSING);
    page = (struct batches_page){.owner = STR("ann"), .kind = BATCH_ANTHROPIC, .limit = 9};
    return expect_page(db, &page, "b3 ", err);
}

static void test_a_page_begins_behind_its_cursor(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, list_batches, NULL), ST_OK);
}

static void test_states_have_the_names_of_the_api(void **state) {
    (void)state;
    assert_string_equal(batch_state_name(BATCH_IN_PROGRESS), "in_progress");
    assert_string_equal(batch_state_name(BATCH_CANCELLED), "cancelled");
    assert_true(batch_state_is_final(BATCH_EXPIRED));
    assert_false(batch_state_is_final(BATCH_CANCELLING));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_a_batch_goes_from_validation_to_its_end),
        CASE(test_a_batch_is_new_until_the_store_is_opened_again),
        CASE(test_lines_are_validated_again_after_they_were_cleared),
        CASE(test_a_batch_that_is_invalid_fails),
        CASE(test_results_of_a_cancelled_batch_stay),
        CASE(test_a_batch_that_is_cancelled_early_has_no_lines),
        CASE(test_a_page_begins_behind_its_cursor),
        cmocka_unit_test(test_states_have_the_names_of_the_api),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
