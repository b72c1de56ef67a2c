/* Goal:   a run of `jitney bench` survives the failure of any one allocation: it ends with
 *         ST_NOMEM and loses nothing.
 * Method: a run, a probe and a GET against a thread that sends one fixed response, with the first
 *         allocation failing, then the second, until none fails. Leaks show in the sanitizer
 *         build. */
#include <setjmp.h> /* cmocka */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "fault/fail_alloc.h"
#include "loadgen/run.h"

static const char ANSWER[] = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
                             "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
                             "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,"
                             "\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
static const char LIST[] = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\":[]}";

/* Requests are short: one read holds each. Ends when the listener is shut down. */
static void *serve(void *ctx) {
    int listener = *(int *)ctx;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        char bytes[65536];
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got <= 0) continue;
        if (bytes[0] == 'G')
            send(fd, LIST, sizeof(LIST) - 1, MSG_NOSIGNAL);
        else
            send(fd, ANSWER, sizeof(ANSWER) - 1, MSG_NOSIGNAL);
    }
    return NULL;
}

static enum status use(const struct loadgen_run *run, struct measurement *m, struct err *err) {
    struct request_result trip;
    struct buf list;
    buf_init(&list, 1 << 16);
    enum status st = loadgen_get(run, "/models", &list, err);
    if (st == ST_OK) st = buf_status(&list);
    buf_deinit(&list);
    if (st != ST_OK) return st;
    TRY(loadgen_send_probe(run, 8, &trip, err));
    return loadgen_run(run, m, err);
}

static int listen_anywhere(uint16_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void test_any_one_allocation_may_fail(void **state) {
    static const struct loadgen_length length = {4, 1};
    static struct measurement m;
    (void)state;
    uint16_t port = 0;
    int listener = listen_anywhere(&port);
    pthread_t server;
    char url[64];
    struct target target;
    struct err err = {0};
    assert_int_equal(pthread_create(&server, NULL, serve, &listener), 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    assert_int_equal(target_parse(url, &target, &err), ST_OK);
    assert_int_equal(target_resolve(&target, &err), ST_OK);
    struct loadgen_requests requests = {.model = "m",
                                        .streams = true,
                                        .lengths = &length,
                                        .length_count = 1,
                                        .tokens_per_word = 1.0};
    struct loadgen_run run = {.target = &target,
                              .requests = &requests,
                              .clock = &clock_real,
                              .clients = 2,
                              .request_max = 4,
                              .timeout_s = 10};
    for (long n = 0;; n++) {
        m = (struct measurement){0};
        fail_alloc_at(n);
        enum status st = use(&run, &m, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            assert_int_equal(m.completed, 4);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_one_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
