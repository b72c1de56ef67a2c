/* kernels/cpu/tap.c - see kernels/cpu/tap.h. */
#include "kernels/cpu/tap.h"

#include "graph/op_info.h"
#include "graph/tape.h"
#include "graph/weight.h"
#include "kernels/cpu/cpu_int.h"
#include "tensor/q8.h"

enum { PART_COLS = 8 * Q8_BLOCK };

struct source {
    const struct cpu_run *x;
    struct mat m;
    bool is_q8;
};

static struct source source_of(const struct cpu_run *x, struct operand o) {
    return (struct source){
        .x = x, .m = mat_of(x, o), .is_q8 = tape_value_at(x->tape, o.value)->type == VALUE_Q8};
}

/* Columns [from, from + cols) of a quantised row, multiplied out part by part. */
static void tap_q8(const struct source *s, const struct weight *w, uint32_t row, uint32_t from) {
    const struct cpu_tap *tap = s->x->tap;
    float out[PART_COLS];
    for (uint32_t col = 0; col < w->cols; col += PART_COLS) {
        struct q8_row q = mat_q8_read(&s->m, row, s->m.col + from + col);
        uint32_t count = w->cols - col < PART_COLS ? w->cols - col : PART_COLS;
        for (uint32_t i = 0; i < count; i++) out[i] = q.scale[i / Q8_BLOCK] * (float)q.q[i];
        const struct device_input input = {.weight = w, .col = col, .count = count, .x = out};
        tap->fn(tap->ctx, &input);
    }
}

static void tap_row(const struct source *s, const struct weight *w, uint32_t row, uint32_t from) {
    if (s->is_q8) {
        tap_q8(s, w, row, from);
        return;
    }
    const struct cpu_tap *tap = s->x->tap;
    const struct device_input input = {
        .weight = w, .count = w->cols, .x = mat_f32(&s->m, row) + from};
    tap->fn(tap->ctx, &input);
}

static void tap_matmul(const struct cpu_run *x, const struct op_matmul *op) {
    struct source s = source_of(x, op->src);
    for (uint32_t p = 0; p < op->part_count; p++)
        for (uint32_t row = 0; row < s.m.row_count; row++)
            if (run_row_is_live(x, s.m.kind, row)) tap_row(&s, op->parts[p].weight, row, 0);
}

static void tap_experts(const struct cpu_run *x, const struct op_expert_matmul *op) {
    struct source s = source_of(x, op->src);
    for (uint32_t p = 0; p < op->part_count; p++) {
        const struct weight *w = op->parts[p].weight;
        for (uint32_t row = 0; row < s.m.row_count; row++) {
            if (!run_row_is_live(x, s.m.kind, row)) continue;
            for (uint32_t j = 0; j < op->used; j++)
                tap_row(&s, w, row, op->src_per_expert ? j * w->cols : 0);
        }
    }
}

void cpu_tap_op(const struct cpu_run *x, const struct op *op) {
    if (op->kind == OP_MATMUL) tap_matmul(x, &op->matmul);
    if (op->kind == OP_EXPERT_MATMUL) tap_experts(x, &op->expert_matmul);
}
