/* Goal:   writing a folder survives the failure of any one allocation: a sentence that says so, and
 *         nothing is left.
 * Method: quantise a tiny model again and again, the first time with the first allocation failing,
 *         then the second, until a run needs no more; in one file and in several. Leaks show in the
 *         sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/folder_out.h"
#include "fault/fail_alloc.h"
#include "format/model_file.h"
#include "quant/folder.h"
#include "unit/format/make_files.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { ALLOCATIONS_MAX = 100000 };

static enum status put_all(struct folder_writer *w, struct folder_out *out, uint64_t bytes_max,
                           struct err *err) {
    TRY(folder_writer_begin(w, out, bytes_max, err));
    while (folder_writer_next(w) < folder_writer_count(w)) TRY(folder_writer_put(w, err));
    TRY(folder_writer_finish(w, err));
    return folder_out_publish(out, err);
}

static enum status quantise(const char *to, enum pack_method method, uint64_t bytes_max,
                            struct err *err) {
    struct model_file *f;
    struct folder_writer *w = NULL;
    struct folder_out out = {.fd = -1};
    const struct folder_options options = {.format = {method,
                                                      {.bits = method == PACK_INT8 ? 8 : 4,
                                                       .is_symmetric = method == PACK_INT8,
                                                       .has_no_zero = true},
                                                      DTYPE_F16}};
    TRY(model_file_open(MODELS "llama", &f, err));
    enum status st = folder_writer_create(f, &options, &w, err);
    if (st == ST_OK) st = folder_out_open(to, &out, err);
    if (st == ST_OK) st = put_all(w, &out, bytes_max, err);
    folder_writer_destroy(w);
    folder_out_close(&out);
    model_file_close(f);
    return st;
}

static void check_method(enum pack_method method, uint64_t bytes_max, long stride) {
    char folder[256], to[4096], part[4096];
    make_folder(folder, sizeof(folder));
    assert_true(path_join(to, sizeof(to), folder, "new"));
    assert_true(path_join(part, sizeof(part), folder, "new.part"));
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n += stride) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = quantise(to, method, bytes_max, &err);
        bool failed = fail_alloc_stop();
        /* Threads that cannot be had are done without. */
        if (st == ST_OK && failed) remove_folder(to);
        if (!failed) {
            if (st != ST_OK) fail_msg("%s", err.text);
            break;
        }
        if ((st != ST_OK && st != ST_NOMEM) || (st != ST_OK && !err.text[0]) || file_exists(to) ||
            file_exists(part))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    assert_in_range(n, 100, ALLOCATIONS_MAX - 1);
    assert_true(file_exists(to));
    remove_folder(to);
    remove_folder(folder);
}

static void test_writing_a_folder_survives_any_failed_allocation(void **state) {
    (void)state;
    check_method(PACK_GPTQ, 1 << 30, 1);
    check_method(PACK_NF4, 20000, 5); /* several files */
    check_method(PACK_INT8, 1 << 30, 11);
    check_method(PACK_AWQ, 1 << 30, 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing_a_folder_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
