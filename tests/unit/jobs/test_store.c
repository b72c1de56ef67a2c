/* Goal:   the store itself: what was given back is on disk, one operation's failure is its own, one
 *         server a folder, and a folder, a file or a size that is wrong is reported in a sentence.
 * Method: small operations on files and answers; other servers, full disks and removed files are
 *         made for real, in a new folder for each case. */
#define _GNU_SOURCE
#include "unit/jobs/store_lib.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

static int set_up(void **state) {
    static struct test_store t;
    test_make_dir(&t);
    *state = &t;
    return 0;
}
static int tear_down(void **state) {
    test_close(*state);
    return 0;
}

static void in_dir(const struct test_store *t, const char *name, char out[256]) {
    assert_true(path_join(out, 256, t->dir, name));
}

/* ---- operations ---- */

struct text {
    struct str id, body;
};
static enum status put_answer(struct store_db *db, void *ctx, struct err *err) {
    const struct text *x = ctx;
    const struct answer_row row = {.id = x->id, .body = x->body};
    return answers_insert(db, &row, err);
}
static enum status has_answer(struct store_db *db, void *ctx, struct err *err) {
    const struct text *x = ctx;
    struct answer_row row;
    TRY(answers_find(db, STR(""), x->id, true, &row, err));
    bool same = str_eq(row.body, x->body);
    answer_row_deinit(&row);
    return same ? ST_OK : ST_BAD;
}
static enum status drop_answer(struct store_db *db, void *ctx, struct err *err) {
    const struct text *x = ctx;
    return answers_delete(db, STR(""), x->id, err);
}
static enum status put_and_refuse(struct store_db *db, void *ctx, struct err *err) {
    TRY(put_answer(db, ctx, err));
    return err_set(err, ST_CANCELLED, "changed my mind");
}

/* ---- groups ---- */

enum { MANY = 1000 };

static void test_operations_that_wait_share_a_commit(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    static struct test_op ops[MANY];
    static struct text texts[MANY];
    static char ids[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof(ids[i]), "a%d", i);
        texts[i] = (struct text){.id = str_of(ids[i]), .body = STR("body")};
        test_push(t, &ops[i], put_answer, &texts[i]);
    }
    assert_int_equal(store_pending(t->store), MANY);
    for (int i = 0; i < MANY; i++) assert_st(test_await(t, &ops[i]), ST_OK);
    assert_int_equal(store_pending(t->store), 0);
    struct store_stats stats = store_stats(t->store);
    assert_int_equal(stats.operations, MANY);
    assert_in_range(stats.commits, 1, MANY / 4);
    assert_int_equal(stats.failed, 0);
    assert_false(stats.is_failing);
    assert_true(stats.bytes > 0 && stats.commit_us_max >= stats.commit_us_last);
    test_check(t);
}

static void test_one_operation_fails_alone(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    struct text a = {STR("a"), STR("1")}, b = {STR("b"), STR("2")}, c = {STR("c"), STR("3")};
    struct test_op ops[4];
    test_push(t, &ops[0], put_answer, &a);
    test_push(t, &ops[1], put_and_refuse, &b);
    test_push(t, &ops[2], put_answer, &a); /* exists */
    test_push(t, &ops[3], put_answer, &c);
    assert_st(test_await(t, &ops[0]), ST_OK);
    assert_st(test_await(t, &ops[1]), ST_CANCELLED);
    assert_string_equal(ops[1].op.err.text, "changed my mind");
    assert_st(test_await(t, &ops[2]), ST_BAD);
    assert_st(test_await(t, &ops[3]), ST_OK);
    assert_st(test_read(t, has_answer, &a), ST_OK);
    assert_st(test_read(t, has_answer, &b), ST_MISSING);
    assert_st(test_read(t, has_answer, &c), ST_OK);
    assert_int_equal(store_stats(t->store).failed, 0);
}

static void test_a_read_sees_the_writes_before_it(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof(id), "a%d", i);
        struct text x = {str_of(id), STR("1")};
        struct test_op write,
            read = {.op = {.run = test_op_run, .done = test_op_done, .is_read = true},
                    .fn = has_answer,
                    .ctx = &x};
        test_push(t, &write, put_answer, &x);
        store_push(t->store, &read.op);
        assert_st(test_await(t, &read), ST_OK);
        assert_st(test_await(t, &write), ST_OK);
    }
}

struct chain_op {
    struct test_op first, second;
    struct test_store *t;
    struct text x, y;
};
static void push_second(struct store_op *op) {
    struct chain_op *c = (struct chain_op *)(void *)op;
    c->first.is_done = true;
    test_push(c->t, &c->second, put_answer, &c->y);
}

static void test_closing_runs_what_waits_and_what_that_pushes(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    struct chain_op c = {.t = t, .x = {STR("x"), STR("1")}, .y = {STR("y"), STR("2")}};
    c.first = (struct test_op){
        .op = {.run = test_op_run, .done = push_second}, .fn = put_answer, .ctx = &c.x};
    store_push(t->store, &c.first.op);
    test_shut(t);
    assert_true(c.first.is_done && c.second.is_done);
    assert_int_equal(c.second.op.status, ST_OK);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, has_answer, &c.x), ST_OK);
    assert_st(test_read(t, has_answer, &c.y), ST_OK);
}

static void test_what_was_given_back_survives_a_crash(void **state) {
    struct test_store *t = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* ends without closing anything */
        struct text x = {STR("a"), STR("1")};
        bool fine = test_reopen(t) == ST_OK && test_run(t, put_answer, &x) == ST_OK;
        _exit(fine ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_st(test_reopen(t), ST_OK);
    struct text x = {STR("a"), STR("1")};
    assert_st(test_read(t, has_answer, &x), ST_OK);
    test_check(t);
}

/* ---- the folder ---- */

static void test_a_folder_has_one_server(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    struct store *other = NULL;
    struct err err = {0};
    assert_int_equal(store_open(&t->options, &other, &err), ST_UNAVAILABLE);
    char pid[32];
    snprintf(pid, sizeof(pid), "(pid %ld)", (long)getpid());
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, t->dir));
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
}

static void test_files_are_readable_by_their_owner_alone(void **state) {
    struct test_store *t = *state;
    char sub[256], path[300];
    in_dir(t, "new/deeper", sub);
    mode_t old = umask(0);
    struct store *s = NULL;
    struct err err = {0};
    t->options = (struct store_options){.dir = sub};
    enum status st = store_open(&t->options, &s, &err);
    umask(old);
    assert_int_equal(st, ST_OK);
    struct stat info;
    assert_int_equal(stat(sub, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    const char *const names[] = {"jitney.db", "jitney.db-wal", "jitney.db-shm", "lock"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", sub, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    store_close(s);
}

static void test_a_folder_that_cannot_be_made_is_reported(void **state) {
    struct test_store *t = *state;
    char path[256], below[300];
    in_dir(t, "file", path);
    assert_int_equal(file_write_atomic(path, STR("x"), NULL), ST_OK);
    const char *const wrong[] = {path, below};
    snprintf(below, sizeof(below), "%s/store", path);
    for (int i = 0; i < 2; i++) {
        struct store *s = NULL;
        struct err err = {0};
        const struct store_options options = {.dir = wrong[i]};
        assert_int_equal(store_open(&options, &s, &err), ST_IO);
        assert_non_null(strstr(err.text, path));
    }
}

/* ---- versions and damage ---- */

static void exec_sql(const struct test_store *t, const char *sql) {
    char path[256];
    sqlite3 *db = NULL;
    in_dir(t, "jitney.db", path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void test_a_newer_version_is_refused(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    test_shut(t);
    exec_sql(t, "PRAGMA user_version = 77");
    t->options.recovers = true; /* it is not damaged */
    assert_st(test_reopen(t), ST_BAD);
    assert_non_null(strstr(t->err.text, "77"));
    exec_sql(t, "PRAGMA user_version = 1");
    assert_st(test_reopen(t), ST_OK);
}

static void test_a_database_of_another_program_is_refused(void **state) {
    struct test_store *t = *state;
    exec_sql(t, "CREATE TABLE notes (text)");
    assert_st(test_reopen(t), ST_BAD);
    assert_non_null(strstr(t->err.text, "another program"));
}

static void overwrite(const struct test_store *t, long offset, size_t bytes) {
    char path[256], junk[8192];
    in_dir(t, "jitney.db", path);
    memset(junk, 0x5a, sizeof(junk));
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, junk, bytes, offset), bytes);
    close(fd);
}

static void fill(struct test_store *t, int count, size_t bytes) {
    char *body = mem_alloc(bytes);
    memset(body, 'b', bytes);
    for (int i = 0; i < count; i++) {
        char id[16];
        snprintf(id, sizeof(id), "fill%d", i);
        struct text x = {str_of(id), {body, bytes}};
        assert_st(test_run(t, put_answer, &x), ST_OK);
    }
    mem_free(body);
}

static void expect_damage(struct test_store *t) {
    assert_st(test_reopen(t), ST_BAD);
    assert_non_null(strstr(t->err.text, "damaged"));
    assert_non_null(strstr(t->err.text, "--jobs-recover"));
    assert_non_null(strstr(t->err.text, "jitney.db"));
}

static void test_a_damaged_database_is_refused_and_can_be_moved_aside(void **state) {
    struct test_store *t = *state;
    const long places[] = {0, 4096 * 3, 4096 * 9};
    for (int i = 0; i < 3; i++) {
        t->options.recovers = false;
        assert_st(test_reopen(t), ST_OK);
        fill(t, 30, 3000);
        test_shut(t);
        overwrite(t, places[i], 4096);
        expect_damage(t);
        t->options.recovers = true;
        assert_st(test_reopen(t), ST_OK);
        assert_true(file_size(store_moved_to(t->store)) > 0);
        assert_non_null(strstr(store_moved_to(t->store), "jitney.db.damaged-20"));
        struct text x = {STR("fill0"), STR("")};
        assert_st(test_read(t, has_answer, &x), ST_MISSING);
        test_shut(t);
        char path[256];
        in_dir(t, "jitney.db", path);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_an_empty_database_with_a_log_is_damaged(void **state) {
    struct test_store *t = *state;
    char log[256], path[256], moved[320];
    in_dir(t, "jitney.db-wal", log);
    in_dir(t, "jitney.db", path);
    for (int i = 0; i < 2; i++) { /* missing, empty */
        int fd = open(log, O_WRONLY | O_CREAT, 0600);
        assert_int_equal(write(fd, "log", 3), 3);
        close(fd);
        if (i == 1) assert_int_equal(truncate(path, 0), 0);
        t->options.recovers = false;
        expect_damage(t);
        assert_int_equal(file_size(log), 3);
        t->options.recovers = true;
        assert_st(test_reopen(t), ST_OK);
        snprintf(moved, sizeof(moved), "%s-wal", store_moved_to(t->store));
        assert_int_equal(file_size(moved), 3);
        test_shut(t);
    }
}

/* Opening writes nothing, so a server starts on a full disk. */
static void test_opening_writes_nothing(void **state) {
    struct test_store *t = *state;
    char log[256];
    in_dir(t, "jitney.db-wal", log);
    assert_st(test_reopen(t), ST_OK);
    fill(t, 2, 10);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_int_equal(file_size(log), 0);
    test_shut(t);
    exec_sql(t, "CREATE TABLE pages AS SELECT auto_vacuum AS is_vacuumed, page_size"
                " FROM pragma_auto_vacuum, pragma_page_size");
    exec_sql(t, "CREATE TABLE checked (a CHECK (a)); INSERT INTO checked"
                " SELECT is_vacuumed = 2 AND page_size = 4096 FROM pages");
}

static void test_a_healthy_database_is_not_moved_aside(void **state) {
    struct test_store *t = *state;
    t->options.recovers = true;
    assert_st(test_reopen(t), ST_OK);
    fill(t, 2, 10);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_string_equal(store_moved_to(t->store), "");
    struct text x = {STR("fill1"), STR("bbbbbbbbbb")};
    assert_st(test_read(t, has_answer, &x), ST_OK);
}

/* ---- files that vanish ---- */

static void expect_removed(struct test_store *t, const char *name) {
    char path[256], away[256];
    in_dir(t, name, path);
    in_dir(t, "away", away);
    struct text x = {STR("a"), STR("1")};
    assert_int_equal(rename(path, away), 0);
    assert_st(test_run(t, put_answer, &x), ST_IO);
    assert_non_null(strstr(t->err.text, path));
    assert_non_null(strstr(t->err.text, "removed"));
    assert_true(store_stats(t->store).is_failing);
    assert_int_equal(store_stats(t->store).last_status, ST_IO);
    assert_int_equal(rename(away, path), 0);
    assert_st(test_run(t, put_answer, &x), ST_OK); /* it is back */
    assert_false(store_stats(t->store).is_failing);
    assert_st(test_run(t, drop_answer, &x), ST_OK);
}

static void test_nothing_is_written_to_a_file_that_lost_its_name(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    expect_removed(t, "jitney.db");
    expect_removed(t, "jitney.db-wal");
}

static enum status put_and_remove(struct store_db *db, void *ctx, struct err *err) {
    struct test_store *t = ctx;
    char path[256], away[256];
    const struct answer_row row = {.id = STR("lost")};
    in_dir(t, "jitney.db-wal", path);
    in_dir(t, "away", away);
    TRY(answers_insert(db, &row, err));
    if (access(away, F_OK) != 0 && rename(path, away) != 0) return ST_CANCELLED;
    return ST_OK;
}

static void test_a_file_that_vanishes_during_the_commit_is_noticed(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_run(t, put_and_remove, t), ST_IO);
    assert_non_null(strstr(t->err.text, "removed"));
}

static void test_a_folder_that_was_replaced_is_left_alone(void **state) {
    struct test_store *t = *state;
    char path[256];
    assert_st(test_reopen(t), ST_OK);
    struct text x = {STR("a"), STR("1")};
    assert_st(test_run(t, put_answer, &x), ST_OK);
    in_dir(t, "jitney.db", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_write_atomic(path, STR("another database"), NULL), ST_OK);
    in_dir(t, "jitney.db-wal", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_write_atomic(path, STR("another log"), NULL), ST_OK);
    assert_st(test_run(t, put_answer, &x), ST_IO);
    test_shut(t);
    assert_int_equal(file_size(path), strlen("another log"));
}

/* ---- other programs ---- */

static void test_a_backup_can_be_made_while_the_store_runs(void **state) {
    struct test_store *t = *state;
    char copy[256];
    assert_st(test_reopen(t), ST_OK);
    fill(t, 20, 1000);
    in_dir(t, "copy.db", copy);
    char sql[300];
    snprintf(sql, sizeof(sql), "VACUUM INTO '%s'", copy);
    exec_sql(t, sql);
    struct text x = {STR("more"), STR("1")};
    assert_st(test_run(t, put_answer, &x), ST_OK);
    test_shut(t);
    char path[256];
    in_dir(t, "jitney.db", path);
    assert_int_equal(rename(copy, path), 0);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, has_answer, &x), ST_MISSING);
    test_check(t);
}

static void test_a_program_that_writes_holds_up_the_store_for_a_second(void **state) {
    struct test_store *t = *state;
    char path[256];
    sqlite3 *other = NULL;
    assert_st(test_reopen(t), ST_OK);
    in_dir(t, "jitney.db", path);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    sqlite3_busy_timeout(other, 60000); /* the store may be writing on its own account */
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    struct text x = {STR("a"), STR("1")};
    assert_st(test_run(t, put_answer, &x), ST_IO);
    assert_non_null(strstr(t->err.text, "locked by another program"));
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_st(test_run(t, put_answer, &x), ST_OK);
    sqlite3_close(other);
}

/* ---- space ---- */

static void test_a_limit_leaves_room_for_results_and_deletions(void **state) {
    struct test_store *t = *state;
    t->options.bytes_max = 4 << 20;
    assert_st(test_reopen(t), ST_OK);
    char *body = mem_alloc(100000);
    memset(body, 'b', 100000);
    int count = 0;
    enum status st = ST_OK;
    for (; count < 100 && st == ST_OK; count++) {
        char id[16];
        snprintf(id, sizeof(id), "a%d", count);
        struct text x = {str_of(id), {body, 100000}};
        st = test_run(t, put_answer, &x);
    }
    mem_free(body);
    assert_int_equal(st, ST_FULL);
    assert_in_range(count, 30, 40);
    assert_non_null(strstr(t->err.text, "jitney.db"));
    assert_false(store_stats(t->store).is_failing); /* the disk is fine */
    struct text x = {STR("a0"), STR("")}, y = {STR("new"), STR("small")};
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "a%d", i);
        x.id = str_of(id);
        assert_st(test_run(t, drop_answer, &x), ST_OK);
    }
    assert_st(test_run(t, put_answer, &y), ST_OK);
    assert_true(store_stats(t->store).bytes_max == 4 << 20);
}

static uint64_t db_file_bytes(const struct test_store *t) {
    char path[256];
    in_dir(t, "jitney.db", path);
    return (uint64_t)file_size(path);
}

static void test_space_of_deleted_rows_is_given_back(void **state) {
    struct test_store *t = *state;
    assert_st(test_reopen(t), ST_OK);
    fill(t, 300, 100000);
    for (int i = 0; i < 500 && db_file_bytes(t) < 20 << 20; i++) usleep(10000);
    assert_true(db_file_bytes(t) >= 20 << 20);
    assert_true(store_stats(t->store).bytes <= db_file_bytes(t) + (17 << 20)); /* a short log */
    for (int i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof(id), "fill%d", i);
        struct text x = {str_of(id), STR("")};
        assert_st(test_run(t, drop_answer, &x), ST_OK);
    }
    for (int i = 0; i < 500 && db_file_bytes(t) > 6 << 20; i++) usleep(10000);
    assert_true(db_file_bytes(t) <= 6 << 20);
    test_check(t);
}

static void test_a_full_disk_is_reported_and_writing_goes_on_when_it_has_room(void **state) {
    struct test_store *t = *state;
    if (mount("tmpfs", t->dir, "tmpfs", 0, "size=8m,mode=700") != 0) skip();
    assert_st(test_reopen(t), ST_OK);
    char path[256], block[65536] = {0};
    in_dir(t, "ballast", path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof(block)) > 0) {
    }
    char *body = mem_alloc(1 << 20);
    memset(body, 'b', 1 << 20);
    struct text big = {STR("big"), {body, 1 << 20}};
    enum status st = ST_OK;
    char id[16];
    int kept = 0;
    for (; st == ST_OK && kept < 20; kept++) {
        snprintf(id, sizeof(id), "a%d", kept);
        big.id = str_of(id);
        st = test_run(t, put_answer, &big);
    }
    kept--;
    assert_int_equal(st, ST_FULL);
    assert_non_null(strstr(t->err.text, "no space"));
    assert_true(store_stats(t->store).is_failing);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    for (int i = 0; i < 300 && store_stats(t->store).is_failing; i++) usleep(10000);
    assert_false(store_stats(t->store).is_failing); /* by itself */
    assert_st(test_run(t, put_answer, &big), ST_OK);
    for (int i = 0; i <= kept; i++) {
        snprintf(id, sizeof(id), "a%d", i);
        struct text x = {str_of(id), big.body};
        assert_st(test_read(t, has_answer, &x), ST_OK);
    }
    test_check(t);
    mem_free(body);
    test_shut(t);
    assert_int_equal(umount(t->dir), 0);
}

static enum status make_file(struct store_db *db, void *ctx, struct err *err) {
    const struct file_row row = {.id = STR("f"), .purpose = str_of(ctx)};
    return files_create(db, &row, err);
}
static enum status append_to_file(struct store_db *db, void *ctx, struct err *err) {
    return files_append(db, STR("f"), *(struct str *)ctx, err);
}
static enum status abandon_file(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    return files_abandon(db, STR("f"), err);
}

/* A file fills the disk and is given up: then there is room, and not only in the log. */
static void fill_the_disk_with_a_file(struct test_store *t, char *purpose) {
    if (mount("tmpfs", t->dir, "tmpfs", 0, "size=20m,mode=700") != 0) skip();
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_run(t, make_file, purpose), ST_OK);
    char *bytes = mem_alloc(1 << 20);
    memset(bytes, 'b', 1 << 20);
    struct str piece = {bytes, 1 << 20};
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 40; i++) st = test_run(t, append_to_file, &piece);
    assert_int_equal(st, ST_FULL);
    assert_st(test_run(t, abandon_file, NULL), ST_OK);
    struct text big = {STR("big"), {bytes, 1 << 20}};
    for (int i = 0; i < 500 && test_run(t, put_answer, &big) != ST_OK; i++) usleep(10000);
    assert_st(test_read(t, has_answer, &big), ST_OK);
    mem_free(bytes);
    test_check(t);
    test_shut(t);
    assert_int_equal(umount(t->dir), 0);
}

static void test_a_file_that_does_not_fit_leaves_room_for_others(void **state) {
    char purpose[] = "batch";
    fill_the_disk_with_a_file(*state, purpose);
}

static void test_what_is_deleted_makes_room_when_results_have_filled_the_disk(void **state) {
    char purpose[] = "batch_output";
    fill_the_disk_with_a_file(*state, purpose);
}

static void test_a_read_only_disk_is_reported_and_writing_goes_on_later(void **state) {
    struct test_store *t = *state;
    if (mount("tmpfs", t->dir, "tmpfs", 0, "size=8m,mode=700") != 0) skip();
    assert_st(test_reopen(t), ST_OK);
    struct text x = {STR("x"), STR("1")};
    assert_st(test_run(t, put_answer, &x), ST_OK);
    test_shut(t);
    assert_int_equal(mount("tmpfs", t->dir, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_st(test_reopen(t), ST_IO);
    assert_true(t->err.text[0] != 0);
    assert_int_equal(mount("tmpfs", t->dir, "tmpfs", MS_REMOUNT, NULL), 0);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, has_answer, &x), ST_OK);
    test_shut(t);
    assert_int_equal(umount(t->dir), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_operations_that_wait_share_a_commit),
        CASE(test_one_operation_fails_alone),
        CASE(test_a_read_sees_the_writes_before_it),
        CASE(test_closing_runs_what_waits_and_what_that_pushes),
        CASE(test_what_was_given_back_survives_a_crash),
        CASE(test_a_folder_has_one_server),
        CASE(test_files_are_readable_by_their_owner_alone),
        CASE(test_a_folder_that_cannot_be_made_is_reported),
        CASE(test_a_newer_version_is_refused),
        CASE(test_a_database_of_another_program_is_refused),
        CASE(test_a_damaged_database_is_refused_and_can_be_moved_aside),
        CASE(test_an_empty_database_with_a_log_is_damaged),
        CASE(test_opening_writes_nothing),
        CASE(test_a_healthy_database_is_not_moved_aside),
        CASE(test_nothing_is_written_to_a_file_that_lost_its_name),
        CASE(test_a_file_that_vanishes_during_the_commit_is_noticed),
        CASE(test_a_folder_that_was_replaced_is_left_alone),
        CASE(test_a_backup_can_be_made_while_the_store_runs),
        CASE(test_a_program_that_writes_holds_up_the_store_for_a_second),
        CASE(test_a_limit_leaves_room_for_results_and_deletions),
        CASE(test_space_of_deleted_rows_is_given_back),
        CASE(test_a_full_disk_is_reported_and_writing_goes_on_when_it_has_room),
        CASE(test_a_file_that_does_not_fit_leaves_room_for_others),
        CASE(test_what_is_deleted_makes_room_when_results_have_filled_the_disk),
        CASE(test_a_read_only_disk_is_reported_and_writing_goes_on_later),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
