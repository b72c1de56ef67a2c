/* model/head.h - a draft head: a small model that reads the hidden state of another one.
 *
 * The layout is that of EAGLE-1: for token t of a text and the hidden state h that the target had
 * at the token before t (what its output matrix reads: after the last norm),
 *
 *     x = fc([embedding(t), h]) + bias; then the head's layers, with a KV cache of its own;
 *     the result x is the hidden state that the target is guessed to have at t,
 *     and the target's output matrix makes logits of it: a guess of the token after t.
 *
 * So a head may go on from its own result. There is no last norm, and the first layer has no norm
 * before its attention, unless the file has one. A row's position is that of h.
 *
 * A folder holds config.json with the numbers of the layers, and the tensors fc.weight, fc.bias (or
 * none), embed_tokens.weight (or none: the target's), and layers.N.* as other folders name them.
 */
#ifndef MODEL_HEAD_H
#define MODEL_HEAD_H

#include "model/model.h"

struct tape;

/* m->target, m->arch and m->hp are set. ST_BAD: it cannot be a head of this target. */
enum status head_check(const struct model *m, struct err *err);

/* The op `input` reads h: `dim` floats for each row. GOAL_HIDDEN and GOAL_LOGITS_AND_HIDDEN give x
 * of the wanted outputs. */
void head_build(const struct model *m, enum model_goal goal, struct tape *t);

#endif
