/* format/quant_bnb.c - folders that bitsandbytes wrote.
 *
 * 4 bits; element i of the matrix, row after row, is table[code i] * absmax[i / blocksize], and the
 * first of two codes is in the high half of a byte:
 *     NAME.weight                                    U8 [N * K / 2][1]
 *     NAME.weight.absmax                             F32 [blocks], or with double quantisation U8
 *     NAME.weight.quant_map                          F32 [16], the table
 *     NAME.weight.nested_absmax, .nested_quant_map   F32 [blocks / nested_blocksize], F32 [256]
 *     NAME.weight.quant_state.bitsandbytes__nf4      U8, JSON: quant_type, blocksize, shape,
 *                                 (or __fp4)         nested_blocksize, nested_offset, ...
 * With double quantisation absmax is nested_quant_map[byte] * nested_absmax + nested_offset.
 *
 * LLM.int8(); element (n, k) is code * SCB[n] / 127:
 *     NAME.weight  I8 [N][K],  NAME.SCB  F32 [N],  NAME.weight_format  U8, 0: rows
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, SIZE_MAX_LOG = 24, TABLE = 16, NESTED_TABLE = 256, STATE_BYTES_MAX = 4096 };

/* What a unit of the whole numbers in tensor/dtype.c stands for. */
static const float nf4_unit = 0.0089261631f, fp4_unit = 1.0f / 120;

/* The published tables. */
static const float nf4_table[TABLE] = {-1.0f,        -0.6961928f,  -0.52507305f,  -0.3949175f,
                                       -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,
                                       0.0795803f,   0.1609302f,   0.2461123f,    0.33791524f,
                                       0.44070983f,  0.562617f,    0.72295684f,   1.0f};
static const float fp4_table[TABLE] = {
    0.0f, 0.0052083333f,  0.6666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    0.0f, -0.0052083333f, -0.6666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

static float float_at(const uint8_t *floats, size_t i) {
    float value;
    memcpy(&value, floats + sizeof(value) * i, sizeof(value));
    return value;
}

/* ---- rows of 4 bits ---- */

struct table_rows {
    struct row_source base;
    enum dtype type;
    float unit, offset;
    uint32_t rows, cols, block, nested_block;
    const uint8_t *codes, *absmax;
    const uint8_t *nested, *nested_map; /* NULL: absmax are floats */
};

static float absmax_at(const struct table_rows *r, size_t i) {
    if (!r->nested) return float_at(r->absmax, i);
    float value = float_at(r->nested_map, r->absmax[i]) * float_at(r->nested, i / r->nested_block);
    return value + r->offset;
}

static void put_block(const struct table_rows *r, size_t first, uint8_t *out) {
    const uint8_t *pairs = r->codes + first / 2;
    float scale = absmax_at(r, first / r->block) * r->unit;
    uint8_t code[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i += 2) {
        code[i] = pairs[i / 2] >> 4;
        code[i + 1] = pairs[i / 2] & 15;
    }
    memcpy(out, &scale, sizeof(scale));
    for (uint32_t i = 0; i < BLOCK / 2; i++)
        out[sizeof(scale) + i] = (uint8_t)(code[i] | code[i + BLOCK / 2] << 4);
}

static void read_rows(const struct row_source *self, const struct row_piece *piece, uint8_t *out) {
    const struct table_rows *r = (const struct table_rows *)(const void *)self;
    uint32_t bytes = dtype_info(r->type)->block_bytes;
    DCHECK(piece->first_row + piece->row_count <= r->rows);
    DCHECK(piece->first_block + piece->block_count <= r->cols / BLOCK);
    for (uint32_t n = piece->first_row; n < piece->first_row + piece->row_count; n++)
        for (uint32_t b = piece->first_block; b < piece->first_block + piece->block_count; b++) {
            put_block(r, (size_t)n * r->cols + (size_t)b * BLOCK, out);
            out += bytes;
        }
}

/* ---- the state ---- */

static enum status check_block(const struct quant *q, const struct raw_tensor *state,
                               const char *key, int64_t size) {
    if (size > 0 && size % BLOCK == 0 && size <= 1 << SIZE_MAX_LOG) return ST_OK;
    return quant_say(q, "tensor %.*s: %s is %" PRId64 ", expected a multiple of %d",
                     STR_ARG(state->name), key, size, BLOCK);
}

static enum status read_state(const struct quant *q, const struct raw_tensor *state,
                              const struct json *doc, struct table_rows *r) {
    const struct json *shape = json_get(doc, "shape");
    int64_t rows = json_int(json_at(shape, 0), 0), cols = json_int(json_at(shape, 1), 0);
    int64_t block = json_int(json_get(doc, "blocksize"), 0);
    if (json_count(shape) != 2 || rows <= 0 || cols <= 0 || rows > 1 << SIZE_MAX_LOG ||
        cols > 1 << SIZE_MAX_LOG || cols % BLOCK != 0)
        return quant_say(q,
                         "tensor %.*s: shape is (%" PRId64 ", %" PRId64 "), expected 2 dims and a "
                         "multiple of %d columns",
                         STR_ARG(state->name), rows, cols, BLOCK);
    TRY(check_block(q, state, "blocksize", block));
    r->rows = (uint32_t)rows;
    r->cols = (uint32_t)cols;
    r->block = (uint32_t)block;
    r->offset = (float)json_num(json_get(doc, "nested_offset"), 0);
    r->nested_block = 0;
    if (!json_get(doc, "nested_blocksize")) return ST_OK;
    block = json_int(json_get(doc, "nested_blocksize"), 0);
    r->nested_block = (uint32_t)block;
    return check_block(q, state, "nested_blocksize", block);
}

static enum status parse_state(const struct quant *q, const struct raw_tensor *state,
                               struct table_rows *r) {
    static const struct json_limits limits = {
        .bytes_max = STATE_BYTES_MAX, .depth_max = 4, .values_max = 256, .unique_keys = true};
    struct err why = {{0}};
    struct json *doc;
    struct str text = {(const char *)state->data, state->bytes};
    enum status st = json_parse(text, &limits, &doc, &why);
    if (st == ST_NOMEM) return quant_no_memory(q);
    if (st != ST_OK)
        return quant_say(q, "tensor %.*s: expected JSON: %s", STR_ARG(state->name), why.text);
    st = read_state(q, state, doc, r);
    json_destroy(doc);
    return st;
}

static enum status find_state(const struct quant *q, struct str stem, struct table_rows *r,
                              const struct raw_tensor **state) {
    *state = quant_raw(q, stem, ".weight.quant_state.bitsandbytes__nf4");
    r->type = DTYPE_NF4;
    r->unit = nf4_unit;
    if (*state) return ST_OK;
    *state = quant_raw(q, stem, ".weight.quant_state.bitsandbytes__fp4");
    r->type = DTYPE_FP4;
    r->unit = fp4_unit;
    if (*state) return ST_OK;
    return quant_say_missing(q, stem, ".weight.quant_state.bitsandbytes__nf4", ".weight");
}

/* ---- its parts ---- */

static enum status check_table(const struct quant *q, const struct tensor_info *map,
                               const float *table) {
    TRY(quant_check_part(q, map, TABLE, 0, "for 4 bits"));
    for (uint32_t i = 0; i < TABLE; i++) {
        float value;
        dtype_dequant(map->type,
                      (const uint8_t *)map->data + (size_t)i * dtype_info(map->type)->block_bytes,
                      1, &value);
        if (!(fabsf(value - table[i]) <= 1e-4f))
            return quant_say(
                q,
                "tensor %.*s: element %u is %g, expected %g as published. Use a folder "
                "with the usual table",
                STR_ARG(map->name), i, (double)value, (double)table[i]);
    }
    return ST_OK;
}

static enum status need_f32(const struct quant *q, const struct tensor_info *t) {
    if (t->type == DTYPE_F32) return ST_OK;
    return quant_say(q, "tensor %.*s is %s, expected F32. Fetch the folder again", STR_ARG(t->name),
                     dtype_info(t->type)->name);
}

static enum status take_nested(const struct quant *q, struct str stem, uint64_t blocks,
                               struct table_rows *r) {
    const struct raw_tensor *absmax = quant_raw(q, stem, ".weight.absmax");
    const struct tensor_info *nested = quant_part(q, stem, ".weight.nested_absmax");
    const struct tensor_info *map = quant_part(q, stem, ".weight.nested_quant_map");
    if (!absmax) return quant_say_missing(q, stem, ".weight.absmax", ".weight");
    if (!nested) return quant_say_missing(q, stem, ".weight.nested_absmax", ".weight");
    if (!map) return quant_say_missing(q, stem, ".weight.nested_quant_map", ".weight");
    uint64_t outer = (blocks + r->nested_block - 1) / r->nested_block;
    TRY(quant_check_raw(q, absmax, "U8", blocks, 0, "as its quant_state says"));
    TRY(quant_check_part(q, nested, outer, 0, "as its quant_state says"));
    TRY(quant_check_part(q, map, NESTED_TABLE, 0, "for 8 bits"));
    TRY(need_f32(q, nested));
    TRY(need_f32(q, map));
    r->absmax = absmax->data;
    r->nested = nested->data;
    r->nested_map = map->data;
    r->base.parts[1] = (struct row_part){absmax->data, absmax->bytes};
    r->base.parts[2] = (struct row_part){nested->data, nested->bytes};
    r->base.parts[3] = (struct row_part){map->data, map->bytes};
    return ST_OK;
}

static enum status take_absmax(const struct quant *q, struct str stem, uint64_t blocks,
                               struct table_rows *r) {
    if (r->nested_block) return take_nested(q, stem, blocks, r);
    const struct tensor_info *absmax = quant_part(q, stem, ".weight.absmax");
    if (!absmax) return quant_say_missing(q, stem, ".weight.absmax", ".weight");
    TRY(quant_check_part(q, absmax, blocks, 0, "as its quant_state says"));
    TRY(need_f32(q, absmax));
    r->absmax = absmax->data;
    r->base.parts[1] = (struct row_part){absmax->data, absmax->bytes};
    return ST_OK;
}

static enum status add_table(struct quant *q, struct str stem, const struct raw_tensor *codes) {
    const struct raw_tensor *state;
    const struct tensor_info *map = quant_part(q, stem, ".weight.quant_map");
    struct table_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    TRY(find_state(q, stem, r, &state));
    TRY(parse_state(q, state, r));
    uint64_t elems = (uint64_t)r->rows * r->cols;
    TRY(quant_check_raw(q, codes, "U8", elems / 2, 1, "as its quant_state says"));
    if (!map) return quant_say_missing(q, stem, ".weight.quant_map", ".weight");
    TRY(check_table(q, map, r->type == DTYPE_NF4 ? nf4_table : fp4_table));
    TRY(take_absmax(q, stem, (elems + r->block - 1) / r->block, r));
    r->codes = codes->data;
    r->base.read = read_rows;
    r->base.parts[0] = (struct row_part){codes->data, codes->bytes};
    struct tensor_info t = {
        .type = r->type, .dim_count = 2, .dims = {r->rows, r->cols, 1, 1}, .source = &r->base};
    for (int i = 0; i < ROW_PARTS_MAX; i++) t.bytes += r->base.parts[i].bytes;
    return quant_add(q, stem, t);
}

/* ---- LLM.int8() ---- */

static enum status add_bytes(struct quant *q, struct str stem, const struct raw_tensor *codes) {
    const struct tensor_info *scales = quant_part(q, stem, ".SCB");
    const struct raw_tensor *format = quant_raw(q, stem, ".weight_format");
    if (!scales) return quant_say_missing(q, stem, ".SCB", ".weight");
    TRY(need_f32(q, scales));
    if (format && (format->bytes != 1 || format->data[0] != 0))
        return quant_say(q,
                         "tensor %.*s is not 0, expected 0: codes row by row. Save the folder "
                         "again with a newer bitsandbytes",
                         STR_ARG(format->name));
    struct byte_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    r->scales = scales->data;
    r->scale_type = scales->type;
    r->scale_count = scales->bytes / sizeof(float);
    r->unit = 1.0f / 127;
    r->base.parts[1] = (struct row_part){scales->data, scales->bytes};
    return byte_rows_add(q, stem, r, codes, scales->name);
}

enum status quant_bnb(struct quant *q) {
    struct str storage = json_str(json_get(q->config, "bnb_4bit_quant_storage"));
    bool any = false;
    if (storage.len > 0 && !str_is(storage, "uint8"))
        return quant_say(q,
                         "quantization_config: bnb_4bit_quant_storage is \"%.*s\", expected uint8",
                         STR_ARG(str_take(storage, 20)));
    for (size_t i = 0; i < q->f->raw_count; i++) {
        const struct raw_tensor *codes = &q->f->raws[i];
        struct str stem;
        if (!quant_stem(codes->name, ".weight", &stem)) continue;
        if (strcmp(codes->format, "I8") == 0)
            TRY(add_bytes(q, stem, codes));
        else if (strcmp(codes->format, "U8") == 0)
            TRY(add_table(q, stem, codes));
        else
            continue;
        any = true;
    }
    if (any || q->f->tensor_count == 0) return ST_OK;
    return quant_say(q, "quantization_config says bitsandbytes, but no tensor NAME.weight is of U8 "
                        "or I8. Remove it from config.json if the weights are not quantised");
}
