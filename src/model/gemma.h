/* model/gemma.h - what Gemma 2 and 3 have in common. */
#ifndef MODEL_GEMMA_H
#define MODEL_GEMMA_H

#include "model/arch.h"

/* Embeddings times sqrt(dim), gelu, norm weights stored less one in folders, and the scale of
 * attention. `large_layers` is the depth of the one size whose GGUF scales by dim / heads. */
enum status gemma_read(const struct model_file *f, const char *arch, uint32_t large_layers,
                       struct hparams *hp, struct err *err);

extern const struct name_override gemma_names[];

/* A layer with a norm before and after each block. */
void gemma_layer(struct flow *f, uint32_t layer);

#endif
