/* Goal:   measuring how much each matrix and each layer matters survives the failure of any one
 *         allocation: ST_NOMEM with a sentence, nothing lost, and the model is as it was.
 * Method: two tiny models stay open; the measurement runs with the first allocation failing, then
 *         the second, until no more are needed. Afterwards it gives what it gave before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/layer_kl.h"
#include "cli/sensitivity_run.h"
#include "engine/loaded_model.h"
#include "fault/fail_alloc.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { ALLOCATIONS_MAX = 100000, TOKENS = 16, WINDOWS = 2 };

static const int32_t ids[WINDOWS * TOKENS] = {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41};
static struct loaded_model a, b;

static void open_model(struct loaded_model *m, const char *path) {
    struct err err = {0};
    const struct loaded_model_options o = {.threads = 1, .ctx_tokens = 64, .isa = "portable"};
    if (loaded_model_open(m, path, &o, &err) != ST_OK) fail_msg("%s", err.text);
}

static enum status measure_matrix(double *kl, struct err *err) {
    const struct sensitivity_options options = {.threads = 1, .text = {ids, WINDOWS, TOKENS}};
    struct sensitivity s = {.name = STR("blk.1.ffn_up.weight"), .probe = DTYPE_Q4_0};
    TRY(sensitivity_run(&a, &options, &s, 1, err));
    assert_true(s.is_measured);
    *kl = s.kl;
    return ST_OK;
}

static enum status measure_layers(double *kl, struct err *err) {
    const struct layer_kl_options options = {
        .kv_type = KV_F32, .threads = 1, .text = {ids, WINDOWS, TOKENS}};
    struct layer_kl k = {.layers = NULL};
    enum status st = layer_kl_measure(&k, &a, &b, &options, err);
    if (st == ST_OK) *kl = k.layers[1];
    layer_kl_deinit(&k);
    return st;
}

static void fail_each(enum status (*measure)(double *kl, struct err *err)) {
    double before = 0, after = 0;
    struct err err = {0};
    long n = 0;
    if (measure(&before, &err) != ST_OK) fail_msg("%s", err.text);
    assert_true(before > 0);
    for (bool has_failed = true; has_failed; n++) {
        struct err why = {0};
        fail_alloc_at(n);
        enum status st = measure(&after, &why);
        has_failed = fail_alloc_stop();
        if (has_failed && (st != ST_NOMEM || !why.text[0]))
            fail_msg("allocation %ld: %s, \"%s\"", n, status_name(st), why.text);
        assert_true(has_failed || st == ST_OK);
    }
    assert_in_range(n, 20, ALLOCATIONS_MAX);
    assert_true(after == before);
}

static void test_any_allocation_may_fail_while_a_matrix_is_measured(void **state) {
    (void)state;
    fail_each(measure_matrix);
}

static void test_any_allocation_may_fail_while_layers_are_measured(void **state) {
    (void)state;
    fail_each(measure_layers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_allocation_may_fail_while_a_matrix_is_measured),
        cmocka_unit_test(test_any_allocation_may_fail_while_layers_are_measured),
    };
    open_model(&a, MODELS "llama/model.gguf");
    open_model(&b, MODELS "llama/model.gguf");
    b.model->layers[1].mat[MAT_UP] = b.model->layers[0].mat[MAT_UP]; /* what B has lost */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loaded_model_close(&b);
    loaded_model_close(&a);
    return failed;
}
