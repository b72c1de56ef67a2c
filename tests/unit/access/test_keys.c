/* Goal:   the right keys are accepted and no others, limits hold over any minute, and a changed
 *         file takes effect as a whole or not at all.
 * Method: key files written here; time is an argument, so a simulated hour of requests takes no
 *         time; what is admitted in any 60 seconds is counted by a list of moments, the slowest
 *         possible reference.
 * wrap: CRYPTO_memcmp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "access/keys.h"

static char path[64];

static void write_keys(const char *text) {
    struct err err = {0};
    assert_int_equal(file_write_atomic(path, str_of(text), &err), ST_OK);
}

static struct keys *keys_of(const char *text) {
    struct keys *k = NULL;
    struct err err = {0};
    write_keys(text);
    if (keys_create(path, &k, &err) != ST_OK) fail_msg("%s", err.text);
    return k;
}

static const struct key *find(const struct keys *k, const char *secret) {
    return keys_find(k, str_of(secret));
}

static uint32_t compared;
int __real_CRYPTO_memcmp(const void *a, const void *b, size_t len);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t len);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t len) {
    compared++;
    return __real_CRYPTO_memcmp(a, b, len);
}

/* The time of a look-up says neither which key it is nor whether there is one. */
static void test_every_look_up_compares_with_every_key(void **state) {
    (void)state;
    static const char *const secrets[] = {"sk-a", "sk-b", "sk-c", "sk-gone", "sk-none", "sk-aa"};
    struct err err = {0};
    struct keys *k = keys_of("sk-a\nsk-b\nsk-c\nsk-gone\n");
    write_keys("sk-a\nsk-b\nsk-c name=other\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        compared = 0;
        assert_int_equal(find(k, secrets[i]) != NULL, i < 3);
        assert_int_equal(compared, 4);
    }
    keys_destroy(k);
}

/* As many as a file may have. */
static void test_keys_without_a_tenant_are_tenants_of_their_own(void **state) {
    (void)state;
    enum { KEYS = 4096 };
    struct err err = {0};
    struct keys *k = NULL;
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < KEYS; i++) buf_printf(&text, "sk-%d\n", i);
    assert_int_equal(file_write_atomic(path, buf_str(&text), &err), ST_OK);
    assert_int_equal(keys_create(path, &k, &err), ST_OK);
    assert_int_equal(keys_tenant_count(k), KEYS);
    keys_destroy(k);
    buf_deinit(&text);
}

static void test_without_a_key_file_every_request_has_the_key_anyone(void **state) {
    (void)state;
    struct keys *k = NULL;
    struct err err = {0};
    struct key_refusal why = {0};
    assert_int_equal(keys_create(NULL, &k, &err), ST_OK);
    const struct key *anyone = keys_anyone(k);
    assert_non_null(anyone);
    assert_string_equal(anyone->name, "anyone");
    assert_null(find(k, "x"));
    for (int i = 0; i < 10000; i++) assert_true(keys_begin(k, anyone, 0, &why));
    assert_int_equal(keys_room(k, anyone, 0).requests_left, UINT32_MAX);
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    keys_destroy(k);
}

static void test_a_line_has_all_options_of_a_key(void **state) {
    (void)state;
    struct keys *k = keys_of("# people\n"
                             "sk-one\n"
                             "\n"
                             "  sk-two name=bob tenant=lab rpm=60 tpm=9000 concurrent=4 "
                             "priority=-2 ttft=500 tpot=20 admin # boss\r\n"
                             "sk-three tenant=lab\n"
                             "sk#four tenant=lob ttft=0 tpot=0\n");
    assert_null(keys_anyone(k));
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    const struct key *three = find(k, "sk-three"), *four = find(k, "sk#four");
    assert_true(one && two && three && four);
    assert_string_equal(one->name, "key-2");
    assert_int_equal(one->rpm, 0);
    assert_false(one->is_admin);
    assert_string_equal(two->name, "bob");
    assert_int_equal(two->rpm, 60);
    assert_int_equal(two->tpm, 9000);
    assert_int_equal(two->concurrent, 4);
    assert_int_equal(two->priority, -2);
    assert_int_equal(two->ttft_ms, 500);
    assert_int_equal(two->tpot_ms, 20);
    assert_int_equal(one->ttft_ms, 100); /* the default is no invitation to displace others */
    assert_int_equal(one->tpot_ms, 10);
    assert_int_equal(four->ttft_ms, 0);
    assert_int_equal(four->tpot_ms, 0);
    assert_true(two->is_admin);
    assert_int_equal(two->tenant, three->tenant);
    assert_true(one->tenant != two->tenant);
    assert_true(four->tenant != two->tenant);
    assert_true(one->tenant != 0);
    const char *const wrong[] = {"",  "sk-on",  "sk-onee", "SK-ONE",  "sk-one ",
                                 "#", "people", "boss",    "name=bob"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) assert_null(find(k, wrong[i]));
    char endless[1000];
    memset(endless, 'x', sizeof(endless));
    assert_null(keys_find(k, (struct str){endless, sizeof(endless)}));
    keys_destroy(k);
}

static void test_errors_of_a_key_file_do_not_show_its_secrets(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "no keys; the file needs at least one"},
        {"# only\n@lab rpm=5\n", "no keys; the file needs at least one"},
        {"ok\nsecret rpm=x\n", ":2: invalid value of rpm="},
        {"secret rpm=4294967296\n", ":1: invalid value of rpm="},
        {"secret priority=1001\n", ":1: invalid value of priority="},
        {"secret ttft=-1\n", ":1: invalid value of ttft="},
        {"secret tpot=\n", ":1: invalid value of tpot="},
        {"secret admin=yes\n", ":1: invalid value of admin="},
        {"secret more\n", ":1: unknown option; known: name= tenant= rpm= tpm= concurrent= "
                          "priority= ttft= tpot= admin"},
        {"@lab admin\nsecret\n", ":1: unknown option; known: name="},
        {"secret\nother\nsecret rpm=1\n", ":3: duplicate key; it is already defined on line 1"},
        {"@a\n@a\nsecret\n", ":2: duplicate tenant; it is already defined on line 1"},
        {"@\nsecret\n", ":1: a tenant's name has 1 to 63 printable characters"},
        {"s\xC3\xA9"
         "cret\n",
         ":1: a key must be printable ASCII characters"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct keys *k = NULL;
        struct err err = {0};
        write_keys(cases[i].text);
        assert_int_equal(keys_create(path, &k, &err), ST_BAD);
        assert_null(k);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%zu: %s", i, err.text);
        assert_null(strstr(err.text, "secret"));
        assert_null(strstr(err.text, "more"));
    }
    struct keys *k = NULL;
    struct err err = {0};
    unlink(path);
    assert_int_equal(keys_create(path, &k, &err), ST_MISSING);
}

static void test_a_changed_file_is_applied_and_an_invalid_one_is_not(void **state) {
    (void)state;
    struct err err = {0};
    struct keys *k = keys_of("one rpm=5\ntwo\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    assert_int_equal(keys_reload(k, false, &err), ST_OK);
    write_keys("one rpm=7 name=first\nthree\n");
    assert_int_equal(keys_reload(k, false, &err), ST_OK);
    assert_ptr_equal(find(k, "one"), one);
    assert_int_equal(one->rpm, 7);
    assert_string_equal(one->name, "first");
    assert_null(find(k, "two"));
    assert_non_null(find(k, "three"));
    assert_string_equal(two->name, "key-2"); /* requests under way may still ask */
    assert_int_equal(keys_facts(k).keys, 2);
    assert_int_equal(keys_facts(k).changes, 2);

    write_keys("four\nthree broken\n");
    assert_int_equal(keys_reload(k, false, &err), ST_BAD);
    assert_null(find(k, "four"));
    assert_non_null(find(k, "three"));
    assert_int_equal(keys_reload(k, false, &err), ST_OK); /* reported once */
    assert_int_equal(keys_reload(k, true, &err), ST_BAD);
    assert_int_equal(keys_facts(k).changes, 2);
    unlink(path);
    assert_int_equal(keys_reload(k, false, &err), ST_MISSING);
    assert_non_null(find(k, "three"));

    write_keys("two\n");
    assert_int_equal(keys_reload(k, false, &err), ST_OK);
    assert_ptr_equal(find(k, "two"), two);
    keys_destroy(k);
}

static void test_usage_is_kept_over_a_reload(void **state) {
    (void)state;
    struct err err = {0};
    struct key_refusal why = {0};
    struct keys *k = keys_of("one rpm=3\n");
    const struct key *one = find(k, "one");
    for (int i = 0; i < 3; i++) assert_true(keys_begin(k, one, 1000000, &why));
    write_keys("one rpm=3 name=x\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_begin(k, find(k, "one"), 2000000, &why));
    assert_string_equal(why.limit, "requests per minute");
    assert_int_equal(why.wait_ms, 59000);
    assert_true(keys_begin(k, one, 2000000 + 59000000, &why));
    keys_destroy(k);
}

static void test_concurrent_counts_requests_under_way(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("one concurrent=2\ntwo\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    assert_true(keys_begin(k, one, 0, &why));
    assert_true(keys_begin(k, one, 0, &why));
    assert_false(keys_begin(k, one, 0, &why));
    assert_string_equal(why.limit, "concurrent requests");
    assert_true(why.wait_ms > 0);
    for (int i = 0; i < 100; i++) assert_true(keys_begin(k, two, 0, &why));
    keys_end(k, one, 0, 5, 1);
    assert_true(keys_begin(k, one, 1, &why));
    keys_destroy(k);
}

static void test_a_tenants_line_limits_all_its_keys_together(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("@lab rpm=4\none tenant=lab rpm=3\ntwo tenant=lab\nthree\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    for (int i = 0; i < 3; i++) assert_true(keys_begin(k, one, 0, &why));
    assert_false(keys_begin(k, one, 0, &why));
    assert_int_equal(keys_room(k, two, 0).requests_left, 1);
    assert_true(keys_begin(k, two, 0, &why));
    assert_false(keys_begin(k, two, 0, &why));
    assert_true(keys_begin(k, find(k, "three"), 0, &why));
    keys_destroy(k);
}

static void test_a_tenants_limits_end_with_its_line(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct err err = {0};
    struct keys *k = keys_of("@lab rpm=1\none tenant=lab\n");
    const struct key *one = find(k, "one");
    assert_true(keys_begin(k, one, 0, &why));
    assert_false(keys_begin(k, one, 0, &why));
    write_keys("one tenant=lab\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_true(keys_begin(k, one, 0, &why));
    assert_int_equal(keys_room(k, one, 0).requests_left, UINT32_MAX);
    write_keys("@lab rpm=2\none tenant=lab\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_begin(k, one, 0, &why)); /* what was used meanwhile counts */
    keys_destroy(k);
}

/* The most of `at` within any window of 60 seconds. */
static uint32_t most_in_a_minute(const int64_t *at_us, uint32_t count) {
    uint32_t most = 0;
    for (uint32_t i = 0, first = 0; i < count; i++) {
        while (at_us[i] - at_us[first] >= 60000000) first++;
        if (i - first + 1 > most) most = i - first + 1;
    }
    return most;
}

static void test_the_limit_of_requests_holds_over_a_simulated_hour(void **state) {
    (void)state;
    enum { RPM = 100, CAP = 20000 };
    static int64_t at_us[CAP];
    static const int64_t every_us[] = {50000, 299000, 700000}; /* 12, 2 and 0.86 times the limit */
    for (uint32_t c = 0; c < 3; c++) {
        struct keys *k = keys_of("one rpm=100\n");
        const struct key *one = find(k, "one");
        uint32_t count = 0, refused = 0;
        struct key_refusal why = {0};
        for (int64_t now = 0; now < 3600000000; now += every_us[c]) {
            if (!keys_begin(k, one, now, &why)) {
                refused++;
                assert_true(why.wait_ms > 0 && why.wait_ms <= 60000);
                continue;
            }
            assert_true(count < CAP);
            at_us[count++] = now;
            keys_end(k, one, 0, 10, now + 1000);
        }
        uint32_t most = most_in_a_minute(at_us, count);
        double rate = count / 60.0;
        if (every_us[c] > 600000) {
            assert_int_equal(refused, 0);
        } else {
            assert_in_range(most, RPM * 95 / 100, RPM * 105 / 100);
            assert_true(rate > 0.95 * RPM && rate < 1.05 * RPM);
        }
        keys_destroy(k);
    }
}

static bool reserve(struct keys *k, const struct key *key, struct key_claim *claim, int64_t now_us,
                    struct key_refusal *why) {
    if (!keys_begin(k, key, now_us, why)) return false;
    if (keys_reserve(k, key, claim, now_us, why)) return true;
    keys_end(k, key, 0, 0, now_us);
    return false;
}

/* Requests under way, and when and how much each has used. */
enum { UNDER_WAY = 40, USES = 100000 };
struct load {
    struct key_claim claims[UNDER_WAY];
    int64_t ends_us[UNDER_WAY], at_us[USES];
    uint64_t tokens[USES], sum;
    uint32_t count, rng;
};

static uint32_t random_below(struct load *l, uint32_t limit) {
    l->rng = l->rng * 1664525u + 1013904223u;
    return (l->rng >> 8) % limit;
}

/* It uses its prompt and some of its answer; one in eight is cancelled or has failed before it used
 * any. */
static void end_one(struct keys *k, const struct key *key, struct load *l, uint32_t i,
                    int64_t now) {
    const struct key_claim *c = &l->claims[i];
    uint64_t used = c->prompt_tokens + random_below(l, (uint32_t)c->answer_tokens + 1);
    if (random_below(l, 8) == 0) used = 0;
    keys_end(k, key, c->reserved, used, now);
    assert_true(l->count < USES);
    l->at_us[l->count] = now;
    l->tokens[l->count++] = used;
    l->sum += used;
    l->ends_us[i] = 0;
}

static void run_load(struct keys *k, const struct key *key, struct load *l) {
    struct key_refusal why = {0};
    for (int64_t now = 1; now < 3600000000; now += 100000)
        for (uint32_t i = 0; i < UNDER_WAY; i++) {
            if (l->ends_us[i] && now >= l->ends_us[i]) end_one(k, key, l, i, now);
            if (l->ends_us[i]) continue;
            l->claims[i] = (struct key_claim){.prompt_tokens = 1 + random_below(l, 100),
                                              .answer_tokens = 1 + random_below(l, 400),
                                              .answer_least = 1};
            if (reserve(k, key, &l->claims[i], now, &why))
                l->ends_us[i] = now + 2000000 + random_below(l, 3000000);
            else
                assert_true(why.wait_ms > 0 && why.wait_ms <= 60000);
        }
}

static uint64_t most_tokens_in_a_minute(const struct load *l) {
    uint64_t most = 0, sum = 0;
    for (uint32_t i = 0, first = 0; i < l->count; i++) {
        sum += l->tokens[i];
        while (l->at_us[i] - l->at_us[first] >= 60000000) sum -= l->tokens[first++];
        if (sum > most) most = sum;
    }
    return most;
}

/* Forty at a time: the tokens are never above the limit, and most of it can be used. */
static void test_the_limit_of_tokens_holds_over_a_simulated_hour(void **state) {
    (void)state;
    static const char *const files[] = {"one tpm=6000\n", "@lab tpm=6000\none tenant=lab\n"};
    static struct load load;
    for (uint32_t i = 0; i < 2; i++) {
        struct keys *k = keys_of(files[i]);
        load = (struct load){.rng = 7};
        run_load(k, find(k, "one"), &load);
        uint64_t most = most_tokens_in_a_minute(&load);
        if (most > 6000 || most < 5000)
            fail_msg("%u: %llu in a minute", i, (unsigned long long)most);
        if (load.sum < 60 * 4800) fail_msg("%u: %llu in an hour", i, (unsigned long long)load.sum);
        keys_destroy(k);
    }
}

static void test_an_answer_ends_where_the_limit_of_tokens_does(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("one tpm=100 tenant=lab\ntwo tenant=lab\n@lab tpm=80\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    struct key_claim claim = {.prompt_tokens = 10, .answer_tokens = 8000, .answer_least = 1};
    assert_true(reserve(k, one, &claim, 0, &why));
    assert_int_equal(claim.answer_tokens, 70); /* the tenant's limit is the lower one */
    assert_int_equal(claim.reserved, 80);
    assert_int_equal(keys_room(k, one, 0).tokens_left, 0);
    for (int i = 0; i < 39; i++) {
        struct key_claim other = {.prompt_tokens = 1, .answer_tokens = 1, .answer_least = 1};
        assert_false(reserve(k, i % 2 ? one : two, &other, 0, &why));
        assert_string_equal(why.limit, "tokens per minute");
    }
    keys_end(k, one, claim.reserved, 15, 1000000); /* a short answer: the rest is free at once */
    claim = (struct key_claim){.prompt_tokens = 5, .answer_tokens = 60, .answer_least = 1};
    assert_true(reserve(k, two, &claim, 1000000, &why));
    assert_int_equal(claim.answer_tokens, 60);
    struct key_claim next = {.prompt_tokens = 1, .answer_tokens = 1, .answer_least = 1};
    assert_false(reserve(k, one, &next, 1000000, &why));
    assert_int_equal(why.max, 80);
    assert_int_equal(why.taken, 80);
    keys_end(k, two, claim.reserved, 0, 2000000); /* cancelled */
    assert_true(reserve(k, one, &next, 2000000, &why));
    keys_destroy(k);
}

static void test_a_prompt_above_the_limit_is_refused_for_good(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("one tpm=1000\n");
    const struct key *one = find(k, "one");
    struct key_claim claim = {.prompt_tokens = 1000, .answer_tokens = 5, .answer_least = 1};
    assert_false(reserve(k, one, &claim, 0, &why));
    assert_int_equal(why.wait_ms, 0); /* never */
    assert_int_equal(why.max, 1000);
    assert_int_equal(why.wanted, 1001);
    claim = (struct key_claim){.prompt_tokens = 997, .answer_tokens = 40, .answer_least = 4};
    assert_false(reserve(k, one, &claim, 0, &why));    /* a token for each of four choices */
    claim = (struct key_claim){.prompt_tokens = 1000}; /* an embedding */
    assert_true(reserve(k, one, &claim, 0, &why));
    keys_end(k, one, claim.reserved, 1000, 1);
    assert_false(keys_begin(k, one, 30000000, &why)); /* known before the prompt is */
    assert_int_equal(why.wait_ms, 30000);
    assert_true(keys_begin(k, one, 60000000, &why));
    keys_destroy(k);
}

static void test_reserved_tokens_move_with_a_key_to_another_tenant(void **state) {
    (void)state;
    struct err err = {0};
    struct key_refusal why = {0};
    struct keys *k = keys_of("one tenant=a\ntwo tenant=b\n@a tpm=100\n@b tpm=100\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    struct key_claim claim = {.prompt_tokens = 60}, other = {.prompt_tokens = 50};
    assert_true(reserve(k, one, &claim, 0, &why));
    write_keys("one tenant=b\ntwo tenant=b\n@a tpm=100\n@b tpm=100\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(reserve(k, two, &other, 0, &why));
    keys_end(k, one, claim.reserved, 0, 0);
    assert_true(reserve(k, two, &other, 0, &why));
    keys_destroy(k);
}

/* Long keys that begin alike are different keys, of different tenants. */
static void test_keys_are_compared_whole(void **state) {
    (void)state;
    static const size_t same[] = {15, 16, 17, 31, 32, 33, 63, 64, 127, 511};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        char text[1200], one[513], two[513];
        memset(one, 'k', sizeof(one));
        memset(two, 'k', sizeof(two));
        one[same[i]] = '1';
        two[same[i]] = '2';
        one[same[i] + 1] = two[same[i] + 1] = 0;
        snprintf(text, sizeof(text), "%s rpm=1\n%s rpm=2 admin\n", one, two);
        struct keys *k = keys_of(text);
        const struct key *first = find(k, one), *second = find(k, two);
        assert_true(first && second && first != second);
        assert_int_equal(first->rpm, 1);
        assert_int_equal(second->rpm, 2);
        assert_false(first->is_admin);
        assert_true(first->tenant != second->tenant);
        one[same[i]] = '3';
        assert_null(find(k, one));
        one[same[i]] = 0;
        assert_null(find(k, one)); /* what both begin with */
        keys_destroy(k);
    }
}

static void test_a_missing_file_is_reported_once_until_it_is_back(void **state) {
    (void)state;
    struct err err = {0};
    struct keys *k = keys_of("one\n");
    char aside[80];
    snprintf(aside, sizeof(aside), "%s.aside", path);
    for (int round = 0; round < 2; round++) {
        uint32_t changes = keys_facts(k).changes;
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(keys_reload(k, false, &err), ST_MISSING);
        for (int i = 0; i < 5; i++) assert_int_equal(keys_reload(k, false, &err), ST_OK);
        assert_int_equal(keys_reload(k, true, &err), ST_MISSING); /* who asks is told again */
        assert_non_null(find(k, "one"));
        assert_int_equal(keys_facts(k).changes, changes);
        assert_int_equal(rename(aside, path), 0); /* the same file, unchanged */
        assert_int_equal(keys_reload(k, false, &err), ST_OK);
        assert_int_equal(keys_facts(k).changes, changes + 1);
    }
    keys_destroy(k);
}

static void test_a_reload_takes_rights_away_from_a_key_in_use(void **state) {
    (void)state;
    struct err err = {0};
    struct keys *k = keys_of("one admin priority=9 name=root\ntwo\n");
    const struct key *one = find(k, "one"); /* as a request or a WebSocket holds it */
    assert_true(one->is_admin);
    write_keys("one\ntwo admin\n");
    assert_int_equal(keys_reload(k, false, &err), ST_OK);
    assert_false(one->is_admin);
    assert_int_equal(one->priority, 0);
    assert_string_equal(one->name, "key-1");
    assert_true(find(k, "two")->is_admin);
    keys_destroy(k);
}

static void test_room_has_what_is_left_and_when_all_is_free_again(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("one rpm=10 tpm=1000\n");
    const struct key *one = find(k, "one");
    struct key_room room = keys_room(k, one, 0);
    assert_int_equal(room.requests_left, 10);
    assert_int_equal(room.tokens_left, 1000);
    assert_int_equal(room.requests_reset_ms, 0);
    assert_true(keys_begin(k, one, 0, &why));
    keys_end(k, one, 0, 300, 0);
    room = keys_room(k, one, 10000000);
    assert_int_equal(room.requests_left, 9);
    assert_int_equal(room.tokens_left, 700);
    assert_int_equal(room.requests_reset_ms, 50000);
    assert_int_equal(room.tokens_reset_ms, 50000);
    room = keys_room(k, one, 60000000);
    assert_int_equal(room.tokens_left, 1000);
    keys_destroy(k);
}

/* From any second on, and after any time without requests: what is a minute old is free, and what
 * is a second younger is not. */
static void test_usage_is_free_after_a_minute_however_long_it_was_quiet(void **state) {
    (void)state;
    static const int64_t quiet_s[] = {60, 61, 62, 119, 120, 121, 3600, 100000};
    const int64_t second_us = 1000000;
    for (int64_t from_s = 0; from_s < 61; from_s++)
        for (size_t i = 0; i < sizeof(quiet_s) / sizeof(quiet_s[0]); i++) {
            struct key_refusal why = {0};
            struct keys *k = keys_of("one rpm=10 tpm=1000\n");
            const struct key *one = find(k, "one");
            assert_true(keys_begin(k, one, from_s * second_us, &why));
            keys_end(k, one, 0, 300, from_s * second_us);
            if (i == 0) {
                struct key_room room = keys_room(k, one, (from_s + 59) * second_us);
                assert_int_equal(room.requests_left, 9);
                assert_int_equal(room.tokens_left, 700);
            }
            struct key_room room = keys_room(k, one, (from_s + quiet_s[i]) * second_us);
            assert_int_equal(room.requests_left, 10);
            assert_int_equal(room.tokens_left, 1000);
            assert_int_equal(room.tokens_reset_ms, 0);
            keys_destroy(k);
        }
}

static void test_a_key_may_move_to_another_tenant_with_requests_under_way(void **state) {
    (void)state;
    struct keys *k =
        keys_of("sk-one tenant=a\nsk-two tenant=b\n@a concurrent=1\n@b concurrent=1\n");
    struct err err = {0};
    struct key_refusal why = {0};
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    assert_true(keys_begin(k, one, 0, &why));
    keys_hold(k, one, 0, 3);
    write_keys("sk-one tenant=b\nsk-two tenant=b\nsk-three tenant=a\n@a concurrent=1\n"
               "@b concurrent=1\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_begin(k, two, 0, &why));
    const struct key *three = find(k, "sk-three");
    assert_true(keys_begin(k, three, 0, &why));
    keys_drop(k, one, 0, 3);
    keys_end(k, one, 0, 0, 0);
    keys_end(k, three, 0, 0, 0);
    assert_true(keys_begin(k, two, 0, &why));
    keys_destroy(k);
}

static void test_a_flood_of_one_tenant_leaves_room_for_the_others(void **state) {
    (void)state;
    struct keys *k = keys_of("sk-one tenant=a\nsk-two tenant=a\nsk-three\nsk-four\n");
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    const struct key *three = find(k, "sk-three"), *four = find(k, "sk-four");
    assert_int_equal(keys_share(k, one, 0, 60), 30);
    assert_int_equal(keys_share_max(k, one, 60), 30);
    assert_int_equal(keys_share_max(k, one, 1), 1);
    keys_hold(k, one, 0, 20);
    assert_int_equal(keys_share_max(k, two, 60), 30);
    assert_int_equal(keys_share(k, two, 0, 60), 10);
    keys_hold(k, two, 0, 10);
    assert_int_equal(keys_share(k, one, 0, 60), 0);
    assert_int_equal(keys_share(k, three, 0, 60), 20);
    keys_hold(k, three, 0, 20);
    assert_int_equal(keys_share(k, four, 0, 60), 15); /* more than the ten that are left */
    assert_int_equal(keys_share(k, four, 0, 2), 1);   /* one place, also if others hold more */
    assert_int_equal(keys_share(k, one, 1, 60), 30);  /* another queue */
    keys_hold(k, one, KEYS_QUEUES_MAX + 5, 30);
    assert_int_equal(keys_share(k, one, KEYS_QUEUES_MAX + 9, 60), 0);
    keys_drop(k, one, KEYS_QUEUES_MAX + 5, 30);
    keys_drop(k, three, 0, 20);
    keys_drop(k, two, 0, 10);
    assert_int_equal(keys_share(k, one, 0, 60), 10);
    keys_drop(k, one, 0, 20);
    keys_destroy(k);
    k = keys_of("sk-one\n");
    assert_int_equal(keys_share(k, find(k, "sk-one"), 0, 60), 60);
    assert_int_equal(keys_share_max(k, find(k, "sk-one"), 60), 60);
    keys_destroy(k);
}

static void test_a_key_that_was_removed_from_the_file_is_not_live(void **state) {
    (void)state;
    struct keys *k = keys_of("sk-one\nsk-two\n");
    struct err err = {0};
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    assert_true(keys_is_live(k, one));
    write_keys("sk-two\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_is_live(k, one));
    assert_true(keys_is_live(k, two));
    keys_destroy(k);
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

/* ---- the last value that is accepted, and the next ---- */

static bool is_accepted(const char *line) {
    struct keys *k = NULL;
    struct err err = {0};
    write_keys(line);
    const bool is = keys_create(path, &k, &err) == ST_OK;
    keys_destroy(k);
    return is;
}

static void test_values_of_a_line_are_accepted_up_to_their_limits(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bool is_fine;
    } cases[] = {
        {"sk priority=1000", true},
        {"sk priority=1001", false},
        {"sk priority=-1000", true},
        {"sk priority=-1001", false},
        {"sk rpm=4294967295", true},
        {"sk rpm=4294967296", false},
        {"sk tpm=4294967295", true},
        {"sk tpm=4294967296", false},
        {"sk concurrent=4294967296", false},
        {"sk ttft=4294967296", false},
        {"sk rpm=-1", false},
        {"sk tenant=", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(is_accepted(cases[i].line), cases[i].is_fine);
    for (int bytes = 62; bytes <= 65; bytes++) {
        static const char *const before[] = {"sk name=", "sk tenant=", "sk\n@"};
        for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
            char line[100];
            snprintf(line, sizeof(line), "%s%0*d\n", before[i], bytes, 7);
            assert_int_equal(is_accepted(line), bytes < 64);
        }
    }
}

static void test_a_key_may_be_as_long_as_the_limit(void **state) {
    (void)state;
    enum { LONGEST = 512 };
    char text[LONGEST + 3];
    for (int bytes = LONGEST - 1; bytes <= LONGEST + 1; bytes++) {
        snprintf(text, sizeof(text), "%0*d\n", bytes, 7);
        assert_int_equal(is_accepted(text), bytes <= LONGEST);
        if (bytes > LONGEST) continue;
        struct keys *k = keys_of(text);
        assert_non_null(keys_find(k, (struct str){text, (size_t)bytes}));
        assert_null(keys_find(k, (struct str){text, (size_t)bytes - 1}));
        keys_destroy(k);
    }
}

/* A prompt may wait for seconds between the begin of its request and the reservation. */
static void test_tokens_that_grow_old_while_a_prompt_is_prepared_are_free(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("sk tpm=50\n");
    const struct key *key = find(k, "sk");
    assert_true(keys_begin(k, key, 0, &why));
    keys_end(k, key, 0, 49, 0);
    assert_true(keys_begin(k, key, 59900000, &why));
    struct key_claim claim = {.prompt_tokens = 10};
    assert_false(keys_reserve(k, key, &claim, 59999999, &why));
    assert_int_equal(why.taken, 49);
    assert_int_equal(why.wait_ms, 1);
    assert_true(keys_reserve(k, key, &claim, 60000000, &why));
    assert_int_equal(keys_room(k, key, 60000000).tokens_left, 40);
    keys_end(k, key, claim.reserved, 3, 60000000);
    assert_int_equal(keys_room(k, key, 60000000).tokens_left, 47);
    keys_destroy(k);
}

/* Each of a key's counters alone. */
static void test_keys_are_idle_when_all_was_given_back(void **state) {
    (void)state;
    struct key_refusal why = {0};
    struct keys *k = keys_of("one tenant=t tpm=100\ntwo tenant=t\nthree\n");
    const struct key *keys[] = {find(k, "one"), find(k, "two"), find(k, "three")};
    assert_true(keys_are_idle(k));
    for (size_t i = 0; i < 3; i++) {
        struct key_claim claim = {.prompt_tokens = 5};
        assert_true(keys_begin(k, keys[i], 0, &why));
        assert_false(keys_are_idle(k));
        assert_true(keys_reserve(k, keys[i], &claim, 0, &why));
        keys_hold(k, keys[i], 2, 3);
        keys_end(k, keys[i], claim.reserved, 0, 0);
        assert_false(keys_are_idle(k)); /* for its places */
        keys_drop(k, keys[i], 2, 3);
        assert_true(keys_are_idle(k));
        assert_true(keys_begin(k, keys[i], 0, &why));
        assert_true(keys_begin(k, keys[i], 0, &why));
        assert_true(keys_reserve(k, keys[i], &claim, 0, &why));
        keys_end(k, keys[i], 0, 0, 0);
        keys_end(k, keys[i], claim.reserved - 1, 0, 0);
        assert_false(keys_are_idle(k)); /* for one reserved token */
        assert_true(keys_begin(k, keys[i], 0, &why));
        keys_end(k, keys[i], 1, 0, 0);
        assert_true(keys_are_idle(k));
    }
    keys_destroy(k);
}

int main(void) {
    snprintf(path, sizeof(path), "/tmp/test_keys.%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_look_up_compares_with_every_key),
        cmocka_unit_test(test_keys_without_a_tenant_are_tenants_of_their_own),
        cmocka_unit_test(test_without_a_key_file_every_request_has_the_key_anyone),
        cmocka_unit_test(test_a_line_has_all_options_of_a_key),
        cmocka_unit_test(test_errors_of_a_key_file_do_not_show_its_secrets),
        cmocka_unit_test(test_a_changed_file_is_applied_and_an_invalid_one_is_not),
        cmocka_unit_test(test_usage_is_kept_over_a_reload),
        cmocka_unit_test(test_concurrent_counts_requests_under_way),
        cmocka_unit_test(test_a_tenants_line_limits_all_its_keys_together),
        cmocka_unit_test(test_a_tenants_limits_end_with_its_line),
        cmocka_unit_test(test_the_limit_of_requests_holds_over_a_simulated_hour),
        cmocka_unit_test(test_the_limit_of_tokens_holds_over_a_simulated_hour),
        cmocka_unit_test(test_an_answer_ends_where_the_limit_of_tokens_does),
        cmocka_unit_test(test_a_prompt_above_the_limit_is_refused_for_good),
        cmocka_unit_test(test_reserved_tokens_move_with_a_key_to_another_tenant),
        cmocka_unit_test(test_keys_are_compared_whole),
        cmocka_unit_test(test_a_missing_file_is_reported_once_until_it_is_back),
        cmocka_unit_test(test_a_reload_takes_rights_away_from_a_key_in_use),
        cmocka_unit_test(test_room_has_what_is_left_and_when_all_is_free_again),
        cmocka_unit_test(test_usage_is_free_after_a_minute_however_long_it_was_quiet),
        cmocka_unit_test(test_a_key_may_move_to_another_tenant_with_requests_under_way),
        cmocka_unit_test(test_a_flood_of_one_tenant_leaves_room_for_the_others),
        cmocka_unit_test(test_a_key_that_was_removed_from_the_file_is_not_live),
        cmocka_unit_test(test_values_of_a_line_are_accepted_up_to_their_limits),
        cmocka_unit_test(test_a_key_may_be_as_long_as_the_limit),
        cmocka_unit_test(test_tokens_that_grow_old_while_a_prompt_is_prepared_are_free),
        cmocka_unit_test(test_keys_are_idle_when_all_was_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
