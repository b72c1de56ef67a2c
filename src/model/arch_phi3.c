/* model/arch_phi3.c - Phi-3, 3.5 and 4: Q, K, V in one matrix, gate and up in another.
 *
 * The long versions stretch rope by a divisor per dimension ("longrope"), one list for short
 * sequences and one for long; which is used depends on the context that the engine was opened
 * with, never on the request at hand, so that an answer does not change with its length.
 */
#include "model/arch.h"
#include "model/blocks.h"

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    TRY(hparams_read(f, "phi3", hp, err));
    return ST_OK;
}

const struct arch arch_phi3 = {
    .name = "phi3",
    .hf = "phi3",
    .read_hparams = read_hparams,
    .build = build_decoder,
    .build_layer = block_layer,
};
