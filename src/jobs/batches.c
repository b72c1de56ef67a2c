/* jobs/batches.c - see jobs/batches.h for the contract: batches, from validation to the end.
 *
 * Lines and their results are in tables of their own, under the number of the batch's line set.
 * Clearing the lines, or the end of the batch, takes the set from the batch, and upkeep.c deletes
 * its rows. A line without a result is WAITING until the batch is finalized; from then on it is in
 * the state `rest` of the batch. So none of these changes takes longer for more lines.
 *
 * Lines are in batch_lines.c.
 */
#include "jobs/batches.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "jobs/batches_int.h"
#include "jobs/db_int.h"
#include "jobs/files.h"
#include "jobs/schema_int.h"

static const char *const state_names[] = {
    [BATCH_VALIDATING] = "validating",   [BATCH_FAILED] = "failed",
    [BATCH_IN_PROGRESS] = "in_progress", [BATCH_FINALIZING] = "finalizing",
    [BATCH_COMPLETED] = "completed",     [BATCH_EXPIRED] = "expired",
    [BATCH_CANCELLING] = "cancelling",   [BATCH_CANCELLED] = "cancelled",
};

const char *batch_state_name(enum batch_state s) {
    CHECK((size_t)s < sizeof(state_names) / sizeof(*state_names));
    return state_names[s];
}

bool batch_state_is_final(enum batch_state s) {
    return s == BATCH_FAILED || s == BATCH_COMPLETED || s == BATCH_EXPIRED || s == BATCH_CANCELLED;
}

/* ---- a batch and its line set ---- */

enum status batch_head_find(struct store_db *db, struct str owner, struct str id,
                            struct batch_head *out, struct err *err) {
    *out = (struct batch_head){0};
    struct query q;
    enum status st = query_begin(&q, db,
                                 "SELECT number, line_set, state, rest, in_progress_s FROM batches"
                                 " WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                                 VALUES(V_TEXT(owner), V_TEXT(id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK)
        *out = (struct batch_head){.number = query_int(&q, 0),
                                   .line_set = query_int(&q, 1),
                                   .state = (enum batch_state)query_int(&q, 2),
                                   .rest = (enum line_state)query_int(&q, 3),
                                   .is_started = query_int(&q, 4) != 0};
    query_end(&q);
    if (st != ST_MISSING) return st;
    return err_set(err, ST_MISSING, "there is no batch %.*s", STR_ARG(id));
}

/* The lines and results of the batch belong to nobody from here on. */
static enum status drop_lines(struct store_db *db, const struct batch_head *b, struct err *err) {
    db->sweeps = true;
    return db_run(db, "UPDATE line_sets SET batch = NULL WHERE number = ?",
                  VALUES(V_INT(b->line_set)), err);
}

static enum status add_line_set(struct store_db *db, int64_t batch, struct err *err) {
    TRY(db_run(db, "INSERT INTO line_sets (batch) VALUES (?)", VALUES(V_INT(batch)), err));
    return db_run(db, "UPDATE batches SET line_set = ? WHERE number = ?",
                  VALUES(V_INT(sqlite3_last_insert_rowid(db->sqlite)), V_INT(batch)), err);
}

enum status batches_insert(struct store_db *db, const struct batch_row *row, struct err *err) {
    TRY(db_reserve(db, row->metadata.len, err));
    enum status st = db_run(
        db,
        "INSERT INTO batches (id, owner, kind, state, rest, line_set, endpoint, model, input_file,"
        " output_file, error_file, window, seed, created_s, in_progress_s, expires_s, finalizing_s,"
        " completed_s, failed_s, expired_s, cancelling_s, cancelled_s, total, completed, failed,"
        " cancelled, expired, prompt_tokens, cached_tokens, answer_tokens, output_after_s, "
        "metadata,"
        " errors) VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?, '', '', ?, ?, ?, ?, ?, 0, 0, ?, 0, 0, 0, ?, 0,"
        " 0, 0, 0, 0, 0, 0, ?, ?, ?)",
        VALUES(V_TEXT(row->id), V_TEXT(row->owner), V_INT(row->kind), V_INT(row->state),
               V_TEXT(row->endpoint), V_TEXT(row->model), V_TEXT(row->input_file),
               V_TEXT(row->window), V_INT(row->seed), V_INT(row->created_s),
               V_INT(row->in_progress_s), V_INT(row->expires_s), V_INT(row->failed_s),
               V_INT(row->total), V_INT(row->output_after_s), V_TEXT(row->metadata),
               V_TEXT(row->errors)),
        err);
    if (st == ST_BAD) return err_set(err, ST_BAD, "batch %.*s exists", STR_ARG(row->id));
    TRY(st);
    return add_line_set(db, sqlite3_last_insert_rowid(db->sqlite), err);
}

enum status batches_clear_lines(struct store_db *db, struct str id, struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.state != BATCH_VALIDATING)
        return err_set(err, ST_BAD,
                       "batch %.*s is %s; only a batch that is validating can lose its lines",
                       STR_ARG(id), batch_state_name(b.state));
    TRY(drop_lines(db, &b, err));
    return add_line_set(db, b.number, err);
}

/* ---- changes of state ---- */

enum status batches_start(struct store_db *db, struct str id, uint32_t total, struct str model,
                          int64_t now_s, struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.state != BATCH_VALIDATING) return ST_OK;
    return db_run(db,
                  "UPDATE batches SET state = ?, total = ?, model = ?, in_progress_s = ?"
                  " WHERE number = ?",
                  VALUES(V_INT(BATCH_IN_PROGRESS), V_INT(total), V_TEXT(model), V_INT(now_s),
                         V_INT(b.number)),
                  err);
}

enum status batches_fail(struct store_db *db, struct str id, struct str errors, int64_t now_s,
                         struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.state != BATCH_VALIDATING) return ST_OK;
    TRY(drop_lines(db, &b, err));
    return db_run(db, "UPDATE batches SET state = ?, errors = ?, failed_s = ? WHERE number = ?",
                  VALUES(V_INT(BATCH_FAILED), V_TEXT(errors), V_INT(now_s), V_INT(b.number)), err);
}

enum status batches_cancel(struct store_db *db, struct str owner, struct str id, int64_t now_s,
                           struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, owner, id, &b, err));
    if (batch_state_is_final(b.state))
        return err_set(err, ST_BAD, "batch %.*s is %s and cannot be cancelled", STR_ARG(id),
                       batch_state_name(b.state));
    if (b.state != BATCH_VALIDATING && b.state != BATCH_IN_PROGRESS) return ST_OK;
    return db_run(db, "UPDATE batches SET state = ?, cancelling_s = ? WHERE number = ?",
                  VALUES(V_INT(BATCH_CANCELLING), V_INT(now_s), V_INT(b.number)), err);
}

enum status batches_finalize(struct store_db *db, struct str id, enum line_state rest,
                             int64_t now_s, struct err *err) {
    CHECK(rest == LINE_CANCELLED || rest == LINE_EXPIRED);
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.state == BATCH_VALIDATING && rest != LINE_EXPIRED)
        return err_set(err, ST_BAD, "batch %.*s is validating and has no results", STR_ARG(id));
    if (b.rest != LINE_WAITING || batch_state_is_final(b.state)) return ST_OK;
    if (!b.is_started) { /* it was validating until now: its lines do not count */
        TRY(drop_lines(db, &b, err));
        TRY(add_line_set(db, b.number, err));
    }
    return db_run(db,
                  "UPDATE batches SET rest = ?1, finalizing_s = ?2,"
                  " state = CASE WHEN state IN (0, 2) THEN 3 ELSE state END," /* FINALIZING */
                  " cancelled = cancelled + CASE WHEN ?1 = 3"                 /* LINE_CANCELLED */
                  "  THEN total - completed - failed - cancelled - expired ELSE 0 END,"
                  " expired = expired + CASE WHEN ?1 = 4" /* LINE_EXPIRED */
                  "  THEN total - completed - failed - cancelled - expired ELSE 0 END"
                  " WHERE number = ?3",
                  VALUES(V_INT(rest), V_INT(now_s), V_INT(b.number)), err);
}
_Static_assert(BATCH_VALIDATING == 0 && BATCH_IN_PROGRESS == 2 && BATCH_FINALIZING == 3 &&
                   LINE_CANCELLED == 3 && LINE_EXPIRED == 4,
               "as batches_finalize writes them");

enum status batches_finish(struct store_db *db, struct str id, const struct batch_end *end,
                           struct err *err) {
    CHECK(batch_state_is_final(end->state));
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (batch_state_is_final(b.state)) return ST_OK;
    if (b.rest == LINE_WAITING)
        return err_set(err, ST_BAD, "batch %.*s is %s and not finalized", STR_ARG(id),
                       batch_state_name(b.state));
    if (end->output_file.len) TRY(files_set_ready(db, end->output_file, err));
    if (end->error_file.len) TRY(files_set_ready(db, end->error_file, err));
    TRY(drop_lines(db, &b, err));
    const char *sql = "UPDATE batches SET state = ?, output_file = ?, error_file = ?,"
                      " completed_s = ?, failed_s = ?, expired_s = ?, cancelled_s = ?"
                      " WHERE number = ?";
    const int64_t now_s = end->now_s;
    /* It was cancelled after its last line had ended: the client was told so. */
    const enum batch_state state = b.state == BATCH_CANCELLING ? BATCH_CANCELLED : end->state;
    return db_run(db, sql,
                  VALUES(V_INT(state), V_TEXT(end->output_file), V_TEXT(end->error_file),
                         V_INT(state == BATCH_COMPLETED ? now_s : 0),
                         V_INT(state == BATCH_FAILED ? now_s : 0),
                         V_INT(state == BATCH_EXPIRED ? now_s : 0),
                         V_INT(state == BATCH_CANCELLED ? now_s : 0), V_INT(b.number)),
                  err);
}

/* ---- reading ---- */

#define COLUMNS                                                                                    \
    "SELECT number, kind, state, seed, created_s, in_progress_s, expires_s, finalizing_s, "        \
    "completed_s, failed_s, expired_s, cancelling_s, cancelled_s, total, completed, failed, "      \
    "cancelled, expired, prompt_tokens, cached_tokens, answer_tokens, output_after_s, id, owner, " \
    "endpoint, model, input_file, output_file, error_file, window, metadata, errors FROM batches "

static const uint16_t text_offsets[] = {
    offsetof(struct batch_row, id),         offsetof(struct batch_row, owner),
    offsetof(struct batch_row, endpoint),   offsetof(struct batch_row, model),
    offsetof(struct batch_row, input_file), offsetof(struct batch_row, output_file),
    offsetof(struct batch_row, error_file), offsetof(struct batch_row, window),
    offsetof(struct batch_row, metadata),   offsetof(struct batch_row, errors),
};

void batch_row_deinit(struct batch_row *row) {
    mem_free(row->memory);
    *row = (struct batch_row){0};
}

static enum status read_row(const struct query *q, struct batch_row *out) {
    *out = (struct batch_row){
        .kind = (enum batch_kind)query_int(q, 1),
        .state = (enum batch_state)query_int(q, 2),
        .seed = (uint64_t)query_int(q, 3),
        .created_s = query_int(q, 4),
        .in_progress_s = query_int(q, 5),
        .expires_s = query_int(q, 6),
        .finalizing_s = query_int(q, 7),
        .completed_s = query_int(q, 8),
        .failed_s = query_int(q, 9),
        .expired_s = query_int(q, 10),
        .cancelling_s = query_int(q, 11),
        .cancelled_s = query_int(q, 12),
        .total = (uint32_t)query_int(q, 13),
        .completed = (uint32_t)query_int(q, 14),
        .failed = (uint32_t)query_int(q, 15),
        .cancelled = (uint32_t)query_int(q, 16),
        .expired = (uint32_t)query_int(q, 17),
        .prompt_tokens = (uint64_t)query_int(q, 18),
        .cached_tokens = (uint64_t)query_int(q, 19),
        .answer_tokens = (uint64_t)query_int(q, 20),
        .output_after_s = query_int(q, 21),
    };
    const struct text_columns columns = {text_offsets, sizeof(text_offsets) / sizeof(*text_offsets),
                                         22};
    return query_copy_texts(q, &columns, out, &out->memory);
}

enum status batches_find(struct store_db *db, struct str owner, struct str id,
                         struct batch_row *out, struct err *err) {
    *out = (struct batch_row){0};
    struct query q;
    enum status st = query_begin(&q, db, COLUMNS "WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                                 VALUES(V_TEXT(owner), V_TEXT(id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) st = read_row(&q, out);
    query_end(&q);
    if (st != ST_MISSING) return st;
    return err_set(err, ST_MISSING, "there is no batch %.*s", STR_ARG(id));
}

enum status batches_next_open(struct store_db *db, int64_t after, int64_t *rowid,
                              struct batch_row *out, struct err *err) {
    *out = (struct batch_row){0};
    struct query q;
    enum status st = query_begin(
        &q, db, COLUMNS "WHERE " BATCH_IS_OPEN " AND number > ? ORDER BY number LIMIT 1",
        VALUES(V_INT(after)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) *rowid = query_int(&q, 0);
    if (st == ST_OK) st = read_row(&q, out);
    query_end(&q);
    return st;
}

bool batches_is_new(const struct store_db *db, int64_t rowid) { return rowid > db->last_batch; }

#define PAGE_ANY(order) COLUMNS "WHERE ?1 = '' AND kind = ?2 AND number " order " LIMIT ?4"
#define PAGE_OWNED(order) COLUMNS "WHERE owner = ?1 AND kind = ?2 AND number " order " LIMIT ?4"
#define UP "> ?3 ORDER BY number"
#define DOWN "< ?3 ORDER BY number DESC"

enum status batches_list(struct store_db *db, const struct batches_page *page,
                         bool (*each)(void *ctx, const struct batch_row *row), void *ctx,
                         struct err *err) {
    int64_t from = page->ascending ? 0 : INT64_MAX;
    if (page->after.len) {
        struct batch_head after;
        TRY(batch_head_find(db, page->owner, page->after, &after, err));
        from = after.number;
    }
    const char *any = page->ascending ? PAGE_ANY(UP) : PAGE_ANY(DOWN);
    const char *owned = page->ascending ? PAGE_OWNED(UP) : PAGE_OWNED(DOWN);
    struct query q;
    enum status st = query_begin(
        &q, db, page->owner.len ? owned : any,
        VALUES(V_TEXT(page->owner), V_INT(page->kind), V_INT(from), V_INT(page->limit)), err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK) {
        struct batch_row row;
        st = read_row(&q, &row);
        if (st == ST_OK) goes_on = each(ctx, &row);
        batch_row_deinit(&row);
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

/* ---- deleting ---- */

static enum status delete_row(struct store_db *db, const struct batch_head *b, struct err *err) {
    TRY(drop_lines(db, b, err));
    return db_run(db, "DELETE FROM batches WHERE number = ?", VALUES(V_INT(b->number)), err);
}

enum status batches_delete(struct store_db *db, struct str owner, struct str id, struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, owner, id, &b, err));
    if (!batch_state_is_final(b.state))
        return err_set(err, ST_BAD, "batch %.*s is %s; cancel it first", STR_ARG(id),
                       batch_state_name(b.state));
    return delete_row(db, &b, err);
}

enum status batches_expire(struct store_db *db, int64_t before_s, uint32_t limit, uint32_t *count,
                           struct err *err) {
    for (*count = 0; *count < limit; ++*count) {
        struct query q;
        struct batch_head b = {0};
        enum status st =
            query_begin(&q, db,
                        "SELECT number, line_set FROM batches WHERE NOT (" BATCH_IS_OPEN
                        ") AND max(completed_s, failed_s, expired_s, cancelled_s) < ?"
                        " ORDER BY number LIMIT 1",
                        VALUES(V_INT(before_s)), err);
        if (st == ST_OK) st = query_next(&q);
        if (st == ST_OK) b = (struct batch_head){query_int(&q, 0), query_int(&q, 1), 0, 0, 0};
        query_end(&q);
        if (st == ST_MISSING) return ST_OK;
        TRY(st);
        TRY(delete_row(db, &b, err));
    }
    return ST_OK;
}
