/* Goal:   an event is one line, whatever its values; a reader that does not read delays nothing.
 * Method: the log on a pipe, a socket and a file of the test; JSON lines are parsed again; a full
 *         pipe is not emptied until the dropped lines are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "report/log.h"

enum { READ_BYTES = 1 << 18 };

static struct log *log_on(int fd, const char *format, const char *level) {
    struct log *log = NULL;
    struct err err = {0};
    assert_int_equal(log_create(fd, format, level, &log, &err), ST_OK);
    return log;
}

/* What waits in the pipe, as a text. */
static char *read_all(int fd) {
    char *text = calloc(1, READ_BYTES);
    size_t len = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(fd, text + len, READ_BYTES - 1 - len)) > 0;) len += (size_t)n;
    return text;
}

static void test_logfmt_quotes_values_with_special_characters(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_on(ends[1], "logfmt", "info");
    const struct log_field fields[] = {
        log_text("id", STR("req-1")),     log_text("path", STR("/v1/chat")),
        log_text("empty", STR("")),       log_text("said", STR("a \"b\"\nevent=fake")),
        log_text("bad", STR("\xFF\x01")), log_int("status", 200),
        log_real("took_ms", 12.3456789),  log_real("none", 1.0 / 0.0),
    };
    log_line(log, LOG_INFO, "request", fields, sizeof(fields) / sizeof(fields[0]));
    char *text = read_all(ends[0]);
    assert_memory_equal(text, "ts=20", 5);
    assert_int_equal(text[3 + 23], 'Z');
    assert_string_equal(text + 3 + 24,
                        " level=info event=request id=req-1 path=/v1/chat empty=\"\" "
                        "said=\"a \\\"b\\\"\\nevent=fake\" bad=\"\xEF\xBF\xBD\\u0001\" "
                        "status=200 took_ms=12.3457 none=null\n");
    free(text);
    log_destroy(log);
    close(ends[0]);
    close(ends[1]);
}

/* A client chooses some values: none may look like another field, another line or a quote. */
static void test_a_value_of_any_bytes_is_one_field(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        const char value[] = {'a', (char)byte, 'b', '=', 'c'};
        const bool is_plain =
            byte > ' ' && byte < 0x7f && byte != '"' && byte != '=' && byte != '\\';
        for (size_t len = 3; len <= 5; len += 2) { /* "a?b" and "a?b=c" */
            int ends[2];
            assert_int_equal(pipe(ends), 0);
            struct log *log = log_on(ends[1], "logfmt", "info");
            const struct log_field field = log_text("x", (struct str){value, len});
            log_line(log, LOG_INFO, "e", &field, 1);
            char *text = read_all(ends[0]);
            const char *at = strstr(text, " event=e x=");
            assert_non_null(at);
            assert_int_equal(strcspn(text, "\n"), strlen(text) - 1);
            const bool is_quoted = at[11] == '"' && text[strlen(text) - 2] == '"';
            assert_int_equal(is_quoted, !is_plain || len == 5);
            free(text);
            log_destroy(log);
            close(ends[0]);
            close(ends[1]);
        }
    }
}

static void test_json_lines_are_json(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_on(ends[1], "json", "debug");
    const struct log_field fields[] = {
        log_text("said", STR("a \"b\"\n\xFF{}")),
        log_int("n", -5),
        log_real("x", 0.5),
    };
    log_line(log, LOG_DEBUG, "e", fields, 3);
    char *text = read_all(ends[0]);
    assert_int_equal(strcspn(text, "\n"), strlen(text) - 1);
    struct json *doc = NULL;
    assert_int_equal(json_parse(str_of(text), &json_limits_request, &doc, NULL), ST_OK);
    assert_true(str_is(json_str(json_get(doc, "level")), "debug"));
    assert_true(str_is(json_str(json_get(doc, "event")), "e"));
    assert_true(str_is(json_str(json_get(doc, "said")), "a \"b\"\n\xEF\xBF\xBD{}"));
    assert_int_equal(json_int(json_get(doc, "n"), 0), -5);
    assert_true(json_num(json_get(doc, "x"), 0) == 0.5);
    json_destroy(doc);
    free(text);
    log_destroy(log);
    close(ends[0]);
    close(ends[1]);
}

static void test_the_level_decides_what_is_written_and_may_change(void **state) {
    (void)state;
    int ends[2];
    struct err err = {0};
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_on(ends[1], "logfmt", "warn");
    assert_true(log_wants(log, LOG_ERROR));
    assert_true(log_wants(log, LOG_WARN));
    assert_false(log_wants(log, LOG_INFO));
    log_line(log, LOG_INFO, "not", NULL, 0);
    log_line(log, LOG_ERROR, "yes", NULL, 0);
    assert_int_equal(log_set(log, "json", "debug", &err), ST_OK);
    log_line(log, LOG_DEBUG, "also", NULL, 0);
    assert_int_equal(log_set(log, "xml", "debug", &err), ST_BAD);
    assert_int_equal(log_set(log, "json", "loud", &err), ST_BAD);
    char *text = read_all(ends[0]);
    assert_null(strstr(text, "not"));
    assert_non_null(strstr(text, "level=error event=yes\n"));
    assert_non_null(strstr(text, "\"event\":\"also\"}\n"));
    free(text);
    log_destroy(log);
    close(ends[0]);
    close(ends[1]);
}

/* Lines until `fd` takes no more; the caller's thread must not be held up. */
static void flood(struct log *log, uint32_t lines, size_t bytes) {
    char *text = malloc(bytes);
    memset(text, 'x', bytes);
    const struct log_field field = log_text("t", (struct str){text, bytes});
    int64_t began_us = clock_now(&clock_real);
    for (uint32_t i = 0; i < lines; i++) log_line(log, LOG_INFO, "flood", &field, 1);
    assert_true(clock_now(&clock_real) - began_us < 5000000);
    free(text);
}

/* Every line is whole: begins with "ts=" and has its event. */
static uint32_t count_lines(const char *text) {
    uint32_t count = 0;
    while (*text) {
        size_t len = strcspn(text, "\n");
        assert_int_equal(text[len], '\n');
        assert_memory_equal(text, "ts=", 3);
        assert_non_null(strstr(text, " event="));
        text += len + 1;
        count++;
    }
    return count;
}

/* What the lines about lost lines add up to, and how many such lines there are. */
static uint64_t sum_lost(const char *text, uint32_t *reports) {
    static const char words[] = "event=log_lost lines=";
    uint64_t sum = 0;
    for (*reports = 0; (text = strstr(text, words)); ++*reports) {
        text += sizeof(words) - 1;
        sum += strtoull(text, NULL, 10);
    }
    return sum;
}

static void lose_and_tell(int ends[2], size_t line_bytes) {
    enum { LINES = 3000 };
    struct log *log = log_on(ends[1], "logfmt", "info");
    flood(log, LINES, line_bytes);
    uint64_t lost = log_lost(log);
    assert_true(lost > 0 && lost < LINES);
    char *text = read_all(ends[0]);
    log_line(log, LOG_INFO, "after", NULL, 0);
    char *more = read_all(ends[0]);
    char *whole = calloc(1, 2 * READ_BYTES);
    strncat(whole, text, READ_BYTES);
    strncat(whole, more, READ_BYTES);
    uint32_t reports;
    assert_int_equal(sum_lost(whole, &reports), lost);
    assert_int_equal(count_lines(whole), LINES - lost + reports + 1);
    assert_non_null(strstr(more, "event=after"));
    free(text);
    free(more);
    free(whole);
    log_destroy(log);
    close(ends[0]);
    close(ends[1]);
}

static void test_a_full_pipe_drops_lines_and_reports_how_many(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    lose_and_tell(ends, 100);
    assert_int_equal(pipe(ends), 0);
    lose_and_tell(ends, 9000); /* longer than what a pipe takes as a whole */
}

static void test_a_full_socket_drops_lines_and_reports_how_many(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    lose_and_tell(ends, 500);
}

static void *write_lines(void *ctx) {
    flood(ctx, 500, 200);
    return NULL;
}

static void test_lines_of_several_threads_do_not_mix(void **state) {
    (void)state;
    enum { THREADS = 4 };
    char path[] = "/tmp/test_log.XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    struct log *log = log_on(fd, "logfmt", "info");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, log), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(log_lost(log), 0);
    log_destroy(log);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    char *text = calloc(1, 1 << 20);
    assert_true(read(fd, text, (1 << 20) - 1) > 0);
    assert_int_equal(count_lines(text), THREADS * 500);
    free(text);
    close(fd);
}

static void test_the_shared_descriptor_stays_as_it_was(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int before = fcntl(ends[1], F_GETFL);
    struct log *log = log_on(ends[1], "logfmt", "info");
    assert_int_equal(fcntl(ends[1], F_GETFL), before);
    log_destroy(log);
    assert_int_equal(write(ends[1], "x", 1), 1);
    close(ends[0]);
    close(ends[1]);
}

static void test_a_log_whose_reader_has_closed_does_no_harm(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct log *log = log_on(ends[1], "logfmt", "info");
    close(ends[0]);
    flood(log, 10, 10);
    log_destroy(log);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logfmt_quotes_values_with_special_characters),
        cmocka_unit_test(test_a_value_of_any_bytes_is_one_field),
        cmocka_unit_test(test_json_lines_are_json),
        cmocka_unit_test(test_the_level_decides_what_is_written_and_may_change),
        cmocka_unit_test(test_a_full_pipe_drops_lines_and_reports_how_many),
        cmocka_unit_test(test_a_full_socket_drops_lines_and_reports_how_many),
        cmocka_unit_test(test_lines_of_several_threads_do_not_mix),
        cmocka_unit_test(test_the_shared_descriptor_stays_as_it_was),
        cmocka_unit_test(test_a_log_whose_reader_has_closed_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
