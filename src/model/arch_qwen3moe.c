/* model/arch_qwen3moe.c - Qwen 3 with experts in most layers; a few may be dense. */
#include "format/model_file.h"
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    bool slides;
    TRY(hparams_read(f, "qwen3moe", hp, err));
    TRY(hparams_u32(f, (struct hparam_key){"qwen3moe", NULL, "num_experts"}, hp->experts,
                    &hp->experts, err));
    TRY(hparams_u32(
        f, (struct hparam_key){"qwen3moe", "expert_feed_forward_length", "moe_intermediate_size"},
        hp->expert_ffn, &hp->expert_ffn, err));
    TRY(hparams_bool(f, (struct hparam_key){"qwen3moe", "expert_weights_norm", "norm_topk_prob"},
                     model_file_kind(f) == MODEL_GGUF, &hp->norm_topk, err));
    TRY(hparams_bool(f, (struct hparam_key){"qwen3moe", NULL, "use_sliding_window"}, false, &slides,
                     err));
    if (!slides) hp->window = 0;
    return ST_OK;
}

static const enum vec needs[] = {VEC_Q_NORM, VEC_K_NORM, VEC_COUNT};

const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
    .hf = "qwen3_moe",
    .read_hparams = read_hparams,
    .needs = needs,
    .build = build_decoder,
    .build_layer = block_layer,
};
