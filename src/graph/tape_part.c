/* graph/tape_part.c - see graph/tape_part.h for the contract. */
#include "graph/tape_part.h"

#include "base/check.h"
#include "base/mem.h"

struct copying {
    const struct tape_part *part;
    struct tape *to;
    struct operand *map; /* [values of the whole]: where they are in `to`; operand_none: nowhere */
};

static void push_input(const struct copying *c) {
    const struct tape_part *part = c->part;
    uint32_t cols = 0;
    for (uint32_t i = 0; i < part->in_count; i++)
        cols += tape_value_at(part->whole, part->in[i])->cols;
    value_id v = tape_value(c->to, "input", ROWS_TOKENS, VALUE_F32, cols);
    struct operand all = tape_all(c->to, v);
    tape_push(c->to, &(struct op){.kind = OP_INPUT, .input = {.dst = all}});
    for (uint32_t i = 0, col = 0; i < part->in_count; i++) {
        uint32_t own = tape_value_at(part->whole, part->in[i])->cols;
        c->map[part->in[i]] = operand_slice(all, col, own);
        col += own;
    }
}

static void move_operand(const struct copying *c, struct operand *o) {
    *o = operand_slice(c->map[o->value], o->col, o->cols);
}

static void make_value(const struct copying *c, value_id id) {
    const struct tape_value *v = tape_value_at(c->part->whole, id);
    if (c->map[id].value != VALUE_NONE) return;
    c->map[id] = tape_all(c->to, tape_value(c->to, v->name, v->rows, v->type, v->cols));
}

/* What an op reads and writes in place is one operand, listed twice. */
static bool is_listed(struct operand *const *list, uint32_t count, const struct operand *o) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == o) return true;
    return false;
}

static enum status copy_op(const struct copying *c, uint32_t i, struct err *err) {
    struct op op = *tape_op(c->part->whole, i);
    struct op_access a = op_access(&op);
    for (uint32_t r = 0; r < a.read_count; r++)
        if (c->map[a.reads[r]->value].value == VALUE_NONE)
            return err_set(err, ST_BAD,
                           "tape: op %u (%s, layer %d) reads %s, which the ops before it do not "
                           "hand on",
                           i, op_name(op.kind), op.layer,
                           tape_value_at(c->part->whole, a.reads[r]->value)->name);
    for (uint32_t w = 0; w < a.write_count; w++) make_value(c, a.writes[w]->value);
    for (uint32_t w = 0; w < a.write_count; w++)
        if (!is_listed(a.reads, a.read_count, a.writes[w])) move_operand(c, a.writes[w]);
    for (uint32_t r = 0; r < a.read_count; r++) move_operand(c, a.reads[r]);
    tape_set_layer(c->to, op.layer);
    tape_push(c->to, &op);
    return ST_OK;
}

static void push_outputs(const struct copying *c) {
    for (uint32_t i = 0; i < c->part->out_count; i++) {
        struct operand src = c->map[c->part->out[i]];
        CHECK(src.value != VALUE_NONE);
        value_id rows = tape_value(c->to, "rows", ROWS_OUTPUTS, VALUE_F32, src.cols);
        tape_push(c->to, &(struct op){.kind = OP_GATHER,
                                      .gather = {.src = src, .dst = tape_all(c->to, rows)}});
        if (i == 0)
            tape_set_output(c->to, rows);
        else
            tape_set_kept(c->to, rows);
    }
}

enum status tape_copy_part(const struct tape_part *part, struct tape *to, struct err *err) {
    uint32_t values = tape_value_count(part->whole);
    CHECK(part->in_count >= 1 && part->in_count <= TAPE_PART_VALUES_MAX);
    CHECK(part->out_count >= 1 && part->out_count <= TAPE_PART_VALUES_MAX);
    CHECK(part->end <= tape_op_count(part->whole));
    struct copying c = {.part = part, .to = to};
    c.map = mem_alloc_array(values, sizeof(c.map[0]));
    if (!c.map) return err_set(err, ST_NOMEM, "out of memory for a part of the forward pass");
    for (uint32_t v = 0; v < values; v++) c.map[v] = operand_none;
    push_input(&c);
    enum status st = ST_OK;
    for (uint32_t i = part->first; i < part->end && st == ST_OK; i++) st = copy_op(&c, i, err);
    if (st == ST_OK) push_outputs(&c);
    mem_free(c.map);
    return st;
}
