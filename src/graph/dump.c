/* graph/dump.c - a tape as a table for people. */
#include <stdio.h>

#include "base/buf.h"
#include "graph/graph_int.h"
#include "graph/show.h"

static const char *const type_names[] = {"f32", "i32", "q8"};
static const char *const rows_names[] = {"T", "R", "S"};

static void put_operand(const struct tape *t, struct operand o, struct buf *out) {
    const struct tape_value *v = &t->values[o.value];
    buf_printf(out, "%s.%u", v->name, o.value);
    if (o.cols != v->cols) buf_printf(out, "[%u:%u]", o.col, o.col + o.cols);
    buf_printf(out, "(%s,%u)%s", rows_names[v->rows], o.cols, type_names[v->type]);
}

void count_put_short(uint64_t count, struct buf *out) {
    static const char units[] = " kMGTP";
    double value = (double)count;
    size_t unit = 0;
    while (value >= 1000 && unit + 2 < sizeof(units)) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        buf_printf(out, "%.0f", value);
    else
        buf_printf(out, "%.*f%c", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[unit]);
}

static void put_padded_count(uint64_t count, struct buf *out) {
    char text[16] = "";
    struct buf small;
    buf_init(&small, sizeof(text));
    count_put_short(count, &small);
    snprintf(text, sizeof(text), "%s", buf_text(&small));
    buf_deinit(&small);
    buf_printf(out, "%8s  ", text);
}

static void put_op(const struct tape *t, uint32_t i, struct op_cost cost, struct buf *out) {
    struct op copy = t->ops[i];
    struct op_access a = op_access(&copy);
    buf_printf(out, "%5u ", i);
    if (copy.layer >= 0)
        buf_printf(out, "%5d  ", copy.layer);
    else
        buf_put_text(out, "    -  ");
    put_padded_count(cost.bytes, out);
    put_padded_count(cost.flops, out);
    buf_printf(out, "%-15s", op_name(copy.kind));
    for (uint32_t w = 0; w < a.write_count; w++) {
        buf_put_char(out, ' ');
        put_operand(t, *a.writes[w], out);
    }
    buf_put_text(out, " <-");
    for (uint32_t r = 0; r < a.read_count; r++) {
        buf_put_char(out, ' ');
        put_operand(t, *a.reads[r], out);
    }
    op_put_detail(&copy, out);
    buf_put_char(out, '\n');
}

void tape_dump(const struct tape *t, uint32_t rows, uint32_t ctx, struct buf *out) {
    struct op_cost total = {0, 0};
    buf_printf(out, "%u ops for %u row%s at context %u; T: rows, R: wanted outputs, S: sequences\n",
               t->op_count, rows, rows == 1 ? "" : "s", ctx);
    buf_put_text(out,
                 "   op layer     bytes     flops  what            result <- inputs, weights\n");
    for (uint32_t i = 0; i < t->op_count; i++) {
        struct op_cost cost = tape_op_cost(t, i, rows, ctx);
        put_op(t, i, cost, out);
        total.bytes += cost.bytes;
        total.flops += cost.flops;
    }
    buf_put_text(out, "total        ");
    put_padded_count(total.bytes, out);
    put_padded_count(total.flops, out);
    buf_printf(out, "scratch %zu bytes for %u rows\n", t->slab_bytes, t->sizes.rows_max);
}
