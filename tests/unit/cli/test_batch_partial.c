/* Goal:   a file of partial results gives back every whole result and nothing else, whatever was
 *         cut off or damaged; results of other work are refused; OUT has the lines in their order.
 * Method: a file is written, cut at every byte, changed at every byte, and read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/batch_partial.h"

enum { LINES = 5 };

static char folder[] = "/tmp/jitney_partial_XXXXXX";
static char path[64], out_path[64];

static struct batch_origin origin(void) {
    return (struct batch_origin){.input_bytes = 77,
                                 .input_sha256 = "abc",
                                 .line_count = LINES,
                                 .seed = 9,
                                 .created_s = 1000};
}

static enum status open_it(struct batch_origin o, bool is_seed_given, struct batch_partial **out,
                           struct err *err) {
    const struct batch_partial_options options = {
        .path = path, .temp_dir = "/tmp", .is_seed_given = is_seed_given};
    return batch_partial_open(&options, &o, out, err);
}

static struct batch_partial *must_open(void) {
    struct batch_partial *p = NULL;
    struct err err = {0};
    if (open_it(origin(), false, &p, &err) != ST_OK) fail_msg("%s", err.text);
    if (batch_partial_begin(p, "fp_1", &err) != ST_OK) fail_msg("%s", err.text);
    return p;
}

static void put(struct batch_partial *p, uint32_t number, uint32_t status, const char *output) {
    struct err err = {0};
    const struct batch_entry e = {.number = number,
                                  .status = status,
                                  .prompt_tokens = 10,
                                  .cached_tokens = 2,
                                  .answer_tokens = 3,
                                  .output = str_of(output)};
    if (batch_partial_put(p, &e, &err) != ST_OK) fail_msg("%s", err.text);
}

static void read_whole(const char *from, struct buf *out) {
    buf_clear(out);
    assert_int_equal(file_read(from, out, NULL), ST_OK);
}

static void write_whole(struct str bytes) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.ptr, 1, bytes.len, f), bytes.len);
    fclose(f);
}

static int begin(void **state) {
    (void)state;
    unlink(path);
    unlink(out_path);
    return 0;
}

/* ---- tests ---- */

static void test_results_are_there_when_it_is_opened_again(void **state) {
    (void)state;
    struct batch_partial *p = must_open();
    put(p, 3, 200, "{\"a\":1}");
    put(p, 0, 404, "{}");
    batch_partial_close(p);
    struct batch_origin o = origin();
    o.seed = 1; /* random, where --seed is not given */
    o.created_s = 5;
    struct batch_partial_options options = {.path = path};
    assert_int_equal(batch_partial_open(&options, &o, &p, NULL), ST_OK);
    assert_int_equal(o.seed, 9);
    assert_int_equal(o.created_s, 1000);
    assert_true(batch_partial_has(p, 3));
    assert_true(batch_partial_has(p, 0));
    assert_false(batch_partial_has(p, 1));
    struct batch_totals t = batch_partial_totals(p);
    assert_int_equal(t.done, 2);
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.prompt_tokens, 20);
    assert_int_equal(t.cached_tokens, 4);
    assert_int_equal(t.answer_tokens, 6);
    batch_partial_close(p);
}

static void test_the_output_has_the_order_of_the_input(void **state) {
    (void)state;
    struct buf bytes;
    struct err err = {0};
    buf_init(&bytes, 1 << 20);
    struct batch_partial *p = must_open();
    static const uint32_t order[LINES] = {4, 1, 0, 3, 2};
    for (uint32_t i = 0; i < LINES; i++) {
        char text[32];
        snprintf(text, sizeof(text), "{\"n\":%u}", order[i]);
        put(p, order[i], 200, text);
    }
    if (batch_partial_finish(p, out_path, &err) != ST_OK) fail_msg("%s", err.text);
    batch_partial_close(p);
    read_whole(out_path, &bytes);
    assert_string_equal(buf_text(&bytes),
                        "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n");
    assert_false(file_exists(path));
    buf_deinit(&bytes);
}

static void test_a_line_that_met_a_fault_is_run_again(void **state) {
    (void)state;
    struct batch_partial *p = must_open();
    put(p, 1, 500, "{\"x\":1}");
    put(p, 2, 200, "{}");
    assert_true(batch_partial_has(p, 1)); /* in this run it has its result */
    assert_int_equal(batch_partial_totals(p).failed, 1);
    batch_partial_close(p);
    p = must_open();
    assert_false(batch_partial_has(p, 1));
    assert_int_equal(batch_partial_totals(p).failed, 0);
    put(p, 1, 200, "{\"x\":2}");
    batch_partial_close(p);
    p = must_open();
    assert_true(batch_partial_has(p, 1));
    assert_int_equal(batch_partial_totals(p).done, 2);
    batch_partial_close(p);
}

static void test_a_file_without_results_is_removed(void **state) {
    (void)state;
    struct batch_partial *p = must_open();
    assert_true(file_exists(path));
    batch_partial_close(p);
    assert_false(file_exists(path));
}

/* A file of three results, and where each of its lines ends. */
static void make_file(struct buf *bytes, size_t ends[4]) {
    struct batch_partial *p = must_open();
    put(p, 2, 200, "{\"long\":\"0123456789\"}");
    put(p, 0, 200, "{}");
    put(p, 4, 400, "{\"b\":2}");
    batch_partial_close(p);
    read_whole(path, bytes);
    size_t count = 0;
    for (size_t i = 0; i < bytes->len; i++)
        if (bytes->ptr[i] == '\n') ends[count++] = i + 1;
    assert_int_equal(count, 4);
}

static void test_a_file_cut_at_any_byte_keeps_whole_results(void **state) {
    (void)state;
    struct buf bytes;
    size_t ends[4];
    buf_init(&bytes, 1 << 20);
    make_file(&bytes, ends);
    for (size_t len = 0; len <= bytes.len; len++) {
        write_whole(str_take(buf_str(&bytes), len));
        struct batch_partial *p = must_open();
        uint32_t want = 0;
        for (uint32_t i = 1; i < 4; i++) want += len >= ends[i];
        assert_int_equal(batch_partial_totals(p).done, want);
        put(p, 3, 200, "{\"new\":1}"); /* behind what is good */
        batch_partial_close(p);
        p = must_open();
        assert_int_equal(batch_partial_totals(p).done, want + 1);
        assert_true(batch_partial_has(p, 3));
        batch_partial_close(p);
    }
    buf_deinit(&bytes);
}

static void test_a_damaged_result_and_what_follows_is_dropped(void **state) {
    (void)state;
    struct buf bytes;
    size_t ends[4];
    buf_init(&bytes, 1 << 20);
    make_file(&bytes, ends);
    for (size_t at = ends[0]; at < bytes.len; at++) {
        static const char bits[] = {0x01, 0x20, (char)0x80, 0};
        for (uint32_t b = 0; b < sizeof(bits); b++) {
            char before = bytes.ptr[at];
            bytes.ptr[at] = bits[b] ? (char)(before ^ bits[b]) : 0;
            write_whole(buf_str(&bytes));
            bytes.ptr[at] = before;
            struct batch_partial *p = must_open();
            uint32_t want = 0;
            for (uint32_t i = 1; i < 4; i++) want += at >= ends[i];
            assert_int_equal(batch_partial_totals(p).done, want);
            batch_partial_close(p);
        }
    }
    buf_deinit(&bytes);
}

static void expect_refused(struct batch_origin o, bool is_seed_given, const char *words) {
    struct batch_partial *p = NULL;
    struct err err = {0};
    assert_int_equal(open_it(o, is_seed_given, &p, &err), ST_BAD);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void test_results_of_other_work_are_refused(void **state) {
    (void)state;
    struct buf bytes;
    size_t ends[4];
    struct err err = {0};
    buf_init(&bytes, 1 << 20);
    make_file(&bytes, ends);
    struct batch_origin o = origin();
    o.input_bytes++;
    expect_refused(o, false, "another input, which has 77 bytes (this one: 78)");
    o = origin();
    o.input_sha256[0] = 'b';
    expect_refused(o, false, "differs");
    o = origin();
    o.seed = 10;
    expect_refused(o, true, "another seed, 9 (--seed: 10)");
    struct batch_partial *p = NULL;
    assert_int_equal(open_it(origin(), true, &p, &err), ST_OK);
    assert_int_equal(batch_partial_begin(p, "fp_2", &err), ST_BAD);
    assert_non_null(strstr(err.text, "fp_1"));
    batch_partial_close(p);
    struct buf after;
    buf_init(&after, 1 << 20);
    read_whole(path, &after);
    assert_true(str_eq(buf_str(&after), buf_str(&bytes))); /* it is as it was */
    buf_deinit(&after);
    buf_deinit(&bytes);
}

static void test_another_kind_of_file_is_refused_and_kept(void **state) {
    (void)state;
    static const char *const texts[] = {"notes", "{}\n", "{\"jitney_batch\":2,\"lines\":1}\n",
                                        "\n"};
    for (uint32_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_whole(str_of(texts[i]));
        expect_refused(origin(), false, "is not a file of partial results");
        assert_int_equal(file_size(path), (int64_t)strlen(texts[i]));
    }
    write_whole((struct str){"\0\0\0\0", 4}); /* a first line that a power loss has left empty */
    struct batch_partial *p = must_open();
    put(p, 0, 200, "{}");
    batch_partial_close(p);
}

static void test_a_second_process_is_refused(void **state) {
    (void)state;
    struct batch_partial *p = must_open(), *second = NULL;
    struct err err = {0};
    assert_int_equal(open_it(origin(), false, &second, &err), ST_FULL);
    assert_true(file_exists(path));
    batch_partial_close(p);
}

static void test_a_restart_drops_the_results(void **state) {
    (void)state;
    write_whole(STR("anything\n"));
    struct batch_origin o = origin();
    struct batch_partial *p = NULL;
    const struct batch_partial_options options = {.path = path, .restarts = true};
    assert_int_equal(batch_partial_open(&options, &o, &p, NULL), ST_OK);
    assert_int_equal(batch_partial_begin(p, "fp_3", NULL), ST_OK);
    assert_int_equal(batch_partial_totals(p).done, 0);
    batch_partial_close(p);
}

static void test_a_disk_that_fails_leaves_whole_results(void **state) {
    (void)state;
    struct batch_origin o = origin();
    struct batch_partial *p = NULL;
    struct err err = {0};
    char missing[96];
    snprintf(missing, sizeof(missing), "%s/none/out", folder);
    const struct batch_partial_options options = {.path = missing};
    assert_int_equal(batch_partial_open(&options, &o, &p, &err), ST_CREATE);
    p = must_open();
    for (uint32_t i = 0; i < LINES; i++) put(p, i, 200, "{}");
    assert_int_equal(batch_partial_finish(p, missing, &err), ST_CREATE);
    batch_partial_close(p);
    p = must_open(); /* all results are still there */
    assert_int_equal(batch_partial_totals(p).done, LINES);
    assert_int_equal(batch_partial_finish(p, out_path, &err), ST_OK);
    batch_partial_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_results_are_there_when_it_is_opened_again, begin),
        cmocka_unit_test_setup(test_the_output_has_the_order_of_the_input, begin),
        cmocka_unit_test_setup(test_a_line_that_met_a_fault_is_run_again, begin),
        cmocka_unit_test_setup(test_a_file_without_results_is_removed, begin),
        cmocka_unit_test_setup(test_a_file_cut_at_any_byte_keeps_whole_results, begin),
        cmocka_unit_test_setup(test_a_damaged_result_and_what_follows_is_dropped, begin),
        cmocka_unit_test_setup(test_results_of_other_work_are_refused, begin),
        cmocka_unit_test_setup(test_another_kind_of_file_is_refused_and_kept, begin),
        cmocka_unit_test_setup(test_a_second_process_is_refused, begin),
        cmocka_unit_test_setup(test_a_restart_drops_the_results, begin),
        cmocka_unit_test_setup(test_a_disk_that_fails_leaves_whole_results, begin),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof(path), "%s/out.partial", folder);
    snprintf(out_path, sizeof(out_path), "%s/out", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(out_path);
    rmdir(folder);
    return failed;
}
