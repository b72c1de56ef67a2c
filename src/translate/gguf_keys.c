/* translate/gguf_keys.c - the numbers of a model under the keys of llama.cpp's converter. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/json.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"
#include "model/arch.h"
#include "translate/translate_int.h"

enum { KEY_BYTES = 128, GEMMA3_PERIOD = 6 };

struct key {
    char text[KEY_BYTES];
};

static struct key key_of(const struct to_gguf *g, const char *name) {
    struct key key;
    int need = snprintf(key.text, sizeof(key.text), "%s.%s", g->arch, name);
    CHECK(need > 0 && need < KEY_BYTES);
    return key;
}

static void put_u32(struct to_gguf *g, const char *name, uint32_t value) {
    gguf_writer_put_u32(g->writer, key_of(g, name).text, value);
}

static void put_f32(struct to_gguf *g, const char *name, double value) {
    gguf_writer_put_f32(g->writer, key_of(g, name).text, (float)value);
}

static void put_str(struct to_gguf *g, const char *name, const char *value) {
    gguf_writer_put_str(g->writer, key_of(g, name).text, str_of(value));
}

/* A file says how its context is extended as numbers; the lists of longrope and the divisors of
 * llama3 are tensors. */
static enum status put_scaling(struct to_gguf *g) {
    const struct rope_params *r = &g->model->hp.rope;
    switch (r->scaling) {
    case SCALING_NONE:
    case SCALING_LLAMA3:
        return ST_OK;
    case SCALING_LINEAR:
        put_str(g, "rope.scaling.type", "linear");
        put_f32(g, "rope.scaling.factor", r->factor);
        return ST_OK;
    case SCALING_YARN:
        put_str(g, "rope.scaling.type", "yarn");
        put_f32(g, "rope.scaling.factor", r->factor);
        put_u32(g, "rope.scaling.original_context_length", r->original_ctx);
        if (r->beta_fast != 32) put_f32(g, "rope.scaling.yarn_beta_fast", r->beta_fast);
        if (r->beta_slow != 1) put_f32(g, "rope.scaling.yarn_beta_slow", r->beta_slow);
        return ST_OK;
    case SCALING_LONGROPE:
        put_u32(g, "rope.scaling.original_context_length", r->original_ctx);
        put_f32(g, "rope.scaling.attn_factor", (double)g->model->rope_factor);
        return ST_OK;
    case SCALING_DYNAMIC:
        break;
    }
    return err_set(g->err, ST_BAD,
                   "%s: rope scaling \"dynamic\" cannot be said in a GGUF; linear, llama3, yarn "
                   "and longrope can",
                   model_file_path(g->folder));
}

/* The period after which a layer attends over all tokens: that of the configuration, or that of its
 * list of layers. */
static uint32_t period_of(const struct model *m) {
    uint32_t wanted = m->hp.window_period;
    for (uint32_t i = 1; i <= m->hp.layers + 1; i++) {
        uint32_t period = i == 1 ? wanted : i;
        bool fits = period > 0;
        for (uint32_t l = 0; l < m->hp.layers && fits; l++)
            fits = m->layers[l].slides == ((l + 1) % period != 0);
        if (fits) return period;
    }
    return wanted;
}

static void put_window(struct to_gguf *g) {
    const struct model *m = g->model;
    bool any = false;
    for (uint32_t l = 0; l < m->hp.layers; l++) any |= m->layers[l].slides;
    if (!any) return;
    put_u32(g, "attention.sliding_window", m->hp.window);
    if (strcmp(g->arch, "gemma3") == 0 && period_of(m) != GEMMA3_PERIOD)
        put_u32(g, "attention.sliding_window_pattern", period_of(m));
}

static void put_experts(struct to_gguf *g) {
    const struct hparams *hp = &g->model->hp;
    if (hp->experts == 0) return;
    put_u32(g, "expert_count", hp->experts);
    put_u32(g, "expert_used_count", hp->experts_used);
    if (strcmp(g->arch, "llama") == 0) return; /* as wide as feed_forward_length */
    put_u32(g, "expert_feed_forward_length", hp->expert_ffn);
    if (!hp->norm_topk)
        gguf_writer_put_bool(g->writer, key_of(g, "expert_weights_norm").text, false);
}

static enum status put_decoder(struct to_gguf *g) {
    const struct hparams *hp = &g->model->hp;
    put_u32(g, "attention.head_count_kv", hp->kv_heads);
    put_u32(g, "attention.key_length", hp->head_dim);
    put_u32(g, "attention.value_length", hp->head_dim);
    put_f32(g, "attention.layer_norm_rms_epsilon", (double)hp->norm_eps);
    put_f32(g, "rope.freq_base", hp->rope.theta);
    put_u32(g, "rope.dimension_count", hp->rope.rot_dims);
    if (strcmp(g->arch, "gemma3") == 0) put_f32(g, "rope.freq_base_swa", hp->rope_local.theta);
    if (hp->attn_softcap > 0) put_f32(g, "attn_logit_softcapping", (double)hp->attn_softcap);
    if (hp->final_softcap > 0) put_f32(g, "final_logit_softcapping", (double)hp->final_softcap);
    put_window(g);
    put_experts(g);
    return put_scaling(g);
}

/* The numbers of pooling are GGUF's: 1 mean, 2 first, 3 last. */
static void put_encoder(struct to_gguf *g) {
    const struct hparams *hp = &g->model->hp;
    uint32_t pooling = hp->pooling == POOL_FIRST ? 2 : hp->pooling == POOL_LAST ? 3 : 1;
    put_f32(g, "attention.layer_norm_epsilon", (double)hp->norm_eps);
    gguf_writer_put_bool(g->writer, key_of(g, "attention.causal").text, false);
    put_u32(g, "pooling_type", pooling);
}

static bool names_phi3(struct str name) {
    static const char *const spellings[] = {"phi-3", "phi3"};
    for (size_t i = 0; i < name.len; i++)
        for (size_t k = 0; k < sizeof(spellings) / sizeof(spellings[0]); k++)
            if (name.len - i >= strlen(spellings[k]) &&
                strncasecmp(name.ptr + i, spellings[k], strlen(spellings[k])) == 0)
                return true;
    return false;
}

static bool any_strips_right(const struct json *added) {
    for (size_t i = 0; i < json_count(added); i++)
        if (json_bool(json_get(json_at(added, i), "rstrip"), false)) return true;
    return false;
}

/* The last part of the model's name, or of the folder's. */
static struct str name_of(const struct to_gguf *g) {
    struct str name = {0};
    bool found = false;
    if (meta_kind(g->folder, "_name_or_path") == META_STR)
        meta_str(g->folder, "_name_or_path", &found, &name, NULL);
    if (!found || name.len == 0) name = str_of(model_file_path(g->folder));
    while (name.len && name.ptr[name.len - 1] == '/') name.len--;
    for (size_t i = name.len; i > 0; i--)
        if (name.ptr[i - 1] == '/') return str_skip(name, i);
    return name;
}

/* A GGUF has no key for special tokens that include the white space behind them: readers, llama.cpp
 * too, take those of a model that is named Phi-3 for such. */
static enum status put_name(struct to_gguf *g) {
    const struct json *doc;
    struct str name = name_of(g);
    TRY(model_file_json(g->folder, "tokenizer.json", &doc, g->err));
    bool strips = any_strips_right(json_get(doc, "added_tokens"));
    if (strips && !names_phi3(name)) name = STR("Phi-3");
    if (strips || !names_phi3(name)) gguf_writer_put_str(g->writer, "general.name", name);
    return ST_OK;
}

enum status gguf_put_numbers(struct to_gguf *g) {
    const struct hparams *hp = &g->model->hp;
    gguf_writer_put_str(g->writer, "general.architecture", str_of(g->arch));
    gguf_writer_put_str(g->writer, "general.type", STR("model"));
    TRY(put_name(g));
    put_u32(g, "vocab_size", hp->vocab);
    put_u32(g, "context_length", hp->ctx_train);
    put_u32(g, "embedding_length", hp->dim);
    put_u32(g, "block_count", hp->layers);
    put_u32(g, "feed_forward_length", hp->ffn);
    put_u32(g, "attention.head_count", hp->heads);
    if (!g->model->arch->encoder) return put_decoder(g);
    put_encoder(g);
    return ST_OK;
}
