/* format/tensor_read.c - see format/tensor_read.h for the contract. */
#include "format/tensor_read.h"

#include <string.h>

#include "base/check.h"
#include "format/model_file.h"
#include "tensor/row_source.h"

/* A multiple of every block; at most 4 bytes for each element. */
enum { STEP_ELEMS = 2048, ELEM_BYTES_MAX = 4 };

uint64_t tensor_elems(const struct tensor_info *t) {
    uint64_t elems = 1;
    for (uint32_t i = 0; i < t->dim_count; i++) elems *= t->dims[i];
    return elems;
}

static size_t bytes_of(const struct tensor_info *t, size_t elems) {
    size_t bytes;
    CHECK(dtype_bytes(t->type, elems, &bytes));
    return bytes;
}

/* How much of the range one piece of a source has: part of a row, or whole rows. */
static size_t piece_at(const struct tensor_info *t, uint64_t first, size_t elems,
                       struct row_piece *piece) {
    uint64_t width = t->dims[t->dim_count - 1], column = first % width;
    uint32_t block = dtype_info(t->type)->block_elems;
    size_t count = elems;
    piece->first_row = (uint32_t)(first / width);
    piece->row_count = 1;
    piece->first_block = (uint32_t)(column / block);
    if (column == 0 && elems >= width) {
        piece->row_count = (uint32_t)(elems / width);
        count = (size_t)(piece->row_count * width);
        piece->block_count = (uint32_t)(width / block);
        return count;
    }
    if (count > width - column) count = (size_t)(width - column);
    piece->block_count = (uint32_t)(count / block);
    return count;
}

void tensor_read(const struct tensor_info *t, uint64_t first, size_t elems, uint8_t *out) {
    CHECK(first % dtype_info(t->type)->block_elems == 0);
    CHECK(elems % dtype_info(t->type)->block_elems == 0);
    if (!t->source) {
        memcpy(out, (const uint8_t *)t->data + bytes_of(t, (size_t)first), bytes_of(t, elems));
        return;
    }
    while (elems) {
        struct row_piece piece;
        size_t count = piece_at(t, first, elems, &piece);
        t->source->read(t->source, &piece, out);
        out += bytes_of(t, count);
        first += count;
        elems -= count;
    }
}

void tensor_read_f32(const struct tensor_info *t, uint64_t first, size_t elems, float *out) {
    if (!t->source) {
        const uint8_t *data = (const uint8_t *)t->data + bytes_of(t, (size_t)first);
        dtype_dequant(t->type, data, elems, out);
        return;
    }
    uint8_t blocks[STEP_ELEMS * ELEM_BYTES_MAX];
    CHECK(bytes_of(t, STEP_ELEMS) <= sizeof(blocks));
    while (elems) {
        size_t count = elems < STEP_ELEMS ? elems : STEP_ELEMS;
        tensor_read(t, first, count, blocks);
        dtype_dequant(t->type, blocks, count, out);
        first += count;
        elems -= count;
        out += count;
    }
}
