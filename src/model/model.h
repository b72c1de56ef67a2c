/* model/model.h - an open model: its hyperparameters and weights.
 *
 * Opening a model finds its architecture, reads its hyperparameters (hparams), points every weight
 * into the model file (only the small vectors are copied, as float32) and computes the rope
 * frequencies. Building writes the forward pass onto a tape.
 *
 * Lifetime: open on a model file that outlives it; close. Thread: read-only once open, except
 * for `prepared` of its weights, which the device sets while loading.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/kv_space.h"
#include "graph/op.h"
#include "graph/weight.h"
#include "model/hparams.h"

struct arena;
struct model_file;
struct tape;

enum mat {
    MAT_Q,
    MAT_K,
    MAT_V,
    MAT_QKV,
    MAT_O,
    MAT_GATE,
    MAT_UP,
    MAT_GATE_UP,
    MAT_DOWN,
    MAT_ROUTER,
    MAT_EXPERT_GATE,
    MAT_EXPERT_UP,
    MAT_EXPERT_DOWN,
    MAT_COUNT
};

enum vec {
    VEC_ATTN_NORM,
    VEC_FFN_NORM,
    VEC_ATTN_POST_NORM,
    VEC_FFN_POST_NORM,
    VEC_Q_NORM,
    VEC_K_NORM,
    VEC_ATTN_NORM_BIAS,
    VEC_FFN_NORM_BIAS,
    VEC_Q_BIAS,
    VEC_K_BIAS,
    VEC_V_BIAS,
    VEC_QKV_BIAS,
    VEC_O_BIAS,
    VEC_GATE_BIAS,
    VEC_UP_BIAS,
    VEC_DOWN_BIAS,
    VEC_COUNT
};

struct layer {
    struct weight mat[MAT_COUNT];          /* data == NULL: the model has none */
    struct weight *vec[VEC_COUNT];         /* NULL: the model has none */
    const struct key_smoothing *smoothing; /* of keys in a cache of KV_I4; NULL: none */
    bool slides;                           /* attends over hp.window tokens */
    uint32_t kv_group, kv_layer;           /* its KV group, and which of the group's layers it is */
};

struct model {
    const struct arch *arch;
    const struct model_file *file;
    struct arena *arena;
    struct hparams hp;
    struct layer *layers;
    struct weight token_embd, own_head;
    struct weight *head;               /* own_head, or token_embd for both; NULL: an encoder */
    struct weight pos_embd, type_embd; /* encoders */
    struct weight *embd_norm, *embd_norm_bias;
    struct weight *final_norm;
    struct weight *rope_freqs, *rope_freqs_local; /* rot_dims / 2 */
    float rope_factor, rope_factor_local;
    const struct model *target; /* of a draft head; else NULL */
    struct weight fc;           /* draft heads: [embedding, hidden state] -> x */
    struct weight *fc_bias;     /* or NULL */
    uint32_t kv_group_count;
    uint32_t kv_group_layers[KV_GROUPS_MAX];
};

struct model_options {
    uint32_t ctx_tokens;      /* the longest sequence: longrope chooses its factors by it; 0: what
                                 the model was made for ... */
    uint32_t ctx_default_max; /* ... but no more than this; 0: however much that is */
    const struct model *head_of; /* the file is a draft head (model/head.h) of this model, which
                                    outlives it; NULL: a model of its own */
};

/* ST_BAD names the file and the key or tensor. */
enum status model_open(const struct model_file *f, const struct model_options *options,
                       struct model **out, struct err *err);
void model_close(struct model *m); /* NULL is fine */

bool model_is_encoder(const struct model *m);

/* The output of the tape. */
enum model_goal {
    GOAL_LOGITS,            /* a row of logits for each wanted output */
    GOAL_LOGITS_AND_HIDDEN, /* and the tape keeps the hidden state that they are made of */
    GOAL_HIDDEN,            /* the last hidden state, normalised, for each wanted output */
    GOAL_POOLED,            /* encoders: one vector per sequence */
};
void model_build(const struct model *m, enum model_goal goal, struct tape *t);

/* Pieces of a decoder's forward pass, for running it layer by layer. The embedding: its output is a
 * row of `dim` for each wanted output. A layer: the op `input` gives the rows that it reads; *x is
 * the value that holds them and, after the last op, its results. It has no output yet. */
void model_build_embedding(const struct model *m, struct tape *t);
void model_build_layer(const struct model *m, uint32_t layer, struct tape *t, value_id *x);

/* Every matrix, table and vector once, for the device to prepare. */
typedef enum status weight_fn(void *ctx, struct weight *w, struct err *err);
enum status model_each_weight(struct model *m, weight_fn *fn, void *ctx, struct err *err);

uint64_t model_param_count(const struct model *m);

#endif
