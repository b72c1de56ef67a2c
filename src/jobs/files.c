/* jobs/files.c - see jobs/files.h for the contract: files of clients.
 *
 * A chunk is known by the offset of its first byte. Deleting a file takes its id away; upkeep.c
 * deletes its chunks.
 */
#include "jobs/files.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "jobs/db_int.h"
#include "jobs/schema_int.h"

#define OUTPUT_PURPOSE                                                                             \
    "batch_output" /* results of earlier work: may use what is reserved for them */

static enum status say_missing(struct str id, struct err *err) {
    return err_set(err, ST_MISSING, "there is no file %.*s", STR_ARG(id));
}

/* ---- writing ---- */

enum status files_create(struct store_db *db, const struct file_row *row, struct err *err) {
    if (!str_is(row->purpose, OUTPUT_PURPOSE)) TRY(db_reserve(db, 0, err));
    enum status st = db_run(
        db,
        "INSERT INTO files (id, owner, filename, purpose, bytes, created_s, expires_s, is_ready)"
        " VALUES (?, ?, ?, ?, 0, ?, ?, 0)",
        VALUES(V_TEXT(row->id), V_TEXT(row->owner), V_TEXT(row->filename), V_TEXT(row->purpose),
               V_INT(row->created_s), V_INT(row->expires_s)),
        err);
    if (st == ST_BAD) return err_set(err, ST_BAD, "file %.*s exists", STR_ARG(row->id));
    return st;
}

/* What is needed to append to a file. */
struct growing {
    int64_t number, bytes;
    bool is_output;
};

static enum status find_growing(struct store_db *db, struct str id, struct growing *out,
                                struct err *err) {
    *out = (struct growing){0};
    struct query q;
    enum status st = query_begin(&q, db,
                                 "SELECT number, bytes, purpose = '" OUTPUT_PURPOSE
                                 "', is_ready FROM files WHERE id = ?",
                                 VALUES(V_TEXT(id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) {
        *out = (struct growing){query_int(&q, 0), query_int(&q, 1), query_int(&q, 2) != 0};
        if (query_int(&q, 3))
            st = err_set(err, ST_BAD, "file %.*s is complete, nothing can be added", STR_ARG(id));
    }
    query_end(&q);
    return st == ST_MISSING ? say_missing(id, err) : st;
}

enum status files_append(struct store_db *db, struct str id, struct str bytes, struct err *err) {
    struct growing file;
    TRY(find_growing(db, id, &file, err));
    if (!file.is_output) TRY(db_reserve(db, bytes.len, err));
    while (bytes.len) {
        struct str chunk = str_take(bytes, FILE_CHUNK_BYTES);
        TRY(db_run(db, "INSERT INTO chunks (file, start, bytes) VALUES (?, ?, ?)",
                   VALUES(V_INT(file.number), V_INT(file.bytes), V_BYTES(chunk)), err));
        file.bytes += (int64_t)chunk.len;
        bytes = str_skip(bytes, chunk.len);
    }
    return db_run(db, "UPDATE files SET bytes = ? WHERE number = ?",
                  VALUES(V_INT(file.bytes), V_INT(file.number)), err);
}

enum status files_set_ready(struct store_db *db, struct str id, struct err *err) {
    TRY(db_run(db, "UPDATE files SET is_ready = 1 WHERE id = ?", VALUES(V_TEXT(id)), err));
    return db_changes(db) ? ST_OK : say_missing(id, err);
}

enum status files_abandon(struct store_db *db, struct str id, struct err *err) {
    db->sweeps = true;
    return db_run(db, "UPDATE files SET id = NULL WHERE id = ? AND is_ready = 0",
                  VALUES(V_TEXT(id)), err);
}

/* ---- reading ---- */

#define COLUMNS                                                                                    \
    "SELECT number, bytes, created_s, expires_s, id, owner, filename, purpose FROM files "

void file_row_deinit(struct file_row *row) {
    mem_free(row->memory);
    *row = (struct file_row){0};
}

static enum status read_row(const struct query *q, struct file_row *out) {
    static const uint16_t offsets[] = {
        offsetof(struct file_row, id), offsetof(struct file_row, owner),
        offsetof(struct file_row, filename), offsetof(struct file_row, purpose)};
    *out = (struct file_row){.bytes = (uint64_t)query_int(q, 1),
                             .created_s = query_int(q, 2),
                             .expires_s = query_int(q, 3),
                             .is_ready = true};
    return query_copy_texts(q, &(struct text_columns){offsets, 4, 4}, out, &out->memory);
}

enum status files_find(struct store_db *db, struct str owner, struct str id, struct file_row *out,
                       struct err *err) {
    *out = (struct file_row){0};
    struct query q;
    enum status st =
        query_begin(&q, db, COLUMNS "WHERE id = ?2 AND is_ready = 1 AND (?1 = '' OR owner = ?1)",
                    VALUES(V_TEXT(owner), V_TEXT(id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) st = read_row(&q, out);
    query_end(&q);
    return st == ST_MISSING ? say_missing(id, err) : st;
}

enum status files_read(struct store_db *db, struct str id, uint64_t offset, char *out, size_t cap,
                       size_t *got, struct err *err) {
    int64_t file = 0;
    *got = 0;
    enum status st = db_get_int(db, "SELECT number FROM files WHERE id = ? AND is_ready = 1",
                                VALUES(V_TEXT(id)), &file, err);
    if (st == ST_MISSING) return say_missing(id, err);
    TRY(st);
    if (offset > INT64_MAX) return ST_OK;
    struct query q;
    /* From the chunk on that has the first byte. */
    st = query_begin(&q, db,
                     "SELECT start, bytes FROM chunks WHERE file = ?1 AND start >= coalesce("
                     "(SELECT max(start) FROM chunks WHERE file = ?1 AND start <= ?2), 0)"
                     " ORDER BY start",
                     VALUES(V_INT(file), V_INT(offset)), err);
    while (st == ST_OK && *got < cap && (st = query_next(&q)) == ST_OK) {
        uint64_t start = (uint64_t)query_int(&q, 0), at = offset + *got;
        CHECK(at >= start);
        struct str rest = str_skip(query_text(&q, 1), (size_t)(at - start));
        rest = str_take(rest, cap - *got);
        if (rest.len) memcpy(out + *got, rest.ptr, rest.len);
        *got += rest.len;
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

#define PAGE_ANY(order)                                                                            \
    COLUMNS "WHERE ?1 = '' AND is_ready = 1 AND id IS NOT NULL AND (?2 = '' OR purpose = ?2)"      \
            " AND number " order " LIMIT ?4"
#define PAGE_OWNED(order)                                                                          \
    COLUMNS "WHERE owner = ?1 AND is_ready = 1 AND id IS NOT NULL AND (?2 = '' OR purpose = ?2)"   \
            " AND number " order " LIMIT ?4"
#define UP "> ?3 ORDER BY number"
#define DOWN "< ?3 ORDER BY number DESC"

enum status files_list(struct store_db *db, const struct files_page *page,
                       bool (*each)(void *ctx, const struct file_row *row), void *ctx,
                       struct err *err) {
    int64_t from = page->ascending ? 0 : INT64_MAX;
    if (page->after.len) {
        enum status st =
            db_get_int(db, "SELECT number FROM files WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                       VALUES(V_TEXT(page->owner), V_TEXT(page->after)), &from, err);
        if (st == ST_MISSING) return say_missing(page->after, err);
        TRY(st);
    }
    const char *any = page->ascending ? PAGE_ANY(UP) : PAGE_ANY(DOWN);
    const char *owned = page->ascending ? PAGE_OWNED(UP) : PAGE_OWNED(DOWN);
    struct query q;
    enum status st = query_begin(
        &q, db, page->owner.len ? owned : any,
        VALUES(V_TEXT(page->owner), V_TEXT(page->purpose), V_INT(from), V_INT(page->limit)), err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK) {
        struct file_row row;
        st = read_row(&q, &row);
        if (st == ST_OK) goes_on = each(ctx, &row);
        file_row_deinit(&row);
    }
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

/* ---- deleting ---- */

static enum status drop_file(struct store_db *db, int64_t number, struct err *err) {
    db->sweeps = true;
    return db_run(db, "UPDATE files SET id = NULL WHERE number = ?", VALUES(V_INT(number)), err);
}

enum status files_delete(struct store_db *db, struct str owner, struct str id, struct err *err) {
    int64_t number = 0, batch = 0;
    enum status st = db_get_int(
        db, "SELECT number FROM files WHERE id = ?2 AND is_ready = 1 AND (?1 = '' OR owner = ?1)",
        VALUES(V_TEXT(owner), V_TEXT(id)), &number, err);
    if (st == ST_MISSING) return say_missing(id, err);
    TRY(st);
    st = db_get_int(db,
                    "SELECT number FROM batches WHERE input_file = ? AND " BATCH_IS_OPEN " LIMIT 1",
                    VALUES(V_TEXT(id)), &batch, err);
    if (st == ST_OK)
        return err_set(err, ST_BAD, "file %.*s is used by a batch that has not ended", STR_ARG(id));
    return st == ST_MISSING ? drop_file(db, number, err) : st;
}

/* In two statements, so that each can use an index. */
static const char *const expired_sql[] = {
    "SELECT number FROM files WHERE expires_s <> 0 AND expires_s <= ? AND is_ready = 1"
    " AND id IS NOT NULL AND id NOT IN (SELECT input_file FROM batches WHERE " BATCH_IS_OPEN ")"
    " LIMIT 1",
    "SELECT number FROM files WHERE created_s < ? AND is_ready = 1"
    " AND id IS NOT NULL AND id NOT IN (SELECT input_file FROM batches WHERE " BATCH_IS_OPEN ")"
    " LIMIT 1",
};

enum status files_expire(struct store_db *db, int64_t now_s, int64_t before_s, uint32_t limit,
                         uint32_t *count, struct err *err) {
    *count = 0;
    for (int i = 0; i < 2; i++) {
        enum status st = ST_OK;
        while (st == ST_OK && *count < limit) {
            int64_t number = 0;
            st = db_get_int(db, expired_sql[i], VALUES(V_INT(i == 0 ? now_s : before_s)), &number,
                            err);
            if (st == ST_OK) st = drop_file(db, number, err);
            if (st == ST_OK) ++*count;
        }
        if (st != ST_OK && st != ST_MISSING) return st;
    }
    return ST_OK;
}
