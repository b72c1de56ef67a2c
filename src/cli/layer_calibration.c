/* cli/layer_calibration.c - see cli/layer_calibration.h for the contract.
 *
 * The hidden states of all windows go through a layer part by part (cli/layer_parts.h): each part
 * of all windows, then the caller's turn. With `at_once` a first run on copies gathers the moments
 * of all inputs, window by window, and end_layer runs the layer a second time.
 */
#include "cli/layer_calibration_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/layer_parts.h"
#include "cli/layer_weights.h"
#include "format/model_file.h"
#include "kernels/devices.h"
#include "model/arch.h"
#include "quant/moments.h"

struct layer_calibration {
    struct layer_calibration_options options;
    struct model_file *file;
    uint32_t windows, window_tokens;
    struct model *model;
    struct device device;
    bool device_open;
    uint32_t chunk_tokens;
    uint32_t cols_max; /* of the widest input */
    float *x;          /* [tokens][dim] what the layer reads; part by part: its state */
    float *in;         /* [tokens, at once of one window][cols_max] the last input */
    float *window_x;   /* at once: [window_tokens][dim] */
    struct layer_weights weights;
    struct layer_parts *parts; /* NULL: between layers */
    struct moments *moments[LAYER_INPUTS_MAX];
    struct layer_input inputs[LAYER_INPUTS_MAX];
    uint32_t input_count;
    uint32_t next_layer, next_input;
    uint32_t next_part; /* the first that the states have not gone through */
};

/* ---- opening ---- */

static enum status check_model(const struct model *m, struct err *err) {
    const char *path = model_file_path(m->file);
    if (model_is_encoder(m))
        return err_set(
            err, ST_BAD,
            "%s: is an encoder (%s), which cannot be calibrated layer by layer; expected "
            "a model that generates text",
            path, m->arch->name);
    for (uint32_t l = 0; l < m->hp.layers; l++)
        if (m->layers[l].mat[MAT_ROUTER].data)
            return err_set(err, ST_BAD,
                           "%s: layer %u has experts, which cannot be calibrated layer by layer; "
                           "expected a model without experts",
                           path, l);
    return ST_OK;
}

static enum status check_tokens(const struct model *m, const struct text_windows *text,
                                struct err *err) {
    uint32_t vocab = m->hp.vocab, count = text_windows_tokens(text);
    for (uint32_t i = 0; i < count; i++)
        if (text->ids.ids[i] < 0 || (uint32_t)text->ids.ids[i] >= vocab)
            return err_set(err, ST_BAD,
                           "token %u of the text is %d, the model's vocabulary has 0 "
                           "to %u",
                           i, text->ids.ids[i], vocab - 1);
    return ST_OK;
}

/* What inputs of products have at most, and the bytes of the moments of one or of all of them. */
static uint32_t widest_input(const struct hparams *hp) {
    uint32_t heads = hp->heads * hp->head_dim, most = hp->dim > heads ? hp->dim : heads;
    return hp->ffn > most ? hp->ffn : most;
}

static uint64_t moment_bytes(uint64_t cols) { return 4 * cols * cols; }

static uint64_t needed_bytes(const struct layer_calibration *c) {
    const struct hparams *hp = &c->model->hp;
    uint64_t tokens = layer_calibration_tokens(c), heads = (uint64_t)hp->heads * hp->head_dim;
    uint64_t window = c->window_tokens, bytes = tokens * hp->dim * sizeof(float);
    bytes += (c->options.at_once ? window : tokens) * c->cols_max * sizeof(float);
    if (c->options.at_once)
        bytes += window * hp->dim * sizeof(float) + 2 * moment_bytes(hp->dim) +
                 moment_bytes(heads) + moment_bytes(hp->ffn);
    else
        bytes += moment_bytes(c->cols_max);
    return bytes + 2 * layer_weights_elems(c->model) * sizeof(float) +
           2 * window * hp->kv_heads * hp->head_dim * sizeof(float);
}

static void say_needs(const struct layer_calibration *c) {
    char size[SIZE_TEXT_BYTES], line[256];
    snprintf(line, sizeof(line),
             "jitney: calibration runs the model on the CPU, layer by layer; it needs %s of memory "
             "for the states of %u tokens, one layer and its second moments",
             size_text(needed_bytes(c), size), layer_calibration_tokens(c));
    note_write(line);
}

static enum status make_states(struct layer_calibration *c, struct err *err) {
    size_t tokens = layer_calibration_tokens(c), window = c->window_tokens, x, in;
    size_t rows = c->options.at_once ? window : tokens;
    if (size_mul(tokens, c->model->hp.dim, &x)) c->x = mem_alloc_array(x, sizeof(*c->x));
    if (size_mul(rows, c->cols_max, &in)) c->in = mem_alloc_array(in, sizeof(*c->in));
    if (c->options.at_once)
        c->window_x = mem_alloc_array(window * c->model->hp.dim, sizeof(*c->window_x));
    if (c->x && c->in && (c->window_x || !c->options.at_once)) return ST_OK;
    return err_set(err, ST_NOMEM,
                   "out of memory for the hidden states of %zu tokens; use fewer windows: --chunks",
                   tokens);
}

static struct layer_parts_options parts_options(const struct layer_calibration *c) {
    return (struct layer_parts_options){.device = &c->device,
                                        .model = &c->weights.model,
                                        .window_tokens = c->window_tokens,
                                        .chunk_tokens = c->chunk_tokens,
                                        .in_stride = c->cols_max};
}

static enum status open_device(struct layer_calibration *c,
                               const struct layer_calibration_source *source, struct err *err) {
    const struct device_options options = {.name = "cpu",
                                           .threads = source->threads ? source->threads
                                                                      : pool_default_threads(),
                                           .isa = source->isa};
    TRY(device_open(&options, &c->device, err));
    c->device_open = true;
    CHECK(c->device.update);
    return ST_OK;
}

static enum status start(struct layer_calibration *c, const struct layer_calibration_source *source,
                         struct err *err) {
    TRY(model_file_open(source->path, &c->file, err));
    const struct model_options model = {.ctx_tokens = c->window_tokens};
    TRY(model_open(c->file, &model, &c->model, err));
    TRY(check_model(c->model, err));
    TRY(check_tokens(c->model, source->text, err));
    c->cols_max = widest_input(&c->model->hp);
    say_needs(c);
    TRY(open_device(c, source, err));
    TRY(make_states(c, err));
    layer_weights_init(&c->weights, c->model);
    const struct layer_parts_options options = parts_options(c);
    const struct layer_tokens tokens = {source->text->ids.ids, layer_calibration_tokens(c)};
    return layer_parts_embed(&options, &tokens, c->x, err);
}

enum status layer_calibration_start(const struct layer_calibration_source *source,
                                    const struct layer_calibration_options *options,
                                    struct layer_calibration **out, struct err *err) {
    struct layer_calibration *c = mem_zalloc(sizeof(*c));
    *out = NULL;
    if (!c) return err_set(err, ST_NOMEM, "out of memory for the calibration");
    c->options = *options;
    c->windows = source->text->windows;
    c->window_tokens = source->text->window_tokens;
    c->chunk_tokens = source->chunk_tokens;
    enum status st = start(c, source, err);
    if (st == ST_OK)
        *out = c;
    else
        layer_calibration_close(c);
    return st;
}

enum status layer_calibration_open(const struct args *args, const char *path,
                                   const struct text_windows *text,
                                   const struct layer_calibration_options *options,
                                   struct layer_calibration **out, struct err *err) {
    const struct layer_calibration_source source = {
        .path = path,
        .text = text,
        .isa = args_text(args, "isa"),
        .threads = (uint32_t)args_int(args, "threads"),
        .chunk_tokens = (uint32_t)args_int(args, "chunk"),
    };
    return layer_calibration_start(&source, options, out, err);
}

static void close_layer(struct layer_calibration *c) {
    layer_parts_close(c->parts);
    c->parts = NULL;
    for (uint32_t i = 0; i < LAYER_INPUTS_MAX; i++) {
        moments_destroy(c->moments[i]);
        c->moments[i] = NULL;
    }
}

void layer_calibration_close(struct layer_calibration *c) {
    if (!c) return;
    close_layer(c);
    if (c->device_open) c->device.close(c->device.self);
    layer_weights_deinit(&c->weights);
    mem_free(c->x);
    mem_free(c->in);
    mem_free(c->window_x);
    model_close(c->model);
    model_file_close(c->file);
    mem_free(c);
}

uint32_t layer_calibration_layers(const struct layer_calibration *c) { return c->model->hp.layers; }

uint32_t layer_calibration_tokens(const struct layer_calibration *c) {
    return c->windows * c->window_tokens;
}

const struct model *layer_calibration_model(const struct layer_calibration *c) { return c->model; }

const float *layer_calibration_states(const struct layer_calibration *c) { return c->x; }

/* ---- running ---- */

static float *window_states(const struct layer_calibration *c, uint32_t window) {
    return c->x + (size_t)window * c->window_tokens * c->model->hp.dim;
}

static void show_progress(const struct layer_calibration *c, uint32_t window) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kcalibrating: layer %u of %u, %u of %u windows", c->next_layer + 1,
            c->model->hp.layers, window + 1, c->windows);
    if (c->next_layer + 1 == c->model->hp.layers && window + 1 == c->windows)
        fprintf(stderr, "\r\033[K");
}

/* The matrices of part `i` read their numbers as they are now. */
static enum status update_part(struct layer_calibration *c, uint32_t i, struct err *err) {
    if (i == 0) return ST_OK;
    const struct part_input *in = layer_parts_input(c->parts, i - 1);
    for (uint32_t k = 0; k < in->weight_count; k++) {
        enum mat kind = (enum mat)(in->weights[k] - c->weights.layer.mat);
        TRY(layer_weights_update(&c->device, &c->weights.layer.mat[kind], err));
    }
    return ST_OK;
}

static enum status update_from(struct layer_calibration *c, uint32_t first, struct err *err) {
    layer_weights_update_vectors(&c->weights);
    for (uint32_t i = first; i <= c->input_count; i++) TRY(update_part(c, i, err));
    return ST_OK;
}

static void add_moments(struct layer_calibration *c, uint32_t i, const float *in) {
    for (uint32_t row = 0; row < c->window_tokens; row++)
        moments_add(c->moments[i], in + (size_t)row * c->cols_max, 1);
}

static float *window_input(const struct layer_calibration *c, uint32_t window) {
    if (c->options.at_once) return c->in;
    return c->in + (size_t)window * c->window_tokens * c->cols_max;
}

/* All windows through the next part, up to input `i`. */
static enum status run_to_input(struct layer_calibration *c, uint32_t i, struct err *err) {
    if (i > 0) {
        moments_destroy(c->moments[i - 1]);
        c->moments[i - 1] = NULL;
    }
    TRY(moments_create(layer_parts_input(c->parts, i)->cols, &c->moments[i], err));
    layer_weights_update_vectors(&c->weights);
    TRY(update_part(c, i, err));
    for (uint32_t w = 0; w < c->windows; w++) {
        TRY(layer_parts_run(c->parts, i, window_states(c, w), window_input(c, w), err));
        add_moments(c, i, window_input(c, w));
        show_progress(c, w);
    }
    moments_end(c->moments[i]);
    c->next_part = i + 1;
    return ST_OK;
}

static enum status run_all_inputs(struct layer_calibration *c, struct err *err) {
    size_t bytes = (size_t)c->window_tokens * c->model->hp.dim * sizeof(float);
    for (uint32_t i = 0; i < c->input_count; i++)
        TRY(moments_create(layer_parts_input(c->parts, i)->cols, &c->moments[i], err));
    TRY(update_from(c, 0, err));
    for (uint32_t w = 0; w < c->windows; w++) {
        memcpy(c->window_x, window_states(c, w), bytes);
        for (uint32_t i = 0; i < c->input_count; i++) {
            TRY(layer_parts_run(c->parts, i, c->window_x, c->in, err));
            add_moments(c, i, c->in);
        }
        show_progress(c, w);
    }
    for (uint32_t i = 0; i < c->input_count; i++) moments_end(c->moments[i]);
    return ST_OK;
}

/* ---- a layer ---- */

static void show_inputs(struct layer_calibration *c) {
    c->input_count = layer_parts_inputs(c->parts);
    for (uint32_t i = 0; i < c->input_count; i++) {
        const struct part_input *from = layer_parts_input(c->parts, i);
        struct layer_input *to = &c->inputs[i];
        *to = (struct layer_input){.count = from->weight_count,
                                   .can_scale = from->maker != MAKER_OTHER,
                                   .is_from_norm = from->maker == MAKER_NORM};
        for (uint32_t k = 0; k < from->weight_count; k++)
            to->matrices[k] = layer_weights_matrix(&c->weights, from->weights[k]);
    }
}

enum status layer_calibration_begin_layer(struct layer_calibration *c,
                                          struct calibrated_layer **layer, struct err *err) {
    CHECK(!c->parts);
    CHECK(c->next_layer < c->model->hp.layers);
    const struct layer_parts_options options = parts_options(c);
    TRY(layer_weights_load(&c->weights, c->next_layer, err));
    TRY(layer_parts_open(&options, &c->parts, err));
    show_inputs(c);
    c->next_input = c->next_part = 0;
    if (c->options.at_once) TRY(run_all_inputs(c, err));
    *layer = &c->weights.shown;
    return ST_OK;
}

enum status layer_calibration_next_input(struct layer_calibration *c,
                                         const struct layer_input **input, struct err *err) {
    CHECK(c->parts);
    *input = NULL;
    if (c->next_input == c->input_count) return ST_OK;
    if (!c->options.at_once) TRY(run_to_input(c, c->next_input, err));
    c->inputs[c->next_input].moments = c->moments[c->next_input];
    *input = &c->inputs[c->next_input++];
    return ST_OK;
}

enum status layer_calibration_end_layer(struct layer_calibration *c, struct err *err) {
    CHECK(c->parts);
    TRY(update_from(c, c->next_part, err));
    for (uint32_t w = 0; w < c->windows; w++) {
        for (uint32_t i = c->next_part; i <= c->input_count; i++)
            TRY(layer_parts_run(c->parts, i, window_states(c, w), window_input(c, w), err));
        show_progress(c, w);
    }
    close_layer(c);
    c->next_layer++;
    return model_file_check(c->file, false, err);
}

/* ---- scaling ---- */

static void scale_columns(struct layer_matrix *m, const float *scales) {
    for (size_t row = 0; row < m->rows; row++)
        for (size_t i = 0; i < m->cols; i++) m->w[row * m->cols + i] *= scales[i];
}

/* The norm multiplies with the vector's numbers and what the architecture adds to them. */
static void unscale_norm(struct layer_calibration *c, const struct weight *norm,
                         const float *scales) {
    struct layer_vector *v = layer_weights_vector(&c->weights, norm);
    float shift = layer_weights_shift(&c->weights, v->kind);
    for (uint32_t i = 0; i < v->count; i++) v->x[i] = (v->x[i] + shift) / scales[i] - shift;
}

static void unscale_rows(struct layer_calibration *c, const struct part_input *in,
                         const float *scales) {
    struct layer_matrix *m = layer_weights_matrix(&c->weights, in->matrix);
    for (size_t i = 0; i < in->cols; i++) {
        float *row = m->w + (in->first_row + i) * m->cols;
        for (uint32_t k = 0; k < m->cols; k++) row[k] /= scales[i];
    }
    if (!in->bias) return;
    struct layer_vector *b = layer_weights_vector(&c->weights, in->bias);
    for (uint32_t i = 0; i < in->cols; i++) b->x[in->first_row + i] /= scales[i];
}

/* The input was computed before it was scaled. */
static void unscale_input(struct layer_calibration *c, uint32_t cols, const float *scales) {
    float *row = c->in;
    for (uint32_t t = 0; t < layer_calibration_tokens(c); t++, row += c->cols_max)
        for (uint32_t i = 0; i < cols; i++) row[i] /= scales[i];
}

void layer_input_scale(struct layer_calibration *c, const struct layer_input *input,
                       const float *scales) {
    uint32_t i = (uint32_t)(input - c->inputs);
    const struct part_input *in = layer_parts_input(c->parts, i);
    CHECK(input->can_scale);
    for (uint32_t k = 0; k < input->count; k++) scale_columns(input->matrices[k], scales);
    if (in->maker == MAKER_NORM)
        unscale_norm(c, in->norm, scales);
    else
        unscale_rows(c, in, scales);
    if (!c->options.at_once && c->next_part == i + 1) unscale_input(c, in->cols, scales);
}
