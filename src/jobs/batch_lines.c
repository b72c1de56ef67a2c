/* jobs/batch_lines.c - see jobs/batches.h for the contract: the lines of batches and their results.
 */
#include "base/check.h"
#include "jobs/batches_int.h"
#include "jobs/db_int.h"

/* ---- validation ---- */

static enum status say_used(struct store_db *db, int64_t line_set, const struct batch_line *line,
                            struct err *err) {
    int64_t earlier = 0;
    enum status st = db_get_int(db, "SELECT number FROM lines WHERE line_set = ? AND custom_id = ?",
                                VALUES(V_INT(line_set), V_TEXT(line->custom_id)), &earlier, err);
    if (st == ST_MISSING) return err_set(err, ST_BAD, "line %u was added before", line->number + 1);
    TRY(st);
    return err_set(err, ST_BAD, "custom_id \"%.*s\" is used by line %lld", STR_ARG(line->custom_id),
                   (long long)earlier + 1);
}

enum status batches_add_line(struct store_db *db, struct str id, const struct batch_line *line,
                             struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.state != BATCH_VALIDATING && b.state != BATCH_IN_PROGRESS)
        return err_set(err, ST_BAD, "batch %.*s is %s and takes no lines", STR_ARG(id),
                       batch_state_name(b.state));
    TRY(db_reserve(db, line->body.len, err));
    enum status st = db_run(db,
                            "INSERT INTO lines (line_set, number, turn, custom_id, url, body)"
                            " VALUES (?, ?, ?, ?, ?, ?)",
                            VALUES(V_INT(b.line_set), V_INT(line->number), V_INT(line->order),
                                   V_TEXT(line->custom_id), V_TEXT(line->url), V_TEXT(line->body)),
                            err);
    return st == ST_BAD ? say_used(db, b.line_set, line, err) : st;
}

/* ---- running ---- */

enum status batches_waiting(struct store_db *db, struct str id, struct line_place after,
                            uint32_t limit, bool (*each)(void *ctx, const struct batch_line *line),
                            void *ctx, struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.rest != LINE_WAITING || batch_state_is_final(b.state)) return ST_OK;
    if (after.number < 0) after.order = 0;
    struct query q;
    enum status st = query_begin(
        &q, db,
        "SELECT number, turn, custom_id, url, body FROM lines WHERE line_set = ?1"
        " AND (turn, number) > (?2, ?3) AND NOT EXISTS (SELECT 1 FROM results r"
        " WHERE r.line_set = ?1 AND r.number = lines.number) ORDER BY turn, number LIMIT ?4",
        VALUES(V_INT(b.line_set), V_INT(after.order), V_INT(after.number), V_INT(limit)), err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK) {
        const struct batch_line line = {.number = (uint32_t)query_int(&q, 0),
                                        .order = (uint64_t)query_int(&q, 1),
                                        .custom_id = query_text(&q, 2),
                                        .url = query_text(&q, 3),
                                        .body = query_text(&q, 4)};
        goes_on = each(ctx, &line);
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

static enum status count_result(struct store_db *db, int64_t batch, const struct line_result *r,
                                struct err *err) {
    return db_run(
        db,
        "UPDATE batches SET completed = completed + ?, failed = failed + ?,"
        " cancelled = cancelled + ?, expired = expired + ?, prompt_tokens = prompt_tokens + ?,"
        " cached_tokens = cached_tokens + ?, answer_tokens = answer_tokens + ? WHERE number = ?",
        VALUES(V_INT(r->state == LINE_DONE), V_INT(r->state == LINE_FAILED),
               V_INT(r->state == LINE_CANCELLED), V_INT(r->state == LINE_EXPIRED),
               V_INT(r->prompt_tokens), V_INT(r->cached_tokens), V_INT(r->answer_tokens),
               V_INT(batch)),
        err);
}

enum status batches_put_result(struct store_db *db, struct str id, const struct line_result *r,
                               struct err *err) {
    CHECK(r->state != LINE_WAITING);
    struct batch_head b;
    int64_t line = 0;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (b.rest != LINE_WAITING || batch_state_is_final(b.state)) return ST_OK;
    if (!b.is_started)
        return err_set(err, ST_BAD, "batch %.*s is %s and takes no results", STR_ARG(id),
                       batch_state_name(b.state));
    enum status st = db_get_int(db, "SELECT 1 FROM lines WHERE line_set = ? AND number = ?",
                                VALUES(V_INT(b.line_set), V_INT(r->number)), &line, err);
    if (st == ST_MISSING)
        return err_set(err, ST_MISSING, "batch %.*s has no line %u", STR_ARG(id), r->number + 1);
    TRY(st);
    TRY(db_run(db,
               "INSERT OR IGNORE INTO results (line_set, number, state, status, prompt_tokens,"
               " cached_tokens, answer_tokens, request_id, body)"
               " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
               VALUES(V_INT(b.line_set), V_INT(r->number), V_INT(r->state), V_INT(r->status),
                      V_INT(r->prompt_tokens), V_INT(r->cached_tokens), V_INT(r->answer_tokens),
                      V_TEXT(r->request_id), V_TEXT(r->body)),
               err));
    return db_changes(db) ? count_result(db, b.number, r, err) : ST_OK;
}

/* ---- the end ---- */

enum status batches_results(struct store_db *db, struct str id, int64_t after, uint32_t limit,
                            bool (*each)(void *ctx, const struct line_row *row), void *ctx,
                            struct err *err) {
    struct batch_head b;
    TRY(batch_head_find(db, STR(""), id, &b, err));
    if (batch_state_is_final(b.state)) return ST_OK; /* its lines are being deleted */
    struct query q;
    enum status st = query_begin(
        &q, db,
        "SELECT number, turn, custom_id, url, coalesce(r.state, ?1), r.status, r.prompt_tokens,"
        " r.cached_tokens, r.answer_tokens, r.request_id, r.body"
        " FROM lines LEFT JOIN results r USING (line_set, number)"
        " WHERE line_set = ?2 AND number > ?3 ORDER BY number LIMIT ?4",
        VALUES(V_INT(b.rest), V_INT(b.line_set), V_INT(after), V_INT(limit)), err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK) {
        const uint32_t number = (uint32_t)query_int(&q, 0);
        const struct line_row row = {
            .line = {.number = number,
                     .order = (uint64_t)query_int(&q, 1),
                     .custom_id = query_text(&q, 2),
                     .url = query_text(&q, 3)},
            .result = {.number = number,
                       .state = (enum line_state)query_int(&q, 4),
                       .status = (uint32_t)query_int(&q, 5),
                       .prompt_tokens = (uint64_t)query_int(&q, 6),
                       .cached_tokens = (uint64_t)query_int(&q, 7),
                       .answer_tokens = (uint64_t)query_int(&q, 8),
                       .request_id = query_text(&q, 9),
                       .body = query_text(&q, 10)},
        };
        goes_on = each(ctx, &row);
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}
