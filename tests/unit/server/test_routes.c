/* Goal:   every path needs its key, has its methods and no others, and is documented.
 * Method: the table itself, a matrix of methods and paths, and the OpenAPI document's rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/openapi.h"
#include "access/keys.h"
#include "api/codec.h"
#include "base/file.h"
#include "config/settings.h"
#include "server/handlers.h"
#include "server/routes.h"

static void test_every_route_says_who_may_use_it_and_has_a_codec(void **state) {
    (void)state;
    struct err err = {0};
    assert_int_equal(routes_check(&err), ST_OK);
    for (uint32_t i = 0; i < routes_count(); i++) {
        const struct route *r = routes_at(i);
        assert_int_not_equal(r->access, ACCESS_UNDECLARED);
        assert_non_null(r->handle);
        assert_non_null(codec_find(r->codec));
    }
}

static void test_only_probes_and_pages_are_open(void **state) {
    (void)state;
    static const char *const open[] = {"/",          "/livez",   "/readyz",       "/health",
                                       "/v1/health", "/version", "/openapi.json", "/page/*"};
    for (uint32_t i = 0; i < routes_count(); i++) {
        const struct route *r = routes_at(i);
        bool is_listed = false;
        for (size_t k = 0; k < sizeof(open) / sizeof(open[0]); k++)
            is_listed |= strcmp(open[k], r->path) == 0;
        assert_int_equal(r->access == ACCESS_OPEN, is_listed);
        if (r->access == ACCESS_OPEN) assert_int_equal(r->method, HTTP_GET);
    }
}

static void test_work_is_what_a_draining_server_refuses(void **state) {
    (void)state;
    for (uint32_t i = 0; i < routes_count(); i++) {
        const struct route *r = routes_at(i);
        if (r->handle == handle_text || r->handle == handle_embeddings)
            assert_int_equal(r->class, ROUTE_WORK);
        if (r->handle == handle_generation_get || r->handle == handle_live)
            assert_int_not_equal(r->class, ROUTE_WORK);
    }
}

static void test_a_route_says_how_large_its_body_may_be(void **state) {
    (void)state;
    struct str arg;
    uint32_t allowed;
    const uint64_t body_max = 8 << 20, file_max = 100 << 20;
    for (uint32_t i = 0; i < routes_count(); i++) {
        const struct route *r = routes_at(i);
        const uint64_t bytes = routes_body_bytes(r, body_max, file_max);
        if (r->method != HTTP_POST) assert_int_equal(bytes, 0);
        if (r->body_bytes == BODY_FILE) {
            assert_int_equal(bytes, file_max + BODY_FORM_BYTES);
            assert_int_equal(r->class, ROUTE_WORK);
            continue;
        }
        if (r->method == HTTP_POST && r->class == ROUTE_WORK) assert_int_equal(bytes, body_max);
        if (r->method == HTTP_POST && r->class != ROUTE_WORK) assert_in_range(bytes, 1, BODY_ITEMS);
        assert_true(routes_body_bytes(r, 1024, file_max) <= 1024);
    }
    assert_int_equal(routes_body_bytes(NULL, body_max, file_max), 0);
    const struct route *head = routes_find(HTTP_HEAD, STR("/livez"), &arg, &allowed);
    assert_int_equal(routes_body_bytes(head, body_max, file_max), 0);
}

static void test_a_path_and_a_method_find_one_route(void **state) {
    (void)state;
    static const struct {
        enum http_method method;
        const char *path, *route, *arg;
        uint32_t allowed;
    } cases[] = {
        {HTTP_POST, "/v1/chat/completions", "/v1/chat/completions", "", 0},
        {HTTP_POST, "/chat/completions", "/chat/completions", "", 0},
        {HTTP_GET, "/v1/completions", NULL, "", 1u << HTTP_POST},
        {HTTP_PUT, "/v1/completions", NULL, "", 1u << HTTP_POST},
        {HTTP_GET, "/v1/models", "/v1/models", "", 0},
        {HTTP_HEAD, "/v1/models", "/v1/models", "", 0},
        {HTTP_GET, "/v1/models/", NULL, "", 0},
        {HTTP_GET, "/v1/models/org/name:x", "/v1/models/*", "org/name:x", 0},
        {HTTP_GET, "/v1/requests/abc", "/v1/requests/*", "abc", 0},
        {HTTP_DELETE, "/v1/requests/abc", "/v1/requests/*", "abc", 0},
        {HTTP_POST, "/v1/requests/abc", NULL, "", 1u << HTTP_GET | 1u << HTTP_DELETE},
        {HTTP_GET, "/v1/files/file-1/content", "/v1/files/*/content", "file-1", 0},
        {HTTP_GET, "/v1/files/content", "/v1/files/*", "content", 0},
        {HTTP_GET, "/v1/files//content", "/v1/files/*", "/content", 0},
        {HTTP_GET, "/v1/files/a/b/content", "/v1/files/*", "a/b/content", 0},
        {HTTP_GET, "/v1/files/a/contents", "/v1/files/*", "a/contents", 0},
        {HTTP_POST, "/v1/files/a/content", NULL, "", 1u << HTTP_GET | 1u << HTTP_DELETE},
        {HTTP_POST, "/v1/batches/b/cancel", "/v1/batches/*/cancel", "b", 0},
        {HTTP_POST, "/v1/batches//cancel", NULL, "", 1u << HTTP_GET},
        {HTTP_POST, "/v1/batches/cancel", NULL, "", 1u << HTTP_GET},
        {HTTP_GET, "/v1/conversations/c/items", "/v1/conversations/*/items", "c", 0},
        {HTTP_GET, "/v1/conversations/c/items/m", "/v1/conversations/*/items/*", "c/items/m", 0},
        {HTTP_DELETE, "/v1/conversations/c/items/m", "/v1/conversations/*/items/*", "c/items/m", 0},
        {HTTP_POST, "/v1/messages/batches", "/v1/messages/batches", "", 0},
        {HTTP_GET, "/v1/messages/batches/m/results", "/v1/messages/batches/*/results", "m", 0},
        {HTTP_GET, "/v1/modelsx", NULL, "", 0},
        {HTTP_GET, "/V1/models", NULL, "", 0},
        {HTTP_GET, "//v1/models", NULL, "", 0},
        {HTTP_GET, "/", "/", "", 0},
        {HTTP_HEAD, "/", "/", "", 0},
        {HTTP_POST, "/", NULL, "", 1u << HTTP_GET},
        {HTTP_OTHER, "/api/chat", NULL, "", 1u << HTTP_POST},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct str arg;
        uint32_t allowed;
        const struct route *r = routes_find(cases[i].method, str_of(cases[i].path), &arg, &allowed);
        if (!cases[i].route) {
            assert_null(r);
            assert_int_equal(allowed, cases[i].allowed);
            continue;
        }
        assert_non_null(r);
        assert_string_equal(r->path, cases[i].route);
        assert_true(str_is(arg, cases[i].arg));
    }
}

/* "/v1/files/{id}/content" of the document is "/v1/files/x/content" of a client. */
static struct str spell(const char *path, char *out, size_t bytes) {
    const char *brace = strchr(path, '{'), *end = brace ? strchr(brace, '}') : NULL;
    const int before = brace ? (int)(brace - path) : (int)strlen(path);
    int len = snprintf(out, bytes, "%.*s%s%s", before, path, brace ? "x" : "", end ? end + 1 : "");
    assert_in_range(len, 1, bytes - 1);
    return (struct str){out, (size_t)len};
}

static enum http_method method_of(const char *word) {
    if (strcmp(word, "get") == 0) return HTTP_GET;
    return strcmp(word, "post") == 0 ? HTTP_POST : HTTP_DELETE;
}

static void test_every_operation_of_the_openapi_document_has_a_route(void **state) {
    (void)state;
    for (uint32_t i = 0; i < openapi_operation_count; i++) {
        const struct openapi_operation *o = &openapi_operations[i];
        char text[128];
        struct str arg;
        uint32_t allowed;
        const struct route *r =
            routes_find(method_of(o->method), spell(o->path, text, sizeof(text)), &arg, &allowed);
        if (!r) fail_msg("%s %s is described and not served", o->method, o->path);
        assert_int_equal(r->access == ACCESS_OPEN, o->is_open);
    }
}

static void test_an_unknown_path_is_refused_in_the_format_of_its_api(void **state) {
    (void)state;
    assert_string_equal(routes_codec(NULL, STR("/api/nothing"))->name, "ollama.chat");
    assert_string_equal(routes_codec(NULL, STR("/v1/messages/nothing"))->name,
                        "anthropic.messages");
    assert_string_equal(routes_codec(NULL, STR("/nothing"))->name, "openai.chat");
}

static const char KEY_FILE[] = "/tmp/jitney-test-routes-keys";

/* The status of a request with this key, or with none; 0: it is accepted. */
static uint32_t status_with(const struct keys *keys, enum http_method method, const char *path,
                            const char *secret) {
    struct settings settings = {.host = "127.0.0.1"};
    struct access_rules rules = {.settings = &settings, .keys = keys};
    struct http_header header = {STR("x-api-key"), str_of(secret ? secret : "")};
    struct http_head head = {.method = method,
                             .path = str_of(path),
                             .headers = &header,
                             .header_count = secret ? 1 : 0,
                             .peer = STR("127.0.0.1:5123")};
    struct access_grant grant;
    struct api_error e = {0};
    struct str arg;
    uint32_t allowed;
    const struct route *route = routes_find(method, head.path, &arg, &allowed);
    access_check(&rules, &head, routes_access(route, method), &grant, &e);
    return e.status;
}

static struct keys *make_keys(void) {
    struct err err = {0};
    struct keys *keys = NULL;
    assert_int_equal(file_write_atomic(KEY_FILE, STR("sk-first-key name=first\n"), &err), ST_OK);
    assert_int_equal(keys_create(KEY_FILE, &keys, &err), ST_OK);
    return keys;
}

static void test_probes_need_no_key_and_unknown_paths_do(void **state) {
    (void)state;
    struct keys *keys = make_keys();
    assert_int_equal(status_with(keys, HTTP_GET, "/livez", NULL), 0);
    assert_int_equal(status_with(keys, HTTP_GET, "/health", NULL), 0);
    assert_int_equal(status_with(keys, HTTP_GET, "/metrics", NULL), 401);
    assert_int_equal(status_with(keys, HTTP_GET, "/no/such/path", NULL), 401);
    keys_destroy(keys);
}

/* Without a valid key every method of every path is refused, except open routes and OPTIONS. */
static void test_every_route_needs_its_key_with_every_method(void **state) {
    (void)state;
    struct keys *keys = make_keys();
    for (uint32_t i = 0; i < routes_count(); i++)
        for (int m = HTTP_GET; m <= HTTP_OTHER; m++) {
            char path[64];
            const struct route *r = routes_at(i);
            enum http_method method = (enum http_method)m;
            snprintf(path, sizeof(path), "%s", r->path);
            char *star = strchr(path, '*');
            if (star) *star = 'x';
            bool is_open = r->access == ACCESS_OPEN && (method == r->method || method == HTTP_HEAD);
            uint32_t wanted = is_open || method == HTTP_OPTIONS ? 0 : 401;
            assert_int_equal(status_with(keys, method, path, NULL), wanted);
            assert_int_equal(status_with(keys, method, path, "sk-none"), wanted);
            bool is_own = method == r->method || (method == HTTP_HEAD && r->method == HTTP_GET);
            bool is_admins = r->access == ACCESS_ADMIN && is_own;
            assert_int_equal(status_with(keys, method, path, "sk-first-key"), is_admins ? 403 : 0);
        }
    keys_destroy(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_says_who_may_use_it_and_has_a_codec),
        cmocka_unit_test(test_only_probes_and_pages_are_open),
        cmocka_unit_test(test_work_is_what_a_draining_server_refuses),
        cmocka_unit_test(test_a_route_says_how_large_its_body_may_be),
        cmocka_unit_test(test_a_path_and_a_method_find_one_route),
        cmocka_unit_test(test_every_operation_of_the_openapi_document_has_a_route),
        cmocka_unit_test(test_an_unknown_path_is_refused_in_the_format_of_its_api),
        cmocka_unit_test(test_probes_need_no_key_and_unknown_paths_do),
        cmocka_unit_test(test_every_route_needs_its_key_with_every_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
