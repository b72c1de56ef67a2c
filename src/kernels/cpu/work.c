/* kernels/cpu/work.c - see kernels/cpu/work.h for the contract. */
#include "kernels/cpu/work.h"

#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/pack.h"

static double rows_of(const struct step *s, enum rows_kind kind) {
    return kind == ROWS_TOKENS    ? s->row_count
           : kind == ROWS_OUTPUTS ? s->output_count
                                  : s->seq_count;
}

static double operand_rows(const struct device_run *run, struct operand o) {
    return rows_of(run->step, tape_value_at(run->tape, o.value)->rows);
}

static double operand_bytes(const struct device_run *run, struct operand o) {
    const struct tape_value *v = tape_value_at(run->tape, o.value);
    double whole = (double)v->row_bytes * operand_rows(run, o);
    return v->cols ? whole * o.cols / v->cols : 0;
}

/* Everything that the op reads and writes in scratch. */
static double scratch_bytes(const struct device_run *run, const struct op *op) {
    struct op copy = *op;
    struct op_access a = op_access(&copy);
    double bytes = 0;
    for (uint32_t i = 0; i < a.read_count; i++) bytes += operand_bytes(run, *a.reads[i]);
    for (uint32_t i = 0; i < a.write_count; i++) bytes += operand_bytes(run, *a.writes[i]);
    return bytes;
}

/* One expert's share of a weight, as it lies in memory. */
static double weight_bytes(const struct weight *w) {
    const struct packed *p = w->prepared;
    return (double)(p ? p->bytes : w->bytes) / w->experts;
}

/* `rows` rows through each part, `copies` experts of each being read. */
static struct work product_work(const struct matmul_part *parts, uint32_t count, double rows,
                                double copies) {
    struct work w = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct weight *m = parts[i].weight;
        double ops = 2.0 * m->rows * m->cols * rows;
        w.memory_bytes += weight_bytes(m) * copies;
        *(dtype_has_integers(m->type) ? &w.int8_ops : &w.f32_ops) += ops;
    }
    return w;
}

/* At most every expert once; which ones the rows share is not known here. */
static struct work expert_work(const struct device_run *run, const struct op_expert_matmul *m) {
    double rows = operand_rows(run, m->ids) * m->used, experts = m->parts[0].weight->experts;
    return product_work(m->parts, m->part_count, rows, rows < experts ? rows : experts);
}

/* Of one layer. */
static double kv_token_bytes(const struct kv_space *kv) {
    return (double)kv->block_bytes / kv->shape.layers / kv->shape.block_tokens;
}

/* Each row sees the positions up to its own that its window holds. */
static struct work attention_work(const struct device_run *run, const struct op_attention *a) {
    const struct step *s = run->step;
    double seen = 0, read = 0;
    for (uint32_t i = 0; i < s->seq_count; i++) {
        double longest = 0;
        for (uint32_t r = 0; r < s->seqs[i].row_count; r++) {
            int32_t pos = s->pos[s->seqs[i].first_row + r];
            double sees = pos + 1.0;
            if (pos < 0) continue;
            if (a->window && sees > a->window) sees = a->window;
            seen += sees;
            longest = sees > longest ? sees : longest;
        }
        read += longest;
    }
    return (struct work){.memory_bytes = read * kv_token_bytes(&run->kv[a->group]),
                         .f32_ops = 4.0 * a->heads * a->head_dim * seen};
}

static struct work self_attention_work(const struct device_run *run,
                                       const struct op_self_attention *a) {
    struct work w = {0};
    for (uint32_t i = 0; i < run->step->seq_count; i++) {
        double rows = run->step->seqs[i].row_count;
        w.f32_ops += 4.0 * a->heads * a->head_dim * rows * rows;
    }
    return w;
}

struct work cpu_op_work(const struct device_run *run, const struct op *op) {
    switch (op->kind) {
    case OP_MATMUL:
        return product_work(op->matmul.parts, op->matmul.part_count,
                            operand_rows(run, op->matmul.dst), 1);
    case OP_EXPERT_MATMUL:
        return expert_work(run, &op->expert_matmul);
    case OP_ATTENTION:
        return attention_work(run, &op->attention);
    case OP_SELF_ATTENTION:
        return self_attention_work(run, &op->self_attention);
    case OP_KV_WRITE:
        return (struct work){.memory_bytes = run->step->row_count *
                                             kv_token_bytes(&run->kv[op->kv_write.group])};
    case OP_EMBED: {
        const struct weight *w = op->embed.table;
        const struct packed *p = w->prepared; /* a row's numbers lie all over its panel */
        double row_bytes = p ? (double)p->panel_bytes : (double)w->bytes / w->rows;
        return (struct work){.memory_bytes = operand_rows(run, op->embed.dst) * row_bytes};
    }
    case OP_GATHER: /* of its source only the rows that it copies */
        return (struct work){.cache_bytes = 2 * operand_bytes(run, op->gather.dst)};
    default:
        return (struct work){.cache_bytes = scratch_bytes(run, op)};
    }
}
