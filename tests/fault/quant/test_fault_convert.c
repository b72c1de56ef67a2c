/* Goal:   writing a model survives the failure of any one allocation: a sentence that says so,
 *         and no file.
 * Method: convert a small model again and again, the first time with the first allocation failing,
 *         then the second, until a run needs no more; leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/file_out.h"
#include "fault/fail_alloc.h"
#include "format/model_file.h"
#include "quant/convert.h"
#include "quant/divergence.h"
#include "quant/importance.h"
#include "quant/plan.h"
#include "quant/type_error.h"
#include "unit/format/make_files.h"

enum { ALLOCATIONS_MAX = 10000, WIDTH = 256, ROWS = 4 };

static struct model_file *file; /* open while planning is tested */

static void put_model(struct buf *b) {
    put_head(b, 3, 2, 1);
    put_key_str(b, "general.architecture", "llama");
    put_tensor(b, "blk.0.ffn_up.weight", WIDTH, ROWS, T_F16, 0);
    put_tensor(b, "blk.0.ffn_norm.weight", WIDTH, 0, T_F32, WIDTH * ROWS * 2);
    put_pad(b, 32);
    for (int i = 0; i < WIDTH * ROWS; i++) put_le(b, 0x2C00 + (uint64_t)(i * 37 % 999), 2);
    for (int i = 0; i < WIDTH; i++) put_u32(b, 0x3F800000);
}

/* A new folder with a model in it. */
static void make_model(char *folder, size_t folder_bytes, char path[4096]) {
    struct buf b;
    make_folder(folder, folder_bytes);
    buf_init(&b, FILE_BYTES_MAX);
    put_model(&b);
    write_buf(folder, "m.gguf", &b);
    buf_deinit(&b);
    assert_true(path_join(path, 4096, folder, "m.gguf"));
}

static enum status convert_model(const char *from, const char *to, struct err *err) {
    struct model_file *f;
    struct convert *c = NULL;
    struct file_out out = {.fd = -1};
    const struct convert_options options = {.type = DTYPE_Q4_K};
    TRY(model_file_open(from, &f, err));
    enum status st = convert_create(f, &options, &c, err);
    if (st == ST_OK) st = file_out_open(to, false, &out, err);
    const struct convert_run run = {.threads = 2, .file = &out};
    if (st == ST_OK) st = convert_write(c, &run, err);
    if (st == ST_OK) st = file_out_publish(&out, err);
    file_out_close(&out);
    convert_destroy(c);
    model_file_close(f);
    return st;
}

static void test_writing_a_model_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256], from[4096], to[4096];
    make_model(folder, sizeof(folder), from);
    assert_true(path_join(to, sizeof(to), folder, "new.gguf"));
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = convert_model(from, to, &err);
        if (!fail_alloc_stop()) {
            if (st != ST_OK) fail_msg("%s", err.text);
            break;
        }
        if (st != ST_NOMEM || !err.text[0] || file_exists(to))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    assert_in_range(n, 20, ALLOCATIONS_MAX - 1);
    assert_true(file_exists(to));
    remove_folder(folder);
}

static void test_a_position_without_memory_is_not_counted(void **state) {
    (void)state;
    enum { POSITIONS = 1000 }; /* more than the first block of memory holds */
    const float a[2] = {0, 1};
    size_t failed = 0;
    for (long n = 0; n < 4; n++) {
        struct divergence d;
        size_t done = 0;
        divergence_init(&d);
        fail_alloc_at(n);
        while (done < POSITIONS && divergence_add(&d, a, a, 2, 0) == ST_OK) done++;
        failed += fail_alloc_stop();
        assert_int_equal(d.count, done);
        divergence_deinit(&d);
    }
    assert_int_equal(failed, 3);
}

static void test_importance_without_memory_says_so(void **state) {
    (void)state;
    enum { MATRICES = 100 };
    const float x[4] = {1, 2, 3, 4};
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct importance *m = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = importance_create(&m, &err);
        for (int i = 0; i < MATRICES && st == ST_OK; i++) {
            char name[8] = {'m', (char)('0' + i / 10), (char)('0' + i % 10)};
            importance_add(m, &(struct importance_part){str_of(name), 4, 0, 4, x});
        }
        if (st == ST_OK) st = importance_status(m, &err);
        importance_destroy(m);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    assert_in_range(n, 4, ALLOCATIONS_MAX - 1);
}

static enum status make_plan(struct err *err) {
    enum { ITEMS = 5 };
    const struct plan_choice choices[2] = {{100, 1}, {200, 0.5}};
    struct plan_item items[ITEMS];
    struct plan *p;
    for (int i = 0; i < ITEMS; i++) items[i] = (struct plan_item){choices, 2};
    TRY(plan_create(items, ITEMS, &p, err));
    plan_destroy(p);
    return ST_OK;
}

static enum status measure_type(struct err *err) {
    static const float x[WIDTH * ROWS] = {1, 2, 3};
    static const enum dtype type = DTYPE_Q4_0;
    const struct tensor_info t = {.name = STR("m"),
                                  .type = DTYPE_F32,
                                  .dim_count = 2,
                                  .dims = {ROWS, WIDTH, 1, 1},
                                  .data = x,
                                  .bytes = sizeof(x)};
    const struct type_error_job job = {.file = file, .tensor = &t, .types = &type, .type_count = 1};
    struct type_error *e;
    double error;
    TRY(type_error_create(2, &e, err));
    enum status st = type_error_measure(e, &job, &error, err);
    type_error_destroy(e);
    return st;
}

static void fail_each(enum status (*fn)(struct err *err), long least) {
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = fn(&err);
        if (!fail_alloc_stop()) {
            if (st != ST_OK) fail_msg("%s", err.text);
            break;
        }
        if (st != ST_NOMEM || !strstr(err.text, "out of memory"))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    assert_in_range(n, least, ALLOCATIONS_MAX - 1);
}

static void test_planning_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256], path[4096];
    struct err err = {0};
    make_model(folder, sizeof(folder), path);
    assert_int_equal(model_file_open(path, &file, &err), ST_OK);
    fail_each(make_plan, 10);
    fail_each(measure_type, 5);
    model_file_close(file);
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_importance_without_memory_says_so),
        cmocka_unit_test(test_planning_survives_any_failed_allocation),
        cmocka_unit_test(test_a_position_without_memory_is_not_counted),
        cmocka_unit_test(test_writing_a_model_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
