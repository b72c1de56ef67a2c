/* graph/memory.c - an offset in the slab for every value.
 *
 * A value is live from the first op that touches it to the last; what a product reads stays live
 * through an activation after it. Values are placed in the order in which they become live, each at
 * the lowest offset where it overlaps no value that is live at the same time. The result is within
 * a few per cent of the peak on the tapes of our architectures.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "graph/graph_int.h"
#include "tensor/q8.h"

enum { ROW_ALIGN = 64 };

static void note_use(struct tape *t, value_id v, uint32_t op) {
    struct tape_value *value = &t->values[v];
    if (value->first_op == UINT32_MAX) value->first_op = op;
    value->last_op = op;
}

/* What a product reads stays live through an activation after it: a device may apply the act to
 * some columns while it still computes others. */
static bool is_followed(const struct tape *t, uint32_t op) {
    return t->ops[op].kind == OP_MATMUL && op + 1 < t->op_count && t->ops[op + 1].kind == OP_ACT;
}

static void find_live_ranges(struct tape *t) {
    for (uint32_t v = 0; v < t->value_count; v++) t->values[v].first_op = UINT32_MAX;
    for (uint32_t i = 0; i < t->op_count; i++) {
        struct op_access a = op_access(&t->ops[i]);
        for (uint32_t r = 0; r < a.read_count; r++) {
            note_use(t, a.reads[r]->value, i);
            if (is_followed(t, i)) note_use(t, a.reads[r]->value, i + 1);
        }
        for (uint32_t w = 0; w < a.write_count; w++) note_use(t, a.writes[w]->value, i);
    }
    t->values[t->output].last_op = t->op_count;
    if (t->kept != VALUE_NONE) t->values[t->kept].last_op = t->op_count;
}

static bool value_bytes(const struct tape *t, struct tape_value *v, size_t *bytes) {
    size_t row = v->type == VALUE_Q8 ? q8_row_bytes(v->cols) : (size_t)v->cols * 4;
    if (!size_round_up(row, ROW_ALIGN, &v->row_bytes)) return false;
    return size_mul(v->row_bytes, tape_rows_max(t, v), bytes);
}

struct place {
    value_id value;
    size_t bytes;
};

static bool lives_overlap(const struct tape_value *a, const struct tape_value *b) {
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

/* The lowest offset at which `v` of `bytes` overlaps no placed value. Each collision
 * moves the candidate up, so the loop ends after at most `count` moves. */
static size_t find_offset(const struct tape *t, const struct place *placed, uint32_t count,
                          const struct tape_value *v, size_t bytes) {
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < count; i++) {
            const struct tape_value *other = &t->values[placed[i].value];
            size_t end = other->offset + placed[i].bytes;
            if (!lives_overlap(v, other)) continue;
            if (offset < end && other->offset < offset + bytes) {
                offset = end;
                moved = true;
            }
        }
    }
    return offset;
}

enum status tape_assign_memory(struct tape *t, struct err *err) {
    find_live_ranges(t);
    struct place *placed = mem_alloc_array(t->value_count, sizeof(*placed));
    if (!placed)
        return err_set(err, ST_NOMEM,
                       "out of memory while assigning memory to the values of the forward pass");
    uint32_t count = 0;
    enum status st = ST_OK;
    t->slab_bytes = 0;
    for (uint32_t v = 0; v < t->value_count && st == ST_OK; v++) {
        struct tape_value *value = &t->values[v];
        size_t bytes;
        if (!value_bytes(t, value, &bytes))
            st = err_set(err, ST_BAD, "tape: value %s of %u columns is too large", value->name,
                         value->cols);
        else if (value->first_op != UINT32_MAX) {
            value->offset = find_offset(t, placed, count, value, bytes);
            placed[count++] = (struct place){(value_id)v, bytes};
            if (value->offset + bytes > t->slab_bytes) t->slab_bytes = value->offset + bytes;
        }
    }
    mem_free(placed);
    return st;
}
