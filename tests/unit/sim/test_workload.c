/* Goal:   workloads have the lengths, rates and order they say, and the same seed gives the same.
 * Method: shapes and streams are drawn and their medians, means and order compared with what was
 *         asked for; traces are small files written here, good and bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "sim/request_list.h"
#include "sim/workload.h"

enum { COUNT = 4001 };

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void test_half_of_a_shape_lies_below_its_median(void **state) {
    (void)state;
    const struct length_shape *shapes[] = {&shape_chat, &shape_reading, &shape_writing,
                                           &shape_heavy};
    for (int s = 0; s < 4; s++) {
        struct lengths l;
        struct err err = {0};
        static uint32_t answers[COUNT];
        assert_int_equal(lengths_draw(&l, shapes[s], COUNT, 1, &err), ST_OK);
        for (int i = 0; i < COUNT; i++) {
            answers[i] = l.items[i].answer_tokens;
            assert_in_range(l.items[i].prompt_tokens, 1, shapes[s]->prompt_max);
            assert_in_range(answers[i], 1, shapes[s]->answer_max);
        }
        qsort(answers, COUNT, sizeof(answers[0]), by_number);
        double median = answers[COUNT / 2];
        assert_true(median > 0.9 * shapes[s]->answer_median);
        assert_true(median < 1.1 * shapes[s]->answer_median);
        lengths_deinit(&l);
    }
}

static struct workload make(const struct lengths *l, struct work_stream s) {
    struct workload w = {0};
    struct err err = {0};
    s.lengths = l;
    assert_int_equal(workload_add(&w, &s, &err), ST_OK);
    return w;
}

static void test_arrivals_have_the_given_rate_and_are_in_order(void **state) {
    (void)state;
    struct length_pair pair = {100, 10};
    struct lengths l = {&pair, 1};
    struct workload w = make(&l, (struct work_stream){.count = 10000, .per_s = 50, .seed = 3});
    for (uint32_t i = 1; i < w.count; i++)
        assert_true(w.requests[i].at_us >= w.requests[i - 1].at_us);
    double seconds = (double)w.requests[w.count - 1].at_us / 1e6;
    assert_true(seconds > 190);
    assert_true(seconds < 210);
    workload_deinit(&w);
}

static void test_the_same_seed_gives_the_same_workload(void **state) {
    (void)state;
    struct length_pair pair = {100, 10};
    struct lengths l = {&pair, 1};
    struct work_stream s = {.count = 100, .per_s = 5, .seed = 3};
    struct workload a = make(&l, s), b = make(&l, s);
    s.seed = 4;
    struct workload c = make(&l, s);
    for (uint32_t i = 0; i < a.count; i++) {
        assert_int_equal(a.requests[i].at_us, b.requests[i].at_us);
        assert_int_not_equal(a.requests[i].at_us, c.requests[i].at_us);
    }
    workload_deinit(&a);
    workload_deinit(&b);
    workload_deinit(&c);
}

static void test_streams_are_merged_by_arrival(void **state) {
    (void)state;
    struct length_pair pair = {100, 10};
    struct lengths l = {&pair, 1};
    struct err err = {0};
    struct workload w = make(&l, (struct work_stream){.count = 300, .per_s = 5, .seed = 1});
    struct work_stream loud = {
        .lengths = &l, .count = 3000, .per_s = 50, .seed = 2, .tenant = 1, .priority = 7};
    assert_int_equal(workload_add(&w, &loud, &err), ST_OK);
    assert_int_equal(w.count, 3300);
    uint32_t of_tenant[2] = {0};
    for (uint32_t i = 0; i < w.count; i++) {
        of_tenant[w.requests[i].tenant]++;
        assert_int_equal(w.requests[i].priority, w.requests[i].tenant ? 7 : 0);
        if (i > 0) assert_true(w.requests[i].at_us >= w.requests[i - 1].at_us);
    }
    assert_int_equal(of_tenant[0], 300);
    workload_deinit(&w);
}

static void test_lengths_are_divided_capped_and_at_least_one(void **state) {
    (void)state;
    struct length_pair pairs[] = {{80, 800}, {3, 5}};
    struct lengths l = {pairs, 2};
    struct workload w = make(&l, (struct work_stream){.count = 3, .divisor = 8, .max_tokens = 60});
    assert_int_equal(w.requests[0].prompt_tokens, 10);
    assert_int_equal(w.requests[0].answer_tokens, 60);
    assert_int_equal(w.requests[0].max_tokens, 60);
    assert_int_equal(w.requests[1].prompt_tokens, 1);
    assert_int_equal(w.requests[1].answer_tokens, 1);
    assert_int_equal(w.requests[2].prompt_tokens, 10); /* from the start again */
    workload_deinit(&w);
}

static enum status read_text(const char *text, struct lengths *l, struct err *err) {
    char path[] = "/tmp/jitney-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    enum status st = lengths_read(l, path, err);
    unlink(path);
    return st;
}

static void test_a_trace_is_read_without_requests_that_have_no_tokens(void **state) {
    (void)state;
    struct lengths l;
    struct err err = {0};
    const char *text = "TIME,In,Out\r\n2023-11-16 18:15:46.68,374,44\r\nx,0,5\nx,7,0\n\nx,396,109";
    assert_int_equal(read_text(text, &l, &err), ST_OK);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.items[0].prompt_tokens, 374);
    assert_int_equal(l.items[0].answer_tokens, 44);
    assert_int_equal(l.items[1].answer_tokens, 109);
    lengths_deinit(&l);
}

static void test_a_malformed_line_is_named(void **state) {
    (void)state;
    const char *const bad[] = {"h\nt,1,2\nt,1\n", "h\nt,1,2\nt,1,x\n", "h\nt,1,2\nt,1,2,3\n",
                               "h\nt,1,2\nt,99999999999,2\n", "h\nt,1,2\nt,-1,2\n"};
    for (int i = 0; i < 5; i++) {
        struct lengths l;
        struct err err = {0};
        assert_int_equal(read_text(bad[i], &l, &err), ST_BAD);
        assert_non_null(strstr(err.text, "line 3"));
        assert_null(l.items);
    }
}

static void test_an_empty_trace_is_refused(void **state) {
    (void)state;
    struct lengths l;
    struct err err = {0};
    assert_int_equal(read_text("TIME,In,Out\n", &l, &err), ST_BAD);
    assert_int_equal(read_text("", &l, &err), ST_BAD);
}

static void fail_on_note(void *ctx, uint32_t line, bool is_bad, const char *reason) {
    (void)ctx;
    fail_msg("line %u is %s: %s", line, is_bad ? "bad" : "odd", reason);
}

/* 8.203 ms are 8202.99... us in binary: a time in ms is rounded, not cut. */
static void test_a_time_of_a_list_keeps_its_microseconds(void **state) {
    (void)state;
    const struct prompt_source source = {.vocab = 100};
    for (int64_t us = 0; us < 20000; us += 7) {
        char line[96];
        struct request_list list = {0};
        struct err err = {0};
        snprintf(line, sizeof(line), "{\"at_ms\":%d.%03d,\"prompt_tokens\":[1],\"max_tokens\":1}",
                 (int)(us / 1000), (int)(us % 1000));
        assert_int_equal(request_list_read(&list, str_of(line), &source, fail_on_note, NULL, &err),
                         ST_OK);
        assert_int_equal(list.count, 1);
        assert_int_equal(list.items[0].at_us, us);
        request_list_deinit(&list);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_of_a_shape_lies_below_its_median),
        cmocka_unit_test(test_arrivals_have_the_given_rate_and_are_in_order),
        cmocka_unit_test(test_the_same_seed_gives_the_same_workload),
        cmocka_unit_test(test_streams_are_merged_by_arrival),
        cmocka_unit_test(test_lengths_are_divided_capped_and_at_least_one),
        cmocka_unit_test(test_a_trace_is_read_without_requests_that_have_no_tokens),
        cmocka_unit_test(test_a_malformed_line_is_named),
        cmocka_unit_test(test_an_empty_trace_is_refused),
        cmocka_unit_test(test_a_time_of_a_list_keeps_its_microseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
