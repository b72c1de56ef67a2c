/* Goal:   whatever call of `jitney batch` to the file system fails, is short, is interrupted, is
 *         late or is the last one of the process: OUT is what it was before or complete, a result
 *         that was brought to the disk is there for the next run, and the same command then ends
 *         with the same OUT. No descriptor is left.
 * Method: the files of a run (input, partial results, output), with the k-th call of a kind at
 *         fault, for every k, once and from then on; a death in a child process. Every point is
 *         exercised, so there is no seed.
 *
 * wrap: open mkdir mkstemp stat lstat fstat fchmod flock read pread write pwrite ftruncate fsync
 * wrap: fdatasync fopen fwrite fflush fclose mmap rename unlink */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/tree.h"
#include "cli/batch_input.h"
#include "cli/batch_partial.h"
#include "fault/fail_call.h"

enum { LINES = 5, PATH_MAX_BYTES = 96, RESULT_BYTES = 3000, POINTS_MAX = 100000 };
#define BEFORE "what was there before\n"

static char folder[] = "/tmp/jitney_calls_XXXXXX";
static char in_path[PATH_MAX_BYTES], out_path[PATH_MAX_BYTES], partial_path[PATH_MAX_BYTES];
static uint64_t points[CALL_FAULTS];

/* What the command knows; shared with the child that dies. */
static struct told { bool is_synced[LINES]; } * told;

static void ignore(void *ctx, const char *sentence) {
    (void)ctx;
    (void)sentence;
}

static struct str result_of(uint32_t number, char out[RESULT_BYTES + 1]) {
    memset(out, 'a' + (int)number, RESULT_BYTES);
    out[0] = '{';
    out[RESULT_BYTES] = 0;
    return (struct str){out, RESULT_BYTES};
}

/* ---- the command ---- */

static enum status put_line(struct batch_partial *p, const struct batch_input *in, uint32_t number,
                            struct err *err) {
    char text[RESULT_BYTES + 1];
    struct batch_request q;
    const struct batch_entry e = {
        .number = number, .status = 200, .answer_tokens = 3, .output = result_of(number, text)};
    TRY(batch_input_read(in, number, &q, err));
    json_destroy(q.doc);
    return batch_partial_put(p, &e, err);
}

static enum status put_lines(struct batch_partial *p, const struct batch_input *in,
                             struct err *err) {
    for (uint32_t i = 0; i < LINES; i++) {
        const uint32_t number = in->run_order[i];
        if (batch_partial_has(p, number)) continue;
        TRY(put_line(p, in, number, err));
        if (i % 2) continue; /* a sync is for several results */
        TRY(batch_partial_sync(p, err));
        for (uint32_t k = 0; k < LINES; k++)
            if (batch_partial_has(p, k)) told->is_synced[k] = true;
    }
    return ST_OK;
}

static enum status run_lines(const struct batch_input *in, struct batch_partial *p,
                             struct err *err) {
    TRY(batch_partial_begin(p, "fp", err));
    TRY(put_lines(p, in, err));
    return batch_partial_finish(p, out_path, err);
}

static enum status run_command(struct err *err) {
    const struct batch_partial_options options = {.path = partial_path};
    struct batch_input in;
    struct batch_partial *p = NULL;
    TRY(batch_input_open(&in, in_path, ignore, NULL, err));
    struct batch_origin origin = {.line_count = in.count, .input_bytes = in.text.len, .seed = 7};
    str_store(str_of(in.sha256), origin.input_sha256, sizeof(origin.input_sha256));
    enum status st = batch_partial_open(&options, &origin, &p, err);
    if (st == ST_OK) st = run_lines(&in, p, err);
    batch_partial_close(p);
    batch_input_close(&in);
    return st;
}

/* ---- what must hold ---- */

static void describe(const struct fail_call *plan, char out[96]) {
    snprintf(out, 96, "%s %llu %s%s", fail_call_name(plan->call), (unsigned long long)plan->at,
             fail_call_fault_name(plan->how), plan->stays ? ", and all later ones" : "");
}

static bool file_is(const char *path, struct str expected) {
    struct buf text;
    struct err err = {0};
    buf_init(&text, 1 << 20);
    bool same = file_read(path, &text, &err) == ST_OK && str_eq(buf_str(&text), expected);
    buf_deinit(&text);
    return same;
}

static bool is_complete(void) {
    struct buf expected;
    char text[RESULT_BYTES + 1];
    buf_init(&expected, 1 << 20);
    for (uint32_t i = 0; i < LINES; i++) {
        buf_put_str(&expected, result_of(i, text));
        buf_put_char(&expected, '\n');
    }
    bool same = file_is(out_path, buf_str(&expected));
    buf_deinit(&expected);
    return same;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 64; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void note_kept(void *ctx, const struct batch_entry *e, size_t offset) {
    (void)offset;
    ((struct told *)ctx)->is_synced[e->number] = true;
}

/* A result that was brought to the disk is not computed again. */
static void check_kept(const char *what) {
    struct batch_origin origin;
    struct buf text;
    struct err err = {0};
    struct told kept = {{false}};
    size_t used = 0;
    buf_init(&text, 1 << 20);
    assert_int_equal(file_read(partial_path, &text, &err), ST_OK);
    (void)batch_partial_read(buf_str(&text), &origin, note_kept, &kept, &used);
    for (uint32_t i = 0; i < LINES; i++)
        if (told->is_synced[i] && !kept.is_synced[i]) fail_msg("%s: result %u is lost", what, i);
    buf_deinit(&text);
}

static void begin_life(void) {
    *told = (struct told){{false}};
    unlink(partial_path);
    write_text(out_path, BEFORE);
}

/* After the fault: OUT is old or complete, nothing that was told is lost, and the command ends. */
static void check_life(enum status st, const char *what) {
    struct err err = {0};
    const bool is_old = file_is(out_path, STR(BEFORE)), is_new = is_complete();
    if (!is_old && !is_new) fail_msg("%s: OUT is there in part", what);
    if (st == ST_OK && !is_new) fail_msg("%s: it said that OUT is complete", what);
    if (!is_new && file_exists(partial_path)) check_kept(what);
    for (uint32_t i = 0; !is_new && !file_exists(partial_path) && i < LINES; i++)
        if (told->is_synced[i]) fail_msg("%s: result %u is lost with the whole file", what, i);
    st = run_command(&err);
    if (st != ST_OK) fail_msg("%s: the next run: %s: %s", what, status_name(st), err.text);
    if (!is_complete()) fail_msg("%s: the next run's OUT differs", what);
    if (file_exists(partial_path)) fail_msg("%s: OUT.partial is left", what);
}

/* ---- faults ---- */

static bool try_fault(const struct fail_call *plan) {
    struct err err = {0};
    char what[96];
    describe(plan, what);
    begin_life();
    const int before = descriptors();
    fail_call_plan(plan);
    enum status st = run_command(&err);
    const bool fired = fail_call_heal();
    if (st != ST_OK && !err.text[0]) fail_msg("%s: %s without a sentence", what, status_name(st));
    if (st != ST_OK && !fired) fail_msg("%s: %s", what, err.text);
    const bool is_harmless = plan->how == FAIL_LATE ||
                             (plan->how == FAIL_SHORT && !plan->stays && plan->call != CALL_FWRITE);
    if (st != ST_OK && is_harmless) fail_msg("%s: %s", what, err.text);
    if (descriptors() != before) fail_msg("%s: %d descriptors more", what, descriptors() - before);
    check_life(st, what);
    return fired;
}

static bool transfers_bytes(enum call call) {
    return call == CALL_READ || call == CALL_PREAD || call == CALL_WRITE || call == CALL_PWRITE ||
           call == CALL_FWRITE;
}

/* A signal handler of ours restarts calls, so EINTR comes from calls that are never restarted. */
static bool applies(enum call call, enum call_fault how) {
    if (how == FAIL_SHORT) return transfers_bytes(call);
    return how != FAIL_INTERRUPTED || (transfers_bytes(call) && call != CALL_FWRITE);
}

static void exercise(enum call_fault how, bool stays) {
    for (enum call call = 0; call < CALL_KINDS; call++) {
        if (!applies(call, how)) continue;
        for (uint64_t at = 0; at < POINTS_MAX; at++) {
            const struct fail_call plan = {.call = call, .how = how, .at = at, .stays = stays};
            if (!try_fault(&plan)) break;
            points[how]++;
        }
    }
}

static void test_calls_that_fail(void **state) {
    (void)state;
    for (int stays = 0; stays < 2; stays++) exercise(FAIL_IO, stays);
    assert_true(points[FAIL_IO] > 50);
}
static void test_calls_that_find_no_space(void **state) {
    (void)state;
    for (int stays = 0; stays < 2; stays++) exercise(FAIL_NO_SPACE, stays);
    assert_true(points[FAIL_NO_SPACE] > 50);
}
static void test_reads_and_writes_that_are_short(void **state) {
    (void)state;
    for (int stays = 0; stays < 2; stays++) exercise(FAIL_SHORT, stays);
    assert_true(points[FAIL_SHORT] > 10);
}
static void test_calls_that_are_interrupted(void **state) {
    (void)state;
    exercise(FAIL_INTERRUPTED, false);
    assert_true(points[FAIL_INTERRUPTED] > 5);
}
static void test_calls_that_are_late(void **state) {
    (void)state;
    exercise(FAIL_LATE, false);
    assert_true(points[FAIL_LATE] > 30);
}

static bool try_death(uint64_t at) {
    const struct fail_call plan = {.call = CALL_ANY, .how = FAIL_DEATH, .at = at};
    char what[96];
    int code = 0;
    describe(&plan, what);
    begin_life();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct err err = {0};
        fail_call_plan(&plan);
        _exit(run_command(&err) == ST_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_true(WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == DEATH_CODE);
    check_life(WEXITSTATUS(code) == 0 ? ST_OK : ST_IO, what);
    return WEXITSTATUS(code) == DEATH_CODE;
}

static void test_a_process_that_dies_before_any_call(void **state) {
    (void)state;
    uint64_t at = 0;
    while (at < POINTS_MAX && try_death(at)) at++;
    points[FAIL_DEATH] = at;
    assert_true(at > 40);
}

static int setup(void **state) {
    (void)state;
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED || !mkdtemp(folder)) return 1;
    snprintf(in_path, sizeof(in_path), "%s/in", folder);
    snprintf(out_path, sizeof(out_path), "%s/out", folder);
    snprintf(partial_path, sizeof(partial_path), "%s/out.partial", folder);
    FILE *f = fopen(in_path, "w");
    for (int i = 0; f && i < LINES; i++)
        fprintf(f,
                "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
                "{\"prompt\":\"%d\"}}\n",
                i, i);
    return !f || fclose(f) != 0;
}

static int teardown(void **state) {
    (void)state;
    uint64_t total = 0;
    for (enum call_fault how = 0; how < CALL_FAULTS; how++) {
        printf("%llu calls: the call %s\n", (unsigned long long)points[how],
               fail_call_fault_name(how));
        total += points[how];
    }
    printf("%llu faults were exercised\n", (unsigned long long)total);
    munmap(told, sizeof(*told));
    return tree_remove(folder, NULL, NULL) != ST_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_that_fail),
        cmocka_unit_test(test_calls_that_find_no_space),
        cmocka_unit_test(test_reads_and_writes_that_are_short),
        cmocka_unit_test(test_calls_that_are_interrupted),
        cmocka_unit_test(test_calls_that_are_late),
        cmocka_unit_test(test_a_process_that_dies_before_any_call),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
