/* model/arch_qwen3.c - Qwen 3: every head of Q and K is normalised before rope. */
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    bool slides;
    TRY(hparams_read(f, "qwen3", hp, err));
    TRY(hparams_bool(f, (struct hparam_key){"qwen3", NULL, "use_sliding_window"}, false, &slides,
                     err));
    TRY(hparams_u32(f, (struct hparam_key){"qwen3", NULL, "max_window_layers"}, 0,
                    &hp->window_first, err));
    if (!slides) hp->window = 0;
    return ST_OK;
}

static const enum vec needs[] = {VEC_Q_NORM, VEC_K_NORM, VEC_COUNT};

const struct arch arch_qwen3 = {
    .name = "qwen3",
    .hf = "qwen3",
    .read_hparams = read_hparams,
    .needs = needs,
    .build = build_decoder,
    .build_layer = block_layer,
};
