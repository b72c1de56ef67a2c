/* model/arch_mistral.c - Mistral as a folder: llama with a sliding window on every layer. */
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    return hparams_read(f, "mistral", hp, err);
}

const struct arch arch_mistral = {
    .name = "mistral",
    .hf = "mistral",
    .read_hparams = read_hparams,
    .build = build_decoder,
    .build_layer = block_layer,
};
