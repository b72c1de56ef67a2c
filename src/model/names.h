/* model/names.h - what a weight is called in either kind of file. */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch.h"

enum { NAME_BYTES = 160 };

/* The name of a layer's matrix or vector, for this kind of file; `expert` is used only by
 * folders that keep each expert's matrix apart. false if such files never hold it. */
bool mat_name(const struct arch *arch, bool is_hf, const char *prefix, enum mat mat, uint32_t layer,
              uint32_t expert, char out[NAME_BYTES]);
bool vec_name(const struct arch *arch, bool is_hf, const char *prefix, enum vec vec, uint32_t layer,
              char out[NAME_BYTES]);

#endif
