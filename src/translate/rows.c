/* translate/rows.c - see translate/rows.h for the contract. */
#include "translate/rows.h"

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/size.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "graph/weight.h"
#include "tensor/row_source.h"
#include "translate/translate.h"

enum { STEP_ELEMS = 512 }; /* a multiple of every block */

struct rows {
    struct row_source base;
    const struct tensor_info **from; /* arena; [count] */
    uint32_t count;
    uint64_t part_rows; /* of each */
    struct rope_rows rope;
    enum dtype type;
};

uint64_t rope_row(const struct rope_rows *r, uint64_t row) {
    if (r->order == ROWS_KEPT) return row;
    uint64_t head = row / r->head_rows, at = row % r->head_rows, half = r->turned / 2;
    if (at >= r->turned) return row;
    uint64_t to_pairs = at % 2 * half + at / 2, to_halves = at % half * 2 + at / half;
    return head * r->head_rows + (r->order == ROWS_TO_PAIRS ? to_pairs : to_halves);
}

/* `elems` of a row of the base from element `first` on. */
static void read_elems(const struct rows *r, const struct tensor_info *from, uint64_t first,
                       uint64_t elems, uint8_t *out) {
    if (from->type == r->type) {
        tensor_read(from, first, (size_t)elems, out);
        return;
    }
    CHECK(r->type == DTYPE_F32);
    float x[STEP_ELEMS];
    while (elems) {
        size_t count = elems < STEP_ELEMS ? (size_t)elems : STEP_ELEMS;
        tensor_read_f32(from, first, count, x);
        memcpy(out, x, count * sizeof(x[0]));
        out += count * sizeof(x[0]);
        first += count;
        elems -= count;
    }
}

static void read_rows(const struct row_source *self, const struct row_piece *piece, uint8_t *out) {
    const struct rows *r = (const struct rows *)self;
    const struct dtype_info *info = dtype_info(r->type);
    uint64_t column = (uint64_t)piece->first_block * info->block_elems;
    uint64_t elems = (uint64_t)piece->block_count * info->block_elems;
    for (uint32_t i = 0; i < piece->row_count; i++) {
        uint64_t row = (uint64_t)piece->first_row + i;
        const struct tensor_info *from = r->from[row / r->part_rows];
        uint64_t width = from->dims[from->dim_count - 1];
        uint64_t first = rope_row(&r->rope, row % r->part_rows) * width + column;
        read_elems(r, from, first, elems, out);
        out += (size_t)piece->block_count * info->block_bytes;
    }
}

bool translate_moves_rows(const struct tensor_info *t) {
    if (!t->source || t->source->read != read_rows) return false;
    return ((const struct rows *)t->source)->rope.order != ROWS_KEPT;
}

uint64_t translate_base_row(const struct tensor_info *t, uint64_t row) {
    if (!t->source || t->source->read != read_rows) return row;
    const struct rows *r = (const struct rows *)t->source;
    CHECK(r->count == 1);
    return rope_row(&r->rope, row);
}

static uint32_t part_count(const struct tensor_info *t) {
    uint32_t count = t->source ? t->source->more_count : 1;
    for (int i = 0; t->source && i < ROW_PARTS_MAX; i++) count += t->source->parts[i].bytes > 0;
    return count;
}

static struct row_part *put_parts(const struct tensor_info *t, struct row_part *out) {
    if (!t->source) {
        *out = (struct row_part){t->data, t->bytes};
        return out + 1;
    }
    for (int i = 0; i < ROW_PARTS_MAX; i++)
        if (t->source->parts[i].bytes) *out++ = t->source->parts[i];
    for (uint32_t i = 0; i < t->source->more_count; i++) *out++ = t->source->more[i];
    return out;
}

/* The bytes of the base, so that they can be released. */
static enum status list_parts(struct arena *arena, struct rows *r) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->count; i++) count += part_count(r->from[i]);
    struct row_part *parts = arena_zalloc_array(arena, count, sizeof(*parts)), *next = parts;
    if (!parts) return ST_NOMEM;
    for (uint32_t i = 0; i < r->count; i++) next = put_parts(r->from[i], next);
    CHECK(next == parts + count);
    r->base.more = parts;
    r->base.more_count = count;
    return ST_OK;
}

static uint64_t rows_of(const struct tensor_info *t) {
    return tensor_elems(t) / t->dims[t->dim_count - 1];
}

static enum status make_source(struct arena *arena, const struct row_plan *plan,
                               struct tensor_info *out) {
    struct rows *r = arena_zalloc_array(arena, 1, sizeof(*r));
    if (!r) return ST_NOMEM;
    r->from = arena_zalloc_array(arena, plan->count, sizeof(const struct tensor_info *));
    if (!r->from) return ST_NOMEM;
    for (uint32_t i = 0; i < plan->count; i++) r->from[i] = plan->from[i];
    r->base.read = read_rows;
    r->count = plan->count;
    r->part_rows = rows_of(plan->from[0]);
    r->rope = plan->rope;
    r->type = plan->type;
    if (r->rope.order != ROWS_KEPT) CHECK(r->part_rows % r->rope.head_rows == 0);
    out->data = NULL;
    out->source = &r->base;
    return list_parts(arena, r);
}

enum status rows_plan(struct arena *arena, const struct row_plan *plan, struct tensor_info *out) {
    const struct tensor_info *first = plan->from[0];
    struct str name = out->name;
    *out = *first;
    out->name = name;
    out->made_of = first->name;
    out->type = plan->type;
    if (plan->is_stack) {
        CHECK(first->dim_count < TENSOR_DIMS_MAX);
        memmove(out->dims + 1, first->dims, (TENSOR_DIMS_MAX - 1) * sizeof(out->dims[0]));
        out->dims[0] = plan->count;
        out->dim_count = first->dim_count + 1;
    }
    if (!dtype_bytes(plan->type, tensor_elems(out), &out->bytes)) return ST_NOMEM;
    bool is_plain = plan->count == 1 && plan->rope.order == ROWS_KEPT && plan->type == first->type;
    return is_plain ? ST_OK : make_source(arena, plan, out);
}

enum status rows_vector(struct arena *arena, const char *name, const struct weight *vec,
                        const struct rope_rows *rope, float less, struct tensor_info *out) {
    float *x = arena_zalloc_array(arena, vec->cols, sizeof(*x));
    *out = (struct tensor_info){.name = arena_dup(arena, str_of(name)),
                                .type = DTYPE_F32,
                                .dim_count = 1,
                                .dims = {vec->cols, 1, 1, 1},
                                .data = x,
                                .bytes = vec->cols * sizeof(*x),
                                .made_of = vec->name};
    if (!x || !out->name.ptr) return ST_NOMEM;
    for (uint32_t i = 0; i < vec->cols; i++)
        x[i] = ((const float *)vec->data)[rope_row(rope, i)] - less;
    return ST_OK;
}
