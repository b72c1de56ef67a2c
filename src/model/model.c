/* model/model.c - see model/model.h for the contract. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "model/arch.h"
#include "model/bind.h"
#include "model/blocks.h"
#include "model/head.h"
#include "model/rope.h"

/* Vectors as floats, layers, and lists of experts: 1 GiB is far above any real model. */
enum { ARENA_MAX = 1 << 30, ARCH_NAME_BYTES = 64 };

static void list_archs(struct buf *out, bool is_hf) {
    for (const struct arch *const *a = archs; *a; a++)
        buf_printf(out, "%s%s", a == archs ? "" : ", ", is_hf ? (*a)->hf : (*a)->name);
}

static enum status find_arch(const struct model_file *f, const struct arch **out, struct err *err) {
    bool is_hf = model_file_kind(f) == MODEL_HF, found = false;
    const char *key = is_hf ? "model_type" : "general.architecture";
    struct str name = STR("");
    char text[ARCH_NAME_BYTES] = "";
    TRY(meta_str(f, key, &found, &name, err));
    if (!found)
        return err_set(err, ST_BAD, "%s: key %s is missing, expected the architecture's name",
                       model_file_path(f), key);
    if (name.len < sizeof(text)) memcpy(text, name.ptr, name.len);
    *out = arch_find(text, is_hf);
    if (*out) return ST_OK;
    struct buf known;
    buf_init(&known, 400);
    list_archs(&known, is_hf);
    enum status st =
        err_set(err, ST_BAD, "%s: architecture \"%.*s\" is not supported; these are: %s",
                model_file_path(f), STR_ARG(name), buf_text(&known));
    buf_deinit(&known);
    return st;
}

/* Layers that keep the same tokens share a KV group: full ones, sliding ones. */
static void assign_groups(struct model *m) {
    bool any_full = false, any_slides = false;
    for (uint32_t l = 0; l < m->hp.layers; l++) {
        m->layers[l].slides = hparams_layer_slides(&m->hp, m->file, l);
        if (m->layers[l].slides)
            any_slides = true;
        else
            any_full = true;
    }
    for (uint32_t l = 0; l < m->hp.layers; l++) {
        uint32_t group = any_full && m->layers[l].slides ? 1 : 0;
        m->layers[l].kv_group = group;
        m->layers[l].kv_layer = m->kv_group_layers[group]++;
    }
    m->kv_group_count = any_full && any_slides ? 2 : 1;
}

/* A list of numbers in config.json, as floats. */
static enum status read_list(struct model *m, const char *key, uint32_t count, const float **out,
                             struct err *err) {
    uint64_t found = 0;
    if (meta_list(m->file, key, &found) == META_NONE) return ST_OK;
    if (found != count)
        return err_set(err, ST_BAD, "%s: %s has %llu numbers, expected %u",
                       model_file_path(m->file), key, (unsigned long long)found, count);
    float *list = arena_zalloc_array(m->arena, count, sizeof(float));
    if (!list) return err_set(err, ST_NOMEM, "out of memory for %s", key);
    for (uint32_t i = 0; i < count; i++) {
        double value;
        TRY(meta_list_f64(m->file, key, i, &value, err));
        list[i] = (float)value;
    }
    *out = list;
    return ST_OK;
}

/* The divisor of each frequency, from the file. GGUFs of llama3 have the whole scaling in it;
 * longrope has one list for sequences up to the original context and one for longer ones. */
static enum status read_divisors(struct model *m, uint32_t ctx_tokens, const float **out,
                                 struct err *err) {
    uint32_t count = m->hp.rope.rot_dims / 2;
    bool is_long = ctx_tokens > m->hp.rope.original_ctx;
    *out = NULL;
    if (model_file_kind(m->file) == MODEL_GGUF) {
        struct weight *vec;
        TRY(bind_vec(m, "rope_freqs.weight", count, 0, &vec, err));
        if (!vec)
            TRY(bind_vec(m, is_long ? "rope_factors_long.weight" : "rope_factors_short.weight",
                         count, 0, &vec, err));
        if (vec) *out = vec->data;
        return ST_OK;
    }
    if (m->hp.rope.scaling != SCALING_LONGROPE) return ST_OK;
    const char *keys[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2 && !*out; i++) {
        char key[64];
        snprintf(key, sizeof(key), "%s.%s_factor", keys[i], is_long ? "long" : "short");
        TRY(read_list(m, key, count, out, err));
    }
    if (!*out)
        return err_set(
            err, ST_BAD,
            "%s: longrope needs the lists long_factor and short_factor; they are missing",
            model_file_path(m->file));
    return ST_OK;
}

/* Frequencies become a vector like those of the file. */
static enum status make_freqs(struct model *m, bool is_local, const float *divisors,
                              uint32_t ctx_tokens, struct err *err) {
    const struct rope_params *r = is_local ? &m->hp.rope_local : &m->hp.rope;
    const char *name = is_local ? "rope_freqs_local" : "rope_freqs";
    uint32_t count = m->hp.rope.rot_dims / 2;
    float *freqs = arena_zalloc_array(m->arena, count, sizeof(float));
    struct weight *vec = arena_zalloc_array(m->arena, 1, sizeof(*vec));
    if (!freqs || !vec) return err_set(err, ST_NOMEM, "out of memory for rope frequencies");
    rope_freqs(r, divisors, ctx_tokens, freqs, is_local ? &m->rope_factor_local : &m->rope_factor);
    *vec = weight_vector(str_of(name), freqs, count);
    if (is_local)
        m->rope_freqs_local = vec;
    else
        m->rope_freqs = vec;
    return ST_OK;
}

static enum status fill_rope(struct model *m, uint32_t ctx_tokens, struct err *err) {
    uint32_t count = m->hp.rope.rot_dims / 2;
    const float *divisors;
    TRY(read_divisors(m, ctx_tokens, &divisors, err));
    for (uint32_t i = 0; divisors && i < count; i++)
        if (!(divisors[i] > 0))
            return err_set(err, ST_BAD, "%s: rope divisor %u is %g, expected more than 0",
                           model_file_path(m->file), i, (double)divisors[i]);
    TRY(make_freqs(m, false, divisors, ctx_tokens, err));
    return make_freqs(m, true, divisors, ctx_tokens, err);
}

static enum status fill(struct model *m, const struct model_options *options, struct err *err) {
    const char *problem = model_file_problem(m->file);
    if (problem) return err_set(err, ST_BAD, "%s", problem);
    TRY(find_arch(m->file, &m->arch, err));
    TRY(m->arch->read_hparams(m->file, &m->hp, err));
    TRY(hparams_check(m->file, &m->hp, err));
    m->target = options->head_of;
    if (m->target) TRY(head_check(m, err));
    TRY(model_bind(m, err));
    assign_groups(m);
    if (m->arch->encoder) return ST_OK;
    uint32_t ctx = m->hp.ctx_train;
    if (options->ctx_default_max && ctx > options->ctx_default_max) ctx = options->ctx_default_max;
    if (options->ctx_tokens) ctx = options->ctx_tokens;
    return fill_rope(m, ctx, err);
}

enum status model_open(const struct model_file *f, const struct model_options *options,
                       struct model **out, struct err *err) {
    struct model *m = mem_zalloc(sizeof(*m));
    if (!m) return err_set(err, ST_NOMEM, "out of memory while opening a model");
    m->file = f;
    m->arena = arena_create(ARENA_MAX);
    enum status st = m->arena ? fill(m, options, err)
                              : err_set(err, ST_NOMEM, "out of memory while opening a model");
    if (st == ST_OK)
        *out = m;
    else
        model_close(m);
    return st;
}

void model_close(struct model *m) {
    if (!m) return;
    arena_destroy(m->arena);
    mem_free(m);
}

bool model_is_encoder(const struct model *m) { return m->arch->encoder; }

void model_build(const struct model *m, enum model_goal goal, struct tape *t) {
    if (m->target)
        head_build(m, goal, t);
    else
        m->arch->build(m, goal, t);
}

void model_build_embedding(const struct model *m, struct tape *t) {
    struct flow f = flow_begin(m, t);
    flow_wanted(&f);
    tape_set_output(t, f.x.value);
}

void model_build_layer(const struct model *m, uint32_t layer, struct tape *t, value_id *x) {
    CHECK(m->arch->build_layer);
    struct flow f = {.m = m, .t = t, .keeps_rows = true};
    f.x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, m->hp.dim));
    tape_push(t, &(struct op){.kind = OP_INPUT, .input = {.dst = f.x}});
    m->arch->build_layer(&f, layer);
    *x = f.x.value;
}

static enum status each_of_layer(struct layer *l, weight_fn *fn, void *ctx, struct err *err) {
    for (int mat = 0; mat < MAT_COUNT; mat++) {
        struct weight *w = &l->mat[mat];
        if (w->data) TRY(fn(ctx, w, err));
        if (w->data && w->order) TRY(fn(ctx, w->order, err));
    }
    for (int vec = 0; vec < VEC_COUNT; vec++)
        if (l->vec[vec]) TRY(fn(ctx, l->vec[vec], err));
    return ST_OK;
}

enum status model_each_weight(struct model *m, weight_fn *fn, void *ctx, struct err *err) {
    bool is_tied = m->head == &m->token_embd;
    struct weight *ends[] = {m->target ? NULL : m->head, /* a draft head has its target's */
                             &m->fc,
                             m->fc_bias,
                             is_tied ? NULL : &m->token_embd,
                             &m->pos_embd,
                             &m->type_embd,
                             m->embd_norm,
                             m->embd_norm_bias,
                             m->final_norm,
                             m->rope_freqs,
                             m->rope_freqs_local};
    for (uint32_t l = 0; l < m->hp.layers; l++) TRY(each_of_layer(&m->layers[l], fn, ctx, err));
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (ends[i] && ends[i]->data) TRY(fn(ctx, ends[i], err));
    return ST_OK;
}

static uint64_t weight_elems(const struct weight *w) {
    return w->data ? (uint64_t)w->rows * w->cols * w->experts : 0;
}

uint64_t model_param_count(const struct model *m) {
    uint64_t count = 0;
    for (size_t i = 0; i < tensor_count(m->file); i++) {
        const struct tensor_info *t = tensor_at(m->file, i);
        count += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return count ? count : weight_elems(&m->token_embd);
}
