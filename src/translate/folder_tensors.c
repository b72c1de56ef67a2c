/* translate/folder_tensors.c - the tensors of a GGUF as those of a folder.
 *
 * As in gguf_tensors.c, which tensors there are is known from the GGUF opened as a model.
 */
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/model_file.h"
#include "format/view.h"
#include "model/names.h"
#include "translate/translate_int.h"

static const char layers_prefix[] = "model.layers.";

static enum status no_memory(const struct to_folder *f) {
    return err_set(f->err, ST_NOMEM, "%s: out of memory for its translation",
                   model_file_path(f->gguf));
}

static const struct tensor_info *find_base(const struct to_folder *f, struct str name) {
    char text[NAME_BYTES];
    CHECK(name.len < sizeof(text));
    str_store(name, text, sizeof(text));
    const struct tensor_info *t = tensor_find(f->gguf, text);
    CHECK(t);
    CHECK(t->data);
    return t;
}

static struct rope_rows rope_of(const struct to_folder *f, bool turns) {
    const struct hparams *hp = &f->model->hp;
    bool is_paired = turns && hp->rope.style == ROPE_ADJACENT;
    return (struct rope_rows){.order = is_paired ? ROWS_TO_HALVES : ROWS_KEPT,
                              .head_rows = hp->head_dim,
                              .turned = hp->rope.rot_dims};
}

static enum status add_matrix(struct to_folder *f, const char *name, const struct weight *w,
                              bool turns) {
    struct arena *arena = view_arena(f->view);
    const struct tensor_info *from = find_base(f, w->name);
    const struct row_plan plan = {
        .from = &from, .count = 1, .rope = rope_of(f, turns), .type = from->type};
    struct tensor_info t = {.name = arena_dup(arena, str_of(name))};
    if (!t.name.ptr || rows_plan(arena, &plan, &t) != ST_OK) return no_memory(f);
    return view_add(f->view, &t, f->err);
}

/* `less` is what the folder's architecture adds when it is read. */
static enum status add_vector(struct to_folder *f, const char *name, const struct weight *vec,
                              bool turns, float less) {
    const struct rope_rows rope = rope_of(f, turns);
    struct tensor_info t;
    if (rows_vector(view_arena(f->view), name, vec, &rope, less, &t) != ST_OK) return no_memory(f);
    return view_add(f->view, &t, f->err);
}

/* Each expert's part of a stack. */
static enum status add_experts(struct to_folder *f, const struct name_style *style, uint32_t layer,
                               enum mat mat) {
    const struct weight *w = &f->model->layers[layer].mat[mat];
    const struct tensor_info *from = find_base(f, w->name);
    for (uint32_t e = 0; e < w->experts; e++) {
        char name[NAME_BYTES];
        CHECK(mat_name(style, mat, layer, e, name));
        struct tensor_info t = {.name = arena_dup(view_arena(f->view), str_of(name)),
                                .type = from->type,
                                .dim_count = 2,
                                .dims = {w->rows, w->cols, 1, 1},
                                .data = (const uint8_t *)from->data + from->bytes / w->experts * e,
                                .bytes = from->bytes / w->experts,
                                .made_of = from->name};
        if (!t.name.ptr) return no_memory(f);
        TRY(view_add(f->view, &t, f->err));
    }
    return ST_OK;
}

/* Gemma's folders have norms less one. */
static float norm_shift(const struct to_folder *f) {
    return strncmp(f->arch->hf, "gemma", 5) == 0 ? 1.0f : 0.0f;
}

static bool is_norm(enum vec vec) { return vec <= VEC_K_NORM; }

static enum status add_layer(struct to_folder *f, uint32_t layer) {
    const struct name_style style = {.arch = f->arch, .is_hf = true, .prefix = layers_prefix};
    const struct layer *l = &f->model->layers[layer];
    char name[NAME_BYTES];
    for (int i = 0; i < MAT_COUNT; i++) {
        enum mat mat = (enum mat)i;
        if (!l->mat[mat].data) continue;
        CHECK(mat_name(&style, mat, layer, 0, name));
        if (mat >= MAT_EXPERT_GATE)
            TRY(add_experts(f, &style, layer, mat));
        else
            TRY(add_matrix(f, name, &l->mat[mat], mat == MAT_Q || mat == MAT_K));
    }
    for (int i = 0; i < VEC_COUNT; i++) {
        enum vec vec = (enum vec)i;
        if (!l->vec[vec]) continue;
        if (!vec_name(&style, vec, layer, name))
            return err_set(f->err, ST_BAD,
                           "%s: tensor %.*s has no name in a folder of architecture %s",
                           model_file_path(f->gguf), STR_ARG(l->vec[vec]->name), f->arch->hf);
        TRY(add_vector(f, name, l->vec[vec], vec == VEC_Q_BIAS || vec == VEC_K_BIAS,
                       is_norm(vec) ? norm_shift(f) : 0));
    }
    return ST_OK;
}

enum status folder_add_tensors(struct to_folder *f) {
    const struct model *m = f->model;
    TRY(add_matrix(f, "model.embed_tokens.weight", &m->token_embd, false));
    if (m->own_head.data) TRY(add_matrix(f, "lm_head.weight", &m->own_head, false));
    TRY(add_vector(f, "model.norm.weight", m->final_norm, false, norm_shift(f)));
    for (uint32_t l = 0; l < m->hp.layers; l++) TRY(add_layer(f, l));
    return ST_OK;
}
