/* Goal:   translating a model survives the failure of any one allocation: a sentence that says so,
 *         nothing lost.
 * Method: translate small models again and again, the first time with the first allocation failing,
 *         then the second, until a translation needs no more; leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "format/model_file.h"
#include "translate/translate.h"
#include "unit/translate/golden_folder.h"
#include "unit/translate/vocabulary_model.h"

enum { ALLOCATIONS_MAX = 100000 };

static enum status translate(const char *path, struct err *err) {
    struct model_file *base, *view;
    TRY(model_file_open(path, &base, err));
    enum status st = model_file_kind(base) == MODEL_HF ? translate_to_gguf(base, &view, err)
                                                       : translate_to_folder(base, &view, err);
    if (st == ST_OK) model_file_close(view);
    model_file_close(base);
    return st;
}

/* From the first allocation on, each; later, where texts are compared again and again, some. */
static void walk(const char *path) {
    for (long n = 0; n < ALLOCATIONS_MAX; n += n < 400 ? 1 : 1 + n / 16) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = translate(path, &err);
        if (!fail_alloc_stop()) {
            if (st != ST_OK) fail_msg("%s", err.text);
            assert_true(n > 100);
            return;
        }
        if (st != ST_NOMEM || !err.text[0])
            fail_msg("%s: allocation %ld: status %d, \"%s\"", path, n, st, err.text);
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
}

static void test_a_folder_as_a_gguf_survives_any_failed_allocation(void **state) {
    static const char *const models[] = {"llama-llama3", "qwen3moe-mixed", "phi3-longrope", "bert"};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char folder[256];
        make_golden_folder(models[i], folder);
        walk(folder);
        remove_folder(folder);
    }
}

static void test_a_gguf_as_a_folder_survives_any_failed_allocation(void **state) {
    static const char *const vocabularies[] = {"gguf-bytes-smollm", "spm-gguf-sentencepiece"};
    (void)state;
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
        char folder[256], from[4096], path[4096];
        make_folder(folder, sizeof(folder));
        snprintf(from, sizeof(from), TEST_SOURCE_DIR "/golden/tokenizer/%s.gguf", vocabularies[i]);
        assert_true(path_join(path, sizeof(path), folder, "m.gguf"));
        write_with_vocabulary(from, path, NULL);
        walk(path);
        remove_folder(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gguf_as_a_folder_survives_any_failed_allocation),
        cmocka_unit_test(test_a_folder_as_a_gguf_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
