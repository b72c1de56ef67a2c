/* format/quant_rows.c - rows of whole numbers with scales and zero points (struct int_rows of
 * format/quant.h), as blocks of 32.
 *
 *     4 bits   Q4_0 if every zero point is 8, else INT4
 *     8 bits   Q8_0 if every zero point is 128, else INT8_Z
 *
 * A scale becomes f16: those of the files are f16, or bf16, of which f16 holds every number from
 * 2^-16 on exactly; an f32 is rounded to 11 bits.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, WORD_BITS = 32 };

static uint32_t word_at(const uint8_t *words, size_t i) {
    const uint8_t *b = words + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static float float_at(enum dtype type, const uint8_t *floats, size_t i) {
    float value;
    dtype_dequant(type, floats + i * dtype_info(type)->block_bytes, 1, &value);
    return value;
}

/* ---- one matrix ---- */

/* Where AWQ keeps the code of output n of eight. */
static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

static uint32_t code_at(const struct int_rows *r, uint32_t n, uint32_t k) {
    uint32_t per_word = WORD_BITS / r->bits, mask = (1u << r->bits) - 1;
    switch (r->layout) {
    case INT_DOWN:
        return word_at(r->codes, (size_t)(k / per_word) * r->rows + n) >> (k % per_word * r->bits) &
               mask;
    case INT_AWQ:
        return word_at(r->codes, (size_t)k * (r->rows / 8) + n / 8) >> awq_shift[n % 8] & mask;
    default:
        return word_at(r->codes, (size_t)n * (r->cols / per_word) + k / per_word) >>
                   (k % per_word * r->bits) &
               mask;
    }
}

static uint32_t zero_at(const struct int_rows *r, uint32_t n, uint32_t g) {
    uint32_t per_word = WORD_BITS / r->bits, mask = (1u << r->bits) - 1;
    uint32_t shift = n % per_word * r->bits;
    if (!r->zeros) return r->zero;
    size_t word = (size_t)g * (r->rows / per_word) + n / per_word;
    if (r->layout == INT_AWQ) shift = awq_shift[n % 8];
    if (r->layout == INT_ALONG) word = (size_t)(n / per_word) * r->groups + g;
    return (word_at(r->zeros, word) >> shift & mask) + r->zero_add;
}

static uint16_t scale_at(const struct int_rows *r, uint32_t n, uint32_t g) {
    size_t i = r->layout == INT_ALONG ? (size_t)n * r->groups + g : (size_t)g * r->rows + n;
    if (r->scale_type == DTYPE_F16) return (uint16_t)(r->scales[2 * i] | r->scales[2 * i + 1] << 8);
    return f16_from_f32(float_at(r->scale_type, r->scales, i));
}

/* The codes of 32 inputs of output n. Without an order they lie in whole words. */
static void read_codes(const struct int_rows *r, uint32_t n, uint32_t block, uint8_t code[BLOCK]) {
    uint32_t per_word = WORD_BITS / r->bits, mask = (1u << r->bits) - 1, first = block * BLOCK;
    if (r->order || r->layout == INT_AWQ) {
        for (uint32_t i = 0; i < BLOCK; i++)
            code[i] = (uint8_t)code_at(r, n, r->order ? r->order[first + i] : first + i);
        return;
    }
    size_t step = r->layout == INT_DOWN ? r->rows : 1;
    size_t at = r->layout == INT_DOWN ? (size_t)(first / per_word) * r->rows + n
                                      : (size_t)n * (r->cols / per_word) + first / per_word;
    for (uint32_t i = 0; i < BLOCK; at += step) {
        uint32_t word = word_at(r->codes, at);
        for (uint32_t c = 0; c < per_word; c++, word >>= r->bits)
            code[i++] = (uint8_t)(word & mask);
    }
}

static uint8_t *put_u16(uint8_t *out, uint32_t value) {
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    return out + 2;
}

static void put_block(const struct int_rows *r, uint32_t n, uint32_t block, uint8_t *out) {
    uint32_t g = r->block_group ? r->block_group[block] : block * BLOCK / r->group_cols;
    uint8_t code[BLOCK];
    read_codes(r, n, block, code);
    out = put_u16(out, scale_at(r, n, g));
    if (r->type == DTYPE_INT4) *out++ = (uint8_t)zero_at(r, n, g);
    if (r->type == DTYPE_INT8_Z) out = put_u16(out, zero_at(r, n, g) - 128);
    for (uint32_t i = 0; r->bits == 4 && i < BLOCK / 2; i++)
        out[i] = (uint8_t)(code[i] | code[i + BLOCK / 2] << 4);
    for (uint32_t i = 0; r->bits == 8 && i < BLOCK; i++) out[i] = (uint8_t)(code[i] - 128);
}

static void read_rows(const struct row_source *self, const struct row_piece *piece, uint8_t *out) {
    const struct int_rows *r = (const struct int_rows *)(const void *)self;
    uint32_t bytes = dtype_info(r->type)->block_bytes;
    DCHECK(piece->first_row + piece->row_count <= r->rows);
    DCHECK(piece->first_block + piece->block_count <= r->cols / BLOCK);
    for (uint32_t i = 0; i < piece->row_count; i++)
        for (uint32_t b = 0; b < piece->block_count; b++, out += bytes)
            put_block(r, piece->first_row + i, piece->first_block + b, out);
}

/* ---- the order of the inputs ---- */

static enum status check_groups(struct quant *q, const struct int_rows *r,
                                const struct raw_tensor *g_idx, uint32_t *counts) {
    for (uint32_t k = 0; k < r->cols; k++) {
        uint32_t g = word_at(g_idx->data, k);
        if (g >= r->groups)
            return quant_say(q,
                             "tensor %.*s: element %u is %" PRId32 ", expected a group from 0 to "
                             "%u. The file is damaged; fetch the folder again",
                             STR_ARG(g_idx->name), k, (int32_t)g, r->groups - 1);
        counts[g]++;
    }
    for (uint32_t g = 0; g < r->groups; g++)
        if (counts[g] % BLOCK != 0)
            return quant_say(
                q,
                "tensor %.*s: group %u has %u inputs, expected a multiple of %d. Use a "
                "folder quantised with a group_size of 32 or a multiple",
                STR_ARG(g_idx->name), g, counts[g], BLOCK);
    return ST_OK;
}

static bool is_rising(const struct int_rows *r, const struct raw_tensor *g_idx) {
    for (uint32_t k = 0; k < r->cols; k++)
        if (word_at(g_idx->data, k) != k / r->group_cols) return false;
    return true;
}

/* Act order: input k is in group g_idx[k]. The inputs of a group become neighbours, so that each
 * block of 32 has one scale. */
static enum status sort_inputs(struct quant *q, struct int_rows *r,
                               const struct raw_tensor *g_idx) {
    uint32_t *next = arena_zalloc_array(q->f->arena, (size_t)r->groups + 1, sizeof(*next));
    uint32_t *order = arena_zalloc_array(q->f->arena, r->cols, sizeof(*order));
    uint32_t *groups = arena_zalloc_array(q->f->arena, r->cols / BLOCK, sizeof(*groups));
    if (!next || !order || !groups) return quant_no_memory(q);
    TRY(check_groups(q, r, g_idx, next + 1));
    for (uint32_t g = 1; g < r->groups; g++) next[g] += next[g - 1];
    next[0] = 0;
    for (uint32_t k = 0; k < r->cols; k++) {
        uint32_t g = word_at(g_idx->data, k), place = next[g]++;
        order[place] = k;
        groups[place / BLOCK] = g;
    }
    r->order = order;
    r->block_group = groups;
    return ST_OK;
}

/* ---- adding ---- */

static enum status check_scales(struct quant *q, struct str stem, const struct int_rows *r) {
    size_t count = (size_t)r->rows * r->groups;
    if (r->scale_type == DTYPE_F16) return ST_OK;
    for (size_t i = 0; i < count; i++) {
        float scale = float_at(r->scale_type, r->scales, i);
        if (!(fabsf(scale) <= F16_MAX))
            return quant_say(q,
                             "tensor %.*s.weight: scale %zu is %g, expected at most %g. The file "
                             "is damaged; fetch the folder again",
                             STR_ARG(stem), i, (double)scale, (double)F16_MAX);
    }
    return ST_OK;
}

static bool all_zeros_are(const struct int_rows *r, uint32_t zero) {
    if (!r->zeros) return r->zero == zero;
    for (uint32_t g = 0; g < r->groups; g++)
        for (uint32_t n = 0; n < r->rows; n++)
            if (zero_at(r, n, g) != zero) return false;
    return true;
}

static enum dtype type_of(const struct int_rows *r) {
    if (r->bits == 4) return all_zeros_are(r, 8) ? DTYPE_Q4_0 : DTYPE_INT4;
    return all_zeros_are(r, 128) ? DTYPE_Q8_0 : DTYPE_INT8_Z;
}

enum status int_rows_add(struct quant *q, struct str stem, struct int_rows *r,
                         const struct raw_tensor *g_idx) {
    CHECK(r->bits == 4 || r->bits == 8);
    CHECK(r->cols % BLOCK == 0);
    CHECK(r->group_cols % BLOCK == 0);
    if (g_idx && !is_rising(r, g_idx)) TRY(sort_inputs(q, r, g_idx));
    TRY(check_scales(q, stem, r));
    r->type = type_of(r);
    r->base.read = read_rows;
    struct tensor_info t = {.type = r->type,
                            .dim_count = 2,
                            .dims = {r->rows, r->cols, 1, 1},
                            .source = &r->base,
                            .order = r->order};
    for (int i = 0; i < ROW_PARTS_MAX; i++) t.bytes += r->base.parts[i].bytes;
    return quant_add(q, stem, t);
}
