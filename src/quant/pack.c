/* quant/pack.c - see quant/pack.h for the contract. */
#include "quant/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "quant/nf4.h"
#include "quant/round_int.h"

enum {
    BLOCK = 32,
    SIZE_MAX_LOG = 24,
    WORD_CODES = 8,
    CODE_BITS = 4,
    STATE_OFFSET_BYTES = 24,
    STATE_ALIGNMENT = 8
};

/* ---- what a matrix becomes ---- */

bool pack_fits(const struct pack_format *format, uint64_t rows, uint64_t cols) {
    if (cols % BLOCK != 0 || rows > 1u << SIZE_MAX_LOG || cols > 1u << SIZE_MAX_LOG) return false;
    if (format->method != PACK_GPTQ && format->method != PACK_AWQ) return true;
    return cols % format->ints.group_cols == 0 && rows % WORD_CODES == 0;
}

struct part_list {
    struct packed_part *parts;
    uint32_t count;
    size_t bytes;
};

static void add_part(struct part_list *l, const char *suffix, const char *format, uint64_t rows,
                     uint64_t cols) {
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"I32", 4}, {"F32", 4}, {"F16", 2}, {"I8", 1}, {"U8", 1}};
    size_t size = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(format, sizes[i].name) == 0) size = sizes[i].bytes;
    CHECK(size > 0);
    CHECK(l->count < PACKED_PARTS_MAX);
    size_t bytes = (size_t)rows * (cols ? (size_t)cols : 1) * size;
    l->parts[l->count++] =
        (struct packed_part){suffix, format, cols ? 2 : 1, {rows, cols}, bytes, l->bytes};
    l->bytes += bytes;
}

static uint64_t blocks_of(uint64_t elems, uint64_t block) { return (elems + block - 1) / block; }

/* The state of NF4 as bitsandbytes keeps it; blanks behind it, so that its length is known before
 * the mean of the scales is. */
static size_t put_state(const struct pack_format *format, uint32_t rows, uint32_t cols,
                        double offset, char out[256]) {
    const char *plain = format->plain == DTYPE_BF16 ? "bfloat16" : "float16";
    int fixed = snprintf(out, 256,
                         "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"%s\", "
                         "\"shape\": [%" PRIu32 ", %" PRIu32 "], \"nested_blocksize\": %d, "
                         "\"nested_dtype\": \"float32\", \"nested_offset\": ",
                         NF4_BLOCK, plain, rows, cols, NESTED_BLOCK);
    CHECK(fixed > 0);
    size_t bytes = (size_t)fixed + STATE_OFFSET_BYTES + 1;
    bytes = (bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    CHECK(bytes < 256);
    memset(out + fixed, ' ', bytes - (size_t)fixed);
    int more = snprintf(out + fixed, 256 - (size_t)fixed, "%.17g}", offset);
    CHECK(more > 0 && more <= STATE_OFFSET_BYTES + 1);
    out[fixed + more] = ' ';
    return bytes;
}

static void add_nf4(struct part_list *l, const struct pack_format *format, uint32_t rows,
                    uint32_t cols) {
    char state[256];
    uint64_t elems = (uint64_t)rows * cols, blocks = blocks_of(elems, NF4_BLOCK);
    add_part(l, ".weight", "U8", elems / 2, 1);
    add_part(l, ".weight.absmax", "U8", blocks, 0);
    add_part(l, ".weight.nested_absmax", "F32", blocks_of(blocks, NESTED_BLOCK), 0);
    add_part(l, ".weight.nested_quant_map", "F32", NESTED_TABLE, 0);
    add_part(l, ".weight.quant_map", "F32", NF4_TABLE, 0);
    add_part(l, ".weight.quant_state.bitsandbytes__nf4", "U8",
             put_state(format, rows, cols, 0, state), 0);
}

uint32_t pack_parts(const struct pack_format *format, uint32_t rows, uint32_t cols,
                    struct packed_part parts[PACKED_PARTS_MAX]) {
    CHECK(pack_fits(format, rows, cols));
    struct part_list l = {.parts = parts};
    uint32_t groups = format->ints.group_cols ? cols / format->ints.group_cols : 1;
    switch (format->method) {
    case PACK_GPTQ:
        add_part(&l, ".qweight", "I32", cols / WORD_CODES, rows);
        add_part(&l, ".qzeros", "I32", groups, rows / WORD_CODES);
        add_part(&l, ".g_idx", "I32", cols, 0);
        add_part(&l, ".scales", "F16", groups, rows);
        break;
    case PACK_AWQ:
        add_part(&l, ".qweight", "I32", cols, rows / WORD_CODES);
        add_part(&l, ".qzeros", "I32", groups, rows / WORD_CODES);
        add_part(&l, ".scales", "F16", groups, rows);
        break;
    case PACK_INT8:
        add_part(&l, ".weight", "I8", rows, cols);
        add_part(&l, ".weight_scale", "F16", rows, 1);
        break;
    case PACK_NF4:
        add_nf4(&l, format, rows, cols);
        break;
    }
    return l.count;
}

/* ---- bytes ---- */

enum status packed_init(struct packed_matrix *m, const struct pack_format *format, uint32_t rows,
                        uint32_t cols, struct err *err) {
    *m = (struct packed_matrix){.format = *format, .rows = rows, .cols = cols};
    m->part_count = pack_parts(format, rows, cols, m->parts);
    const struct packed_part *last = &m->parts[m->part_count - 1];
    bool has_absmax = format->method == PACK_NF4;
    m->data = mem_zalloc(last->at + last->bytes);
    if (has_absmax)
        m->absmax = mem_alloc_array((size_t)blocks_of((uint64_t)rows * cols, NF4_BLOCK),
                                    sizeof(m->absmax[0]));
    if (m->data && (m->absmax || !has_absmax)) return ST_OK;
    packed_deinit(m);
    return err_set(err, ST_NOMEM, "out of memory for a packed matrix of %u x %u", rows, cols);
}

void packed_deinit(struct packed_matrix *m) {
    mem_free(m->data);
    mem_free(m->absmax);
    m->data = NULL;
    m->absmax = NULL;
}

static uint8_t *part_data(const struct packed_matrix *m, const char *suffix) {
    uint32_t i = 0;
    while (i < m->part_count && strcmp(m->parts[i].suffix, suffix) != 0) i++;
    CHECK(i < m->part_count);
    return m->data + m->parts[i].at;
}

/* All bits of a word are zero before; a code is put once. */
static void put_code(uint8_t *words, size_t word, uint32_t place, uint32_t code) {
    words[4 * word + place / 2] |= (uint8_t)(code << place % 2 * CODE_BITS);
}

/* Eight codes, the first in the low bits. */
static void put_word(uint8_t *words, size_t word, const uint8_t codes[WORD_CODES]) {
    for (uint32_t i = 0; i < WORD_CODES / 2; i++)
        words[4 * word + i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << CODE_BITS);
}

static void put_scale(uint8_t *scales, size_t i, float scale) {
    uint16_t half = f16_from_f32(scale);
    scales[2 * i] = (uint8_t)half;
    scales[2 * i + 1] = (uint8_t)(half >> 8);
}

/* Scales and zero points of groups, [groups][rows]; zero points are stored less `less`. */
static void put_groups(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row,
                       const uint8_t place[WORD_CODES], uint32_t less) {
    uint8_t *zeros = part_data(m, ".qzeros"), *scales = part_data(m, ".scales");
    for (uint32_t i = 0; i < ints->rows; i++)
        for (uint32_t g = 0; g < ints->groups; g++) {
            uint32_t n = first_row + i, zero = ints->zeros[(size_t)i * ints->groups + g];
            CHECK(zero >= less);
            put_code(zeros, (size_t)g * (m->rows / WORD_CODES) + n / WORD_CODES,
                     place[n % WORD_CODES], zero - less);
            put_scale(scales, (size_t)g * m->rows + n, ints->scales[(size_t)i * ints->groups + g]);
        }
}

/* Words along the inputs, [K / 8][N]. The words of 16 rows lie together. */
static void put_gptq(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row) {
    enum { TILE = 16 };
    static const uint8_t place[WORD_CODES] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint8_t *words = part_data(m, ".qweight"), *g_idx = part_data(m, ".g_idx");
    for (uint32_t tile = 0; tile < ints->rows; tile += TILE)
        for (uint32_t w = 0; w < m->cols / WORD_CODES; w++)
            for (uint32_t i = tile; i < tile + TILE && i < ints->rows; i++)
                put_word(words, (size_t)w * m->rows + first_row + i,
                         ints->codes + (size_t)i * m->cols + (size_t)w * WORD_CODES);
    for (uint32_t k = 0; k < m->cols; k++) {
        uint32_t g = int_matrix_group(ints, k);
        for (int b = 0; b < 4; b++) g_idx[4 * k + (uint32_t)b] = (uint8_t)(g >> (8 * b));
    }
    put_groups(m, ints, first_row, place, 1);
}

/* Words along the outputs, [K][N / 8]. */
static void put_awq(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row) {
    static const uint8_t output[WORD_CODES] = {0, 2, 4, 6, 1, 3, 5, 7}; /* in place i of a word */
    static const uint8_t place[WORD_CODES] = {0, 4, 1, 5, 2, 6, 3, 7};  /* of output i of eight */
    uint8_t *words = part_data(m, ".qweight"), codes[WORD_CODES];
    size_t row_words = m->rows / WORD_CODES;
    for (uint32_t i = 0; i < ints->rows; i += WORD_CODES)
        for (uint32_t k = 0; k < m->cols; k++) {
            for (uint32_t c = 0; c < WORD_CODES; c++)
                codes[c] = ints->codes[(size_t)(i + output[c]) * m->cols + k];
            put_word(words, k * row_words + (first_row + i) / WORD_CODES, codes);
        }
    put_groups(m, ints, first_row, place, 0);
}

static void put_int8(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row) {
    uint8_t *bytes = part_data(m, ".weight") + (size_t)first_row * m->cols;
    uint8_t *scales = part_data(m, ".weight_scale");
    for (uint32_t i = 0; i < ints->rows; i++) {
        CHECK(ints->zeros[i] == 128);
        put_scale(scales, first_row + i, ints->scales[i]);
    }
    for (size_t i = 0; i < (size_t)ints->rows * m->cols; i++)
        bytes[i] = (uint8_t)(ints->codes[i] - 128);
}

void packed_put_ints(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row) {
    CHECK(first_row % PACK_BAND_ROWS == 0);
    CHECK(ints->cols == m->cols);
    CHECK(first_row + ints->rows <= m->rows);
    CHECK(ints->rows % WORD_CODES == 0 || m->format.method == PACK_INT8);
    if (m->format.method == PACK_GPTQ)
        put_gptq(m, ints, first_row);
    else if (m->format.method == PACK_AWQ)
        put_awq(m, ints, first_row);
    else
        put_int8(m, ints, first_row);
}

/* ---- NF4 ---- */

struct nf4_job {
    const float *x;
    size_t elems;
    uint8_t *codes;
    float *absmax;
};

static void encode_blocks(void *ctx, uint32_t thread, uint32_t threads) {
    const struct nf4_job *job = ctx;
    size_t blocks = (size_t)blocks_of(job->elems, NF4_BLOCK);
    for (size_t b = thread; b < blocks; b += threads) {
        size_t first = b * NF4_BLOCK, left = job->elems - first;
        nf4_encode(job->x + first, left < NF4_BLOCK ? left : NF4_BLOCK, job->codes + first / 2,
                   &job->absmax[b]);
    }
}

void packed_put_floats(struct packed_matrix *m, const float *w, uint32_t first_row, uint32_t rows) {
    CHECK(m->format.method == PACK_NF4);
    CHECK(first_row % PACK_BAND_ROWS == 0);
    CHECK(first_row + rows <= m->rows);
    size_t first = (size_t)first_row * m->cols;
    struct nf4_job job = {.x = w,
                          .elems = (size_t)rows * m->cols,
                          .codes = part_data(m, ".weight") + first / 2,
                          .absmax = m->absmax + first / NF4_BLOCK};
    round_on_threads(0, encode_blocks, &job);
}

void packed_finish(struct packed_matrix *m) {
    char state[256];
    float table[NESTED_TABLE];
    if (m->format.method != PACK_NF4) return;
    size_t blocks = (size_t)blocks_of((uint64_t)m->rows * m->cols, NF4_BLOCK);
    size_t outer = (size_t)blocks_of(blocks, NESTED_BLOCK);
    float *scales = m->absmax; /* each is written after the 256 that it is made of were read */
    uint8_t *codes = part_data(m, ".weight.absmax");
    float offset = nested_encode(m->absmax, blocks, codes, scales);
    memcpy(part_data(m, ".weight.nested_absmax"), scales, outer * sizeof(scales[0]));
    nested_table(table);
    memcpy(part_data(m, ".weight.nested_quant_map"), table, sizeof(table));
    memcpy(part_data(m, ".weight.quant_map"), nf4_table, sizeof(nf4_table));
    size_t bytes = put_state(&m->format, m->rows, m->cols, (double)offset, state);
    memcpy(part_data(m, ".weight.quant_state.bitsandbytes__nf4"), state, bytes);
}
