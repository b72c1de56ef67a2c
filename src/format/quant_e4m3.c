/* format/quant_e4m3.c - rows of e4m3 with a scale for the matrix, for each row or for each block of
 * rows and columns (struct f8_layout of format/quant.h), as blocks of F8. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, SIZE_MAX_LOG = 24, WHY_BYTES = 192 };

/* A scale below the first counts as 0: its weights are at most 448 * 2^-60. Between both, products
 * of a weight's and an activation's scale stay normal floats on every device. */
#define SCALE_MIN 0x1p-60f
#define SCALE_MAX 0x1p60f

/* Element (n, k) is scale (n / block_rows, k / block_cols) * code. */
struct f8_rows {
    struct row_source base;
    enum dtype scale_type;
    uint32_t rows, cols;
    uint32_t block_rows, block_cols;
    uint32_t groups; /* blocks side by side */
    const uint8_t *codes, *scales;
};

static float stored_scale(const struct f8_rows *r, size_t i) {
    float scale;
    dtype_dequant(r->scale_type, r->scales + i * dtype_info(r->scale_type)->block_bytes, 1, &scale);
    return scale;
}

static float scale_at(const struct f8_rows *r, uint32_t n, uint32_t block) {
    size_t row = (size_t)(n / r->block_rows) * r->groups;
    float scale = stored_scale(r, row + block * BLOCK / r->block_cols);
    return scale < SCALE_MIN ? 0.0f : scale;
}

/* The code of NaN, which no writer has a use for, becomes the largest number: every device computes
 * with numbers. */
static void put_codes(const uint8_t *from, uint8_t *to) {
    for (int i = 0; i < BLOCK; i++) to[i] = (uint8_t)(from[i] - ((from[i] & 0x7f) == 0x7f));
}

static void read_rows(const struct row_source *self, const struct row_piece *piece, uint8_t *out) {
    const struct f8_rows *r = (const struct f8_rows *)(const void *)self;
    DCHECK(piece->first_row + piece->row_count <= r->rows);
    DCHECK(piece->first_block + piece->block_count <= r->cols / BLOCK);
    for (uint32_t n = piece->first_row; n < piece->first_row + piece->row_count; n++)
        for (uint32_t b = piece->first_block; b < piece->first_block + piece->block_count; b++) {
            float scale = scale_at(r, n, b);
            memcpy(out, &scale, sizeof(scale));
            put_codes(r->codes + (size_t)n * r->cols + (size_t)b * BLOCK, out + sizeof(scale));
            out += sizeof(scale) + BLOCK;
        }
}

static enum status check_codes(const struct quant *q, const struct raw_tensor *codes) {
    if (codes->dim_count == 2 && codes->dims[0] > 0 && codes->dims[0] <= 1u << SIZE_MAX_LOG &&
        codes->dims[1] > 0 && codes->dims[1] <= 1u << SIZE_MAX_LOG && codes->dims[1] % BLOCK == 0)
        return ST_OK;
    return quant_say(q,
                     "tensor %.*s has shape (%" PRIu64 ", %" PRIu64 ") in %u dims, expected 2 and "
                     "a multiple of %d columns",
                     STR_ARG(codes->name), codes->dims[0], codes->dims[1], codes->dim_count, BLOCK);
}

/* One number, whatever its dims. */
static bool is_one(const struct tensor_info *t) {
    for (uint32_t i = 0; i < t->dim_count; i++)
        if (t->dims[i] != 1) return false;
    return true;
}

static enum status check_shape(const struct quant *q, const struct f8_rows *r,
                               const struct f8_layout *layout, const struct tensor_info *scales) {
    char why[WHY_BYTES];
    uint32_t rows = (r->rows + r->block_rows - 1) / r->block_rows;
    snprintf(why, sizeof(why),
             "for %u outputs and %u inputs with a scale for %s. Correct quantization_config, or "
             "fetch the folder again",
             r->rows, r->cols,
             layout->scope == F8_MATRIX ? "the matrix"
             : layout->scope == F8_ROW  ? "each output"
                                        : "each block");
    if (layout->scope == F8_MATRIX && is_one(scales)) return ST_OK;
    bool is_list = layout->scope != F8_BLOCK && scales->dim_count < 2;
    return quant_check_part(q, scales, rows, is_list ? 0 : r->groups, why);
}

static enum status check_values(const struct quant *q, const struct f8_rows *r, size_t count,
                                struct str name) {
    for (size_t i = 0; i < count; i++) {
        float scale = stored_scale(r, i);
        if (!(scale >= 0.0f && scale <= SCALE_MAX))
            return quant_say(q,
                             "tensor %.*s: element %zu is %g, expected 0 to 2^60. The file is "
                             "damaged; fetch the folder again",
                             STR_ARG(name), i, (double)scale);
    }
    return ST_OK;
}

/* Scales are floats of 16 or 32 bits; others, such as bare exponents, are no part. */
static enum status find_scales(struct quant *q, struct str stem, const char *suffix,
                               const struct tensor_info **out) {
    char name[LIMIT_TENSOR_NAME_BYTES + 64];
    *out = quant_part(q, stem, suffix);
    if (*out) return ST_OK;
    snprintf(name, sizeof(name), "%.*s%s", STR_ARG(stem), suffix);
    const char *format = tensor_skipped(q->f, name);
    if (!format) return quant_say_missing(q, stem, suffix, ".weight");
    return quant_say(q, "tensor %s is %s, expected F32, F16 or BF16", name, format);
}

enum status f8_rows_add(struct quant *q, struct str stem, const struct f8_layout *layout,
                        const struct raw_tensor *codes) {
    const struct tensor_info *scales;
    TRY(check_codes(q, codes));
    TRY(find_scales(q, stem, layout->suffix, &scales));
    struct f8_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    r->rows = (uint32_t)codes->dims[0];
    r->cols = (uint32_t)codes->dims[1];
    r->block_rows = layout->scope == F8_BLOCK ? layout->block_rows : 1;
    r->block_cols = layout->scope == F8_BLOCK ? layout->block_cols : r->cols;
    if (layout->scope == F8_MATRIX) r->block_rows = r->rows;
    r->groups = (r->cols + r->block_cols - 1) / r->block_cols;
    TRY(check_shape(q, r, layout, scales));
    r->codes = codes->data;
    r->scales = scales->data;
    r->scale_type = scales->type;
    size_t blocks = (r->rows + r->block_rows - 1) / r->block_rows;
    TRY(check_values(q, r, blocks * r->groups, scales->name));
    r->base.read = read_rows;
    r->base.has_row_scales = r->groups == 1;
    r->base.parts[0] = (struct row_part){codes->data, codes->bytes};
    r->base.parts[1] = (struct row_part){scales->data, scales->bytes};
    struct tensor_info t = {.type = DTYPE_F8,
                            .dim_count = 2,
                            .dims = {r->rows, r->cols, 1, 1},
                            .bytes = codes->bytes + scales->bytes,
                            .source = &r->base};
    return quant_add(q, stem, t);
}

enum status f8_read_block(const struct quant *q, const char *key, const struct json *size,
                          struct f8_layout *out) {
    int64_t rows = json_int(json_at(size, 0), 0), cols = json_int(json_at(size, 1), 0);
    out->scope = F8_BLOCK;
    out->block_rows = (uint32_t)rows;
    out->block_cols = (uint32_t)cols;
    if (json_count(size) == 2 && rows > 0 && rows <= 1 << SIZE_MAX_LOG && cols > 0 &&
        cols <= 1 << SIZE_MAX_LOG && cols % F8_RUN == 0)
        return ST_OK;
    return quant_say(q,
                     "quantization_config: %s is [%" PRId64 ", %" PRId64 "], expected rows and a "
                     "multiple of %d columns",
                     key, rows, cols, F8_RUN);
}

bool is_e4m3(const struct raw_tensor *t) { return strcmp(t->format, "F8_E4M3") == 0; }
