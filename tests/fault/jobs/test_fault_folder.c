/* Goal:   whatever call to the folder of the store fails, finds no space, is late or is the last
 *         one of the process, while a store is made, opened, or its damaged database is moved
 *         aside: the reason is reported, what was stored is there when the fault has ended, and of
 *         a damaged database no byte is lost. No descriptor is left.
 * Method: the k-th call of a kind is at fault, for every k, once and from then on; a death in a
 *         child process. Calls of SQLite are in test_fault_disk.c. Every point is exercised: there
 *         is no seed.
 *
 * wrap: open mkdir mkstemp stat lstat fstat fchmod flock read pread write pwrite ftruncate fsync
 * wrap: fdatasync fopen fwrite fflush fclose mmap rename unlink */
#define _GNU_SOURCE
#include "unit/jobs/store_lib.h"

#include <dirent.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/file.h"
#include "fault/fail_call.h"

enum { POINTS_MAX = 10000, DAMAGED_BYTES = 40000 };

static uint64_t points[CALL_FAULTS];

/* What is done with the folder. */
enum work { WORK_MAKE, WORK_OPEN, WORK_MOVE_ASIDE, WORKS };
static const char *const work_names[] = {"making", "opening", "moving aside"};

static void describe(enum work work, const struct fail_call *plan, char out[128]) {
    snprintf(out, 128, "%s: %s %llu %s%s", work_names[work], fail_call_name(plan->call),
             (unsigned long long)plan->at, fail_call_fault_name(plan->how),
             plan->stays ? ", and all later ones" : "");
}

static int descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 64; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- what is stored ---- */

static enum status insert_one(struct store_db *db, void *ctx, struct err *err) {
    const struct answer_row row = {.id = str_of(ctx), .body = STR("{}")};
    return answers_insert(db, &row, err);
}
static enum status find_one(struct store_db *db, void *ctx, struct err *err) {
    struct answer_row row;
    TRY(answers_find(db, STR(""), str_of(ctx), false, &row, err));
    answer_row_deinit(&row);
    return ST_OK;
}

static void fill_damaged(char out[DAMAGED_BYTES]) {
    for (int i = 0; i < DAMAGED_BYTES; i++) out[i] = (char)(i * 31 + 7);
}

static void put_file(const char *path, const char *bytes, size_t len) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

/* `t->dir` becomes a folder two levels below one that exists. */
static void prepare(struct test_store *t, enum work work) {
    static char damaged[DAMAGED_BYTES];
    char path[128];
    test_make_dir_in(t, test_quick_parent());
    if (work == WORK_MAKE) {
        snprintf(t->dir + strlen(t->dir), sizeof(t->dir) - strlen(t->dir), "/a/b");
        return;
    }
    if (work == WORK_OPEN) {
        assert_int_equal(test_reopen(t), ST_OK);
        assert_int_equal(test_run(t, insert_one, (void *)"before"), ST_OK);
        test_shut(t);
        return;
    }
    fill_damaged(damaged);
    snprintf(path, sizeof(path), "%s/jitney.db", t->dir);
    put_file(path, damaged, sizeof(damaged));
    snprintf(path, sizeof(path), "%s/jitney.db-wal", t->dir);
    put_file(path, "a log", 5);
    t->options.recovers = true;
}

static void remove_all(struct test_store *t, enum work work) {
    if (work == WORK_MAKE) t->dir[strlen(t->dir) - strlen("/a/b")] = 0;
    assert_int_equal(tree_remove(t->dir, NULL, NULL), ST_OK);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->woken);
}

/* ---- what must hold ---- */

static bool is_damaged_file(const char *path) {
    static char damaged[DAMAGED_BYTES];
    struct buf text;
    struct err err = {0};
    fill_damaged(damaged);
    buf_init(&text, 1 << 20);
    bool same = file_read(path, &text, &err) == ST_OK && text.len == sizeof(damaged) &&
                memcmp(text.ptr, damaged, sizeof(damaged)) == 0;
    buf_deinit(&text);
    return same;
}

static void check_damaged_is_kept(const struct test_store *t, const char *what) {
    int found = 0;
    DIR *dir = opendir(t->dir);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", t->dir, e->d_name);
        found += is_damaged_file(path);
    }
    closedir(dir);
    if (found != 1) fail_msg("%s: the damaged database is there %d times", what, found);
}

/* The fault has ended: the store works, with all that it had. */
static void check_folder(struct test_store *t, enum work work, bool has_row, const char *what) {
    if (work == WORK_MOVE_ASIDE) check_damaged_is_kept(t, what);
    if (test_reopen(t) != ST_OK) fail_msg("%s: then: %s", what, t->err.text);
    if (work == WORK_OPEN) assert_int_equal(test_read(t, find_one, (void *)"before"), ST_OK);
    if (has_row && test_read(t, find_one, (void *)"during") != ST_OK)
        fail_msg("%s: what was stored meanwhile is lost", what);
    assert_int_equal(test_run(t, insert_one, (void *)"after"), ST_OK);
    test_check(t);
    test_shut(t);
    if (work == WORK_MOVE_ASIDE) check_damaged_is_kept(t, what);
}

/* ---- faults ---- */

static bool try_fault(enum work work, const struct fail_call *plan) {
    struct test_store t;
    char what[128];
    enum status stored = ST_IO;
    describe(work, plan, what);
    prepare(&t, work);
    const int before = descriptors();
    fail_call_plan(plan);
    enum status st = test_reopen(&t);
    if (st == ST_OK) stored = test_run(&t, insert_one, (void *)"during");
    const bool has_sentence = t.err.text[0];
    test_shut(&t);
    const bool fired = fail_call_heal();
    if (st != ST_OK && !has_sentence) fail_msg("%s: %s without a sentence", what, status_name(st));
    if (st != ST_OK && (!fired || plan->how == FAIL_LATE)) fail_msg("%s: %s", what, t.err.text);
    if (descriptors() != before) fail_msg("%s: %d descriptors more", what, descriptors() - before);
    check_folder(&t, work, stored == ST_OK, what);
    remove_all(&t, work);
    return fired;
}

static void exercise(enum call_fault how, bool stays) {
    for (enum work work = 0; work < WORKS; work++) {
        for (enum call call = 0; call < CALL_KINDS; call++) {
            for (uint64_t at = 0; at < POINTS_MAX; at++) {
                const struct fail_call plan = {.call = call, .how = how, .at = at, .stays = stays};
                if (!try_fault(work, &plan)) break;
                points[how]++;
            }
        }
    }
}

static void test_calls_that_fail(void **state) {
    (void)state;
    for (int stays = 0; stays < 2; stays++) exercise(FAIL_IO, stays);
    assert_true(points[FAIL_IO] > 40);
}
static void test_calls_that_find_no_space(void **state) {
    (void)state;
    for (int stays = 0; stays < 2; stays++) exercise(FAIL_NO_SPACE, stays);
    assert_true(points[FAIL_NO_SPACE] > 40);
}
static void test_calls_that_are_late(void **state) {
    (void)state;
    exercise(FAIL_LATE, false);
    assert_true(points[FAIL_LATE] > 20);
}

static bool try_death(enum work work, uint64_t at) {
    const struct fail_call plan = {.call = CALL_ANY, .how = FAIL_DEATH, .at = at};
    struct test_store t;
    char what[128];
    int code = 0;
    describe(work, &plan, what);
    prepare(&t, work);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fail_call_plan(&plan);
        enum status st = test_reopen(&t);
        if (st == ST_OK) st = test_run(&t, insert_one, (void *)"during");
        _exit(st == ST_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_true(WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == DEATH_CODE);
    check_folder(&t, work, WEXITSTATUS(code) == 0, what);
    remove_all(&t, work);
    return WEXITSTATUS(code) == DEATH_CODE;
}

static void test_a_process_that_dies_before_any_call(void **state) {
    (void)state;
    for (enum work work = 0; work < WORKS; work++) {
        uint64_t at = 0;
        while (at < POINTS_MAX && try_death(work, at)) at++;
        points[FAIL_DEATH] += at;
    }
    assert_true(points[FAIL_DEATH] > 20);
}

static int teardown(void **state) {
    (void)state;
    uint64_t total = 0;
    for (enum call_fault how = 0; how < CALL_FAULTS; how++) total += points[how];
    printf("%llu faults were exercised\n", (unsigned long long)total);
    return 0;
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_calls_that_fail),
        cmocka_unit_test(test_calls_that_find_no_space),
        cmocka_unit_test(test_calls_that_are_late),
        cmocka_unit_test(test_a_process_that_dies_before_any_call),
    };
    return cmocka_run_group_tests(cases, NULL, teardown);
}
