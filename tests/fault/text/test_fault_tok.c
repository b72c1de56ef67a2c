/* Goal:   reading a tokenizer, encoding and decoding survive the failure of any one allocation:
 *         ST_NOMEM, nothing lost, and the next call works.
 * Method: with small vocabularies of every family, do all of it again and again, the first time
 *         with the first allocation failing, then the second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "unit/text/tok_lib.h"

enum { ALLOCATIONS_MAX = 100000 };

static const char text[] =
    "Hello,  World! it's na\xC3\xAFve <|plain|> 12345 \xF0\x9F\x98\x80\xFF A\xCC\x81\xEF\xAC\x81 "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static enum status round_trip(const struct tokenizer *t) {
    struct tokens ids = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    enum status st =
        tokenizer_encode(t, str_of(text), (struct encode_options){.add_special = true}, &ids);
    if (st == ST_OK) st = tokenizer_decode(t, ids.ids, ids.count, true, &out);
    tokens_deinit(&ids);
    buf_deinit(&out);
    return st;
}

static void walk_use(const struct tokenizer *t, const char *name) {
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        fail_alloc_at(n);
        enum status st = round_trip(t);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            return;
        }
        if (st != ST_NOMEM) fail_msg("%s: allocation %ld: %s", name, n, status_name(st));
    }
    fail_msg("%s: more than %d allocations", name, ALLOCATIONS_MAX);
}

/* Reading allocates once per piece at most; a few hundred places cover all kinds of them. */
static void walk_read(const struct json *doc, const char *name) {
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct tokenizer *t = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = tokenizer_create_json(doc, NULL, name, &t, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            walk_use(t, name);
            tokenizer_destroy(t);
            return;
        }
        if (st != ST_NOMEM || !err.text[0])
            fail_msg("%s: allocation %ld: %s \"%s\"", name, n, status_name(st), err.text);
    }
    fail_msg("%s: more than %d allocations", name, ALLOCATIONS_MAX);
}

static void check(const char *name) {
    char path[512];
    struct buf bytes;
    struct json *doc;
    struct err err = {0};
    snprintf(path, sizeof(path), TEST_SOURCE_DIR "/golden/tokenizer/%s", name);
    buf_init(&bytes, 1 << 24);
    if (file_read(path, &bytes, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(json_parse(buf_str(&bytes), &json_limits_model_file, &doc, &err), ST_OK);
    walk_read(doc, name);
    json_destroy(doc);
    buf_deinit(&bytes);
}

static void test_every_family_survives_any_failed_allocation(void **state) {
    (void)state;
    static const char *const names[] = {"bytes-nfc.json",        "spm-legacy.json",
                                        "unigram-nmt-nfkc.json", "wordpiece-uncased.json",
                                        "steps-replace.json",    "steps-blanks.json"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) check(names[i]);
}

static void test_a_gguf_vocabulary_survives_any_failed_allocation(void **state) {
    (void)state;
    const char *path = TEST_SOURCE_DIR "/golden/tokenizer/gguf-bytes-llama-bpe.gguf";
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct tokenizer *t = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = tok_open(path, &t, &err);
        bool failed = fail_alloc_stop();
        tokenizer_destroy(t);
        if (!failed) {
            assert_int_equal(st, ST_OK);
            return;
        }
        if (st != ST_NOMEM) fail_msg("allocation %ld: %s", n, status_name(st));
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_survives_any_failed_allocation),
        cmocka_unit_test(test_a_gguf_vocabulary_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
