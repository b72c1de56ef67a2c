/* graph/tape.c - building and reading a tape; see graph/tape.h for the contract. */
#include "graph/tape.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "graph/graph_int.h"

enum { FIRST_CAP = 64 };

const struct operand operand_none = {.value = VALUE_NONE};

enum status tape_create(struct tape **out) {
    struct tape *t = mem_zalloc(sizeof(*t));
    if (!t) return ST_NOMEM;
    /* Value 0 can always be made: it is what tape_value gives when memory runs out later. */
    t->values = mem_alloc_array(FIRST_CAP, sizeof(t->values[0]));
    if (!t->values) {
        mem_free(t);
        return ST_NOMEM;
    }
    t->value_cap = FIRST_CAP;
    t->layer = -1;
    t->output = t->kept = VALUE_NONE;
    *out = t;
    return ST_OK;
}

void tape_destroy(struct tape *t) {
    if (!t) return;
    mem_free(t->values);
    mem_free(t->ops);
    mem_free(t);
}

/* Room for one more element of `bytes`, up to `max` of them; NULL leaves the array as it is. */
static void *grow(void *array, uint32_t count, uint32_t *cap, size_t bytes, uint32_t max) {
    if (count < *cap) return array;
    if (count >= max) return NULL;
    uint32_t bigger = *cap ? *cap * 2 : FIRST_CAP;
    void *moved = mem_realloc(array, bigger * bytes);
    if (moved) *cap = bigger;
    return moved;
}

value_id tape_value(struct tape *t, const char *name, enum rows_kind rows, enum value_type type,
                    uint32_t cols) {
    CHECK(!t->finished);
    void *values =
        grow(t->values, t->value_count, &t->value_cap, sizeof(t->values[0]), TAPE_VALUES_MAX);
    if (!values) {
        t->failed = true;
        return 0;
    }
    t->values = values;
    t->values[t->value_count] =
        (struct tape_value){.name = name, .rows = rows, .type = type, .cols = cols};
    return (value_id)t->value_count++;
}

struct operand tape_all(const struct tape *t, value_id v) {
    uint32_t cols = v < t->value_count ? t->values[v].cols : 0;
    return (struct operand){.value = v, .col = 0, .cols = cols};
}

struct operand operand_slice(struct operand o, uint32_t col, uint32_t cols) {
    return (struct operand){.value = o.value, .col = o.col + col, .cols = cols};
}

void tape_push(struct tape *t, const struct op *op) {
    CHECK(!t->finished);
    void *ops = grow(t->ops, t->op_count, &t->op_cap, sizeof(t->ops[0]), TAPE_OPS_MAX);
    if (!ops) {
        t->failed = true;
        return;
    }
    t->ops = ops;
    t->ops[t->op_count] = *op;
    t->ops[t->op_count].layer = t->layer;
    t->op_count++;
}

void tape_set_layer(struct tape *t, int32_t layer) { t->layer = layer; }

void tape_set_output(struct tape *t, value_id v) { t->output = v; }

value_id tape_output(const struct tape *t) { return t->output; }

void tape_set_kept(struct tape *t, value_id v) { t->kept = v; }

value_id tape_kept(const struct tape *t) { return t->kept; }

uint32_t tape_rows_max(const struct tape *t, const struct tape_value *v) {
    switch (v->rows) {
    case ROWS_TOKENS:
        return t->sizes.rows_max;
    case ROWS_OUTPUTS:
        return t->sizes.outputs_max;
    case ROWS_SEQS:
        return t->sizes.seqs_max;
    }
    return 0;
}

enum status tape_status(const struct tape *t, struct err *err) {
    if (!t->failed) return ST_OK;
    return err_set(err, ST_NOMEM,
                   "the forward pass has more than %d values or %d ops, or memory ran out",
                   TAPE_VALUES_MAX, TAPE_OPS_MAX);
}

enum status tape_finish(struct tape *t, const struct tape_sizes *sizes, struct err *err) {
    CHECK(!t->finished);
    TRY(tape_status(t, err));
    t->sizes = *sizes;
    TRY(tape_check(t, err));
    tape_fuse(t);
    TRY(tape_assign_memory(t, err));
    t->finished = true;
    return ST_OK;
}

uint32_t tape_op_count(const struct tape *t) { return t->op_count; }

const struct op *tape_op(const struct tape *t, uint32_t i) {
    DCHECK(i < t->op_count);
    return &t->ops[i];
}

uint32_t tape_value_count(const struct tape *t) { return t->value_count; }

const struct tape_value *tape_value_at(const struct tape *t, value_id v) {
    DCHECK(v < t->value_count);
    return &t->values[v];
}

size_t tape_slab_bytes(const struct tape *t) { return t->slab_bytes; }

const struct tape_sizes *tape_sizes(const struct tape *t) { return &t->sizes; }
