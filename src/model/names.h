/* model/names.h - the names of weights in GGUF files and in folders. */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch.h"

enum { NAME_BYTES = 160 };

/* How a file names its weights. */
struct name_style {
    const struct arch *arch;
    bool is_hf;         /* a Hugging Face folder, else GGUF */
    const char *prefix; /* of a folder's layers */
};

/* The name of a layer's matrix or vector; `expert` is used only by folders with a matrix for each
 * expert. False: such files never have it. */
bool mat_name(const struct name_style *s, enum mat mat, uint32_t layer, uint32_t expert,
              char out[NAME_BYTES]);
bool vec_name(const struct name_style *s, enum vec vec, uint32_t layer, char out[NAME_BYTES]);

#endif
