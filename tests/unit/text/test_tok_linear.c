/* Goal:   time is linear in the text, whatever the text.
 * Method: a megabyte of one thing (a letter, blanks, emoji, digits, marks, brackets, ...) through
 *         each family. The bound is generous, because machines differ: what is quadratic takes a
 *         thousand times as long as what is linear here, and misses it by far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "unit/text/tok_lib.h"

#define FOLDER TEST_SOURCE_DIR "/golden/tokenizer/"

#if defined(__SANITIZE_ADDRESS__)
enum { TEXT_BYTES = 200 << 10 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { TEXT_BYTES = 200 << 10 };
#else
enum { TEXT_BYTES = 1 << 20 };
#endif
#else
enum { TEXT_BYTES = 1 << 20 };
#endif
enum { LIMIT_S = 20 };

static const char *const units[] = {
    "a",
    " ",
    "7",
    "\n",
    "\xF0\x9F\x98\x80",
    "\xE4\xB8\xAD",
    "\xCC\x80\xCC\x96",
    "aA",
    "<",
    "'",
    "ab ",
    "  x",
    "<|plain|",
    "\xFF",
    "A",
    "\t ",
    "1a",
    "\xE2\x96\x81",
    "\r\n ",
    ".",
};

static void fill(struct buf *b, const char *unit, const char *tail) {
    buf_clear(b);
    while (b->len < TEXT_BYTES) buf_put_text(b, unit);
    buf_put_text(b, tail);
    assert_int_equal(buf_status(b), ST_OK);
}

/* Tails that make a long run end in something else: what a backtracking matcher trips on. */
static void check(const char *name) {
    static const char *const tails[] = {"", "5x"};
    char path[512];
    struct tokenizer *t;
    struct err err = {0};
    struct buf text;
    snprintf(path, sizeof(path), FOLDER "%s", name);
    if (tok_open(path, &t, &err) != ST_OK) fail_msg("%s", err.text);
    buf_init(&text, (size_t)TEXT_BYTES + 64);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        struct tokens ids = {0};
        fill(&text, units[i], tails[i % 2]);
        int64_t start = clock_now(&clock_real);
        assert_int_equal(tokenizer_encode(t, buf_str(&text), (struct encode_options){0}, &ids),
                         ST_OK);
        int64_t took_us = clock_now(&clock_real) - start;
        if (took_us > (int64_t)LIMIT_S * 1000000)
            fail_msg("%s: unit %zu took %.1f s", name, i, (double)took_us / 1e6);
        tokens_deinit(&ids);
    }
    buf_deinit(&text);
    tokenizer_destroy(t);
}

static void test_byte_level_bpe_is_linear(void **state) {
    (void)state;
    check("gguf-bytes-llama-bpe.gguf");
    check("gguf-bytes-smollm.gguf");
    check("gguf-bytes-deepseek-coder.gguf");
}

static void test_sentencepiece_bpe_is_linear(void **state) {
    (void)state;
    check("spm-gguf-sentencepiece.gguf");
    check("spm-legacy.json");
}

static void test_unigram_is_linear(void **state) {
    (void)state;
    check("unigram-gguf-nmt-nfkc.gguf");
    check("unigram-nmt-nfkc.json");
}

static void test_wordpiece_is_linear(void **state) {
    (void)state;
    check("wordpiece-uncased.json");
}

static void test_patterns_that_backtrack_are_linear(void **state) {
    (void)state;
    check("steps-onig.json");   /* \s+$ retries a run of blanks at each of them */
    check("steps-groups.json"); /* a look-ahead over all digits that follow */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level_bpe_is_linear),
        cmocka_unit_test(test_sentencepiece_bpe_is_linear),
        cmocka_unit_test(test_unigram_is_linear),
        cmocka_unit_test(test_wordpiece_is_linear),
        cmocka_unit_test(test_patterns_that_backtrack_are_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
