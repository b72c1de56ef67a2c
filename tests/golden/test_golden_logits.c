/* Goal:   every architecture computes what `transformers` computes.
 * Method: each tiny model under tests/golden/models is run as a folder and as a GGUF, each
 *         prompt whole and then in chunks of 5, and its outputs are held against goldens.bin
 *         (format: tests/golden/README.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "golden/golden_file.h"
#include "reference/forward.h"

static const char models_dir[] = TEST_SOURCE_DIR "/golden/models";

/* The largest difference allowed. Quantised models differ because activations are rounded to
 * int8 as well: there the mean square tells, and the single largest only bounds accidents. */
struct tolerance {
    float largest, root_mean_square;
};

/* Folders that other tools quantised. */
static const char *const foreign[] = {"-gptq", "-awq", "-w4a16", "-w8a8", "-int8", "-nf4", "-fp4"};

static struct tolerance tolerance_of(const char *name) {
    if (strstr(name, "f16")) return (struct tolerance){2e-2f, 1e-2f};
    if (strstr(name, "-q") && !strstr(name, "-qwen")) return (struct tolerance){0.7f, 0.09f};
    if (strstr(name, "-iq")) return (struct tolerance){0.7f, 0.09f};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (strstr(name, foreign[i])) return (struct tolerance){0.5f, 0.06f};
    return (struct tolerance){1e-3f, 1e-3f};
}

struct comparison {
    const char *label;
    const struct prompt *prompt;
    struct tolerance allowed;
    double largest, square_sum;
    uint64_t values;
};

static uint32_t best_of(const float *row, uint32_t width) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < width; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static float lead_of(const float *row, uint32_t width) {
    uint32_t best = best_of(row, width);
    float second = -INFINITY;
    for (uint32_t i = 0; i < width; i++)
        if (i != best && row[i] > second) second = row[i];
    return row[best] - second;
}

static enum status compare_rows(void *ctx, uint32_t first, uint32_t count, const float *got) {
    struct comparison *c = ctx;
    uint32_t width = c->prompt->width;
    for (uint32_t r = 0; r < count; r++) {
        const float *want = c->prompt->values + (size_t)(first + r) * width;
        const float *row = got + (size_t)r * width;
        for (uint32_t i = 0; i < width; i++) {
            double diff = fabs((double)row[i] - (double)want[i]);
            if (!(diff <= c->largest)) c->largest = diff; /* keeps NaN */
            c->square_sum += diff * diff;
        }
        c->values += width;
        if (lead_of(want, width) > 2 * c->allowed.largest)
            assert_int_equal(best_of(row, width), best_of(want, width));
    }
    return ST_OK;
}

static void judge(const struct comparison *c) {
    double rms = sqrt(c->square_sum / (double)c->values);
    if (getenv("JITNEY_TEST_VERBOSE"))
        printf("%s: largest %.2e, root mean square %.2e\n", c->label, c->largest, rms);
    if (!(c->largest <= (double)c->allowed.largest) ||
        !(rms <= (double)c->allowed.root_mean_square))
        fail_msg("%s: largest difference %g (allowed %g), root mean square %g (allowed %g)",
                 c->label, c->largest, (double)c->allowed.largest, rms,
                 (double)c->allowed.root_mean_square);
}

/* A GGUF does not say whether its vectors are scaled to unit length: ours always are. */
static void compare_embedding(struct forward *e, struct comparison *c, const float *got) {
    struct prompt scaled = *c->prompt;
    double sum = 0;
    for (uint32_t i = 0; i < scaled.width; i++)
        sum += (double)scaled.values[i] * (double)scaled.values[i];
    bool rescale = model_file_kind(forward_loaded(e)->file) == MODEL_GGUF;
    scaled.values = mem_alloc_array(scaled.width, sizeof(float));
    for (uint32_t i = 0; i < scaled.width; i++)
        scaled.values[i] = c->prompt->values[i] / (rescale ? (float)sqrt(sum) : 1.0f);
    c->prompt = &scaled;
    compare_rows(c, 0, 1, got);
    mem_free(scaled.values);
}

static void run_prompt(struct forward *e, const struct prompt *p, struct comparison *c) {
    struct err err = {0};
    c->prompt = p;
    assert_int_equal(forward_is_encoder(e) ? forward_embed_dims(e) : forward_vocab(e), p->width);
    enum status st;
    if (forward_is_encoder(e)) {
        float *out = mem_alloc_array(p->width, sizeof(float));
        st = forward_embed(e, p->ids, p->tokens, out, &err);
        if (st == ST_OK) compare_embedding(e, c, out);
        mem_free(out);
    } else {
        st = forward_logits(e, p->ids, p->tokens, compare_rows, c, &err);
    }
    if (st != ST_OK) fail_msg("%s: %s", c->label, err.text);
}

/* Every prompt is run with the context at its own length: what depends on the longest possible
 * sequence (longrope, dynamic) then sees what `transformers` saw. */
static void run_form(const char *path, const char *name, const struct golden *g, const char *isa,
                     uint32_t chunk) {
    struct comparison c = {.label = path, .allowed = tolerance_of(name)};
    for (uint32_t i = 0; i < g->count; i++) {
        struct forward_options o = {.threads = 2,
                                    .ctx_tokens = g->prompts[i].tokens,
                                    .chunk_tokens = chunk,
                                    .kv_type = KV_F32,
                                    .isa = isa,
                                    .tokens_only = true};
        struct forward *e = NULL;
        struct err err = {0};
        if (forward_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
        run_prompt(e, &g->prompts[i], &c);
        forward_close(e);
    }
    judge(&c);
}

static void run_golden(const char *dir, const char *name, const char *file, const char *isa) {
    char path[4096];
    struct golden g;
    assert_true(path_join(path, sizeof(path), dir, file));
    if (!golden_read(path, &g)) return;
    assert_true(path_join(path, sizeof(path), dir, "config.json"));
    if (file_exists(path)) {
        run_form(dir, name, &g, isa, 0);
        run_form(dir, name, &g, isa, 5);
    }
    assert_true(path_join(path, sizeof(path), dir, "model.gguf"));
    if (file_exists(path)) run_form(path, name, &g, isa, 0);
    golden_free(&g);
}

static void test_model(void **state) {
    const char *name = *state;
    char dir[4096];
    assert_true(path_join(dir, sizeof(dir), models_dir, name));
    static const char *const files[] = {"goldens.bin", "goldens-short.bin", "goldens-beyond.bin"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        run_golden(dir, name, files[i], "auto");
    run_golden(dir, name, "goldens.bin", "ref");
}

enum { MODELS_MAX = 128 };

int main(void) {
    static struct CMUnitTest tests[MODELS_MAX];
    struct dirent **entries;
    int found = scandir(models_dir, &entries, NULL, alphasort);
    size_t count = 0;
    for (int i = 0; i < found && count < MODELS_MAX; i++) {
        if (entries[i]->d_name[0] == '.') continue;
        tests[count++] = (struct CMUnitTest){.name = entries[i]->d_name,
                                             .test_func = test_model,
                                             .initial_state = entries[i]->d_name};
    }
    if (count == 0) {
        fprintf(stderr, "no models under %s\n", models_dir);
        return 1;
    }
    int failed = _cmocka_run_group_tests("golden_logits", tests, count, NULL, NULL);
    for (int i = 0; i < found; i++) free(entries[i]);
    free(entries);
    return failed;
}
