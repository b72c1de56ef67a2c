/* Goal:   a model that is calibrated layer by layer computes what the whole model computes, with
 *         the numbers that its matrices have at the time; and refuses what it cannot do.
 * Method: tiny models of every architecture, as folders and as GGUFs. The whole model runs on the
 *         device with a tap: inputs, their second moments and the outputs of the last layer must be
 *         the same bits, because every op is the same and its result depends on its row alone.
 *         Where the file's matrices are quantised, the whole model quantises activations too: there
 *         the outputs are compared within what that costs. */
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
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "cli/layer_calibration_int.h"
#include "engine/loaded_model.h"
#include "format/model_file.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "quant/moments.h"
#include "unit/model/make_model.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { WINDOWS = 3, WINDOW = 21, TOKENS = WINDOWS * WINDOW, CHUNK = 8, LAYERS_MAX = 8, INPUTS = 4 };

/* ---- the whole model ---- */

struct whole {
    struct loaded_model loaded;
    struct kv_memory kv;
    struct tape *tape;
    struct device_program *program;
    struct step *step;
    bool is_plain; /* no matrix is quantised */
    struct moments *moments[LAYERS_MAX][INPUTS];
    float *outputs; /* [TOKENS][dim] of the last layer */
};

static int32_t token_of(uint32_t i, uint32_t vocab) {
    return (int32_t)((i * 2654435761u >> 7) % (vocab < 256 ? vocab : 256));
}

static int input_of(enum mat mat) {
    switch (mat) {
    case MAT_Q:
    case MAT_QKV:
        return 0;
    case MAT_O:
        return 1;
    case MAT_GATE:
    case MAT_GATE_UP:
        return 2;
    case MAT_DOWN:
        return 3;
    default:
        return -1;
    }
}

static void take_input(void *ctx, const struct device_input *input) {
    struct whole *w = ctx;
    struct err err;
    if (!w->is_plain) return;
    for (uint32_t l = 0; l < w->loaded.model->hp.layers; l++) {
        const struct weight *first = w->loaded.model->layers[l].mat;
        if (input->weight < first || input->weight >= first + MAT_COUNT) continue;
        int i = input_of((enum mat)(input->weight - first));
        if (i < 0) return;
        if (!w->moments[l][i])
            assert_int_equal(moments_create(input->weight->cols, &w->moments[l][i], &err), ST_OK);
        assert_int_equal(input->count, input->weight->cols);
        moments_add(w->moments[l][i], input->x, 1);
    }
}

static void build_whole(struct whole *w, struct err *err) {
    const struct model *m = w->loaded.model;
    const struct tape_sizes sizes = {WINDOW, WINDOW, 1};
    assert_int_equal(tape_create(&w->tape), ST_OK);
    struct flow f = flow_begin(m, w->tape);
    for (uint32_t l = 0; l < m->hp.layers; l++) m->arch->build_layer(&f, l);
    tape_set_output(w->tape, f.x.value);
    assert_int_equal(tape_finish(w->tape, &sizes, err), ST_OK);
}

static void make_whole(struct whole *w, struct err *err) {
    const struct device *d = &w->loaded.device;
    uint32_t blocks = (WINDOW + d->kv_block_tokens - 1) / d->kv_block_tokens;
    struct kv_memory_options kv = {.type = KV_F32, .block_tokens = d->kv_block_tokens};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) kv.block_counts[g] = blocks;
    assert_int_equal(kv_memory_create(&w->loaded, &kv, &w->kv, err), ST_OK);
    build_whole(w, err);
    const struct step_sizes sizes = {.rows_max = WINDOW,
                                     .outputs_max = WINDOW,
                                     .seqs_max = 1,
                                     .group_count = w->kv.group_count,
                                     .blocks_max = blocks};
    const struct program_options program = {
        .tape = w->tape, .kv = w->kv.spaces, .kv_group_count = w->kv.group_count, .sizes = sizes};
    assert_int_equal(d->program_create(d->self, &program, &w->program, err), ST_OK);
    assert_int_equal(step_create(&w->step, d, &sizes, err), ST_OK);
    for (uint32_t g = 0; g < w->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks; b++) step_blocks(w->step, 0, g)[b] = b;
}

static void run_whole_window(struct whole *w, uint32_t window) {
    const struct device *d = &w->loaded.device;
    struct step *s = w->step;
    struct device_result out;
    struct err err;
    uint32_t dim = w->loaded.model->hp.dim;
    step_clear(s);
    s->hands_over = true;
    s->row_count = s->output_count = WINDOW;
    s->seq_count = 1;
    s->seqs[0] = (struct step_seq){0, WINDOW};
    for (uint32_t i = 0; i < WINDOW; i++) {
        s->token[i] = token_of(window * WINDOW + i, w->loaded.model->hp.vocab);
        s->pos[i] = (int32_t)i;
        s->seq[i] = 0;
        s->output_row[i] = i;
    }
    assert_int_equal(d->submit(d->self, w->program, s, &err), ST_OK);
    assert_int_equal(d->collect(d->self, w->program, &out, &err), ST_OK);
    for (uint32_t i = 0; i < WINDOW; i++)
        memcpy(w->outputs + ((size_t)window * WINDOW + i) * dim, out.rows + i * out.row_floats,
               dim * sizeof(float));
}

static void run_whole(struct whole *w, const char *path) {
    const struct loaded_model_options options = {
        .threads = 2, .ctx_tokens = WINDOW, .device = "cpu", .tokens_only = true};
    struct err err = {0};
    *w = (struct whole){.is_plain = true};
    if (loaded_model_open(&w->loaded, path, &options, &err) != ST_OK) fail_msg("%s", err.text);
    const struct model *m = w->loaded.model;
    assert_true(m->hp.layers <= LAYERS_MAX);
    for (uint32_t l = 0; l < m->hp.layers; l++)
        for (int i = 0; i < MAT_COUNT; i++)
            if (m->layers[l].mat[i].data && dtype_is_quantised(m->layers[l].mat[i].type))
                w->is_plain = false;
    make_whole(w, &err);
    w->outputs = mem_alloc_array((size_t)TOKENS * m->hp.dim, sizeof(float));
    assert_non_null(w->outputs);
    w->loaded.device.profiler->tap(w->loaded.device.self, take_input, w);
    for (uint32_t i = 0; i < WINDOWS; i++) run_whole_window(w, i);
    for (uint32_t l = 0; l < LAYERS_MAX; l++)
        for (int i = 0; i < INPUTS; i++)
            if (w->moments[l][i]) moments_end(w->moments[l][i]);
}

static void close_whole(struct whole *w) {
    const struct device *d = &w->loaded.device;
    for (uint32_t l = 0; l < LAYERS_MAX; l++)
        for (int i = 0; i < INPUTS; i++) moments_destroy(w->moments[l][i]);
    mem_free(w->outputs);
    step_destroy(w->step, d);
    d->program_destroy(d->self, w->program);
    tape_destroy(w->tape);
    kv_memory_destroy(&w->loaded, &w->kv);
    loaded_model_close(&w->loaded);
}

/* ---- layer by layer ---- */

/* 1: it cannot be opened, which is for the calibration to say. */
static uint32_t vocab_of(const char *path) {
    struct model_file *f = NULL;
    struct model *m = NULL;
    struct err err;
    uint32_t vocab = 1;
    const struct model_options options = {.ctx_tokens = WINDOW};
    if (model_file_open(path, &f, &err) == ST_OK && model_open(f, &options, &m, &err) == ST_OK)
        vocab = m->hp.vocab;
    model_close(m);
    model_file_close(f);
    return vocab;
}

struct how {
    bool at_once;
    uint32_t threads;
    int32_t token; /* instead of the first one; -1: none */
};

/* Standard error gets a line for each model: not here. */
static enum status start(const char *path, struct how how, struct layer_calibration **out,
                         struct err *err) {
    struct text_windows text = {.windows = WINDOWS, .window_tokens = WINDOW};
    const struct layer_calibration_source source = {
        .path = path,
        .text = &text,
        .threads = how.threads,
        .chunk_tokens = CHUNK,
    };
    const struct layer_calibration_options options = {.at_once = how.at_once};
    uint32_t vocab = vocab_of(path);
    for (uint32_t i = 0; i < TOKENS; i++)
        assert_int_equal(tokens_push(&text.ids, token_of(i, vocab)), ST_OK);
    if (how.token >= 0) text.ids.ids[0] = how.token;
    int keep = dup(STDERR_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    enum status st = layer_calibration_start(&source, &options, out, err);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    text_windows_deinit(&text);
    return st;
}

static struct layer_calibration *start_well(const char *path, struct how how) {
    struct layer_calibration *c;
    struct err err = {0};
    if (start(path, how, &c, &err) != ST_OK) fail_msg("%s: %s", path, err.text);
    return c;
}

/* Called at every input; the layer may be changed. */
typedef void visit_fn(void *ctx, struct layer_calibration *c, struct calibrated_layer *layer,
                      uint32_t input, const struct layer_input *in);

static void walk(struct layer_calibration *c, visit_fn *visit, void *ctx) {
    struct err err = {0};
    for (uint32_t l = 0; l < layer_calibration_layers(c); l++) {
        struct calibrated_layer *layer;
        const struct layer_input *in;
        assert_int_equal(layer_calibration_begin_layer(c, &layer, &err), ST_OK);
        assert_int_equal(layer->index, l);
        uint32_t i = 0;
        for (;; i++) {
            assert_int_equal(layer_calibration_next_input(c, &in, &err), ST_OK);
            if (!in) break;
            if (visit) visit(ctx, c, layer, i, in);
        }
        assert_int_equal(i, INPUTS);
        assert_int_equal(layer_calibration_end_layer(c, &err), ST_OK);
    }
}

static void assert_same_moments(const struct moments *a, const struct moments *b) {
    size_t cols = a->cols;
    assert_int_equal(a->cols, b->cols);
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->products, b->products, cols * cols * sizeof(a->products[0]));
    assert_memory_equal(a->abs_sum, b->abs_sum, cols * sizeof(a->abs_sum[0]));
    assert_memory_equal(a->abs_max, b->abs_max, cols * sizeof(a->abs_max[0]));
}

static void visit_same(void *ctx, struct layer_calibration *c, struct calibrated_layer *layer,
                       uint32_t input, const struct layer_input *in) {
    const struct whole *w = ctx;
    (void)c;
    for (uint32_t k = 0; k < in->count; k++) {
        const struct layer_matrix *m = in->matrices[k];
        assert_int_equal(m->cols, in->moments->cols);
        assert_true(m >= layer->matrices && m < layer->matrices + layer->matrix_count);
    }
    assert_int_equal(in->moments->rows, TOKENS);
    if (w->is_plain) assert_same_moments(in->moments, w->moments[layer->index][input]);
}

/* Activations of 8 bits cost some per cent; a matrix in a wrong order costs all. */
static void assert_near(const float *got, const float *want, size_t count, double most) {
    double diff = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        diff += d * d;
        size += (double)want[i] * (double)want[i];
    }
    if (!(sqrt(diff / size) <= most)) fail_msg("%g of the outputs differ", sqrt(diff / size));
}

static void check_form(const char *path) {
    struct whole w;
    run_whole(&w, path);
    size_t floats = (size_t)TOKENS * w.loaded.model->hp.dim;
    for (int at_once = 0; at_once < 2; at_once++) {
        struct layer_calibration *c = start_well(path, (struct how){at_once, 2, -1});
        walk(c, visit_same, &w);
        if (w.is_plain)
            assert_memory_equal(layer_calibration_states(c), w.outputs, floats * sizeof(float));
        else
            assert_near(layer_calibration_states(c), w.outputs, floats, 0.03);
        layer_calibration_close(c);
    }
    close_whole(&w);
}

static void test_layers_compute_what_the_whole_model_does(void **state) {
    (void)state;
    static const char *const refused[] = {"bert", "bert-cls", "mixtral", "qwen3moe",
                                          "qwen3moe-mixed"};
    struct dirent **entries;
    int found = scandir(MODELS, &entries, NULL, alphasort), forms = 0;
    for (int i = 0; i < found; i++) {
        const char *name = entries[i]->d_name;
        char path[4096];
        bool skip = name[0] == '.';
        for (size_t k = 0; k < sizeof(refused) / sizeof(refused[0]); k++)
            skip = skip || strcmp(name, refused[k]) == 0;
        snprintf(path, sizeof(path), MODELS "%s/config.json", name);
        if (!skip && file_exists(path)) {
            snprintf(path, sizeof(path), MODELS "%s", name);
            check_form(path);
            forms++;
        }
        snprintf(path, sizeof(path), MODELS "%s/model.gguf", name);
        if (!skip && file_exists(path)) {
            check_form(path);
            forms++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(forms > 60);
}

/* ---- changed numbers ---- */

struct record {
    double trace[LAYERS_MAX][INPUTS]; /* of the moments */
    int change_layer, change_input;   /* its matrices are doubled; -1: none */
    enum mat kind;                    /* ... if they are of this kind */
};

static void visit_changing(void *ctx, struct layer_calibration *c, struct calibrated_layer *layer,
                           uint32_t input, const struct layer_input *in) {
    struct record *r = ctx;
    double sum = 0;
    (void)c;
    for (size_t i = 0; i < in->moments->cols; i++)
        sum += (double)in->moments->products[i * in->moments->cols + i];
    r->trace[layer->index][input] = sum;
    if ((int)layer->index != r->change_layer || (int)input != r->change_input) return;
    for (uint32_t k = 0; k < in->count; k++) {
        struct layer_matrix *m = in->matrices[k];
        if (m->kind != r->kind) continue;
        for (size_t i = 0; i < (size_t)m->rows * m->cols; i++) m->w[i] *= 2;
    }
}

/* Input `first` of layer 0 and all later ones differ, those before do not. */
static void check_change(enum mat kind, int input, bool at_once, uint32_t first) {
    struct record same = {.change_layer = -1};
    struct record changed = {.change_layer = 0, .change_input = input, .kind = kind};
    struct record *both[] = {&same, &changed};
    for (int i = 0; i < 2; i++) {
        struct layer_calibration *c = start_well(MODELS "llama", (struct how){at_once, 2, -1});
        walk(c, visit_changing, both[i]);
        layer_calibration_close(c);
    }
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < INPUTS; i++) {
            bool is_before = l == 0 && i < first;
            assert_true((same.trace[l][i] == changed.trace[l][i]) == is_before);
        }
}

static void test_a_changed_matrix_changes_what_follows(void **state) {
    (void)state;
    check_change(MAT_Q, 0, false, 1);
    check_change(MAT_V, 0, false, 1);
    check_change(MAT_O, 1, false, 2);
    check_change(MAT_UP, 2, false, 3);
    check_change(MAT_DOWN, 3, false, INPUTS);
}

static void test_at_once_a_changed_matrix_changes_the_next_layer(void **state) {
    (void)state;
    check_change(MAT_Q, 0, true, INPUTS);
    check_change(MAT_DOWN, 3, true, INPUTS);
}

/* ---- scales ---- */

struct scaling {
    uint64_t seed;
    uint32_t count; /* inputs that were scaled */
};

static void visit_scaling(void *ctx, struct layer_calibration *c, struct calibrated_layer *layer,
                          uint32_t input, const struct layer_input *in) {
    struct scaling *s = ctx;
    float scales[1024];
    (void)layer;
    assert_int_equal(in->is_from_norm, input == 0 || input == 2);
    assert_true(in->can_scale || input == 1);
    if (!in->can_scale) return;
    s->seed++;
    float before = in->matrices[0]->w[0];
    for (uint32_t i = 0; i < in->moments->cols; i++)
        scales[i] = 0.5f + 2.0f * (float)rng_unit_at(s->seed, 0, i);
    layer_input_scale(c, in, scales);
    assert_true(in->matrices[0]->w[0] == before * scales[0]);
    s->count++;
}

/* Every number is rounded once or twice more: some units of 2^-24 in each, far below 1e-5. */
static void check_scales(const char *path, bool at_once, uint32_t scaled) {
    struct layer_calibration *plain = start_well(path, (struct how){at_once, 2, -1});
    struct layer_calibration *c = start_well(path, (struct how){at_once, 2, -1});
    struct scaling s = {.seed = 7};
    walk(plain, NULL, NULL);
    walk(c, visit_scaling, &s);
    size_t floats = (size_t)TOKENS * layer_calibration_model(c)->hp.dim;
    assert_near(layer_calibration_states(c), layer_calibration_states(plain), floats, 1e-5);
    assert_int_equal(s.count, scaled * layer_calibration_layers(c));
    layer_calibration_close(plain);
    layer_calibration_close(c);
}

static void test_scales_leave_what_the_layer_computes(void **state) {
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        check_scales(MODELS "llama", at_once, 4); /* as many heads of values as of queries */
        check_scales(MODELS "llama-bias", at_once, 3);
        check_scales(MODELS "phi3", at_once, 3);
        check_scales(MODELS "phi3/model.gguf", at_once, 3);
        check_scales(MODELS "qwen2", at_once, 3);
        check_scales(MODELS "gemma3", at_once, 3);
        check_scales(MODELS "gemma2/model.gguf", at_once, 3);
    }
}

/* A model with as many heads of values as of queries, of random numbers. */
static void write_model(const char *path, const struct spec *spec) {
    struct buf b;
    struct spec_list l = list_of(spec);
    uint64_t bytes = 0;
    buf_init(&b, 1 << 20);
    put_spec(&b, spec);
    for (uint32_t i = 0; i < l.count; i++)
        bytes = (bytes + spec_tensor_bytes(&l.at[i]) + 31) / 32 * 32;
    assert_int_equal(buf_status(&b), ST_OK);
    float *numbers = (float *)(void *)(b.ptr + b.len - bytes);
    for (uint64_t i = 0; i < bytes / sizeof(float); i++)
        numbers[i] = (float)rng_unit_at(11, 0, i) - 0.4f;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.ptr, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    buf_deinit(&b);
}

static void test_scales_go_into_rows_of_values(void **state) {
    (void)state;
    char path[] = "/tmp/test_layer_model_XXXXXX";
    struct spec with_bias = spec_of("qwen2"), fused = spec_of("llama");
    with_bias.kv_heads = fused.kv_heads = 4;
    with_bias.has_qkv_bias = true;
    fused.extra = (struct spec_tensor){"blk.0.attn_qkv.weight", {32, 96}, T_F32};
    close(mkstemp(path));
    for (int at_once = 0; at_once < 2; at_once++) {
        write_model(path, &with_bias);
        check_scales(path, at_once, 4);
        write_model(path, &fused);
        check_scales(path, at_once, 4);
    }
    unlink(path);
}

/* ---- threads ---- */

static void test_threads_change_nothing(void **state) {
    (void)state;
    static const uint32_t threads[] = {1, 2, 5};
    struct record records[3];
    float *outputs = NULL;
    for (int i = 0; i < 3; i++) {
        records[i] = (struct record){.change_layer = 0, .change_input = 1, .kind = MAT_O};
        struct layer_calibration *c =
            start_well(MODELS "llama/model.gguf", (struct how){false, threads[i], -1});
        walk(c, visit_changing, &records[i]);
        size_t bytes = (size_t)TOKENS * layer_calibration_model(c)->hp.dim * sizeof(float);
        if (!outputs) {
            outputs = mem_alloc(bytes);
            memcpy(outputs, layer_calibration_states(c), bytes);
        }
        assert_memory_equal(outputs, layer_calibration_states(c), bytes);
        assert_memory_equal(records[0].trace, records[i].trace, sizeof(records[0].trace));
        layer_calibration_close(c);
    }
    mem_free(outputs);
}

/* ---- refusals ---- */

static void assert_refused(const char *path, struct how how, const char *words) {
    struct layer_calibration *c = NULL;
    struct err err = {0};
    assert_int_equal(start(path, how, &c, &err), ST_BAD);
    assert_null(c);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_models_that_have_no_such_layers_are_refused(void **state) {
    (void)state;
    const struct how how = {false, 1, -1};
    assert_refused(MODELS "bert", how, "is an encoder");
    assert_refused(MODELS "mixtral", how, "has experts");
    assert_refused(MODELS "qwen3moe/model.gguf", how, "has experts");
    assert_refused(MODELS "../heads/eagle", how, "norm.weight is missing");
    assert_refused(MODELS "llama", (struct how){false, 1, 288}, "vocabulary has 0 to 287");
}

static char text_path[] = "/tmp/test_layer_calibration_XXXXXX";

/* The command line as `jitney quantize` has it, with a text of so many bytes. */
static enum status open_with_text(size_t bytes, struct layer_calibration **out, struct err *err) {
    char *argv[] = {MODELS "llama", "out", "--type", "Q4_0", "--ctx", "8", "--threads", "1"};
    const struct layer_calibration_options options = {.at_once = false};
    struct text_windows text;
    struct args *args;
    FILE *f = fopen(text_path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++) fputc('a' + (int)(i * i % 26), f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(args_parse(command_find("quantize"), 8, argv, &args, err), EXIT_FINE);
    enum status st = text_windows_read_calibration(args, text_path, MODELS "llama", &text, err);
    if (st == ST_OK) st = layer_calibration_open(args, MODELS "llama", &text, &options, out, err);
    text_windows_deinit(&text);
    args_destroy(args);
    return st;
}

static void test_a_text_is_cut_into_windows(void **state) {
    (void)state;
    struct layer_calibration *c = NULL;
    struct err err = {0};
    int fd = mkstemp(text_path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(open_with_text(20, &c, &err), ST_BAD);
    assert_null(c);
    assert_non_null(strstr(err.text, "at least 64 are needed (8 windows of 8)"));
    assert_int_equal(open_with_text(2000, &c, &err), ST_OK);
    assert_int_equal(layer_calibration_tokens(c) % 8, 0);
    assert_true(layer_calibration_tokens(c) >= 64);
    assert_int_equal(layer_calibration_layers(c), 2);
    walk(c, NULL, NULL);
    layer_calibration_close(c);
    unlink(text_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_compute_what_the_whole_model_does),
        cmocka_unit_test(test_a_changed_matrix_changes_what_follows),
        cmocka_unit_test(test_at_once_a_changed_matrix_changes_the_next_layer),
        cmocka_unit_test(test_scales_leave_what_the_layer_computes),
        cmocka_unit_test(test_scales_go_into_rows_of_values),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_models_that_have_no_such_layers_are_refused),
        cmocka_unit_test(test_a_text_is_cut_into_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
