/* unit/jobs/store_lib.h - for tests of the store: a folder, and operations that are waited for.
 *
 *     struct test_store t;    test_open, test_run or test_read, test_close
 */
#ifndef UNIT_JOBS_STORE_LIB_H
#define UNIT_JOBS_STORE_LIB_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/tree.h"
#include "jobs/answers.h"
#include "jobs/batches.h"
#include "jobs/files.h"
#include "jobs/store.h"

struct test_store {
    char dir[64];
    struct store *store;
    struct store_options options;
    struct err err; /* of the last operation or opening */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool has_done;
};

static inline void test_notify(void *ctx) {
    struct test_store *t = ctx;
    pthread_mutex_lock(&t->lock);
    t->has_done = true;
    pthread_cond_signal(&t->woken);
    pthread_mutex_unlock(&t->lock);
}

static inline void test_wait(struct test_store *t) {
    pthread_mutex_lock(&t->lock);
    while (!t->has_done) pthread_cond_wait(&t->woken, &t->lock);
    t->has_done = false;
    pthread_mutex_unlock(&t->lock);
    store_drain(t->store);
}

static inline enum status test_reopen(struct test_store *t) {
    t->has_done = false;
    t->err = (struct err){0};
    t->options.dir = t->dir;
    t->options.notify = test_notify;
    t->options.ctx = t;
    t->store = NULL;
    return store_open(&t->options, &t->store, &t->err);
}

static inline void test_make_dir_in(struct test_store *t, const char *parent) {
    memset(t, 0, sizeof(*t));
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->woken, NULL);
    snprintf(t->dir, sizeof(t->dir), "%s/test_store.XXXXXX", parent);
    assert_non_null(mkdtemp(t->dir));
}
/* A folder in memory if there is one: thousands of commits without a disk. */
static inline const char *test_quick_parent(void) {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}
static inline void test_make_dir(struct test_store *t) { test_make_dir_in(t, "/tmp"); }

static inline void test_open(struct test_store *t) {
    test_make_dir(t);
    enum status st = test_reopen(t);
    if (st != ST_OK) fail_msg("%s", t->err.text);
}

static inline void test_shut(struct test_store *t) {
    store_close(t->store);
    t->store = NULL;
}

static inline void test_close(struct test_store *t) {
    test_shut(t);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->woken);
    assert_int_equal(tree_remove(t->dir, NULL, NULL), ST_OK);
}

/* An operation as a function of the database and a context. */
typedef enum status test_fn(struct store_db *db, void *ctx, struct err *err);
struct test_op {
    struct store_op op;
    test_fn *fn;
    void *ctx;
    uint32_t runs;
    bool is_done;
};

static inline enum status test_op_run(struct store_op *op, struct store_db *db) {
    struct test_op *o = (struct test_op *)(void *)op;
    o->runs++;
    return o->fn(db, o->ctx, &op->err);
}

static inline void test_op_done(struct store_op *op) {
    ((struct test_op *)(void *)op)->is_done = true;
}

static inline void test_push(struct test_store *t, struct test_op *o, test_fn *fn, void *ctx) {
    *o = (struct test_op){.op = {.run = test_op_run, .done = test_op_done}, .fn = fn, .ctx = ctx};
    store_push(t->store, &o->op);
}

static inline enum status test_await(struct test_store *t, struct test_op *o) {
    while (!o->is_done) test_wait(t);
    t->err = o->op.err;
    return o->op.status;
}

static inline enum status test_run(struct test_store *t, test_fn *fn, void *ctx) {
    struct test_op o;
    test_push(t, &o, fn, ctx);
    return test_await(t, &o);
}

static inline enum status test_read(struct test_store *t, test_fn *fn, void *ctx) {
    struct test_op o = {
        .op = {.run = test_op_run, .done = test_op_done, .is_read = true}, .fn = fn, .ctx = ctx};
    store_push(t->store, &o.op);
    return test_await(t, &o);
}

static inline enum status test_check_fn(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    return store_check(db, err);
}

/* The rows agree with each other and the pages are intact. */
static inline void test_check(struct test_store *t) {
    enum status st = test_read(t, test_check_fn, NULL);
    if (st != ST_OK) fail_msg("store_check: %s: %s", status_name(st), t->err.text);
}

#define assert_st(expression, expected)                                                            \
    do {                                                                                           \
        enum status st_ = (expression);                                                            \
        if (st_ != (expected))                                                                     \
            fail_msg("%s: %s, expected %s: %s", #expression, status_name(st_),                     \
                     status_name(expected), t->err.text);                                          \
    } while (0)
#define assert_str(value, text)                                                                    \
    do {                                                                                           \
        struct str str_ = (value);                                                                 \
        if (!str_is(str_, text)) fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(str_), text);          \
    } while (0)

#endif
