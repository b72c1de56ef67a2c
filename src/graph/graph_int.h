/* graph/graph_int.h - the inside of a tape, shared by the files of this folder only. */
#ifndef GRAPH_GRAPH_INT_H
#define GRAPH_GRAPH_INT_H

#include <stdbool.h>

#include "graph/tape.h"

struct tape {
    struct tape_value *values;
    uint32_t value_count, value_cap;
    struct op *ops;
    uint32_t op_count, op_cap;
    int32_t layer;
    value_id output;
    bool failed; /* ran out of room while building */
    bool finished;
    struct tape_sizes sizes;
    size_t slab_bytes;
};

/* The three passes of tape_finish, in this order. */
enum status tape_check(struct tape *t, struct err *err);
void tape_fuse(struct tape *t);
enum status tape_plan(struct tape *t, struct err *err);

#endif
