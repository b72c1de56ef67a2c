/* model/hparams.c - see model/hparams.h for the contract.
 *
 * Entry points: hparams_read, hparams_check, hparams_layer_slides, and the hparams_* getters.
 */
#include "model/hparams.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "format/model_file.h"

/* A layer takes at most 17 values and 25 ops of a tape (graph/tape.h): all of them fit. */
enum {
    KEY_BYTES = 128,
    LAYERS_MAX = 512,
    EXPERTS_MAX = 4096,
    EXPERTS_USED_MAX = 256,
    FFN_MAX = 1 << 20
};

/* The full key in this kind of file; false if it has no such key. Models that also read
 * images keep the numbers of their language part under "text_config". */
static bool full_key(const struct model_file *f, const char *arch, const char *gguf, const char *hf,
                     char out[KEY_BYTES]) {
    int need = 0;
    if (model_file_kind(f) == MODEL_GGUF) {
        if (!gguf) return false;
        need = snprintf(out, KEY_BYTES, "%s.%s", arch, gguf);
    } else {
        if (!hf) return false;
        bool nested = meta_kind(f, "text_config") == META_MAP;
        need = snprintf(out, KEY_BYTES, "%s%s", nested ? "text_config." : "", hf);
    }
    CHECK(need > 0);
    return need < KEY_BYTES && meta_kind(f, out) != META_NONE;
}

enum status hparams_u32(const struct model_file *f, struct hparam_key key, uint32_t fallback,
                        uint32_t *out, struct err *err) {
    char name[KEY_BYTES] = "";
    uint64_t value = fallback;
    bool found;
    if (full_key(f, key.arch, key.gguf, key.hf, name)) TRY(meta_u64(f, name, &found, &value, err));
    if (value > UINT32_MAX)
        return err_set(err, ST_BAD, "%s: %s is %llu, expected less than 2^32", model_file_path(f),
                       name, (unsigned long long)value);
    *out = (uint32_t)value;
    return ST_OK;
}

enum status hparams_f64(const struct model_file *f, struct hparam_key key, double fallback,
                        double *out, struct err *err) {
    char name[KEY_BYTES] = "";
    double value = fallback;
    bool found;
    if (full_key(f, key.arch, key.gguf, key.hf, name)) TRY(meta_f64(f, name, &found, &value, err));
    if (!isfinite(value))
        return err_set(err, ST_BAD, "%s: %s is not a finite number", model_file_path(f), name);
    *out = value;
    return ST_OK;
}

enum status hparams_f32(const struct model_file *f, struct hparam_key key, float fallback,
                        float *out, struct err *err) {
    double value = 0;
    TRY(hparams_f64(f, key, (double)fallback, &value, err));
    *out = (float)value;
    return ST_OK;
}

enum status hparams_bool(const struct model_file *f, struct hparam_key key, bool fallback,
                         bool *out, struct err *err) {
    char name[KEY_BYTES];
    bool found;
    *out = fallback;
    if (full_key(f, key.arch, key.gguf, key.hf, name)) TRY(meta_bool(f, name, &found, out, err));
    return ST_OK;
}

/* One row per number. A `min` of 0 means that the number may be absent and is then 0. */
struct number_row {
    const char *gguf, *hf;
    size_t offset;
    uint32_t min, max;
};

static const struct number_row number_rows[] = {
    {"block_count", "num_hidden_layers", offsetof(struct hparams, layers), 1, LAYERS_MAX},
    {"embedding_length", "hidden_size", offsetof(struct hparams, dim), 1, 1 << 17},
    {"attention.head_count", "num_attention_heads", offsetof(struct hparams, heads), 1, 4096},
    {"attention.head_count_kv", "num_key_value_heads", offsetof(struct hparams, kv_heads), 0, 4096},
    {"attention.key_length", "head_dim", offsetof(struct hparams, head_dim), 0, 4096},
    {"feed_forward_length", "intermediate_size", offsetof(struct hparams, ffn), 0, FFN_MAX},
    {"vocab_size", "vocab_size", offsetof(struct hparams, vocab), 0, 1 << 24},
    {"context_length", "max_position_embeddings", offsetof(struct hparams, ctx_train), 0, 1 << 28},
    {"expert_count", "num_local_experts", offsetof(struct hparams, experts), 0, EXPERTS_MAX},
    {"expert_used_count", "num_experts_per_tok", offsetof(struct hparams, experts_used), 0,
     EXPERTS_USED_MAX},
    {"attention.sliding_window", "sliding_window", offsetof(struct hparams, window), 0, 1 << 28},
};

static enum status read_numbers(const struct model_file *f, const char *arch, struct hparams *hp,
                                struct err *err) {
    for (size_t i = 0; i < sizeof(number_rows) / sizeof(number_rows[0]); i++) {
        const struct number_row *row = &number_rows[i];
        uint32_t value = 0;
        TRY(hparams_u32(f, (struct hparam_key){arch, row->gguf, row->hf}, 0, &value, err));
        const char *shown = model_file_kind(f) == MODEL_GGUF ? row->gguf : row->hf;
        if (value < row->min || value > row->max)
            return err_set(err, ST_BAD, "%s: %s is %u, expected %u to %u", model_file_path(f),
                           shown, value, row->min, row->max);
        memcpy((char *)hp + row->offset, &value, sizeof(value));
    }
    return ST_OK;
}

static enum status fill_defaults(const struct model_file *f, struct hparams *hp, struct err *err) {
    if (hp->kv_heads == 0) hp->kv_heads = hp->heads;
    if (hp->head_dim == 0) hp->head_dim = hp->dim / hp->heads;
    if (hp->head_dim == 0 || hp->head_dim % 2 != 0)
        return err_set(err, ST_BAD, "%s: heads of %u dimensions, expected an even number",
                       model_file_path(f), hp->head_dim);
    if (hp->heads % hp->kv_heads != 0)
        return err_set(err, ST_BAD, "%s: %u heads, expected a multiple of the %u KV heads",
                       model_file_path(f), hp->heads, hp->kv_heads);
    if (hp->ctx_train == 0) hp->ctx_train = 2048;
    hp->attn_scale = (float)(1.0 / sqrt((double)hp->head_dim));
    hp->embed_scale = 1.0f;
    hp->expert_ffn = hp->ffn;
    hp->norm_topk = true;
    return ST_OK;
}

/* How many leading dimensions of a head are rotated. */
static enum status read_rot_dims(const struct model_file *f, const char *arch, struct hparams *hp,
                                 struct err *err) {
    double share;
    TRY(hparams_f64(f, (struct hparam_key){arch, NULL, "partial_rotary_factor"}, 1.0, &share, err));
    TRY(hparams_f64(f, (struct hparam_key){arch, NULL, "rope_parameters.partial_rotary_factor"},
                    share, &share, err));
    if (!(share >= 0 && share <= 1))
        return err_set(err, ST_BAD, "%s: partial_rotary_factor is %g, expected 0 to 1",
                       model_file_path(f), share);
    uint32_t dims = (uint32_t)(hp->head_dim * share);
    TRY(hparams_u32(f, (struct hparam_key){arch, "rope.dimension_count", NULL}, dims, &dims, err));
    if (dims % 2 != 0 || dims > hp->head_dim)
        return err_set(err, ST_BAD, "%s: %u rotated dimensions, expected an even number up to %u",
                       model_file_path(f), dims, hp->head_dim);
    hp->rope.rot_dims = dims;
    return ST_OK;
}

static enum status scaling_of(const struct model_file *f, struct str name, enum rope_scaling *out,
                              struct err *err) {
    static const struct {
        const char *name;
        enum rope_scaling kind;
    } known[] = {{"none", SCALING_NONE},         {"default", SCALING_NONE},
                 {"linear", SCALING_LINEAR},     {"dynamic", SCALING_DYNAMIC},
                 {"llama3", SCALING_LLAMA3},     {"yarn", SCALING_YARN},
                 {"longrope", SCALING_LONGROPE}, {"su", SCALING_LONGROPE}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!str_is(name, known[i].name)) continue;
        *out = known[i].kind;
        return ST_OK;
    }
    return err_set(
        err, ST_BAD,
        "%s: rope scaling \"%.*s\" is not supported; none, linear, dynamic, llama3, yarn and "
        "longrope are",
        model_file_path(f), STR_ARG(name));
}

/* config.json keeps these under rope_scaling, or, with the base beside them, rope_parameters. */
static const char *scaling_map(const struct model_file *f) {
    static const char *const places[] = {"rope_parameters", "rope_scaling",
                                         "text_config.rope_parameters", "text_config.rope_scaling"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (meta_kind(f, places[i]) == META_MAP) return places[i] + (i >= 2 ? 12 : 0);
    return NULL;
}

static enum status read_scaling_kind(const struct model_file *f, const char *arch, const char *map,
                                     struct rope_params *rope, struct err *err) {
    char key[KEY_BYTES];
    struct str name = STR("none");
    bool found = false;
    static const char *const hf_names[] = {"rope_type", "type"};
    if (model_file_kind(f) == MODEL_GGUF) {
        if (full_key(f, arch, "rope.scaling.type", NULL, key))
            TRY(meta_str(f, key, &found, &name, err));
    } else if (map) {
        for (int i = 0; i < 2 && !found; i++) {
            char path[KEY_BYTES];
            snprintf(path, sizeof(path), "%s.%s", map, hf_names[i]);
            if (full_key(f, arch, NULL, path, key)) TRY(meta_str(f, key, &found, &name, err));
        }
    }
    return scaling_of(f, name, &rope->scaling, err);
}

/* A number of the scaling: its GGUF key, or its name inside the map of config.json. */
struct scaling_key {
    const char *arch, *map, *gguf, *name;
};

static enum status scaling_f64(const struct model_file *f, struct scaling_key key, double fallback,
                               double *out, struct err *err) {
    char path[KEY_BYTES] = "";
    if (key.map) snprintf(path, sizeof(path), "%s.%s", key.map, key.name);
    struct hparam_key found = {key.arch, key.gguf, key.map ? path : NULL};
    return hparams_f64(f, found, fallback, out, err);
}

static enum status read_rope(const struct model_file *f, const char *arch, struct hparams *hp,
                             struct err *err) {
    struct rope_params *r = &hp->rope;
    const char *map = model_file_kind(f) == MODEL_HF ? scaling_map(f) : NULL;
    double original = hp->ctx_train;
    TRY(read_rot_dims(f, arch, hp, err));
    TRY(hparams_f64(f, (struct hparam_key){arch, "rope.freq_base", "rope_theta"}, 10000.0,
                    &r->theta, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, NULL, "rope_theta"}, r->theta, &r->theta,
                    err));
    TRY(read_scaling_kind(f, arch, map, r, err));
    TRY(hparams_f64(f, (struct hparam_key){arch, NULL, "original_max_position_embeddings"},
                    original, &original, err));
    TRY(scaling_f64(f,
                    (struct scaling_key){arch, map, "rope.scaling.original_context_length",
                                         "original_max_position_embeddings"},
                    original, &original, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, "rope.scaling.factor", "factor"}, 1.0,
                    &r->factor, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, NULL, "low_freq_factor"}, 1.0,
                    &r->low_freq_factor, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, NULL, "high_freq_factor"}, 4.0,
                    &r->high_freq_factor, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, "rope.scaling.yarn_beta_fast", "beta_fast"},
                    32.0, &r->beta_fast, err));
    TRY(scaling_f64(f, (struct scaling_key){arch, map, "rope.scaling.yarn_beta_slow", "beta_slow"},
                    1.0, &r->beta_slow, err));
    TRY(scaling_f64(f,
                    (struct scaling_key){arch, map, "rope.scaling.attn_factor", "attention_factor"},
                    0.0, &r->attn_factor, err));
    if (r->theta <= 0 || r->factor <= 0 || original < 1 || original > 1e9)
        return err_set(
            err, ST_BAD,
            "%s: rope base %g, scaling factor %g, original context %g: all must be positive",
            model_file_path(f), r->theta, r->factor, original);
    r->original_ctx = (uint32_t)original;
    if (r->scaling == SCALING_LONGROPE && r->factor == 1) r->factor = hp->ctx_train / original;
    r->style = ROPE_NEOX;
    return ST_OK;
}

enum status hparams_act(const struct model_file *f, enum act_kind fallback, enum act_kind *out,
                        struct err *err) {
    static const struct {
        const char *name;
        enum act_kind kind;
    } known[] = {{"silu", ACT_SILU},
                 {"swish", ACT_SILU},
                 {"gelu", ACT_GELU_ERF},
                 {"gelu_new", ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", ACT_GELU_TANH}};
    char key[KEY_BYTES];
    struct str name = STR("");
    bool found = false;
    *out = fallback;
    if (!full_key(f, "", NULL, "hidden_act", key)) return ST_OK;
    TRY(meta_str(f, key, &found, &name, err));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!str_is(name, known[i].name)) continue;
        *out = known[i].kind;
        return ST_OK;
    }
    return err_set(err, ST_BAD,
                   "%s: %s \"%.*s\" is not supported; silu, gelu, gelu_new and gelu_pytorch_tanh "
                   "are",
                   model_file_path(f), key, STR_ARG(name));
}

static enum status check_experts(const struct model_file *f, const struct hparams *hp,
                                 struct err *err) {
    if (hp->experts == 0) return ST_OK;
    if (hp->experts > EXPERTS_MAX || hp->expert_ffn == 0 || hp->expert_ffn > FFN_MAX)
        return err_set(err, ST_BAD,
                       "%s: %u experts with an inner width of %u, expected at most %u with 1 to %u",
                       model_file_path(f), hp->experts, hp->expert_ffn, EXPERTS_MAX, FFN_MAX);
    if (hp->experts_used >= 1 && hp->experts_used <= hp->experts) return ST_OK;
    return err_set(err, ST_BAD, "%s: %u of %u experts used for a token, expected 1 to %u",
                   model_file_path(f), hp->experts_used, hp->experts, hp->experts);
}

enum status hparams_check(const struct model_file *f, const struct hparams *hp, struct err *err) {
    const struct {
        const char *name;
        float value;
    } numbers[] = {{"the epsilon of norms", hp->norm_eps},
                   {"the scale of attention", hp->attn_scale},
                   {"the soft cap of attention", hp->attn_softcap},
                   {"the soft cap of logits", hp->final_softcap}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!(numbers[i].value >= 0 && numbers[i].value <= FLT_MAX))
            return err_set(err, ST_BAD, "%s: %s is %g, expected a number that is not negative",
                           model_file_path(f), numbers[i].name, (double)numbers[i].value);
    if (hp->experts == 0 && hp->ffn == 0)
        return err_set(err, ST_BAD, "%s: the inner width of the feed-forward layers is missing",
                       model_file_path(f));
    return check_experts(f, hp, err);
}

enum status hparams_read(const struct model_file *f, const char *arch, struct hparams *hp,
                         struct err *err) {
    *hp = (struct hparams){.layers = 0};
    TRY(read_numbers(f, arch, hp, err));
    TRY(fill_defaults(f, hp, err));
    TRY(hparams_act(f, ACT_SILU, &hp->act, err));
    TRY(hparams_f32(f,
                    (struct hparam_key){arch, "attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                    1e-6f, &hp->norm_eps, err));
    TRY(read_rope(f, arch, hp, err));
    hp->rope_local = hp->rope;
    return ST_OK;
}

bool hparams_layer_slides(const struct hparams *hp, const struct model_file *f, uint32_t l) {
    if (hp->window == 0) return false;
    char key[KEY_BYTES];
    uint64_t count = 0;
    if (full_key(f, "", NULL, "layer_types", key) && meta_list(f, key, &count) == META_STR &&
        l < count) {
        struct str type;
        if (meta_list_str(f, key, l, &type, NULL) == ST_OK)
            return str_is(type, "sliding_attention");
    }
    if (l < hp->window_first) return false;
    return hp->window_period == 0 || (l + 1) % hp->window_period != 0;
}
