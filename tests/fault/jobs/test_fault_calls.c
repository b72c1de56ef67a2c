/* Goal:   whatever system call of SQLite fails, is short, is interrupted or is late, the store
 *         neither crashes nor leaks, and what it gave back as done is there. A call that is short,
 *         interrupted or late harms nothing.
 * Method: a life of a store that uses every verb (scenario.h), with the k-th call of a kind at
 *         fault. test_fault_disk.c does the same one layer above, where SQLite calls its VFS; here
 *         are what that cannot show: reads and writes of a part, and the map of the index of the
 *         log. JITNEY_FAULTS=full takes every k, else every few, beginning at a random one:
 *         JITNEY_SEED repeats it. */
#define _GNU_SOURCE
#include "unit/jobs/store_lib.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "fault/jobs/scenario.h"

enum kind { OPEN, READ, WRITE, TRUNCATE, FSTAT, MMAP, UNLINK, KINDS };
enum fault { FAILS, NO_SPACE, SHORT, INTERRUPTED, LATE, FAULTS };
static const char *const kind_names[KINDS] = {"open",  "read", "write", "ftruncate",
                                              "fstat", "mmap", "unlink"};
static const char *const fault_names[FAULTS] = {"fails", "finds no space", "is short",
                                                "is interrupted", "is late"};
enum { LATE_US = 1000, STRIDE = 29, INTERRUPTIONS = 3 };

/* Calls come from the store's thread and, while it is opened, from this one: never at one time. */
static struct {
    uint64_t seed, points;
    bool is_full;
    enum kind kind;
    enum fault fault;
    uint64_t at, count;
    bool is_armed, has_fired, stays;
} run;

/* True: the call fails, errno is set. *bytes may become fewer. */
static bool hits(enum kind kind, size_t *bytes) {
    if (!run.is_armed || kind != run.kind) return false;
    const uint64_t n = run.count++;
    const uint64_t last = run.fault == INTERRUPTED ? run.at + INTERRUPTIONS - 1 : run.at;
    if (n < run.at || (n > last && !run.stays)) return false;
    run.has_fired = true;
    if (run.fault == LATE) usleep(LATE_US);
    if (run.fault == SHORT && bytes && *bytes > 1) *bytes = (*bytes + 1) / 2;
    if (run.fault == LATE || run.fault == SHORT) return false;
    errno = run.fault == FAILS ? EIO : run.fault == NO_SPACE ? ENOSPC : EINTR;
    return true;
}

/* ---- the calls ---- */

static int my_open(const char *path, int flags, int mode) {
    return hits(OPEN, NULL) ? -1 : open(path, flags, mode);
}
static ssize_t my_pread(int fd, void *out, size_t len, off_t at) {
    return hits(READ, &len) ? -1 : pread(fd, out, len, at);
}
static ssize_t my_read(int fd, void *out, size_t len) {
    return hits(READ, &len) ? -1 : read(fd, out, len);
}
static ssize_t my_pwrite(int fd, const void *from, size_t len, off_t at) {
    return hits(WRITE, &len) ? -1 : pwrite(fd, from, len, at);
}
static ssize_t my_write(int fd, const void *from, size_t len) {
    return hits(WRITE, &len) ? -1 : write(fd, from, len);
}
static int my_ftruncate(int fd, off_t len) {
    return hits(TRUNCATE, NULL) ? -1 : ftruncate(fd, len);
}
static int my_fstat(int fd, struct stat *out) { return hits(FSTAT, NULL) ? -1 : fstat(fd, out); }
static void *my_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    return hits(MMAP, NULL) ? MAP_FAILED : mmap(at, len, prot, flags, fd, offset);
}
static int my_unlink(const char *path) { return hits(UNLINK, NULL) ? -1 : unlink(path); }

#define CALL(name, function)                                                                       \
    { name, (sqlite3_syscall_ptr)function }
static const struct {
    const char *name;
    sqlite3_syscall_ptr function;
} calls[] = {
    CALL("open", my_open),       CALL("read", my_read),           CALL("pread", my_pread),
    CALL("pread64", my_pread),   CALL("write", my_write),         CALL("pwrite", my_pwrite),
    CALL("pwrite64", my_pwrite), CALL("ftruncate", my_ftruncate), CALL("fstat", my_fstat),
    CALL("mmap", my_mmap),       CALL("unlink", my_unlink)};

static int learn(void **state) {
    (void)state;
    const char *seed = getenv("JITNEY_SEED"), *full = getenv("JITNEY_FAULTS");
    run.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_us();
    run.is_full = full && strcmp(full, "full") == 0;
    printf("JITNEY_SEED=%llu%s\n", (unsigned long long)run.seed,
           run.is_full ? " JITNEY_FAULTS=full" : "");
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    assert_non_null(vfs);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) /* some builds lack some */
        (void)vfs->xSetSystemCall(vfs, calls[i].name, calls[i].function);
    scenario_learn();
    return 0;
}
static int forget(void **state) {
    (void)state;
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        (void)vfs->xSetSystemCall(vfs, calls[i].name, NULL);
    scenario_forget();
    printf("%llu faults were exercised\n", (unsigned long long)run.points);
    return 0;
}

/* ---- a life with a fault ---- */

static void reopen(struct test_store *t, const char *what) {
    if (test_reopen(t) != ST_OK) fail_msg("%s: cannot open again: %s", what, t->err.text);
}

/* From opening on. False: the fault was not reached. */
static bool try_fault(enum kind kind, enum fault fault, uint64_t at, bool stays) {
    struct test_store t;
    char what[96];
    snprintf(what, sizeof(what), "%s %llu %s%s", kind_names[kind], (unsigned long long)at,
             fault_names[fault], stays ? ", and all later ones" : "");
    test_make_dir_in(&t, test_quick_parent());
    t.options.vfs = "unix";
    t.options.log_pages = LOG_PAGES;
    run.kind = kind, run.fault = fault, run.at = at, run.stays = stays;
    run.count = 0, run.has_fired = false, run.is_armed = true;
    size_t step = 0;
    enum status st = test_reopen(&t);
    for (; st == ST_OK && step < scenario_count; step++) {
        st = scenario_steps[step].run(&t);
        if (st != ST_OK) break;
    }
    const bool has_sentence = t.err.text[0];
    test_shut(&t);
    run.is_armed = false;
    const bool is_harmless = fault == SHORT || fault == INTERRUPTED || fault == LATE;
    if (st != ST_OK && (!run.has_fired || is_harmless || !has_sentence))
        fail_msg("%s: %s: \"%s\"", what, status_name(st), t.err.text);
    reopen(&t, what);
    step = scenario_judge(&t, step, what);
    scenario_complete(&t, step);
    test_close(&t);
    return run.has_fired;
}

/* EINTR is for calls that may wait; a map is never interrupted. */
static bool applies(enum kind kind, enum fault fault) {
    const bool transfers = kind == READ || kind == WRITE;
    if (fault == SHORT) return transfers;
    return fault != INTERRUPTED || transfers || kind == OPEN || kind == TRUNCATE;
}

static void exercise(enum fault fault, bool stays) {
    struct rng rng = {.seed = run.seed, .index = (uint64_t)fault * 2 + stays};
    for (enum kind kind = 0; kind < KINDS; kind++) {
        if (!applies(kind, fault)) continue;
        const bool is_common = kind == READ || kind == WRITE || kind == FSTAT;
        const uint64_t stride = run.is_full || !is_common ? 1 : STRIDE * FEWER;
        uint64_t at = rng_below(&rng, stride);
        for (; try_fault(kind, fault, at, stays); at += stride) run.points++;
    }
}

static void test_calls_that_fail(void **state) {
    (void)state;
    exercise(FAILS, false);
    exercise(FAILS, true);
}
static void test_calls_that_find_no_space(void **state) {
    (void)state;
    exercise(NO_SPACE, false);
    exercise(NO_SPACE, true);
}
static void test_reads_and_writes_of_a_part(void **state) {
    (void)state;
    exercise(SHORT, false);
    exercise(SHORT, true);
}
static void test_calls_that_are_interrupted(void **state) {
    (void)state;
    exercise(INTERRUPTED, false);
}
static void test_calls_that_are_late(void **state) {
    (void)state;
    exercise(LATE, false);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_calls_that_fail),
        cmocka_unit_test(test_calls_that_find_no_space),
        cmocka_unit_test(test_reads_and_writes_of_a_part),
        cmocka_unit_test(test_calls_that_are_interrupted),
        cmocka_unit_test(test_calls_that_are_late),
    };
    return cmocka_run_group_tests(cases, learn, forget);
}
