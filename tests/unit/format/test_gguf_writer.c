/* Goal:   our reader reads what our writer has written: every key, tensor and byte.
 * Method: the keys of a small file with every type, copied; keys and lists of our own; the limits.
 *         tests/e2e/test_cli_quantize.py reads written files with the gguf package. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file_out.h"
#include "base/mem.h"
#include "format/format_int.h"
#include "format/gguf_writer.h"
#include "format/limits.h"
#include "unit/format/make_files.h"
#include "unit/format/use_model.h"

static char folder[256], path[4096];

static void set_up(void) {
    make_folder(folder, sizeof(folder));
    assert_true(path_join(path, sizeof(path), folder, "new.gguf"));
}

static struct model_file *open_file(const char *from) {
    struct model_file *f;
    struct err err = {0};
    if (model_file_open(from, &f, &err) != ST_OK) fail_msg("%s", err.text);
    return f;
}

static struct model_file *open_small(void) {
    struct buf b;
    char small[4096];
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    write_buf(folder, "small.gguf", &b);
    buf_deinit(&b);
    assert_true(path_join(small, sizeof(small), folder, "small.gguf"));
    return open_file(small);
}

static bool drops_f64(struct str key) { return str_is(key, "t.f64"); }

static void write_all(struct gguf_writer *w, const struct tensor_info *const *tensors,
                      size_t count) {
    struct file_out out;
    struct err err = {0};
    assert_int_equal(file_out_open(path, false, &out, &err), ST_OK);
    assert_int_equal(gguf_writer_begin(w, &out, &err), ST_OK);
    for (size_t i = 0; i < count; i++) {
        const char *data = tensors[i]->data;
        size_t half = tensors[i]->bytes / 2;
        assert_int_equal(gguf_writer_put_data(w, data, half, &err), ST_OK);
        assert_int_equal(gguf_writer_put_data(w, data + half, tensors[i]->bytes - half, &err),
                         ST_OK);
    }
    gguf_writer_finish(w);
    assert_int_equal(out.bytes, gguf_writer_file_bytes(w));
    assert_int_equal(file_out_publish(&out, &err), ST_OK);
    file_out_close(&out);
}

static void assert_same_facts(const struct model_file *a, const struct model_file *b, size_t i,
                              size_t j) {
    struct buf x, y;
    assert_true(str_eq(meta_key(a, i), meta_key(b, j)));
    buf_init(&x, 1 << 20);
    buf_init(&y, 1 << 20);
    meta_put_value(a, i, &x);
    meta_put_value(b, j, &y);
    assert_string_equal(buf_text(&x), buf_text(&y));
    buf_deinit(&x);
    buf_deinit(&y);
}

static void test_copied_keys_and_tensors_come_back(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct err err = {0};
    const struct tensor_info *tensors[3];
    set_up();
    struct model_file *small = open_small();
    assert_int_equal(gguf_writer_create(&w, &err), ST_OK);
    gguf_writer_copy_keys(w, small, drops_f64);
    for (size_t i = 0; i < 3; i++) {
        tensors[i] = tensor_at(small, i);
        gguf_writer_add_tensor(w, tensors[i]->name, tensors[i], tensors[i]->type);
    }
    write_all(w, tensors, 3);
    gguf_writer_destroy(w);

    struct model_file *copy = open_file(path);
    use_model(copy);
    assert_int_equal(meta_count(copy), meta_count(small) - 1);
    for (size_t i = 0, j = 0; i < meta_count(small); i++)
        if (!drops_f64(meta_key(small, i))) assert_same_facts(small, copy, i, j++);
    assert_int_equal(tensor_count(copy), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct tensor_info *t = tensor_at(copy, i);
        assert_true(str_eq(t->name, tensors[i]->name));
        assert_int_equal(t->type, tensors[i]->type);
        assert_memory_equal(t->dims, tensors[i]->dims, sizeof(t->dims));
        assert_int_equal(t->bytes, tensors[i]->bytes);
        assert_memory_equal(t->data, tensors[i]->data, t->bytes);
    }
    model_file_close(copy);
    model_file_close(small);
    remove_folder(folder);
}

static void put_own_keys(struct gguf_writer *w) {
    gguf_writer_put_u32(w, "own.u32", 4000000000u);
    gguf_writer_put_f32(w, "own.f32", -0.375f);
    gguf_writer_put_bool(w, "own.yes", true);
    gguf_writer_put_str(w, "own.text", STR("two\nlines"));
    gguf_writer_put_list(w, "own.words", GGUF_LIST_STR, 2);
    gguf_writer_item_str(w, STR(""));
    gguf_writer_item_str(w, STR("word"));
    gguf_writer_put_list(w, "own.numbers", GGUF_LIST_F32, 1);
    gguf_writer_item_f32(w, 2.5f);
    gguf_writer_put_list(w, "own.types", GGUF_LIST_I32, 1);
    gguf_writer_item_i32(w, -7);
}

static void test_keys_of_our_own_come_back(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct err err = {0};
    bool found, truth = false;
    uint64_t whole = 0, count;
    double real = 0;
    int64_t item = 0;
    struct str text = {0};
    set_up();
    assert_int_equal(gguf_writer_create(&w, &err), ST_OK);
    put_own_keys(w);
    write_all(w, NULL, 0);
    gguf_writer_destroy(w);

    struct model_file *f = open_file(path);
    assert_int_equal(meta_u64(f, "own.u32", &found, &whole, &err), ST_OK);
    assert_int_equal(whole, 4000000000u);
    assert_int_equal(meta_f64(f, "own.f32", &found, &real, &err), ST_OK);
    assert_true(real == -0.375);
    assert_int_equal(meta_bool(f, "own.yes", &found, &truth, &err), ST_OK);
    assert_true(truth);
    assert_int_equal(meta_str(f, "own.text", &found, &text, &err), ST_OK);
    assert_true(str_is(text, "two\nlines"));
    assert_int_equal(meta_list(f, "own.words", &count), META_STR);
    assert_int_equal(meta_list_str(f, "own.words", 1, &text, &err), ST_OK);
    assert_true(count == 2 && str_is(text, "word"));
    assert_int_equal(meta_list_f64(f, "own.numbers", 0, &real, &err), ST_OK);
    assert_true(real == 2.5);
    assert_int_equal(meta_list_i64(f, "own.types", 0, &item, &err), ST_OK);
    assert_int_equal(item, -7);
    model_file_close(f);
    remove_folder(folder);
}

static void test_a_head_with_too_many_keys_is_refused(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct file_out out;
    struct err err = {0};
    set_up();
    assert_int_equal(gguf_writer_create(&w, &err), ST_OK);
    for (uint32_t i = 0; i <= LIMIT_GGUF_KEYS; i++) gguf_writer_put_u32(w, "k", i);
    assert_int_equal(file_out_open(path, false, &out, &err), ST_OK);
    assert_int_equal(gguf_writer_begin(w, &out, &err), ST_BAD);
    assert_non_null(strstr(err.text, "65537 keys"));
    file_out_close(&out);
    gguf_writer_destroy(w);
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied_keys_and_tensors_come_back),
        cmocka_unit_test(test_keys_of_our_own_come_back),
        cmocka_unit_test(test_a_head_with_too_many_keys_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
