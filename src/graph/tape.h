/* graph/tape.h - a forward pass, written once when a model is loaded.
 *
 * An architecture declares values and pushes ops in order; tape_finish() checks every shape,
 * fuses neighbours (a quantisation into the op that makes the numbers, a residual addition
 * into the product before it), and gives every value a place in one slab of scratch memory,
 * values that are never live at the same time sharing it. Nothing is built or allocated in a step.
 *
 * Lifetime: one per model. Thread: read-only once finished.
 */
#ifndef GRAPH_TAPE_H
#define GRAPH_TAPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/op.h"

struct buf;
struct tape; /* opaque to builders; devices read it through the calls below */

enum rows_kind { ROWS_TOKENS, ROWS_OUTPUTS, ROWS_SEQS };
enum value_type { VALUE_F32, VALUE_I32, VALUE_Q8 };

struct tape_value {
    const char *name; /* static text */
    enum rows_kind rows;
    enum value_type type;
    uint32_t cols;
    size_t row_bytes; /* set by finish: a multiple of 64 */
    size_t offset;    /* set by finish: in the slab */
    uint32_t first_op, last_op;
};

enum { TAPE_VALUES_MAX = 16384, TAPE_OPS_MAX = 16384 };

enum status tape_create(struct tape **out);
void tape_destroy(struct tape *t); /* NULL is fine */

/* Running out of room is remembered and reported by tape_finish. */
value_id tape_value(struct tape *t, const char *name, enum rows_kind rows, enum value_type type,
                    uint32_t cols);
struct operand tape_all(const struct tape *t, value_id v); /* all its columns */
struct operand operand_slice(struct operand o, uint32_t col, uint32_t cols);
extern const struct operand operand_none;
void tape_push(struct tape *t, const struct op *op);
void tape_set_layer(struct tape *t, int32_t layer); /* stamped on the ops that follow */

/* Values that the engine reads after a run: they stay live to the end. */
void tape_set_output(struct tape *t, value_id v);
value_id tape_output(const struct tape *t);
/* One more value of output rows, in f32, that the engine reads (device_result.kept); the last one
 * set counts. VALUE_NONE: there is none. */
void tape_set_kept(struct tape *t, value_id v);
value_id tape_kept(const struct tape *t);

/* ST_NOMEM: what was written is not all there. */
enum status tape_status(const struct tape *t, struct err *err);

struct tape_sizes {
    uint32_t rows_max, outputs_max, seqs_max; /* the largest step */
};
/* ST_BAD names the op, its layer and the operand at fault: a bug in an architecture file or
 * weights of an unexpected shape. */
enum status tape_finish(struct tape *t, const struct tape_sizes *sizes, struct err *err);

/* Reading. */
uint32_t tape_op_count(const struct tape *t);
const struct op *tape_op(const struct tape *t, uint32_t i);
uint32_t tape_value_count(const struct tape *t);
const struct tape_value *tape_value_at(const struct tape *t, value_id v);
size_t tape_slab_bytes(const struct tape *t);
const struct tape_sizes *tape_sizes(const struct tape *t);
uint32_t tape_rows_max(const struct tape *t, const struct tape_value *v); /* in the largest step */

/* What one run over `rows` rows, one of which is wanted, at context length `ctx` costs. */
struct op_cost {
    uint64_t flops; /* multiply-adds count as two; integer ones too */
    uint64_t bytes; /* weights and KV read or written; scratch is taken to stay in cache */
};
struct op_cost tape_op_cost(const struct tape *t, uint32_t i, uint32_t rows, uint32_t ctx);

/* A table for people: every op with its layer, shapes, bytes and flops; and a drawing. */
void tape_dump(const struct tape *t, uint32_t rows, uint32_t ctx, struct buf *out);
void tape_svg(const struct tape *t, const char *title, uint32_t rows, uint32_t ctx,
              struct buf *out);

#endif
