/* model/arch_qwen2.c - Qwen 2 and 2.5: llama with biases on Q, K and V.
 *
 * A window is described in config.json but used only if use_sliding_window says so, and then
 * by the layers from max_window_layers on.
 */
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    bool slides;
    TRY(hparams_read(f, "qwen2", hp, err));
    TRY(hparams_bool(f, (struct hparam_key){"qwen2", NULL, "use_sliding_window"}, false, &slides,
                     err));
    TRY(hparams_u32(f, (struct hparam_key){"qwen2", NULL, "max_window_layers"}, 0,
                    &hp->window_first, err));
    if (!slides) hp->window = 0;
    return ST_OK;
}

static const enum vec needs[] = {VEC_Q_BIAS, VEC_K_BIAS, VEC_V_BIAS, VEC_COUNT};

const struct arch arch_qwen2 = {
    .name = "qwen2",
    .hf = "qwen2",
    .read_hparams = read_hparams,
    .needs = needs,
    .build = build_decoder,
    .build_layer = block_layer,
};
