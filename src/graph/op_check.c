/* graph/op_check.c - the shapes of every op, checked once before anything runs.
 *
 * Kernels rely on what is checked here and do not look again. A failure is a bug in an
 * architecture file or a model whose weights have a shape that its facts do not promise.
 *
 * Of an op, in this order: its operands are columns of values of the right type; what is particular
 * to it (its check function in op_list.c); a quantised result is a whole row; rows match.
 */
#include <stdbool.h>

#include "base/check.h"
#include "graph/graph_int.h"
#include "graph/op_info.h"
#include "tensor/q8.h"

void check_fail(struct op_check *c, const char *what, uint64_t got, uint64_t expected) {
    if (c->st != ST_OK) return;
    c->st = err_set(c->err, ST_BAD, "tape: op %u (%s, layer %d): %s is %llu, expected %llu", c->idx,
                    op_name(c->op->kind), c->op->layer, what, (unsigned long long)got,
                    (unsigned long long)expected);
}

void check_equal(struct op_check *c, const char *what, uint64_t got, uint64_t expected) {
    if (got != expected) check_fail(c, what, got, expected);
}

static const struct tape_value *value_of(const struct op_check *c, struct operand o) {
    return &c->t->values[o.value];
}

void check_type(struct op_check *c, const char *what, struct operand o, enum value_type type) {
    if (c->st == ST_OK) check_equal(c, what, value_of(c, o)->type, type);
}

static const struct op_operand *operands_of(const struct op_check *c) {
    return op_info(c->op->kind)->operands;
}

static struct operand operand_at(const struct op_check *c, const struct op_operand *o) {
    return *(const struct operand *)(const void *)((const char *)c->op + o->offset);
}

static bool is_absent(const struct op_check *c, const struct op_operand *o) {
    return o->is_optional && operand_at(c, o).value == VALUE_NONE;
}

void check_results(struct op_check *c, uint32_t cols) {
    for (const struct op_operand *o = operands_of(c); o->use != USE_NONE; o++)
        if (o->use != USE_READ && !is_absent(c, o))
            check_equal(c, o->name, operand_at(c, o).cols, cols);
}

void check_same_cols(struct op_check *c) {
    uint32_t cols = operand_at(c, operands_of(c)).cols;
    for (const struct op_operand *o = operands_of(c); o->use != USE_NONE; o++)
        if (!is_absent(c, o)) check_equal(c, o->name, operand_at(c, o).cols, cols);
}

/* A present operand: a value of the right type, and columns inside it. */
static void check_operand(struct op_check *c, const struct op_operand *o) {
    struct operand at = operand_at(c, o);
    if (at.value >= c->t->value_count) check_fail(c, o->name, at.value, c->t->value_count);
    if (c->st != ST_OK) return;
    uint32_t cols = value_of(c, at)->cols;
    if (!o->is_typed_by_weights) check_type(c, o->name, at, o->type);
    if (at.col > cols || at.cols > cols - at.col) check_fail(c, o->name, at.col + at.cols, cols);
}

static void check_operands(struct op_check *c) {
    uint32_t results = 0, given = 0;
    for (const struct op_operand *o = operands_of(c); o->use != USE_NONE; o++) {
        bool is_result = o->use != USE_READ;
        results += is_result;
        if (is_absent(c, o)) continue;
        given += is_result;
        check_operand(c, o);
    }
    if (results > 0 && given == 0) check_fail(c, "count of results", 0, 1);
}

/* A quantised row is written as a whole, in blocks. */
static void check_quantised(struct op_check *c) {
    struct op copy = *c->op;
    struct operand *q8 = op_results(&copy).q8;
    if (c->st != ST_OK || !q8 || q8->value == VALUE_NONE) return;
    check_equal(c, "first column of q8", q8->col, 0);
    check_equal(c, "columns of the q8 value", value_of(c, *q8)->cols, q8->cols);
    check_equal(c, "columns of q8 mod 32", q8->cols % Q8_BLOCK, 0);
}

static void rows_are(struct op_check *c, const char *what, struct operand o, enum rows_kind rows) {
    check_equal(c, what, value_of(c, o)->rows, rows);
}

static void check_rows(struct op_check *c) {
    struct op copy = *c->op;
    if (c->st != ST_OK) return;
    struct op_access a = op_access(&copy);
    enum rows_kind from = ROWS_TOKENS, to = ROWS_TOKENS;
    switch (op_info(copy.kind)->rows) {
    case ROWS_EACH:
        from = to = value_of(c, *(a.read_count ? a.reads : a.writes)[0])->rows;
        break;
    case ROWS_EACH_TOKEN:
        break;
    case ROWS_PICKED:
        to = ROWS_OUTPUTS;
        break;
    case ROWS_JOINED:
        to = ROWS_SEQS;
        break;
    }
    for (uint32_t i = 0; i < a.read_count; i++) rows_are(c, "rows of src", *a.reads[i], from);
    for (uint32_t i = 0; i < a.write_count; i++) rows_are(c, "rows of dst", *a.writes[i], to);
}

static enum status check_op(struct op_check *c) {
    const struct op_info *info = op_info(c->op->kind);
    check_operands(c);
    if (c->st != ST_OK) return c->st;
    if (info->check)
        info->check(c, c->op);
    else
        check_same_cols(c);
    check_quantised(c);
    check_rows(c);
    return c->st;
}

static enum status check_kept(const struct tape *t, struct err *err) {
    if (t->kept == VALUE_NONE) return ST_OK;
    bool fits = t->kept < t->value_count && t->values[t->kept].rows == ROWS_OUTPUTS &&
                t->values[t->kept].type == VALUE_F32;
    if (fits) return ST_OK;
    return err_set(err, ST_BAD, "tape: the value that is kept is not rows of outputs in f32");
}

enum status tape_check(struct tape *t, struct err *err) {
    for (uint32_t i = 0; i < t->op_count; i++) {
        struct op_check c = {.t = t, .op = &t->ops[i], .idx = i, .err = err, .st = ST_OK};
        TRY(check_op(&c));
    }
    if (t->output >= t->value_count) return err_set(err, ST_BAD, "tape: no output was set");
    return check_kept(t, err);
}
