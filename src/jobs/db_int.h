/* jobs/db_int.h - the database behind the verbs: statements, transactions, errors.
 *
 * A verb runs SQL like this; values are bound in the order of `?` in the text:
 *
 *     TRY(db_run(db, "UPDATE files SET is_ready = 1 WHERE id = ?", VALUES(V_TEXT(id)), err));
 *
 *     struct query q;
 *     enum status st = query_begin(&q, db, "SELECT number FROM files WHERE id = ?",
 *                                  VALUES(V_TEXT(id)), err);
 *     if (st == ST_OK) st = query_next(&q);      ST_OK: a row; ST_MISSING: no more
 *     int64_t number = st == ST_OK ? query_int(&q, 0) : 0;
 *     query_end(&q);
 *
 * The text of a statement must be a constant of the program: compiled statements are kept by its
 * address. One statement is not used twice at a time.
 *
 * A *failure* is an error that the text of the statement did not cause: disk, memory, size limit.
 * It is remembered in the store_db, everything that follows in the same operation fails with it,
 * and the operation fails even if its function ignores it. A broken constraint is no failure, but
 * ST_BAD.
 *
 * Thread: the one that opened it until the store's thread begins, then that one.
 */
#ifndef JOBS_DB_INT_H
#define JOBS_DB_INT_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum {
    DB_PATH_BYTES = 4096,
    DB_PAGE_BYTES = 4096,
    DB_STATEMENTS_MAX = 256, /* a power of two, more than twice the statements of this folder */
};

/* Which file a path names, to notice that it was removed or replaced. */
struct db_inode {
    uint64_t device, inode; /* inode 0: not known */
};

struct db_statement {
    const char *sql; /* NULL: a free place */
    sqlite3_stmt *stmt;
};

struct store_db {
    sqlite3 *sqlite;
    int lock_fd;
    char dir[DB_PATH_BYTES], path[DB_PATH_BYTES], wal_path[DB_PATH_BYTES];
    char moved_to[DB_PATH_BYTES]; /* where a damaged database is now, or "" */
    struct db_inode inode, wal_inode;
    uint64_t bytes_max;   /* 0: no limit */
    uint32_t wal_pages;   /* in the log after the last commit */
    uint32_t log_pages;   /* as in store_options */
    bool is_damaged;      /* found while it was opened */
    bool reads_only;      /* this operation may not write */
    bool sweeps, vacuums; /* there may be rows without an owner, and free pages */
    bool checkpoints;     /* move the log to the database although it is short */
    int64_t last_batch;   /* the highest number when it was opened */
    uint64_t reserved;    /* bytes of new work in this transaction */
    enum status failure;  /* of this operation */
    struct err failure_err;
    struct db_statement statements[DB_STATEMENTS_MAX];
};

/* ---- db_open.c ---- */
struct store_options;
enum status db_open(const struct store_options *options, struct store_db **out, struct err *err);
void db_close(struct store_db *db); /* NULL is fine */

/* ---- db_lock.c ---- */
enum status db_lock(struct store_db *db, struct err *err); /* make the folder, take its lock */
enum status db_move_aside(struct store_db *db, struct err *err);
void db_sync_folder(const char *path); /* so that new names in it survive a power cut */

/* ---- schema.c ---- */
/* Bring the tables of an older version, or of an empty file, to this version. */
enum status db_migrate(struct store_db *db, struct err *err);

/* ---- db.c ---- */
/* The status and the sentence of a result code of SQLite; remembers a failure. */
enum status db_fail(struct store_db *db, int rc, struct err *err);
/* Several statements without values, once. */
enum status db_exec(struct store_db *db, const char *sql, struct err *err);
enum status db_begin(struct store_db *db, bool is_read, struct err *err);
enum status db_commit(struct store_db *db, struct err *err);
void db_rollback(struct store_db *db); /* of everything; fine without a transaction */
enum status db_prepare_control(struct store_db *db, struct err *err); /* once, when it is opened */
/* One operation inside a transaction. The second returns `st`, or else the failure. */
enum status db_savepoint(struct store_db *db, bool is_read, struct err *err);
enum status db_savepoint_end(struct store_db *db, enum status st, struct err *err);
bool db_has_transaction(const struct store_db *db);
/* ST_IO: the file of this name is not the one that is open. */
enum status db_check_files(struct store_db *db, struct err *err);
bool db_inode_of(const char *path, struct db_inode *out);

/* ---- upkeep.c: what is done between operations ---- */
bool db_log_is_long(const struct store_db *db);
bool db_needs_upkeep(const struct store_db *db);
/* A short piece of it, in a transaction of its own. */
enum status db_upkeep(struct store_db *db, struct err *err);
enum status db_probe(struct store_db *db,
                     struct err *err); /* write something, to see if it works */
/* ST_FULL: with `bytes` more the database would use what is reserved for results of earlier work,
 * or the disk would have no room to move the log to the database. Every verb that adds new work
 * asks first. */
enum status db_reserve(struct store_db *db, uint64_t bytes, struct err *err);
uint64_t db_bytes(struct store_db *db); /* of the database and its log */

/* ---- values ---- */
struct value {
    enum { VALUE_INT, VALUE_TEXT, VALUE_BYTES } kind;
    int64_t number;
    struct str text;
};
struct values {
    const struct value *at;
    uint32_t count;
};
#define V_INT(n)                                                                                   \
    { .kind = VALUE_INT, .number = (int64_t)(n) }
#define V_TEXT(s)                                                                                  \
    { .kind = VALUE_TEXT, .text = (s) }
#define V_BYTES(s)                                                                                 \
    { .kind = VALUE_BYTES, .text = (s) }
#define VALUES(...)                                                                                \
    (struct values) {                                                                              \
        (const struct value[]){__VA_ARGS__},                                                       \
            sizeof((const struct value[]){__VA_ARGS__}) / sizeof(struct value)                     \
    }
#define NO_VALUES ((struct values){0})

/* ---- statements ---- */
struct query {
    struct store_db *db;
    sqlite3_stmt *stmt; /* NULL: ended, or it did not begin */
    struct err *err;
};
enum status query_begin(struct query *q, struct store_db *db, const char *sql, struct values values,
                        struct err *err);
enum status query_next(struct query *q); /* ST_OK: a row. ST_MISSING: none */
void query_end(struct query *q);         /* always; also after a failure */
int64_t query_int(const struct query *q, int column);
struct str query_text(const struct query *q, int column); /* valid until the next row */

/* Copy text columns `first`, `first` + 1, ... of the row to the `struct str` members of `row` at
 * these offsets. *memory, which the caller frees, holds the bytes. */
struct text_columns {
    const uint16_t *offsets;
    uint32_t count;
    int first;
};
enum status query_copy_texts(const struct query *q, const struct text_columns *columns, void *row,
                             char **memory);

/* Run a statement that gives no rows. ST_BAD: a constraint does not hold. */
enum status db_run(struct store_db *db, const char *sql, struct values values, struct err *err);
uint64_t db_changes(const struct store_db *db); /* rows that the last db_run changed */
/* The first column of the first row. ST_MISSING: no row. */
enum status db_get_int(struct store_db *db, const char *sql, struct values values, int64_t *out,
                       struct err *err);

#endif
