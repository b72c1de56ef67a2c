/* model/arch_gemma2.c - Gemma 2: every other layer slides; scores and logits are soft-capped. */
#include "model/blocks.h"
#include "model/gemma.h"

enum { LARGE_LAYERS = 46 }; /* the 27B size */

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    TRY(gemma_read(f, "gemma2", LARGE_LAYERS, hp, err));
    hp->window_period = 2;
    return ST_OK;
}

static const enum vec needs[] = {VEC_ATTN_POST_NORM, VEC_FFN_POST_NORM, VEC_COUNT};

const struct arch arch_gemma2 = {
    .name = "gemma2",
    .hf = "gemma2",
    .read_hparams = read_hparams,
    .names = gemma_names,
    .needs = needs,
    .build = build_decoder,
    .build_layer = gemma_layer,
};
