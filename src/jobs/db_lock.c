/* jobs/db_lock.c - the folder of the store: its lock, and moving a damaged database aside. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "jobs/db_int.h"

enum { MOVE_TRIES = 100, PID_BYTES = 24, LOCK_TRIES = 8 };

void db_sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd); /* some file systems cannot, and need not */
    close(fd);
}

static void sync_parent(const char *path) {
    char parent[DB_PATH_BYTES];
    str_store(str_of(path), parent, sizeof(parent));
    char *slash = strrchr(parent, '/');
    if (slash == parent) slash[1] = 0;
    if (slash) *slash = 0;
    db_sync_folder(slash ? parent : ".");
}

static enum status make_folder(const char *dir, struct err *err) {
    if (file_is_dir(dir)) return ST_OK;
    char parent[DB_PATH_BYTES];
    str_store(str_of(dir), parent, sizeof(parent));
    for (size_t len = strlen(parent); len > 1 && parent[len - 1] == '/'; len--) parent[len - 1] = 0;
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        enum status st = file_make_dirs(parent, err);
        if (st != ST_OK) return st == ST_CREATE ? ST_IO : st;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(err, ST_IO, "%s: cannot create folder: %s", dir, strerror(errno));
    if (!file_is_dir(dir)) return err_set(err, ST_IO, "%s: exists and is not a folder", dir);
    sync_parent(dir);
    return ST_OK;
}

static enum status say_locked(const struct store_db *db, struct err *err) {
    char text[PID_BYTES] = "";
    ssize_t got = pread(db->lock_fd, text, sizeof(text) - 1, 0);
    struct str pid = str_trim((struct str){text, got > 0 ? (size_t)got : 0});
    return err_set(err, ST_UNAVAILABLE,
                   "%s is used by another server (pid %.*s); stop that server, or give this one "
                   "another folder",
                   db->dir, STR_ARG(pid.len ? pid : STR("unknown")));
}

static void write_pid(const struct store_db *db) {
    char text[PID_BYTES];
    int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    /* Without it the lock holds just as well; only the sentence of another server lacks it. */
    if (ftruncate(db->lock_fd, 0) == 0) (void)!pwrite(db->lock_fd, text, (size_t)len, 0);
}

enum status db_lock(struct store_db *db, struct err *err) {
    char path[DB_PATH_BYTES];
    TRY(make_folder(db->dir, err));
    if (!path_join(path, sizeof(path), db->dir, "lock"))
        return err_set(err, ST_IO, "%s: name too long", db->dir);
    db->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (db->lock_fd < 0) return err_set(err, ST_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = -1;
    for (int i = 0; i < LOCK_TRIES && rc != 0; i++) {
        rc = flock(db->lock_fd, LOCK_EX | LOCK_NB);
        if (rc != 0 && errno != EINTR) break;
    }
    if (rc != 0 && errno == EWOULDBLOCK) return say_locked(db, err);
    if (rc != 0) return err_set(err, ST_IO, "%s: cannot lock: %s", path, strerror(errno));
    write_pid(db);
    return ST_OK;
}

/* ---- a damaged database ---- */

static const char *const suffixes[] = {"-wal", "-shm", ""}; /* the database last */

static bool make_name(char out[DB_PATH_BYTES], const char *base, const char *suffix) {
    int len = snprintf(out, DB_PATH_BYTES, "%s%s", base, suffix);
    return len > 0 && len < DB_PATH_BYTES;
}

static bool is_taken(const char *base) {
    char name[DB_PATH_BYTES];
    struct stat info;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
        if (!make_name(name, base, suffixes[i]) || lstat(name, &info) == 0) return true;
    return false;
}

/* jitney.db.damaged-20260131T235959, or with -2, -3, ... behind it if that exists. */
static bool choose_name(const struct store_db *db, char out[DB_PATH_BYTES]) {
    const time_t now = (time_t)clock_wall_s();
    struct tm tm;
    char stamp[32];
    if (!gmtime_r(&now, &tm)) return false;
    if (strftime(stamp, sizeof(stamp), ".damaged-%Y%m%dT%H%M%S", &tm) == 0) return false;
    for (int i = 1; i <= MOVE_TRIES; i++) {
        char number[16] = "";
        if (i > 1) snprintf(number, sizeof(number), "-%d", i);
        int len = snprintf(out, DB_PATH_BYTES, "%s%s%s", db->path, stamp, number);
        if (len > 0 && len < DB_PATH_BYTES && !is_taken(out)) return true;
    }
    return false;
}

enum status db_move_aside(struct store_db *db, struct err *err) {
    CHECK(!db->sqlite);
    char from[DB_PATH_BYTES], to[DB_PATH_BYTES];
    if (!choose_name(db, db->moved_to))
        return err_set(err, ST_IO, "%s: cannot be moved aside: no free name", db->path);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        bool fits =
            make_name(from, db->path, suffixes[i]) && make_name(to, db->moved_to, suffixes[i]);
        bool is_gone = fits && (rename(from, to) == 0 || errno == ENOENT);
        if (!is_gone)
            return err_set(err, ST_IO, "%s: cannot be moved aside: %s", db->path, strerror(errno));
    }
    db_sync_folder(db->dir);
    return ST_OK;
}
