/* jobs/store.c - see jobs/store.h for the contract: the thread, the queue and the group commit.
 *
 * A group is what waits in the queue, from its first operation on: either reads up to the next
 * write, or up to GROUP_MAX operations or GROUP_US of run time that begin with a write. A read
 * behind a write of its group sees what was written, so it is given back after the commit as well.
 */
#include "jobs/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jobs/db_int.h"

enum {
    GROUP_MAX = 256,
    GROUP_US = 5000,
    FAILED_MAX = 8, /* operations that the disk fails in a row before the rest of a group fails */
    PROBE_US = 1000000, /* how often a store that fails tries to write */
    QUIET_US = 10000,   /* without operations, before upkeep begins */
    FORCED_US = 250000, /* between pieces of upkeep while operations never pause */
};

/* When the store's thread last did what; it alone uses this. */
struct pace {
    int64_t run_us, upkeep_us; /* operations, upkeep */
    bool has_failed;           /* the last upkeep failed */
};

struct store {
    struct store_db *db; /* the store's thread; the owner's before it begins and after it ends */
    struct pace pace;
    pthread_t thread;
    void (*notify)(void *ctx);
    void *ctx;
    uint32_t pending; /* the owner's thread */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t arrived;
    struct list queue, done; /* store_op.in_store */
    bool is_closing;
    struct store_stats stats;
};

static struct store_op *op_of(struct list_link *link) {
    return LIST_ITEM(link, struct store_op, in_store);
}

/* ---- running operations: the store's thread, without the lock ---- */

/* What a group did to the disk. */
struct outcome {
    enum status st; /* of the disk: ST_OK, ST_FULL, ST_IO, ST_NOMEM */
    struct err err;
    int64_t commit_us;
    uint32_t commits, failed;
    bool wrote; /* there was something to commit */
};

static void run_op(struct store_db *db, struct store_op *op) {
    op->err.text[0] = 0;
    op->status = db_savepoint(db, op->is_read, &op->err);
    if (op->status != ST_OK) return;
    op->status = op->run(op, db);
    op->status = db_savepoint_end(db, op->status, &op->err);
}

static enum status commit(struct store_db *db, bool is_read, struct outcome *o, struct err *err) {
    const int64_t begin_us = clock_now(&clock_real);
    TRY(db_commit(db, err));
    if (is_read) return ST_OK;
    const int64_t took_us = clock_now(&clock_real) - begin_us;
    if (took_us > o->commit_us) o->commit_us = took_us;
    o->commits++;
    o->wrote = true;
    return ST_OK;
}

static bool is_group_over(const struct list *group, const struct store_op *next, int64_t end_us) {
    if (group->count >= GROUP_MAX) return true;
    const struct store_op *first = op_of(group->first);
    if (first && first->is_read && !next->is_read) return true;
    return clock_now(&clock_real) >= end_us;
}

/* Run operations from the front of `waiting` in one transaction and move them to `group`. False:
 * it did not work, nothing of them is on disk, and `group` has those that were tried. */
static bool run_together(struct store_db *db, struct list *waiting, struct list *group,
                         struct outcome *o) {
    const bool is_read = op_of(waiting->first)->is_read;
    const int64_t end_us = clock_now(&clock_real) + GROUP_US;
    struct err err;
    enum status st = db_begin(db, is_read, &err);
    do {
        struct list_link *link = list_pop_first(waiting);
        list_push_last(group, link);
        if (st == ST_OK) {
            run_op(db, op_of(link));
            st = db->failure;
        }
    } while (st == ST_OK && waiting->first && !is_group_over(group, op_of(waiting->first), end_us));
    if (st == ST_OK) st = commit(db, is_read, o, &err);
    if (st != ST_OK) db_rollback(db);
    return st == ST_OK;
}

/* In a transaction of its own. A status of the disk goes to `o` as well. */
static void run_alone(struct store_db *db, struct store_op *op, struct outcome *o) {
    struct err err = {0};
    enum status st = db_begin(db, op->is_read, &err);
    if (st == ST_OK) {
        run_op(db, op);
        st = db->failure;
        if (st != ST_OK) err = db->failure_err;
    }
    if (st == ST_OK) st = commit(db, op->is_read, o, &err);
    if (st != ST_OK) {
        db_rollback(db);
        op->status = st;
        op->err = o->err = err;
        o->failed++;
    }
    o->st = st;
}

/* A disk that fails slowly must not take its time for every operation that waits. */
static void run_each(struct store_db *db, struct list *group, struct outcome *o) {
    uint32_t in_a_row = 0;
    for (struct list_link *l = group->first; l; l = l->next) {
        struct store_op *op = op_of(l);
        if (in_a_row < FAILED_MAX) {
            run_alone(db, op, o);
            in_a_row = o->st == ST_IO ? in_a_row + 1 : 0;
        } else {
            op->status = o->st;
            op->err = o->err;
            o->failed++;
        }
        if (!op->is_read) o->wrote = true;
    }
}

/* ---- the thread ---- */

static void note_outcome(struct store *s, const struct list *group, const struct outcome *o,
                         uint64_t bytes) {
    struct store_stats *t = &s->stats;
    t->operations += group->count;
    t->commits += o->commits;
    t->failed += o->failed;
    t->bytes = bytes;
    if (o->commits) t->commit_us_last = o->commit_us;
    if (o->commit_us > t->commit_us_max) t->commit_us_max = o->commit_us;
    if (o->st == ST_OK && !o->wrote) return; /* reads say nothing about writing */
    t->is_failing = o->st != ST_OK;
    if (o->st == ST_OK) return;
    t->last_status = o->st;
    str_store(str_of(o->err.text), t->last_error, sizeof(t->last_error));
}

/* Give a group back and wake the owner. */
static void give_back(struct store *s, struct list *group, const struct outcome *o) {
    const uint64_t bytes = db_bytes(s->db);
    pthread_mutex_lock(&s->lock);
    note_outcome(s, group, o, bytes);
    for (struct list_link *l; (l = list_pop_first(group));) list_push_last(&s->done, l);
    pthread_mutex_unlock(&s->lock);
    if (s->notify) s->notify(s->ctx);
}

/* When the store works on its own, unless operations arrive before. Under the lock. */
static int64_t next_upkeep_us(const struct store *s) {
    if (s->pace.has_failed || s->stats.is_failing) return s->pace.upkeep_us + PROBE_US;
    return db_needs_upkeep(s->db) ? s->pace.run_us + QUIET_US : INT64_MAX;
}

/* Under the lock: wait for operations. False: it is time for upkeep. */
static bool wait_for_work(struct store *s) {
    while (!s->queue.first && !s->is_closing) {
        const int64_t until_us = next_upkeep_us(s);
        if (until_us == INT64_MAX) {
            pthread_cond_wait(&s->arrived, &s->lock);
            continue;
        }
        if (until_us <= clock_now(&clock_real)) return false;
        const struct timespec until = {.tv_sec = until_us / 1000000,
                                       .tv_nsec = until_us % 1000000 * 1000};
        pthread_cond_timedwait(&s->arrived, &s->lock, &until);
    }
    return true;
}

/* A piece of the work between operations. A store that fails first tries to write. */
static void do_upkeep(struct store *s, bool is_failing) {
    struct list none = {0};
    struct outcome o = {.wrote = true};
    if (is_failing) {
        o.st = db_probe(s->db, &o.err);
        give_back(s, &none, &o);
    }
    if (o.st == ST_OK && db_needs_upkeep(s->db)) {
        o.st = db_upkeep(s->db, &o.err);
        /* That the log cannot be moved for want of space does not mean that writing fails. */
        if (o.st != ST_OK && o.st != ST_FULL) give_back(s, &none, &o);
    }
    s->pace.has_failed = o.st != ST_OK;
    s->pace.upkeep_us = clock_now(&clock_real);
}

/* Between groups only what cannot wait: a log that is long, or upkeep that was put off again and
 * again because operations never pause. */
static void do_urgent_upkeep(struct store *s) {
    const int64_t now_us = clock_now(&clock_real);
    s->pace.run_us = now_us;
    if (s->pace.has_failed || !db_needs_upkeep(s->db)) return;
    if (db_log_is_long(s->db) || now_us - s->pace.upkeep_us >= FORCED_US) do_upkeep(s, false);
}

static void run_waiting(struct store *s, struct list *waiting) {
    while (waiting->first) {
        struct list group = {0};
        struct outcome outcome = {0};
        if (!run_together(s->db, waiting, &group, &outcome)) run_each(s->db, &group, &outcome);
        give_back(s, &group, &outcome);
        do_urgent_upkeep(s);
    }
}

static void *store_main(void *ctx) {
    struct store *s = ctx;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        bool has_ops = wait_for_work(s);
        struct list waiting = s->queue;
        s->queue = (struct list){0};
        bool is_failing = s->stats.is_failing;
        if (has_ops && !waiting.first) break; /* closing */
        pthread_mutex_unlock(&s->lock);
        if (has_ops)
            run_waiting(s, &waiting);
        else
            do_upkeep(s, is_failing);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the owner's side ---- */

static void init_sync(struct store *s) {
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->arrived, &attr);
    pthread_condattr_destroy(&attr);
}

static void deinit(struct store *s) {
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
    db_close(s->db);
    mem_free(s);
}

enum status store_open(const struct store_options *options, struct store **out, struct err *err) {
    CHECK(options->dir);
    struct store *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "%s: out of memory", options->dir);
    init_sync(s);
    s->notify = options->notify;
    s->ctx = options->ctx;
    enum status st = db_open(options, &s->db, err);
    if (st == ST_OK) {
        s->stats.bytes_max = options->bytes_max;
        s->stats.bytes = db_bytes(s->db);
        int rc = pthread_create(&s->thread, NULL, store_main, s);
        if (rc != 0)
            st =
                err_set(err, ST_NOMEM, "%s: cannot start a thread: %s", options->dir, strerror(rc));
    }
    if (st != ST_OK) {
        deinit(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void store_close(struct store *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_signal(&s->arrived);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->notify = NULL;
    /* `done` of the last operations may push others. */
    do {
        struct list waiting = s->queue;
        s->queue = (struct list){0};
        run_waiting(s, &waiting);
        store_drain(s);
    } while (s->queue.first);
    CHECK(s->pending == 0);
    deinit(s);
}

void store_push(struct store *s, struct store_op *op) {
    CHECK(op->run && op->done);
    op->in_store = (struct list_link){0};
    op->status = ST_OK;
    op->err.text[0] = 0;
    s->pending++;
    pthread_mutex_lock(&s->lock);
    list_push_last(&s->queue, &op->in_store);
    pthread_cond_signal(&s->arrived);
    pthread_mutex_unlock(&s->lock);
}

uint32_t store_drain(struct store *s) {
    uint32_t count = 0;
    pthread_mutex_lock(&s->lock);
    struct list done = s->done;
    s->done = (struct list){0};
    pthread_mutex_unlock(&s->lock);
    for (struct list_link *l; (l = list_pop_first(&done)); count++) {
        struct store_op *op = op_of(l);
        s->pending--;
        op->done(op);
    }
    return count;
}

uint32_t store_pending(const struct store *s) { return s->pending; }

struct store_stats store_stats(struct store *s) {
    pthread_mutex_lock(&s->lock);
    struct store_stats stats = s->stats;
    pthread_mutex_unlock(&s->lock);
    return stats;
}

const char *store_moved_to(const struct store *s) { return s->db->moved_to; }
