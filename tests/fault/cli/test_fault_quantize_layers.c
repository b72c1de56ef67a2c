/* Goal:   rounding layer by layer into a folder survives the failure of any one allocation: it says
 *         that memory ran out, or does without, and leaves nothing.
 * Method: a tiny model, as a folder and as a GGUF whose rows have another order; with the first
 *         allocation failing, then the 12th, until a run needs no more; all three procedures. Leaks
 *         show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "base/folder_out.h"
#include "cli/layer_calibration_int.h"
#include "cli/quantize_layers.h"
#include "fault/fail_alloc.h"
#include "format/model_file.h"
#include "format/safetensors_writer.h"
#include "quant/folder.h"
#include "translate/translate.h"
#include "unit/format/make_files.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { WINDOWS = 2, WINDOW = 8, RUNS_MAX = 100000, STRIDE = 11 };

struct run {
    const char *path;
    struct model_file *source, *view; /* view: of a GGUF as a folder */
    struct folder_out out;
    struct pack_format format;
    long fail_at;
};

static enum status start(const struct run *r, struct layer_calibration **out, struct err *err) {
    struct text_windows text = {.windows = WINDOWS, .window_tokens = WINDOW};
    const struct layer_calibration_source source = {
        .path = r->path,
        .text = &text,
        .threads = 2,
        .chunk_tokens = WINDOW,
    };
    const struct layer_calibration_options options = {.at_once = r->format.method != PACK_GPTQ};
    for (int32_t i = 0; i < WINDOWS * WINDOW; i++)
        assert_int_equal(tokens_push(&text.ids, i % 11), ST_OK);
    fail_alloc_at(r->fail_at);
    enum status st = layer_calibration_start(&source, &options, out, err);
    text_windows_deinit(&text);
    return st;
}

static enum status run_once(struct run *r, const char *to, struct err *err) {
    struct folder_writer *w = NULL;
    struct layer_calibration *c = NULL;
    const struct folder_options options = {.format = r->format};
    size_t rounded;
    r->out.fd = -1;
    enum status st = start(r, &c, err);
    if (st == ST_OK) st = folder_writer_create(r->view ? r->view : r->source, &options, &w, err);
    if (st == ST_OK) st = folder_out_open(to, &r->out, err);
    if (st == ST_OK) st = folder_writer_begin(w, &r->out, SAFETENSORS_FILE_BYTES_MAX, err);
    const struct layer_rounding rounding = {.calibration = c,
                                            .writer = w,
                                            .source = r->source,
                                            .damp = 0.01,
                                            .smooth = 0.5,
                                            .threads = 2};
    if (st == ST_OK) st = quantize_layers(&rounding, &rounded, err);
    if (st == ST_OK) st = folder_writer_finish(w, err);
    layer_calibration_close(c);
    folder_writer_destroy(w);
    folder_out_close(&r->out);
    return st;
}

static void check_run(struct run *r) {
    char folder[256], to[4096];
    struct err err = {0};
    long failed = 0;
    make_folder(folder, sizeof(folder));
    assert_true(path_join(to, sizeof(to), folder, "new"));
    assert_int_equal(model_file_open(r->path, &r->source, &err), ST_OK);
    if (model_file_kind(r->source) == MODEL_GGUF &&
        translate_to_folder(r->source, &r->view, &err) != ST_OK)
        fail_msg("%s", err.text);
    for (r->fail_at = 0; r->fail_at < RUNS_MAX; r->fail_at += STRIDE) {
        err = (struct err){0};
        enum status st = run_once(r, to, &err);
        bool was_refused = fail_alloc_stop();
        if (st != ST_OK && (!was_refused || st != ST_NOMEM || !err.text[0]))
            fail_msg("allocation %ld: status %d, \"%s\"", r->fail_at, st, err.text);
        failed += st != ST_OK;
        if (!was_refused) break;
    }
    assert_true(r->fail_at < RUNS_MAX);
    assert_true(failed > 10);
    model_file_close(r->view);
    model_file_close(r->source);
    remove_folder(folder); /* it is empty: what was not published is gone */
}

static void test_any_allocation_may_fail(void **state) {
    (void)state;
    int keep = dup(STDERR_FILENO);
    struct run runs[] = {
        {.path = MODELS "llama",
         .format = {PACK_GPTQ, {.bits = 4, .has_no_zero = true}, DTYPE_F16}},
        {.path = MODELS "llama/model.gguf", .format = {PACK_AWQ, {.bits = 4}, DTYPE_F16}},
        {.path = MODELS "llama",
         .format = {PACK_INT8, {.bits = 8, .is_symmetric = true}, DTYPE_F16}},
    };
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) check_run(&runs[i]);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
