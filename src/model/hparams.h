/* model/hparams.h - the numbers that describe a model, read and checked once.
 *
 * The same struct serves every architecture; unused numbers keep their neutral values.
 * Each number has one row in a table (hparams.c) with its key in GGUF, its key in config.json,
 * its range and whether it must be there.
 */
#ifndef MODEL_HPARAMS_H
#define MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/op.h"

struct model_file;

enum rope_scaling {
    SCALING_NONE,
    SCALING_LINEAR,
    SCALING_DYNAMIC,
    SCALING_LLAMA3,
    SCALING_YARN,
    SCALING_LONGROPE
};

struct rope_params {
    enum rope_style style;
    enum rope_scaling scaling;
    uint32_t rot_dims;
    double theta;
    double factor;                            /* by which the context was extended */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    double attn_factor;                       /* yarn, longrope; 0: by the formula */
    uint32_t original_ctx;                    /* before it was extended */
};

struct hparams {
    uint32_t layers, dim, heads, kv_heads, head_dim, ffn, vocab, ctx_train;
    float norm_eps;
    float attn_scale;    /* 1 / sqrt(head_dim) unless the architecture says otherwise */
    float attn_softcap;  /* 0: none */
    float final_softcap; /* 0: none */
    float embed_scale;   /* 1: none */
    float norm_shift;    /* added to norm weights at load: 1 for gemma's folders */
    enum act_kind act;
    bool norm_topk; /* experts' weights are divided by their sum */
    uint32_t experts, experts_used, expert_ffn;
    struct rope_params rope;       /* of layers without a window */
    struct rope_params rope_local; /* of sliding-window layers */
    uint32_t window;               /* 0: no layer has one */
    /* Which layers slide, if window > 0: all (period 0), or all but each period-th (layer l is
     * full when (l + 1) % period == 0), unless the file lists them. */
    uint32_t window_period;
    uint32_t window_first;     /* layers below this one do not slide */
    uint32_t max_positions;    /* encoders: positions that were learned */
    uint32_t embed_tokens_max; /* encoders: longer texts are cut to this; 0: max_positions */
    enum pool_kind pooling;
    bool unit_length;
};

/* Everything that decoders have in common. ST_BAD names the key. */
enum status hparams_read(const struct model_file *f, const char *arch, struct hparams *hp,
                         struct err *err);

/* The checks for every architecture, after its own: products of counts do not overflow, enough
 * experts, finite numbers. ST_BAD names the file and the number. */
enum status hparams_check(const struct model_file *f, const struct hparams *hp, struct err *err);

/* The activation that config.json names; `fallback` for a GGUF, which never names it. */
enum status hparams_act(const struct model_file *f, enum act_kind fallback, enum act_kind *out,
                        struct err *err);

/* Where a number is: its GGUF name (without the architecture's prefix), its path in config.json;
 * NULL where the kind of file does not have it. */
struct hparam_key {
    const char *arch, *gguf, *hf;
};

/* One number of the file; `fallback` if the file does not have it. */
enum status hparams_u32(const struct model_file *f, struct hparam_key key, uint32_t fallback,
                        uint32_t *out, struct err *err);
enum status hparams_f32(const struct model_file *f, struct hparam_key key, float fallback,
                        float *out, struct err *err);
enum status hparams_f64(const struct model_file *f, struct hparam_key key, double fallback,
                        double *out, struct err *err);
enum status hparams_bool(const struct model_file *f, struct hparam_key key, bool fallback,
                         bool *out, struct err *err);

/* Whether layer `l` attends over a sliding window; config.json's layer_types takes precedence. */
bool hparams_layer_slides(const struct hparams *hp, const struct model_file *f, uint32_t l);

#endif
