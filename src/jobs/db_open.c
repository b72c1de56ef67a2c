/* jobs/db_open.c - opening and closing the database: settings of SQLite, check, recovery.
 *
 * The check at the start reads the whole database. integrity_check also compares every index with
 * its table and takes about three times as long as quick_check, so large databases get quick_check,
 * and very large ones only what SQLite checks whenever it reads a page.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "jobs/db_int.h"
#include "jobs/store.h"

enum { BUSY_MS = 1000 };
static const int64_t INTEGRITY_BYTES_MAX = (int64_t)64 << 20;
static const int64_t QUICK_BYTES_MAX = 256 << 20; /* takes about a quarter of a second */

/* These only work on an empty file, before anything is written to it. On any other one the second
 * writes its first page again, which a full disk would not allow. */
static const char empty_settings[] = "PRAGMA page_size = 4096;"
                                     "PRAGMA auto_vacuum = INCREMENTAL;";
/* synchronous=EXTRA is for the change to the log, which SQLite makes with a journal: if the power
 * goes later and the deleted journal is there again, SQLite would undo all that was written since.
 * Other programs may read the database while the server runs, for a backup, so its lock is not
 * exclusive. secure_delete=FAST overwrites what is deleted where that costs no further pages. */
static const char settings[] = "PRAGMA synchronous = EXTRA;"
                               "PRAGMA mmap_size = 0;"
                               "PRAGMA cache_size = -1024;"
                               "PRAGMA temp_store = MEMORY;"
                               "PRAGMA cell_size_check = ON;"
                               "PRAGMA secure_delete = FAST;"
                               "PRAGMA foreign_keys = OFF;";
static const char log_settings[] = "PRAGMA synchronous = FULL;"
                                   "PRAGMA journal_size_limit = 16777216;";

static enum status set_paths(struct store_db *db, const char *dir, struct err *err) {
    bool fits = strlen(dir) < sizeof(db->dir);
    if (fits) str_store(str_of(dir), db->dir, sizeof(db->dir));
    fits = fits && path_join(db->path, sizeof(db->path), dir, "jitney.db");
    fits = fits && path_join(db->wal_path, sizeof(db->wal_path), dir, "jitney.db-wal");
    /* SQLite's limit is shorter than ours. */
    if (!fits || strlen(db->wal_path) > 500) return err_set(err, ST_IO, "%s: name too long", dir);
    return ST_OK;
}

static enum status say_damaged(struct store_db *db, const char *what, struct err *err) {
    db->is_damaged = true;
    return err_set(err, ST_BAD,
                   "%s: the database is damaged (%s); restore a backup, or start with "
                   "--jobs-recover to move it aside and begin with an empty one",
                   db->path, what);
}

/* SQLite gives its other files the mode of the database, so it is made here. */
static enum status make_file(struct store_db *db, struct err *err) {
    bool is_new = !file_exists(db->path);
    int fd = open(db->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        bool is_full = errno == ENOSPC || errno == EDQUOT;
        return err_set(err, is_full ? ST_FULL : ST_IO, "%s: cannot open: %s", db->path,
                       strerror(errno));
    }
    int rc = fchmod(fd, 0600);
    struct stat info;
    if (rc == 0) rc = fstat(fd, &info);
    if (rc == 0) db->inode = (struct db_inode){(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    int error = errno;
    close(fd);
    if (rc != 0)
        return err_set(err, ST_IO, "%s: cannot set its mode: %s", db->path, strerror(error));
    if (is_new) db_sync_folder(db->dir);
    /* SQLite would delete the log. */
    if (info.st_size == 0 && stat(db->wal_path, &info) == 0 && info.st_size > 0)
        return say_damaged(db, "it is empty, but its log is not", err);
    return ST_OK;
}

/* In the place of SQLite's own hook, which would move the log to the database inside a commit; the
 * store does that between operations. */
static int note_commit(void *ctx, sqlite3 *sqlite, const char *name, int pages) {
    (void)sqlite;
    (void)name;
    struct store_db *db = ctx;
    db->wal_pages = (uint32_t)pages;
    db->vacuums = true;
    return SQLITE_OK;
}

/* A failure while opening that says that the file itself is bad. */
static enum status judge(struct store_db *db, enum status st, struct err *err) {
    if (st == ST_OK || !db->sqlite) return st;
    int rc = sqlite3_errcode(db->sqlite);
    if (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB)
        return say_damaged(db, sqlite3_errstr(rc), err);
    return st;
}

static enum status use_settings(struct store_db *db, struct err *err) {
    int64_t pages = 0;
    TRY(db_get_int(db, "PRAGMA page_count", NO_VALUES, &pages, err));
    if (pages == 0) TRY(db_exec(db, empty_settings, err));
    return db_exec(db, settings, err);
}

static enum status use_log(struct store_db *db, struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db, "PRAGMA journal_mode = WAL", NO_VALUES, err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK && !str_is(query_text(&q, 0), "wal"))
        st = err_set(err, ST_IO,
                     "%s: this file system does not support SQLite's write-ahead log; use another "
                     "folder",
                     db->path);
    query_end(&q);
    if (st == ST_OK) st = db_exec(db, log_settings, err);
    return st;
}

static enum status check_integrity(struct store_db *db, struct err *err) {
    int64_t pages = 0;
    TRY(db_get_int(db, "PRAGMA page_count", NO_VALUES, &pages, err));
    if (pages * DB_PAGE_BYTES > QUICK_BYTES_MAX) return ST_OK;
    bool is_small = pages * DB_PAGE_BYTES <= INTEGRITY_BYTES_MAX;
    struct query q;
    enum status st = query_begin(
        &q, db, is_small ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)", NO_VALUES, err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK && !str_is(query_text(&q, 0), "ok")) {
        char what[160];
        str_store(query_text(&q, 0), what, sizeof(what));
        st = say_damaged(db, what, err);
    }
    query_end(&q);
    return st;
}

static enum status limit_size(struct store_db *db, struct err *err) {
    if (!db->bytes_max) return ST_OK;
    uint64_t pages = db->bytes_max / DB_PAGE_BYTES;
    if (pages > 0xfffffffeu) pages = 0xfffffffeu;
    char text[64];
    snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu",
             (unsigned long long)(pages ? pages : 1));
    return db_exec(db, text, err);
}

/* A file that was being written when the server ended is complete for nobody. On a full disk it
 * stays until the next start: nobody finds it. */
static enum status drop_unready_files(struct store_db *db, struct err *err) {
    TRY(db_begin(db, false, err));
    enum status st = db_run(db, "UPDATE files SET id = NULL WHERE is_ready = 0 AND id IS NOT NULL",
                            NO_VALUES, err);
    if (st == ST_OK) st = db_commit(db, err);
    if (st == ST_OK) return ST_OK;
    db_rollback(db);
    return st == ST_FULL ? ST_OK : st;
}

static enum status open_sqlite(struct store_db *db, const char *vfs, struct err *err) {
    TRY(make_file(db, err));
    int rc =
        sqlite3_open_v2(db->path, &db->sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs);
    if (!db->sqlite) return err_set(err, ST_NOMEM, "%s: out of memory", db->path);
    if (rc != SQLITE_OK) return db_fail(db, sqlite3_extended_errcode(db->sqlite), err);
    sqlite3_extended_result_codes(db->sqlite, 1);
    sqlite3_busy_timeout(db->sqlite, BUSY_MS);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_wal_hook(db->sqlite, note_commit, db);
    TRY(use_settings(db, err));
    TRY(db_prepare_control(db, err));
    TRY(use_log(db, err));
    TRY(check_integrity(db, err));
    TRY(db_migrate(db, err));
    TRY(limit_size(db, err));
    TRY(drop_unready_files(db, err));
    TRY(db_get_int(db, "SELECT coalesce(max(number), 0) FROM batches", NO_VALUES, &db->last_batch,
                   err));
    db->sweeps = db->vacuums = true;
    return ST_OK;
}

static void close_sqlite(struct store_db *db) {
    if (!db->sqlite) return;
    struct err ignored;
    /* SQLite removes the log by its name when it closes: not if the name is another server's. */
    if (db_check_files(db, &ignored) != ST_OK)
        sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    for (uint32_t i = 0; i < DB_STATEMENTS_MAX; i++) {
        sqlite3_finalize(db->statements[i].stmt);
        db->statements[i] = (struct db_statement){0};
    }
    int rc = sqlite3_close(db->sqlite);
    CHECK(rc == SQLITE_OK); /* no statement was left open */
    db->sqlite = NULL;
    db->inode = db->wal_inode = (struct db_inode){0};
    db->failure = ST_OK;
}

enum status db_open(const struct store_options *options, struct store_db **out, struct err *err) {
    struct store_db *db = mem_zalloc(sizeof(*db));
    if (!db) return err_set(err, ST_NOMEM, "%s: out of memory", options->dir);
    db->lock_fd = -1;
    db->bytes_max = options->bytes_max;
    db->log_pages = options->log_pages;
    enum status st = set_paths(db, options->dir, err);
    if (st == ST_OK) st = db_lock(db, err);
    if (st == ST_OK) st = judge(db, open_sqlite(db, options->vfs, err), err);
    if (st != ST_OK && db->is_damaged && options->recovers) {
        close_sqlite(db);
        st = db_move_aside(db, err);
        if (st == ST_OK) st = judge(db, open_sqlite(db, options->vfs, err), err);
    }
    if (st != ST_OK) {
        db_close(db);
        return st;
    }
    *out = db;
    return ST_OK;
}

void db_close(struct store_db *db) {
    if (!db) return;
    close_sqlite(db);
    if (db->lock_fd >= 0) close(db->lock_fd);
    mem_free(db);
}
