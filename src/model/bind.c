/* model/bind.c - see model/bind.h for the contract.
 *
 * Entry points: model_bind, bind_vec.
 */
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/model_file.h"
#include "model/names.h"

/* Folders put the language model under different prefixes. `layers` precedes a layer's number,
 * `root` the names of the embedding and the last norm. */
struct roots {
    const char *root, *layers;
};
static const struct roots decoder_roots[] = {
    {"model.", "model.layers."},
    {"", "layers."},
    {"language_model.model.", "language_model.model.layers."},
    {"model.language_model.", "model.language_model.layers."},
};
static const struct roots encoder_roots[] = {
    {"", "encoder.layer."},
    {"bert.", "bert.encoder.layer."},
};

struct binder {
    struct model *m;
    struct name_style style;
    const char *root;
    struct weight *last_order; /* that was bound */
    struct err *err;
};

/* "(288, 32)" */
static void put_shape(const struct tensor_info *t, char *out, size_t bytes) {
    size_t used = 0;
    for (uint32_t d = 0; d < t->dim_count && used < bytes; d++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%llu", d ? ", " : "(",
                                 (unsigned long long)t->dims[d]);
    if (used < bytes) snprintf(out + used, bytes - used, ")");
}

/* rows == 0: any number. */
static enum status say_shape(const struct binder *b, const struct tensor_info *t, uint32_t rows,
                             uint32_t cols) {
    char shape[TENSOR_DIMS_MAX * 24], wanted[64];
    put_shape(t, shape, sizeof(shape));
    if (rows)
        snprintf(wanted, sizeof(wanted), "(%u, %u)", rows, cols);
    else
        snprintf(wanted, sizeof(wanted), "rows of %u", cols);
    return err_set(b->err, ST_BAD, "%s: tensor %.*s has shape %s, expected %s",
                   model_file_path(b->m->file), STR_ARG(t->name), shape, wanted);
}

static enum status say_missing(const struct binder *b, const char *name) {
    const char *why = tensor_skipped(b->m->file, name);
    if (why)
        return err_set(b->err, ST_BAD, "%s: tensor %s cannot be used: %s",
                       model_file_path(b->m->file), name, why);
    return err_set(b->err, ST_BAD, "%s: tensor %s is missing; architecture %s needs it",
                   model_file_path(b->m->file), name, b->m->arch->name);
}

/* The order of a weight's columns as a vector, for devices; numbers to 2^24 are exact. Matrices
 * that read the same input mostly have the same order: then they share the vector. */
static enum status bind_order(struct binder *b, const struct tensor_info *t, struct weight *out) {
    uint32_t count = out->cols;
    struct weight *vec = arena_zalloc_array(b->m->arena, 1, sizeof(*vec));
    float *order = arena_zalloc_array(b->m->arena, count, sizeof(*order));
    if (!vec || !order)
        return err_set(b->err, ST_NOMEM, "%s: out of memory for tensor %.*s",
                       model_file_path(b->m->file), STR_ARG(t->name));
    for (uint32_t i = 0; i < count; i++) order[i] = (float)t->order[i];
    *vec = weight_vector(t->name, order, count);
    const struct weight *last = b->last_order;
    if (last && last->cols == count && memcmp(last->data, order, count * sizeof(*order)) == 0)
        vec = b->last_order;
    b->last_order = out->order = vec;
    return ST_OK;
}

static struct weight weight_of(const struct tensor_info *t, uint32_t rows, uint32_t cols,
                               uint32_t experts) {
    return (struct weight){.name = t->name,
                           .type = t->type,
                           .rows = rows,
                           .cols = cols,
                           .experts = experts,
                           .data = t->source ? (const void *)t->source : t->data,
                           .bytes = t->bytes,
                           .source = t->source};
}

/* A matrix of (rows, cols), or NULL data if the file has none. rows == 0: any number. */
static enum status bind_mat(struct binder *b, const char *name, uint32_t rows, uint32_t cols,
                            struct weight *out) {
    const struct tensor_info *t = tensor_find(b->m->file, name);
    if (!t) return ST_OK;
    if (t->dim_count != 2 || t->dims[1] != cols) return say_shape(b, t, rows, cols);
    if (rows ? t->dims[0] != rows : t->dims[0] > 1u << 24) return say_shape(b, t, rows, cols);
    *out = weight_of(t, (uint32_t)t->dims[0], cols, 1);
    return t->order ? bind_order(b, t, out) : ST_OK;
}

/* All experts in one tensor of three dimensions, as GGUF has them. */
static enum status bind_expert_stack(struct binder *b, const char *name, uint32_t rows,
                                     uint32_t cols, struct weight *out) {
    const struct tensor_info *t = tensor_find(b->m->file, name);
    uint32_t experts = b->m->hp.experts;
    if (!t) return ST_OK;
    bool fits = t->dim_count == 3 && t->dims[0] == experts && t->dims[1] == rows;
    if (!fits || t->dims[2] != cols) return say_shape(b, t, rows, cols);
    *out = weight_of(t, rows, cols, experts);
    return ST_OK;
}

/* One tensor per expert, as folders have them. All must be of one type. */
static enum status bind_expert_list(struct binder *b, enum mat mat, uint32_t layer, uint32_t rows,
                                    uint32_t cols, struct weight *out) {
    char name[NAME_BYTES];
    uint32_t experts = b->m->hp.experts;
    const void **list = arena_zalloc_array(b->m->arena, experts, sizeof(*list));
    if (!list) return err_set(b->err, ST_NOMEM, "out of memory for %u experts", experts);
    struct weight first = {.data = NULL};
    for (uint32_t e = 0; e < experts; e++) {
        struct weight one = {.data = NULL};
        CHECK(mat_name(&b->style, mat, layer, e, name));
        TRY(bind_mat(b, name, rows, cols, &one));
        if (!one.data && e == 0) return ST_OK;
        if (!one.data) return say_missing(b, name);
        if (e == 0) first = one;
        if (one.type != first.type)
            return err_set(b->err, ST_BAD, "%s: tensor %s is %s, expert 0 is %s; expected one type",
                           model_file_path(b->m->file), name, dtype_info(one.type)->name,
                           dtype_info(first.type)->name);
        if (one.order)
            return err_set(b->err, ST_BAD,
                           "%s: tensor %s: its inputs are in act order, which is not supported for "
                           "experts. Use a folder quantised with desc_act false",
                           model_file_path(b->m->file), name);
        list[e] = one.data;
    }
    *out = first;
    out->experts = experts;
    out->bytes = first.bytes * experts;
    out->expert_data = list;
    return ST_OK;
}

enum status bind_vec(struct model *m, const char *name, uint32_t count, float shift,
                     struct weight **out, struct err *err) {
    const struct tensor_info *t = tensor_find(m->file, name);
    *out = NULL;
    if (!t) return ST_OK;
    uint64_t elems = 1; /* fits: their bytes lie in the file */
    for (int i = 0; i < TENSOR_DIMS_MAX; i++) elems *= t->dims[i];
    if (elems != count || t->source)
        return err_set(err, ST_BAD, "%s: tensor %s has %llu elements, expected %u",
                       model_file_path(m->file), name, (unsigned long long)elems, count);
    float *copy = arena_zalloc_array(m->arena, count, sizeof(float));
    struct weight *vec = arena_zalloc_array(m->arena, 1, sizeof(*vec));
    if (!copy || !vec)
        return err_set(err, ST_NOMEM, "%s: out of memory for tensor %s", model_file_path(m->file),
                       name);
    dtype_dequant(t->type, t->data, count, copy);
    for (uint32_t i = 0; i < count; i++) copy[i] += shift;
    *vec = weight_vector(t->name, copy, count);
    *out = vec;
    return ST_OK;
}

struct shape {
    uint32_t rows, cols;
};

static struct shape mat_shape(const struct model *m, enum mat mat) {
    const struct hparams *hp = &m->hp;
    uint32_t q = hp->heads * hp->head_dim, kv = hp->kv_heads * hp->head_dim;
    switch (mat) {
    case MAT_Q:
        return (struct shape){q, hp->dim};
    case MAT_K:
    case MAT_V:
        return (struct shape){kv, hp->dim};
    case MAT_QKV:
        return (struct shape){q + 2 * kv, hp->dim};
    case MAT_O:
        return (struct shape){hp->dim, q};
    case MAT_GATE:
    case MAT_UP:
        return (struct shape){hp->ffn, hp->dim};
    case MAT_GATE_UP:
        return (struct shape){2 * hp->ffn, hp->dim};
    case MAT_DOWN:
        return (struct shape){hp->dim, hp->ffn};
    case MAT_ROUTER:
        return (struct shape){hp->experts, hp->dim};
    case MAT_EXPERT_GATE:
    case MAT_EXPERT_UP:
        return (struct shape){hp->expert_ffn, hp->dim};
    case MAT_EXPERT_DOWN:
        return (struct shape){hp->dim, hp->expert_ffn};
    case MAT_COUNT:
        break;
    }
    CHECK(false);
    return (struct shape){0, 0};
}

static uint32_t vec_count(const struct model *m, enum vec vec) {
    const struct hparams *hp = &m->hp;
    uint32_t q = hp->heads * hp->head_dim, kv = hp->kv_heads * hp->head_dim;
    switch (vec) {
    case VEC_Q_NORM:
    case VEC_K_NORM:
        return hp->head_dim;
    case VEC_Q_BIAS:
        return q;
    case VEC_K_BIAS:
    case VEC_V_BIAS:
        return kv;
    case VEC_QKV_BIAS:
        return q + 2 * kv;
    case VEC_GATE_BIAS:
    case VEC_UP_BIAS:
        return hp->ffn;
    default:
        return hp->dim;
    }
}

/* GGUF's phi3 keeps gate and up together under the name of up. */
static bool is_fused_up(const struct binder *b, const struct layer *l, const char *name) {
    const struct tensor_info *t = tensor_find(b->m->file, name);
    return !b->style.is_hf && !l->mat[MAT_GATE].data && t && t->dim_count == 2 &&
           t->dims[0] == 2 * (uint64_t)b->m->hp.ffn;
}

static enum status bind_layer_mat(struct binder *b, uint32_t layer, enum mat mat) {
    struct layer *l = &b->m->layers[layer];
    char name[NAME_BYTES];
    struct shape s = mat_shape(b->m, mat);
    bool is_expert = mat >= MAT_EXPERT_GATE;
    if ((is_expert || mat == MAT_ROUTER) && b->m->hp.experts == 0) return ST_OK;
    if (!mat_name(&b->style, mat, layer, 0, name)) return ST_OK;
    if (is_expert && b->style.is_hf)
        return bind_expert_list(b, mat, layer, s.rows, s.cols, &l->mat[mat]);
    if (is_expert) return bind_expert_stack(b, name, s.rows, s.cols, &l->mat[mat]);
    if (mat == MAT_UP && is_fused_up(b, l, name))
        return bind_mat(b, name, 2 * s.rows, s.cols, &l->mat[MAT_GATE_UP]);
    TRY(bind_mat(b, name, s.rows, s.cols, &l->mat[mat]));
    if (mat == MAT_ROUTER) l->mat[mat].keeps_type = true;
    return ST_OK;
}

static bool is_norm(enum vec vec) { return vec <= VEC_K_NORM; }

float bind_shift(const struct model *m, enum vec vec) {
    return is_norm(vec) ? m->hp.norm_shift : 0.0f;
}

static enum status bind_layer(struct binder *b, uint32_t layer) {
    struct model *m = b->m;
    char name[NAME_BYTES];
    for (int mat = 0; mat < MAT_COUNT; mat++) TRY(bind_layer_mat(b, layer, (enum mat)mat));
    for (int v = 0; v < VEC_COUNT; v++) {
        enum vec vec = (enum vec)v;
        if (!vec_name(&b->style, vec, layer, name)) continue;
        TRY(bind_vec(m, name, vec_count(m, vec), bind_shift(m, vec), &m->layers[layer].vec[vec],
                     b->err));
    }
    return ST_OK;
}

/* The first of `wanted` (ended by MAT_COUNT) that the layer has not; MAT_COUNT if it has all. */
static enum mat first_missing(const struct layer *l, const enum mat *wanted) {
    while (*wanted != MAT_COUNT && l->mat[*wanted].data) wanted++;
    return *wanted;
}

/* The matrix that the layer lacks: with a router it needs experts, with one of Q, K and V all
 * three. */
static enum mat missing_mat(const struct layer *l, bool is_encoder) {
    static const enum mat split[] = {MAT_Q, MAT_K, MAT_V, MAT_COUNT};
    static const enum mat experts[] = {MAT_EXPERT_GATE, MAT_EXPERT_UP, MAT_EXPERT_DOWN, MAT_COUNT};
    static const enum mat gated[] = {MAT_GATE, MAT_UP, MAT_DOWN, MAT_COUNT};
    static const enum mat plain[] = {MAT_UP, MAT_DOWN, MAT_COUNT};
    static const enum mat fused[] = {MAT_DOWN, MAT_COUNT};
    const enum mat *ffn = l->mat[MAT_GATE_UP].data ? fused : gated;
    if (l->mat[MAT_ROUTER].data) ffn = experts;
    if (is_encoder) ffn = plain;
    enum mat missing = first_missing(l, ffn);
    if (!l->mat[MAT_O].data) missing = MAT_O;
    bool has_qkv = l->mat[MAT_QKV].data && !is_encoder;
    if (!has_qkv && first_missing(l, split) != MAT_COUNT) missing = first_missing(l, split);
    return missing;
}

static enum status check_vecs(struct binder *b, uint32_t layer, const enum vec *needed) {
    char name[NAME_BYTES];
    for (; needed && *needed != VEC_COUNT; needed++) {
        if (b->m->layers[layer].vec[*needed]) continue;
        vec_name(&b->style, *needed, layer, name);
        return say_missing(b, name);
    }
    return ST_OK;
}

/* The two products of an expert are one op, which reads its input in one form. */
static enum status check_expert_types(struct binder *b, const struct layer *l) {
    const struct weight *gate = &l->mat[MAT_EXPERT_GATE], *up = &l->mat[MAT_EXPERT_UP];
    if (!l->mat[MAT_ROUTER].data) return ST_OK;
    if (dtype_has_integers(gate->type) == dtype_has_integers(up->type)) return ST_OK;
    return err_set(b->err, ST_BAD,
                   "%s: tensor %.*s is %s and %.*s is %s, expected both quantised or neither",
                   model_file_path(b->m->file), STR_ARG(gate->name), dtype_info(gate->type)->name,
                   STR_ARG(up->name), dtype_info(up->type)->name);
}

static enum status check_layer(struct binder *b, uint32_t layer) {
    static const enum vec norms[] = {VEC_FFN_NORM, VEC_ATTN_NORM, VEC_COUNT};
    static const enum vec first_of_head[] = {VEC_FFN_NORM, VEC_COUNT};
    bool is_first_of_head = b->m->target && layer == 0;
    enum mat missing = missing_mat(&b->m->layers[layer], b->m->arch->encoder);
    if (missing != MAT_COUNT) {
        char name[NAME_BYTES];
        mat_name(&b->style, missing, layer, 0, name);
        return say_missing(b, name);
    }
    TRY(check_expert_types(b, &b->m->layers[layer]));
    TRY(check_vecs(b, layer, is_first_of_head ? first_of_head : norms));
    return check_vecs(b, layer, b->m->arch->needs);
}

static void find_roots(struct binder *b, const char *embedding) {
    const struct roots *rows = b->m->arch->encoder ? encoder_roots : decoder_roots;
    size_t count = b->m->arch->encoder ? sizeof(encoder_roots) / sizeof(rows[0])
                                       : sizeof(decoder_roots) / sizeof(rows[0]);
    for (size_t i = 0; i < count; i++) {
        char name[NAME_BYTES];
        b->root = rows[i].root;
        b->style.prefix = rows[i].layers;
        snprintf(name, sizeof(name), "%s%s", b->root, embedding);
        if (tensor_find(b->m->file, name)) return;
    }
    b->root = rows[0].root;
    b->style.prefix = rows[0].layers;
}

/* A tensor outside the layers, under either name. */
static void outer_name(const struct binder *b, const char *gguf, const char *hf,
                       char out[NAME_BYTES]) {
    if (b->style.is_hf)
        snprintf(out, NAME_BYTES, "%s%s", b->root, hf);
    else
        snprintf(out, NAME_BYTES, "%s", gguf);
}

static enum status bind_embedding(struct binder *b, const char *hf) {
    struct model *m = b->m;
    char name[NAME_BYTES];
    outer_name(b, "token_embd.weight", hf, name);
    TRY(bind_mat(b, name, 0, m->hp.dim, &m->token_embd));
    if (!m->token_embd.data) return say_missing(b, name);
    if (m->token_embd.source)
        return err_set(b->err, ST_BAD,
                       "%s: tensor %s is quantised, expected F32, F16 or BF16. Use a folder whose "
                       "embedding is not quantised",
                       model_file_path(m->file), name);
    if (m->hp.vocab && m->hp.vocab != m->token_embd.rows && b->style.is_hf)
        return err_set(b->err, ST_BAD, "%s: tensor %s has %u rows, expected %u (vocab_size)",
                       model_file_path(m->file), name, m->token_embd.rows, m->hp.vocab);
    m->hp.vocab = m->token_embd.rows;
    return ST_OK;
}

/* A model without an output matrix uses its embedding, transposed, unless its config says that it
 * has one. */
static enum status bind_head(struct binder *b) {
    struct model *m = b->m;
    const char *name = b->style.is_hf ? "lm_head.weight" : "output.weight";
    bool is_tied;
    TRY(bind_mat(b, name, m->hp.vocab, m->hp.dim, &m->own_head));
    TRY(hparams_bool(m->file, (struct hparam_key){"", NULL, "tie_word_embeddings"}, true, &is_tied,
                     b->err));
    if (!m->own_head.data && !is_tied) return say_missing(b, name);
    m->head = m->own_head.data ? &m->own_head : &m->token_embd;
    m->own_head.keeps_type = m->token_embd.keeps_type = true;
    if (m->head != &m->token_embd) m->token_embd.use = WEIGHT_TABLE;
    return ST_OK;
}

static enum status bind_decoder_ends(struct binder *b) {
    struct model *m = b->m;
    char name[NAME_BYTES];
    TRY(bind_embedding(b, "embed_tokens.weight"));
    outer_name(b, "output_norm.weight", "norm.weight", name);
    TRY(bind_vec(m, name, m->hp.dim, m->hp.norm_shift, &m->final_norm, b->err));
    if (!m->final_norm) return say_missing(b, name);
    return bind_head(b);
}

static enum status bind_encoder_ends(struct binder *b) {
    struct model *m = b->m;
    char name[NAME_BYTES];
    TRY(bind_embedding(b, "embeddings.word_embeddings.weight"));
    outer_name(b, "position_embd.weight", "embeddings.position_embeddings.weight", name);
    TRY(bind_mat(b, name, 0, m->hp.dim, &m->pos_embd));
    if (!m->pos_embd.data) return say_missing(b, name);
    m->hp.max_positions = m->pos_embd.rows;
    if (m->hp.embed_tokens_max == 0 || m->hp.embed_tokens_max > m->hp.max_positions)
        m->hp.embed_tokens_max = m->hp.max_positions;
    outer_name(b, "token_types.weight", "embeddings.token_type_embeddings.weight", name);
    TRY(bind_mat(b, name, 0, m->hp.dim, &m->type_embd));
    m->token_embd.use = m->pos_embd.use = m->type_embd.use = WEIGHT_TABLE;
    outer_name(b, "token_embd_norm.weight", "embeddings.LayerNorm.weight", name);
    TRY(bind_vec(m, name, m->hp.dim, 0, &m->embd_norm, b->err));
    if (!m->embd_norm) return say_missing(b, name);
    outer_name(b, "token_embd_norm.bias", "embeddings.LayerNorm.bias", name);
    TRY(bind_vec(m, name, m->hp.dim, 0, &m->embd_norm_bias, b->err));
    return m->embd_norm_bias ? ST_OK : say_missing(b, name);
}

/* A draft head: fc, perhaps an embedding, else its target's; the output matrix is the target's. */
static enum status bind_draft_head_ends(struct binder *b) {
    struct model *m = b->m;
    TRY(bind_mat(b, "fc.weight", m->hp.dim, 2 * m->hp.dim, &m->fc));
    if (!m->fc.data) return say_missing(b, "fc.weight");
    TRY(bind_vec(m, "fc.bias", m->hp.dim, 0, &m->fc_bias, b->err));
    m->head = m->target->head;
    m->token_embd = m->target->token_embd;
    if (!tensor_find(m->file, "embed_tokens.weight")) return ST_OK;
    TRY(bind_embedding(b, "embed_tokens.weight"));
    m->token_embd.use = WEIGHT_TABLE;
    return ST_OK;
}

static enum status bind_ends(struct binder *b) {
    if (b->m->target) return bind_draft_head_ends(b);
    return b->m->arch->encoder ? bind_encoder_ends(b) : bind_decoder_ends(b);
}

enum status model_bind(struct model *m, struct err *err) {
    struct binder b = {.m = m,
                       .style = {.arch = m->arch, .is_hf = model_file_kind(m->file) == MODEL_HF},
                       .err = err};
    if (m->target) {
        b.root = "";
        b.style.prefix = "layers.";
    } else {
        find_roots(&b,
                   m->arch->encoder ? "embeddings.word_embeddings.weight" : "embed_tokens.weight");
    }
    m->layers = arena_zalloc_array(m->arena, m->hp.layers, sizeof(m->layers[0]));
    if (!m->layers) return err_set(err, ST_NOMEM, "out of memory for %u layers", m->hp.layers);
    TRY(bind_ends(&b));
    for (uint32_t l = 0; l < m->hp.layers; l++) {
        TRY(bind_layer(&b, l));
        TRY(check_layer(&b, l));
    }
    return ST_OK;
}
