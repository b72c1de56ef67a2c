/* cli/layer_weights.c - see cli/layer_weights.h for the contract. */
#include "cli/layer_weights.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "model/bind.h"
#include "model/names.h"

static enum status say_no_memory(struct str name, struct err *err) {
    return err_set(err, ST_NOMEM, "out of memory for tensor %.*s as float32", STR_ARG(name));
}

/* Layers have matrices of equal shapes, so room that is there is large enough. */
static bool make_room(float **room, size_t elems) {
    if (!*room) *room = mem_alloc_array(elems, sizeof(**room));
    return *room != NULL;
}

static const struct tensor_info *find_tensor(const struct model *source, struct str name) {
    char text[NAME_BYTES];
    CHECK(name.len < sizeof(text));
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    const struct tensor_info *t = tensor_find(source->file, text);
    CHECK(t);
    return t;
}

/* The columns of a folder in act order go back to where their inputs are. */
static enum status undo_order(const struct tensor_info *t, float *w, uint32_t rows, uint32_t cols,
                              struct err *err) {
    float *row = mem_alloc_array(cols, sizeof(*row));
    if (!row) return say_no_memory(t->name, err);
    for (uint32_t r = 0; r < rows; r++, w += cols) {
        memcpy(row, w, cols * sizeof(*row));
        for (uint32_t i = 0; i < cols; i++) w[t->order[i]] = row[i];
    }
    mem_free(row);
    return ST_OK;
}

static enum status load_matrix(struct layer_weights *w, enum mat kind, const struct weight *from,
                               struct err *err) {
    struct weight *to = &w->layer.mat[kind];
    size_t elems = (size_t)from->rows * from->cols;
    void *prepared = to->prepared;
    CHECK(from->experts == 1);
    if (!make_room(&w->mat_room[kind], elems)) return say_no_memory(from->name, err);
    const struct tensor_info *t = find_tensor(w->source, from->name);
    tensor_read_f32(t, 0, elems, w->mat_room[kind]);
    tensor_release(w->source->file, t);
    if (t->order) TRY(undo_order(t, w->mat_room[kind], from->rows, from->cols, err));
    *to = (struct weight){.name = from->name,
                          .type = DTYPE_F32,
                          .rows = from->rows,
                          .cols = from->cols,
                          .experts = 1,
                          .data = w->mat_room[kind],
                          .bytes = elems * sizeof(float),
                          .prepared = prepared};
    w->shown.matrices[w->shown.matrix_count++] = (struct layer_matrix){.kind = kind,
                                                                       .name = from->name,
                                                                       .rows = from->rows,
                                                                       .cols = from->cols,
                                                                       .w = w->mat_room[kind]};
    return ST_OK;
}

static enum status load_vector(struct layer_weights *w, enum vec kind, const struct weight *from,
                               struct err *err) {
    if (!make_room(&w->vec_room[kind], from->cols) || !make_room(&w->sums[kind], from->cols))
        return say_no_memory(from->name, err);
    tensor_read_f32(find_tensor(w->source, from->name), 0, from->cols, w->vec_room[kind]);
    w->vecs[kind] = weight_vector(from->name, w->sums[kind], from->cols);
    w->layer.vec[kind] = &w->vecs[kind];
    w->shown.vectors[w->shown.vector_count++] = (struct layer_vector){
        .kind = kind, .name = from->name, .count = from->cols, .x = w->vec_room[kind]};
    return ST_OK;
}

void layer_weights_init(struct layer_weights *w, const struct model *source) {
    *w = (struct layer_weights){.source = source, .model = *source};
    w->model.layers = &w->layer;
    w->model.kv_group_count = w->model.kv_group_layers[0] = 1;
    w->model.token_embd.use = WEIGHT_TABLE; /* its rows are looked up in the file */
    w->model.token_embd.prepared = NULL;
}

enum status layer_weights_load(struct layer_weights *w, uint32_t layer, struct err *err) {
    const struct layer *from = &w->source->layers[layer];
    w->layer.slides = from->slides;
    w->shown = (struct calibrated_layer){.index = layer};
    for (int i = 0; i < MAT_COUNT; i++) {
        w->layer.mat[i].data = NULL;
        if (from->mat[i].data) TRY(load_matrix(w, (enum mat)i, &from->mat[i], err));
    }
    for (int i = 0; i < VEC_COUNT; i++) {
        w->layer.vec[i] = NULL;
        if (from->vec[i]) TRY(load_vector(w, (enum vec)i, from->vec[i], err));
    }
    layer_weights_update_vectors(w);
    return model_file_check(w->source->file, false, err);
}

void layer_weights_deinit(struct layer_weights *w) {
    for (int i = 0; i < MAT_COUNT; i++) mem_free(w->mat_room[i]);
    for (int i = 0; i < VEC_COUNT; i++) {
        mem_free(w->vec_room[i]);
        mem_free(w->sums[i]);
    }
}

float layer_weights_shift(const struct layer_weights *w, enum vec kind) {
    return bind_shift(&w->model, kind);
}

void layer_weights_update_vectors(struct layer_weights *w) {
    for (uint32_t i = 0; i < w->shown.vector_count; i++) {
        const struct layer_vector *v = &w->shown.vectors[i];
        float shift = layer_weights_shift(w, v->kind);
        for (uint32_t k = 0; k < v->count; k++) w->sums[v->kind][k] = v->x[k] + shift;
    }
}

enum status layer_weights_update(const struct device *device, struct weight *mat, struct err *err) {
    if (!mat->prepared) return device->prepare(device->self, mat, err);
    device->update(device->self, mat);
    return ST_OK;
}

struct layer_matrix *layer_weights_matrix(struct layer_weights *w, const struct weight *mat) {
    for (uint32_t i = 0; i < w->shown.matrix_count; i++)
        if (mat == &w->layer.mat[w->shown.matrices[i].kind]) return &w->shown.matrices[i];
    return NULL;
}

struct layer_vector *layer_weights_vector(struct layer_weights *w, const struct weight *vec) {
    for (uint32_t i = 0; i < w->shown.vector_count; i++)
        if (vec == w->layer.vec[w->shown.vectors[i].kind]) return &w->shown.vectors[i];
    return NULL;
}

uint64_t layer_weights_elems(const struct model *source) {
    uint64_t most = 0;
    for (uint32_t l = 0; l < source->hp.layers; l++) {
        uint64_t own = 0;
        for (int i = 0; i < MAT_COUNT; i++) {
            const struct weight *mat = &source->layers[l].mat[i];
            own += mat->data ? (uint64_t)mat->rows * mat->cols : 0;
        }
        most = own > most ? own : most;
    }
    return most;
}
