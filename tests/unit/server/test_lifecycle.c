/* Goal:   the server ends in time whatever a model's threads do: a load that never ends, an
 *         embedder that hangs, texts that wait in one; and the file of a unix socket is removed.
 *         What is under way at a signal is answered, wherever it is: in libuv's pool, in the
 *         embedder, on a WebSocket.
 *         An answer that libuv's pool does not write ends with an error, never as an empty reply.
 * Method: the whole server in a process of its own, listening on a unix socket; opening a model
 *         and a forward pass can be made to take for ever, and the pool to refuse answers. A file
 *         is a gate: what is under way stops there until the test makes the file. The parent is
 *         client and operator.
 * wrap: service_open cpu_program_submit work_queue_push uv_timer_start */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "config/settings.h"
#include "engine/service.h"
#include "kernels/cpu/program.h"
#include "server/server.h"
#include "server/work_queue.h"

#define GOING_AWAY "\x03\xe9" /* 1001: why a WebSocket closes */
#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum {
    TRIES = 1000,
    REPLY_BYTES = 4096,
    PATH_BYTES = 64,
    BODY_BYTES = 16384,
    TEXTS = 400,
    LONG_BYTES = 80 << 10
};

/* Times that are far enough apart to be distinguished on a busy machine. */
enum { SLOW_PASS_MS = 20000, IN_SECONDS_US = 10000000, AT_ONCE_US = 1900000 };

/* The thread sanitizer would sleep for a second before a process may end. A process that ends
 * because its model hangs does not wait for the model's threads. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "atexit_sleep_ms=0:report_thread_leaks=0"; }
/* It does not see that mkostemp opens a file, and takes the spill file for a connection that had
 * the same descriptor before. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:spill_open\n"; }

/* How the child's model behaves; set before the fork. */
static enum { FINE, NEVER_LOADS, PASS_HANGS, PASS_IS_SLOW, PASS_AT_GATE } model_is;
static int failing_steps;      /* the first so many passes fail */
static bool writes_no_answers; /* in the pool */
static bool has_gate;          /* for work in the pool */
static bool has_short_minutes; /* timers of one minute end soon; longer ones do not */
static const char *drain_s = "0.2";

enum status __real_service_open(struct service *s, const char *path,
                                const struct service_options *o, struct err *err);
enum status __wrap_service_open(struct service *s, const char *path,
                                const struct service_options *o, struct err *err);
enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);

enum status __real_work_queue_push(struct work_queue *q, struct work_lane *lane,
                                   struct work_item *w);
enum status __wrap_work_queue_push(struct work_queue *q, struct work_lane *lane,
                                   struct work_item *w);

int __real_uv_timer_start(uv_timer_t *t, uv_timer_cb done, uint64_t ms, uint64_t repeat_ms);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb done, uint64_t ms, uint64_t repeat_ms);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb done, uint64_t ms, uint64_t repeat_ms) {
    return __real_uv_timer_start(t, done, has_short_minutes && ms == 60000 ? 50 : ms, repeat_ms);
}

static void sleep_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* In the child's folder, which is its working folder: the child has reached the gate, and the gate
 * is open. */
static const char REACHED[] = "reached", OPEN[] = "open";

static void make_file(const char *name) {
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

static void wait_at_gate(void) {
    make_file(REACHED);
    while (access(OPEN, F_OK) != 0) sleep_ms(5);
}

/* One item at a time: more are not needed. */
static void (*run_behind_gate)(struct work_item *w);

static void run_at_gate(struct work_item *w) {
    wait_at_gate();
    run_behind_gate(w);
}

enum status __wrap_work_queue_push(struct work_queue *q, struct work_lane *lane,
                                   struct work_item *w) {
    if (writes_no_answers && w->is_continuing) return ST_NOMEM;
    if (has_gate) {
        has_gate = false;
        run_behind_gate = w->run;
        w->run = run_at_gate;
    }
    return __real_work_queue_push(q, lane, w);
}

enum status __wrap_service_open(struct service *s, const char *path,
                                const struct service_options *o, struct err *err) {
    while (model_is == NEVER_LOADS) sleep_ms(1000);
    return __real_service_open(s, path, o, err);
}

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    while (model_is == PASS_HANGS) sleep_ms(1000);
    if (model_is == PASS_IS_SLOW) sleep_ms(SLOW_PASS_MS);
    if (model_is == PASS_AT_GATE) wait_at_gate();
    if (failing_steps > 0) {
        failing_steps--;
        return err_set(err, ST_DEVICE, "the device does not respond");
    }
    return __real_cpu_program_submit(self, p, step, err);
}

struct rig {
    char folder[PATH_BYTES], path[PATH_BYTES + 8]; /* of the socket */
    pid_t child;
    int manager; /* a service manager's socket; -1: none */
};

static void set(struct settings *s, const char *name, const char *value) {
    struct err err = {0};
    if (settings_set(s, str_of(name), str_of(value), FROM_FLAG, &err) != ST_OK) _exit(90);
}

static void serve(const struct rig *rig, const char *model) {
    struct settings s;
    struct err err = {0};
    alarm(60);
    if (chdir(rig->folder) != 0) _exit(92);
    if (settings_init(&s) != ST_OK) _exit(91);
    set(&s, "model", model);
    set(&s, "uds", rig->path);
    set(&s, "watchdog-s", model_is >= PASS_IS_SLOW ? "60" : "0.3");
    set(&s, "drain-s", drain_s);
    set(&s, "log-level", "error");
    enum status st = server_run(&s, &err);
    _exit((int)st);
}

static int connect_to(const struct rig *rig) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", rig->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    for (int i = 0; i < TRIES; i++) {
        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) return fd;
        sleep_ms(10);
    }
    fail_msg("no server listens on %s", rig->path);
    return -1;
}

static int send_request(const struct rig *rig, const char *method, const char *path,
                        const char *body) {
    char head[256];
    int fd = connect_to(rig);
    int len =
        snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n",
                 method, path, strlen(body));
    assert_int_equal(write(fd, head, (size_t)len), len);
    assert_int_equal(write(fd, body, strlen(body)), (ssize_t)strlen(body));
    return fd;
}

/* The status of GET `path`, or 0. */
static int status_of(const struct rig *rig, const char *path) {
    char reply[REPLY_BYTES] = "";
    int status = 0, fd = send_request(rig, "GET", path, "");
    ssize_t len = read(fd, reply, sizeof(reply) - 1);
    close(fd);
    return len > 0 && sscanf(reply, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

static void await_status(const struct rig *rig, const char *path, int status) {
    for (int i = 0; i < TRIES; i++) {
        if (status_of(rig, path) == status) return;
        sleep_ms(10);
    }
    fail_msg("%s never gives %d", path, status);
}

static void listen_as_manager(struct rig *rig) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/n", rig->folder);
    rig->manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(rig->manager, (struct sockaddr *)&at, sizeof(at)), 0);
    setenv("NOTIFY_SOCKET", at.sun_path, 1);
}

static void start(struct rig *rig, const char *model) {
    snprintf(rig->folder, sizeof(rig->folder), "/tmp/jitney-life-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof(rig->path), "%s/s", rig->folder);
    if (rig->manager >= 0) listen_as_manager(rig);
    rig->child = fork();
    assert_true(rig->child >= 0);
    if (rig->child == 0) serve(rig, model);
}

/* The child's status (an enum status), and that it left no file behind. */
static int await_end(const struct rig *rig) {
    int status = 0;
    assert_int_equal(waitpid(rig->child, &status, 0), rig->child);
    assert_true(WIFEXITED(status));
    assert_int_equal(rmdir(rig->folder), 0);
    return WEXITSTATUS(status);
}

static void test_a_signal_while_a_model_loads_ends_it_in_seconds(void **state) {
    (void)state;
    struct rig rig = {.manager = -1};
    model_is = NEVER_LOADS;
    start(&rig, MODELS "llama");
    await_status(&rig, "/readyz", 503);
    int64_t began_us = clock_now(&clock_real);
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
    assert_true(clock_now(&clock_real) - began_us < IN_SECONDS_US);
}

static void test_a_second_signal_while_a_model_loads_ends_it_at_once(void **state) {
    (void)state;
    struct rig rig = {.manager = -1};
    model_is = NEVER_LOADS;
    start(&rig, MODELS "llama");
    await_status(&rig, "/readyz", 503);
    kill(rig.child, SIGTERM);
    sleep_ms(300);
    int64_t began_us = clock_now(&clock_real);
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
    assert_true(clock_now(&clock_real) - began_us < AT_ONCE_US);
}

static void test_an_embedder_that_hangs_fails_livez_and_ends_the_process(void **state) {
    (void)state;
    struct rig rig = {.manager = -1};
    model_is = PASS_HANGS;
    start(&rig, MODELS "bert");
    await_status(&rig, "/readyz", 200);
    int fd = send_request(&rig, "POST", "/v1/embeddings", "{\"input\":[5,6]}");
    await_status(&rig, "/livez", 503);
    assert_int_equal(await_end(&rig), ST_DEVICE);
    close(fd);
}

static void put_texts(char body[BODY_BYTES], int count) {
    size_t len = (size_t)snprintf(body, BODY_BYTES, "{\"input\":[[5]");
    for (int i = 1; i < count; i++) len += (size_t)snprintf(body + len, BODY_BYTES - len, ",[6]");
    snprintf(body + len, BODY_BYTES - len, "]}");
}

/* Which of these connections is answered first? */
static int await_first(const int *fds, int count) {
    struct pollfd polled[8];
    assert_true(count <= 8);
    for (int i = 0; i < count; i++) polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    assert_true(poll(polled, (nfds_t)count, 60000) > 0);
    for (int i = 0; i < count; i++)
        if (polled[i].revents) return fds[i];
    fail_msg("no connection is ready");
    return -1;
}

/* Of 4096 places two requests leave less than the third needs. Their texts are read in the pool, so
 * any of the three may be the last to reach the embedder. */
static void test_texts_that_exceed_the_embedders_queue_are_refused_at_once(void **state) {
    (void)state;
    struct rig rig = {.manager = -1};
    char body[BODY_BYTES], reply[REPLY_BYTES] = "";
    int fds[3];
    put_texts(body, 2000);
    model_is = PASS_IS_SLOW;
    start(&rig, MODELS "bert");
    await_status(&rig, "/readyz", 200);
    for (int i = 0; i < 3; i++) fds[i] = send_request(&rig, "POST", "/v1/embeddings", body);
    assert_true(read(await_first(fds, 3), reply, sizeof(reply) - 1) > 0);
    assert_non_null(strstr(reply, "HTTP/1.1 429 "));
    assert_non_null(strstr(reply, "retry-after-ms: "));
    for (int i = 0; i < 3; i++) close(fds[i]);
    int fd = send_request(&rig, "POST", "/v1/embeddings", "{\"input\":[5]}");
    kill(rig.child, SIGTERM);
    sleep_ms(100);
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
    close(fd);
}

static void test_texts_in_an_embedder_do_not_delay_the_end(void **state) {
    (void)state;
    struct rig rig = {.manager = -1};
    char body[BODY_BYTES];
    put_texts(body, TEXTS);
    model_is = PASS_IS_SLOW;
    start(&rig, MODELS "bert");
    await_status(&rig, "/readyz", 200);
    int fd = send_request(&rig, "POST", "/v1/embeddings", body);
    sleep_ms(50);
    int64_t began_us = clock_now(&clock_real);
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
    assert_true(clock_now(&clock_real) - began_us < IN_SECONDS_US);
    close(fd);
}

static void check_unwritten(const char *model, const char *path, const char *body) {
    struct rig rig = {.manager = -1};
    char reply[REPLY_BYTES] = "";
    model_is = FINE;
    writes_no_answers = true;
    start(&rig, model);
    writes_no_answers = false;
    await_status(&rig, "/readyz", 200);
    int fd = send_request(&rig, "POST", path, body);
    assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
    assert_non_null(strstr(reply, "HTTP/1.1 503 "));
    assert_non_null(strstr(reply, "out_of_memory"));
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
    close(fd);
}

static void test_an_answer_that_the_pool_does_not_write_is_an_error(void **state) {
    (void)state;
    char body[BODY_BYTES];
    put_texts(body, 1200); /* of 32 numbers each */
    check_unwritten(MODELS "bert", "/v1/embeddings", body);
    check_unwritten(MODELS "llama", "/v1/completions",
                    "{\"prompt\":[5,6],\"n\":16,\"max_tokens\":64,\"ignore_eos\":true,"
                    "\"logprobs\":5}");
}

/* Has the manager received `word`? */
static bool was_told(const struct rig *rig, const char *word) {
    char message[REPLY_BYTES];
    bool was = false;
    for (ssize_t len; (len = recv(rig->manager, message, sizeof(message) - 1, 0)) >= 0;) {
        message[len] = 0;
        was = was || strstr(message, word);
    }
    return was;
}

static void test_a_reload_while_a_model_loads_does_not_report_ready(void **state) {
    (void)state;
    struct rig rig = {.manager = 0};
    model_is = NEVER_LOADS;
    start(&rig, MODELS "llama");
    await_status(&rig, "/readyz", 503);
    kill(rig.child, SIGHUP);
    sleep_ms(200);
    assert_int_equal(status_of(&rig, "/readyz"), 503);
    assert_false(was_told(&rig, "READY=1"));
    kill(rig.child, SIGTERM);
    unsetenv("NOTIFY_SOCKET");
    char path[PATH_BYTES + 8];
    snprintf(path, sizeof(path), "%s/n", rig.folder);
    unlink(path);
    assert_int_equal(await_end(&rig), ST_OK);
    close(rig.manager);
}

/* ---- steps that fail ---- */

static void start_failing(struct rig *rig, int steps) {
    *rig = (struct rig){.manager = -1};
    model_is = FINE;
    failing_steps = steps;
    start(rig, MODELS "llama");
    failing_steps = 0;
    await_status(rig, "/readyz", 200);
}

/* One step of one request. */
static bool is_answered(const struct rig *rig, const char *status) {
    char reply[REPLY_BYTES] = "";
    int fd = send_request(rig, "POST", "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}");
    ssize_t len = read(fd, reply, sizeof(reply) - 1);
    close(fd);
    return len > 0 && strstr(reply, status);
}

static void test_seven_failed_steps_in_a_row_fail_their_requests_only(void **state) {
    (void)state;
    struct rig rig;
    start_failing(&rig, 7);
    for (int i = 0; i < 7; i++) assert_true(is_answered(&rig, "HTTP/1.1 500 "));
    sleep_ms(300); /* several looks at the engine */
    assert_int_equal(status_of(&rig, "/livez"), 200);
    assert_true(is_answered(&rig, "HTTP/1.1 200 "));
    kill(rig.child, SIGTERM);
    assert_int_equal(await_end(&rig), ST_OK);
}

static void test_eight_failed_steps_in_a_row_end_the_process(void **state) {
    (void)state;
    struct rig rig;
    start_failing(&rig, 1000);
    for (int i = 0; i < 8; i++) assert_true(is_answered(&rig, "HTTP/1.1 500 "));
    assert_int_equal(await_end(&rig), ST_DEVICE);
}

/* ---- what is under way at a signal ---- */

static char gate_body[LONG_BYTES + 256];

/* Start a server, and let a request of it reach the gate; `fd` is its connection. */
static void start_at_gate(struct rig *rig, const char *model, bool in_pool) {
    *rig = (struct rig){.manager = -1};
    model_is = in_pool ? FINE : PASS_AT_GATE;
    has_gate = in_pool;
    drain_s = "30";
    start(rig, model);
    has_gate = false;
    drain_s = "0.2";
    model_is = FINE;
    await_status(rig, "/readyz", 200);
}

static void in_folder(const struct rig *rig, const char *name, char out[PATH_BYTES + 16]) {
    snprintf(out, PATH_BYTES + 16, "%s/%s", rig->folder, name);
}

static void await_gate(const struct rig *rig) {
    char path[PATH_BYTES + 16];
    in_folder(rig, REACHED, path);
    for (int i = 0; i < TRIES; i++) {
        if (access(path, F_OK) == 0) return;
        sleep_ms(10);
    }
    fail_msg("the request never reaches the gate");
}

/* Until /metrics says that so many connections are open. */
static void await_connections(const struct rig *rig, int count) {
    static char page[1 << 18];
    char line[64];
    snprintf(line, sizeof(line), "\njitney:http_connections %d\n", count);
    for (int i = 0; i < TRIES; i++) {
        size_t len = 0;
        int fd = connect_to(rig);
        static const char ask[] = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        assert_int_equal(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
        for (ssize_t got; (got = read(fd, page + len, sizeof(page) - 1 - len)) > 0;)
            len += (size_t)got;
        close(fd);
        page[len] = 0;
        if (strstr(page, line)) return;
        sleep_ms(10);
    }
    fail_msg("there are never %d connections", count);
}

/* The server drains when the gate opens. */
static void signal_and_open(const struct rig *rig) {
    char path[PATH_BYTES + 16];
    kill(rig->child, SIGTERM);
    await_status(rig, "/readyz", 503);
    in_folder(rig, OPEN, path);
    make_file(path);
}

static void end_at_gate(const struct rig *rig) {
    static const char *const names[] = {REACHED, OPEN};
    char path[PATH_BYTES + 16];
    int status = 0;
    assert_int_equal(waitpid(rig->child, &status, 0), rig->child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), ST_OK);
    for (int i = 0; i < 2; i++) {
        in_folder(rig, names[i], path);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(rig->folder), 0);
}

/* A request with so many bytes of text that its body is parsed in the pool. */
static void put_long_body(const char *before, const char *after) {
    size_t len = (size_t)snprintf(gate_body, sizeof(gate_body), "%s", before);
    memset(gate_body + len, 'x', LONG_BYTES);
    snprintf(gate_body + len + LONG_BYTES, sizeof(gate_body) - len - LONG_BYTES, "%s", after);
}

static void test_requests_under_way_at_a_signal_are_answered(void **state) {
    (void)state;
    static const struct {
        const char *model, *path, *body;
        bool in_pool;
    } cases[] = {
        {MODELS "bert", "/v1/embeddings", "{\"input\":[5,6]}", false},   /* in the embedder */
        {MODELS "bert", "/v1/embeddings", "{\"input\":\"text\"}", true}, /* its text in the pool */
        {MODELS "llama", "/v1/completions", "{\"prompt\":[5,6],\"max_tokens\":2}", true},
        {MODELS "llama", "/v1/completions", "{\"prompt\":[5,6],\"max_tokens\":2}", false},
        {MODELS "llama", "/tokenize", NULL, true}, /* its body in the pool */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        char reply[REPLY_BYTES] = "";
        put_long_body("{\"content\":\"a\",\"x\":\"", "\"}");
        start_at_gate(&rig, cases[i].model, cases[i].in_pool);
        int fd =
            send_request(&rig, "POST", cases[i].path, cases[i].body ? cases[i].body : gate_body);
        await_gate(&rig);
        signal_and_open(&rig);
        assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
        if (!strstr(reply, "HTTP/1.1 200 ")) fail_msg("case %zu: %s", i, reply);
        end_at_gate(&rig);
        close(fd);
    }
}

/* Whatever a client asks for: a connection that polls counts as busy and is not evicted. */
static void test_a_poll_waits_for_a_minute_at_most(void **state) {
    (void)state;
    static const char ask[] = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nprefer: respond-async"
                              "\r\ncontent-length: 31\r\n\r\n{\"prompt\":[5,6],\"max_tokens\":2}";
    static const char *const waits[] = {"60001", "86400000", "18446744073709551615"};
    struct rig rig;
    char reply[REPLY_BYTES] = "", path[PATH_BYTES * 2];
    has_short_minutes = true;
    start_at_gate(&rig, MODELS "llama", false);
    has_short_minutes = false;
    int fd = connect_to(&rig);
    assert_int_equal(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
    assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
    const char *id = strstr(reply, "/v1/requests/");
    assert_non_null(id);
    const int id_len = (int)strcspn(id, "\r\"");
    close(fd);
    await_gate(&rig);
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        char poll_reply[REPLY_BYTES] = "";
        snprintf(path, sizeof(path), "%.*s?wait_ms=%s", id_len, id, waits[i]);
        fd = send_request(&rig, "GET", path, "");
        assert_true(read(fd, poll_reply, sizeof(poll_reply) - 1) > 0);
        assert_non_null(strstr(poll_reply, "\"done\":false"));
        close(fd);
    }
    signal_and_open(&rig);
    end_at_gate(&rig);
}

/* A message of a WebSocket, with a mask of zeros. */
static void send_message(int fd, const char *text) {
    size_t len = strlen(text);
    unsigned char head[14] = {0x81, 0xFF};
    for (int i = 0; i < 8; i++) head[2 + i] = (unsigned char)((uint64_t)len >> (56 - 8 * i));
    assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
    assert_int_equal(write(fd, text, len), (ssize_t)len);
}

static bool has_bytes(const char *in, size_t len, const char *bytes) {
    for (size_t i = 0; i + strlen(bytes) <= len; i++)
        if (memcmp(in + i, bytes, strlen(bytes)) == 0) return true;
    return false;
}

/* A WebSocket whose message has reached the gate. */
static int open_at_gate(const struct rig *rig) {
    static const char upgrade[] = "GET /v1/stream HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n"
                                  "connection: upgrade\r\nsec-websocket-version: 13\r\n"
                                  "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    char reply[REPLY_BYTES] = "";
    int fd = connect_to(rig);
    assert_int_equal(write(fd, upgrade, sizeof(upgrade) - 1), sizeof(upgrade) - 1);
    assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
    assert_non_null(strstr(reply, "HTTP/1.1 101 "));
    put_long_body("{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[5,6],\"x\":\"", "\"}}");
    send_message(fd, gate_body);
    await_gate(rig);
    return fd;
}

/* Its message is read when the signal comes: it is refused, and the client receives that before the
 * connection closes. */
static void test_a_websocket_whose_message_is_read_at_a_signal_gets_a_reply(void **state) {
    (void)state;
    struct rig rig;
    char reply[REPLY_BYTES] = "";
    size_t len = 0;
    start_at_gate(&rig, MODELS "llama", true);
    int fd = open_at_gate(&rig);
    signal_and_open(&rig);
    for (ssize_t got; (got = read(fd, reply + len, sizeof(reply) - 1 - len)) > 0;) {
        len += (size_t)got;
        if (has_bytes(reply, len, GOING_AWAY)) break;
    }
    assert_true(has_bytes(reply, len, "shutting_down"));
    assert_true(has_bytes(reply, len, GOING_AWAY));
    close(fd);
    end_at_gate(&rig);
}

/* The pool is not done with the message when its client is gone. */
static void test_a_websocket_may_close_while_its_message_is_read(void **state) {
    (void)state;
    struct rig rig;
    char path[PATH_BYTES + 16];
    start_at_gate(&rig, MODELS "llama", true);
    close(open_at_gate(&rig));
    await_connections(&rig, 1); /* the one that asks */
    in_folder(&rig, OPEN, path);
    make_file(path);
    int fd = send_request(&rig, "POST", "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}");
    char reply[REPLY_BYTES] = "";
    assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
    assert_non_null(strstr(reply, "HTTP/1.1 200 "));
    close(fd);
    kill(rig.child, SIGTERM);
    end_at_gate(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_signal_while_a_model_loads_ends_it_in_seconds),
        cmocka_unit_test(test_a_second_signal_while_a_model_loads_ends_it_at_once),
        cmocka_unit_test(test_an_embedder_that_hangs_fails_livez_and_ends_the_process),
        cmocka_unit_test(test_a_reload_while_a_model_loads_does_not_report_ready),
        cmocka_unit_test(test_texts_that_exceed_the_embedders_queue_are_refused_at_once),
        cmocka_unit_test(test_texts_in_an_embedder_do_not_delay_the_end),
        cmocka_unit_test(test_an_answer_that_the_pool_does_not_write_is_an_error),
        cmocka_unit_test(test_seven_failed_steps_in_a_row_fail_their_requests_only),
        cmocka_unit_test(test_eight_failed_steps_in_a_row_end_the_process),
        cmocka_unit_test(test_requests_under_way_at_a_signal_are_answered),
        cmocka_unit_test(test_a_poll_waits_for_a_minute_at_most),
        cmocka_unit_test(test_a_websocket_whose_message_is_read_at_a_signal_gets_a_reply),
        cmocka_unit_test(test_a_websocket_may_close_while_its_message_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
