/* Goal:   algorithms that were kept are read again by a program that they were made for, and a file
 *         that is of another, cut or changed is not used.
 * Method: files in a folder of the test. The source is included: the library of kernels/cuda is
 *         built with CUDA's compiler alone, and this part of it needs none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cuda/kept.c"

enum { COUNT = 20 };

static char dir[PATH_BYTES], file[PATH_BYTES];
static struct cuda_kept list[COUNT];

static int make_folder(void **state) {
    (void)state;
    char base[] = "/tmp/test_kept.XXXXXX";
    if (!mkdtemp(base)) return -1;
    snprintf(dir, sizeof(dir), "%s/below/images", base);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t k = 0; k < CUDA_KEPT_KEY; k++) list[i].key[k] = 100 * i + k;
        for (uint32_t k = 0; k < CUDA_KEPT_ALGO; k++) list[i].algo[k] = ~(uint64_t)(7 * i + k);
    }
    return path_of(dir, "card A", file, sizeof(file)) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(file);
    for (int i = 0; i < 3; i++) {
        rmdir(dir);
        char *slash = strrchr(dir, '/');
        if (slash) *slash = '\0';
    }
    return 0;
}

static void test_what_was_written_is_read(void **state) {
    (void)state;
    struct err err = {{0}};
    struct cuda_kept out[COUNT];
    assert_int_equal(cuda_kept_read(dir, "card A", out, COUNT), 0); /* no folder yet */
    assert_int_equal(cuda_kept_write(dir, "card A", list, COUNT, &err), ST_OK);
    assert_int_equal(cuda_kept_read(dir, "card A", out, COUNT), COUNT);
    assert_memory_equal(out, list, sizeof(list));
    assert_int_equal(cuda_kept_read(dir, "card A", out, 3), 3); /* no more than there is room for */
    assert_int_equal(cuda_kept_write(dir, "card A", list + 4, 2, &err), ST_OK); /* replaces */
    assert_int_equal(cuda_kept_read(dir, "card A", out, COUNT), 2);
    assert_memory_equal(out, list + 4, 2 * sizeof(list[0]));
}

static void test_another_card_reads_nothing(void **state) {
    (void)state;
    struct err err = {{0}};
    struct cuda_kept out[COUNT];
    char other[PATH_BYTES];
    assert_int_equal(cuda_kept_write(dir, "card A", list, COUNT, &err), ST_OK);
    assert_int_equal(cuda_kept_read(dir, "card B", out, COUNT), 0);
    assert_true(path_of(dir, "card B", other, sizeof(other)));
    assert_int_equal(rename(file, other), 0); /* the name of the file alone is not believed */
    assert_int_equal(cuda_kept_read(dir, "card B", out, COUNT), 0);
    unlink(other);
}

static void test_a_damaged_file_is_not_used(void **state) {
    (void)state;
    struct err err = {{0}};
    struct cuda_kept out[COUNT];
    struct buf bytes;
    assert_int_equal(cuda_kept_write(dir, "card A", list, COUNT, &err), ST_OK);
    buf_init(&bytes, FILE_BYTES_MAX);
    assert_int_equal(file_read(file, &bytes, &err), ST_OK);
    struct str whole = buf_str(&bytes);
    static char changed[FILE_BYTES_MAX];
    for (size_t i = 0; i < whole.len; i++) {
        memcpy(changed, whole.ptr, whole.len);
        changed[i] ^= 4;
        assert_int_equal(take((struct str){changed, whole.len}, "card A", out, COUNT), 0);
        assert_int_equal(take((struct str){whole.ptr, i}, "card A", out, COUNT), 0); /* cut */
    }
    assert_int_equal(take(whole, "card A", out, COUNT), COUNT);
    buf_deinit(&bytes);
}

static void test_a_folder_that_cannot_be_made_is_an_error(void **state) {
    (void)state;
    struct err err = {{0}};
    assert_int_not_equal(cuda_kept_write("/dev/null/x", "card A", list, 1, &err), ST_OK);
    assert_true(err.text[0] != '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_another_card_reads_nothing),
        cmocka_unit_test(test_a_damaged_file_is_not_used),
        cmocka_unit_test(test_a_folder_that_cannot_be_made_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
