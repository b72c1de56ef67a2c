/* kernels/cpu/ref_matmul.c - products straight from tensor/q8.h and exact.h, on weights as
 * the file lays them. The definition that the other tables are compared with; slow. */
#include <math.h>

#include "base/check.h"
#include "kernels/cpu/cpu_int.h"

enum { BLOCK_ELEMS_MAX = 256, BLOCK_BYTES_MAX = 210, GROUPS_MAX = BLOCK_ELEMS_MAX / 16 };

/* One row of a matrix in the file. */
struct weight_row {
    enum dtype type;
    uint32_t cols, row;
    const uint8_t *data;
    const struct row_source *source; /* NULL: the row lies in data */
};

static struct weight_row row_of(const struct weight *w, uint32_t expert, uint32_t row) {
    size_t row_bytes;
    struct weight_row r = {w->type, w->cols, row, NULL, NULL};
    CHECK(dtype_bytes(w->type, w->cols, &row_bytes));
    if (w->source)
        r.source = weight_source(w, expert);
    else
        r.data = weight_data(w, expert) + row * row_bytes;
    return r;
}

/* Block `b` of a row: in the file, or in `room`. */
static const uint8_t *block_at(const struct weight_row *w, uint32_t b, uint8_t *room) {
    const struct row_piece piece = {w->row, 1, b, 1};
    if (!w->source) return w->data + (size_t)b * dtype_info(w->type)->block_bytes;
    w->source->read(w->source, &piece, room);
    return room;
}

/* Formats without integers: a fused multiply-add for each column, in rising order. */
static float dot_plain(const struct weight_row *w, const float *x) {
    uint32_t elems = dtype_info(w->type)->block_elems;
    uint8_t room[BLOCK_BYTES_MAX];
    float value[Q8_BLOCK], acc = 0.0f;
    CHECK(elems <= Q8_BLOCK);
    for (uint32_t k = 0; k < w->cols; k++) {
        if (k % elems == 0) dtype_dequant(w->type, block_at(w, k / elems, room), elems, value);
        acc = fmaf(value[k % elems], x[k], acc);
    }
    return acc;
}

/* One group of `count` elements that starts at element k of the row. */
static float add_group(float acc, const struct q8_row *x, uint32_t k, uint32_t count,
                       const int8_t *q, float scale) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += q[i] * x->q[k + i];
    return fmaf((float)sum, scale * x->scale[k / Q8_BLOCK], acc);
}

static float dot_quantised(const struct weight_row *w, const struct q8_row *x) {
    const struct dtype_info *info = dtype_info(w->type);
    uint32_t elems = info->group_elems;
    const float *dsum = elems == Q8_BLOCK ? x->dsum : x->dsum16;
    int8_t q[BLOCK_ELEMS_MAX];
    float scale[GROUPS_MAX], min[GROUPS_MAX], acc = 0.0f;
    uint8_t room[BLOCK_BYTES_MAX];
    CHECK(info->block_bytes <= BLOCK_BYTES_MAX);
    for (uint32_t k = 0, b = 0; k < w->cols; k += info->block_elems, b++) {
        dtype_unpack(w->type, block_at(w, b, room), q, scale, min);
        for (uint32_t e = 0; e < info->block_elems; e += elems) {
            acc = add_group(acc, x, k + e, elems, q + e, scale[e / elems]);
            if (info->has_min) acc = fmaf(min[e / elems], dsum[(k + e) / elems], acc);
        }
    }
    return acc;
}

/* Row `row` of `src`, from column `col` on, times one row of a weight. */
static float dot(const struct mat *src, uint32_t row, uint32_t col, const struct weight_row *w) {
    if (!dtype_has_integers(w->type)) return dot_plain(w, mat_f32(src, row) + col);
    struct q8_row x = mat_q8_read(src, row, col);
    return dot_quantised(w, &x);
}

void ref_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_matmul *m = &op->matmul;
    struct mat src = mat_of(x, m->src), dst = mat_of(x, m->dst);
    struct range cols = range_share(dst.cols, ith, nth);
    for (uint32_t p = 0, first = 0; p < m->part_count; first += m->parts[p++].weight->rows) {
        const struct matmul_part *part = &m->parts[p];
        const float *bias = vector_floats(part->bias);
        for (uint32_t n = 0; n < part->weight->rows; n++) {
            if (first + n < cols.first || first + n >= cols.end) continue;
            struct weight_row w = row_of(part->weight, 0, n);
            for (uint32_t r = 0; r < src.row_count; r++) {
                if (!run_row_is_live(x, src.kind, r)) continue;
                float y = dot(&src, r, 0, &w);
                float *out = mat_f32(&dst, r) + first + n;
                if (bias) y += bias[n];
                *out = m->add ? y + *out : y;
            }
        }
    }
}

/* The products of one row with expert j of those it uses. */
static void expert_row(const struct op_expert_matmul *m, const struct mat *src, uint32_t row,
                       uint32_t src_col, uint32_t expert, float *out) {
    for (uint32_t p = 0; p < m->part_count; p++) {
        const struct weight *w = m->parts[p].weight;
        CHECK(expert < w->experts);
        for (uint32_t n = 0; n < w->rows; n++) {
            struct weight_row wr = row_of(w, expert, n);
            *out++ = dot(src, row, src_col, &wr);
        }
    }
}

void ref_expert_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith,
                           uint32_t nth) {
    const struct op_expert_matmul *m = &op->expert_matmul;
    struct mat src = mat_of(x, m->src), ids = mat_of(x, m->ids), dst = mat_of(x, m->dst);
    uint32_t width = dst.cols / m->used, src_width = m->parts[0].weight->cols;
    struct range rows = range_share(src.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, src.kind, r)) continue;
        for (uint32_t j = 0; j < m->used; j++)
            expert_row(m, &src, r, m->src_per_expert ? j * src_width : 0,
                       (uint32_t)mat_i32(&ids, r)[j], mat_f32(&dst, r) + (size_t)j * width);
    }
}
