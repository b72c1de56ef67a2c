/* Goal:   text that comes token by token is never cut inside a character, and joined it is what
 *         decoding all tokens at once gives.
 * Method: random id sequences of each family, biased towards byte tokens; then named cases for
 *         the held bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "unit/text/tok_lib.h"

#define FOLDER TEST_SOURCE_DIR "/golden/tokenizer/"
enum { SEQUENCES = 2000, IDS_MAX = 24 };

static struct tokenizer *open_golden(const char *name) {
    char path[512];
    struct tokenizer *t;
    struct err err = {0};
    snprintf(path, sizeof(path), FOLDER "%s", name);
    if (tok_open(path, &t, &err) != ST_OK) fail_msg("%s", err.text);
    return t;
}

/* The stream's text; each piece of it must be whole characters. */
static void stream(const struct tokenizer *t, const token_id *ids, size_t count, bool skip,
                   struct buf *out) {
    struct detok d = {0};
    struct buf piece;
    buf_init(&piece, 1 << 20);
    for (size_t i = 0; i <= count; i++) {
        buf_clear(&piece);
        if (i < count)
            assert_int_equal(detok_push(&d, t, ids[i], skip, &piece), ST_OK);
        else
            detok_finish(&d, &piece);
        assert_true(utf8_is_valid(buf_str(&piece)));
        buf_put_str(out, buf_str(&piece));
    }
    buf_deinit(&piece);
}

static void check_random(const char *name, uint64_t seed) {
    struct tokenizer *t = open_golden(name);
    struct rng r = {.seed = seed};
    struct buf whole, joined;
    buf_init(&whole, 1 << 20);
    buf_init(&joined, 1 << 20);
    for (int n = 0; n < SEQUENCES; n++) {
        token_id ids[IDS_MAX];
        size_t count = rng_below(&r, IDS_MAX + 1);
        uint64_t limit = rng_below(&r, 2) ? tokenizer_vocab(t) : 260; /* bytes come first */
        if (limit > tokenizer_vocab(t)) limit = tokenizer_vocab(t);
        for (size_t i = 0; i < count; i++) ids[i] = (token_id)rng_below(&r, limit);
        bool skip = rng_below(&r, 2);
        buf_clear(&whole);
        buf_clear(&joined);
        assert_int_equal(tokenizer_decode(t, ids, count, skip, &whole), ST_OK);
        stream(t, ids, count, skip, &joined);
        if (!str_eq(buf_str(&whole), buf_str(&joined)))
            fail_msg("%s: seed %llu sequence %d", name, (unsigned long long)seed, n);
    }
    buf_deinit(&whole);
    buf_deinit(&joined);
    tokenizer_destroy(t);
}

static void test_the_pieces_of_a_stream_join_to_the_whole_text(void **state) {
    (void)state;
    static const char *const names[] = {
        "gguf-bytes-smollm.gguf",
        "bytes-llama-bpe.json",
        "spm-gguf-sentencepiece.gguf",
        "spm-legacy.json",
        "spm-always.json",
        "unigram-nmt-nfkc.json",
        "unigram-gguf-nmt-nfkc.gguf",
        "wordpiece-gguf.gguf",
        "wordpiece-uncased.json",
        "steps-blanks.json",
        "steps-delimiter.json",
        "steps-replace.json",
        "steps-both.json",
        "steps-literal.json",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) check_random(names[i], i + 1);
}

/* Ids of "<0xNN>" for each byte. */
static size_t byte_ids(const struct tokenizer *t, struct str bytes, token_id *ids) {
    for (size_t i = 0; i < bytes.len; i++) {
        char piece[8];
        snprintf(piece, sizeof(piece), "<0x%02X>", (uint8_t)bytes.ptr[i]);
        ids[i] = tokenizer_find(t, str_of(piece));
        assert_true(ids[i] >= 0);
    }
    return bytes.len;
}

static void expect_bytes(const struct tokenizer *t, struct str bytes, const char *want) {
    token_id ids[1024];
    struct buf got;
    buf_init(&got, 1 << 16);
    size_t count = byte_ids(t, bytes, ids);
    assert_int_equal(tokenizer_decode(t, ids, count, false, &got), ST_OK);
    assert_string_equal(buf_text(&got), want);
    buf_deinit(&got);
}

static void test_a_run_of_bytes_that_is_not_utf8_is_replaced_byte_by_byte(void **state) {
    (void)state;
    struct tokenizer *t = open_golden("spm-legacy.json");
    expect_bytes(t, STR("\xC3\xA9"), "\xC3\xA9");
    expect_bytes(t, STR("\xC3\xA9\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_bytes(t, STR("\xC3\x41"), "\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_bytes(t, STR("\xF0\x9F\x98\x80\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80\xF0\x9F\x98\x80");
    tokenizer_destroy(t);
}

static void test_a_run_of_bytes_longer_than_what_is_held_stays_whole(void **state) {
    (void)state;
    struct tokenizer *t = open_golden("spm-legacy.json");
    struct buf text;
    buf_init(&text, 1 << 12);
    for (int i = 0; i < 300; i++) buf_put_text(&text, "\xE4\xB8\xAD");
    expect_bytes(t, buf_str(&text), buf_text(&text));
    buf_deinit(&text);
    tokenizer_destroy(t);
}

static void test_half_a_character_at_the_end_becomes_a_replacement(void **state) {
    (void)state;
    struct tokenizer *t = open_golden("gguf-bytes-smollm.gguf");
    struct buf out;
    buf_init(&out, 100);
    struct detok d = {0};
    token_id id = tokenizer_find(t, STR("\xC3\xB0")); /* the character that stands for F0 */
    assert_true(id >= 0);
    assert_int_equal(detok_push(&d, t, id, false, &out), ST_OK);
    assert_int_equal(out.len, 0);
    detok_finish(&d, &out);
    assert_string_equal(buf_text(&out), "\xEF\xBF\xBD");
    detok_finish(&d, &out); /* nothing is left to say */
    assert_int_equal(out.len, 3);
    assert_int_equal(detok_push(&d, t, -1, false, &out), ST_OK); /* no such token: nothing */
    assert_int_equal(detok_push(&d, t, 1 << 30, false, &out), ST_OK);
    assert_int_equal(out.len, 3);
    buf_deinit(&out);
    tokenizer_destroy(t);
}

/* Of a text that is valid: a lone byte token is never invalid then. */
static void expect_pieces(const char *name, const char *text, const char *joined) {
    struct tokenizer *t = open_golden(name);
    struct tokens ids = {0};
    struct buf out;
    buf_init(&out, 1 << 12);
    assert_int_equal(tokenizer_encode(t, str_of(text), (struct encode_options){0}, &ids), ST_OK);
    assert_true(ids.count > 1);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(tokenizer_token_bytes(t, ids.ids[i], &out), ST_OK);
    assert_string_equal(buf_text(&out), joined);
    assert_int_equal(tokenizer_token_bytes(t, -1, &out), ST_OK);
    assert_int_equal(tokenizer_token_bytes(t, 1 << 30, &out), ST_OK);
    assert_string_equal(buf_text(&out), joined);
    buf_deinit(&out);
    tokens_deinit(&ids);
    tokenizer_destroy(t);
}

static void test_the_bytes_of_tokens_joined_are_the_text(void **state) {
    (void)state;
#define TEXT "the er\xf0\x9f\x98\x80 \xe4\xb8\xad x"
    expect_pieces("bytes-llama-bpe.json", TEXT, TEXT);
    expect_pieces("gguf-bytes-smollm.gguf", TEXT, TEXT);
    expect_pieces("spm-legacy.json", TEXT, " " TEXT); /* nothing is taken off the front */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_pieces_of_a_stream_join_to_the_whole_text),
        cmocka_unit_test(test_the_bytes_of_tokens_joined_are_the_text),
        cmocka_unit_test(test_a_run_of_bytes_that_is_not_utf8_is_replaced_byte_by_byte),
        cmocka_unit_test(test_a_run_of_bytes_longer_than_what_is_held_stays_whole),
        cmocka_unit_test(test_half_a_character_at_the_end_becomes_a_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
