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
#include "text/tokenizer.h"
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
    write_with_vocabulary(path, gguf, NULL);
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

/* How many tokens a text has. */
static size_t count_tokens(struct model_file *f, const char *text) {
    struct tokenizer *t = NULL;
    struct tokens ids = {0};
    struct err err = {0};
    const struct encode_options usual = {0};
    if (tokenizer_create(f, &t, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tokenizer_encode(t, str_of(text), usual, &ids), ST_OK);
    size_t count = ids.count;
    tokens_deinit(&ids);
    tokenizer_destroy(t);
    return count;
}

/* "<s>a": the blank before the text is behind the special token, or nowhere. */
static void test_a_blank_only_at_the_start_goes_round(void **state) {
    static const char from[] = TEST_SOURCE_DIR "/golden/tokenizer/spm-gguf-sentencepiece.gguf";
    char folder[256], path[4096];
    struct model_file *base, *view, *again;
    struct err err = {0};
    (void)state;
    make_folder(folder, sizeof(folder));
    assert_true(path_join(path, sizeof(path), folder, "m.gguf"));
    for (int first = 0; first < 2; first++) {
        write_with_vocabulary(from, path, first ? "jitney.tokenizer.space_prefix_first" : NULL);
        open_file(path, &base);
        if (translate_to_folder(base, &view, &err) != ST_OK) fail_msg("%s", err.text);
        if (translate_to_gguf(view, &again, &err) != ST_OK) fail_msg("%s", err.text);
        size_t more = first ? 0 : 1; /* the blank is a token of its own before q */
        assert_int_equal(count_tokens(base, "<s>q"), 2 + more);
        assert_int_equal(count_tokens(view, "<s>q"), 2 + more);
        assert_int_equal(count_tokens(again, "<s>q"), 2 + more);
        model_file_close(again);
        model_file_close(view);
        model_file_close(base);
        assert_int_equal(unlink(path), 0);
    }
    remove_folder(folder);
}

/* ---- What is refused ---- */

static void expect_refusal(const char *path, enum status want, const char *part) {
    struct model_file *base, *view;
    struct err err = {0};
    open_file(path, &base);
    assert_int_equal(translate_to_folder(base, &view, &err), want);
    if (!strstr(err.text, part) || !strstr(err.text, path)) fail_msg("%s", err.text);
    model_file_close(base);
}

static void test_what_cannot_become_a_folder_is_refused(void **state) {
    static const char models[] = TEST_SOURCE_DIR "/golden/models";
    static const char tokenizers[] = TEST_SOURCE_DIR "/golden/tokenizer";
    char path[4096];
    (void)state;
    snprintf(path, sizeof(path), "%s/bert/model.gguf", models);
    expect_refusal(path, ST_BAD, "architecture bert cannot become a folder yet");
    snprintf(path, sizeof(path), "%s/gemma3/model.gguf", models);
    expect_refusal(path, ST_BAD, "this file has no vocabulary");
    snprintf(path, sizeof(path), "%s/gguf-bytes-smollm.gguf", tokenizers);
    expect_refusal(path, ST_BAD, "has no tensors");
}

static void test_a_unigram_vocabulary_is_refused(void **state) {
    char folder[256], path[4096];
    (void)state;
    make_folder(folder, sizeof(folder));
    assert_true(path_join(path, sizeof(path), folder, "m.gguf"));
    write_with_vocabulary(TEST_SOURCE_DIR "/golden/tokenizer/unigram-gguf-nmt-nfkc.gguf", path,
                          NULL);
    expect_refusal(path, ST_BAD, "a tokenizer of kind unigram cannot become a folder's yet");
    remove_folder(folder);
}

int main(void) {
    static char *const models[] = {"llama",          "llama-f16",    "llama-bf16",   "llama-bias",
                                   "llama-tied",     "llama-v5",     "llama-linear", "llama-llama3",
                                   "llama-yarn",     "mistral",      "mistral-full", "mixtral",
                                   "qwen2",          "qwen3",        "qwen3-yarn",   "qwen3moe",
                                   "qwen3moe-mixed", "gemma2",       "gemma3",       "phi3",
                                   "phi3-longrope",  "phi3-partial", "phi3-window"};
    enum { COUNT = sizeof(models) / sizeof(models[0]) };
    struct CMUnitTest tests[COUNT + 5] = {
        cmocka_unit_test(test_a_blank_only_at_the_start_goes_round),
        cmocka_unit_test(test_what_cannot_become_a_folder_is_refused),
        cmocka_unit_test(test_a_unigram_vocabulary_is_refused),
        cmocka_unit_test(test_vocabularies_go_round),
        cmocka_unit_test(test_published_vocabularies_go_round),
    };
    for (int i = 0; i < COUNT; i++)
        tests[5 + i] = (struct CMUnitTest){
            .name = models[i], .test_func = test_model, .initial_state = models[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
