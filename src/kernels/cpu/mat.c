/* kernels/cpu/mat.c - operands as drivers see them; see kernels/cpu/cpu_int.h. */
#include "base/check.h"
#include "kernels/cpu/cpu_int.h"

uint32_t step_rows(const struct step *s, enum rows_kind kind) {
    switch (kind) {
    case ROWS_TOKENS:
        return s->row_count;
    case ROWS_OUTPUTS:
        return s->output_count;
    default:
        return s->seq_count;
    }
}

struct mat mat_of(const struct cpu_run *x, struct operand o) {
    if (o.value == VALUE_NONE) return (struct mat){.base = NULL};
    const struct tape_value *v = tape_value_at(x->tape, o.value);
    return (struct mat){
        .base = x->slab + v->offset,
        .row_bytes = v->row_bytes,
        .col = o.col,
        .cols = o.cols,
        .all_cols = v->cols,
        .row_count = step_rows(x->step, v->rows),
        .kind = v->rows,
    };
}

struct q8_row mat_q8_read(const struct mat *m, uint32_t row, uint32_t col) {
    struct q8_row whole = q8_row_at(m->base + row * m->row_bytes, m->all_cols);
    uint32_t from = m->col + col;
    return (struct q8_row){
        .q = whole.q + from,
        .scale = whole.scale + from / Q8_BLOCK,
        .dsum = whole.dsum + from / Q8_BLOCK,
        .dsum16 = whole.dsum16 + from / (Q8_BLOCK / 2),
        .isum = whole.isum + from / Q8_BLOCK,
    };
}

struct q8_out mat_q8_write(const struct mat *m, uint32_t row, uint32_t col) {
    return q8_out_of(mat_q8_read(m, row, col));
}

bool run_row_is_live(const struct cpu_run *x, enum rows_kind kind, uint32_t row) {
    switch (kind) {
    case ROWS_TOKENS:
        return x->step->pos[row] >= 0;
    case ROWS_OUTPUTS:
        return x->step->pos[x->step->output_row[row]] >= 0;
    default:
        return true;
    }
}
