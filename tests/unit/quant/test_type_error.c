/* Goal:   the error of a type is the sum over the tensor of importance times squared error, from a
 *         sample of its rows if it is large, with any number of threads.
 * Method: tensors in memory against encoding all of them here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "quant/quant.h"
#include "quant/type_error.h"
#include "unit/format/make_files.h"

enum { SEED = 5, WIDTH = 256, ROWS = 40, MANY_ROWS = 3 * TYPE_ERROR_ELEMS / WIDTH + 1, TYPES = 4 };

static const enum dtype types[TYPES] = {DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_F32};

/* A file that messages can name; tensors are the test's own. */
static struct model_file *open_file(char folder[256]) {
    struct model_file *f;
    struct err err = {0};
    struct buf b;
    char path[4096];
    make_folder(folder, 256);
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, 0, 1);
    put_key_str(&b, "general.architecture", "llama");
    put_pad(&b, 32);
    write_buf(folder, "m.gguf", &b);
    buf_deinit(&b);
    assert_true(path_join(path, sizeof(path), folder, "m.gguf"));
    if (model_file_open(path, &f, &err) != ST_OK) fail_msg("%s", err.text);
    return f;
}

static float *make_numbers(size_t count) {
    float *x = mem_alloc_array(count, sizeof(x[0]));
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = (float)(rng_at(SEED, 0, i) % 20001) / 10000.0f - 1.0f;
    return x;
}

static struct tensor_info tensor_of(const float *x, uint64_t rows) {
    return (struct tensor_info){.name = STR("m.weight"),
                                .type = DTYPE_F32,
                                .dim_count = 2,
                                .dims = {rows, WIDTH, 1, 1},
                                .data = x,
                                .bytes = (size_t)rows * WIDTH * sizeof(float)};
}

static double whole_error(enum dtype type, const float *x, size_t rows, const float *importance) {
    double sum = 0;
    uint8_t encoded[WIDTH * sizeof(float)];
    float decoded[WIDTH];
    for (size_t r = 0; r < rows; r++) {
        quant_encode(type, x + r * WIDTH, importance, WIDTH, encoded);
        dtype_dequant(type, encoded, WIDTH, decoded);
        for (size_t i = 0; i < WIDTH; i++)
            sum += (importance ? (double)importance[i] : 1) *
                   pow((double)x[r * WIDTH + i] - (double)decoded[i], 2);
    }
    return sum;
}

static void measure(const struct model_file *f, const struct tensor_info *t,
                    const float *importance, uint32_t threads, double errors[TYPES]) {
    struct type_error *e;
    struct err err = {0};
    const struct type_error_job job = {f, t, importance, types, TYPES};
    assert_int_equal(type_error_create(threads, &e, &err), ST_OK);
    if (type_error_measure(e, &job, errors, &err) != ST_OK) fail_msg("%s", err.text);
    type_error_destroy(e);
}

static void test_small_tensors_are_measured_as_a_whole(void **state) {
    (void)state;
    char folder[256];
    double errors[TYPES], other[TYPES];
    float importance[WIDTH], *x = make_numbers(WIDTH * ROWS);
    struct model_file *f = open_file(folder);
    const struct tensor_info t = tensor_of(x, ROWS);
    for (int i = 0; i < WIDTH; i++) importance[i] = (float)(1 + i % 7);
    for (int weighed = 0; weighed < 2; weighed++) {
        const float *by = weighed ? importance : NULL;
        measure(f, &t, by, 1, errors);
        measure(f, &t, by, 3, other);
        assert_memory_equal(errors, other, sizeof(errors));
        for (int i = 0; i < TYPES; i++) {
            double want = whole_error(types[i], x, ROWS, by);
            assert_true(fabs(errors[i] - want) <= 1e-9 * want);
        }
        assert_true(errors[0] > errors[1] && errors[1] > errors[2] && errors[2] > 0);
        assert_true(errors[3] == 0);
    }
    model_file_close(f);
    remove_folder(folder);
    mem_free(x);
}

static void test_large_tensors_are_sampled(void **state) {
    (void)state;
    char folder[256];
    double errors[TYPES];
    float *x = make_numbers((size_t)WIDTH * MANY_ROWS);
    struct model_file *f = open_file(folder);
    const struct tensor_info t = tensor_of(x, MANY_ROWS);
    measure(f, &t, NULL, 2, errors);
    for (int i = 0; i < TYPES; i++) {
        double want = whole_error(types[i], x, MANY_ROWS, NULL);
        assert_true(fabs(errors[i] - want) <= 0.02 * want);
    }
    model_file_close(f);
    remove_folder(folder);
    mem_free(x);
}

static void test_a_number_that_a_type_cannot_hold_is_named(void **state) {
    (void)state;
    char folder[256];
    double errors[TYPES];
    float *x = make_numbers(WIDTH * ROWS);
    struct model_file *f = open_file(folder);
    struct type_error *e;
    struct err err = {0};
    const struct tensor_info t = tensor_of(x, ROWS);
    const struct type_error_job job = {f, &t, NULL, types, TYPES};
    x[WIDTH * 3 + 7] = NAN;
    assert_int_equal(type_error_create(1, &e, &err), ST_OK);
    assert_int_equal(type_error_measure(e, &job, errors, &err), ST_BAD);
    assert_non_null(strstr(err.text, "tensor m.weight: row 3, column 7 is nan"));
    type_error_destroy(e);
    model_file_close(f);
    remove_folder(folder);
    mem_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_tensors_are_measured_as_a_whole),
        cmocka_unit_test(test_large_tensors_are_sampled),
        cmocka_unit_test(test_a_number_that_a_type_cannot_hold_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
