/* cli/quantize_layers.c - see cli/quantize_layers.h for the contract. */
#include "cli/quantize_layers.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "cli/layer_calibration.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "quant/folder.h"
#include "quant/numbers.h"
#include "quant/quant.h"
#include "quant/round.h"
#include "translate/translate.h"

enum { NAME_BYTES = 640 };

/* One layer while it is rounded. */
struct rounding {
    const struct layer_rounding *r;
    const struct pack_format *format;
    struct calibrated_layer *layer;
    struct int_matrix ints[MAT_COUNT]; /* by kind; those that are rounded already have codes */
    size_t rounded;
};

static enum status no_memory(struct str name, struct err *err) {
    return err_set(err, ST_NOMEM, "out of memory for tensor %.*s", STR_ARG(name));
}

/* ---- which tensor is which ---- */

/* In the source; a tensor of a translation has another name. */
static struct str source_name(const struct folder_tensor *t) {
    return t->from->made_of.len ? t->from->made_of : t->from->name;
}

static struct layer_matrix *find_matrix(const struct rounding *x, struct str name) {
    for (uint32_t i = 0; i < x->layer->matrix_count; i++)
        if (str_eq(x->layer->matrices[i].name, name)) return &x->layer->matrices[i];
    return NULL;
}

static const struct layer_vector *find_vector(const struct rounding *x, struct str name) {
    for (uint32_t i = 0; i < x->layer->vector_count; i++)
        if (str_eq(x->layer->vectors[i].name, name)) return &x->layer->vectors[i];
    return NULL;
}

/* Is the matrix one that the folder has packed? */
static bool is_packed(const struct rounding *x, const struct layer_matrix *m) {
    const struct folder_writer *w = x->r->writer;
    for (size_t i = folder_writer_next(w); i < folder_writer_count(w); i++) {
        const struct folder_tensor *t = folder_writer_at(w, i);
        if (t->layer > (int32_t)x->layer->index) return false;
        if (str_eq(source_name(t), m->name)) return t->is_packed;
    }
    return false;
}

/* ---- rounding ---- */

static enum status init_ints(struct rounding *x, const struct layer_matrix *m, struct err *err) {
    return int_matrix_init(&x->ints[m->kind], &x->format->ints, m->rows, m->cols, err);
}

/* Scales of codes are f16. */
static enum status check_numbers(const struct rounding *x, const struct layer_matrix *m,
                                 struct err *err) {
    size_t bad;
    if (quant_can_hold(DTYPE_F16, m->w, (size_t)m->rows * m->cols, &bad)) return ST_OK;
    const struct bad_number number = {.path = model_file_path(x->r->source),
                                      .tensor = m->name,
                                      .width = m->cols,
                                      .at = bad,
                                      .value = m->w[bad],
                                      .type = DTYPE_F16};
    return numbers_say_bad(&number, err);
}

/* The numbers that the codes stand for, so that the next input is made of them. */
static enum status round_by_moments(struct rounding *x, const struct layer_input *in,
                                    struct err *err) {
    const struct gptq_options options = {.damp = x->r->damp, .threads = x->r->threads};
    for (uint32_t i = 0; i < in->count; i++) {
        struct layer_matrix *m = in->matrices[i];
        struct int_matrix *ints = &x->ints[m->kind];
        if (!is_packed(x, m)) continue;
        TRY(init_ints(x, m, err));
        enum status st = round_gptq(m->w, in->moments, &options, ints, err);
        if (st != ST_OK) {
            char name[NAME_BYTES];
            str_store(m->name, name, sizeof(name));
            return err_prefix(err, st, name);
        }
        for (uint32_t n = 0; n < m->rows; n++) int_matrix_row(ints, n, m->w + (size_t)n * m->cols);
        x->rounded++;
    }
    return ST_OK;
}

static enum status find_scales(const struct rounding *x, const struct layer_input *in,
                               float *scales, struct err *err) {
    const float *w[INPUT_MATRICES_MAX];
    uint32_t rows[INPUT_MATRICES_MAX];
    struct same_input same = {.w = w,
                              .rows = rows,
                              .count = in->count,
                              .cols = in->matrices[0]->cols,
                              .moments = in->moments};
    for (uint32_t i = 0; i < in->count; i++) {
        w[i] = in->matrices[i]->w;
        rows[i] = in->matrices[i]->rows;
    }
    if (x->format->method == PACK_AWQ) return awq_scales(&same, &x->format->ints, scales, err);
    smooth_scales(&same, x->r->smooth, scales);
    return ST_OK;
}

static enum status scale_input(struct rounding *x, const struct layer_input *in, struct err *err) {
    bool can = x->format->method == PACK_AWQ ? in->can_scale : in->can_scale && in->is_from_norm;
    if (!can) return ST_OK;
    float *scales = mem_alloc_array(in->matrices[0]->cols, sizeof(scales[0]));
    if (!scales) return no_memory(in->matrices[0]->name, err);
    enum status st = find_scales(x, in, scales, err);
    if (st == ST_OK) layer_input_scale(x->r->calibration, in, scales);
    mem_free(scales);
    x->rounded += in->count;
    return st;
}

/* After all inputs: the scale of one is divided out of the matrix that makes it. */
static enum status round_all(struct rounding *x, struct err *err) {
    for (uint32_t i = 0; i < x->layer->matrix_count; i++) {
        const struct layer_matrix *m = &x->layer->matrices[i];
        if (x->ints[m->kind].codes || !is_packed(x, m)) continue;
        TRY(check_numbers(x, m, err)); /* they may have been scaled */
        TRY(init_ints(x, m, err));
        round_nearest(m->w, &x->ints[m->kind]);
    }
    return ST_OK;
}

/* ---- putting ---- */

/* Rows in the order of the folder. */
static enum status reorder_rows(struct int_matrix *m, const struct tensor_info *t,
                                struct err *err) {
    struct int_matrix moved;
    TRY(int_matrix_init(&moved, &m->format, m->rows, m->cols, err));
    for (uint32_t n = 0; n < m->rows; n++) {
        size_t from = (size_t)translate_base_row(t, n), groups = m->groups;
        memcpy(moved.codes + (size_t)n * m->cols, m->codes + from * m->cols, m->cols);
        memcpy(moved.scales + n * groups, m->scales + from * groups, groups * sizeof(m->scales[0]));
        memcpy(moved.zeros + n * groups, m->zeros + from * groups, groups);
    }
    if (m->group_of) memcpy(moved.group_of, m->group_of, m->cols * sizeof(m->group_of[0]));
    int_matrix_deinit(m);
    *m = moved;
    return ST_OK;
}

static enum status put_packed(struct rounding *x, const struct folder_tensor *t,
                              struct int_matrix *ints, struct err *err) {
    struct packed_matrix packed;
    TRY(reorder_rows(ints, t->from, err));
    TRY(packed_init(&packed, x->format, ints->rows, ints->cols, err));
    packed_put_ints(&packed, ints, 0);
    packed_finish(&packed);
    enum status st = folder_writer_put_packed(x->r->writer, &packed, err);
    packed_deinit(&packed);
    return st;
}

/* A matrix or vector that is not packed: the folder's numbers, changed as those of the source were.
 * The two differ by a constant, the 1 that some norms have added, and in the order of rows. */
static enum status put_changed(struct rounding *x, const struct folder_tensor *t, const float *now,
                               struct err *err) {
    char name[NAME_BYTES];
    size_t elems = (size_t)tensor_elems(t->from);
    uint64_t cols = t->from->dim_count > 1 ? t->from->dims[1] : 1;
    str_store(source_name(t), name, sizeof(name));
    const struct tensor_info *base = tensor_find(x->r->source, name);
    CHECK(base);
    float *before = mem_alloc_array(elems, sizeof(float)), *out = mem_alloc_array(elems, 4);
    enum status st = before && out ? ST_OK : no_memory(t->from->name, err);
    bool changes = false;
    if (st == ST_OK) {
        tensor_read_f32(base, 0, elems, before);
        tensor_read_f32(t->from, 0, elems, out);
    }
    for (size_t i = 0; i < elems && st == ST_OK; i++) {
        size_t from = (size_t)(translate_base_row(t->from, i / cols) * cols + i % cols);
        if (now[from] == before[from]) continue;
        out[i] += now[from] - before[from];
        changes = true;
    }
    if (st == ST_OK && changes) st = folder_writer_put_numbers(x->r->writer, out, err);
    if (st == ST_OK && !changes) st = folder_writer_put(x->r->writer, err);
    mem_free(before);
    mem_free(out);
    return st;
}

static enum status put_tensor(struct rounding *x, const struct folder_tensor *t, struct err *err) {
    struct str name = source_name(t);
    struct layer_matrix *m = find_matrix(x, name);
    const struct layer_vector *v = find_vector(x, name);
    if (m && t->is_packed) return put_packed(x, t, &x->ints[m->kind], err);
    if (m || v) return put_changed(x, t, m ? m->w : v->x, err);
    return folder_writer_put(x->r->writer, err);
}

/* All tensors of layers up to `layer`; x: NULL, or that layer. */
static enum status put_tensors(const struct layer_rounding *r, int32_t layer, struct rounding *x,
                               struct err *err) {
    struct folder_writer *w = r->writer;
    while (folder_writer_next(w) < folder_writer_count(w)) {
        const struct folder_tensor *t = folder_writer_at(w, folder_writer_next(w));
        if (t->layer > layer) return ST_OK;
        TRY(x && t->layer == layer ? put_tensor(x, t, err) : folder_writer_put(w, err));
        if (r->on_put) r->on_put(r->ctx);
    }
    return ST_OK;
}

/* ---- layers ---- */

static enum status round_layer(struct rounding *x, struct err *err) {
    struct layer_calibration *c = x->r->calibration;
    const struct layer_input *in;
    TRY(layer_calibration_begin_layer(c, &x->layer, err));
    for (uint32_t i = 0; i < x->layer->matrix_count; i++)
        if (is_packed(x, &x->layer->matrices[i]))
            TRY(check_numbers(x, &x->layer->matrices[i], err));
    TRY(layer_calibration_next_input(c, &in, err));
    while (in) {
        TRY(x->format->method == PACK_GPTQ ? round_by_moments(x, in, err)
                                           : scale_input(x, in, err));
        TRY(layer_calibration_next_input(c, &in, err));
    }
    TRY(round_all(x, err));
    TRY(put_tensors(x->r, (int32_t)x->layer->index, x, err));
    return layer_calibration_end_layer(c, err);
}

enum status quantize_layers(const struct layer_rounding *r, size_t *rounded, struct err *err) {
    uint32_t layers = layer_calibration_layers(r->calibration);
    struct rounding x = {.r = r, .format = folder_writer_format(r->writer)};
    enum status st = put_tensors(r, -1, NULL, err);
    for (uint32_t l = 0; l < layers && st == ST_OK; l++) {
        st = round_layer(&x, err);
        for (int i = 0; i < MAT_COUNT; i++) int_matrix_deinit(&x.ints[i]);
    }
    *rounded = x.rounded;
    return st == ST_OK ? put_tensors(r, INT32_MAX, NULL, err) : st;
}
