/* Goal:   the matrices of folders that other tools quantised hold the numbers of those folders, bit
 *         for bit; what act order has moved is where it belongs.
 * Method: each folder under tests/golden/models that has decoded.json, the SHA-256 of every matrix
 *         as numpy decoded it (tools/make_foreign_goldens.py): rows are read whole, and a block at
 *         a time, and hashed with their columns in the order of the inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "format/model_file.h"
#include "tensor/row_source.h"

static const char models_dir[] = TEST_SOURCE_DIR "/golden/models";

enum { BLOCK_BYTES_MAX = 36, SOME_ROWS = 5 };

/* Row `row`, read together with those that follow it, or block by block. */
static void read_row(const struct tensor_info *t, uint32_t row, bool by_block, uint8_t *out) {
    const struct dtype_info *info = dtype_info(t->type);
    uint32_t blocks = (uint32_t)(t->dims[1] / info->block_elems);
    uint32_t left = (uint32_t)t->dims[0] - row;
    struct row_piece piece = {row, left < SOME_ROWS ? left : SOME_ROWS, 0, blocks};
    if (!by_block) {
        t->source->read(t->source, &piece, out);
        return;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        piece = (struct row_piece){row, 1, b, 1};
        t->source->read(t->source, &piece, out + (size_t)b * info->block_bytes);
    }
}

static void hash_matrix(const struct tensor_info *t, bool by_block, char hex[SHA256_HEX_BYTES]) {
    size_t cols = (size_t)t->dims[1];
    uint8_t *bytes = mem_alloc(cols / 32 * BLOCK_BYTES_MAX * SOME_ROWS);
    float *row = mem_alloc_array(cols, sizeof(float)), *in_order = mem_alloc_array(cols, 4);
    struct sha256 *h = sha256_create();
    for (uint32_t r = 0; r < t->dims[0]; r++) {
        read_row(t, r, by_block, bytes);
        dtype_dequant(t->type, bytes, cols, row);
        for (size_t k = 0; k < cols; k++) in_order[t->order ? t->order[k] : k] = row[k];
        sha256_add(h, in_order, cols * sizeof(float));
    }
    sha256_hex(h, hex);
    sha256_destroy(h);
    mem_free(in_order);
    mem_free(row);
    mem_free(bytes);
}

/* How many matrices the folder has. */
static int check_folder(const char *name) {
    char path[4096], hex[SHA256_HEX_BYTES];
    struct model_file *f;
    struct err err = {0};
    const struct json *hashes;
    int count = 0;
    assert_true(path_join(path, sizeof(path), models_dir, name));
    if (model_file_open(path, &f, &err) != ST_OK) fail_msg("%s", err.text);
    if (model_file_problem(f)) fail_msg("%s", model_file_problem(f));
    assert_int_equal(model_file_json(f, "decoded.json", &hashes, &err), ST_OK);
    for (struct json_iter it = json_iter_first(hashes); json_iter_ok(&it); json_iter_next(&it)) {
        assert_true(it.key.len < sizeof(path));
        memcpy(path, it.key.ptr, it.key.len);
        path[it.key.len] = 0;
        const struct tensor_info *t = tensor_find(f, path);
        assert_non_null(t);
        assert_non_null(t->source);
        for (int by_block = 0; by_block < 2; by_block++) {
            hash_matrix(t, by_block, hex);
            if (!str_eq(json_str(it.value), str_of(hex)))
                fail_msg("%s: %s (%s) differs from numpy's", name, path, dtype_info(t->type)->name);
        }
        count++;
    }
    model_file_close(f);
    return count;
}

static void test_matrices_hold_the_numbers_of_the_folder(void **state) {
    (void)state;
    DIR *dir = opendir(models_dir);
    int folders = 0;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[4096];
        int used = snprintf(path, sizeof(path), "%s/%s/decoded.json", models_dir, e->d_name);
        assert_true(used > 0 && used < (int)sizeof(path));
        if (!file_exists(path)) continue;
        assert_int_equal(check_folder(e->d_name), 7);
        folders++;
    }
    closedir(dir);
    assert_true(folders >= 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices_hold_the_numbers_of_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
