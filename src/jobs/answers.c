/* jobs/answers.c - see jobs/answers.h for the contract: stored answers.
 *
 * Entry points: insert, finish, find, next_open, note_lost, delete, set_metadata, list, items,
 * expire. A row is spread over three tables (README.md); `number` is its key in all of them.
 */
#include "jobs/answers.h"

#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "jobs/conversations_int.h"
#include "jobs/db_int.h"

enum { CHAIN_MAX = 10000 }; /* answers that one answer can follow */

void answer_row_deinit(struct answer_row *row) {
    mem_free(row->memory);
    *row = (struct answer_row){0};
}

/* ---- writing ---- */

static size_t bytes_of(const struct answer_row *row) {
    return row->body.len + row->prompt.len + row->items.len + row->metadata.len;
}

enum status answers_insert(struct store_db *db, const struct answer_row *row, struct err *err) {
    TRY(db_reserve(db, bytes_of(row), err));
    enum status st = db_run(
        db,
        "INSERT INTO answers (id, request_id, owner, codec, route, model, fingerprint, previous,"
        " conversation, seed, created_s, finished_s, priority, is_stored, is_background,"
        " lost_count, state, metadata)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, 0, 0, ?)",
        VALUES(V_TEXT(row->id), V_TEXT(row->request_id), V_TEXT(row->owner), V_TEXT(row->codec),
               V_TEXT(row->route), V_TEXT(row->model), V_TEXT(row->fingerprint),
               V_TEXT(row->previous), V_TEXT(row->conversation), V_INT(row->seed),
               V_INT(row->created_s), V_INT(row->priority), V_INT(row->is_stored),
               V_INT(row->is_background), V_TEXT(row->metadata)),
        err);
    if (st == ST_BAD) return err_set(err, ST_BAD, "answer %.*s exists", STR_ARG(row->id));
    TRY(st);
    return db_run(db, "INSERT INTO answer_inputs (number, body, prompt, items) VALUES (?, ?, ?, ?)",
                  VALUES(V_INT(sqlite3_last_insert_rowid(db->sqlite)), V_TEXT(row->body),
                         V_TEXT(row->prompt), V_TEXT(row->items)),
                  err);
}

static enum status say_missing(struct str id, struct err *err) {
    return err_set(err, ST_MISSING, "there is no answer %.*s", STR_ARG(id));
}

/* Its input and output become items of its conversation, if that still exists. */
static enum status extend_conversation(struct store_db *db, int64_t number, struct str output,
                                       struct err *err) {
    struct query q;
    int64_t conversation = 0;
    enum status st = query_begin(
        &q, db,
        "SELECT c.number, i.items FROM answers a"
        " JOIN conversations c ON c.id = a.conversation AND c.owner = a.owner"
        " JOIN answer_inputs i ON i.number = a.number WHERE a.number = ? AND a.conversation <> ''",
        VALUES(V_INT(number)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) {
        conversation = query_int(&q, 0);
        st = conversation_extend(db, conversation, query_text(&q, 1), err);
    }
    query_end(&q);
    if (st == ST_OK) st = conversation_extend(db, conversation, output, err);
    return st == ST_MISSING ? ST_OK : st;
}

enum status answers_finish(struct store_db *db, struct str id, const struct answer_end *end,
                           struct err *err) {
    CHECK(end->state != ANSWER_OPEN);
    int64_t number = 0;
    enum status st =
        db_get_int(db, "SELECT number FROM answers WHERE id = ?", VALUES(V_TEXT(id)), &number, err);
    if (st == ST_MISSING) return say_missing(id, err);
    TRY(st);
    TRY(db_run(db, "UPDATE answers SET state = ?, finished_s = ? WHERE number = ? AND state = 0",
               VALUES(V_INT(end->state), V_INT(end->finished_s), V_INT(number)), err));
    if (db_changes(db) == 0) return ST_OK;
    TRY(db_run(db, "INSERT INTO answer_outputs (number, output, whole, pieces) VALUES (?, ?, ?, ?)",
               VALUES(V_INT(number), V_TEXT(end->output), V_TEXT(end->whole), V_TEXT(end->pieces)),
               err));
    return end->state == ANSWER_DONE ? extend_conversation(db, number, end->output, err) : ST_OK;
}

enum status answers_note_lost(struct store_db *db, struct str id, struct err *err) {
    TRY(db_run(db, "UPDATE answers SET lost_count = lost_count + 1 WHERE id = ?",
               VALUES(V_TEXT(id)), err));
    return db_changes(db) ? ST_OK : say_missing(id, err);
}

enum status answers_set_metadata(struct store_db *db, struct str owner, struct str id,
                                 struct str metadata, struct err *err) {
    TRY(db_run(db, "UPDATE answers SET metadata = ?3 WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
               VALUES(V_TEXT(owner), V_TEXT(id), V_TEXT(metadata)), err));
    return db_changes(db) ? ST_OK : say_missing(id, err);
}

/* ---- deleting ---- */

static enum status delete_row(struct store_db *db, int64_t number, struct err *err) {
    const struct values values = VALUES(V_INT(number));
    TRY(db_run(db, "DELETE FROM answer_inputs WHERE number = ?", values, err));
    TRY(db_run(db, "DELETE FROM answer_outputs WHERE number = ?", values, err));
    return db_run(db, "DELETE FROM answers WHERE number = ?", values, err);
}

enum status answers_delete(struct store_db *db, struct str owner, struct str id, struct err *err) {
    int64_t number = 0;
    enum status st =
        db_get_int(db, "SELECT number FROM answers WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                   VALUES(V_TEXT(owner), V_TEXT(id)), &number, err);
    if (st == ST_MISSING) return say_missing(id, err);
    TRY(st);
    return delete_row(db, number, err);
}

enum status answers_expire(struct store_db *db, int64_t before_s, uint32_t limit, uint32_t *count,
                           struct err *err) {
    for (*count = 0; *count < limit; ++*count) {
        int64_t number = 0;
        enum status st =
            db_get_int(db, "SELECT number FROM answers WHERE state <> 0 AND finished_s < ? LIMIT 1",
                       VALUES(V_INT(before_s)), &number, err);
        if (st == ST_MISSING) return ST_OK;
        TRY(st);
        TRY(delete_row(db, number, err));
    }
    return ST_OK;
}

/* ---- reading ---- */

#define TEXTS                                                                                      \
    "a.id, a.request_id, a.owner, a.codec, a.route, a.model, a.fingerprint, a.metadata, "          \
    "a.previous, a.conversation"
#define NUMBERS                                                                                    \
    "a.number, a.seed, a.created_s, a.finished_s, a.priority, a.is_stored, a.is_background, "      \
    "a.lost_count, a.state, "
#define LONG_TEXTS ", i.body, i.prompt, i.items, o.output, o.whole, o.pieces"
#define SELECT_SHORT "SELECT " NUMBERS TEXTS " FROM answers a "
#define SELECT_LONG                                                                                \
    "SELECT " NUMBERS TEXTS LONG_TEXTS " FROM answers a JOIN answer_inputs i USING (number)"       \
    " LEFT JOIN answer_outputs o USING (number) "

static const uint16_t text_offsets[] = {
    offsetof(struct answer_row, id),          offsetof(struct answer_row, request_id),
    offsetof(struct answer_row, owner),       offsetof(struct answer_row, codec),
    offsetof(struct answer_row, route),       offsetof(struct answer_row, model),
    offsetof(struct answer_row, fingerprint), offsetof(struct answer_row, metadata),
    offsetof(struct answer_row, previous),    offsetof(struct answer_row, conversation),
    offsetof(struct answer_row, body),        offsetof(struct answer_row, prompt),
    offsetof(struct answer_row, items),       offsetof(struct answer_row, output),
    offsetof(struct answer_row, whole),       offsetof(struct answer_row, pieces),
};
enum {
    TEXT_COUNT = sizeof(text_offsets) / sizeof(*text_offsets),
    SHORT_COUNT = TEXT_COUNT - 6, /* to `conversation` */
    PAGE_COUNT = TEXT_COUNT - 1,  /* to `whole` */
};

static enum status read_row(const struct query *q, uint32_t text_count, struct answer_row *out) {
    *out = (struct answer_row){
        .seed = (uint64_t)query_int(q, 1),
        .created_s = query_int(q, 2),
        .finished_s = query_int(q, 3),
        .priority = (int32_t)query_int(q, 4),
        .is_stored = query_int(q, 5) != 0,
        .is_background = query_int(q, 6) != 0,
        .lost_count = (uint32_t)query_int(q, 7),
        .state = (enum answer_state)query_int(q, 8),
    };
    const struct text_columns columns = {text_offsets, text_count, 9};
    return query_copy_texts(q, &columns, out, &out->memory);
}

/* The first row of a query into `out`. */
static enum status read_one(struct store_db *db, const char *sql, struct values values,
                            uint32_t text_count, struct answer_row *out, struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db, sql, values, err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) st = read_row(&q, text_count, out);
    query_end(&q);
    return st;
}

#define BY_ID "WHERE a.id = ?2 AND (?1 = '' OR a.owner = ?1)"
#define BY_REQUEST                                                                                 \
    "WHERE a.request_id = ?2 AND (?1 = '' OR a.owner = ?1) ORDER BY a.number DESC LIMIT 1"

enum status answers_find(struct store_db *db, struct str owner, struct str id, bool with_texts,
                         struct answer_row *out, struct err *err) {
    *out = (struct answer_row){0};
    const struct values values = VALUES(V_TEXT(owner), V_TEXT(id));
    const uint32_t texts = with_texts ? TEXT_COUNT : SHORT_COUNT;
    const char *by_id = with_texts ? SELECT_LONG BY_ID : SELECT_SHORT BY_ID;
    const char *by_request = with_texts ? SELECT_LONG BY_REQUEST : SELECT_SHORT BY_REQUEST;
    enum status st = read_one(db, by_id, values, texts, out, err);
    if (st == ST_MISSING) st = read_one(db, by_request, values, texts, out, err);
    return st == ST_MISSING ? say_missing(id, err) : st;
}

enum status answers_next_open(struct store_db *db, struct str model, int64_t after, int64_t *rowid,
                              struct answer_row *out, struct err *err) {
    *out = (struct answer_row){0};
    struct query q;
    const char *sql = model.len ? SELECT_LONG "WHERE a.state = 0 AND a.model = ?1 AND a.number > ?2"
                                              " ORDER BY a.number LIMIT 1"
                                : SELECT_LONG "WHERE a.state = 0 AND ?1 = '' AND a.number > ?2"
                                              " ORDER BY a.number LIMIT 1";
    enum status st = query_begin(&q, db, sql, VALUES(V_TEXT(model), V_INT(after)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) *rowid = query_int(&q, 0);
    if (st == ST_OK) st = read_row(&q, TEXT_COUNT, out);
    query_end(&q);
    return st;
}

/* ---- a page of them ---- */

#define SELECT_PAGE                                                                                \
    "SELECT " NUMBERS TEXTS ", '', '', '', '', o.whole FROM answers a"                             \
    " JOIN answer_outputs o USING (number) WHERE a.is_stored = 1 AND a.state = 1 AND "
#define PAGE_ANY(order)                                                                            \
    SELECT_PAGE "?1 = '' AND a.codec = ?2 AND (?3 = '' OR a.model = ?3)"                           \
                " AND a.number " order " LIMIT ?5"
#define PAGE_OWNED(order)                                                                          \
    SELECT_PAGE "a.owner = ?1 AND a.codec = ?2 AND (?3 = '' OR a.model = ?3)"                      \
                " AND a.number " order " LIMIT ?5"
#define UP "> ?4 ORDER BY a.number"
#define DOWN "< ?4 ORDER BY a.number DESC"

enum status answers_list(struct store_db *db, const struct answers_page *page,
                         bool (*each)(void *ctx, const struct answer_row *row), void *ctx,
                         struct err *err) {
    int64_t from = page->ascending ? 0 : INT64_MAX;
    if (page->after.len) {
        enum status st =
            db_get_int(db, "SELECT number FROM answers WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                       VALUES(V_TEXT(page->owner), V_TEXT(page->after)), &from, err);
        if (st == ST_MISSING) return say_missing(page->after, err);
        TRY(st);
    }
    const char *any = page->ascending ? PAGE_ANY(UP) : PAGE_ANY(DOWN);
    const char *owned = page->ascending ? PAGE_OWNED(UP) : PAGE_OWNED(DOWN);
    struct query q;
    enum status st = query_begin(&q, db, page->owner.len ? owned : any,
                                 VALUES(V_TEXT(page->owner), V_TEXT(page->codec),
                                        V_TEXT(page->model), V_INT(from), V_INT(page->limit)),
                                 err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK) {
        struct answer_row row;
        st = read_row(&q, PAGE_COUNT, &row);
        if (st == ST_OK) goes_on = each(ctx, &row);
        answer_row_deinit(&row);
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

/* ---- the items along `previous` ---- */

/* The answers from the last one back to the first, by number. */
struct chain {
    int64_t *numbers; /* heap */
    uint32_t count, cap;
};

static enum status chain_add(struct chain *c, int64_t number, struct err *err) {
    if (c->count == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 16;
        int64_t *numbers = mem_realloc(c->numbers, cap * sizeof(*numbers));
        if (!numbers) return err_set(err, ST_NOMEM, "out of memory");
        c->numbers = numbers;
        c->cap = cap;
    }
    c->numbers[c->count++] = number;
    return ST_OK;
}

/* Look at answer *id, add it, and put the id of the one before it into *id (`name` holds it). */
static enum status chain_step(struct store_db *db, struct str owner, struct str *id,
                              struct buf *name, struct chain *c, struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db,
                                 "SELECT number, state, previous FROM answers"
                                 " WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                                 VALUES(V_TEXT(owner), V_TEXT(*id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_MISSING) st = say_missing(*id, err);
    if (st == ST_OK && query_int(&q, 1) != ANSWER_DONE)
        st = err_set(err, ST_BAD, "answer %.*s is not complete", STR_ARG(*id));
    if (st == ST_OK) st = chain_add(c, query_int(&q, 0), err);
    if (st == ST_OK) {
        buf_clear(name);
        buf_put_str(name, query_text(&q, 2));
        if (buf_status(name) != ST_OK) st = err_set(err, ST_NOMEM, "out of memory");
        *id = buf_str(name);
    }
    query_end(&q);
    return st;
}

static enum status find_chain(struct store_db *db, struct str owner, struct str id, struct chain *c,
                              struct err *err) {
    struct buf names[2]; /* the id that is looked for and the one that is found */
    buf_init(&names[0], 4096);
    buf_init(&names[1], 4096);
    enum status st = ST_OK;
    do {
        st = chain_step(db, owner, &id, &names[c->count % 2], c, err);
        if (st == ST_OK && c->count > CHAIN_MAX)
            st = err_set(err, ST_BAD, "the conversation has more than %d responses", CHAIN_MAX);
    } while (st == ST_OK && id.len);
    buf_deinit(&names[0]);
    buf_deinit(&names[1]);
    return st;
}

/* What is between the brackets of a JSON list, with a comma before it if needed. */
static void put_members(struct buf *out, struct str list) {
    struct str s = str_trim(list);
    if (s.len < 2 || s.ptr[0] != '[' || s.ptr[s.len - 1] != ']') return;
    s = str_trim((struct str){s.ptr + 1, s.len - 2});
    if (!s.len) return;
    if (out->len > 1) buf_put_char(out, ',');
    buf_put_str(out, s);
}

static enum status put_items(struct store_db *db, int64_t number, struct buf *out,
                             struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db,
                                 "SELECT i.items, o.output FROM answer_inputs i"
                                 " JOIN answer_outputs o USING (number) WHERE number = ?",
                                 VALUES(V_INT(number)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) {
        put_members(out, query_text(&q, 0));
        put_members(out, query_text(&q, 1));
    }
    query_end(&q);
    return st;
}

enum status answers_items(struct store_db *db, struct str owner, struct str id, size_t bytes_max,
                          struct str *out, struct err *err) {
    struct chain c = {0};
    struct buf list;
    buf_init(&list, bytes_max);
    buf_put_char(&list, '[');
    enum status st = find_chain(db, owner, id, &c, err);
    while (st == ST_OK && c.count && buf_status(&list) == ST_OK)
        st = put_items(db, c.numbers[--c.count], &list, err);
    mem_free(c.numbers);
    buf_put_char(&list, ']');
    if (st == ST_OK) st = items_take(&list, out, err);
    buf_deinit(&list);
    return st;
}
