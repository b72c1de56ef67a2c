/* Goal:   a Hugging Face folder gives what its files say, whichever way the weights are split;
 *         a wrong one gives one sentence that names the file and what is wrong.
 * Method: small folders written by the test; safetensors headers that are each wrong in one
 *         place, read from a block of exactly their size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "format/format_int.h"
#include "format/limits.h"
#include "unit/format/make_files.h"
#include "unit/format/use_model.h"

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"rms_norm_eps\": 1e-05,"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"head_dim\": null,"
    " \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"},"
    " \"eos_token_id\": [1, 2], \"factors\": [1, 1.5], \"mixed\": [\"a\", 1], \"none\": [],"
    " \"bias\": -3, \"a.b\": 1, \"architectures\": [\"LlamaForCausalLM\"]}";

static struct buf small_safetensors(void) {
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_safetensors(&b, SMALL_SAFETENSORS, SMALL_SAFETENSORS_DATA);
    return b;
}

static void write_small(const char *folder, const char *file) {
    struct buf b = small_safetensors();
    write_buf(folder, file, &b);
    buf_deinit(&b);
}

/* A file with the single tensor `tensor`, 8 bytes. */
static void write_single(const char *folder, const char *file, const char *tensor) {
    struct buf b, header;
    buf_init(&b, FILE_BYTES_MAX);
    buf_init(&header, 4096);
    buf_printf(&header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
               tensor);
    put_safetensors(&b, buf_text(&header), 8);
    write_buf(folder, file, &b);
    buf_deinit(&header);
    buf_deinit(&b);
}

static struct model_file *open_ok(const char *folder) {
    struct err err = {0};
    struct model_file *f;
    if (model_file_open(folder, &f, &err) != ST_OK) fail_msg("%s", err.text);
    return f;
}

static void open_refused(const char *folder, enum status want, const char *says) {
    struct err err = {0};
    struct model_file *f;
    enum status st = model_file_open(folder, &f, &err);
    if (st != want || !is_sentence(&err, folder) || !strstr(err.text, says))
        fail_msg("status %d, \"%s\", expected \"%s\"", st, err.text, says);
}

static void test_facts_are_the_paths_of_config_json(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", config);
    write_small(folder, "model.safetensors");
    struct model_file *f = open_ok(folder);
    struct err err = {0};
    bool found, truth;
    uint64_t u, count;
    double d;
    struct str s;
    assert_int_equal(model_file_kind(f), MODEL_HF);
    assert_int_equal(meta_u64(f, "hidden_size", &found, &u, &err), ST_OK);
    assert_true(found && u == 64);
    assert_int_equal(meta_u64(f, "rope_theta", &found, &u, &err), ST_OK); /* 10000.0 is whole */
    assert_true(found && u == 10000);
    assert_int_equal(meta_f64(f, "hidden_size", &found, &d, &err), ST_OK);
    assert_true(found && d == 64);
    assert_int_equal(meta_f64(f, "rope_scaling.factor", &found, &d, &err), ST_OK);
    assert_true(found && d == 8);
    assert_int_equal(meta_str(f, "rope_scaling.rope_type", &found, &s, &err), ST_OK);
    assert_true(found && str_is(s, "llama3"));
    assert_int_equal(meta_bool(f, "tie_word_embeddings", &found, &truth, &err), ST_OK);
    assert_true(found && truth);
    assert_int_equal(meta_u64(f, "head_dim", &found, &u, &err), ST_OK); /* null is absent */
    assert_false(found);
    assert_int_equal(meta_u64(f, "rope_scaling.none", &found, &u, &err), ST_OK);
    assert_false(found);
    assert_int_equal(meta_kind(f, "rope_scaling"), META_MAP);
    assert_int_equal(meta_u64(f, "bias", &found, &u, &err), ST_BAD);
    assert_non_null(strstr(err.text, "key bias: is -3"));
    assert_int_equal(meta_u64(f, "rms_norm_eps", &found, &u, &err), ST_BAD);
    assert_int_equal(meta_list(f, "eos_token_id", &count), META_INT);
    assert_int_equal(count, 2);
    assert_int_equal(meta_list(f, "factors", &count), META_REAL);
    assert_int_equal(meta_list(f, "none", &count), META_NONE);
    assert_int_equal(meta_list(f, "mixed", &count), META_STR);
    assert_int_equal(meta_list_str(f, "mixed", 1, &s, &err), ST_BAD);
    assert_non_null(strstr(err.text, "key mixed: item 1 is a whole number, expected text"));
    use_model(f);
    model_file_close(f);
    remove_folder(folder);
}

static void test_keys_are_shown_with_dotted_paths(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", "{\"b\":1,\"a\":{\"x\":true,\"y\":{\"z\":\"t\"}},\"e\":{}}");
    struct model_file *f = open_ok(folder);
    struct buf out;
    buf_init(&out, 4096);
    for (size_t i = 0; i < meta_count(f); i++) {
        buf_put_str(&out, meta_key(f, i));
        buf_put_char(&out, '=');
        meta_put_value(f, i, &out);
        buf_put_char(&out, ' ');
    }
    assert_string_equal(buf_text(&out), "b=1 a.x=true a.y.z=\"t\" e={0 keys} ");
    buf_deinit(&out);
    model_file_close(f);
    remove_folder(folder);
}

static void test_tensors_of_other_formats_are_set_aside_with_the_reason(void **state) {
    (void)state;
    struct buf b = small_safetensors();
    struct err err = {0};
    struct model_file *f;
    if (safetensors_open_memory(buf_str(&b), "s", &f, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tensor_count(f), 3);
    assert_null(tensor_find(f, "ids"));
    assert_string_equal(tensor_skipped(f, "ids"), "I64");
    assert_string_equal(tensor_skipped(f, "none"), "no elements");
    assert_null(tensor_skipped(f, "w"));
    assert_null(tensor_skipped(f, "absent"));
    const struct tensor_info *w = tensor_find(f, "w"), *one = tensor_find(f, "one");
    assert_int_equal(w->dims[0], 2);
    assert_int_equal(w->dims[1], 3);
    assert_int_equal(w->dim_count, 2);
    assert_int_equal(one->dim_count, 0);
    assert_int_equal(one->bytes, 2);
    assert_int_equal((const char *)one->data - (const char *)w->data, 44);
    use_model(f);
    model_file_close(f);
    buf_deinit(&b);
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *says;
} refusals[] = {
    {"", 0, "header: JSON line"},
    {"[]", 0, "the header is not a JSON map"},
    {"{\"w\":1}", 0, "tensor w: expected a map in the header"},
    {"{" ENTRY("w", "F32", "[2]", "[0,8]"), 8, "header: JSON line 1"},
    {"{" ENTRY("w", "F33", "[2]", "[0,8]") "}", 8, "tensor w: dtype \"F33\", expected one of"},
    {"{" ENTRY("w", "Q4_0", "[32]", "[0,18]") "}", 18, "tensor w: dtype \"Q4_0\""},
    {"{" ENTRY("w", "F32", "2", "[0,8]") "}", 8, "tensor w: expected a shape of at most 8 dims"},
    {"{" ENTRY("w", "F32", "[-2]", "[0,8]") "}", 8, "tensor w: a dim is not a whole number"},
    {"{" ENTRY("w", "F32", "[2.5]", "[0,8]") "}", 8, "tensor w: a dim is not a whole number"},
    {"{" ENTRY("w", "F32", "[4294967296,4294967296]", "[0,8]") "}", 8,
     "tensor w: more elements than can be counted"},
    {"{" ENTRY("w", "F32", "[4611686018427387904]", "[0,8]") "}", 8,
     "tensor w: more bytes than can be counted"},
    {"{" ENTRY("w", "F32", "[2]", "[0]") "}", 8, "tensor w: expected data_offsets [begin, end]"},
    {"{" ENTRY("w", "F32", "[2]", "[8,0]") "}", 8, "tensor w: expected data_offsets"},
    {"{" ENTRY("w", "F32", "[2]", "[-1,7]") "}", 8, "tensor w: expected data_offsets"},
    {"{" ENTRY("w", "F32", "[2]", "[0,8]") "}", 7,
     "tensor w: needs bytes 0 to 8 of the data, the file has 7"},
    {"{" ENTRY("w", "F32", "[2]", "[0,4]") "}", 4,
     "tensor w: 4 bytes of data, expected 8 for its shape and dtype F32"},
    {"{" ENTRY("w", "I64", "[2]", "[0,8]") "}", 8, "tensor w: 8 bytes of data, expected 16"},
    {"{" ENTRY("w", "F4", "[3]", "[0,1]") "}", 1, "tensor w: 1 bytes of data, expected 1"},
    {"{" ENTRY("w", "F32", "[2]", "[0,8]") "}", 9, "9 bytes of data, expected 8 as the header"},
    {"{}", 1, "1 bytes of data, expected 0"},
    {"{" ENTRY("w", "F32", "[1]", "[4,8]") "}", 8, "tensor w: begins at byte 4 of the data"},
    {"{" ENTRY("v", "F32", "[2]", "[0,8]") "," ENTRY("w", "F32", "[2]", "[4,12]") "}", 12,
     "tensor w: its bytes overlap those of v"},
    {"{" ENTRY("v", "F32", "[1]", "[0,4]") "," ENTRY("w", "F32", "[1]", "[8,12]") "}", 12,
     "tensor w: begins at byte 8 of the data, expected 4"},
    {"{" ENTRY("w", "F32", "[1]", "[0,4]") "," ENTRY("w", "F32", "[1]", "[4,8]") "}", 8,
     "duplicate object key"},
    {"{" ENTRY("", "F32", "[1]", "[0,4]") "}", 4, "a tensor's name is not 1 to 512 bytes"},
    {"{" ENTRY("a\\nb", "F32", "[1]", "[0,4]") "}", 4, "a tensor's name is not 1 to 512 bytes"},
    {"[[[[[[[[[]]]]]]]]]", 0, "JSON nested 9 deep, at most 8"},
};

static void expect_bad(struct str written, const char *says, size_t number) {
    struct err err = {0};
    struct model_file *f;
    char *bytes = mem_alloc(written.len);
    assert_non_null(bytes);
    if (written.len) memcpy(bytes, written.ptr, written.len);
    enum status st = safetensors_open_memory((struct str){bytes, written.len}, "s", &f, &err);
    if (st != ST_BAD || !is_sentence(&err, "s") || !strstr(err.text, says))
        fail_msg("case %zu: status %d, \"%s\", expected \"%s\"", number, st, err.text, says);
    mem_free(bytes);
}

static void test_every_wrong_header_is_refused_with_one_sentence(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        buf_clear(&b);
        put_safetensors(&b, refusals[i].header, refusals[i].data_bytes);
        expect_bad(buf_str(&b), refusals[i].says, i);
    }
    expect_bad(STR(""), "0 bytes long, expected at least 8", 100);
    expect_bad(STR("1234567"), "7 bytes long", 101);
    expect_bad(STR("\377\377\377\377\377\377\377\377{}"), "a header of 18446744073709551615", 102);
    expect_bad(STR("\001\341\365\005\0\0\0\0{}"), "a header of 100000001 bytes, at most", 103);
    expect_bad(STR("\003\0\0\0\0\0\0\0{}"), "cut short: a header of 3 bytes, 2 are there", 104);
    buf_deinit(&b);
}

static void test_an_index_names_the_files(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", "{}");
    write_text(folder, "model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"part-b.safetensors\",\"b\":\"part-a.safetensors\"}}");
    write_single(folder, "part-b.safetensors", "a");
    struct err err = {0};
    struct model_file *f;
    assert_int_equal(model_file_open(folder, &f, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "part-a.safetensors"));
    write_single(folder, "part-a.safetensors", "b");
    write_single(folder, "model-unlisted.safetensors", "c");
    f = open_ok(folder);
    assert_int_equal(tensor_count(f), 2);
    assert_true(str_is(tensor_at(f, 0)->name, "a"));
    assert_non_null(tensor_find(f, "b"));
    use_model(f);
    model_file_close(f);
    write_single(folder, "model.safetensors", "whole"); /* wins */
    f = open_ok(folder);
    assert_int_equal(tensor_count(f), 1);
    model_file_close(f);
    remove_folder(folder);
}

static void test_an_index_that_lies_or_leaves_the_folder_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *index, *says;
    } cases[] = {
        {"{", "model.safetensors.index.json: JSON line 1"},
        {"{}", "expected a weight_map"},
        {"{\"weight_map\":[]}", "expected a weight_map"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":\".safetensors\"}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":\"x.gguf\"}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":7}}", "weight_map: a: expected the name of"},
        {"{\"weight_map\":{\"a\":\"y.safetensors\",\"b\":\"x.safetensors\"}}",
         "tensor a: is not in y.safetensors, where the index has it"},
        {"{\"weight_map\":{\"c\":\"x.safetensors\"}}", "tensor c: is not in x.safetensors"},
    };
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", "{}");
    write_single(folder, "x.safetensors", "a");
    write_single(folder, "y.safetensors", "b");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text(folder, "model.safetensors.index.json", cases[i].index);
        open_refused(folder, ST_BAD, cases[i].says);
    }
    remove_folder(folder);
}

static void test_without_an_index_all_files_are_read_by_name(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", "{}");
    write_single(folder, "z.safetensors", "z");
    write_single(folder, "y.safetensors", "y");
    struct model_file *f = open_ok(folder);
    assert_int_equal(tensor_count(f), 2);
    assert_true(str_is(tensor_at(f, 0)->name, "y"));
    model_file_close(f);
    write_single(folder, "model-00002-of-00002.safetensors", "b");
    write_single(folder, "model-00001-of-00002.safetensors", "a");
    f = open_ok(folder);
    assert_int_equal(tensor_count(f), 2); /* model* pushes the others out */
    assert_true(str_is(tensor_at(f, 0)->name, "a"));
    model_file_close(f);
    write_single(folder, "model-00003-of-00003.safetensors", "a");
    open_refused(folder, ST_BAD, "model-00003-of-00003.safetensors: tensor a: is there twice");
    remove_folder(folder);
}

static void test_a_folder_that_is_no_model_is_refused(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    open_refused(folder, ST_BAD, "not a model folder: expected config.json");
    write_text(folder, "config.json", "{\"a\":");
    open_refused(folder, ST_BAD, "/config.json: JSON line 1");
    write_text(folder, "config.json", "[1]");
    open_refused(folder, ST_BAD, "/config.json: expected a JSON map");
    write_text(folder, "config.json", "");
    open_refused(folder, ST_BAD, "/config.json: JSON line");
    write_text(folder, "config.json", "{}");
    write_text(folder, "pytorch_model.bin", "x");
    open_refused(folder, ST_BAD, "expected model.safetensors");
    write_text(folder, "model.safetensors", "x");
    open_refused(folder, ST_BAD, "/model.safetensors: 1 bytes long");
    remove_folder(folder);
}

static void test_a_tokenizer_alone_opens_without_tensors(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "tokenizer.json", "{\"model\":{}}");
    struct model_file *f = open_ok(folder);
    assert_int_equal(tensor_count(f), 0);
    assert_int_equal(meta_count(f), 0);
    assert_int_equal(meta_kind(f, "anything"), META_NONE);
    model_file_close(f);
    remove_folder(folder);
}

static void test_files_beside_the_model_are_read_once(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json", "{}");
    write_text(folder, "chat_template.jinja", "{{ x }}");
    write_text(folder, "tokenizer.json", "{\"version\":\"1.0\"}");
    write_text(folder, "bad.json", "{");
    write_text(folder, "empty.txt", "");
    struct model_file *f = open_ok(folder);
    struct err err = {0};
    const struct json *doc, *again;
    bool found;
    struct str text;
    assert_int_equal(model_file_json(f, "tokenizer.json", &doc, &err), ST_OK);
    assert_true(str_is(json_str(json_get(doc, "version")), "1.0"));
    assert_int_equal(model_file_text(f, "chat_template.jinja", &found, &text, &err), ST_OK);
    assert_true(found && str_is(text, "{{ x }}"));
    write_text(folder, "chat_template.jinja", "changed");
    assert_int_equal(model_file_text(f, "chat_template.jinja", &found, &text, &err), ST_OK);
    assert_true(str_is(text, "{{ x }}"));
    assert_int_equal(model_file_json(f, "tokenizer.json", &again, &err), ST_OK);
    assert_ptr_equal(doc, again);
    assert_int_equal(model_file_json(f, "absent.json", &doc, &err), ST_OK);
    assert_null(doc);
    assert_int_equal(model_file_text(f, "absent.txt", &found, &text, &err), ST_OK);
    assert_false(found);
    assert_int_equal(model_file_text(f, "empty.txt", &found, &text, &err), ST_OK);
    assert_true(found && text.len == 0);
    assert_int_equal(model_file_json(f, "bad.json", &doc, &err), ST_BAD);
    assert_true(is_sentence(&err, folder));
    assert_non_null(strstr(err.text, "/bad.json: JSON line 1"));
    model_file_close(f);
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts_are_the_paths_of_config_json),
        cmocka_unit_test(test_keys_are_shown_with_dotted_paths),
        cmocka_unit_test(test_tensors_of_other_formats_are_set_aside_with_the_reason),
        cmocka_unit_test(test_every_wrong_header_is_refused_with_one_sentence),
        cmocka_unit_test(test_an_index_names_the_files),
        cmocka_unit_test(test_an_index_that_lies_or_leaves_the_folder_is_refused),
        cmocka_unit_test(test_without_an_index_all_files_are_read_by_name),
        cmocka_unit_test(test_a_folder_that_is_no_model_is_refused),
        cmocka_unit_test(test_a_tokenizer_alone_opens_without_tensors),
        cmocka_unit_test(test_files_beside_the_model_are_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
