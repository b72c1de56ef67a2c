/* Goal:   a service manager gets every state of the server, and the server uses its sockets.
 * Method: this program is the manager: a datagram socket of its own, named and abstract, and the
 *         variables that systemd sets. */
#define _DEFAULT_SOURCE /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "report/notify.h"

enum { FIRST_FD = 3 };

/* A socket bound to `name` ('@' first: abstract). */
static int listen_at(const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    memcpy(at.sun_path, name, len);
    if (name[0] == '@') at.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    return fd;
}

static void expect(int fd, const char *message) {
    char text[600] = {0};
    ssize_t len = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(len > 0);
    assert_string_equal(text, message);
}

static void tell_everything(const char *name) {
    struct notify n;
    struct err err = {0};
    int fd = listen_at(name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_null(getenv("NOTIFY_SOCKET"));
    notify_status(&n, "loading 43 %\nREADY=1");
    expect(fd, "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=loading 43 % READY=1");
    notify_ready(&n);
    expect(fd, "READY=1\nSTATUS=ready");
    notify_watchdog(&n);
    expect(fd, "WATCHDOG=1");
    notify_stopping(&n);
    expect(fd, "STOPPING=1\nSTATUS=requests under way finish");
    notify_reloading(&n);
    char text[200] = {0};
    assert_true(recv(fd, text, sizeof(text) - 1, 0) > 0);
    assert_memory_equal(text, "RELOADING=1\nMONOTONIC_USEC=", 27);
    assert_true(strtoll(text + 27, NULL, 10) > 0);
    for (int i = 0; i < 10000; i++)
        notify_watchdog(&n); /* the manager does not read: no call blocks */
    notify_close(&n);
    notify_watchdog(&n);
    close(fd);
}

static void test_states_are_sent_to_the_managers_socket(void **state) {
    (void)state;
    char name[64];
    snprintf(name, sizeof(name), "/tmp/test_notify.%d", (int)getpid());
    tell_everything(name);
    unlink(name);
    name[0] = '@';
    tell_everything(name);
}

static void test_without_a_manager_nothing_happens(void **state) {
    (void)state;
    struct notify n;
    struct err err = {0};
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.fd, -1);
    assert_int_equal(n.watchdog_us, 0);
    assert_int_equal(n.listen_count, 0);
    notify_ready(&n);
    notify_close(&n);
}

static void test_a_missing_manager_socket_is_reported_and_does_no_harm(void **state) {
    (void)state;
    struct notify n;
    struct err err = {0};
    setenv("NOTIFY_SOCKET", "/tmp/no-socket-here", 1);
    assert_int_equal(notify_open(&n, &err), ST_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/tmp/no-socket-here"));
    assert_int_equal(n.fd, -1);
    notify_ready(&n);
    notify_close(&n);
    setenv("NOTIFY_SOCKET", "nonsense", 1);
    assert_int_equal(notify_open(&n, &err), ST_BAD);
}

static void set_number(const char *name, long value) {
    char text[32];
    snprintf(text, sizeof(text), "%ld", value);
    setenv(name, text, 1);
}

static void test_the_watchdog_applies_to_the_process_that_is_named(void **state) {
    (void)state;
    struct notify n;
    struct err err = {0};
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.watchdog_us, 30000000);
    assert_null(getenv("WATCHDOG_USEC"));
    setenv("WATCHDOG_USEC", "30000000", 1);
    set_number("WATCHDOG_PID", (long)getpid() + 1);
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.watchdog_us, 0);
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.watchdog_us, 0);
}

static void test_passed_sockets_are_used_and_not_inherited(void **state) {
    (void)state;
    struct notify n;
    struct err err = {0};
    int kept[2]; /* whatever stood at 3 and 4 */
    for (int i = 0; i < 2; i++) {
        kept[i] = fcntl(FIRST_FD + i, F_DUPFD, 100);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd != FIRST_FD + i) {
            dup2(fd, FIRST_FD + i);
            close(fd);
        }
    }
    setenv("LISTEN_FDS", "2", 1);
    set_number("LISTEN_PID", (long)getpid());
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.listen_count, 2);
    assert_int_equal(n.listen_fds[1], FIRST_FD + 1);
    assert_true(fcntl(FIRST_FD, F_GETFD) & FD_CLOEXEC);
    assert_null(getenv("LISTEN_FDS"));

    setenv("LISTEN_FDS", "2", 1);
    set_number("LISTEN_PID", (long)getpid() + 1);
    assert_int_equal(notify_open(&n, &err), ST_OK);
    assert_int_equal(n.listen_count, 0);
    setenv("LISTEN_FDS", "17", 1);
    set_number("LISTEN_PID", (long)getpid());
    assert_int_equal(notify_open(&n, &err), ST_BAD);
    for (int i = 0; i < 2; i++) {
        close(FIRST_FD + i);
        if (kept[i] < 0) continue;
        dup2(kept[i], FIRST_FD + i);
        close(kept[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_sent_to_the_managers_socket),
        cmocka_unit_test(test_without_a_manager_nothing_happens),
        cmocka_unit_test(test_a_missing_manager_socket_is_reported_and_does_no_harm),
        cmocka_unit_test(test_the_watchdog_applies_to_the_process_that_is_named),
        cmocka_unit_test(test_passed_sockets_are_used_and_not_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
