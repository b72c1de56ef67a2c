/* Goal:   every family and every step of tokenizer.json gives what the reference packages give.
 * Method: tests/golden/tokenizer holds small vocabularies, texts, and the ids and texts that the
 *         tokenizers and sentencepiece packages made of them (tools/make_tokenizer_goldens.py);
 *         each text is encoded with specials parsed, as plain text and with BOS and the like, and
 *         decoded whole and as a stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/utf8.h"
#include "unit/text/tok_lib.h"

#define FOLDER TEST_SOURCE_DIR "/golden/tokenizer/"

static struct json *read_json(const char *path) {
    struct buf text;
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(&text, 1 << 24);
    if (file_read(path, &text, &err) != ST_OK ||
        json_parse(buf_str(&text), &json_limits_model_file, &doc, &err) != ST_OK)
        fail_msg("%s: %s", path, err.text);
    buf_deinit(&text);
    return doc;
}

static void put_hex(struct str hex, struct buf *out) {
    for (size_t i = 0; i + 1 < hex.len; i += 2) {
        char pair[3] = {hex.ptr[i], hex.ptr[i + 1], 0};
        buf_put_char(out, (char)strtoul(pair, NULL, 16));
    }
}

static void check_ids(const struct tokenizer *t, struct str text, struct encode_options options,
                      const struct json *want, const char *where) {
    if (!want) return;
    struct tokens got = {0};
    assert_int_equal(tokenizer_encode(t, text, options, &got), ST_OK);
    bool same = got.count == json_count(want);
    for (size_t i = 0; same && i < got.count; i++)
        same = got.ids[i] == json_int(json_at(want, i), -1);
    if (!same) {
        for (size_t i = 0; i < got.count; i++) print_message("%d ", got.ids[i]);
        fail_msg("%s: \"%.*s\" gives the ids above", where, STR_ARG(text));
    }
    tokens_deinit(&got);
}

static void check_text(const struct tokenizer *t, const struct json *ids, bool skip,
                       const struct json *want, const char *where) {
    if (!want) return;
    struct detok d = {0};
    struct buf stream;
    buf_init(&stream, 1 << 20);
    for (size_t i = 0; i < json_count(ids); i++) {
        token_id id = (token_id)json_int(json_at(ids, i), -1);
        assert_int_equal(detok_push(&d, t, id, skip, &stream), ST_OK);
        assert_true(utf8_is_valid(buf_str(&stream)));
    }
    detok_finish(&d, &stream);
    if (!str_eq(buf_str(&stream), json_str(want)))
        fail_msg("%s: decoded \"%.*s\", expected \"%.*s\"", where, STR_ARG(buf_str(&stream)),
                 STR_ARG(json_str(want)));
    buf_deinit(&stream);
}

static void check_case(const struct tokenizer *t, const struct json *c, const char *where) {
    struct buf text;
    buf_init(&text, 1 << 16);
    if (json_get(c, "hex"))
        put_hex(json_str(json_get(c, "hex")), &text);
    else
        buf_put_str(&text, json_str(json_get(c, "text")));
    const struct json *ids = json_get(c, "ids"), *plain = json_get(c, "plain");
    const struct json *decoded = json_get(c, "decoded"), *skipped = json_get(c, "skipped");
    struct str s = buf_str(&text);
    check_ids(t, s, (struct encode_options){0}, ids, where);
    check_ids(t, s, (struct encode_options){.plain_special = true}, plain ? plain : ids, where);
    check_ids(t, s, (struct encode_options){.add_special = true}, json_get(c, "special"), where);
    check_text(t, ids, false, decoded, where);
    check_text(t, ids, true, skipped ? skipped : decoded, where);
    buf_deinit(&text);
}

static size_t check_file(struct str name) {
    char path[512], cases[512];
    size_t stem = name.len - strlen(".json"); /* .gguf is as long */
    snprintf(path, sizeof(path), FOLDER "%.*s", STR_ARG(name));
    snprintf(cases, sizeof(cases), FOLDER "%.*s.cases.json", (int)stem, name.ptr);
    struct tokenizer *t;
    struct err err = {0};
    if (tok_open(path, &t, &err) != ST_OK) fail_msg("%s", err.text);
    struct json *list = read_json(cases);
    size_t count = json_count(list);
    for (size_t i = 0; i < count; i++) check_case(t, json_at(list, i), path);
    json_destroy(list);
    tokenizer_destroy(t);
    return count;
}

static void test_ids_and_texts_equal_the_reference(void **state) {
    (void)state;
    struct json *index = read_json(FOLDER "index.json");
    size_t texts = 0;
    for (size_t i = 0; i < json_count(index); i++) texts += check_file(json_str(json_at(index, i)));
    print_message("%zu vocabularies, %zu texts\n", json_count(index), texts);
    assert_true(json_count(index) >= 39);
    assert_true(texts >= 500);
    json_destroy(index);
}

static void test_values_of_a_gguf_are_returned_by_the_getters(void **state) {
    (void)state;
    struct tokenizer *t;
    struct err err = {0};
    assert_int_equal(tok_open(FOLDER "gguf-bytes-smollm.gguf", &t, &err), ST_OK);
    token_id bos = tokenizer_find(t, STR("<|bos|>")), end = tokenizer_find(t, STR("<|im_end|>"));
    assert_int_equal(tokenizer_bos(t), bos);
    assert_int_equal(tokenizer_eos(t), end);
    assert_true(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_end(t, end));
    assert_false(tokenizer_is_end(t, bos));
    assert_true(tokenizer_is_special(t, bos));
    assert_false(tokenizer_is_special(t, 0));
    assert_int_equal(tokenizer_vocab(t), (uint32_t)bos + 3);
    assert_int_equal(tokenizer_find(t, STR("no such piece")), TOKEN_NONE);
    assert_string_equal(tokenizer_model(t), "bpe");
    assert_true(str_is(tokenizer_piece(t, end), "<|im_end|>"));
    assert_true(str_is(tokenizer_chat_template(t, true), "{{ messages[0]['content'] }}"));
    tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_and_texts_equal_the_reference),
        cmocka_unit_test(test_values_of_a_gguf_are_returned_by_the_getters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
