/* jobs/db.c - see jobs/db_int.h for the contract: statements, transactions, errors of SQLite. */
#include "jobs/db_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/mem.h"

/* ---- errors ---- */

static bool is_no_space(int error) { return error == ENOSPC || error == EDQUOT; }

static enum status say_full(struct store_db *db, struct err *err) {
    if (db->bytes_max && db_bytes(db) >= db->bytes_max - db->bytes_max / 8)
        return err_set(err, ST_FULL,
                       "%s: the database has reached its limit of %llu bytes; delete files, "
                       "batches or answers, or raise --data-max",
                       db->path, (unsigned long long)db->bytes_max);
    return err_set(err, ST_FULL, "%s: no space left on the disk", db->path);
}

static enum status say_io(struct store_db *db, int rc, int error, struct err *err) {
    const char *text = sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ST_IO, "%s: locked by another program; end that program", db->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, ST_IO, "%s: the database is damaged; restart the server to check it",
                       db->path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
        if (error)
            return err_set(err, ST_IO, "%s: %s (code %d: %s)", db->path, text, rc, strerror(error));
        return err_set(err, ST_IO, "%s: %s (code %d)", db->path, text, rc);
    default:
        return err_set(err, ST_IO, "%s: %s (code %d)", db->path, sqlite3_errmsg(db->sqlite), rc);
    }
}

static enum status say_failure(struct store_db *db, int rc, struct err *err) {
    int error = sqlite3_system_errno(db->sqlite);
    if (rc == SQLITE_NOMEM || rc == SQLITE_IOERR_NOMEM)
        return err_set(err, ST_NOMEM, "%s: out of memory", db->path);
    bool is_io = (rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN;
    if ((rc & 0xff) == SQLITE_FULL || (is_io && is_no_space(error))) return say_full(db, err);
    return say_io(db, rc, is_io ? error : 0, err);
}

enum status db_fail(struct store_db *db, int rc, struct err *err) {
    CHECK(rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE);
    CHECK(rc != SQLITE_MISUSE && rc != SQLITE_RANGE);
    if ((rc & 0xff) == SQLITE_CONSTRAINT)
        return err_set(err, ST_BAD, "%s: %s", db->path, sqlite3_errmsg(db->sqlite));
    if (rc == SQLITE_TOOBIG)
        return err_set(err, ST_BAD,
                       "%s: a text is longer than 1,000,000,000 bytes, the maximum of SQLite",
                       db->path);
    if (db->failure == ST_OK) db->failure = say_failure(db, rc, &db->failure_err);
    return err_set(err, db->failure, "%s", db->failure_err.text);
}

/* ---- the files ---- */

bool db_inode_of(const char *path, struct db_inode *out) {
    struct stat info;
    if (stat(path, &info) != 0) return false;
    *out = (struct db_inode){.device = (uint64_t)info.st_dev, .inode = (uint64_t)info.st_ino};
    return true;
}

static bool is_same_file(const char *path, const struct db_inode *known) {
    struct db_inode there;
    if (known->inode == 0) return true;
    return db_inode_of(path, &there) && there.device == known->device &&
           there.inode == known->inode;
}

enum status db_check_files(struct store_db *db, struct err *err) {
    const char *path = NULL;
    if (!is_same_file(db->path, &db->inode)) path = db->path;
    if (!path && !is_same_file(db->wal_path, &db->wal_inode)) path = db->wal_path;
    if (!path) return ST_OK;
    db->failure = err_set(&db->failure_err, ST_IO,
                          "%s: the database was removed or replaced; put it back, or restart the "
                          "server",
                          path);
    return err_set(err, db->failure, "%s", db->failure_err.text);
}

/* ---- statements ---- */

/* By the address of its text, at a place that the address chooses, or in the next free one. */
static struct db_statement *find_place(struct store_db *db, const char *sql) {
    uint32_t i = (uint32_t)(((uintptr_t)sql * 0x9E3779B97F4A7C15u) >> 40);
    for (uint32_t n = 0; n < DB_STATEMENTS_MAX; n++, i++) {
        struct db_statement *place = &db->statements[i % DB_STATEMENTS_MAX];
        if (!place->sql || place->sql == sql) return place;
    }
    return NULL;
}

static int prepare(struct store_db *db, const char *sql, sqlite3_stmt **out) {
    struct db_statement *place = find_place(db, sql);
    CHECK(place);
    if (!place->sql) {
        int rc =
            sqlite3_prepare_v3(db->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &place->stmt, NULL);
        if (rc != SQLITE_OK) return rc;
        CHECK(place->stmt);
        place->sql = sql;
    }
    *out = place->stmt;
    return SQLITE_OK;
}

static int bind(sqlite3_stmt *stmt, int column, const struct value *v) {
    const char *bytes = v->text.len ? v->text.ptr : "";
    switch (v->kind) {
    case VALUE_INT:
        return sqlite3_bind_int64(stmt, column, v->number);
    case VALUE_TEXT:
        return sqlite3_bind_text64(stmt, column, bytes, v->text.len, SQLITE_STATIC, SQLITE_UTF8);
    case VALUE_BYTES:
        return sqlite3_bind_blob64(stmt, column, bytes, v->text.len, SQLITE_STATIC);
    }
    CHECK(false);
}

enum status query_begin(struct query *q, struct store_db *db, const char *sql, struct values values,
                        struct err *err) {
    *q = (struct query){.db = db, .err = err};
    if (db->failure != ST_OK) return err_set(err, db->failure, "%s", db->failure_err.text);
    sqlite3_stmt *stmt = NULL;
    int rc = prepare(db, sql, &stmt);
    if (rc != SQLITE_OK) return db_fail(db, rc, err);
    CHECK(!sqlite3_stmt_busy(stmt));
    CHECK(!db->reads_only || sqlite3_stmt_readonly(stmt));
    CHECK((uint32_t)sqlite3_bind_parameter_count(stmt) == values.count);
    q->stmt = stmt;
    for (uint32_t i = 0; i < values.count && rc == SQLITE_OK; i++)
        rc = bind(stmt, (int)i + 1, &values.at[i]);
    return rc == SQLITE_OK ? ST_OK : db_fail(db, rc, err);
}

enum status query_next(struct query *q) {
    CHECK(q->stmt);
    int rc = sqlite3_step(q->stmt);
    if (rc == SQLITE_ROW) return ST_OK;
    if (rc == SQLITE_DONE) return ST_MISSING;
    return db_fail(q->db, rc, q->err);
}

void query_end(struct query *q) {
    if (!q->stmt) return;
    sqlite3_reset(q->stmt); /* repeats the error of the last step, which was reported */
    sqlite3_clear_bindings(q->stmt);
    q->stmt = NULL;
}

int64_t query_int(const struct query *q, int column) {
    return sqlite3_column_int64(q->stmt, column);
}

/* As bytes: for a text these are its UTF-8, without a conversion that could fail. */
struct str query_text(const struct query *q, int column) {
    const char *ptr = sqlite3_column_blob(q->stmt, column);
    int len = sqlite3_column_bytes(q->stmt, column);
    return ptr && len > 0 ? (struct str){ptr, (size_t)len} : STR("");
}

enum status query_copy_texts(const struct query *q, const struct text_columns *columns, void *row,
                             char **memory) {
    size_t bytes = 1;
    for (uint32_t i = 0; i < columns->count; i++)
        bytes += query_text(q, columns->first + (int)i).len;
    char *at = mem_alloc(bytes);
    if (!at) return err_set(q->err, ST_NOMEM, "out of memory while reading %zu bytes", bytes);
    *memory = at;
    for (uint32_t i = 0; i < columns->count; i++) {
        struct str text = query_text(q, columns->first + (int)i);
        if (text.len) memcpy(at, text.ptr, text.len);
        *(struct str *)(void *)((char *)row + columns->offsets[i]) = (struct str){at, text.len};
        at += text.len;
    }
    return ST_OK;
}

enum status db_run(struct store_db *db, const char *sql, struct values values, struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db, sql, values, err);
    if (st == ST_OK) st = query_next(&q);
    CHECK(st != ST_OK); /* it gave a row */
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

uint64_t db_changes(const struct store_db *db) { return (uint64_t)sqlite3_changes64(db->sqlite); }

enum status db_get_int(struct store_db *db, const char *sql, struct values values, int64_t *out,
                       struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db, sql, values, err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) *out = query_int(&q, 0);
    query_end(&q);
    return st;
}

enum status db_exec(struct store_db *db, const char *sql, struct err *err) {
    int rc = sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ST_OK : db_fail(db, rc, err);
}

/* ---- transactions ---- */

bool db_has_transaction(const struct store_db *db) {
    return sqlite3_get_autocommit(db->sqlite) == 0;
}

static void reset_statements(struct store_db *db) {
    for (uint32_t i = 0; i < DB_STATEMENTS_MAX; i++)
        if (db->statements[i].stmt) sqlite3_reset(db->statements[i].stmt);
}

/* Compiled when the database is opened: they must run when there is no memory left. */
static const char *const control_sql[] = {"BEGIN",     "BEGIN IMMEDIATE", "COMMIT",
                                          "ROLLBACK",  "SAVEPOINT op",    "ROLLBACK TO op",
                                          "RELEASE op"};
enum control { BEGIN_READ, BEGIN_WRITE, COMMIT, ROLLBACK, SAVEPOINT, ROLLBACK_TO, RELEASE };

static enum status control(struct store_db *db, enum control what, struct err *err) {
    return db_run(db, control_sql[what], NO_VALUES, err);
}

enum status db_prepare_control(struct store_db *db, struct err *err) {
    for (size_t i = 0; i < sizeof(control_sql) / sizeof(*control_sql); i++) {
        struct query q;
        enum status st = query_begin(&q, db, control_sql[i], NO_VALUES, err);
        query_end(&q);
        TRY(st);
    }
    return ST_OK;
}

enum status db_begin(struct store_db *db, bool is_read, struct err *err) {
    CHECK(!db->reads_only);
    db->failure = ST_OK;
    db->reserved = 0;
    TRY(db_check_files(db, err));
    if (db_has_transaction(db)) TRY(control(db, ROLLBACK, err)); /* which failed before */
    return control(db, is_read ? BEGIN_READ : BEGIN_WRITE, err);
}

enum status db_commit(struct store_db *db, struct err *err) {
    CHECK(!db->reads_only);
    TRY(control(db, COMMIT, err));
    if (db->wal_inode.inode == 0) (void)db_inode_of(db->wal_path, &db->wal_inode);
    /* What was written to a file that has lost its name will not be found again. */
    return db_check_files(db, err);
}

void db_rollback(struct store_db *db) {
    reset_statements(db);
    db->reads_only = false;
    db->failure = ST_OK;
    struct err ignored; /* db_begin tries again */
    if (db_has_transaction(db)) (void)control(db, ROLLBACK, &ignored);
    db->failure = ST_OK;
}

enum status db_savepoint(struct store_db *db, bool is_read, struct err *err) {
    if (!is_read) TRY(control(db, SAVEPOINT, err));
    db->reads_only = is_read;
    return ST_OK;
}

enum status db_savepoint_end(struct store_db *db, enum status st, struct err *err) {
    if (st == ST_OK && db->failure != ST_OK)
        st = err_set(err, db->failure, "%s", db->failure_err.text);
    bool only_read = db->reads_only;
    db->reads_only = false;
    if (only_read || db->failure != ST_OK) return st;
    if (st == ST_OK) return control(db, RELEASE, err);
    reset_statements(db);
    struct err ignored; /* a failure is remembered, and ends the transaction */
    if (control(db, ROLLBACK_TO, &ignored) == ST_OK) (void)control(db, RELEASE, &ignored);
    return st;
}
