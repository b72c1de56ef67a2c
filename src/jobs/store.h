/* jobs/store.h - the durable store: files, batches, stored answers, conversations.
 *
 * One SQLite database, DIR/jitney.db, in WAL mode with synchronous=FULL, and one thread that alone
 * uses it. Other threads hand it operations. The thread takes all operations that wait, runs each
 * in a savepoint of one transaction, commits (group commit: one fsync for all), and only then
 * gives them back. So an operation whose status is ST_OK is on disk, and the thread that asked
 * never waits for a disk.
 *
 *     owner's thread:  store_push(op) ... (woken by `notify`) store_drain -> op->done(op)
 *     store's thread:                 op->run(op, db), commit, notify
 *
 * If a commit fails, nothing of the group is on disk; each of its operations is then run again in a
 * transaction of its own, so that one that cannot be written (disk full, ST_FULL) does not fail the
 * others. `run` may therefore be called several times and must not change anything but the
 * database and its own operation.
 *
 * The folder is locked (DIR/lock, with the holder's pid): one server a folder. Files are readable
 * by their owner alone.
 *
 * Lifetime: open, push and drain, close. Thread: as said above; `run` is called on the store's
 * thread, everything else is called on the owner's.
 */
#ifndef JOBS_STORE_H
#define JOBS_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

struct store;    /* opaque */
struct store_db; /* opaque: the database, on the store's thread; see README.md for its rows */

struct store_options {
    const char *dir;    /* made if it does not exist, mode 0700 */
    uint64_t bytes_max; /* of the database; past it writes give ST_FULL; 0: no limit */
    bool recovers;      /* move a damaged database aside and begin with an empty one */
    const char *vfs;    /* of SQLite; NULL: the default. For tests */
    uint32_t log_pages; /* of 4 KiB; a longer log is moved to the database; 0: 2000 */
    /* On the store's thread: operations are done, call store_drain. */
    void (*notify)(void *ctx);
    void *ctx;
};

/* ST_UNAVAILABLE: another process has the folder (its pid is in `err`). ST_BAD: the database is
 * damaged, or was written by a newer version. ST_IO: the folder cannot be made or written. */
enum status store_open(const struct store_options *options, struct store **out, struct err *err);
/* Run the operations that wait, give back all, end the thread, close the database. NULL is fine. */
void store_close(struct store *s);

/* ST_FULL: no space on the disk, or bytes_max reached. ST_IO: the disk failed, or the folder is
 * read-only or gone. ST_NOMEM. Other statuses: as `run` returned. */
struct store_op {
    enum status (*run)(struct store_op *op, struct store_db *db);
    void (*done)(struct store_op *op); /* may free it */
    bool is_read;                      /* writes nothing: needs no commit */
    enum status status;
    struct err err;
    struct list_link in_store; /* private */
};
void store_push(struct store *s, struct store_op *op);
/* Call `done` of every operation that is done; returns their number. */
uint32_t store_drain(struct store *s);
/* Operations that were pushed and whose `done` was not called. */
uint32_t store_pending(const struct store *s);

struct store_stats {
    uint64_t commits, operations, failed;
    uint64_t bytes, bytes_max;             /* of the database and its log */
    int64_t commit_us_last, commit_us_max; /* of the last commit, and of the longest */
    bool is_failing;                       /* the last write failed: disk full, read-only, gone */
    enum status last_status;
    char last_error[128]; /* "" or the sentence of the last failure */
};
struct store_stats store_stats(struct store *s); /* any thread */

/* Inside an operation: do the rows agree with each other, and are all pages intact? Reads
 * everything. ST_BAD with the rule that is broken. For tests and for repair. */
enum status store_check(struct store_db *db, struct err *err);

/* Where the damaged database was moved to by `recovers`; "" if it was not damaged. */
const char *store_moved_to(const struct store *s);

#endif
