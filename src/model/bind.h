/* model/bind.h - finds a model's weights in its file and checks their shapes. */
#ifndef MODEL_BIND_H
#define MODEL_BIND_H

#include "model/arch.h"

/* Fill m->layers, the embeddings, norms and the head. m->arch, m->file, m->hp and m->arena are
 * set; hp.vocab is taken from the embedding if the file does not give it. */
enum status model_bind(struct model *m, struct err *err);

/* A small tensor as float32 in the model's arena, plus `shift`; *out is NULL if the file lacks
 * it. ST_BAD: it does not have `count` elements. */
enum status bind_vec(struct model *m, const char *name, uint32_t count, float shift,
                     struct weight **out, struct err *err);

/* What opening a model adds to the numbers of a layer's vector. */
float bind_shift(const struct model *m, enum vec vec);

#endif
