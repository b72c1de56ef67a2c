/* Goal:   every matrix of a model is measured alone, experts and a shared embedding included; the
 *         result does not depend on threads or on what was measured before; a model's layers are
 *         equal to its own.
 * Method: tiny models of the tree, with random tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "cli/layer_kl.h"
#include "cli/sensitivity_run.h"
#include "engine/loaded_model.h"
#include "format/model_file.h"
#include "quant/choose.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { SEED = 3, TOKENS = 24, WINDOWS = 3, MATRICES_MAX = 64 };

static const char *const models[] = {MODELS "llama/model.gguf",   MODELS "llama-tied/model.gguf",
                                     MODELS "mixtral/model.gguf", MODELS "qwen3moe/model.gguf",
                                     MODELS "gemma2/model.gguf",  MODELS "llama-f16/model.gguf"};
enum { MODEL_COUNT = sizeof(models) / sizeof(models[0]) };

static void open_model(struct loaded_model *m, const char *path, uint32_t threads) {
    struct err err = {0};
    const struct loaded_model_options o = {
        .threads = threads, .ctx_tokens = 64, .isa = "portable", .tokens_only = true};
    if (loaded_model_open(m, path, &o, &err) != ST_OK) fail_msg("%s", err.text);
}

static void make_ids(const struct loaded_model *m, int32_t ids[WINDOWS * TOKENS]) {
    for (uint64_t i = 0; i < WINDOWS * TOKENS; i++)
        ids[i] = (int32_t)(rng_at(SEED, 0, i) % m->model->hp.vocab);
}

static size_t list_matrices(const struct loaded_model *m, struct sensitivity *out) {
    size_t count = 0;
    for (size_t i = 0; i < tensor_count(m->file); i++) {
        const struct tensor_info *t = tensor_at(m->file, i);
        if (!choose_converts(t->name, t->dims, t->dim_count)) continue;
        if (t->dims[t->dim_count - 1] % 32 != 0) continue;
        assert_true(count < MATRICES_MAX);
        out[count++] = (struct sensitivity){.name = t->name, .probe = DTYPE_Q4_0};
    }
    return count;
}

static void measure(struct loaded_model *m, uint32_t threads, struct sensitivity *s, size_t count) {
    int32_t ids[WINDOWS * TOKENS];
    struct err err = {0};
    make_ids(m, ids);
    const struct sensitivity_options options = {.threads = threads, .text = {ids, WINDOWS, TOKENS}};
    if (sensitivity_run(m, &options, s, count, &err) != ST_OK) fail_msg("%s", err.text);
}

static void test_every_matrix_is_measured(void **state) {
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        struct loaded_model one, two;
        struct sensitivity s[MATRICES_MAX], other[MATRICES_MAX];
        open_model(&one, models[i], 1);
        open_model(&two, models[i], 2);
        size_t count = list_matrices(&one, s);
        assert_true(count > 8);
        measure(&one, 1, s, count);
        memcpy(other, s, sizeof(s));
        measure(&two, 2, other + 1, count - 1);
        for (size_t k = 0; k < count; k++) {
            if (!s[k].is_measured || !(s[k].kl > 0 && s[k].kl < 10))
                fail_msg("%s: %.*s: measured %d, KL %g", models[i], STR_ARG(s[k].name),
                         s[k].is_measured, s[k].kl);
            assert_true(s[k].kl == other[k].kl);
        }
        loaded_model_close(&two);
        loaded_model_close(&one);
    }
}

static void test_tensors_outside_of_the_forward_pass_are_not_measured(void **state) {
    (void)state;
    struct loaded_model m;
    struct sensitivity s = {.name = STR("blk.0.none.weight"), .probe = DTYPE_Q4_0};
    open_model(&m, models[0], 1);
    measure(&m, 1, &s, 1);
    assert_false(s.is_measured);
    s.name = STR("blk.0.attn_norm.weight");
    measure(&m, 1, &s, 1);
    assert_false(s.is_measured);
    loaded_model_close(&m);
}

static void test_layers_of_a_copy_lose_nothing(void **state) {
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        struct loaded_model a, b;
        int32_t ids[WINDOWS * TOKENS];
        struct layer_kl k = {.layers = NULL};
        struct err err = {0};
        open_model(&a, models[i], 1);
        open_model(&b, models[i], 1);
        make_ids(&a, ids);
        const struct layer_kl_options options = {
            .kv_type = KV_F16, .threads = 1, .text = {ids, WINDOWS, TOKENS}};
        if (layer_kl_measure(&k, &a, &b, &options, &err) != ST_OK) fail_msg("%s", err.text);
        assert_int_equal(k.layer_count, a.model->hp.layers);
        assert_int_equal(k.is_tied, a.model->head == &a.model->token_embd);
        for (uint32_t l = 0; l < k.layer_count; l++) assert_true(k.layers[l] == 0);
        assert_true(k.embedding_kl == 0 && k.output_kl == 0);
        layer_kl_deinit(&k);
        loaded_model_close(&b);
        loaded_model_close(&a);
    }
}

static void test_layers_of_other_shapes_are_refused(void **state) {
    (void)state;
    struct loaded_model a, b;
    const int32_t ids[TOKENS] = {0};
    struct layer_kl k = {.layers = NULL};
    struct err err = {0};
    const struct layer_kl_options options = {.threads = 1, .text = {ids, 1, TOKENS}};
    open_model(&a, models[0], 1);
    open_model(&b, models[4], 1);
    assert_int_equal(layer_kl_measure(&k, &a, &b, &options, &err), ST_BAD);
    assert_non_null(strstr(err.text, "the architectures differ"));
    loaded_model_close(&b);
    open_model(&b, MODELS "llama-q4_k/model.gguf", 1);
    assert_int_equal(layer_kl_measure(&k, &a, &b, &options, &err), ST_BAD);
    assert_non_null(strstr(err.text, "the models differ in"));
    layer_kl_deinit(&k);
    loaded_model_close(&b);
    loaded_model_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_matrix_is_measured),
        cmocka_unit_test(test_tensors_outside_of_the_forward_pass_are_not_measured),
        cmocka_unit_test(test_layers_of_a_copy_lose_nothing),
        cmocka_unit_test(test_layers_of_other_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
