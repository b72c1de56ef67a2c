/* fault/jobs/scenario.c - see fault/jobs/scenario.h. */
#include "fault/jobs/scenario.h"

#include <sqlite3.h>

#include "base/buf.h"
#include "base/check.h"
#include "unit/jobs/store_lib.h"

enum { STEPS_MAX = 40, BIG_BYTES = 60000, LINES = 12 };

static char *states[STEPS_MAX + 1];

/* ---- answers and conversations ---- */

#define OP(name) static enum status name(struct store_db *db, void *ctx, struct err *err)
#define RUN(name)                                                                                  \
    static enum status run_##name(struct test_store *t) { return test_run(t, name, NULL); }
#define READ(name)                                                                                 \
    static enum status run_##name(struct test_store *t) { return test_read(t, name, NULL); }

static const struct str ANN = {"ann", 3};

OP(conversation) {
    (void)ctx;
    return conversations_insert(db, ANN, STR("c1"), STR("{}"), 1, err);
}
RUN(conversation)
OP(insert_a1) {
    (void)ctx;
    const struct answer_row row = {.id = STR("a1"),
                                   .request_id = STR("r1"),
                                   .owner = ANN,
                                   .codec = STR("x"),
                                   .model = STR("m"),
                                   .body = STR("{\"in\":1}"),
                                   .items = STR("[{\"role\":\"user\"}]"),
                                   .conversation = STR("c1"),
                                   .is_stored = true};
    return answers_insert(db, &row, err);
}
RUN(insert_a1)
OP(finish_a1) {
    (void)ctx;
    const struct answer_end end = {.state = ANSWER_DONE,
                                   .output = STR("[{\"id\":\"o1\"},{\"type\":\"reasoning\"}]"),
                                   .whole = STR("{}"),
                                   .pieces = STR("p"),
                                   .finished_s = 10};
    return answers_finish(db, STR("a1"), &end, err);
}
RUN(finish_a1)
OP(insert_a2) {
    (void)ctx;
    static char big[BIG_BYTES];
    memset(big, 'x', sizeof(big));
    const struct answer_row row = {.id = STR("a2"),
                                   .owner = ANN,
                                   .model = STR("m"),
                                   .codec = STR("x"),
                                   .body = {big, sizeof(big)},
                                   .previous = STR("a1")};
    return answers_insert(db, &row, err);
}
RUN(insert_a2)
OP(note_a2) {
    (void)ctx;
    TRY(answers_note_lost(db, STR("a2"), err));
    return answers_set_metadata(db, ANN, STR("a2"), STR("{\"k\":1}"), err);
}
RUN(note_a2)
OP(finish_a2) {
    (void)ctx;
    const struct answer_end end = {.state = ANSWER_FAILED, .whole = STR("{}"), .finished_s = 11};
    return answers_finish(db, STR("a2"), &end, err);
}
RUN(finish_a2)
OP(append_items) {
    (void)ctx;
    return conversations_append(db, ANN, STR("c1"), STR("[{\"id\":\"i1\"},{\"n\":2}]"), err);
}
RUN(append_items)
OP(change_conversation) {
    (void)ctx;
    TRY(conversations_set_metadata(db, ANN, STR("c1"), STR("{\"m\":1}"), err));
    return conversations_delete_item(db, ANN, STR("c1"), STR("i1"), err);
}
RUN(change_conversation)

static bool count_answer(void *ctx, const struct answer_row *row) {
    (void)row;
    return ++*(int *)ctx > 0;
}
static bool count_item(void *ctx, struct str id, struct str json) {
    (void)id;
    (void)json;
    return ++*(int *)ctx > 0;
}

OP(read_answers) {
    (void)ctx;
    int count = 0;
    struct answer_row row;
    struct conversation_row conversation;
    struct str items;
    TRY(answers_find(db, ANN, STR("a2"), true, &row, err));
    answer_row_deinit(&row);
    TRY(answers_find(db, ANN, STR("r1"), false, &row, err));
    answer_row_deinit(&row);
    TRY(answers_items(db, ANN, STR("a1"), 10000, &items, err));
    mem_free((void *)(uintptr_t)items.ptr);
    TRY(conversations_find(db, ANN, STR("c1"), &conversation, err));
    conversation_row_deinit(&conversation);
    TRY(conversations_items(db, ANN, STR("c1"), 10000, &items, err));
    mem_free((void *)(uintptr_t)items.ptr);
    const struct answers_page page = {.owner = ANN, .codec = STR("x"), .limit = 9};
    TRY(answers_list(db, &page, count_answer, &count, err));
    return conversations_list(db, &page, STR("c1"), count_item, &count, err);
}
READ(read_answers)

OP(next_open) {
    (void)ctx;
    int64_t number = 0;
    struct answer_row row;
    TRY(answers_next_open(db, STR("m"), 0, &number, &row, err));
    answer_row_deinit(&row);
    return ST_OK;
}
READ(next_open)

/* ---- files ---- */

static char content[BIG_BYTES];

OP(create_f1) {
    (void)ctx;
    const struct file_row row = {.id = STR("f1"), .owner = ANN, .purpose = STR("batch")};
    TRY(files_abandon(db, STR("f1"), err));
    return files_create(db, &row, err);
}
OP(append_f1) {
    (void)ctx;
    for (size_t i = 0; i < sizeof(content); i++) content[i] = (char)(i * 7);
    return files_append(db, STR("f1"), (struct str){content, sizeof(content)}, err);
}
OP(ready_f1) {
    (void)ctx;
    return files_set_ready(db, STR("f1"), err);
}
static enum status run_upload(struct test_store *t) {
    TRY(test_run(t, create_f1, NULL));
    TRY(test_run(t, append_f1, NULL));
    TRY(test_run(t, append_f1, NULL));
    return test_run(t, ready_f1, NULL);
}

static bool count_file(void *ctx, const struct file_row *row) {
    (void)row;
    return ++*(int *)ctx > 0;
}
OP(read_files) {
    (void)ctx;
    int count = 0;
    size_t got = 0;
    struct file_row row;
    char *out = mem_alloc(sizeof(content));
    if (!out) return err_set(err, ST_NOMEM, "out of memory");
    enum status st = files_read(db, STR("f1"), 100, out, sizeof(content), &got, err);
    bool same = got == sizeof(content) && out[0] == content[100];
    mem_free(out);
    TRY(st);
    if (!same) return err_set(err, ST_BAD, "other bytes");
    TRY(files_find(db, ANN, STR("f1"), &row, err));
    file_row_deinit(&row);
    const struct files_page page = {.owner = ANN, .limit = 9};
    return files_list(db, &page, count_file, &count, err);
}
READ(read_files)

/* ---- batches ---- */

static const struct str B1 = {"b1", 2};

OP(insert_b1) {
    (void)ctx;
    const struct batch_row row = {.id = B1, .owner = ANN, .input_file = STR("f1")};
    return batches_insert(db, &row, err);
}
RUN(insert_b1)
OP(add_lines) {
    (void)ctx;
    TRY(batches_clear_lines(db, B1, err));
    for (uint32_t i = 0; i < LINES; i++) {
        char id[16];
        snprintf(id, sizeof(id), "line-%u", i);
        const struct batch_line line = {
            .number = i, .custom_id = str_of(id), .body = {content, 700}, .order = LINES - i};
        TRY(batches_add_line(db, B1, &line, err));
    }
    return ST_OK;
}
RUN(add_lines)
OP(start_b1) {
    (void)ctx;
    return batches_start(db, B1, LINES, STR("m"), 20, err);
}
RUN(start_b1)
static enum status put_line(struct store_db *db, uint32_t number, enum line_state state,
                            struct err *err) {
    const struct line_result r = {
        .number = number, .state = state, .status = 200, .body = STR("{}"), .answer_tokens = 3};
    return batches_put_result(db, B1, &r, err);
}
OP(put_first) {
    (void)ctx;
    return put_line(db, 3, LINE_DONE, err);
}
RUN(put_first)
OP(put_more) {
    (void)ctx;
    for (uint32_t i = 0; i < 5; i++) TRY(put_line(db, i, i % 2 ? LINE_DONE : LINE_FAILED, err));
    return ST_OK;
}
RUN(put_more)

static bool count_batch(void *ctx, const struct batch_row *row) {
    (void)row;
    return ++*(int *)ctx > 0;
}
static bool count_line(void *ctx, const struct batch_line *line) {
    (void)line;
    return ++*(int *)ctx > 0;
}
static bool count_result(void *ctx, const struct line_row *row) {
    (void)row;
    return ++*(int *)ctx > 0;
}
OP(read_batches) {
    (void)ctx;
    int count = 0;
    int64_t number = 0;
    struct batch_row row;
    TRY(batches_next_open(db, 0, &number, &row, err));
    batch_row_deinit(&row);
    TRY(batches_find(db, ANN, B1, &row, err));
    batch_row_deinit(&row);
    const struct batches_page page = {.owner = ANN, .limit = 9};
    TRY(batches_list(db, &page, count_batch, &count, err));
    TRY(batches_waiting(db, B1, (struct line_place){0, -1}, 99, count_line, &count, err));
    TRY(batches_results(db, B1, -1, 99, count_result, &count, err));
    return count == 1 + LINES - 5 + LINES ? ST_OK : err_set(err, ST_BAD, "%d rows", count);
}
READ(read_batches)

OP(cancel_b1) {
    (void)ctx;
    return batches_cancel(db, ANN, B1, 30, err);
}
RUN(cancel_b1)
OP(finalize_b1) {
    (void)ctx;
    return batches_finalize(db, B1, LINE_CANCELLED, 31, err);
}
RUN(finalize_b1)
OP(write_output) {
    (void)ctx;
    const struct file_row row = {.id = STR("out"), .owner = ANN, .purpose = STR("batch_output")};
    TRY(files_abandon(db, STR("out"), err));
    TRY(files_create(db, &row, err));
    return files_append(db, STR("out"), STR("{}\n"), err);
}
OP(finish_b1) {
    (void)ctx;
    const struct batch_end end = {.state = BATCH_CANCELLED, .output_file = STR("out"), .now_s = 40};
    return batches_finish(db, B1, &end, err);
}
static enum status run_finish_b1(struct test_store *t) {
    TRY(test_run(t, write_output, NULL));
    return test_run(t, finish_b1, NULL);
}
OP(fail_b2) {
    (void)ctx;
    const struct batch_row row = {.id = STR("b2"), .owner = ANN};
    const struct batch_line line = {.custom_id = STR("1")};
    TRY(batches_insert(db, &row, err));
    TRY(batches_add_line(db, STR("b2"), &line, err));
    return batches_fail(db, STR("b2"), STR("[]"), 50, err);
}
RUN(fail_b2)

/* ---- the end of everything ---- */

OP(delete_f1) {
    (void)ctx;
    return files_delete(db, ANN, STR("f1"), err);
}
RUN(delete_f1)
OP(delete_b1) {
    (void)ctx;
    return batches_delete(db, ANN, B1, err);
}
RUN(delete_b1)
OP(delete_c1) {
    (void)ctx;
    return conversations_delete(db, ANN, STR("c1"), err);
}
RUN(delete_c1)
OP(delete_a2) {
    (void)ctx;
    return answers_delete(db, ANN, STR("a2"), err);
}
RUN(delete_a2)
OP(expire_all) {
    (void)ctx;
    uint32_t count = 0;
    TRY(answers_expire(db, 100, 9, &count, err));
    TRY(files_expire(db, 100, 100, 9, &count, err));
    return batches_expire(db, 100, 9, &count, err);
}
RUN(expire_all)
OP(insert_a3) {
    (void)ctx;
    const struct answer_row row = {.id = STR("a3"), .owner = ANN, .model = STR("m")};
    return answers_insert(db, &row, err);
}
RUN(insert_a3)

#define STEP(name)                                                                                 \
    { #name, run_##name }
const struct scenario_step scenario_steps[] = {
    STEP(conversation), STEP(insert_a1),
    STEP(finish_a1),    STEP(insert_a2),
    STEP(next_open),    STEP(note_a2),
    STEP(finish_a2),    STEP(append_items),
    STEP(read_answers), STEP(change_conversation),
    STEP(upload),       STEP(read_files),
    STEP(insert_b1),    STEP(add_lines),
    STEP(start_b1),     STEP(put_first),
    STEP(put_more),     STEP(read_batches),
    STEP(cancel_b1),    STEP(finalize_b1),
    STEP(finish_b1),    STEP(fail_b2),
    STEP(delete_f1),    STEP(delete_b1),
    STEP(delete_c1),    STEP(delete_a2),
    STEP(expire_all),   STEP(insert_a3),
};
const size_t scenario_count = sizeof(scenario_steps) / sizeof(*scenario_steps);

/* ---- what a store holds ---- */

static const char *const visible[] = {
    "SELECT a.id, a.state, a.finished_s, a.lost_count, a.metadata, length(i.body), i.items,"
    " o.output, o.pieces FROM answers a JOIN answer_inputs i USING (number)"
    " LEFT JOIN answer_outputs o USING (number) ORDER BY a.id",
    "SELECT id, metadata FROM conversations WHERE id IS NOT NULL ORDER BY id",
    "SELECT c.id, i.id, i.json FROM items i JOIN conversations c ON c.number = i.conversation"
    " WHERE c.id IS NOT NULL ORDER BY i.number",
    "SELECT f.id, f.bytes, (SELECT count(*) || ' ' || sum(length(c.bytes)) FROM chunks c"
    " WHERE c.file = f.number) FROM files f WHERE id IS NOT NULL AND is_ready = 1 ORDER BY id",
    "SELECT id, state, rest, model, total, completed, failed, cancelled, expired, answer_tokens,"
    " in_progress_s, finalizing_s, cancelling_s, cancelled_s, failed_s, output_file, errors"
    " FROM batches ORDER BY id",
    "SELECT b.id, l.number, l.custom_id, length(l.body), r.state, r.body FROM batches b"
    " JOIN line_sets s ON s.batch = b.number JOIN lines l ON l.line_set = s.number"
    " LEFT JOIN results r USING (line_set, number) ORDER BY b.id, l.number",
};

static void dump_query(sqlite3 *db, const char *sql, struct buf *out) {
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(stmt); i++) {
            const char *text = (const char *)sqlite3_column_text(stmt, i);
            buf_printf(out, "%s|", text ? text : "NULL");
        }
        buf_put_char(out, '\n');
    }
    if (rc != SQLITE_DONE) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(stmt);
    buf_put_char(out, '\n');
}

char *scenario_dump(const char *dir) {
    char path[256];
    sqlite3 *db = NULL;
    struct buf out;
    size_t len = 0;
    buf_init(&out, 1 << 20);
    snprintf(path, sizeof(path), "%s/jitney.db", dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, "unix"), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    for (size_t i = 0; i < sizeof(visible) / sizeof(*visible); i++)
        dump_query(db, visible[i], &out);
    sqlite3_close(db);
    return buf_take(&out, &len);
}

const char *scenario_state(size_t step) {
    CHECK(step <= scenario_count);
    return states[step];
}

void scenario_learn(void) {
    CHECK(scenario_count <= STEPS_MAX);
    struct test_store t;
    test_make_dir_in(&t, test_quick_parent());
    assert_int_equal(test_reopen(&t), ST_OK);
    for (size_t i = 0; i < scenario_count; i++) {
        states[i] = scenario_dump(t.dir);
        enum status st = scenario_steps[i].run(&t);
        if (st != ST_OK) fail_msg("%s: %s", scenario_steps[i].name, t.err.text);
        test_check(&t);
    }
    states[scenario_count] = scenario_dump(t.dir);
    test_close(&t);
}

void scenario_forget(void) {
    for (size_t i = 0; i <= scenario_count; i++) {
        mem_free(states[i]);
        states[i] = NULL;
    }
}

size_t scenario_judge(struct test_store *t, size_t step, const char *what) {
    char *dump = scenario_dump(t->dir);
    bool is_before = strcmp(dump, states[step]) == 0;
    bool is_after = step < scenario_count && strcmp(dump, states[step + 1]) == 0;
    if (!is_before && !is_after)
        fail_msg(
            "%s: step %s is there in part, or an earlier one is not:\n%s\nexpected\n%s\nor\n%s",
            what, scenario_steps[step].name, dump, states[step], states[step + 1]);
    mem_free(dump);
    return is_before ? step : step + 1;
}

void scenario_complete(struct test_store *t, size_t first) {
    for (size_t i = first; i < scenario_count; i++) {
        enum status st = scenario_steps[i].run(t);
        if (st != ST_OK)
            fail_msg("after the fault, %s: %s: %s", scenario_steps[i].name, status_name(st),
                     t->err.text);
    }
    test_check(t);
    char *dump = scenario_dump(t->dir);
    if (strcmp(dump, states[scenario_count]) != 0)
        fail_msg("the end is\n%s\nexpected\n%s", dump, states[scenario_count]);
    mem_free(dump);
}
