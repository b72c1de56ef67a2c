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
    value_id output, kept;
    bool failed; /* ran out of room while building */
    bool finished;
    struct tape_sizes sizes;
    size_t slab_bytes;
};

/* The three passes of tape_finish, in this order. */
enum status tape_check(struct tape *t, struct err *err);
void tape_fuse(struct tape *t);
enum status tape_assign_memory(struct tape *t, struct err *err);

/* One op being checked. Only the first fault is kept; what follows it says nothing. */
struct op_check {
    const struct tape *t;
    const struct op *op;
    uint32_t idx;
    struct err *err;
    enum status st;
};

/* For the check functions of op_list.c. `what` is a noun: "WHAT is 3, expected 4". */
void check_fail(struct op_check *c, const char *what, uint64_t got, uint64_t expected);
void check_equal(struct op_check *c, const char *what, uint64_t got, uint64_t expected);
void check_type(struct op_check *c, const char *what, struct operand o, enum value_type type);
void check_results(struct op_check *c, uint32_t cols); /* all that are there have as many columns */
void check_same_cols(struct op_check *c); /* all operands have as many columns as the first */

#endif
