/* Goal:   layer by layer calibration survives the failure of any one allocation: it says that
 *         memory ran out, or does without, and nothing is lost.
 * Method: a tiny model, the first time with the first allocation failing, then the second, until a
 *         run needs no more; both orders of calls. Leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/layer_calibration_int.h"
#include "fault/fail_alloc.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { WINDOWS = 2, WINDOW = 8, RUNS_MAX = 100000 };

static enum status walk(struct layer_calibration *c, struct err *err) {
    for (uint32_t l = 0; l < layer_calibration_layers(c); l++) {
        struct calibrated_layer *layer;
        const struct layer_input *in;
        TRY(layer_calibration_begin_layer(c, &layer, err));
        do TRY(layer_calibration_next_input(c, &in, err));
        while (in);
        TRY(layer_calibration_end_layer(c, err));
    }
    return ST_OK;
}

static enum status run_once(const char *path, bool at_once, long fail_at, struct err *err) {
    struct text_windows text = {.windows = WINDOWS, .window_tokens = WINDOW};
    const struct layer_calibration_source source = {
        .path = path,
        .text = &text,
        .threads = 2,
        .chunk_tokens = WINDOW,
    };
    const struct layer_calibration_options options = {.at_once = at_once};
    struct layer_calibration *c;
    for (int32_t i = 0; i < WINDOWS * WINDOW; i++)
        assert_int_equal(tokens_push(&text.ids, i % 11), ST_OK);
    fail_alloc_at(fail_at);
    enum status st = layer_calibration_start(&source, &options, &c, err);
    if (st == ST_OK) st = walk(c, err);
    layer_calibration_close(c);
    text_windows_deinit(&text);
    return st;
}

static void check_model(const char *path, bool at_once) {
    int keep = dup(STDERR_FILENO);
    long n = 0, failed = 0;
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (; n < RUNS_MAX; n++) {
        struct err err = {0};
        enum status st = run_once(path, at_once, n, &err);
        bool was_refused = fail_alloc_stop();
        assert_true(st == ST_OK || (was_refused && st == ST_NOMEM && err.text[0]));
        failed += st != ST_OK;
        if (!was_refused) break;
    }
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    assert_true(n < RUNS_MAX);
    assert_true(failed > 50);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    check_model(MODELS "llama/model.gguf", false);
    check_model(MODELS "llama/model.gguf", true);
    check_model(MODELS "llama-gptq-order", false); /* its columns go back into their order */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
