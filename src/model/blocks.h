/* model/blocks.h - the parts that forward passes are made of.
 *
 * An architecture's build() calls these in order; each pushes a few ops onto the tape. `x` is
 * the residual stream, a value of `dim` columns that blocks read and add to.
 */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "graph/tape.h"
#include "model/model.h"

/* A pass under construction. */
struct flow {
    const struct model *m;
    struct tape *t;
    struct operand x;
    bool keeps_rows; /* all rows of the last layer are computed, not only the wanted ones */
};

/* x = scale * embedding of the row's token. */
struct flow flow_begin(const struct model *m, struct tape *t);

/* From here on x holds only the rows whose output is wanted. */
void flow_wanted(struct flow *f);

/* A new value of x's rows: the RMS norm of x, times `weight`. */
struct operand block_norm(struct flow *f, struct operand x, const struct weight *weight);

/* Attention of layer `l` on `input`: projections, biases and per-head norms where the model has
 * them, rope, cache, attention, output projection. The result is a new value of `dim`. In the
 * last layer only keys and values need all rows: from its output projection on, x and the result
 * hold only the rows whose output is wanted, unless keeps_rows is set. */
struct operand block_attention(struct flow *f, uint32_t l, struct operand input);

/* down(act(gate(input)) * up(input)), a new value. */
struct operand block_ffn(struct flow *f, uint32_t l, struct operand input);

/* The same with the experts that the router chooses for each row. */
struct operand block_experts(struct flow *f, uint32_t l, struct operand input);

/* x += y. */
void block_add(struct flow *f, struct operand y);

/* The usual layer: x += attention(norm(x)); x += ffn(norm(x)), by experts where it has them. */
void block_layer(struct flow *f, uint32_t l);

/* After the last layer: the last norm, then flow_head. */
void flow_end(struct flow *f, enum model_goal goal);

/* The logits of `hidden` by the model's output matrix, unless only the hidden state is wanted; sets
 * the tape's output, and what it keeps. */
void flow_head(struct flow *f, enum model_goal goal, struct operand hidden);

/* The usual pass, from embedding to logits, by the architecture's build_layer. */
void build_decoder(const struct model *m, enum model_goal goal, struct tape *t);

/* Low-level: dst = product of `input` with one to three matrices side by side, quantising the
 * input where the matrices need it. A new value. */
struct operand block_matmul(struct flow *f, const char *name, struct operand input,
                            const struct matmul_part *parts, uint32_t count);

#endif
