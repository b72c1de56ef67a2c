/* model/gemma.c - see model/gemma.h for the contract. */
#include "model/gemma.h"

#include <math.h>

#include "format/model_file.h"
#include "model/blocks.h"
#include "tensor/dtype.h"

/* The original code rounds the factor to bfloat16 if the weights are bfloat16, and keeps sqrt(dim)
 * as a float if they are float32. We always use the float. */
enum status gemma_read(const struct model_file *f, const char *arch, uint32_t large_layers,
                       struct hparams *hp, struct err *err) {
    TRY(hparams_read(f, arch, hp, err));
    hp->embed_scale = (float)sqrt((double)hp->dim);
    hp->act = ACT_GELU_TANH;
    hp->experts = 0;
    hp->norm_shift = model_file_kind(f) == MODEL_HF ? 1.0f : 0.0f;
    float per_head =
        hp->layers == large_layers ? (float)(hp->dim / hp->heads) : (float)hp->head_dim;
    TRY(hparams_f32(f, (struct hparam_key){arch, NULL, "query_pre_attn_scalar"}, per_head,
                    &per_head, err));
    if (per_head <= 0)
        return err_set(err, ST_BAD, "%s: query_pre_attn_scalar is %g, expected more than 0",
                       model_file_path(f), (double)per_head);
    hp->attn_scale = (float)(1.0 / sqrt((double)per_head));
    TRY(hparams_f32(f,
                    (struct hparam_key){arch, "attn_logit_softcapping", "attn_logit_softcapping"},
                    0, &hp->attn_softcap, err));
    return hparams_f32(
        f, (struct hparam_key){arch, "final_logit_softcapping", "final_logit_softcapping"}, 0,
        &hp->final_softcap, err);
}

const struct name_override gemma_names[] = {
    {true, VEC_ATTN_POST_NORM, "post_attention_layernorm.weight"},
    {true, VEC_FFN_NORM, "pre_feedforward_layernorm.weight"},
    {true, VEC_FFN_POST_NORM, "post_feedforward_layernorm.weight"},
    {true, 0, NULL},
};

void gemma_layer(struct flow *f, uint32_t layer) {
    const struct layer *l = &f->m->layers[layer];
    tape_set_layer(f->t, (int32_t)layer);
    struct operand y = block_norm(f, f->x, l->vec[VEC_ATTN_NORM]);
    y = block_attention(f, layer, y);
    if (l->vec[VEC_ATTN_POST_NORM]) y = block_norm(f, y, l->vec[VEC_ATTN_POST_NORM]);
    block_add(f, y);
    y = block_norm(f, f->x, l->vec[VEC_FFN_NORM]);
    y = block_ffn(f, layer, y);
    if (l->vec[VEC_FFN_POST_NORM]) y = block_norm(f, y, l->vec[VEC_FFN_POST_NORM]);
    block_add(f, y);
}
