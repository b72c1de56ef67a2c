/* engine/profile_parts.c - the ops of a tape by kind and weight, and many steps as one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "engine/profile_int.h"
#include "graph/op_info.h"
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

static void put_matrices(const struct weight *const *w, uint32_t count, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) {
        struct str role = role_of(w[i]->name);
        buf_put_char(out, i ? ',' : ' ');
        buf_put_plain(out, role);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i && w[i]->type == w[i - 1]->type) continue;
        buf_printf(out, "%c%s", i ? '/' : ' ', dtype_info(w[i]->type)->name);
    }
}

static void put_label(const struct device_run *run, const struct op *op, struct buf *out) {
    const struct weight *matrices[OP_PARTS_MAX];
    uint32_t count = op_matrices(op, matrices);
    bool is_head = op->kind == OP_MATMUL && op->layer < 0;
    buf_put_text(out, is_head ? "head" : op_name(op->kind));
    if (op_info(op->kind)->kv != KV_UNUSED)
        buf_printf(out, " %s", kv_type_name(run->kv[op_kv_group(op)].shape.type));
    if (count > 0)
        put_matrices(matrices, count, out);
    else
        op_put_detail(op, out);
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

void profile_sort_ops(const struct device *dev, const struct device_run *run, struct profile *out,
                      uint8_t part_of[TAPE_OPS_MAX]) {
    struct buf label;
    buf_init(&label, 1 << 12);
    for (uint32_t i = 0; i < tape_op_count(run->tape); i++) {
        const struct op *op = tape_op(run->tape, i);
        struct work work = dev->profiler->op_work(dev->self, run, op);
        buf_clear(&label);
        put_label(run, op, &label);
        part_of[i] = (uint8_t)find_part(out, buf_str(&label));
        out->parts[part_of[i]].calls++;
        work_add(&out->parts[part_of[i]].work, &work);
    }
    buf_deinit(&label);
}

static int by_time(const void *a, const void *b) {
    const struct lap_us *x = a, *y = b;
    return (x->all > y->all) - (x->all < y->all);
}

/* The one below which a quarter of them stay. */
static struct lap_us quarter_mark(struct laps *l, uint32_t thing) {
    struct lap_us *first = laps_of(l, thing);
    qsort(first, l->count, sizeof(*first), by_time);
    return first[l->count / 4];
}

void profile_reduce(struct laps *l, const uint8_t *part_of, struct profile *out) {
    CHECK(l->count > 0);
    out->steps = l->count;
    out->around_us = quarter_mark(l, l->op_count + LAP_AROUND).all;
    out->sampling_us = quarter_mark(l, l->op_count + LAP_SAMPLING).all;
    out->step_us = quarter_mark(l, l->op_count + LAP_STEP).all;
    out->median_us = laps_of(l, l->op_count + LAP_STEP)[l->count / 2].all;
    double known_us = out->around_us + out->sampling_us;
    for (uint32_t op = 0; op < l->op_count; op++) {
        struct lap_us lap = quarter_mark(l, op);
        out->parts[part_of[op]].us += lap.all;
        out->parts[part_of[op]].wait_us += lap.wait;
        known_us += lap.all;
    }
    out->interrupted_us = out->step_us - known_us;
}
