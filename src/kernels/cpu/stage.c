/* kernels/cpu/stage.c - see kernels/cpu/stage.h for the contract. */
#include "kernels/cpu/stage.h"

#include "graph/op_info.h"
#include "graph/step.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/workspace.h"

/* Storing a number into the cache takes as long as about four numbers of a norm: the keys of a
 * token lie far apart. */
enum { KV_STORE_ELEMS = 4 };

/* Drivers of these ops give row r of every operand to the same thread, which touches no other. */
static bool is_row_local(const struct op *op) {
    const struct op_info *info = op_info(op->kind);
    bool own_rows = info->rows == ROWS_EACH || info->rows == ROWS_EACH_TOKEN;
    return own_rows && info->grain == GRAIN_ROW;
}

/* The values that the ops since the last barrier touch. */
struct touched {
    value_id values[2 * OP_OPERANDS_MAX * 8];
    uint32_t count;
};

static void touch(struct touched *s, const struct op *op) {
    struct op copy = *op;
    struct op_access a = op_access(&copy);
    for (uint32_t i = 0; i < a.read_count; i++) s->values[s->count++] = a.reads[i]->value;
    for (uint32_t i = 0; i < a.write_count; i++) s->values[s->count++] = a.writes[i]->value;
}

static bool places_overlap(const struct tape *t, value_id a, value_id b) {
    const struct tape_value *x = tape_value_at(t, a), *y = tape_value_at(t, b);
    return x->offset < y->offset + y->row_bytes * tape_rows_max(t, y) &&
           y->offset < x->offset + x->row_bytes * tape_rows_max(t, x);
}

/* A thread that runs ahead into the next op reads and writes its own rows of that op's values.
 * That is safe if no other value of the ops before shares their memory, and if the rows of
 * all are the step's tokens, so that "its own rows" means the same in each. */
static bool may_run_ahead(const struct tape *t, const struct touched *before,
                          const struct touched *next) {
    for (uint32_t i = 0; i < next->count; i++) {
        if (tape_value_at(t, next->values[i])->rows != ROWS_TOKENS) return false;
        for (uint32_t j = 0; j < before->count; j++) {
            if (tape_value_at(t, before->values[j])->rows != ROWS_TOKENS) return false;
            bool same = before->values[j] == next->values[i];
            if (!same && places_overlap(t, before->values[j], next->values[i])) return false;
        }
    }
    return true;
}

/* Of one row, in elements of about 0.6 ns, a norm's and an act's; 0: too much for one thread. */
static uint32_t row_work(const struct op *op) {
    bool stores = op_info(op->kind)->kv == KV_WRITTEN;
    return op_row_elements(op) * (stores ? KV_STORE_ELEMS : 1);
}

static enum rows_kind rows_of(const struct tape *t, const struct op *op) {
    struct op copy = *op;
    struct op_access a = op_access(&copy);
    return tape_value_at(t, (a.write_count ? a.writes : a.reads)[0]->value)->rows;
}

/* The stage that begins with op `first`. */
static struct stage make_stage(const struct tape *t, uint32_t first) {
    const uint32_t room = (uint32_t)(sizeof(((struct touched *)0)->values) / sizeof(value_id));
    const struct op *op = tape_op(t, first);
    struct touched before = {.count = 0};
    struct stage s = {.first = first, .end = first, .rows = rows_of(t, op)};
    s.splits_rows = op_info(op->kind)->grain == GRAIN_ELEMENT;
    for (;;) {
        touch(&before, op);
        s.row_work += row_work(op);
        if (++s.end == tape_op_count(t)) return s;
        const struct op *after = tape_op(t, s.end);
        struct touched next = {.count = 0};
        touch(&next, after);
        if (!is_row_local(op) || !is_row_local(after) || before.count + next.count > room ||
            !may_run_ahead(t, &before, &next))
            return s;
        op = after;
    }
}

static bool lies_in(struct operand part, struct operand whole) {
    return part.value == whole.value && part.col >= whole.col &&
           part.col + part.cols <= whole.col + whole.cols;
}

static bool is_apart(const struct tape *t, struct operand result, const struct op_matmul *m) {
    if (result.value == VALUE_NONE) return true;
    return !places_overlap(t, result.value, m->src.value) &&
           !places_overlap(t, result.value, m->dst.value);
}

bool stage_may_follow(const struct tape *t, uint32_t i) {
    const struct op *op = tape_op(t, i), *before = i > 0 ? op - 1 : NULL;
    if (!before || op->kind != OP_ACT || before->kind != OP_MATMUL) return false;
    const struct op_act *a = &op->act;
    const struct op_matmul *m = &before->matmul;
    bool has_up = a->up.value != VALUE_NONE;
    if (a->segments != 1 || m->add || !lies_in(a->gate, m->dst)) return false;
    if (has_up && (!lies_in(a->up, m->dst) || a->up.cols != a->gate.cols)) return false;
    if (has_up && a->up.col < a->gate.col + a->gate.cols && a->gate.col < a->up.col + a->up.cols)
        return false;
    return is_apart(t, a->dst, m) && is_apart(t, a->q8, m);
}

uint32_t stages_make(const struct tape *t, const bool *follows, struct stage *out) {
    uint32_t count = 0;
    for (uint32_t op = 0; op < tape_op_count(t); op = out[count++].end) {
        out[count] = make_stage(t, op);
        out[count].follows = follows[op];
    }
    return count;
}

/* Alone, a thread does what `shares` of them would have done at the same time. */
static bool is_for_one(const struct stage *s, const struct step *step, uint32_t threads) {
    uint64_t rows = step_rows(step, s->rows), work = rows * s->row_work;
    uint64_t shares = s->splits_rows || rows > threads ? threads : rows;
    if (s->follows && rows < CLAIM_ROWS_MIN) return true;
    if (s->row_work == 0 || rows == 0) return s->row_work > 0;
    return work - work / shares <= (uint64_t)STAGE_SERIAL_ELEMS * threads;
}

uint32_t stages_serial_end(const struct stage *stages, uint32_t count, uint32_t at,
                           const struct step *step, uint32_t threads) {
    while (at < count && is_for_one(&stages[at], step, threads)) at++;
    return at;
}
