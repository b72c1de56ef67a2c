/* translate/rows.h - tensors of a view whose rows are those of the base in another order, in
 * another type, or of several tensors.
 *
 * Lifetime: in the view's arena, as tensors of the base. Thread: reading, any number at once.
 */
#ifndef TRANSLATE_ROWS_H
#define TRANSLATE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct arena;
struct tensor_info;
struct weight;

/* Rope turns pairs of rows of each head. In a folder row i of a pair's first half goes with row
 * i + half; in a GGUF of llama the two are neighbours. Rows past the first `turned` of a head
 * stay. */
enum row_order { ROWS_KEPT, ROWS_TO_PAIRS, ROWS_TO_HALVES };
struct rope_rows {
    enum row_order order;
    uint32_t head_rows, turned; /* turned: even */
};

/* Where row `row` of the reordered tensor lies in the base. */
uint64_t rope_row(const struct rope_rows *r, uint64_t row);

struct row_plan {
    const struct tensor_info *const *from; /* borrowed from the base; all of one shape and type */
    uint32_t count;                        /* above 1: stacked, in a dimension of its own */
    bool is_stack;                         /* a dimension of its own also if count is 1 */
    struct rope_rows rope;
    enum dtype type; /* that of the base, or DTYPE_F32 */
};

/* Fill `out` but for its name, with a source in `arena` if the bytes of the base cannot be taken as
 * they are. ST_NOMEM without a sentence. */
enum status rows_plan(struct arena *arena, const struct row_plan *plan, struct tensor_info *out);

/* Make a vector of the model a tensor: float32, its rows reordered, `less` taken from each number.
 * ST_NOMEM without a sentence. */
enum status rows_vector(struct arena *arena, const char *name, const struct weight *vec,
                        const struct rope_rows *rope, float less, struct tensor_info *out);

#endif
