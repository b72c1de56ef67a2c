/* Goal:   the fingerprint of a model file is the same for the same bytes, and another one if a
 *         tensor, a shape or a fact of it is.
 * Method: small files that differ in one place: each tensor's bytes in turn, as an adapter that
 *         was merged into one kind of matrix changes them; one number of the metadata; one name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "format/model_file.h"
#include "server/fingerprint.h"
#include "unit/format/make_files.h"

enum { TENSORS = 60, TENSOR_BYTES = 128, NONE = -1 };

/* Of a file in which tensor `changed` has other bytes. */
static uint64_t hash_of(const char *folder, int changed, uint32_t fact, const char *last) {
    struct buf b;
    struct model_file *f = NULL;
    struct err err = {0};
    char path[128], name[32];
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, TENSORS, 2);
    put_key_str(&b, "general.architecture", "llama");
    put_key_u32(&b, "llama.rope.freq_base", fact);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof(name), "blk.%d.%c", i / 9, 'a' + i % 9);
        put_tensor(&b, i + 1 < TENSORS ? name : last, 32, 0, T_F32, (uint64_t)i * TENSOR_BYTES);
    }
    put_pad(&b, 32);
    for (int i = 0; i < TENSORS; i++)
        for (int k = 0; k < TENSOR_BYTES; k++) buf_put_char(&b, (char)(k * 7 + (i == changed)));
    write_buf(folder, "model.gguf", &b);
    buf_deinit(&b);
    assert_true(path_join(path, sizeof(path), folder, "model.gguf"));
    if (model_file_open(path, &f, &err) != ST_OK) fail_msg("%s", err.text);
    const uint64_t hash = fingerprint_file(f);
    model_file_close(f);
    return hash;
}

static void test_every_tensor_counts(void **state) {
    const char *folder = *state;
    const uint64_t same = hash_of(folder, NONE, 1, "last");
    assert_true(hash_of(folder, NONE, 1, "last") == same);
    for (int i = 0; i < TENSORS; i++)
        if (hash_of(folder, i, 1, "last") == same) fail_msg("tensor %d does not count", i);
}

static void test_facts_and_names_count(void **state) {
    const char *folder = *state;
    const uint64_t same = hash_of(folder, NONE, 1, "last");
    assert_false(hash_of(folder, NONE, 2, "last") == same);
    assert_false(hash_of(folder, NONE, 1, "tail") == same);
}

static int begin(void **state) {
    static char folder[100];
    make_folder(folder, sizeof(folder));
    *state = folder;
    return 0;
}

static int end(void **state) {
    remove_folder(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_tensor_counts, begin, end),
        cmocka_unit_test_setup_teardown(test_facts_and_names_count, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
