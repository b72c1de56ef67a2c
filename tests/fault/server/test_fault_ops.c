/* Goal:   keys, log, metrics and traces survive the failure of any one allocation: it is reported,
 *         the state before it stays in force, and nothing leaks.
 * Method: each is used as the server uses it, with the first allocation failing, then the second,
 *         until none fails. Leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "fault/fail_alloc.h"
#include "access/keys.h"
#include "report/log.h"
#include "report/server_metrics.h"
#include "report/tracer.h"

enum { RUNS_MAX = 100000 };

/* Run `work` with every allocation failing in turn; it gives ST_NOMEM or does without. */
static void fail_each(enum status (*work)(void)) {
    for (long n = 0; n < RUNS_MAX; n++) {
        fail_alloc_at(n);
        enum status st = work();
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            return;
        }
        assert_true(st == ST_NOMEM || st == ST_OK);
    }
    fail();
}

static const char *key_path(void) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/test_fault_ops.%d", (int)getpid());
    return path;
}

static void write_keys(const char *text) {
    struct err err = {0};
    assert_int_equal(file_write_atomic(key_path(), str_of(text), &err), ST_OK);
}

static enum status use_keys(void) {
    struct keys *k = NULL;
    enum status st = keys_create(key_path(), &k, NULL);
    if (st == ST_OK) {
        assert_non_null(keys_find(k, STR("one")));
        st = keys_reload(k, true, NULL);
        assert_non_null(keys_find(k, STR("one")));
    }
    keys_destroy(k);
    return st;
}

static void test_keys(void **state) {
    (void)state;
    write_keys("one\ntwo tenant=t\n@t rpm=4\nthree\n");
    fail_each(use_keys);
    unlink(key_path());
}

/* A reload that runs out of memory leaves what was in force. */
static void test_keys_stay_when_a_reload_fails(void **state) {
    (void)state;
    struct keys *k = NULL;
    write_keys("one rpm=1\n");
    assert_int_equal(keys_create(key_path(), &k, NULL), ST_OK);
    write_keys("two\nthree tenant=a\nfour tenant=b\none rpm=2\n");
    for (long n = 0;; n++) {
        fail_alloc_at(n);
        enum status st = keys_reload(k, true, NULL);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_int_equal(keys_find(k, STR("one"))->rpm, 1);
        assert_null(keys_find(k, STR("two")));
    }
    assert_int_equal(keys_find(k, STR("one"))->rpm, 2);
    assert_non_null(keys_find(k, STR("two")));
    keys_destroy(k);
    unlink(key_path());
}

static enum status use_log(void) {
    struct log *log = NULL;
    int fd = open("/dev/null", O_WRONLY);
    enum status st = log_create(fd, "json", "info", &log, NULL);
    if (st == ST_OK) {
        const struct log_field field = log_text("t", STR("text"));
        log_line(log, LOG_INFO, "e", &field, 1);
        log_line(log, LOG_INFO, "e", &field, 1);
    }
    log_destroy(log);
    close(fd);
    return st;
}

static void test_log(void **state) {
    (void)state;
    fail_each(use_log);
}

static enum status use_metrics(void) {
    struct server_metrics *m = NULL;
    struct buf out;
    uint32_t model;
    const struct metrics_model info = {.name = "m", .ctx_tokens = 100, .kv_blocks = 5};
    enum status st = server_metrics_create(&m);
    if (st != ST_OK) return st;
    st = server_metrics_add_model(m, &info, &model);
    server_metrics_generation(m, &(struct metrics_generation){.model = model});
    server_metrics_tokens(m, model, 1, 5);
    server_metrics_response(m, "/", 200, 0.1);
    server_metrics_response(m, "/", 200, 0.1);
    buf_init(&out, 1 << 20);
    server_metrics_print(m, &(struct metrics_pull){0}, &out);
    if (st == ST_OK) st = buf_status(&out);
    buf_deinit(&out);
    server_metrics_destroy(m);
    return st;
}

static void test_metrics(void **state) {
    (void)state;
    fail_each(use_metrics);
}

static enum status use_tracer(void) {
    struct tracer *t = NULL;
    enum status st = tracer_create("http://127.0.0.1:1", "x", &t, NULL);
    tracer_destroy(t);
    return st;
}

static void test_tracer(void **state) {
    (void)state;
    fail_each(use_tracer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),   cmocka_unit_test(test_keys_stay_when_a_reload_fails),
        cmocka_unit_test(test_log),    cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_tracer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
