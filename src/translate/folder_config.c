/* translate/folder_config.c - config.json and generation_config.json of a model.
 *
 * A GGUF has llama3's scaling of rope as a divisor for each frequency; its numbers are found from
 * them: the largest divisor is the factor, and one between 1 and the factor tells the original
 * context. All published models have the factors 1 and 4 for low and high frequencies.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/fmath.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "model/arch.h"
#include "text/tokenizer.h"
#include "translate/translate_int.h"

enum { ROT_DIMS_MAX = 4096, LLAMA3_CONTEXT = 8192 };
static const double LLAMA3_LOW = 1, LLAMA3_HIGH = 4;

/* A map is being written; every value is preceded by a comma, but the first. */
static void put_key(struct buf *out, const char *key) {
    if (out->len && out->ptr[out->len - 1] != '{') buf_put_char(out, ',');
    buf_printf(out, "\n  \"%s\": ", key);
}

static void put_u32(struct buf *out, const char *key, uint32_t value) {
    put_key(out, key);
    buf_put_uint(out, value);
}

/* With a point also if the number is whole: transformers refuses 6 where it expects a fraction. */
static void put_real(struct buf *out, double value, int digits) {
    char text[64];
    snprintf(text, sizeof(text), "%.*g", digits, value);
    buf_put_text(out, text);
    if (!strpbrk(text, ".e")) buf_put_text(out, ".0");
}

/* Digits that give a double back, and a float32. */
enum { DOUBLE_DIGITS = 17, FLOAT_DIGITS = 9 };

static void put_f64(struct buf *out, const char *key, double value) {
    put_key(out, key);
    put_real(out, value, DOUBLE_DIGITS);
}

static void put_f32(struct buf *out, const char *key, float value) {
    put_key(out, key);
    put_real(out, (double)value, FLOAT_DIGITS);
}

static void put_bool(struct buf *out, const char *key, bool value) {
    put_key(out, key);
    buf_put_text(out, value ? "true" : "false");
}

static void put_str(struct buf *out, const char *key, const char *value) {
    put_key(out, key);
    buf_put_json_string(out, str_of(value));
}

/* ---- Rope ---- */

static void put_floats(struct buf *out, const char *key, const float *x, uint32_t count) {
    put_key(out, key);
    for (uint32_t i = 0; i < count; i++) buf_printf(out, "%s%.9g", i ? ", " : "[", (double)x[i]);
    buf_put_char(out, ']');
}

/* *found is false if the file has no such vector. */
static enum status read_divisors(const struct to_folder *f, const char *name,
                                 float out[ROT_DIMS_MAX], bool *found) {
    const struct tensor_info *t = tensor_find(f->gguf, name);
    uint32_t count = f->model->hp.rope.rot_dims / 2;
    *found = t != NULL;
    if (!t) return ST_OK;
    if (tensor_elems(t) != count || count > ROT_DIMS_MAX)
        return err_set(f->err, ST_BAD, "%s: tensor %s has %llu elements, expected %u",
                       model_file_path(f->gguf), name, (unsigned long long)tensor_elems(t), count);
    tensor_read_f32(t, 0, count, out);
    return ST_OK;
}

/* The original context for which llama3's formula gives divisor `d` at frequency `i`. */
static double context_of(const struct rope_params *r, uint32_t i, double d, double factor) {
    double wave = 2 * 3.14159265358979323846 * fm_pow_d(r->theta, 2.0 * i / r->rot_dims);
    double smooth = (1 / d - 1 / factor) / (1 - 1 / factor);
    return wave * (smooth * (LLAMA3_HIGH - LLAMA3_LOW) + LLAMA3_LOW);
}

/* The map is still open. */
static void put_scaling_of(struct buf *out, const char *type, double factor) {
    put_key(out, "rope_scaling");
    buf_put_text(out, "{");
    put_str(out, "rope_type", type);
    put_f32(out, "factor", (float)factor);
}

static void put_llama3(const struct to_folder *f, const float *divisors, struct buf *out) {
    const struct rope_params *r = &f->model->hp.rope;
    double factor = 1, context = LLAMA3_CONTEXT;
    for (uint32_t i = 0; i < r->rot_dims / 2; i++)
        if ((double)divisors[i] > factor) factor = (double)divisors[i];
    if (factor == 1) return; /* they divide by nothing */
    for (uint32_t i = 0; i < r->rot_dims / 2; i++)
        if (divisors[i] > 1.0001f && (double)divisors[i] < factor * 0.9999)
            context = round(context_of(r, i, (double)divisors[i], factor));
    put_scaling_of(out, "llama3", factor);
    put_f64(out, "low_freq_factor", LLAMA3_LOW);
    put_f64(out, "high_freq_factor", LLAMA3_HIGH);
    put_key(out, "original_max_position_embeddings");
    buf_printf(out, "%.0f}", context);
}

static void put_longrope(const struct to_folder *f, const float *shorter, const float *longer,
                         struct buf *out) {
    const struct rope_params *r = &f->model->hp.rope;
    put_u32(out, "original_max_position_embeddings", r->original_ctx);
    put_key(out, "rope_scaling");
    buf_put_text(out, "{");
    put_str(out, "type", "longrope");
    put_floats(out, "long_factor", longer, r->rot_dims / 2);
    put_floats(out, "short_factor", shorter, r->rot_dims / 2);
    buf_put_text(out, "}");
}

static void put_yarn(const struct rope_params *r, struct buf *out) {
    put_scaling_of(out, "yarn", r->factor);
    put_u32(out, "original_max_position_embeddings", r->original_ctx);
    if (r->beta_fast != 32) put_f32(out, "beta_fast", (float)r->beta_fast);
    if (r->beta_slow != 1) put_f32(out, "beta_slow", (float)r->beta_slow);
    if (r->attn_factor > 0) put_f32(out, "attention_factor", (float)r->attn_factor);
    buf_put_text(out, "}");
}

static enum status put_scaling(const struct to_folder *f, struct buf *out) {
    const struct rope_params *r = &f->model->hp.rope;
    float a[ROT_DIMS_MAX], b[ROT_DIMS_MAX];
    bool has_freqs, has_short, has_long;
    TRY(read_divisors(f, "rope_freqs.weight", a, &has_freqs));
    if (has_freqs) {
        put_llama3(f, a, out);
        return ST_OK;
    }
    TRY(read_divisors(f, "rope_factors_short.weight", a, &has_short));
    TRY(read_divisors(f, "rope_factors_long.weight", b, &has_long));
    if (has_short && has_long) {
        put_longrope(f, a, b, out);
        return ST_OK;
    }
    switch (r->scaling) {
    case SCALING_NONE:
        return ST_OK;
    case SCALING_LINEAR:
        put_scaling_of(out, "linear", r->factor);
        buf_put_text(out, "}");
        return ST_OK;
    case SCALING_YARN:
        put_yarn(r, out);
        return ST_OK;
    default:
        return err_set(f->err, ST_BAD,
                       "%s: the scaling of rope that it names cannot become a folder's; linear, "
                       "yarn, and the divisors of llama3 and longrope can",
                       model_file_path(f->gguf));
    }
}

/* ---- config.json ---- */

static const char *class_of(const struct arch *arch) {
    static const struct {
        const char *arch, *name;
    } rows[] = {{"llama", "LlamaForCausalLM"},     {"mistral", "MistralForCausalLM"},
                {"mixtral", "MixtralForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
                {"qwen3", "Qwen3ForCausalLM"},     {"qwen3_moe", "Qwen3MoeForCausalLM"},
                {"gemma2", "Gemma2ForCausalLM"},   {"gemma3_text", "Gemma3ForCausalLM"},
                {"phi3", "Phi3ForCausalLM"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].arch, arch->hf) == 0) return rows[i].name;
    CHECK(false); /* a decoder without a row */
    return NULL;
}

/* The plain type that most numbers of matrices have. */
static const char *torch_dtype(const struct model_file *f) {
    uint64_t elems[DTYPE_COUNT] = {0};
    enum dtype most = DTYPE_F32;
    for (size_t i = 0; i < tensor_count(f); i++) {
        const struct tensor_info *t = tensor_at(f, i);
        if (t->dim_count > 1) elems[t->type] += tensor_elems(t);
        if (elems[t->type] > elems[most]) most = t->type;
    }
    return most == DTYPE_F16 ? "float16" : most == DTYPE_BF16 ? "bfloat16" : "float32";
}

static bool is_arch(const struct to_folder *f, const char *name) {
    return strcmp(f->arch->hf, name) == 0;
}

static bool is_gemma(const struct to_folder *f) {
    return is_arch(f, "gemma2") || is_arch(f, "gemma3_text");
}

/* Biases, as the flags of the architecture's class say it. */
static void put_biases(const struct to_folder *f, struct buf *out) {
    const struct layer *l = &f->model->layers[0];
    if (is_arch(f, "qwen2") || is_gemma(f) || is_arch(f, "phi3")) return;
    put_bool(out, "attention_bias", l->vec[VEC_Q_BIAS] != NULL);
    if (is_arch(f, "llama")) put_bool(out, "mlp_bias", l->vec[VEC_DOWN_BIAS] != NULL);
}

static void put_window(const struct to_folder *f, struct buf *out) {
    const struct model *m = f->model;
    if (strncmp(f->arch->hf, "qwen", 4) == 0) put_bool(out, "use_sliding_window", false);
    if (m->hp.window == 0) return;
    put_u32(out, "sliding_window", m->hp.window);
    if (!is_gemma(f)) return;
    if (is_arch(f, "gemma3_text")) put_u32(out, "sliding_window_pattern", m->hp.window_period);
    put_key(out, "layer_types");
    for (uint32_t l = 0; l < m->hp.layers; l++)
        buf_printf(out, "%s\"%s\"", l ? ", " : "[",
                   m->layers[l].slides ? "sliding_attention" : "full_attention");
    buf_put_char(out, ']');
}

static void put_experts(const struct to_folder *f, struct buf *out) {
    const struct model *m = f->model;
    bool any = false;
    if (m->hp.experts == 0) return;
    put_u32(out, is_arch(f, "mixtral") ? "num_local_experts" : "num_experts", m->hp.experts);
    put_u32(out, "num_experts_per_tok", m->hp.experts_used);
    if (is_arch(f, "mixtral")) return;
    put_u32(out, "moe_intermediate_size", m->hp.expert_ffn);
    put_bool(out, "norm_topk_prob", m->hp.norm_topk);
    put_u32(out, "decoder_sparse_step", 1);
    put_key(out, "mlp_only_layers");
    buf_put_char(out, '[');
    for (uint32_t l = 0; l < m->hp.layers; l++) {
        if (m->layers[l].mat[MAT_ROUTER].data) continue;
        buf_printf(out, "%s%u", any ? ", " : "", l);
        any = true;
    }
    buf_put_char(out, ']');
}

static void put_gemma(const struct to_folder *f, struct buf *out) {
    const struct hparams *hp = &f->model->hp;
    double per_head = 1 / ((double)hp->attn_scale * (double)hp->attn_scale);
    put_str(out, "hidden_activation", "gelu_pytorch_tanh");
    put_key(out, "query_pre_attn_scalar");
    buf_printf(out, "%.6g", per_head);
    if (hp->attn_softcap > 0) put_f32(out, "attn_logit_softcapping", hp->attn_softcap);
    if (hp->final_softcap > 0) put_f32(out, "final_logit_softcapping", hp->final_softcap);
    if (is_arch(f, "gemma3_text")) put_f64(out, "rope_local_base_freq", hp->rope_local.theta);
}

static void put_numbers(const struct to_folder *f, struct buf *out) {
    const struct hparams *hp = &f->model->hp;
    put_u32(out, "vocab_size", hp->vocab);
    put_u32(out, "hidden_size", hp->dim);
    put_u32(out, "intermediate_size", hp->ffn);
    put_u32(out, "num_hidden_layers", hp->layers);
    put_u32(out, "num_attention_heads", hp->heads);
    put_u32(out, "num_key_value_heads", hp->kv_heads);
    put_u32(out, "head_dim", hp->head_dim);
    put_u32(out, "max_position_embeddings", hp->ctx_train);
    put_f32(out, "rms_norm_eps", hp->norm_eps);
    put_f64(out, "rope_theta", hp->rope.theta);
    if (hp->rope.rot_dims == hp->head_dim) return;
    double share = (double)hp->rope.rot_dims / hp->head_dim;
    if (share * hp->head_dim < hp->rope.rot_dims) share = nextafter(share, 1); /* it is cut */
    put_f64(out, "partial_rotary_factor", share);
}

static void put_ids(const struct to_folder *f, struct buf *out) {
    token_id bos = tokenizer_bos(f->tokenizer), eos = tokenizer_eos(f->tokenizer);
    uint64_t pad = 0;
    bool has_pad = false;
    if (bos != TOKEN_NONE) put_u32(out, "bos_token_id", (uint32_t)bos);
    if (eos != TOKEN_NONE) put_u32(out, "eos_token_id", (uint32_t)eos);
    /* Some classes have a default of their own, which a small vocabulary does not reach. */
    meta_u64(f->gguf, "tokenizer.ggml.padding_token_id", &has_pad, &pad, NULL);
    put_key(out, "pad_token_id");
    if (has_pad && pad < f->model->hp.vocab)
        buf_put_uint(out, pad);
    else
        buf_put_text(out, "null");
}

enum status folder_put_config(const struct to_folder *f, struct buf *out) {
    buf_put_text(out, "{");
    put_key(out, "architectures");
    buf_printf(out, "[\"%s\"]", class_of(f->arch));
    put_str(out, "model_type", f->arch->hf);
    put_numbers(f, out);
    if (is_gemma(f))
        put_gemma(f, out);
    else
        put_str(out, "hidden_act", "silu");
    put_biases(f, out);
    put_window(f, out);
    put_experts(f, out);
    TRY(put_scaling(f, out));
    put_bool(out, "tie_word_embeddings", !f->model->own_head.data);
    put_ids(f, out);
    put_str(out, "torch_dtype", torch_dtype(f->gguf));
    buf_put_text(out, "\n}\n");
    return ST_OK;
}

/* Every token that ends an answer, eos first. */
enum status folder_put_generation(const struct to_folder *f, struct buf *out) {
    token_id bos = tokenizer_bos(f->tokenizer), eos = tokenizer_eos(f->tokenizer);
    bool any = eos != TOKEN_NONE;
    buf_put_text(out, "{");
    if (bos != TOKEN_NONE) put_u32(out, "bos_token_id", (uint32_t)bos);
    put_key(out, "eos_token_id");
    buf_put_char(out, '[');
    if (any) buf_put_uint(out, (uint64_t)eos);
    for (uint32_t i = 0; i < tokenizer_vocab(f->tokenizer); i++) {
        if ((token_id)i == eos || !tokenizer_is_end(f->tokenizer, (token_id)i)) continue;
        buf_printf(out, "%s%u", any ? ", " : "", i);
        any = true;
    }
    buf_put_text(out, "]\n}\n");
    return ST_OK;
}
