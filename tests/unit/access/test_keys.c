/* Goal:   the right keys are accepted and no others, limits hold over any minute, and a changed
 *         file takes effect as a whole or not at all.
 * Method: key files written here; time is an argument, so a simulated hour of requests takes no
 *         time; what is admitted in any 60 seconds is counted by a list of moments, the slowest
 *         possible reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static void test_without_a_key_file_every_request_has_the_key_anyone(void **state) {
    (void)state;
    struct keys *k = NULL;
    struct err err = {0};
    int64_t wait_ms;
    const char *limit;
    assert_int_equal(keys_create(NULL, &k, &err), ST_OK);
    const struct key *anyone = keys_anyone(k);
    assert_non_null(anyone);
    assert_string_equal(anyone->name, "anyone");
    assert_null(find(k, "x"));
    for (int i = 0; i < 10000; i++) assert_true(keys_begin(k, anyone, 9999, 0, &wait_ms, &limit));
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
                             "priority=-2 admin # boss\r\n"
                             "sk-three tenant=lab\n"
                             "sk#four tenant=lob\n");
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
        {"secret admin=yes\n", ":1: invalid value of admin="},
        {"secret more\n", ":1: unknown option; known: name= tenant= rpm= tpm= concurrent= "
                          "priority= admin"},
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
    int64_t wait_ms;
    const char *limit = "";
    struct keys *k = keys_of("one rpm=3\n");
    const struct key *one = find(k, "one");
    for (int i = 0; i < 3; i++) assert_true(keys_begin(k, one, 1, 1000000, &wait_ms, &limit));
    write_keys("one rpm=3 name=x\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_begin(k, find(k, "one"), 1, 2000000, &wait_ms, &limit));
    assert_string_equal(limit, "requests per minute");
    assert_int_equal(wait_ms, 59000);
    assert_true(keys_begin(k, one, 1, 2000000 + 59000000, &wait_ms, &limit));
    keys_destroy(k);
}

static void test_concurrent_counts_requests_under_way(void **state) {
    (void)state;
    int64_t wait_ms = 0;
    const char *limit = "";
    struct keys *k = keys_of("one concurrent=2\ntwo\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    assert_true(keys_begin(k, one, 1, 0, &wait_ms, &limit));
    assert_true(keys_begin(k, one, 1, 0, &wait_ms, &limit));
    assert_false(keys_begin(k, one, 1, 0, &wait_ms, &limit));
    assert_string_equal(limit, "concurrent requests");
    assert_true(wait_ms > 0);
    for (int i = 0; i < 100; i++) assert_true(keys_begin(k, two, 1, 0, &wait_ms, &limit));
    keys_end(k, one, 5, 1);
    assert_true(keys_begin(k, one, 1, 1, &wait_ms, &limit));
    keys_destroy(k);
}

static void test_a_tenants_line_limits_all_its_keys_together(void **state) {
    (void)state;
    int64_t wait_ms = 0;
    const char *limit = "";
    struct keys *k = keys_of("@lab rpm=4\none tenant=lab rpm=3\ntwo tenant=lab\nthree\n");
    const struct key *one = find(k, "one"), *two = find(k, "two");
    for (int i = 0; i < 3; i++) assert_true(keys_begin(k, one, 1, 0, &wait_ms, &limit));
    assert_false(keys_begin(k, one, 1, 0, &wait_ms, &limit));
    assert_int_equal(keys_room(k, two, 0).requests_left, 1);
    assert_true(keys_begin(k, two, 1, 0, &wait_ms, &limit));
    assert_false(keys_begin(k, two, 1, 0, &wait_ms, &limit));
    assert_true(keys_begin(k, find(k, "three"), 1, 0, &wait_ms, &limit));
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
        int64_t wait_ms;
        const char *limit;
        for (int64_t now = 0; now < 3600000000; now += every_us[c]) {
            if (!keys_begin(k, one, 10, now, &wait_ms, &limit)) {
                refused++;
                assert_true(wait_ms > 0 && wait_ms <= 60000);
                continue;
            }
            assert_true(count < CAP);
            at_us[count++] = now;
            keys_end(k, one, 10, now + 1000);
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

/* Answers take two seconds and a number of tokens that varies; several are under way at once.
 * A prompt of `early` tokens is known at the beginning, one of `late` only at the end. */
static double tokens_a_minute(uint32_t early, uint32_t late) {
    enum { UNDER_WAY = 8 };
    struct keys *k = keys_of("one tpm=60000\n");
    const struct key *one = find(k, "one");
    int64_t ends_us[UNDER_WAY] = {0}, wait_ms;
    const char *limit;
    uint32_t rng = 7;
    uint64_t used = 0;
    for (int64_t now = 1; now < 3600000000; now += 20000) {
        for (uint32_t i = 0; i < UNDER_WAY; i++) {
            if (ends_us[i] && now >= ends_us[i]) {
                rng = rng * 1664525u + 1013904223u;
                uint32_t answer = late + 200 + (rng >> 16) % 400;
                keys_end(k, one, answer, now);
                used += answer;
                ends_us[i] = 0;
            }
            if (ends_us[i] || !keys_begin(k, one, early, now, &wait_ms, &limit)) continue;
            used += early;
            ends_us[i] = now + 2000000;
        }
    }
    keys_destroy(k);
    return (double)used / 60.0;
}

static void test_the_limit_of_tokens_holds_over_a_simulated_hour(void **state) {
    (void)state;
    enum { TPM = 60000 };
    const double rates[] = {tokens_a_minute(100, 0), tokens_a_minute(0, 100)};
    for (uint32_t i = 0; i < 2; i++)
        if (rates[i] < 0.95 * TPM || rates[i] > 1.05 * TPM)
            fail_msg("%g tokens a minute", rates[i]);
}

static void test_a_prompt_above_the_limit_runs_alone(void **state) {
    (void)state;
    int64_t wait_ms;
    const char *limit = "";
    struct keys *k = keys_of("one tpm=1000\n");
    const struct key *one = find(k, "one");
    assert_true(keys_begin(k, one, 5000, 0, &wait_ms, &limit));
    keys_end(k, one, 10, 1);
    assert_false(keys_begin(k, one, 1, 30000000, &wait_ms, &limit));
    assert_string_equal(limit, "tokens per minute");
    assert_int_equal(wait_ms, 30000);
    assert_true(keys_begin(k, one, 5000, 60000000, &wait_ms, &limit));
    keys_destroy(k);
}

static void test_room_has_what_is_left_and_when_all_is_free_again(void **state) {
    (void)state;
    int64_t wait_ms;
    const char *limit;
    struct keys *k = keys_of("one rpm=10 tpm=1000\n");
    const struct key *one = find(k, "one");
    struct key_room room = keys_room(k, one, 0);
    assert_int_equal(room.requests_left, 10);
    assert_int_equal(room.tokens_left, 1000);
    assert_int_equal(room.requests_reset_ms, 0);
    assert_true(keys_begin(k, one, 300, 0, &wait_ms, &limit));
    keys_end(k, one, 0, 0);
    room = keys_room(k, one, 10000000);
    assert_int_equal(room.requests_left, 9);
    assert_int_equal(room.tokens_left, 700);
    assert_int_equal(room.requests_reset_ms, 50000);
    assert_int_equal(room.tokens_reset_ms, 50000);
    room = keys_room(k, one, 60000000);
    assert_int_equal(room.tokens_left, 1000);
    keys_destroy(k);
}

static void test_a_key_may_move_to_another_tenant_with_requests_under_way(void **state) {
    (void)state;
    struct keys *k =
        keys_of("sk-one tenant=a\nsk-two tenant=b\n@a concurrent=1\n@b concurrent=1\n");
    struct err err = {0};
    int64_t wait_ms;
    const char *limit;
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    assert_true(keys_begin(k, one, 0, 0, &wait_ms, &limit));
    keys_hold(k, one, 3);
    write_keys("sk-one tenant=b\nsk-two tenant=b\nsk-three tenant=a\n@a concurrent=1\n"
               "@b concurrent=1\n");
    assert_int_equal(keys_reload(k, true, &err), ST_OK);
    assert_false(keys_begin(k, two, 0, 0, &wait_ms, &limit));
    const struct key *three = find(k, "sk-three");
    assert_true(keys_begin(k, three, 0, 0, &wait_ms, &limit));
    keys_drop(k, one, 3);
    keys_end(k, one, 0, 0);
    keys_end(k, three, 0, 0);
    assert_true(keys_begin(k, two, 0, 0, &wait_ms, &limit));
    keys_destroy(k);
}

static void test_a_flood_of_one_tenant_leaves_room_for_the_others(void **state) {
    (void)state;
    struct keys *k = keys_of("sk-one tenant=a\nsk-two tenant=a\nsk-three\nsk-four\n");
    const struct key *one = find(k, "sk-one"), *two = find(k, "sk-two");
    const struct key *three = find(k, "sk-three"), *four = find(k, "sk-four");
    assert_int_equal(keys_share(k, one, 60), 30);
    keys_hold(k, one, 20);
    assert_int_equal(keys_share(k, two, 60), 10);
    keys_hold(k, two, 10);
    assert_int_equal(keys_share(k, one, 60), 0);
    assert_int_equal(keys_share(k, three, 60), 20);
    keys_hold(k, three, 20);
    assert_int_equal(keys_share(k, four, 60), 15); /* more than the ten that are left */
    keys_drop(k, three, 20);
    keys_drop(k, two, 10);
    assert_int_equal(keys_share(k, one, 60), 10);
    keys_drop(k, one, 20);
    keys_destroy(k);
    k = keys_of("sk-one\n");
    assert_int_equal(keys_share(k, find(k, "sk-one"), 60), 60);
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

int main(void) {
    snprintf(path, sizeof(path), "/tmp/test_keys.%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_key_file_every_request_has_the_key_anyone),
        cmocka_unit_test(test_a_line_has_all_options_of_a_key),
        cmocka_unit_test(test_errors_of_a_key_file_do_not_show_its_secrets),
        cmocka_unit_test(test_a_changed_file_is_applied_and_an_invalid_one_is_not),
        cmocka_unit_test(test_usage_is_kept_over_a_reload),
        cmocka_unit_test(test_concurrent_counts_requests_under_way),
        cmocka_unit_test(test_a_tenants_line_limits_all_its_keys_together),
        cmocka_unit_test(test_the_limit_of_requests_holds_over_a_simulated_hour),
        cmocka_unit_test(test_the_limit_of_tokens_holds_over_a_simulated_hour),
        cmocka_unit_test(test_a_prompt_above_the_limit_runs_alone),
        cmocka_unit_test(test_room_has_what_is_left_and_when_all_is_free_again),
        cmocka_unit_test(test_a_key_may_move_to_another_tenant_with_requests_under_way),
        cmocka_unit_test(test_a_flood_of_one_tenant_leaves_room_for_the_others),
        cmocka_unit_test(test_a_key_that_was_removed_from_the_file_is_not_live),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
