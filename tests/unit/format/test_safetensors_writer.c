/* Goal:   our reader reads what our writer has written, in one file or in several with an index.
 * Method: tensors of different sizes, whose bytes are put in pieces that span them, with several
 *         limits of a file's size; the folder is opened and every byte compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/folder_out.h"
#include "format/model_file.h"
#include "format/safetensors_writer.h"
#include "unit/format/make_files.h"

enum { COUNT = 6, PIECE_MAX = 1024 };

static const struct safetensors_entry entries[COUNT] = {
    {{"a.weight", 8}, "F32", 2, {3, 4}, 48}, {{"b \"quoted\"", 10}, "F16", 1, {7}, 14},
    {{"c", 1}, "BF16", 3, {2, 2, 2}, 16},    {{"d.weight", 8}, "F32", 2, {8, 8}, 256},
    {{"e.with.dots", 11}, "F32", 1, {1}, 4}, {{"f", 1}, "F16", 2, {1, 5}, 10},
};

static uint8_t byte_of(size_t i) { return (uint8_t)(i * 37 + 11); }

static uint64_t all_bytes(void) {
    uint64_t all = 0;
    for (int i = 0; i < COUNT; i++) all += entries[i].bytes;
    return all;
}

static void put_bytes(struct safetensors_writer *w, size_t piece) {
    struct err err = {0};
    uint64_t all = all_bytes();
    for (uint64_t at = 0; at < all; at += piece) {
        uint8_t bytes[PIECE_MAX];
        size_t len = all - at < piece ? (size_t)(all - at) : piece;
        for (size_t i = 0; i < len; i++) bytes[i] = byte_of((size_t)at + i);
        assert_int_equal(safetensors_writer_put(w, bytes, len, &err), ST_OK);
    }
}

static uint64_t write_folder(const char *path, uint64_t file_bytes_max, size_t piece) {
    struct safetensors_writer *w;
    struct folder_out out;
    struct err err = {0};
    assert_int_equal(folder_out_open(path, &out, &err), ST_OK);
    assert_int_equal(safetensors_writer_create(file_bytes_max, &w, &err), ST_OK);
    for (int i = 0; i < COUNT; i++) safetensors_writer_add(w, &entries[i]);
    uint64_t bytes = safetensors_writer_bytes(w);
    assert_int_equal(safetensors_writer_begin(w, &out, &err), ST_OK);
    put_bytes(w, piece);
    if (safetensors_writer_finish(w, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(safetensors_writer_bytes(w), bytes);
    safetensors_writer_destroy(w);
    assert_int_equal(folder_out_publish(&out, &err), ST_OK);
    return bytes;
}

static void check_tensors(const char *path) {
    struct model_file *f;
    struct err err = {0};
    char config[4096];
    assert_true(path_join(config, sizeof(config), path, "config.json"));
    assert_int_equal(file_write_atomic(config, STR("{}"), &err), ST_OK);
    if (model_file_open(path, &f, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tensor_count(f), COUNT);
    size_t at = 0;
    for (int i = 0; i < COUNT; i++) {
        const struct tensor_info *t = tensor_find(f, entries[i].name.ptr);
        assert_non_null(t);
        assert_string_equal(dtype_info(t->type)->name, entries[i].format);
        assert_int_equal(t->dim_count, entries[i].dim_count);
        for (uint32_t d = 0; d < t->dim_count; d++)
            assert_int_equal(t->dims[d], entries[i].dims[d]);
        assert_int_equal(t->bytes, entries[i].bytes);
        const uint8_t *data = t->data;
        for (size_t b = 0; b < t->bytes; b++) assert_int_equal(data[b], byte_of(at++));
    }
    model_file_close(f);
}

static int64_t size_of(const char *folder, const char *name) {
    char path[4096];
    assert_true(path_join(path, sizeof(path), folder, name));
    return file_size(path);
}

static void test_what_is_written_is_read(void **state) {
    (void)state;
    /* The limit of a file, and how many files that makes. */
    static const struct {
        uint64_t max;
        int files;
    } cases[] = {{1 << 20, 1}, {348, 1}, {347, 2}, {256, 3}, {64, 4}, {1, COUNT}};
    static const size_t pieces[] = {1, 48, 50, 1000};
    char folder[256], path[4096], name[64];
    make_folder(folder, sizeof(folder));
    assert_true(path_join(path, sizeof(path), folder, "new"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
            uint64_t bytes = write_folder(path, cases[i].max, pieces[p]);
            int64_t found = cases[i].files == 1 ? size_of(path, "model.safetensors") : 0;
            for (int f = 1; f <= cases[i].files && cases[i].files > 1; f++) {
                snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", f, cases[i].files);
                found += size_of(path, name);
            }
            assert_int_equal(found, bytes);
            assert_int_equal(size_of(path, "model.safetensors.index.json") > 0, cases[i].files > 1);
            check_tensors(path);
            remove_folder(path);
        }
    remove_folder(folder);
}

static void test_a_folder_without_room_is_an_error(void **state) {
    (void)state;
    struct safetensors_writer *w;
    struct folder_out out;
    struct err err = {0};
    char folder[256], path[4096];
    make_folder(folder, sizeof(folder));
    assert_true(path_join(path, sizeof(path), folder, "new"));
    assert_int_equal(folder_out_open(path, &out, &err), ST_OK);
    assert_int_equal(safetensors_writer_create(1 << 20, &w, &err), ST_OK);
    struct safetensors_entry huge = {STR("huge"), "F32", 1, {(uint64_t)1 << 57}, (uint64_t)1 << 59};
    safetensors_writer_add(w, &huge);
    assert_int_equal(safetensors_writer_begin(w, &out, &err), ST_IO);
    assert_non_null(strstr(err.text, "cannot write"));
    safetensors_writer_destroy(w);
    folder_out_close(&out);
    assert_false(file_exists(path));
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_a_folder_without_room_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
