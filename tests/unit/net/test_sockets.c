/* Goal:   listeners and connections on real sockets: addresses, unix sockets, inherited sockets,
 *         too many connections, too few descriptors, disconnects, slow clients.
 * Method: the server's loop and its clients alternate in one thread (client.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "net/http_listen.h"
#include "unit/net/client.h"

#define ASK "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
#define ANSWER "GET /echo ?  @ a v11 1: "

static uint16_t listen_on(struct fake *f, const struct http_limits *limits) {
    struct err err = {0};
    uint16_t port = 0;
    struct http_limits l = limits ? *limits : (struct http_limits){0};
    if (!l.peer_connections) l.peer_connections = UINT32_MAX; /* all clients have one address */
    assert_int_equal(fake_init(f, &l), ST_OK);
    if (http_listen_tcp(f->server, "127.0.0.1", &port, NULL, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_true(port > 0);
    return port;
}

static void ask(struct fake *f, struct client *c) {
    buf_clear(&c->in);
    client_send(f, c, STR(ASK));
    assert_true(client_wait(f, c, ANSWER));
}

/* ---- addresses ---- */

static void test_a_connection_serves_many_requests(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    client_connect(&c, listen_on(&f, NULL));
    for (int i = 0; i < 5; i++) ask(&f, &c);
    assert_int_equal(http_stats(f.server).accepted, 1);
    assert_int_equal(f.ends, 5);
    client_close(&c);
    fake_deinit(&f);
}

static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof(value);
    assert_int_equal(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

static void test_connections_have_no_delay_and_keep_alive_probes(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    client_connect(&c, listen_on(&f, NULL));
    ask(&f, &c);
    uv_os_fd_t fd = -1;
    assert_non_null(f.server->conns.first);
    assert_int_equal(uv_fileno(&conn_at(f.server->conns.first, LINK_ALL)->uv.handle, &fd), 0);
    assert_int_not_equal(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    assert_int_not_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    /* A peer that is lost is given up in about a minute. */
    const int probes_s =
        option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) * option_of(fd, IPPROTO_TCP, TCP_KEEPCNT);
    assert_in_range(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) + probes_s, 10, 90);
    client_close(&c);
    fake_deinit(&f);
}

static void test_names_and_both_families_can_be_listened_on(void **state) {
    (void)state;
    struct fake f;
    struct err err = {0};
    static const char *const hosts[] = {"localhost", "127.0.0.1", "0.0.0.0"};
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    for (int i = 0; i < 3; i++) {
        struct client c;
        uint16_t port = 0;
        assert_int_equal(http_listen_tcp(f.server, hosts[i], &port, NULL, &err), ST_OK);
        client_connect(&c, port);
        ask(&f, &c);
        client_close(&c);
    }
    uint16_t port = 0;
    const enum status st = http_listen_tcp(f.server, "::1", &port, NULL, &err);
    assert_true(st == ST_OK ? port > 0 : strstr(err.text, "[::1]:0") != NULL);
    fake_deinit(&f);
}

static void test_a_port_in_use_and_an_unknown_host_are_reported(void **state) {
    (void)state;
    struct fake f;
    struct err err = {0};
    uint16_t port = listen_on(&f, NULL);
    assert_int_equal(http_listen_tcp(f.server, "127.0.0.1", &port, NULL, &err), ST_UNAVAILABLE);
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(http_listen_tcp(f.server, "no such name", &port, NULL, &err), ST_BAD);
    assert_non_null(strstr(err.text, "no such name"));
    fake_deinit(&f);
}

/* A socket that listens at the address of that family, or -1 where there is none. */
static int occupy(int family, uint16_t port) {
    const struct sockaddr_in in4 = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const void *address = family == AF_INET ? (const void *)&in4 : (const void *)&in6;
    const int fd = socket(family, SOCK_STREAM, 0);
    const int on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address, family == AF_INET ? sizeof(in4) : sizeof(in6)) == 0 && listen(fd, 1) == 0)
        return fd;
    close(fd);
    return -1;
}

static void test_no_address_of_a_name_may_be_in_use(void **state) {
    (void)state;
    static const int families[] = {AF_INET, AF_INET6};
    for (int i = 0; i < 2; i++) {
        struct fake f;
        struct err err = {0};
        uint16_t port = 0;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        assert_int_equal(http_listen_tcp(f.server, "localhost", &port, NULL, &err), ST_OK);
        const int both = occupy(families[i], port); /* is this one of localhost's addresses? */
        fake_deinit(&f);
        const int other = both < 0 ? occupy(families[i], port) : -1;
        if (both >= 0) close(both);
        if (other < 0) continue;
        assert_int_equal(fake_init(&f, NULL), ST_OK);
        assert_int_equal(http_listen_tcp(f.server, "localhost", &port, NULL, &err), ST_UNAVAILABLE);
        assert_non_null(strstr(err.text, "in use"));
        assert_null(f.server->listeners); /* nor is the rest of them served */
        fake_deinit(&f);
        close(other);
    }
}

static void test_the_handler_knows_the_peer_address(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    client_connect(&c, listen_on(&f, NULL));
    client_send(&f, &c, STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 1));
    const struct http_head *h = http_head(f.held[0]);
    assert_true(str_starts(h->peer, STR("127.0.0.1:")));
    assert_true(h->is_local);
    assert_false(h->is_tls);
    client_close(&c);
    assert_true(client_until(&f, &f.gones, 1));
    fake_deinit(&f);
}

/* ---- unix sockets ---- */

static void make_path(char path[64], const char *name) {
    char folder[] = "/tmp/jitney-net-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(path, 64, "%s/%s", folder, name);
}

static void remove_path(char path[64]) {
    unlink(path);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
}

static int bind_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void test_a_unix_socket_serves_and_is_removed(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    struct stat info;
    char path[64];
    make_path(path, "s");
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_int_equal(http_listen_unix(f.server, path, NULL), ST_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0117, 0); /* nobody but its owner and at most its group */
    client_connect_unix(&c, path);
    ask(&f, &c);
    client_send(&f, &c, STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 1));
    assert_true(str_is(http_head(f.held[0])->peer, "unix"));
    assert_true(http_head(f.held[0])->is_local);
    client_close(&c);
    fake_deinit(&f);
    assert_int_not_equal(stat(path, &info), 0);
    remove_path(path);
}

static void test_a_stale_socket_file_is_replaced_and_nothing_else_is(void **state) {
    (void)state;
    struct fake f;
    struct err err = {0};
    char path[64];
    make_path(path, "s");
    close(bind_unix(path)); /* left over */
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_int_equal(http_listen_unix(f.server, path, &err), ST_OK);
    assert_int_equal(http_listen_unix(f.server, path, &err), ST_UNAVAILABLE); /* alive */
    assert_non_null(strstr(err.text, path));
    fake_deinit(&f);

    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_int_equal(http_listen_unix(f.server, path, &err), ST_CREATE);
    assert_int_equal(http_listen_unix(f.server, "/no/such/folder/s", &err), ST_IO);
    char long_path[200];
    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = 0;
    assert_int_equal(http_listen_unix(f.server, long_path, &err), ST_BAD);
    fake_deinit(&f);
    remove_path(path);
}

struct starter {
    int fd, lock; /* of a server that starts: bound, with the folder locked */
};

static void finish_start(void *ctx) {
    const struct starter *s = ctx;
    uv_sleep(50);
    CHECK(listen(s->fd, 5) == 0);
    close(s->lock);
}

static void test_two_servers_that_start_at_once_do_not_remove_each_others_socket(void **state) {
    (void)state;
    struct fake f;
    struct err err = {0};
    char path[64], folder[64];
    make_path(path, "s");
    memcpy(folder, path, sizeof(folder));
    *strrchr(folder, '/') = 0;
    struct starter other = {.lock = open(folder, O_RDONLY | O_DIRECTORY)};
    assert_int_equal(flock(other.lock, LOCK_EX), 0);
    other.fd = bind_unix(path);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, finish_start, &other), 0);
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_int_equal(http_listen_unix(f.server, path, &err), ST_UNAVAILABLE);
    assert_int_equal(uv_thread_join(&thread), 0);
    close(other.fd);
    fake_deinit(&f);
    remove_path(path);
}

/* ---- inherited sockets ---- */

static void test_an_inherited_listening_descriptor_can_be_used(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    struct err err = {0};
    char path[64];
    make_path(path, "s");
    assert_int_equal(fake_init(&f, NULL), ST_OK);

    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(any);
    const int tcp = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(tcp, (struct sockaddr *)&any, sizeof(any)), 0);
    assert_int_equal(http_listen_fd(f.server, tcp, NULL, &err), ST_BAD); /* does not listen */
    assert_int_equal(listen(tcp, 5), 0);
    assert_int_equal(getsockname(tcp, (struct sockaddr *)&any, &bytes), 0);
    assert_int_equal(http_listen_fd(f.server, tcp, NULL, &err), ST_OK);
    client_connect(&c, ntohs(any.sin_port));
    ask(&f, &c);
    client_close(&c);

    const int local = bind_unix(path);
    assert_int_equal(listen(local, 5), 0);
    assert_int_equal(http_listen_fd(f.server, local, NULL, &err), ST_OK);
    client_connect_unix(&c, path);
    ask(&f, &c);
    client_close(&c);

    const struct sockaddr_un none = {.sun_family = AF_UNIX}; /* the kernel chooses a name */
    const int packets = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(packets, (const struct sockaddr *)&none, sizeof(none.sun_family)), 0);
    assert_int_equal(listen(packets, 5), 0);
    assert_int_equal(http_listen_fd(f.server, packets, NULL, &err), ST_BAD);
    close(packets);

    assert_int_equal(http_listen_fd(f.server, 9999, NULL, &err), ST_BAD);
    fake_deinit(&f);
    remove_path(path);
}

/* ---- too many ---- */

static void test_the_oldest_idle_connection_is_evicted(void **state) {
    (void)state;
    struct fake f;
    struct client c[5];
    const struct http_limits limits = {.connections = 3};
    const uint16_t port = listen_on(&f, &limits);
    for (int i = 0; i < 3; i++) {
        client_connect(&c[i], port);
        ask(&f, &c[i]);
    }
    ask(&f, &c[0]); /* so c[1] is the oldest */
    client_connect(&c[3], port);
    ask(&f, &c[3]);
    assert_true(client_wait(&f, &c[1], NULL));
    assert_int_equal(http_stats(f.server).connections, 3);

    static const int busy[] = {0, 2, 3};
    for (int i = 0; i < 3; i++) client_send(&f, &c[busy[i]], STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 3));
    client_connect(&c[4], port); /* none is idle: the new one is closed */
    assert_true(client_wait(&f, &c[4], NULL));
    assert_int_equal(http_stats(f.server).refused, 1);
    assert_int_equal(f.gones, 0);
    for (int i = 0; i < 5; i++) client_close(&c[i]);
    assert_true(client_until(&f, &f.gones, 3));
    fake_deinit(&f);
}

/* Each turn of the loop takes a few new connections, so that open ones are served between. */
static void test_many_new_connections_do_not_delay_open_ones(void **state) {
    (void)state;
    struct fake f;
    struct client old, c[60];
    const uint16_t port = listen_on(&f, NULL);
    client_connect(&old, port);
    ask(&f, &old);
    for (int i = 0; i < 60; i++) client_connect(&c[i], port);
    buf_clear(&old.in);
    client_send(&f, &old, STR(ASK));
    uint64_t before = http_stats(f.server).accepted, answered_at = 0;
    for (int turns = 0; before < 61 && turns < 1000; turns++) {
        uv_run(&f.loop, UV_RUN_NOWAIT);
        client_read(&old);
        const uint64_t now = http_stats(f.server).accepted;
        assert_true(now <= before + 9);
        before = now;
        if (!answered_at && client_has(&old, ANSWER)) answered_at = now;
    }
    assert_int_equal(before, 61);
    assert_in_range(answered_at, 1, 30);
    client_close(&old);
    for (int i = 0; i < 60; i++) client_close(&c[i]);
    fake_deinit(&f);
}

static void test_many_silent_connections_shut_nobody_out(void **state) {
    (void)state;
    struct fake f;
    struct client c[4];
    const struct http_limits limits = {.connections = 3};
    const uint16_t port = listen_on(&f, &limits);
    for (int i = 0; i < 3; i++) {
        client_connect(&c[i], port);
        client_send(&f, &c[i], STR("GET / HTTP/1.1\r\nHo"));
        client_run_ms(&f, 5);
    }
    client_connect(&c[3], port);
    ask(&f, &c[3]);
    assert_true(client_wait(&f, &c[0], NULL));
    for (int i = 0; i < 4; i++) client_close(&c[i]);
    fake_deinit(&f);
}

static void test_many_slow_bodies_shut_nobody_out(void **state) {
    (void)state;
    struct fake f;
    struct client c[4];
    const struct http_limits limits = {.connections = 3};
    const uint16_t port = listen_on(&f, &limits);
    for (int i = 0; i < 3; i++) {
        client_connect(&c[i], port);
        client_send(&f, &c[i], STR("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"));
        client_run_ms(&f, 5);
    }
    client_send(&f, &c[0], STR("x")); /* so c[1] has been silent longest */
    client_run_ms(&f, 300);           /* no body has just begun */
    client_connect(&c[3], port);
    ask(&f, &c[3]);
    assert_true(client_wait(&f, &c[1], NULL));
    assert_false(c[0].is_ended);
    for (int i = 0; i < 4; i++) client_close(&c[i]);
    fake_deinit(&f);
}

static void test_running_out_of_descriptors_is_survived(void **state) {
    (void)state;
    enum { CLIENTS = 12 };
    struct fake f;
    struct client c[CLIENTS];
    struct rlimit old, low;
    const uint16_t port = listen_on(&f, NULL);
    for (int i = 0; i < CLIENTS; i++) client_connect(&c[i], port); /* wait in the backlog */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)c[CLIENTS - 1].fd + 4; /* three can be accepted */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < CLIENTS; i++) client_wait_ms(&f, &c[i], NULL, 10);
    assert_true(http_stats(f.server).connections <= 3);
    uint32_t turned_away = 0;
    for (int i = 0; i < CLIENTS; i++) turned_away += c[i].is_ended;
    assert_true(turned_away >= CLIENTS - 3);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    struct client late;
    client_connect(&late, port);
    ask(&f, &late);
    for (int i = 0; i < CLIENTS; i++) client_close(&c[i]);
    client_close(&late);
    fake_deinit(&f);
}

static void test_the_descriptor_limit_is_raised(void **state) {
    (void)state;
    uint64_t before, after;
    struct rlimit limit;
    http_raise_fd_limit(&before, &after);
    assert_true(after >= before);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, after);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
}

/* ---- disconnects ---- */

static void test_a_disconnect_is_noticed_at_once(void **state) {
    (void)state;
    struct fake f;
    const uint16_t port = listen_on(&f, NULL);
    for (uint32_t way = 0; way < 3; way++) {
        struct client c;
        client_connect(&c, port);
        client_send(&f, &c, STR(HOLD));
        assert_true(client_until(&f, &f.held_count, 1));
        if (way == 0) client_close(&c);
        if (way == 1) client_reset(&c);
        if (way == 2) assert_int_equal(shutdown(c.fd, SHUT_WR), 0); /* half closed */
        const int64_t since = client_now_ms();
        assert_true(client_until(&f, &f.gones, way + 1));
        assert_true(client_now_ms() - since < 1500);
        client_close(&c);
    }
    client_run_ms(&f, 10);
    assert_int_equal(http_stats(f.server).connections, 0);
    fake_deinit(&f);
}

static void test_a_disconnect_during_a_stream_is_noticed(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    client_connect(&c, listen_on(&f, NULL));
    client_send(&f, &c, STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 1));
    struct http_exchange *x = f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, STR("x"));
    http_stream_flush(x);
    assert_true(client_wait(&f, &c, "1\r\nx\r\n"));
    client_reset(&c);
    for (int i = 0; i < 3; i++) { /* writing is harmless before on_gone */
        http_stream_put(x, STR("y"));
        http_stream_flush(x);
    }
    assert_int_equal(f.gones, 0);
    assert_true(client_until(&f, &f.gones, 1));
    fake_deinit(&f);
}

static void test_an_error_can_be_read_by_a_client_that_is_still_sending(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    struct buf body;
    buf_init(&body, 4 << 20);
    buf_put_text(&body, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
    for (int i = 0; i < 3000000; i++) buf_put_char(&body, 'x');
    client_connect(&c, listen_on(&f, NULL));
    client_send(&f, &c, buf_str(&body));
    assert_true(client_wait(&f, &c, NULL));
    assert_true(client_has(&c, "HTTP/1.1 413"));
    assert_true(client_has(&c, "{\"status\":413"));
    assert_false(c.is_reset);
    buf_deinit(&body);
    client_close(&c);
    fake_deinit(&f);
}

/* ---- slow clients ---- */

static void test_a_head_has_a_limit_of_total_time(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    const struct http_limits limits = {.head_ms = 100};
    client_connect(&c, listen_on(&f, &limits));
    const int64_t since = client_now_ms();
    const char *head = "GET /a-long-path-that-trickles-in-byte-by-byte HTTP/1.1\r\nHost: a\r\n";
    for (const char *at = head; *at && !c.is_ended && !client_has(&c, "408"); at++) {
        client_send(&f, &c, (struct str){at, 1});
        client_wait_ms(&f, &c, NULL, 10);
    }
    assert_true(client_wait(&f, &c, "HTTP/1.1 408"));
    assert_true(client_now_ms() - since >= 100);
    assert_true(client_now_ms() - since < 2000);
    assert_true(client_wait(&f, &c, NULL));
    client_close(&c);
    fake_deinit(&f);
}

static void test_a_body_has_limits_of_pause_and_total_time(void **state) {
    (void)state;
    static const struct http_limits limits[] = {{.body_ms = 100},
                                                {.body_ms = 1000, .body_total_ms = 150}};
    for (int i = 0; i < 2; i++) {
        struct fake f;
        struct client c;
        client_connect(&c, listen_on(&f, &limits[i]));
        client_send(&f, &c, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n"));
        const int64_t since = client_now_ms();
        for (int k = 0; k < (i ? 100 : 1) && !client_has(&c, "408"); k++) {
            client_send(&f, &c, STR("x"));
            client_wait_ms(&f, &c, "408", 10);
        }
        assert_true(client_wait(&f, &c, "HTTP/1.1 408"));
        assert_true(client_now_ms() - since >= 100);
        assert_true(client_now_ms() - since < 2500);
        assert_int_equal(f.requests, 0);
        client_close(&c);
        fake_deinit(&f);
    }
}

static void test_an_idle_connection_is_closed_without_a_response(void **state) {
    (void)state;
    struct fake f;
    struct client c;
    const struct http_limits limits = {.idle_ms = 80};
    client_connect(&c, listen_on(&f, &limits));
    ask(&f, &c);
    const size_t before = c.in.len;
    assert_true(client_wait(&f, &c, NULL));
    assert_int_equal(c.in.len, before);
    assert_false(c.is_reset);
    client_close(&c);
    client_run_ms(&f, 10);
    assert_int_equal(http_stats(f.server).connections, 0);
    fake_deinit(&f);
}

static void
test_a_client_that_reads_nothing_is_disconnected_and_others_are_not_delayed(void **state) {
    (void)state;
    enum { BYTES = 20 << 20 };
    struct fake f;
    struct client slow, quick;
    const struct http_limits limits = {.write_ms = 200};
    const uint16_t port = listen_on(&f, &limits);
    struct buf body;
    buf_init(&body, BYTES);
    for (int i = 0; i < BYTES / 16; i++) buf_put_text(&body, "0123456789abcdef");
    client_connect(&slow, port);
    client_connect(&quick, port);
    client_send(&f, &slow, STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 1));
    struct http_exchange *x = f.held[0];
    uv_update_time(&f.loop);
    const int64_t since = client_now_ms();
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, buf_str(&body));
    http_stream_flush(x);
    assert_true(http_backlog(x) > BYTES / 4);
    while (f.gones == 0 && client_now_ms() - since < CLIENT_WAIT_MS) {
        const int64_t asked = client_now_ms();
        ask(&f, &quick);
        assert_true(client_now_ms() - asked < 1000);
    }
    assert_int_equal(f.gones, 1);
    assert_true(client_now_ms() - since >= 200);
    buf_deinit(&body);
    client_close(&slow);
    client_close(&quick);
    fake_deinit(&f);
}

static void test_a_client_that_reads_slowly_gets_everything(void **state) {
    (void)state;
    enum { BYTES = 8 << 20 };
    struct fake f;
    struct client c;
    const struct http_limits limits = {.write_ms = 400};
    client_connect(&c, listen_on(&f, &limits));
    struct buf body;
    buf_init(&body, BYTES);
    for (int i = 0; i < BYTES / 16; i++) buf_put_text(&body, "0123456789abcdef");
    client_send(&f, &c, STR(HOLD));
    assert_true(client_until(&f, &f.held_count, 1));
    const struct http_reply reply = {.status = 200, .body = buf_str(&body)};
    uv_update_time(&f.loop);
    http_reply(f.held[0], &reply);
    c.is_not_reading = true;
    for (int i = 0; i < 6; i++) { /* in total much longer than write_ms */
        client_run_ms(&f, 150);
        c.is_not_reading = false;
        for (int k = 0; k < 16; k++) client_read(&c);
        c.is_not_reading = true;
    }
    c.is_not_reading = false;
    const int64_t end = client_now_ms() + CLIENT_WAIT_MS;
    while (c.in.len < BYTES && !c.is_ended && client_now_ms() < end) client_step(&f, &c);
    assert_true(c.in.len > BYTES);
    assert_memory_equal(c.in.ptr + c.in.len - BYTES, body.ptr, BYTES);
    buf_deinit(&body);
    client_close(&c);
    fake_deinit(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_connection_serves_many_requests),
        cmocka_unit_test(test_connections_have_no_delay_and_keep_alive_probes),
        cmocka_unit_test(test_names_and_both_families_can_be_listened_on),
        cmocka_unit_test(test_a_port_in_use_and_an_unknown_host_are_reported),
        cmocka_unit_test(test_no_address_of_a_name_may_be_in_use),
        cmocka_unit_test(test_the_handler_knows_the_peer_address),
        cmocka_unit_test(test_a_unix_socket_serves_and_is_removed),
        cmocka_unit_test(test_a_stale_socket_file_is_replaced_and_nothing_else_is),
        cmocka_unit_test(test_two_servers_that_start_at_once_do_not_remove_each_others_socket),
        cmocka_unit_test(test_an_inherited_listening_descriptor_can_be_used),
        cmocka_unit_test(test_the_oldest_idle_connection_is_evicted),
        cmocka_unit_test(test_many_new_connections_do_not_delay_open_ones),
        cmocka_unit_test(test_many_silent_connections_shut_nobody_out),
        cmocka_unit_test(test_many_slow_bodies_shut_nobody_out),
        cmocka_unit_test(test_running_out_of_descriptors_is_survived),
        cmocka_unit_test(test_the_descriptor_limit_is_raised),
        cmocka_unit_test(test_a_disconnect_is_noticed_at_once),
        cmocka_unit_test(test_a_disconnect_during_a_stream_is_noticed),
        cmocka_unit_test(test_an_error_can_be_read_by_a_client_that_is_still_sending),
        cmocka_unit_test(test_a_head_has_a_limit_of_total_time),
        cmocka_unit_test(test_a_body_has_limits_of_pause_and_total_time),
        cmocka_unit_test(test_an_idle_connection_is_closed_without_a_response),
        cmocka_unit_test(
            test_a_client_that_reads_nothing_is_disconnected_and_others_are_not_delayed),
        cmocka_unit_test(test_a_client_that_reads_slowly_gets_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
