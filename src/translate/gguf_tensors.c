/* translate/gguf_tensors.c - the tensors of a folder as those of a GGUF.
 *
 * Which tensors a model has and what they are is known from the folder opened as a model
 * (model/bind.c). Tensors that it does not use, a vision tower for example, are left out.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/model_file.h"
#include "format/view.h"
#include "model/names.h"
#include "model/rope.h"
#include "translate/translate_int.h"

static enum status no_memory(const struct to_gguf *g) {
    return err_set(g->err, ST_NOMEM, "%s: out of memory for its translation",
                   model_file_path(g->folder));
}

/* A tensor of the base, whose name the model has. */
static enum status find_base(const struct to_gguf *g, struct str name,
                             const struct tensor_info **out) {
    char text[NAME_BYTES];
    CHECK(name.len < sizeof(text));
    str_store(name, text, sizeof(text));
    *out = tensor_find(g->folder, text);
    CHECK(*out);
    if (!(*out)->order) return ST_OK;
    return err_set(g->err, ST_BAD,
                   "%s: tensor %s: its columns are in act order, which a GGUF cannot say. Use the "
                   "original model, or a folder quantised with desc_act false",
                   model_file_path(g->folder), text);
}

static enum status add(struct to_gguf *g, const char *name, struct row_plan *plan) {
    struct arena *arena = view_arena(g->view);
    struct tensor_info t = {.name = arena_dup(arena, str_of(name))};
    if (!t.name.ptr || rows_plan(arena, plan, &t) != ST_OK) return no_memory(g);
    return view_add(g->view, &t, g->err);
}

/* `type` is that of the base, unless it is kept exact. */
static enum status add_matrix(struct to_gguf *g, const char *name, const struct weight *w,
                              const struct rope_rows *rope, bool is_exact) {
    const struct tensor_info *from;
    TRY(find_base(g, w->name, &from));
    struct row_plan plan = {
        .from = &from, .count = 1, .rope = *rope, .type = is_exact ? DTYPE_F32 : from->type};
    return add(g, name, &plan);
}

/* A vector of the model: float32, with what gemma's norms lack. */
static enum status add_vector(struct to_gguf *g, const char *name, const struct weight *vec,
                              const struct rope_rows *rope) {
    struct tensor_info t;
    if (rows_vector(view_arena(g->view), name, vec, rope, 0, &t) != ST_OK) return no_memory(g);
    return view_add(g->view, &t, g->err);
}

/* The matrices of all experts, one after the other. */
static enum status add_experts(struct to_gguf *g, const char *name, uint32_t layer, enum mat mat) {
    const struct weight *w = &g->model->layers[layer].mat[mat];
    static const char mark[] = "layers.";
    char first[NAME_BYTES], one[NAME_BYTES];
    CHECK(w->name.len < sizeof(first));
    str_store(w->name, first, sizeof(first));
    char *end = strstr(first, mark);
    CHECK(end);
    end[sizeof(mark) - 1] = 0; /* the prefix of layers */
    const struct name_style style = {.arch = g->model->arch, .is_hf = true, .prefix = first};
    const struct tensor_info **from =
        arena_zalloc_array(view_arena(g->view), w->experts, sizeof(const struct tensor_info *));
    if (!from) return no_memory(g);
    for (uint32_t e = 0; e < w->experts; e++) {
        CHECK(mat_name(&style, mat, layer, e, one));
        TRY(find_base(g, str_of(one), &from[e]));
    }
    struct row_plan plan = {
        .from = from, .count = w->experts, .is_stack = true, .type = from[0]->type};
    return add(g, name, &plan);
}

static enum row_order order_of(const struct to_gguf *g) {
    return gguf_has_pairs(g->arch) ? ROWS_TO_PAIRS : ROWS_KEPT;
}

static enum status add_layer_matrix(struct to_gguf *g, uint32_t layer, enum mat mat) {
    const struct weight *w = &g->model->layers[layer].mat[mat];
    const struct hparams *hp = &g->model->hp;
    const struct name_style style = {.arch = g->model->arch};
    struct rope_rows rope = {.head_rows = hp->head_dim, .turned = hp->rope.rot_dims};
    char name[NAME_BYTES];
    if (!w->data) return ST_OK;
    /* Gate and up together have the name of up. */
    CHECK(mat_name(&style, mat == MAT_GATE_UP ? MAT_UP : mat, layer, 0, name));
    if (w->expert_data) return add_experts(g, name, layer, mat);
    if (mat == MAT_Q || mat == MAT_K) rope.order = order_of(g);
    return add_matrix(g, name, w, &rope, mat == MAT_ROUTER);
}

static enum status add_layer(struct to_gguf *g, uint32_t layer) {
    const struct hparams *hp = &g->model->hp;
    const struct name_style style = {.arch = g->model->arch};
    char name[NAME_BYTES];
    for (int mat = 0; mat < MAT_COUNT; mat++) TRY(add_layer_matrix(g, layer, (enum mat)mat));
    for (int v = 0; v < VEC_COUNT; v++) {
        const struct weight *vec = g->model->layers[layer].vec[v];
        struct rope_rows rope = {.head_rows = hp->head_dim, .turned = hp->rope.rot_dims};
        if (!vec) continue;
        CHECK(vec_name(&style, (enum vec)v, layer, name));
        if (v == VEC_Q_BIAS || v == VEC_K_BIAS) rope.order = order_of(g);
        TRY(add_vector(g, name, vec, &rope));
    }
    return ST_OK;
}

/* What is outside of layers. */
static enum status add_ends(struct to_gguf *g) {
    const struct model *m = g->model;
    const struct rope_rows kept = {.order = ROWS_KEPT};
    const struct {
        const char *name;
        const struct weight *w;
        bool is_exact;
    } mats[] = {{"token_embd.weight", &m->token_embd, false},
                {"output.weight", &m->own_head, false},
                {"position_embd.weight", &m->pos_embd, true},
                {"token_types.weight", &m->type_embd, true}},
      vecs[] = {{"token_embd_norm.weight", m->embd_norm, true},
                {"token_embd_norm.bias", m->embd_norm_bias, true},
                {"output_norm.weight", m->final_norm, true}};
    for (size_t i = 0; i < sizeof(mats) / sizeof(mats[0]); i++)
        if (mats[i].w->data) TRY(add_matrix(g, mats[i].name, mats[i].w, &kept, mats[i].is_exact));
    for (size_t i = 0; i < sizeof(vecs) / sizeof(vecs[0]); i++)
        if (vecs[i].w) TRY(add_vector(g, vecs[i].name, vecs[i].w, &kept));
    return ST_OK;
}

/* A list of config.json: "short_factor", "long_factor". */
static enum status read_factors(const struct to_gguf *g, const char *name, float *out) {
    static const char *const maps[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        char key[64];
        uint64_t count;
        snprintf(key, sizeof(key), "%s.%s", maps[i], name);
        if (meta_list(g->folder, key, &count) == META_NONE) continue;
        if (count != g->model->hp.rope.rot_dims / 2)
            return err_set(g->err, ST_BAD, "%s: %s has %llu numbers, expected %u",
                           model_file_path(g->folder), key, (unsigned long long)count,
                           g->model->hp.rope.rot_dims / 2);
        for (uint64_t k = 0; k < count; k++) {
            double value = 0;
            TRY(meta_list_f64(g->folder, key, k, &value, g->err));
            out[k] = (float)value;
        }
        return ST_OK;
    }
    return err_set(g->err, ST_BAD, "%s: config.json has no list %s, which longrope needs",
                   model_file_path(g->folder), name);
}

/* The divisors of rope's frequencies as a vector. */
static enum status add_divisors(struct to_gguf *g, const char *name, const char *list) {
    const struct rope_params *r = &g->model->hp.rope;
    const struct rope_rows kept = {.order = ROWS_KEPT};
    uint32_t count = r->rot_dims / 2;
    float *x = arena_zalloc_array(view_arena(g->view), count, sizeof(*x));
    if (!x) return no_memory(g);
    if (list)
        TRY(read_factors(g, list, x));
    else
        rope_divisors(r, x);
    const struct weight vec = weight_vector(STR(""), x, count);
    return add_vector(g, name, &vec, &kept);
}

static enum status add_rope(struct to_gguf *g) {
    switch (g->model->hp.rope.scaling) {
    case SCALING_LLAMA3:
        return add_divisors(g, "rope_freqs.weight", NULL);
    case SCALING_LONGROPE:
        TRY(add_divisors(g, "rope_factors_long.weight", "long_factor"));
        return add_divisors(g, "rope_factors_short.weight", "short_factor");
    default:
        return ST_OK;
    }
}

enum status gguf_add_tensors(struct to_gguf *g) {
    TRY(add_ends(g));
    TRY(add_rope(g));
    for (uint32_t l = 0; l < g->model->hp.layers; l++) TRY(add_layer(g, l));
    return ST_OK;
}
