/* format/quant_bytes.c - rows of int8 with a scale for each row, for groups of a row, or for all
 * (struct byte_rows of format/quant.h), as blocks of INT8. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, SIZE_MAX_LOG = 24 };

static float scale_at(const struct byte_rows *r, uint32_t n, uint32_t block) {
    float scale;
    size_t i = 0;
    if (r->scale_count > 1) i = n;
    if (r->groups > 1) i = (size_t)n * r->groups + block * BLOCK / r->group_cols;
    dtype_dequant(r->scale_type, r->scales + i * dtype_info(r->scale_type)->block_bytes, 1, &scale);
    return scale * r->unit;
}

static void read_rows(const struct row_source *self, const struct row_piece *piece, uint8_t *out) {
    const struct byte_rows *r = (const struct byte_rows *)(const void *)self;
    DCHECK(piece->first_row + piece->row_count <= r->rows);
    DCHECK(piece->first_block + piece->block_count <= r->cols / BLOCK);
    for (uint32_t n = piece->first_row; n < piece->first_row + piece->row_count; n++)
        for (uint32_t b = piece->first_block; b < piece->first_block + piece->block_count; b++) {
            float scale = scale_at(r, n, b);
            memcpy(out, &scale, sizeof(scale));
            memcpy(out + sizeof(scale), r->codes + (size_t)n * r->cols + (size_t)b * BLOCK, BLOCK);
            out += sizeof(scale) + BLOCK;
        }
}

enum status byte_rows_add(struct quant *q, struct str stem, struct byte_rows *r,
                          const struct raw_tensor *codes, struct str scales) {
    if (codes->dim_count != 2 || codes->dims[0] == 0 || codes->dims[0] > 1u << SIZE_MAX_LOG ||
        codes->dims[1] == 0 || codes->dims[1] > 1u << SIZE_MAX_LOG || codes->dims[1] % BLOCK != 0)
        return quant_say(q,
                         "tensor %.*s has shape (%" PRIu64 ", %" PRIu64 ") in %u dims, expected 2 "
                         "and a multiple of %d columns",
                         STR_ARG(codes->name), codes->dims[0], codes->dims[1], codes->dim_count,
                         BLOCK);
    r->rows = (uint32_t)codes->dims[0];
    r->cols = (uint32_t)codes->dims[1];
    r->groups = r->group_cols ? (r->cols + r->group_cols - 1) / r->group_cols : 1;
    if (r->scale_count != (uint64_t)r->rows * r->groups && (r->scale_count != 1 || r->groups > 1))
        return quant_say(q,
                         "tensor %.*s has %" PRIu64 " numbers, expected %" PRIu64
                         " for %u outputs. Correct quantization_config, or fetch the folder again",
                         STR_ARG(scales), r->scale_count, (uint64_t)r->rows * r->groups, r->rows);
    r->codes = codes->data;
    r->base.read = read_rows;
    r->base.parts[0] = (struct row_part){codes->data, codes->bytes};
    struct tensor_info t = {.type = DTYPE_INT8,
                            .dim_count = 2,
                            .dims = {r->rows, r->cols, 1, 1},
                            .bytes = codes->bytes + r->base.parts[1].bytes,
                            .source = &r->base};
    return quant_add(q, stem, t);
}
