/* Goal:   a GGUF seen as a folder computes what the GGUF computes, has the tensors that the folder
 *         it was made from had, and the same tokens; what a folder cannot say is refused.
 * Method: every decoder of tests/golden/models is written as a GGUF, by way of translate_to_gguf,
 *         seen as a folder, and that is written, too. Vocabularies of GGUF files become those of a
 *         model of one layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "reference/forward.h"
#include "translate/translate.h"
#include "unit/translate/golden_folder.h"
#include "unit/translate/vocabulary_model.h"
#include "unit/translate/written.h"

/* A folder, the GGUF made of it, and the folder made of that. */
struct chain {
    char folder[256], again[256], gguf[4096];
    struct model_file *first, *base, *view;
};

static void open_file(const char *path, struct model_file **out) {
    struct err err = {0};
    if (model_file_open(path, out, &err) != ST_OK) fail_msg("%s", err.text);
}

static void open_chain(const char *model, struct chain *c) {
    struct model_file *as_gguf;
    struct err err = {0};
    make_golden_folder(model, c->folder);
    make_folder(c->again, sizeof(c->again));
    assert_true(path_join(c->gguf, sizeof(c->gguf), c->folder, "written.gguf"));
    open_file(c->folder, &c->first);
    if (translate_to_gguf(c->first, &as_gguf, &err) != ST_OK) fail_msg("%s", err.text);
    write_gguf(as_gguf, c->gguf);
    model_file_close(as_gguf);
    open_file(c->gguf, &c->base);
    if (translate_to_folder(c->base, &c->view, &err) != ST_OK) fail_msg("%s", err.text);
}

static void close_chain(struct chain *c) {
    model_file_close(c->view);
    model_file_close(c->base);
    model_file_close(c->first);
    remove_folder(c->folder);
    remove_folder(c->again);
}

/* Gemma's norms had one added and taken away: the sum was rounded. */
static void compare_with_first(const struct chain *c) {
    for (size_t i = 0; i < tensor_count(c->view); i++) {
        const struct tensor_info *got = tensor_at(c->view, i);
        char name[256];
        str_store(got->name, name, sizeof(name));
        const struct tensor_info *want = tensor_find(c->first, name);
        bool found;
        struct str type = {0};
        assert_int_equal(meta_str(c->view, "model_type", &found, &type, NULL), ST_OK);
        bool is_shifted = str_starts(type, STR("gemma")) && str_ends(got->name, STR("norm.weight"));
        if (!want) fail_msg("%s: no tensor %s", c->folder, name);
        compare_tensors(want, got, is_shifted ? 1e-4f : 0);
    }
    assert_int_equal(tensor_count(c->view), tensor_count(c->first));
}

static void test_model(void **state) {
    const char *model = *state;
    char goldens[4096];
    struct chain c;
    open_chain(model, &c);
    assert_int_equal(model_file_kind(c.view), MODEL_HF);
    compare_with_first(&c);
    write_folder(c.view, c.again);
    snprintf(goldens, sizeof(goldens), "%s/%s/goldens.bin", golden_models, model);
    /* The numbers of the first folder: only those of 16 bits are float32 now. */
    float largest = logits_apart(c.gguf, c.again, goldens);
    if (getenv("JITNEY_TEST_VERBOSE")) printf("%s: %g\n", model, (double)largest);
    if (!(largest <= 2e-5f)) fail_msg("%s: logits are %g apart", model, (double)largest);
    close_chain(&c);
}

/* ---- Vocabularies ---- */

/* To a folder and back to a GGUF; each step compares the tokens. */
static enum status go_round(const char *path, struct err *err) {
    char folder[256], gguf[4096];
    struct model_file *base, *view = NULL, *again = NULL;
    make_folder(folder, sizeof(folder));
    assert_true(path_join(gguf, sizeof(gguf), folder, "m.gguf"));
    write_with_vocabulary(path, gguf);
    open_file(gguf, &base);
    enum status st = translate_to_folder(base, &view, err);
    if (st == ST_OK) st = translate_to_gguf(view, &again, err);
    model_file_close(again);
    model_file_close(view);
    model_file_close(base);
    remove_folder(folder);
    return st;
}

static void test_vocabularies_go_round(void **state) {
    static const char *const names[] = {"gguf-bytes-deepseek-coder", "gguf-bytes-llama-bpe",
                                        "gguf-bytes-smollm", "spm-gguf-sentencepiece"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[4096];
        struct err err = {0};
        snprintf(path, sizeof(path), TEST_SOURCE_DIR "/golden/tokenizer/%s.gguf", names[i]);
        if (go_round(path, &err) != ST_OK) fail_msg("%s: %s", names[i], err.text);
    }
}

static void test_published_vocabularies_go_round(void **state) {
    static const char *const names[] = {"deepseek-coder", "gpt-2", "llama-bpe", "llama-spm",
                                        "phi-3",          "qwen2", "starcoder"};
    const char *data = getenv("JITNEY_TEST_DATA");
    bool any = false;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[4096];
        struct err err = {0};
        snprintf(path, sizeof(path), "%s/tokenizers/%s.gguf",
                 data ? data : TEST_SOURCE_DIR "/../../shared/data", names[i]);
        if (!file_exists(path)) continue;
        if (go_round(path, &err) != ST_OK) fail_msg("%s: %s", names[i], err.text);
        any = true;
    }
    if (!any) skip();
}

int main(void) {
    static char *const models[] = {"llama",          "llama-f16",    "llama-bf16",   "llama-bias",
                                   "llama-tied",     "llama-v5",     "llama-linear", "llama-llama3",
                                   "llama-yarn",     "mistral",      "mistral-full", "mixtral",
                                   "qwen2",          "qwen3",        "qwen3-yarn",   "qwen3moe",
                                   "qwen3moe-mixed", "gemma2",       "gemma3",       "phi3",
                                   "phi3-longrope",  "phi3-partial", "phi3-window"};
    enum { COUNT = sizeof(models) / sizeof(models[0]) };
    struct CMUnitTest tests[COUNT + 2] = {
        cmocka_unit_test(test_vocabularies_go_round),
        cmocka_unit_test(test_published_vocabularies_go_round),
    };
    for (int i = 0; i < COUNT; i++)
        tests[2 + i] = (struct CMUnitTest){
            .name = models[i], .test_func = test_model, .initial_state = models[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
