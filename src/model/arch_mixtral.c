/* model/arch_mixtral.c - Mixtral as a folder: Mistral whose feed-forward is eight experts. */
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    return hparams_read(f, "mixtral", hp, err);
}

static const struct name_override names[] = {
    {false, MAT_ROUTER, "block_sparse_moe.gate.weight"},
    {false, MAT_EXPERT_GATE, "block_sparse_moe.experts.%u.w1.weight"},
    {false, MAT_EXPERT_UP, "block_sparse_moe.experts.%u.w3.weight"},
    {false, MAT_EXPERT_DOWN, "block_sparse_moe.experts.%u.w2.weight"},
    {false, 0, NULL},
};

const struct arch arch_mixtral = {
    .name = "mixtral",
    .hf = "mixtral",
    .read_hparams = read_hparams,
    .names = names,
    .build = build_decoder,
    .build_layer = block_layer,
};
