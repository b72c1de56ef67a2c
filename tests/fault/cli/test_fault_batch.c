/* Goal:   the input and the partial results of a batch survive the failure of any one allocation:
 *         an error is returned, and nothing is lost.
 * Method: the first allocation fails, then the second, until none is left. Leaks show in the
 *         sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/batch_input.h"
#include "cli/batch_partial.h"
#include "fault/fail_alloc.h"

enum { RUNS_MAX = 10000, LINES = 3 };

static char folder[] = "/tmp/jitney_fault_XXXXXX";
static char in_path[64], out_path[64], partial_path[64];

static void ignore(void *ctx, const char *sentence) {
    (void)ctx;
    (void)sentence;
}

static enum status read_lines(void) {
    struct batch_input in;
    struct err err = {0};
    TRY(batch_input_open(&in, in_path, ignore, NULL, &err));
    assert_int_equal(in.count, LINES);
    struct batch_request q;
    enum status st = batch_input_read(&in, in.run_order[1], &q, &err);
    if (st == ST_OK) json_destroy(q.doc);
    batch_input_close(&in);
    return st;
}

static enum status put_results(struct batch_partial *p) {
    struct err err = {0};
    TRY(batch_partial_begin(p, "fp", &err));
    for (uint32_t i = 0; i < LINES; i++) {
        const struct batch_entry e = {.number = i, .status = 200, .output = STR("{}")};
        TRY(batch_partial_put(p, &e, &err));
    }
    return batch_partial_finish(p, out_path, &err);
}

static enum status write_results(void) {
    struct batch_origin origin = {.line_count = LINES, .input_sha256 = "x"};
    const struct batch_partial_options options = {.path = partial_path, .restarts = true};
    struct batch_partial *p = NULL;
    struct err err = {0};
    TRY(batch_partial_open(&options, &origin, &p, &err));
    enum status st = put_results(p);
    batch_partial_close(p);
    return st;
}

/* The parser of JSON reports its own lack of memory as bad JSON. */
static void fail_each(enum status (*work)(void), bool parses) {
    long n = 0;
    for (;; n++) {
        fail_alloc_at(n);
        enum status st = work();
        if (!fail_alloc_stop()) break;
        if (st != ST_NOMEM && !(parses && st == ST_BAD))
            fail_msg("%s when allocation %ld fails", status_name(st), n);
        assert_true(n < RUNS_MAX);
    }
    assert_true(n > 2);
    assert_int_equal(work(), ST_OK);
}

static void test_the_lines_of_an_input(void **state) {
    (void)state;
    FILE *f = fopen(in_path, "w");
    assert_non_null(f);
    for (uint32_t i = 0; i < LINES; i++)
        fprintf(f,
                "{\"custom_id\":\"%u\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
                "{\"prompt\":\"%u\"}}\n",
                i, i);
    fclose(f);
    fail_each(read_lines, true);
}

static void test_partial_results(void **state) {
    (void)state;
    fail_each(write_results, false);
    assert_int_equal(file_size(out_path), 3 * LINES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_lines_of_an_input),
        cmocka_unit_test(test_partial_results),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(in_path, sizeof(in_path), "%s/in", folder);
    snprintf(out_path, sizeof(out_path), "%s/out", folder);
    snprintf(partial_path, sizeof(partial_path), "%s/out.partial", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_path);
    unlink(out_path);
    unlink(partial_path);
    rmdir(folder);
    return failed;
}
