/* Goal:   nobody comes in who should not: rebound names, foreign pages, missing and wrong keys.
 * Method: heads as clients and browsers send them, against servers that listen on loopback or
 *         beyond it, with and without keys; each case says what must become of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "server/server.h"
#include "server/server_int.h"

static const char KEY_FILE[] = "/tmp/jitney-test-gate-keys";

struct world {
    struct server server;
    struct http_header headers[8];
    struct http_head head;
    struct http_request http;
};

static void world_open(struct world *w, const char *host, bool with_keys) {
    struct err err = {0};
    memset(w, 0, sizeof(*w));
    assert_int_equal(settings_init(&w->server.settings), ST_OK);
    assert_int_equal(settings_set(&w->server.settings, STR("host"), str_of(host), FROM_FLAG, &err),
                     ST_OK);
    if (with_keys) {
        struct str lines = STR("sk-first-key name=first\nsk-other-key name=other admin\n");
        assert_int_equal(file_write_atomic(KEY_FILE, lines, &err), ST_OK);
        assert_int_equal(settings_set(&w->server.settings, STR("api-key-file"), str_of(KEY_FILE),
                                      FROM_FLAG, &err),
                         ST_OK);
    }
    enum status st = keys_create(with_keys ? KEY_FILE : NULL, &w->server.keys, &err);
    if (st != ST_OK) fail_msg("%s", err.text);
    w->server.is_loopback = server_host_is_local(host);
}

static void world_close(struct world *w) {
    keys_destroy(w->server.keys);
    settings_deinit(&w->server.settings);
}

static void allow(struct world *w, const char *flag, const char *value) {
    struct err err = {0};
    assert_int_equal(
        settings_set(&w->server.settings, str_of(flag), str_of(value), FROM_FLAG, &err), ST_OK);
}

/* The status that a request gets; 0: it is let in. `pairs`: names and values, NULL at the end. */
static uint32_t knock_with(struct world *w, enum http_method method, const char *path,
                           const char *host, const char *const *pairs) {
    struct api_error e = {0};
    struct str arg;
    uint32_t allowed, count = 0;
    for (; pairs && pairs[2 * count]; count++)
        w->headers[count] =
            (struct http_header){str_of(pairs[2 * count]), str_of(pairs[2 * count + 1])};
    w->head = (struct http_head){.method = method,
                                 .path = str_of(path),
                                 .host = str_of(host),
                                 .headers = w->headers,
                                 .header_count = count,
                                 .peer = STR("127.0.0.1:5123")};
    w->http = (struct http_request){.server = &w->server, .head = &w->head};
    w->http.route = routes_find(method, w->head.path, &arg, &allowed);
    enum status st = gate_check(&w->http, &e);
    assert_int_equal(st == ST_OK, e.status == 0);
    return e.status;
}

static uint32_t knock(struct world *w, const char *path, const char *host,
                      const char *const *pairs) {
    return knock_with(w, HTTP_GET, path, host, pairs);
}

#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_loopback_in_every_spelling(void **state) {
    (void)state;
    static const char *const local[] = {
        "127.0.0.1",        "127.1.2.3",         "::1", "[::1]", "localhost",
        "::ffff:127.0.0.1", "[::ffff:127.5.5.5]"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!server_host_is_local(local[i])) fail_msg("%s", local[i]);
}

static void test_all_else_is_open(void **state) {
    (void)state;
    static const char *const open[] = {"0.0.0.0",       "::",        "[::]",
                                       "192.168.0.1",   "128.0.0.1", "1.127.0.0",
                                       "127.0.0.1.com", "example",   "localhost.evil",
                                       "::2",           "",          "127",
                                       "0177.0.0.1",    "[",         "::ffff:10.0.0.1",
                                       "fe80::1",       "127.0.0.1 "};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
        if (server_host_is_local(open[i])) fail_msg("%s", open[i]);
}

static void test_on_loopback_only_names_of_this_machine_are_hosts(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", false);
    assert_int_equal(knock(&w, "/v1/models", "127.0.0.1:8080", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "localhost:8080", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "LocalHost", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "[::1]:8080", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "evil.example:8080", NULL), 403);
    assert_int_equal(knock(&w, "/v1/models", "localhost.evil.example", NULL), 403);
    assert_int_equal(knock(&w, "/v1/models", "127.0.0.1.evil.example", NULL), 403);
    assert_int_equal(knock(&w, "/livez", "evil.example", NULL), 403);
    const char *const odd[] = {"localhost@evil.example",
                               "evil.example@localhost",
                               "localhost.",
                               "[::1].evil.example",
                               "127.0.0.1,evil.example",
                               "127.0.0.2",
                               "[::ffff:7f00:1]",
                               "0.0.0.0",
                               "2130706433",
                               "localhost:80.evil.example"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        assert_int_equal(knock(&w, "/v1/models", odd[i], NULL), 403);
    world_close(&w);
    world_open(&w, "::ffff:127.0.0.1", false);
    assert_int_equal(knock(&w, "/v1/models", "evil.example:8080", NULL), 403);
    allow(&w, "allowed-host", "Box.lan");
    assert_int_equal(knock(&w, "/v1/models", "box.lan:8080", NULL), 0);
    assert_int_equal(knock(&w, "/v1/models", "BOX.LAN", NULL), 0);
    world_close(&w);
}

static void test_a_unix_socket_has_no_host(void **state) {
    (void)state;
    struct world w;
    struct api_error e = {0};
    world_open(&w, "127.0.0.1", false);
    knock(&w, "/v1/models", "anything", NULL);
    w.head.peer = STR("unix");
    assert_int_equal(gate_check(&w.http, &e), ST_OK);
    world_close(&w);
}

static void test_beyond_loopback_and_with_keys_any_host_will_do(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "0.0.0.0", false);
    assert_int_equal(knock(&w, "/v1/models", "server.example", NULL), 0);
    world_close(&w);
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(
        knock(&w, "/v1/models", "server.example", PAIRS("authorization", "Bearer sk-first-key")),
        0);
    world_close(&w);
}

static void test_pages_of_other_sites_are_refused_unless_allowed(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", false);
    const char *host = "127.0.0.1:8080";
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "http://evil.example")), 403);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "null")), 403);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "")), 403);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "http://127.0.0.1:9999")), 403);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "http://127.0.0.1:8080")), 0);
    assert_false(w.http.is_allowed_origin);
    allow(&w, "cors-origin", "https://app.example");
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "https://app.example")), 0);
    assert_true(w.http.is_allowed_origin);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "https://app.example.evil")),
                     403);
    allow(&w, "cors-origin", "*");
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("origin", "http://evil.example")), 0);
    world_close(&w);
}

static void test_a_key_does_not_excuse_a_foreign_page(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(
        knock(&w, "/v1/models", "127.0.0.1",
              PAIRS("origin", "http://evil.example", "authorization", "Bearer sk-first-key")),
        403);
    world_close(&w);
}

static void test_keys_come_in_either_header_and_must_be_known(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    const char *host = "127.0.0.1";
    assert_int_equal(knock(&w, "/v1/models", host, NULL), 401);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("authorization", "Bearer sk-no-key")),
                     401);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("authorization", "Basic sk-first-key")),
                     401);
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("authorization", "bearer sk-first-key")),
                     0);
    assert_string_equal(w.http.key->name, "first");
    assert_int_equal(knock(&w, "/v1/models", host, PAIRS("x-api-key", "sk-other-key")), 0);
    assert_string_equal(w.http.key->name, "other");
    assert_int_equal(knock(&w, "/v1/messages", host, PAIRS("x-api-key", "sk-first-ke")), 401);
    world_close(&w);
}

static void test_probes_ask_for_no_key_and_unknown_paths_do(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(knock(&w, "/livez", "127.0.0.1", NULL), 0);
    assert_int_equal(knock(&w, "/health", "127.0.0.1", NULL), 0);
    assert_int_equal(knock(&w, "/metrics", "127.0.0.1", NULL), 401);
    assert_int_equal(knock(&w, "/no/such/path", "127.0.0.1", NULL), 401);
    world_close(&w);
}

/* Whatever the method: without a known key nobody gets past, but for what is open. */
static void test_every_route_with_every_method_asks_for_its_key(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    for (uint32_t i = 0; i < routes_count(); i++)
        for (int m = HTTP_GET; m <= HTTP_OTHER; m++) {
            char path[64];
            const struct route *r = routes_at(i);
            enum http_method method = (enum http_method)m;
            snprintf(path, sizeof(path), "%s", r->path);
            char *star = strchr(path, '*');
            if (star) *star = 'x';
            bool is_open = r->auth == AUTH_OPEN && (method == r->method || method == HTTP_HEAD);
            uint32_t wanted = is_open || method == HTTP_OPTIONS ? 0 : 401;
            assert_int_equal(knock_with(&w, method, path, "127.0.0.1", NULL), wanted);
            assert_int_equal(
                knock_with(&w, method, path, "127.0.0.1", PAIRS("x-api-key", "sk-none")), wanted);
            assert_int_equal(
                knock_with(&w, method, path, "127.0.0.1", PAIRS("x-api-key", "sk-first-key")), 0);
        }
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_in_every_spelling),
        cmocka_unit_test(test_all_else_is_open),
        cmocka_unit_test(test_on_loopback_only_names_of_this_machine_are_hosts),
        cmocka_unit_test(test_a_unix_socket_has_no_host),
        cmocka_unit_test(test_beyond_loopback_and_with_keys_any_host_will_do),
        cmocka_unit_test(test_pages_of_other_sites_are_refused_unless_allowed),
        cmocka_unit_test(test_a_key_does_not_excuse_a_foreign_page),
        cmocka_unit_test(test_keys_come_in_either_header_and_must_be_known),
        cmocka_unit_test(test_probes_ask_for_no_key_and_unknown_paths_do),
        cmocka_unit_test(test_every_route_with_every_method_asks_for_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
