/* engine/profile_parts.c - the ops of a tape by kind and weight, and many steps as one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "engine/profile_int.h"
#include "graph/show.h"

static bool is_number(const char *from, const char *end) {
    for (const char *p = from; p < end; p++)
        if (!isdigit((unsigned char)*p)) return false;
    return from < end;
}

/* "attn_q" of "blk.3.attn_q.weight": what follows the last number, without the ending. */
static struct str role_of(struct str name) {
    static const char ending[] = ".weight";
    const char *end = name.ptr + name.len, *from = name.ptr, *piece = name.ptr;
    size_t tail = sizeof(ending) - 1;
    if (name.len > tail && memcmp(end - tail, ending, tail) == 0) end -= tail;
    for (const char *p = name.ptr; p < end; p++) {
        if (*p != '.') continue;
        if (is_number(piece, p)) from = p + 1;
        piece = p + 1;
    }
    return (struct str){from, (size_t)(end - from)};
}

static void put_parts(const struct matmul_part *parts, uint32_t count, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) {
        struct str role = role_of(parts[i].weight->name);
        buf_put_char(out, i ? ',' : ' ');
        buf_put_plain(out, role);
    }
    for (uint32_t i = 0; i < count; i++) {
        enum dtype type = parts[i].weight->type;
        if (i && type == parts[i - 1].weight->type) continue;
        buf_printf(out, "%c%s", i ? '/' : ' ', dtype_info(type)->name);
    }
}

static const char *kv_type_name(enum kv_type type) {
    return type == KV_F16 ? "f16" : type == KV_F32 ? "f32" : "int8";
}

static void put_label(const struct device_run *run, const struct op *op, struct buf *out) {
    bool is_head = op->kind == OP_MATMUL && op->layer < 0;
    buf_put_text(out, is_head ? "head" : op_name(op->kind));
    switch (op->kind) {
    case OP_MATMUL:
        put_parts(op->matmul.parts, op->matmul.part_count, out);
        break;
    case OP_EXPERT_MATMUL:
        put_parts(op->expert_matmul.parts, op->expert_matmul.part_count, out);
        break;
    case OP_EMBED:
        put_parts(&(struct matmul_part){op->embed.table, NULL}, 1, out);
        break;
    case OP_ATTENTION:
        buf_printf(out, " %s", kv_type_name(run->kv[op->attention.group].type));
        op_put_detail(op, out);
        break;
    case OP_KV_WRITE:
        buf_printf(out, " %s", kv_type_name(run->kv[op->kv_write.group].type));
        break;
    default:
        op_put_detail(op, out);
    }
}

static uint32_t find_part(struct profile *out, struct str label) {
    if (label.len >= PROFILE_LABEL_BYTES) label.len = PROFILE_LABEL_BYTES - 1;
    for (uint32_t i = 0; i < out->part_count; i++)
        if (strlen(out->parts[i].label) == label.len &&
            memcmp(out->parts[i].label, label.ptr, label.len) == 0)
            return i;
    if (out->part_count == PROFILE_PARTS_MAX) return PROFILE_PARTS_MAX - 1;
    if (out->part_count == PROFILE_PARTS_MAX - 1) label = STR("others");
    struct profile_part *part = &out->parts[out->part_count];
    *part = (struct profile_part){.calls = 0};
    memcpy(part->label, label.ptr, label.len);
    return out->part_count++;
}

void profile_sort_ops(const struct device_run *run, struct profile *out,
                      uint8_t part_of[TAPE_OPS_MAX]) {
    struct buf label;
    buf_init(&label, 1 << 12);
    for (uint32_t i = 0; i < tape_op_count(run->tape); i++) {
        const struct op *op = tape_op(run->tape, i);
        struct cpu_work work = cpu_op_work(run, op);
        buf_clear(&label);
        put_label(run, op, &label);
        part_of[i] = (uint8_t)find_part(out, buf_str(&label));
        out->parts[part_of[i]].calls++;
        cpu_work_add(&out->parts[part_of[i]].work, &work);
    }
    buf_deinit(&label);
}

static int by_step(const void *a, const void *b) {
    const struct step_times *x = a, *y = b;
    return (x->step_us > y->step_us) - (x->step_us < y->step_us);
}

void profile_reduce(struct step_times *steps, uint32_t count, struct profile *out) {
    CHECK(count > 0);
    qsort(steps, count, sizeof(steps[0]), by_step);
    uint32_t used = count / 4 ? count / 4 : 1;
    double scale = 1.0 / used, parts_us = 0, run_us = 0;
    out->steps = count;
    out->median_us = steps[count / 2].step_us;
    out->step_us = 0;
    for (uint32_t i = 0; i < used; i++) {
        out->step_us += steps[i].step_us * scale;
        run_us += steps[i].run_us * scale;
        for (uint32_t p = 0; p < out->part_count; p++) {
            out->parts[p].us += (steps[i].work_us[p] + steps[i].wait_us[p]) * scale;
            out->parts[p].wait_us += steps[i].wait_us[p] * scale;
        }
    }
    for (uint32_t p = 0; p < out->part_count; p++) parts_us += out->parts[p].us;
    out->around_us = run_us - parts_us;
    out->sampling_us = out->step_us - run_us;
}
