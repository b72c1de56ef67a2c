/* Goal:   requests with foreign hosts, foreign origins, missing, wrong or removed keys are refused.
 * Method: heads as clients and browsers send them, against rules of servers that listen on
 *         loopback, one address or all of them, with and without keys; each case names the
 *         expected status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "access/access.h"
#include "access/keys.h"
#include "base/file.h"
#include "config/settings.h"
#include "net/http.h"

static const char KEY_FILE[] = "/tmp/jitney-test-access-keys";

struct world {
    struct settings settings;
    struct keys *keys;
    struct access_rules rules;
    struct http_header headers[8];
    struct http_head head;
    struct access_grant grant;
};

static void world_open(struct world *w, const char *host, bool with_keys) {
    struct err err = {0};
    memset(w, 0, sizeof(*w));
    assert_int_equal(settings_init(&w->settings), ST_OK);
    assert_int_equal(settings_set(&w->settings, STR("host"), str_of(host), FROM_FLAG, &err), ST_OK);
    if (with_keys) {
        struct str lines = STR("sk-first-key name=first\nsk-other-key name=other admin\n");
        assert_int_equal(file_write_atomic(KEY_FILE, lines, &err), ST_OK);
        assert_int_equal(
            settings_set(&w->settings, STR("api-key-file"), str_of(KEY_FILE), FROM_FLAG, &err),
            ST_OK);
    }
    enum status st = keys_create(with_keys ? KEY_FILE : NULL, &w->keys, &err);
    if (st != ST_OK) fail_msg("%s", err.text);
    w->rules = (struct access_rules){
        .settings = &w->settings, .keys = w->keys, .is_any_address = access_host_is_any(host)};
}

static void world_close(struct world *w) {
    keys_destroy(w->keys);
    settings_deinit(&w->settings);
}

static void allow(struct world *w, const char *flag, const char *value) {
    struct err err = {0};
    assert_int_equal(settings_set(&w->settings, str_of(flag), str_of(value), FROM_FLAG, &err),
                     ST_OK);
}

/* The status that a request gets; 0: it is accepted. `pairs`: names and values, NULL at the end. */
static uint32_t check_as(struct world *w, enum access_class class, const char *host,
                         const char *const *pairs) {
    struct api_error e = {0};
    uint32_t count = 0;
    for (; pairs && pairs[2 * count]; count++)
        w->headers[count] =
            (struct http_header){str_of(pairs[2 * count]), str_of(pairs[2 * count + 1])};
    w->head = (struct http_head){.host = str_of(host),
                                 .headers = w->headers,
                                 .header_count = count,
                                 .peer = STR("127.0.0.1:5123")};
    enum status st = access_check(&w->rules, &w->head, class, &w->grant, &e);
    assert_int_equal(st == ST_OK, e.status == 0);
    return e.status;
}

static uint32_t check(struct world *w, const char *host, const char *const *pairs) {
    return check_as(w, ACCESS_KEY, host, pairs);
}

#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_loopback_in_every_spelling(void **state) {
    (void)state;
    static const char *const local[] = {
        "127.0.0.1",        "127.1.2.3",         "::1", "[::1]", "localhost",
        "::ffff:127.0.0.1", "[::ffff:127.5.5.5]"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!access_host_is_loopback(local[i])) fail_msg("%s", local[i]);
}

static void test_all_other_addresses_are_not_loopback(void **state) {
    (void)state;
    static const char *const open[] = {"0.0.0.0",       "::",        "[::]",
                                       "192.168.0.1",   "128.0.0.1", "1.127.0.0",
                                       "127.0.0.1.com", "example",   "localhost.evil",
                                       "::2",           "",          "127",
                                       "0177.0.0.1",    "[",         "::ffff:10.0.0.1",
                                       "fe80::1",       "127.0.0.1 "};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
        if (access_host_is_loopback(open[i])) fail_msg("%s", open[i]);
}

static void test_on_loopback_the_host_must_name_this_machine(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", false);
    assert_int_equal(check(&w, "127.0.0.1:8080", NULL), 0);
    assert_int_equal(check(&w, "localhost:8080", NULL), 0);
    assert_int_equal(check(&w, "LocalHost", NULL), 0);
    assert_int_equal(check(&w, "localhost.:8080", NULL), 0);
    assert_int_equal(check(&w, "Jitney.LocalHost:8080", NULL), 0);
    assert_int_equal(check(&w, "[::1]:8080", NULL), 0);
    assert_int_equal(check(&w, "[0:0::0:1]", NULL), 0);
    assert_int_equal(check(&w, "[::ffff:7f00:1]", NULL), 0);
    assert_int_equal(check(&w, "", NULL), 0);
    assert_int_equal(check(&w, "evil.example:8080", NULL), 403);
    assert_int_equal(check(&w, "localhost.evil.example", NULL), 403);
    assert_int_equal(check(&w, "127.0.0.1.evil.example", NULL), 403);
    assert_int_equal(check_as(&w, ACCESS_OPEN, "evil.example", NULL), 403);
    const char *const odd[] = {"localhost@evil.example",
                               "evil.example@localhost",
                               "localhost..",
                               "localhost.evil.example.",
                               "evil-localhost",
                               ".",
                               "[::1].evil.example",
                               "127.0.0.1,evil.example",
                               "127.0.0.2",
                               "192.168.0.9",
                               "[fd00::9]",
                               "0.0.0.0",
                               "2130706433",
                               "localhost:80.evil.example"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        assert_int_equal(check(&w, odd[i], NULL), 403);
    world_close(&w);
    world_open(&w, "::ffff:127.0.0.1", false);
    assert_int_equal(check(&w, "evil.example:8080", NULL), 403);
    allow(&w, "allowed-host", "Box.lan");
    assert_int_equal(check(&w, "box.lan:8080", NULL), 0);
    assert_int_equal(check(&w, "BOX.LAN", NULL), 0);
    world_close(&w);
}

static void test_the_host_of_a_unix_socket_is_not_checked(void **state) {
    (void)state;
    struct world w;
    struct api_error e = {0};
    world_open(&w, "127.0.0.1", false);
    check(&w, "anything", NULL);
    w.head.peer = STR("unix");
    assert_int_equal(access_check(&w.rules, &w.head, ACCESS_KEY, &w.grant, &e), ST_OK);
    world_close(&w);
}

/* A page whose DNS name was changed to point here has that name in Host, wherever the server
 * listens. */
static void test_without_keys_the_host_is_checked_on_every_address(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1",   "0.0.0.0", "::",     "[::]",
                                        "192.168.0.1", "fd00::1", "box.lan"};
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct world w;
        world_open(&w, hosts[i], false);
        if (check(&w, "evil.example:8080", NULL) != 403) fail_msg("%s", hosts[i]);
        assert_int_equal(check_as(&w, ACCESS_OPEN, "evil.example", NULL), 403);
        assert_int_equal(check(&w, "1.2.3.4.evil.example", NULL), 403);
        assert_int_equal(check(&w, "backend", NULL), 403);
        assert_int_equal(check(&w, "localhost:8080", NULL), 0);
        assert_int_equal(check(&w, "127.0.0.1:8080", NULL), 0);
        allow(&w, "allowed-host", "Backend");
        assert_int_equal(check(&w, "backend:80", NULL), 0);
        assert_int_equal(check(&w, "BACKEND.", NULL), 0);
        assert_int_equal(check(&w, "evil.example", NULL), 403);
        allow(&w, "allowed-host", "*");
        assert_int_equal(check(&w, "evil.example", NULL), 0);
        world_close(&w);
    }
}

static void test_the_listening_address_is_accepted_in_every_spelling(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "192.168.0.1", false);
    assert_int_equal(check(&w, "192.168.0.1:8080", NULL), 0);
    assert_int_equal(check(&w, "[::ffff:192.168.0.1]:8080", NULL), 0);
    assert_int_equal(check(&w, "192.168.0.2:8080", NULL), 403);
    world_close(&w);
    world_open(&w, "fd00::1", false);
    assert_int_equal(check(&w, "[FD00:0::1]:8080", NULL), 0);
    assert_int_equal(check(&w, "[fd00::2]:8080", NULL), 403);
    allow(&w, "allowed-host", "[fd00::2]");
    assert_int_equal(check(&w, "[fd00:0:0::2]:8080", NULL), 0);
    world_close(&w);
    world_open(&w, "box.lan", false);
    assert_int_equal(check(&w, "Box.lan.:8080", NULL), 0);
    world_close(&w);
}

static void test_on_all_addresses_any_address_is_accepted_but_no_name(void **state) {
    (void)state;
    static const char *const hosts[] = {"0.0.0.0", "::", "[::]", "::ffff:0.0.0.0"};
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct world w;
        world_open(&w, hosts[i], false);
        assert_int_equal(check(&w, "192.168.0.1:8080", NULL), 0);
        assert_int_equal(check(&w, "[fd00::1]:8080", NULL), 0);
        assert_int_equal(check(&w, "192.168.0.1.", NULL), 403);
        assert_int_equal(check(&w, "192.168.0.1.nip.example", NULL), 403);
        assert_int_equal(check(&w, "0x7f.1", NULL), 403);
        world_close(&w);
    }
    assert_false(access_host_is_any("127.0.0.1"));
    assert_false(access_host_is_any("::1"));
    assert_false(access_host_is_any("box.lan"));
}

static void test_with_keys_any_host_is_accepted(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(check(&w, "server.example", PAIRS("authorization", "Bearer sk-first-key")), 0);
    world_close(&w);
}

static void test_the_refusal_of_a_host_says_what_to_do(void **state) {
    (void)state;
    struct world w;
    struct api_error e = {0};
    char endless[3000];
    world_open(&w, "0.0.0.0", false);
    check(&w, "backend", NULL);
    assert_int_equal(access_check(&w.rules, &w.head, ACCESS_KEY, &w.grant, &e), ST_BAD);
    assert_string_equal(e.code, "host_not_allowed");
    assert_non_null(strstr(e.message.text, "Host \"backend\""));
    memset(endless, 'a', sizeof(endless));
    w.head.host = (struct str){endless, sizeof(endless)};
    assert_int_equal(access_check(&w.rules, &w.head, ACCESS_KEY, &w.grant, &e), ST_BAD);
    assert_non_null(strstr(e.message.text, "--allowed-host"));
    assert_non_null(strstr(e.message.text, "reverse proxy"));
    allow(&w, "allowed-host", "aaaa");
    assert_int_equal(access_check(&w.rules, &w.head, ACCESS_KEY, &w.grant, &e), ST_BAD);
    world_close(&w);
}

static void test_pages_of_other_sites_are_refused_unless_allowed(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", false);
    const char *host = "127.0.0.1:8080";
    assert_int_equal(check(&w, host, PAIRS("origin", "http://evil.example")), 403);
    assert_int_equal(check(&w, host, PAIRS("origin", "null")), 403);
    assert_int_equal(check(&w, host, PAIRS("origin", "")), 403);
    assert_int_equal(check(&w, host, PAIRS("origin", "http://127.0.0.1:9999")), 403);
    static const char *const near[] = {"http://127.0.0.1:8080.evil.example",
                                       "http://127.0.0.1:80801",
                                       "http://127.0.0.1:808",
                                       "http://127.0.0.1",
                                       "http://127.0.0.1:8080/",
                                       "http://x127.0.0.1:8080",
                                       "http:/127.0.0.1:8080",
                                       "127.0.0.1:8080"};
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++)
        assert_int_equal(check(&w, host, PAIRS("origin", near[i])), 403);
    assert_int_equal(check(&w, host, PAIRS("origin", "http://127.0.0.1:8080")), 0);
    assert_false(w.grant.is_allowed_origin);
    allow(&w, "cors-origin", "https://app.example");
    assert_int_equal(check(&w, host, PAIRS("origin", "https://app.example")), 0);
    assert_true(w.grant.is_allowed_origin);
    assert_int_equal(check(&w, host, PAIRS("origin", "https://app.example.evil")), 403);
    allow(&w, "cors-origin", "*");
    assert_int_equal(check(&w, host, PAIRS("origin", "http://evil.example")), 0);
    world_close(&w);
}

static void test_a_foreign_origin_is_refused_even_with_a_key(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(
        check(&w, "127.0.0.1",
              PAIRS("origin", "http://evil.example", "authorization", "Bearer sk-first-key")),
        403);
    world_close(&w);
}

static void test_a_key_is_read_from_either_header_and_must_be_known(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    const char *host = "127.0.0.1";
    assert_int_equal(check(&w, host, NULL), 401);
    assert_int_equal(check(&w, host, PAIRS("authorization", "Bearer sk-no-key")), 401);
    assert_int_equal(check(&w, host, PAIRS("authorization", "Basic sk-first-key")), 401);
    assert_int_equal(check(&w, host, PAIRS("authorization", "bearer sk-first-key")), 0);
    assert_string_equal(w.grant.key->name, "first");
    assert_int_equal(check(&w, host, PAIRS("x-api-key", "sk-other-key")), 0);
    assert_string_equal(w.grant.key->name, "other");
    assert_int_equal(check(&w, host, PAIRS("x-api-key", "sk-first-ke")), 401);
    world_close(&w);
}

static void
test_an_open_route_needs_no_key_and_an_administrators_needs_one_of_theirs(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(check_as(&w, ACCESS_OPEN, "127.0.0.1", NULL), 0);
    assert_null(w.grant.key);
    assert_int_equal(check_as(&w, ACCESS_OPEN, "127.0.0.1", PAIRS("x-api-key", "sk-none")), 0);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1", NULL), 401);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1", PAIRS("x-api-key", "sk-first-key")),
                     403);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1", PAIRS("x-api-key", "sk-other-key")),
                     0);
    world_close(&w);
}

/* "From loopback" alone is not enough: a reverse proxy is on loopback, too. */
static void test_without_keys_administrators_are_those_on_the_same_machine(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", false);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1", NULL), 403);
    w.rules.is_local_only = true;
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1:8080", NULL), 0);
    assert_ptr_equal(w.grant.key, keys_anyone(w.keys));
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "localhost", NULL), 0);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "[::1]:80", NULL), 0);
    struct err err = {0};
    assert_int_equal(
        settings_set(&w.settings, STR("allowed-host"), STR("llm.example"), FROM_FLAG, &err), ST_OK);
    assert_int_equal(check_as(&w, ACCESS_KEY, "llm.example", NULL), 0);
    assert_int_equal(check_as(&w, ACCESS_ADMIN, "llm.example", NULL), 403);
    static const char *const names[] = {"forwarded", "x-forwarded-for", "x-real-ip", "via"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *pairs[] = {names[i], "x", NULL, NULL};
        assert_int_equal(check_as(&w, ACCESS_ADMIN, "127.0.0.1", pairs), 403);
        assert_int_equal(check_as(&w, ACCESS_KEY, "127.0.0.1", pairs), 0);
    }
    assert_int_equal(
        check_as(&w, ACCESS_ADMIN, "127.0.0.1", PAIRS("origin", "http://other.example")), 403);
    world_close(&w);
}

static void write_keys(struct world *w, const char *lines) {
    struct err err = {0};
    assert_int_equal(file_write_atomic(KEY_FILE, str_of(lines), &err), ST_OK);
    assert_int_equal(keys_reload(w->keys, true, &err), ST_OK);
}

static uint32_t recheck(struct world *w, enum access_class class) {
    struct api_error e = {0};
    enum status st = access_recheck(w->keys, w->grant.key, class, &e);
    assert_int_equal(st == ST_OK, e.status == 0);
    return e.status;
}

static void test_a_key_that_was_removed_while_the_body_arrived_is_refused(void **state) {
    (void)state;
    struct world w;
    world_open(&w, "127.0.0.1", true);
    assert_int_equal(check(&w, "127.0.0.1", PAIRS("x-api-key", "sk-other-key")), 0);
    assert_int_equal(recheck(&w, ACCESS_KEY), 0);
    assert_int_equal(recheck(&w, ACCESS_ADMIN), 0);
    write_keys(&w, "sk-first-key\nsk-other-key\n"); /* no administrator any more */
    assert_int_equal(recheck(&w, ACCESS_KEY), 0);
    assert_int_equal(recheck(&w, ACCESS_ADMIN), 403);
    write_keys(&w, "sk-first-key\n");
    assert_int_equal(recheck(&w, ACCESS_KEY), 401);
    assert_int_equal(recheck(&w, ACCESS_ADMIN), 401);
    assert_int_equal(recheck(&w, ACCESS_OPEN), 0);
    world_close(&w);
    world_open(&w, "127.0.0.1", false);
    assert_int_equal(check(&w, "127.0.0.1", NULL), 0);
    assert_int_equal(recheck(&w, ACCESS_KEY), 0); /* without a key file nothing can be removed */
    world_close(&w);
}

static void test_a_key_over_its_limit_may_not_begin(void **state) {
    (void)state;
    struct world w;
    struct api_error e = {0};
    world_open(&w, "127.0.0.1", true);
    write_keys(&w, "sk-first-key rpm=1\n");
    assert_int_equal(check(&w, "127.0.0.1", PAIRS("x-api-key", "sk-first-key")), 0);
    assert_int_equal(access_begin(w.keys, w.grant.key, 1000000, &e), ST_OK);
    assert_int_equal(access_begin(w.keys, w.grant.key, 2000000, &e), ST_BAD);
    assert_int_equal(e.status, 429);
    assert_non_null(strstr(e.message.text, "requests per minute"));
    assert_true(e.retry_after_ms > 0);
    keys_end(w.keys, w.grant.key, 0, 0, 3000000);
    world_close(&w);
}

static void test_tokens_above_the_limit_are_refused_for_now_or_for_good(void **state) {
    (void)state;
    struct world w;
    struct api_error e = {0};
    world_open(&w, "127.0.0.1", true);
    write_keys(&w, "sk-first-key tpm=100\n");
    assert_int_equal(check(&w, "127.0.0.1", PAIRS("x-api-key", "sk-first-key")), 0);
    const struct key *key = w.grant.key;
    struct key_claim claim = {.prompt_tokens = 20, .answer_tokens = 60, .answer_least = 1};
    struct key_claim next = claim, large = {.prompt_tokens = 150, .answer_tokens = 60};
    assert_int_equal(access_begin(w.keys, key, 1000000, &e), ST_OK);
    assert_int_equal(access_reserve(w.keys, key, &claim, 1000000, &e), ST_OK);
    assert_int_equal(claim.reserved, 80);
    assert_int_equal(access_begin(w.keys, key, 1000000, &e), ST_OK);
    assert_int_equal(access_reserve(w.keys, key, &next, 1000000, &e), ST_BAD);
    assert_int_equal(e.status, 429);
    assert_string_equal(e.code, "rate_limit_exceeded");
    assert_non_null(strstr(e.message.text, "80 of 100 are used or reserved, "));
    assert_non_null(strstr(e.message.text, "this request needs 80 "));
    assert_true(e.retry_after_ms > 0);
    assert_int_equal(access_reserve(w.keys, key, &large, 1000000, &e), ST_BAD);
    assert_int_equal(e.status, 400); /* clients try 429 again */
    assert_false(api_error_is_temporary(&e));
    assert_int_equal(e.retry_after_ms, 0);
    assert_non_null(strstr(e.message.text, "at least 150 tokens"));
    assert_non_null(strstr(e.message.text, "limit of 100 tokens per minute"));
    keys_end(w.keys, key, claim.reserved, 30, 2000000);
    assert_int_equal(access_reserve(w.keys, key, &next, 2000000, &e), ST_BAD);
    next.answer_tokens = 50;
    assert_int_equal(access_reserve(w.keys, key, &next, 2000000, &e), ST_OK);
    struct key_claim rest = {.prompt_tokens = 1};
    keys_end(w.keys, key, next.reserved, 69, 3000000);
    assert_int_equal(access_begin(w.keys, key, 3000000, &e), ST_OK);
    assert_int_equal(access_reserve(w.keys, key, &rest, 3000000, &e), ST_OK);
    assert_int_equal(access_begin(w.keys, key, 3000000, &e), ST_BAD);
    assert_non_null(strstr(e.message.text, "100 of 100 are used or reserved"));
    assert_null(strstr(e.message.text, "needs")); /* nobody knows yet */
    keys_end(w.keys, key, rest.reserved, 0, 3000000);
    world_close(&w);
}

static void test_targets_are_not_tighter_than_those_of_the_key(void **state) {
    (void)state;
    static const struct {
        int64_t wanted_us, ttft_us, tpot_us;
    } cases[] = {{0, 0, 0},
                 {1, 500000, 20000},
                 {20000, 500000, 20000},
                 {500000, 500000, 500000},
                 {500001, 500001, 500001},
                 {INT64_MAX, INT64_MAX, INT64_MAX}};
    const struct key bound = {.ttft_ms = 500, .tpot_ms = 20}, any = {.priority = 0};
    const struct key *const unbound[] = {&any, NULL};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ttft_us = cases[i].wanted_us, tpot_us = cases[i].wanted_us;
        for (int k = 0; k < 2; k++) access_bound_targets(unbound[k], &ttft_us, &tpot_us);
        assert_int_equal(ttft_us, cases[i].wanted_us);
        assert_int_equal(tpot_us, cases[i].wanted_us);
        access_bound_targets(&bound, &ttft_us, &tpot_us);
        assert_int_equal(ttft_us, cases[i].ttft_us);
        assert_int_equal(tpot_us, cases[i].tpot_us);
    }
}

static void test_a_keys_priority_can_be_lowered_and_not_raised(void **state) {
    (void)state;
    static const struct {
        const char *secret;
        int32_t wanted, priority;
    } cases[] = {{"sk-none", 0, 0},   {"sk-none", 1, 0},        {"sk-none", INT32_MAX, 0},
                 {"sk-none", -3, -3}, {"sk-ten", 1000, 10},     {"sk-ten", 10, 10},
                 {"sk-ten", 3, 3},    {"sk-ten", -1000, -1000}, {"sk-low", 0, -5},
                 {"sk-low", 7, -5},   {"sk-low", -6, -6}};
    struct world w;
    world_open(&w, "127.0.0.1", true);
    write_keys(&w, "sk-none\nsk-ten priority=10\nsk-low priority=-5\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct key *key = keys_find(w.keys, str_of(cases[i].secret));
        assert_int_equal(access_priority(w.keys, key, cases[i].wanted), cases[i].priority);
    }
    world_close(&w);
    world_open(&w, "127.0.0.1", false); /* all clients are one */
    assert_int_equal(access_priority(w.keys, keys_anyone(w.keys), 7), 7);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_in_every_spelling),
        cmocka_unit_test(test_all_other_addresses_are_not_loopback),
        cmocka_unit_test(test_on_loopback_the_host_must_name_this_machine),
        cmocka_unit_test(test_the_host_of_a_unix_socket_is_not_checked),
        cmocka_unit_test(test_without_keys_the_host_is_checked_on_every_address),
        cmocka_unit_test(test_the_listening_address_is_accepted_in_every_spelling),
        cmocka_unit_test(test_on_all_addresses_any_address_is_accepted_but_no_name),
        cmocka_unit_test(test_with_keys_any_host_is_accepted),
        cmocka_unit_test(test_the_refusal_of_a_host_says_what_to_do),
        cmocka_unit_test(test_pages_of_other_sites_are_refused_unless_allowed),
        cmocka_unit_test(test_a_foreign_origin_is_refused_even_with_a_key),
        cmocka_unit_test(test_a_key_is_read_from_either_header_and_must_be_known),
        cmocka_unit_test(test_an_open_route_needs_no_key_and_an_administrators_needs_one_of_theirs),
        cmocka_unit_test(test_without_keys_administrators_are_those_on_the_same_machine),
        cmocka_unit_test(test_a_key_that_was_removed_while_the_body_arrived_is_refused),
        cmocka_unit_test(test_a_key_over_its_limit_may_not_begin),
        cmocka_unit_test(test_tokens_above_the_limit_are_refused_for_now_or_for_good),
        cmocka_unit_test(test_targets_are_not_tighter_than_those_of_the_key),
        cmocka_unit_test(test_a_keys_priority_can_be_lowered_and_not_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
