/* jobs/upkeep.c - what the store does between operations, in short pieces: moves the log to the
 * database, deletes rows whose parent was deleted, and returns free pages to the file system.
 *
 * Deleting a file, a batch or a conversation only takes its name away, whatever its size; its
 * chunks, lines or items are deleted here.
 */
#include <sys/statvfs.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "jobs/db_int.h"

enum {
    LOG_PAGES = 2000, /* 8 MiB, unless the options say otherwise */
    PIECE_US = 5000,
    /* Free pages that stay for rows to come: moving pages to make the file shorter is expensive. */
    FREE_PAGES_KEPT = 1024, /* 4 MiB, */
    FREE_PART_KEPT = 4,     /* or a quarter of the database */
    BULK_BYTES = 64 << 10,  /* new work from here on looks whether the disk has room */
    ROOM_KEPT = 256 << 10,
};

/* ---- limits ---- */

uint64_t db_bytes(struct store_db *db) {
    int64_t file = file_size(db->path), log = file_size(db->wal_path);
    return (uint64_t)(file > 0 ? file : 0) + (uint64_t)(log > 0 ? log : 0);
}

static enum status count_pages(struct store_db *db, int64_t *all, int64_t *unused,
                               struct err *err) {
    TRY(db_get_int(db, "PRAGMA page_count", NO_VALUES, all, err));
    return db_get_int(db, "PRAGMA freelist_count", NO_VALUES, unused, err);
}

static uint64_t disk_room(const struct store_db *db) {
    struct statvfs disk;
    if (statvfs(db->dir, &disk) != 0) return UINT64_MAX; /* a write will say why */
    return (uint64_t)disk.f_bavail * disk.f_frsize;
}

static enum status say_no_room(struct store_db *db, struct err *err) {
    db->failure = err_set(&db->failure_err, ST_FULL, "%s: no space left on the disk", db->path);
    return err_set(err, ST_FULL, "%s", db->failure_err.text);
}

/* New work is written to the log and later to the database, which also takes what is in the log
 * now. If it filled the disk with the log, the store could never make room again, whatever is
 * deleted. */
static enum status check_room(struct store_db *db, uint64_t bytes, struct err *err) {
    db->reserved += bytes;
    if (db->reserved < BULK_BYTES) return ST_OK;
    const uint64_t log = (uint64_t)db->wal_pages * DB_PAGE_BYTES;
    return disk_room(db) >= 2 * db->reserved + log + ROOM_KEPT ? ST_OK : say_no_room(db, err);
}

enum status db_reserve(struct store_db *db, uint64_t bytes, struct err *err) {
    TRY(check_room(db, bytes, err));
    if (!db->bytes_max) return ST_OK;
    int64_t all = 0, unused = 0;
    TRY(count_pages(db, &all, &unused, err));
    uint64_t used = (uint64_t)(all - unused) * DB_PAGE_BYTES;
    uint64_t limit = db->bytes_max - db->bytes_max / 10;
    if (used <= limit && bytes <= limit - used) return ST_OK;
    return err_set(err, ST_FULL,
                   "%s: %llu of %llu bytes are used, and the rest is reserved for results; delete "
                   "files, batches or answers, or raise --data-max",
                   db->path, (unsigned long long)used, (unsigned long long)db->bytes_max);
}

/* ---- rows without an owner ---- */

struct sweep {
    const char *find;     /* the number of an owner that was deleted */
    const char *erase[2]; /* some of its rows; the second is optional */
    const char *finish;   /* the owner itself, when it has no more rows */
};
static const struct sweep sweeps[] = {
    {"SELECT number FROM files WHERE id IS NULL LIMIT 1",
     {"DELETE FROM chunks WHERE rowid IN (SELECT rowid FROM chunks WHERE file = ? LIMIT 1)"},
     "DELETE FROM files WHERE number = ?"},
    {"SELECT number FROM line_sets WHERE batch IS NULL LIMIT 1",
     {"DELETE FROM lines WHERE rowid IN (SELECT rowid FROM lines WHERE line_set = ? LIMIT 16)",
      "DELETE FROM results WHERE rowid IN (SELECT rowid FROM results WHERE line_set = ? LIMIT 16)"},
     "DELETE FROM line_sets WHERE number = ?"},
    {"SELECT number FROM conversations WHERE id IS NULL LIMIT 1",
     {"DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE conversation = ? LIMIT 16)"},
     "DELETE FROM conversations WHERE number = ?"},
};

/* A few rows. *found: there were some. */
static enum status sweep_some(struct store_db *db, const struct sweep *s, bool *found,
                              struct err *err) {
    int64_t number = 0;
    enum status st = db_get_int(db, s->find, NO_VALUES, &number, err);
    *found = st == ST_OK;
    if (st != ST_OK) return st == ST_MISSING ? ST_OK : st;
    uint64_t erased = 0;
    for (int i = 0; i < 2 && s->erase[i]; i++) {
        TRY(db_run(db, s->erase[i], VALUES(V_INT(number)), err));
        erased += db_changes(db);
    }
    return erased ? ST_OK : db_run(db, s->finish, VALUES(V_INT(number)), err);
}

static enum status sweep_for(struct store_db *db, int64_t piece_us, struct err *err) {
    const int64_t end_us = clock_now(&clock_real) + piece_us;
    TRY(db_begin(db, false, err));
    bool found = false;
    for (size_t i = 0; i < sizeof(sweeps) / sizeof(*sweeps); i++) {
        do {
            TRY(sweep_some(db, &sweeps[i], &found, err));
        } while (found && clock_now(&clock_real) < end_us);
        if (found) break;
    }
    TRY(db_commit(db, err));
    db->sweeps = found;
    return ST_OK;
}

/* On a full disk the log has room for little. */
static enum status sweep_piece(struct store_db *db, struct err *err) {
    enum status st = sweep_for(db, PIECE_US, err);
    if (st != ST_FULL) return st;
    db_rollback(db);
    return sweep_for(db, 0, err);
}

/* ---- free pages, and the log ---- */

static enum status cut_pages(struct store_db *db, const char *sql, struct err *err) {
    TRY(db_begin(db, false, err));
    TRY(db_exec(db, sql, err));
    return db_commit(db, err);
}

/* Pages that are cut off are not written to the log, but for those that do not fit into the cache.
 * So with little room in the log many are cut off at once, and the cache may grow by 16 MiB. */
static enum status cut_many_pages(struct store_db *db, struct err *err) {
    struct err ignored;
    TRY(db_exec(db, "PRAGMA cache_spill = OFF", err));
    enum status st = cut_pages(db, "PRAGMA incremental_vacuum(4096)", err);
    if (st != ST_OK) db_rollback(db);
    (void)db_exec(db, "PRAGMA cache_spill = ON", &ignored);
    return st;
}

static enum status vacuum_piece(struct store_db *db, bool is_tight, struct err *err) {
    int64_t all = 0, unused = 0;
    TRY(count_pages(db, &all, &unused, err));
    db->vacuums = unused > FREE_PAGES_KEPT && unused > all / FREE_PART_KEPT;
    if (!db->vacuums) return ST_OK;
    TRY(is_tight ? cut_many_pages(db, err) : cut_pages(db, "PRAGMA incremental_vacuum(128)", err));
    db->checkpoints = true; /* which makes the file shorter */
    return ST_OK;
}

/* A checkpoint that fails in the middle leaves the database longer: it is not begun. */
static enum status check_growth(struct store_db *db, struct err *err) {
    int64_t all = 0, bytes = file_size(db->path);
    TRY(db_get_int(db, "PRAGMA page_count", NO_VALUES, &all, err));
    const int64_t more = all * DB_PAGE_BYTES - (bytes > 0 ? bytes : 0);
    return more <= 0 || disk_room(db) >= (uint64_t)more ? ST_OK : say_no_room(db, err);
}

static enum status checkpoint(struct store_db *db, struct err *err) {
    TRY(db_check_files(db, err));
    TRY(check_growth(db, err));
    int rc = sqlite3_wal_checkpoint_v2(db->sqlite, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc != SQLITE_OK && rc != SQLITE_BUSY) return db_fail(db, rc, err);
    /* The rest, if another program reads it, after the next commit. */
    db->wal_pages = 0;
    db->checkpoints = false;
    return ST_OK;
}

bool db_log_is_long(const struct store_db *db) {
    return db->wal_pages >= (db->log_pages ? db->log_pages : LOG_PAGES);
}

bool db_needs_upkeep(const struct store_db *db) {
    return db_log_is_long(db) || db->sweeps || db->vacuums || db->checkpoints;
}

static enum status shrink(struct store_db *db, bool is_tight, struct err *err) {
    if (db->sweeps) return sweep_piece(db, err);
    if (db->vacuums) return vacuum_piece(db, is_tight, err);
    return db->checkpoints ? checkpoint(db, err) : ST_OK;
}

enum status db_upkeep(struct store_db *db, struct err *err) {
    db->failure = ST_OK;
    if (db_has_transaction(db)) db_rollback(db);
    const bool is_long = db_log_is_long(db);
    enum status st = is_long ? checkpoint(db, err) : shrink(db, false, err);
    /* The database cannot become longer, so it is made shorter: deleting takes little of the log,
     * and pages that are not in the database any more need not be moved to it. */
    if (is_long && st == ST_FULL && (db->sweeps || db->vacuums)) {
        db_rollback(db);
        st = shrink(db, true, err);
    }
    if (st != ST_OK) db_rollback(db);
    return st;
}

enum status db_probe(struct store_db *db, struct err *err) {
    enum status st = db_begin(db, false, err);
    if (st == ST_OK)
        st = db_run(db, "UPDATE meta SET value = value + 1 WHERE name = 'probe'", NO_VALUES, err);
    if (st == ST_OK) st = db_commit(db, err);
    if (st != ST_OK) db_rollback(db);
    return st;
}
