/* model/arch_gemma3.c - Gemma 3, its language part: five sliding layers to a full one, each
 * kind with a rope of its own; heads of Q and K are normalised.
 */
#include "format/model_file.h"
#include "model/blocks.h"
#include "model/gemma.h"

enum { LARGE_LAYERS = 62 }; /* the 27B size */

/* Newer folders keep one rope description per kind of layer. */
static enum status read_local_rope(const struct model_file *f, struct hparams *hp,
                                   struct err *err) {
    struct rope_params *full = &hp->rope, *local = &hp->rope_local;
    local->scaling = SCALING_NONE;
    local->factor = 1;
    TRY(hparams_f64(f, (struct hparam_key){"gemma3", "rope.freq_base_swa", "rope_local_base_freq"},
                    10000.0, &local->theta, err));
    TRY(hparams_f64(
        f, (struct hparam_key){"gemma3", NULL, "rope_parameters.sliding_attention.rope_theta"},
        local->theta, &local->theta, err));
    TRY(hparams_f64(
        f, (struct hparam_key){"gemma3", NULL, "rope_parameters.full_attention.rope_theta"},
        full->theta, &full->theta, err));
    TRY(hparams_f64(f, (struct hparam_key){"gemma3", NULL, "rope_parameters.full_attention.factor"},
                    full->factor, &full->factor, err));
    if (full->factor != 1) full->scaling = SCALING_LINEAR;
    if (local->theta <= 0 || full->theta <= 0 || full->factor <= 0)
        return err_set(err, ST_BAD, "%s: rope bases %g and %g, factor %g: all must be positive",
                       model_file_path(f), full->theta, local->theta, full->factor);
    return ST_OK;
}

static enum status read_hparams(const struct model_file *f, struct hparams *hp, struct err *err) {
    TRY(gemma_read(f, "gemma3", LARGE_LAYERS, hp, err));
    TRY(hparams_u32(
        f,
        (struct hparam_key){"gemma3", "attention.sliding_window_pattern", "sliding_window_pattern"},
        6, &hp->window_period, err));
    if (model_file_kind(f) == MODEL_GGUF && hp->rope.theta == 10000.0) hp->rope.theta = 1000000.0;
    return read_local_rope(f, hp, err);
}

static const char *const aka[] = {"gemma3", NULL};

static const enum vec needs[] = {VEC_ATTN_POST_NORM, VEC_FFN_POST_NORM, VEC_Q_NORM, VEC_K_NORM,
                                 VEC_COUNT};

const struct arch arch_gemma3 = {
    .name = "gemma3",
    .hf = "gemma3_text",
    .aka = aka,
    .read_hparams = read_hparams,
    .names = gemma_names,
    .needs = needs,
    .build = build_decoder,
    .build_layer = gemma_layer,
};
