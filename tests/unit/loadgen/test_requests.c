/* Goal:   a request follows from seed and number alone, has the configured length, and shares
 *         only the configured prefix of its prompt; addresses are parsed; arrivals are random.
 * Method: bodies read back as JSON and counted; a formula stands in for the server's count of
 *         tokens; arrivals against the mean of an exponential distribution. */
#include <setjmp.h> /* cmocka */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "loadgen/requests.h"
#include "loadgen/target.h"

enum { PROMPT_TOKENS = 40, OUTPUT_TOKENS = 7 };

static const struct loadgen_length fixed = {PROMPT_TOKENS, OUTPUT_TOKENS};

static struct loadgen_requests simple_requests(void) {
    return (struct loadgen_requests){.model = "a \"model\"",
                                     .streams = true,
                                     .vocab = 1000,
                                     .seed = 7,
                                     .lengths = &fixed,
                                     .length_count = 1,
                                     .tokens_per_word = 1.0};
}

static struct json *body_of(const struct loadgen_requests *p, uint64_t i) {
    struct buf b;
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(&b, 1 << 20);
    loadgen_put_body(p, i, &b);
    assert_int_equal(json_parse(buf_str(&b), &json_limits_request, &doc, &err), ST_OK);
    buf_deinit(&b);
    return doc;
}

static uint32_t words_in(struct str text) {
    uint32_t words = text.len > 0;
    for (size_t i = 0; i < text.len; i++) words += text.ptr[i] == ' ';
    return words;
}

/* How many bytes two prompts have in common at their beginning. */
static size_t common(struct str a, struct str b) {
    size_t i = 0;
    while (i < a.len && i < b.len && a.ptr[i] == b.ptr[i]) i++;
    return i;
}

static void test_a_body_has_the_configured_fields(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    p.fields = STR("\"cache_prompt\":false");
    struct json *doc = body_of(&p, 3);
    assert_true(str_is(json_str(json_get(doc, "model")), "a \"model\""));
    assert_int_equal(json_int(json_get(doc, "max_tokens"), 0), OUTPUT_TOKENS);
    assert_true(json_bool(json_get(doc, "ignore_eos"), false));
    assert_true(json_bool(json_get(doc, "stream"), false));
    assert_true(json_bool(json_path(doc, "stream_options.include_usage"), false));
    assert_false(json_bool(json_get(doc, "cache_prompt"), true));
    assert_int_equal(words_in(json_str(json_get(doc, "prompt"))), PROMPT_TOKENS);
    json_destroy(doc);
}

static void test_chat_puts_the_words_in_a_message(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    p.is_chat = true;
    p.streams = false;
    assert_string_equal(loadgen_path(&p), "/chat/completions");
    struct json *doc = body_of(&p, 0);
    const struct json *message = json_at(json_get(doc, "messages"), 0);
    assert_int_equal(words_in(json_str(json_get(message, "content"))), PROMPT_TOKENS);
    assert_int_equal(json_kind(json_get(doc, "stream")), JS_NONE);
    json_destroy(doc);
}

static void test_ids_are_exact_and_within_the_vocabulary(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    p.form = PROMPT_IDS;
    struct json *doc = body_of(&p, 1);
    const struct json *ids = json_get(doc, "prompt");
    assert_int_equal(json_count(ids), PROMPT_TOKENS);
    for (size_t i = 0; i < PROMPT_TOKENS; i++) {
        int64_t id = json_int(json_at(ids, i), -1);
        assert_in_range(id, 100, 999);
    }
    json_destroy(doc);
}

static void test_the_same_number_gives_the_same_request(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    loadgen_put_body(&p, 12345, &a);
    loadgen_put_body(&p, 12345, &b);
    assert_string_equal(buf_text(&a), buf_text(&b));
    p.seed++;
    buf_clear(&b);
    loadgen_put_body(&p, 12345, &b);
    assert_false(str_eq(buf_str(&a), buf_str(&b)));
    buf_deinit(&a);
    buf_deinit(&b);
}

static void test_prompts_share_the_prefix_and_nothing_more(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    p.shared_tokens = 20;
    struct json *first = body_of(&p, 0);
    struct str a = json_str(json_get(first, "prompt"));
    for (uint64_t i = 1; i < 50; i++) {
        struct json *doc = body_of(&p, i);
        struct str b = json_str(json_get(doc, "prompt"));
        uint32_t words = words_in(str_take(a, common(a, b)));
        assert_in_range(words, 20, 24);
        json_destroy(doc);
    }
    json_destroy(first);
}

static void test_lengths_of_a_table_all_come_up(void **state) {
    (void)state;
    static const struct loadgen_length table[] = {{1, 10}, {2, 20}, {3, 30}};
    struct loadgen_requests p = simple_requests();
    uint32_t seen[4] = {0};
    p.lengths = table;
    p.length_count = 3;
    for (uint64_t i = 0; i < 3000; i++) {
        struct loadgen_length l = loadgen_length_at(&p, i);
        assert_in_range(l.prompt_tokens, 1, 3);
        assert_int_equal(l.output_tokens, 10 * l.prompt_tokens);
        seen[l.prompt_tokens]++;
    }
    for (uint32_t i = 1; i <= 3; i++) assert_in_range(seen[i], 900, 1100);
}

/* A server with a template of 31 tokens, whose tokenizer makes `ratio` tokens of a word. */
static uint32_t counted(uint32_t words, double ratio) {
    return (uint32_t)(31.0 + ratio * words + 0.5);
}

static void test_calibration_subtracts_the_tokens_that_the_server_adds(void **state) {
    (void)state;
    static const double ratios[] = {1.0, 1.5, 3.25};
    static const struct loadgen_length wanted = {512, 1};
    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        struct loadgen_requests p = simple_requests();
        p.lengths = &wanted;
        loadgen_calibrate(&p, (struct loadgen_probe){8, counted(8, ratios[i])},
                          (struct loadgen_probe){40, counted(40, ratios[i])});
        struct json *doc = body_of(&p, 0);
        uint32_t tokens = counted(words_in(json_str(json_get(doc, "prompt"))), ratios[i]);
        assert_in_range(tokens, 508, 516);
        json_destroy(doc);
    }
}

static void test_a_server_without_usage_changes_no_lengths(void **state) {
    (void)state;
    struct loadgen_requests p = simple_requests();
    loadgen_calibrate(&p, (struct loadgen_probe){8, 0}, (struct loadgen_probe){40, 0});
    assert_true(p.tokens_per_word == 1.0);
    assert_true(p.fixed_tokens == 0.0);
}

static void test_arrivals_are_poisson(void **state) {
    (void)state;
    enum { ARRIVALS = 20000 };
    struct loadgen_requests p = simple_requests();
    int64_t sum = 0, longer_than_mean = 0;
    for (uint64_t i = 0; i < ARRIVALS; i++) {
        int64_t gap = loadgen_gap_us(&p, i, 100.0);
        assert_true(gap >= 0);
        sum += gap;
        longer_than_mean += gap > 10000;
    }
    assert_in_range(sum / ARRIVALS, 9800, 10200);
    assert_in_range(longer_than_mean, ARRIVALS * 36 / 100, ARRIVALS * 38 / 100); /* 1/e */
}

static void test_addresses_are_parsed(void **state) {
    (void)state;
    static const struct {
        const char *url, *host, *base;
        uint16_t port;
    } cases[] = {
        {"http://127.0.0.1:8080", "127.0.0.1", "/v1", 8080},
        {"http://localhost", "localhost", "/v1", 80},
        {"http://localhost:1/", "localhost", "/v1", 1},
        {"http://[::1]:9000/v1/", "::1", "/v1", 9000},
        {"http://h:65535/a/b", "h", "/a/b/v1", 65535},
        {"http://h/a/v1", "h", "/a/v1", 80},
        {"https://h", "h", "/v1", 443},
        {"https://[::1]:8443/a", "::1", "/a/v1", 8443},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target t;
        struct err err = {0};
        assert_int_equal(target_parse(cases[i].url, &t, &err), ST_OK);
        assert_string_equal(t.host, cases[i].host);
        assert_string_equal(t.base, cases[i].base);
        assert_int_equal(t.port, cases[i].port);
        assert_int_equal(t.is_tls, cases[i].url[4] == 's');
    }
}

static void test_an_invalid_address_is_refused(void **state) {
    (void)state;
    static const char *const urls[] = {
        "",           "127.0.0.1:8080", "https://",       "http://",       "http://:80",
        "http://h:0", "http://h:65536", "http://h:80x/",  "http://[::1/a", "http://h/a b",
        "ftp://h",    "http://h\n:80",  "http://[]:80/v1"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct target t;
        struct err err = {0};
        assert_int_equal(target_parse(urls[i], &t, &err), ST_BAD);
        assert_true(err.text[0] != 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_body_has_the_configured_fields),
        cmocka_unit_test(test_chat_puts_the_words_in_a_message),
        cmocka_unit_test(test_ids_are_exact_and_within_the_vocabulary),
        cmocka_unit_test(test_the_same_number_gives_the_same_request),
        cmocka_unit_test(test_prompts_share_the_prefix_and_nothing_more),
        cmocka_unit_test(test_lengths_of_a_table_all_come_up),
        cmocka_unit_test(test_calibration_subtracts_the_tokens_that_the_server_adds),
        cmocka_unit_test(test_a_server_without_usage_changes_no_lengths),
        cmocka_unit_test(test_arrivals_are_poisson),
        cmocka_unit_test(test_addresses_are_parsed),
        cmocka_unit_test(test_an_invalid_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
