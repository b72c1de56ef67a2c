/* model/arch_llama.c - Llama 1, 2, 3.x and their many relatives (SmolLM2 among them).
 *
 * GGUF files of this family hold Q and K with their rows reordered, so that rope turns
 * neighbouring pairs; folders have the original order, in which it turns halves. Mistral and
 * Mixtral call themselves llama in GGUF: a window and experts are used where the file has them.
 */
#include "format/model_file.h"
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    TRY(hparams_read(f, "llama", hp, err));
    if (model_file_kind(f) == MODEL_GGUF) hp->rope.style = hp->rope_local.style = ROPE_ADJACENT;
    return ST_OK;
}

const struct arch arch_llama = {
    .name = "llama",
    .hf = "llama",
    .read_hparams = read_hparams,
    .build = build_decoder,
    .build_layer = block_layer,
};
