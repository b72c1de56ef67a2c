/* Goal:   a folder seen as a GGUF is the model that llama.cpp's converter would have written, and
 *         computes what the folder computes; what a GGUF cannot say is refused.
 * Method: every folder of tests/golden/models is translated. Its tensors are held against those of
 *         model.gguf beside it, which tools/goldens/gguf_export.py has made; it is written to a
 *         file, and the logits of the file against those of the folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "reference/forward.h"
#include "translate/translate.h"
#include "unit/translate/golden_folder.h"
#include "unit/translate/written.h"

/* Folders that are refused, and a part of the sentence. */
static const struct {
    const char *model, *part;
} refusals[] = {
    {"gemma2-scalar", "the scale of attention is 0.158113882, and would be read as 0.25"},
    {"gemma3-v5", "the scale of attention"},
    {"llama-dynamic", "rope scaling \"dynamic\""},
    {"qwen2-window", "layer 1 attends over a window"},
    {"llama-gptq-order", "in act order"},
    {"llama-gptq-order-v2", "in act order"},
    {"llama-w4a16-order", "in act order"},
};

static const char *refusal_of(const char *model) {
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        if (strcmp(refusals[i].model, model) == 0) return refusals[i].part;
    return NULL;
}

struct pair {
    char path[256]; /* of the folder */
    struct model_file *folder, *view;
};

static void open_pair(const char *model, struct pair *p) {
    struct err err = {0};
    make_golden_folder(model, p->path);
    if (model_file_open(p->path, &p->folder, &err) != ST_OK) fail_msg("%s", err.text);
    if (translate_to_gguf(p->folder, &p->view, &err) != ST_OK) fail_msg("%s", err.text);
}

static void close_pair(struct pair *p) {
    model_file_close(p->view);
    model_file_close(p->folder);
    remove_folder(p->path);
}

static void check_refusal(const char *model, const char *part) {
    struct pair p;
    struct err err = {0};
    make_golden_folder(model, p.path);
    assert_int_equal(model_file_open(p.path, &p.folder, &err), ST_OK);
    assert_int_equal(translate_to_gguf(p.folder, &p.view, &err), ST_BAD);
    if (!strstr(err.text, part) || !strstr(err.text, p.path)) fail_msg("%s", err.text);
    model_file_close(p.folder);
    remove_folder(p.path);
}

/* The golden files of quantised types hold other numbers than their folders. */
static void compare_with_golden(const char *model, const struct model_file *view) {
    char path[4096];
    struct model_file *golden;
    struct err err = {0};
    snprintf(path, sizeof(path), "%s/%s/model.gguf", golden_models, model);
    if (!file_exists(path)) return;
    if (model_file_open(path, &golden, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tensor_count(view), tensor_count(golden));
    for (size_t i = 0; i < tensor_count(golden); i++) {
        const struct tensor_info *want = tensor_at(golden, i);
        char name[256];
        str_store(want->name, name, sizeof(name));
        const struct tensor_info *got = tensor_find(view, name);
        if (!got) fail_msg("%s: no tensor %s", model, name);
        /* llama3's divisors are made from another formula: the same to the last bits. */
        compare_tensors(want, got, str_is(want->name, "rope_freqs.weight") ? 3e-7f : 0);
    }
    model_file_close(golden);
}

/* Where rows of Q and K are in pairs, their products are added in another order. Everything else is
 * bit for bit. */
static float tolerance_of(const struct model_file *view) {
    struct str arch = {0};
    bool found;
    assert_int_equal(meta_str(view, "general.architecture", &found, &arch, NULL), ST_OK);
    /* Codes that become floats: activations are not rounded to 8 bits any more. */
    const struct tensor_info *t = tensor_find(view, "blk.0.attn_output.weight");
    if (dtype_is_quantised(t->type)) return 0.3f;
    if (str_is(arch, "bert")) return 1e-7f; /* one of the two is scaled to unit length twice */
    return str_is(arch, "llama") ? 2e-5f : 0;
}

static void compare_logits(const char *model, const struct pair *p) {
    char goldens[4096], written[4096];
    snprintf(goldens, sizeof(goldens), "%s/%s/goldens.bin", golden_models, model);
    assert_true(path_join(written, sizeof(written), p->path, "written.gguf"));
    write_gguf(p->view, written);
    float most = tolerance_of(p->view), largest = logits_apart(p->path, written, goldens);
    if (getenv("JITNEY_TEST_VERBOSE")) printf("%s: %g\n", model, (double)largest);
    if (!(largest <= most))
        fail_msg("%s: logits are %g apart, allowed %g", model, (double)largest, (double)most);
}

static void test_model(void **state) {
    const char *model = *state, *part = refusal_of(model);
    struct pair p;
    if (part) {
        check_refusal(model, part);
        return;
    }
    open_pair(model, &p);
    assert_int_equal(model_file_kind(p.view), MODEL_GGUF);
    compare_with_golden(model, p.view);
    compare_logits(model, &p);
    close_pair(&p);
}

/* ---- Tokenizers ---- */

/* The small tokenizer with one phrase replaced. */
static void write_changed_tokenizer(const char *folder, const char *from, const char *to) {
    struct buf text, changed;
    buf_init(&text, 1 << 16);
    buf_init(&changed, 1 << 16);
    put_small_tokenizer(&text);
    const char *at = strstr(buf_text(&text), from);
    assert_non_null(at);
    buf_put_str(&changed, str_take(buf_str(&text), (size_t)(at - text.ptr)));
    buf_put_text(&changed, to);
    buf_put_text(&changed, at + strlen(from));
    char path[4096];
    assert_true(path_join(path, sizeof(path), folder, "tokenizer.json"));
    assert_int_equal(unlink(path), 0);
    write_buf(folder, "tokenizer.json", &changed);
    buf_deinit(&text);
    buf_deinit(&changed);
}

static enum status translate_changed(const char *from, const char *to, struct err *err) {
    char folder[256];
    struct model_file *base, *view;
    make_golden_folder("llama-tied", folder);
    write_changed_tokenizer(folder, from, to);
    if (model_file_open(folder, &base, err) != ST_OK) fail_msg("%s", err->text);
    enum status st = translate_to_gguf(base, &view, err);
    if (st == ST_OK) model_file_close(view);
    model_file_close(base);
    remove_folder(folder);
    return st;
}

/* <s> and </s> around a text; and <s> twice. */
static const char around_a_text[] =
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"e\",\"type_id\":0}}],"
    "\"special_tokens\":{\"b\":{\"ids\":[1]},\"e\":{\"ids\":[2]}}}";
static const char twice_before[] =
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
    "\"special_tokens\":{\"b\":{\"ids\":[1,1]}}}";

static void test_tokenizers_that_a_gguf_cannot_say_are_refused(void **state) {
    static const struct {
        const char *from, *to, *part; /* part == NULL: it is accepted */
    } cases[] = {
        {"\"special\":true", "\"special\":true", NULL},
        {"\"special\":true", "\"lstrip\":true,\"special\":true",
         "this text would have other tokens: \"a<unk> b <unk>"},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", NULL},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
         "normalizer: other than NFC"},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "pre_tokenizer: its patterns"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]\"},\"behavior\":\"Isolated\"}",
         "pre_tokenizer: its patterns"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"",
         "end_of_word_suffix"},
        {"\"post_processor\":null", around_a_text, NULL},
        {"\"post_processor\":null", twice_before, "more than one token before or behind a text"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        enum status st = translate_changed(cases[i].from, cases[i].to, &err);
        const char *part = cases[i].part;
        if (part ? st != ST_BAD || !strstr(err.text, part) : st != ST_OK)
            fail_msg("%s: status %d, \"%s\"", cases[i].to, st, err.text);
    }
}

enum { MODELS_MAX = 128 };

int main(void) {
    static struct CMUnitTest tests[MODELS_MAX];
    struct dirent **entries;
    int found = scandir(golden_models, &entries, NULL, alphasort);
    size_t count = 0;
    tests[count++] =
        (struct CMUnitTest)cmocka_unit_test(test_tokenizers_that_a_gguf_cannot_say_are_refused);
    for (int i = 0; i < found && count < MODELS_MAX; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s/config.json", golden_models, entries[i]->d_name);
        if (entries[i]->d_name[0] == '.' || !file_exists(path)) continue;
        tests[count++] = (struct CMUnitTest){.name = entries[i]->d_name,
                                             .test_func = test_model,
                                             .initial_state = entries[i]->d_name};
    }
    if (count == 1) {
        fprintf(stderr, "no models under %s\n", golden_models);
        return 1;
    }
    int failed = _cmocka_run_group_tests("to_gguf", tests, count, NULL, NULL);
    for (int i = 0; i < found; i++) free(entries[i]);
    free(entries);
    return failed;
}
