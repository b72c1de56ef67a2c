/* model/arch_bert.c - BERT: an encoder whose pooled output is the embedding of a text.
 *
 * Norms come after their block; every row sees every other of its text; positions are learned.
 * The sentence-transformers files of a folder, or the pooling_type of a GGUF, say how rows are
 * pooled.
 */
#include <string.h>

#include "base/json.h"
#include "format/model_file.h"
#include "graph/tape.h"
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_gguf_pooling(const struct model_file *f, struct hparams *hp,
                                     struct err *err) {
    uint32_t type; /* GGUF: 0 none, 1 mean, 2 first, 3 last */
    TRY(hparams_u32(f, (struct hparam_key){"bert", "pooling_type", NULL}, 1, &type, err));
    if (type > 3)
        return err_set(err, ST_BAD, "%s: bert.pooling_type is %u, expected 0 to 3",
                       model_file_path(f), type);
    hp->pooling = type == 2 ? POOL_FIRST : type == 3 ? POOL_LAST : POOL_MEAN;
    hp->unit_length = true;
    return ST_OK;
}

static bool has_normalize(const struct json *modules) {
    for (size_t i = 0; i < json_count(modules); i++)
        if (str_ends(json_str(json_get(json_at(modules, i), "type")), STR("Normalize")))
            return true;
    return false;
}

/* The model file caches the JSON files; opening them has no visible effect. */
static enum status read_folder_pooling(const struct model_file *f, struct hparams *hp,
                                       struct err *err) {
    struct model_file *file = (struct model_file *)(uintptr_t)f;
    const struct json *pooling, *modules, *sentence;
    TRY(model_file_json(file, "1_Pooling/config.json", &pooling, err));
    TRY(model_file_json(file, "modules.json", &modules, err));
    TRY(model_file_json(file, "sentence_bert_config.json", &sentence, err));
    int64_t longest = json_int(json_get(sentence, "max_seq_length"), 0);
    hp->embed_tokens_max = longest > 0 && longest < INT32_MAX ? (uint32_t)longest : 0;
    hp->pooling = POOL_MEAN;
    if (json_bool(json_get(pooling, "pooling_mode_cls_token"), false)) hp->pooling = POOL_FIRST;
    if (json_bool(json_get(pooling, "pooling_mode_lasttoken"), false)) hp->pooling = POOL_LAST;
    hp->unit_length = modules ? has_normalize(modules) : false;
    return ST_OK;
}

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    TRY(hparams_read(f, "bert", hp, err));
    TRY(hparams_f32(f,
                    (struct hparam_key){"bert", "attention.layer_norm_epsilon", "layer_norm_eps"},
                    1e-12f, &hp->norm_eps, err));
    TRY(hparams_act(f, ACT_GELU_ERF, &hp->act, err));
    hp->experts = 0;
    if (hp->heads * hp->head_dim != hp->dim || hp->kv_heads != hp->heads)
        return err_set(
            err, ST_BAD,
            "%s: %u heads of %u on %u KV heads, expected as many KV heads and a width of "
            "%u in all",
            model_file_path(f), hp->heads, hp->head_dim, hp->kv_heads, hp->dim);
    return model_file_kind(f) == MODEL_GGUF ? read_gguf_pooling(f, hp, err)
                                            : read_folder_pooling(f, hp, err);
}

static const struct name_override names[] = {
    {false, MAT_Q, "attention.self.query.weight"},
    {false, MAT_K, "attention.self.key.weight"},
    {false, MAT_V, "attention.self.value.weight"},
    {false, MAT_O, "attention.output.dense.weight"},
    {false, MAT_UP, "intermediate.dense.weight"},
    {false, MAT_DOWN, "output.dense.weight"},
    {true, VEC_Q_BIAS, "attention.self.query.bias"},
    {true, VEC_K_BIAS, "attention.self.key.bias"},
    {true, VEC_V_BIAS, "attention.self.value.bias"},
    {true, VEC_O_BIAS, "attention.output.dense.bias"},
    {true, VEC_UP_BIAS, "intermediate.dense.bias"},
    {true, VEC_DOWN_BIAS, "output.dense.bias"},
    {true, VEC_ATTN_NORM, "attention.output.LayerNorm.weight"},
    {true, VEC_ATTN_NORM_BIAS, "attention.output.LayerNorm.bias"},
    {true, VEC_FFN_NORM, "output.LayerNorm.weight"},
    {true, VEC_FFN_NORM_BIAS, "output.LayerNorm.bias"},
    {false, 0, NULL},
};

static const enum vec needs[] = {VEC_ATTN_NORM_BIAS, VEC_FFN_NORM_BIAS, VEC_COUNT};

static void push_embed(struct flow *f, const struct weight *table, enum embed_source source) {
    tape_push(
        f->t,
        &(struct op){
            .kind = OP_EMBED,
            .embed = {.table = table, .source = source, .add = true, .scale = 1, .dst = f->x}});
}

/* x = norm(x), in place. */
static void push_layer_norm(struct flow *f, const struct weight *weight,
                            const struct weight *bias) {
    tape_push(f->t, &(struct op){.kind = OP_NORM,
                                 .norm = {.kind = NORM_LAYER,
                                          .group = f->x.cols,
                                          .eps = f->m->hp.norm_eps,
                                          .weight = weight,
                                          .bias = bias,
                                          .src = f->x,
                                          .dst = f->x,
                                          .q8 = operand_none}});
}

static struct operand fresh(struct flow *f, const char *name, uint32_t cols) {
    return tape_all(f->t, tape_value(f->t, name, ROWS_TOKENS, VALUE_F32, cols));
}

static struct operand push_attention(struct flow *f, const struct layer *l) {
    const struct hparams *hp = &f->m->hp;
    struct matmul_part parts[] = {{&l->mat[MAT_Q], l->vec[VEC_Q_BIAS]},
                                  {&l->mat[MAT_K], l->vec[VEC_K_BIAS]},
                                  {&l->mat[MAT_V], l->vec[VEC_V_BIAS]}};
    struct operand qkv = block_matmul(f, "qkv", f->x, parts, 3);
    struct operand out = fresh(f, "attn", hp->dim);
    tape_push(f->t, &(struct op){.kind = OP_SELF_ATTENTION,
                                 .self_attention = {.heads = hp->heads,
                                                    .head_dim = hp->head_dim,
                                                    .scale = hp->attn_scale,
                                                    .q = operand_slice(qkv, 0, hp->dim),
                                                    .k = operand_slice(qkv, hp->dim, hp->dim),
                                                    .v = operand_slice(qkv, 2 * hp->dim, hp->dim),
                                                    .dst = out,
                                                    .q8 = operand_none}});
    struct matmul_part o = {&l->mat[MAT_O], l->vec[VEC_O_BIAS]};
    return block_matmul(f, "attn_out", out, &o, 1);
}

static struct operand push_ffn(struct flow *f, const struct layer *l) {
    struct matmul_part up = {&l->mat[MAT_UP], l->vec[VEC_UP_BIAS]};
    struct matmul_part down = {&l->mat[MAT_DOWN], l->vec[VEC_DOWN_BIAS]};
    struct operand inner = block_matmul(f, "up", f->x, &up, 1);
    struct operand act = fresh(f, "act", inner.cols);
    tape_push(f->t, &(struct op){.kind = OP_ACT,
                                 .act = {.kind = f->m->hp.act,
                                         .segments = 1,
                                         .gate = inner,
                                         .up = operand_none,
                                         .dst = act,
                                         .q8 = operand_none}});
    return block_matmul(f, "ffn_out", act, &down, 1);
}

static void build(const struct model *m, enum model_goal goal, struct tape *t) {
    (void)goal; /* an encoder has one */
    struct flow f = flow_begin(m, t);
    push_embed(&f, &m->pos_embd, EMBED_POSITION);
    if (m->type_embd.data) push_embed(&f, &m->type_embd, EMBED_ZERO);
    push_layer_norm(&f, m->embd_norm, m->embd_norm_bias);
    for (uint32_t i = 0; i < m->hp.layers; i++) {
        const struct layer *l = &m->layers[i];
        tape_set_layer(t, (int32_t)i);
        block_add(&f, push_attention(&f, l));
        push_layer_norm(&f, l->vec[VEC_ATTN_NORM], l->vec[VEC_ATTN_NORM_BIAS]);
        block_add(&f, push_ffn(&f, l));
        push_layer_norm(&f, l->vec[VEC_FFN_NORM], l->vec[VEC_FFN_NORM_BIAS]);
    }
    tape_set_layer(t, -1);
    struct operand out = tape_all(t, tape_value(t, "pooled", ROWS_SEQS, VALUE_F32, m->hp.dim));
    tape_push(t, &(struct op){.kind = OP_POOL,
                              .pool = {.kind = m->hp.pooling,
                                       .unit_length = m->hp.unit_length,
                                       .src = f.x,
                                       .dst = out}});
    tape_set_output(t, out.value);
}

const struct arch arch_bert = {
    .name = "bert",
    .hf = "bert",
    .encoder = true,
    .read_hparams = read_hparams,
    .names = names,
    .needs = needs,
    .build = build,
};
