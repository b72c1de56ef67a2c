/* Goal:   a draft head computes what its layout says, from the hidden states of its target.
 * Method: each head under tests/golden/heads reads the hidden states that the golden model "llama"
 *         keeps while it makes logits, in steps of one, five and all rows, and its logits and its
 *         own hidden states are held against goldens that numpy made (tools/make_head_golden.py).
 *         Then: what is kept changes no bit; heads that do not fit their target are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "engine/loaded_model.h"
#include "golden/golden_file.h"
#include "graph/step.h"

#define GOLDEN TEST_SOURCE_DIR "/golden/"

enum { CTX = 128, BLOCKS_MAX = 32 };

/* A model, or a head, with one sequence. */
struct runner {
    struct loaded_model loaded;
    struct kv_memory kv;
    struct pass pass;
    struct step *step;
};

static struct loaded_model_options options_of(const struct model *head_of, const char *isa) {
    return (struct loaded_model_options){.threads = 2,
                                         .ctx_tokens = CTX,
                                         .device = "cpu",
                                         .isa = isa,
                                         .tokens_only = true,
                                         .head_of = head_of};
}

static void runner_open(struct runner *r, const char *path, enum model_goal goal,
                        const struct loaded_model_options *options) {
    struct err err = {0};
    const struct model *head_of = options->head_of;
    if (loaded_model_open(&r->loaded, path, options, &err) != ST_OK) fail_msg("%s", err.text);
    uint32_t block_tokens = r->loaded.device.kv_block_tokens;
    struct kv_memory_options kv = {.type = KV_F32, .block_tokens = block_tokens};
    struct pass_options pass = {.goal = goal,
                                .sizes = {.rows_max = CTX,
                                          .outputs_max = CTX,
                                          .seqs_max = 1,
                                          .group_count = 1,
                                          .blocks_max = (CTX + block_tokens - 1) / block_tokens,
                                          .input_floats = head_of ? head_of->hp.dim : 0},
                                .kv = &r->kv};
    kv.block_counts[0] = pass.sizes.blocks_max;
    assert_int_equal(kv_memory_create(&r->loaded, &kv, &r->kv, &err), ST_OK);
    assert_int_equal(r->kv.group_count, 1);
    if (pass_create(&r->loaded, &pass, &r->pass, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(step_create(&r->step, &r->loaded.device, &pass.sizes, &err), ST_OK);
    for (uint32_t b = 0; b < pass.sizes.blocks_max; b++) step_blocks(r->step, 0, 0)[b] = b;
}

static void runner_close(struct runner *r) {
    step_destroy(r->step, &r->loaded.device);
    pass_destroy(&r->loaded, &r->pass);
    kv_memory_destroy(&r->loaded, &r->kv);
    loaded_model_close(&r->loaded);
}

/* Run tokens [first, first + count) of the prompt; every row is an output. `hidden`: the inputs of
 * a head for the whole prompt, else NULL. */
static struct device_result run_rows(struct runner *r, const struct prompt *p, uint32_t first,
                                     uint32_t count, const float *hidden) {
    struct err err = {0};
    struct device_result out;
    struct step *s = r->step;
    step_clear(s);
    s->hands_over = true;
    s->seq_count = 1;
    s->seqs[0] = (struct step_seq){.first_row = 0, .row_count = count};
    s->row_count = s->output_count = count;
    for (uint32_t i = 0; i < count; i++) {
        s->token[i] = p->ids[first + i];
        s->pos[i] = (int32_t)(first + i);
        s->seq[i] = 0;
        s->output_row[i] = i;
    }
    size_t floats = s->sizes.input_floats;
    if (hidden) memcpy(s->input, hidden + first * floats, count * floats * sizeof(float));
    if (pass_run(&r->loaded, &r->pass, s, &out, &err) != ST_OK) fail_msg("%s", err.text);
    return out;
}

static void compare(const char *what, const struct prompt *p, uint32_t row, const float *got) {
    enum { PER_MILLE = 1 }; /* as test_golden_logits.c allows for weights in f32 */
    for (uint32_t i = 0; i < p->width; i++) {
        float want = p->values[(size_t)row * p->width + i];
        if (!(fabsf(got[i] - want) <= PER_MILLE / 1000.0f))
            fail_msg("%s, row %u, column %u: %g, expected %g", what, row, i, (double)got[i],
                     (double)want);
    }
}

/* Rows of a result against the goldens of logits, hidden states or both. */
static void compare_result(const struct device_result *out, uint32_t first,
                           const struct prompt *logits, const struct prompt *hidden) {
    for (uint32_t r = 0; r < out->output_count; r++) {
        if (logits) compare("logits", logits, first + r, out->rows + r * out->row_floats);
        compare("hidden", hidden, first + r, out->kept + r * out->kept_floats);
    }
}

static void run_prompt(struct runner *target, struct runner *head, const struct prompt goldens[3],
                       uint32_t chunk) {
    const struct prompt *whole = &goldens[0];
    uint32_t dim = whole->width;
    float *hidden = mem_alloc_array((size_t)whole->tokens * dim, sizeof(float));
    assert_non_null(hidden);
    for (uint32_t at = 0, count; at < whole->tokens; at += count) {
        count = whole->tokens - at < chunk ? whole->tokens - at : chunk;
        struct device_result out = run_rows(target, whole, at, count, NULL);
        compare_result(&out, at, NULL, whole);
        for (uint32_t r = 0; r < count; r++)
            memcpy(hidden + (size_t)(at + r) * dim, out.kept + r * out.kept_floats,
                   dim * sizeof(float));
    }
    for (uint32_t at = 0, count; at < goldens[1].tokens; at += count) {
        count = goldens[1].tokens - at < chunk ? goldens[1].tokens - at : chunk;
        struct device_result out = run_rows(head, &goldens[1], at, count, hidden);
        assert_int_equal(out.output_count, count);
        compare_result(&out, at, &goldens[1], &goldens[2]);
    }
    mem_free(hidden);
}

static void run_head(const char *name, const char *isa) {
    static const char *const files[3] = {"goldens-target.bin", "goldens.bin", "goldens-hidden.bin"};
    struct golden g[3];
    struct runner target, head;
    char path[4096];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), GOLDEN "heads/%s/%s", name, files[i]);
        if (!golden_read(path, &g[i])) fail_msg("%s is missing", path);
    }
    struct loaded_model_options options = options_of(NULL, isa);
    runner_open(&target, GOLDEN "models/llama", GOAL_LOGITS_AND_HIDDEN, &options);
    snprintf(path, sizeof(path), GOLDEN "heads/%s", name);
    options.head_of = target.loaded.model;
    runner_open(&head, path, GOAL_LOGITS_AND_HIDDEN, &options);
    static const uint32_t chunks[] = {CTX, 5, 1};
    for (int c = 0; c < 3; c++)
        for (uint32_t i = 0; i < g[0].count; i++) {
            struct prompt goldens[3] = {g[0].prompts[i], g[1].prompts[i], g[2].prompts[i]};
            run_prompt(&target, &head, goldens, chunks[c]);
        }
    runner_close(&head);
    runner_close(&target);
    for (int i = 0; i < 3; i++) golden_free(&g[i]);
}

static void test_heads_compute_their_goldens(void **state) {
    (void)state;
    static const char *const names[] = {"eagle", "eagle-deep"}, *const isas[] = {"auto", "ref"};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 2; i++) run_head(names[n], isas[i]);
}

static void same_rows(const float *a, size_t a_floats, const float *b, size_t b_floats,
                      uint32_t rows, uint32_t cols) {
    for (uint32_t r = 0; r < rows; r++)
        assert_memory_equal(a + r * a_floats, b + r * b_floats, cols * sizeof(float));
}

/* Quantised matrices read a quantised row, which the last norm then makes beside its floats. */
static void test_what_is_kept_changes_no_bit(void **state) {
    (void)state;
    enum { ROWS = 9 };
    static const char *const paths[] = {"models/llama", "models/llama-q8_0/model.gguf"};
    int32_t ids[ROWS];
    for (int32_t i = 0; i < ROWS; i++) ids[i] = 3 + 5 * i;
    const struct prompt p = {.tokens = ROWS, .ids = ids};
    for (int i = 0; i < 2; i++) {
        char path[4096];
        struct runner logits, hidden, both;
        struct loaded_model_options options = options_of(NULL, "auto");
        snprintf(path, sizeof(path), GOLDEN "%s", paths[i]);
        runner_open(&logits, path, GOAL_LOGITS, &options);
        runner_open(&hidden, path, GOAL_HIDDEN, &options);
        runner_open(&both, path, GOAL_LOGITS_AND_HIDDEN, &options);
        const struct hparams *hp = &both.loaded.model->hp;
        struct device_result a = run_rows(&logits, &p, 0, ROWS, NULL);
        struct device_result b = run_rows(&hidden, &p, 0, ROWS, NULL);
        struct device_result c = run_rows(&both, &p, 0, ROWS, NULL);
        assert_null(a.kept);
        assert_null(b.kept);
        same_rows(a.rows, a.row_floats, c.rows, c.row_floats, ROWS, hp->vocab);
        same_rows(b.rows, b.row_floats, c.kept, c.kept_floats, ROWS, hp->dim);
        runner_close(&both);
        runner_close(&hidden);
        runner_close(&logits);
    }
}

static void test_heads_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *target, *head, *text;
    } cases[] = {
        {"models/llama", "models/llama", "tensor fc.weight is missing"},
        {"models/llama", "models/llama/model.gguf", "is a GGUF file, expected the folder of a"},
        {"models/llama", "models/gemma2", "draft heads of architecture gemma2 are not supported"},
        {"models/bert", "heads/eagle", "has no output matrix"},
        {"models/llama-q8_0/model.gguf", "heads/eagle", "hidden_size is 32, the target"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[4096];
        struct err err = {0};
        struct loaded_model target, head;
        struct loaded_model_options options = options_of(NULL, "auto");
        options.ctx_tokens = 0;
        snprintf(path, sizeof(path), GOLDEN "%s", cases[i].target);
        if (loaded_model_open(&target, path, &options, &err) != ST_OK) fail_msg("%s", err.text);
        options.head_of = target.model;
        snprintf(path, sizeof(path), GOLDEN "%s", cases[i].head);
        assert_int_equal(loaded_model_open(&head, path, &options, &err), ST_BAD);
        if (!strstr(err.text, cases[i].text)) fail_msg("%s\nlacks: %s", err.text, cases[i].text);
        loaded_model_close(&target);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_compute_their_goldens),
        cmocka_unit_test(test_what_is_kept_changes_no_bit),
        cmocka_unit_test(test_heads_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
