/* kernels/cpu/pack.c - see kernels/cpu/pack.h for the layouts.
 *
 * Every format with integers passes through dtype_unpack or dtype_unpack_codes, so there is one
 * place that knows the file's layouts. Threads share the panels.
 */
#include "kernels/cpu/pack.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "kernels/cpu/page.h"
#include "tensor/fp8.h"
#include "tensor/q8.h"

enum {
    BLOCK_ELEMS_MAX = 256,
    GROUPS_MAX = BLOCK_ELEMS_MAX / 16,
    QUAD = 4, /* k values of one row side by side */
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
};

static enum pack_layout layout_of(enum dtype type) {
    if (type == DTYPE_F8) return PACK_F8;
    if (!dtype_is_quantised(type)) return PACK_PLAIN;
    if (type == DTYPE_Q4_0 || type == DTYPE_Q4_1) return PACK_NIBBLES;
    if (!dtype_has_codes(type)) return PACK_BYTES;
    return dtype_info(type)->block_elems == Q8_BLOCK ? PACK_NIBBLES : PACK_SUPER;
}

/* Formats with one f16 scale in each block of 32: packing keeps their size. */
static bool has_half_scales(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case DTYPE_INT4:
        return true;
    default:
        return false;
    }
}

struct pack_info pack_info(enum dtype type) {
    const struct dtype_info *d = dtype_info(type);
    struct pack_info info = {.layout = layout_of(type)};
    if (info.layout == PACK_PLAIN) {
        info.step_elems = 1;
        info.step_bytes = PANEL_ROWS * d->block_bytes;
        return info;
    }
    if (info.layout == PACK_F8) {
        info.step_elems = F8_RUN;
        info.step_bytes = PACK_F8_SCALE_BYTES + PANEL_ROWS * F8_RUN;
        return info;
    }
    info.half_scales = has_half_scales(type);
    info.has_min = d->has_min;
    info.has_zero = type == DTYPE_INT4;
    info.group_elems = d->group_elems;
    info.high_bits = type == DTYPE_Q6_K ? 2 : type == DTYPE_Q5_K ? 1 : 0;
    uint32_t groups = Q8_BLOCK / d->group_elems;
    if (info.layout == PACK_SUPER) {
        info.step_elems = PACK_SUPER_BLOCKS * Q8_BLOCK;
        info.step_bytes = pack_super(d->has_min, groups, info.high_bits).bytes;
        return info;
    }
    info.step_elems = Q8_BLOCK;
    uint32_t scale_bytes = info.half_scales ? 2 : 4;
    uint32_t min_bytes = info.has_zero ? 1 : d->has_min ? scale_bytes : 0;
    info.step_bytes = (info.layout == PACK_NIBBLES ? PACK_NIBBLE_BYTES : VALUE_BYTES) +
                      PANEL_ROWS * groups * (scale_bytes + min_bytes);
    return info;
}

/* One row's numbers of one 32-block, on their way into a panel. */
struct row_block {
    const int8_t *q;
    const float *scale, *min; /* of the block's groups */
};

/* Number `i` of an array of f16 or f32. The f16 ones came from f16, so nothing is lost. */
static void put_number(uint8_t *array, uint32_t i, bool half, float value) {
    if (half) {
        uint16_t bits = f16_from_f32(value);
        memcpy(array + 2 * (size_t)i, &bits, sizeof(bits));
    } else {
        memcpy(array + 4 * (size_t)i, &value, sizeof(value));
    }
}

static void put_numbers(const struct pack_info *info, const struct row_block *in, uint32_t r,
                        uint8_t *out) {
    uint32_t groups = Q8_BLOCK / info->group_elems;
    for (uint32_t g = 0; g < groups; g++)
        put_number(out, g * PANEL_ROWS + r, info->half_scales, in->scale[g]);
    if (!info->has_min) return;
    for (uint32_t g = 0; g < groups; g++)
        put_number(out, (groups + g) * PANEL_ROWS + r, info->half_scales, in->min[g]);
}

/* Codes of a block, of which the low four bits count. */
static void put_nibbles(const uint8_t *code, uint32_t r, uint8_t *out) {
    for (uint32_t i = 0; i < Q8_BLOCK / 2; i++)
        out[i / QUAD * PANEL_ROWS * QUAD + r * QUAD + i % QUAD] =
            (uint8_t)((code[i] & 15) | (code[i + Q8_BLOCK / 2] & 15) << 4);
}

/* The bits of a block's codes beyond the nibbles: `bits` for each of as many steps of four k as
 * fill a byte, then the next array. */
static void put_high_bits(const uint8_t *code, uint32_t bits, uint32_t r, uint8_t *out) {
    uint32_t steps = 8 / bits;
    for (uint32_t i = 0; i < Q8_BLOCK; i++) {
        uint32_t step = i / QUAD, shift = step % steps * bits;
        uint8_t *at = out + step / steps * PACK_HIGH_BYTES + r * QUAD + i % QUAD;
        *at = (uint8_t)(*at | code[i] >> 4 << shift);
    }
}

static void put_values(const struct row_block *in, uint32_t r, uint8_t *out) {
    for (uint32_t j = 0; j < Q8_BLOCK / QUAD; j++)
        memcpy(out + j * PANEL_ROWS * QUAD + r * QUAD, in->q + j * QUAD, QUAD);
}

static void put_u16(uint8_t *array, uint32_t i, uint16_t bits) {
    memcpy(array + sizeof(bits) * i, &bits, sizeof(bits));
}

/* A superblock of one row. */
static void put_super(const struct pack_info *info, const struct dtype_codes *in, uint32_t r,
                      uint8_t *out) {
    enum { SIGN_BIT = 0x8000 };
    uint32_t groups = Q8_BLOCK / info->group_elems;
    struct pack_super s = pack_super(info->has_min, groups, info->high_bits);
    put_u16(out, r, in->d);
    if (info->has_min) put_u16(out, PANEL_ROWS + r, in->dmin ^ SIGN_BIT);
    for (uint32_t b = 0; b < PACK_SUPER_BLOCKS; b++) {
        uint8_t *codes = out + s.codes + b * s.code_step,
                *values = out + s.values + b * s.value_step;
        for (uint32_t g = 0; g < groups; g++) {
            codes[g * PANEL_ROWS + r] = (uint8_t)in->scale[b * groups + g];
            if (info->has_min)
                codes[(groups + g) * PANEL_ROWS + r] = (uint8_t)in->min[b * groups + g];
        }
        put_nibbles(in->code + b * Q8_BLOCK, r, values);
        if (info->high_bits)
            put_high_bits(in->code + b * Q8_BLOCK, info->high_bits, r, values + PACK_NIBBLE_BYTES);
    }
}

/* The scale of a block of nibbles, and its zero point behind the scales. */
static void put_scale(const struct pack_info *info, const struct dtype_codes *in, uint32_t r,
                      uint8_t *numbers) {
    if (info->half_scales)
        put_u16(numbers, r, in->d);
    else
        memcpy(numbers + sizeof(in->wide_d) * r, &in->wide_d, sizeof(in->wide_d));
    if (info->has_zero) numbers[PANEL_ROWS * sizeof(in->d) + r] = (uint8_t)in->min[0];
}

/* All of row `src`, of a format that has codes, becomes row `r` of the panel. */
static void put_coded_row(const struct packed *p, const uint8_t *src, uint32_t r, uint8_t *panel) {
    const struct dtype_info *d = dtype_info(p->type);
    struct pack_info info = pack_info(p->type);
    struct dtype_codes codes;
    for (uint32_t k = 0; k < p->cols; k += d->block_elems, src += d->block_bytes) {
        dtype_unpack_codes(p->type, src, &codes);
        if (info.layout == PACK_SUPER) {
            put_super(&info, &codes, r, panel);
        } else {
            put_nibbles(codes.code, r, panel);
            put_scale(&info, &codes, r, panel + PACK_NIBBLE_BYTES);
        }
        panel += info.step_bytes;
    }
}

/* The same for the other quantised formats. */
static void put_quantised_row(const struct packed *p, const uint8_t *src, uint32_t r,
                              uint8_t *panel) {
    const struct dtype_info *d = dtype_info(p->type);
    struct pack_info info = pack_info(p->type);
    int offset = p->type == DTYPE_Q4_0 ? 8 : 0;
    bool nibbles = info.layout == PACK_NIBBLES;
    int8_t q[BLOCK_ELEMS_MAX];
    uint8_t code[Q8_BLOCK];
    float scale[GROUPS_MAX], min[GROUPS_MAX];
    for (uint32_t k = 0; k < p->cols; k += d->block_elems, src += d->block_bytes) {
        dtype_unpack(p->type, src, q, scale, min);
        for (uint32_t e = 0; e < d->block_elems; e += Q8_BLOCK) {
            uint32_t g = e / d->group_elems;
            struct row_block in = {q + e, scale + g, min + g};
            uint8_t *out = panel + (size_t)((k + e) / Q8_BLOCK) * info.step_bytes;
            for (uint32_t i = 0; nibbles && i < Q8_BLOCK; i++)
                code[i] = (uint8_t)(in.q[i] + offset);
            if (nibbles)
                put_nibbles(code, r, out);
            else
                put_values(&in, r, out);
            put_numbers(&info, &in, r, out + (nibbles ? PACK_NIBBLE_BYTES : VALUE_BYTES));
        }
    }
}

static void put_plain_row(const struct packed *p, const uint8_t *src, uint32_t r, uint8_t *panel) {
    uint32_t width = dtype_info(p->type)->block_bytes;
    for (uint32_t k = 0; k < p->cols; k++)
        memcpy(panel + ((size_t)k * PANEL_ROWS + r) * width, src + (size_t)k * width, width);
}

/* The same for F8: `src` begins at a multiple of F8_RUN columns. */
static void put_f8_row(const struct packed *p, const uint8_t *src, uint32_t r, uint8_t *panel) {
    const struct dtype_info *d = dtype_info(p->type);
    const uint32_t step_bytes = pack_info(p->type).step_bytes;
    for (uint32_t k = 0; k < p->cols; k += d->block_elems, src += d->block_bytes) {
        uint8_t *step = panel + (size_t)(k / F8_RUN) * step_bytes;
        uint8_t *codes = step + PACK_F8_SCALE_BYTES + k % F8_RUN * PANEL_ROWS;
        memcpy(step + sizeof(float) * r, src, sizeof(float));
        for (uint32_t i = 0; i < d->block_elems; i++)
            codes[i * PANEL_ROWS + r] = src[sizeof(float) + i];
    }
}

/* ---- a row read back ---- */

/* One row's block of 32 k, as it comes out of a panel. */
struct block_read {
    int8_t q[Q8_BLOCK];
    float scale[2], min[2]; /* of the block's groups */
};

static float get_number(const uint8_t *array, uint32_t i, bool half) {
    uint16_t bits;
    float value;
    if (half) {
        memcpy(&bits, array + 2 * (size_t)i, sizeof(bits));
        return f16_to_f32(bits);
    }
    memcpy(&value, array + 4 * (size_t)i, sizeof(value));
    return value;
}

static void get_numbers(const struct pack_info *info, const uint8_t *in, uint32_t r,
                        struct block_read *out) {
    uint32_t groups = Q8_BLOCK / info->group_elems;
    for (uint32_t g = 0; g < groups; g++) {
        out->scale[g] = get_number(in, g * PANEL_ROWS + r, info->half_scales);
        if (info->has_zero)
            out->min[g] = -(out->scale[g] * (float)(int8_t)in[PANEL_ROWS * sizeof(uint16_t) + r]);
        else if (info->has_min)
            out->min[g] = get_number(in, (groups + g) * PANEL_ROWS + r, info->half_scales);
    }
}

/* Numbers of a superblock, the codes of one of its blocks being at `codes`. */
static void get_super_numbers(const struct pack_info *info, const uint8_t *super,
                              const uint8_t *codes, uint32_t r, struct block_read *out) {
    uint32_t groups = Q8_BLOCK / info->group_elems;
    for (uint32_t g = 0; g < groups; g++) {
        float scale = (float)(int8_t)codes[g * PANEL_ROWS + r];
        out->scale[g] = get_number(super, r, true) * scale;
        if (!info->has_min) continue;
        float min = (float)(int8_t)codes[(groups + g) * PANEL_ROWS + r];
        out->min[g] = get_number(super, PANEL_ROWS + r, true) * min;
    }
}

static void get_nibbles(const uint8_t *in, uint32_t r, uint8_t *code) {
    for (uint32_t i = 0; i < Q8_BLOCK / 2; i++) {
        uint8_t byte = in[i / QUAD * PANEL_ROWS * QUAD + r * QUAD + i % QUAD];
        code[i] = byte & 15;
        code[i + Q8_BLOCK / 2] = byte >> 4;
    }
}

static void get_high_bits(const uint8_t *in, uint32_t bits, uint32_t r, uint8_t *code) {
    uint32_t steps = 8 / bits;
    for (uint32_t i = 0; i < Q8_BLOCK; i++) {
        uint32_t step = i / QUAD, shift = step % steps * bits;
        uint32_t high = in[step / steps * PACK_HIGH_BYTES + r * QUAD + i % QUAD] >> shift;
        code[i] = (uint8_t)(code[i] | (high & ((1u << bits) - 1)) << 4);
    }
}

static void get_values(enum dtype type, const struct pack_info *info, const uint8_t *in, uint32_t r,
                       int8_t *q) {
    const int8_t *meaning = dtype_has_codes(type) ? dtype_code_values(type) : NULL;
    int offset = type == DTYPE_Q4_0 ? 8 : 0;
    uint8_t code[Q8_BLOCK];
    if (info->layout == PACK_BYTES) {
        for (uint32_t j = 0; j < Q8_BLOCK / QUAD; j++)
            memcpy(q + j * QUAD, in + j * PANEL_ROWS * QUAD + r * QUAD, QUAD);
        return;
    }
    get_nibbles(in, r, code);
    if (info->high_bits) get_high_bits(in + PACK_NIBBLE_BYTES, info->high_bits, r, code);
    for (uint32_t i = 0; i < Q8_BLOCK; i++)
        q[i] = (int8_t)(meaning ? meaning[code[i]] : code[i] - offset);
}

static void get_block(enum dtype type, const struct pack_info *info, const uint8_t *panel,
                      uint32_t b, uint32_t r, struct block_read *out) {
    const uint8_t *step = panel + (size_t)(b * Q8_BLOCK / info->step_elems) * info->step_bytes;
    if (info->layout == PACK_SUPER) {
        uint32_t within = b % PACK_SUPER_BLOCKS;
        struct pack_super s =
            pack_super(info->has_min, Q8_BLOCK / info->group_elems, info->high_bits);
        get_super_numbers(info, step, step + s.codes + within * s.code_step, r, out);
        get_values(type, info, step + s.values + within * s.value_step, r, out->q);
        return;
    }
    bool nibbles = info->layout == PACK_NIBBLES;
    get_numbers(info, step + (nibbles ? PACK_NIBBLE_BYTES : VALUE_BYTES), r, out);
    get_values(type, info, step, r, out->q);
}

static void read_plain_row(const struct packed *p, const uint8_t *panel, uint32_t r, float *out) {
    enum { SOME = 64, WIDTH_MAX = 4 };
    uint32_t width = dtype_info(p->type)->block_bytes;
    uint8_t bytes[SOME * WIDTH_MAX];
    for (uint32_t k = 0; k < p->cols; k += SOME) {
        uint32_t count = p->cols - k < SOME ? p->cols - k : SOME;
        for (uint32_t i = 0; i < count; i++)
            memcpy(bytes + (size_t)i * width, panel + ((size_t)(k + i) * PANEL_ROWS + r) * width,
                   width);
        dtype_dequant(p->type, bytes, count, out + k);
    }
}

static void read_f8_row(const struct packed *p, const uint8_t *panel, uint32_t r, float *out) {
    const uint32_t step_bytes = pack_info(p->type).step_bytes;
    for (uint32_t k = 0; k < p->cols; k++) {
        const uint8_t *step = panel + (size_t)(k / F8_RUN) * step_bytes;
        float scale = get_number(step, r, false);
        out[k] = fp8_to_f32(step[PACK_F8_SCALE_BYTES + k % F8_RUN * PANEL_ROWS + r]) * scale;
    }
}

/* Group by group: dividing every index would cost more than all the rest. */
static void put_floats(const struct pack_info *info, const struct block_read *in, float *out) {
    uint32_t elems = info->group_elems;
    for (uint32_t g = 0; g < Q8_BLOCK / elems; g++, out += elems) {
        const int8_t *q = in->q + (size_t)g * elems;
        float scale = in->scale[g];
        for (uint32_t i = 0; i < elems; i++) out[i] = scale * q[i];
        if (!info->has_min) continue; /* adding zero would lose the sign of -0 */
        float min = in->min[g];
        for (uint32_t i = 0; i < elems; i++) out[i] += min;
    }
}

void pack_read_row(const struct packed *p, uint32_t row, float *out) {
    CHECK(row < p->rows);
    const uint8_t *panel = pack_panel(p, 0, row / PANEL_ROWS);
    struct pack_info info = pack_info(p->type);
    uint32_t r = row % PANEL_ROWS;
    struct block_read in;
    if (info.layout == PACK_PLAIN) {
        read_plain_row(p, panel, r, out);
        return;
    }
    if (info.layout == PACK_F8) {
        read_f8_row(p, panel, r, out);
        return;
    }
    for (uint32_t b = 0; b < p->cols / Q8_BLOCK; b++, out += Q8_BLOCK) {
        get_block(p->type, &info, panel, b, r, &in);
        put_floats(&info, &in, out);
    }
}

/* ---- whole weights ---- */

struct pack_job {
    const struct weight *w;
    struct packed *p;
    size_t row_bytes;
};

static void put_row(const struct packed *p, const uint8_t *src, uint32_t r, uint8_t *panel) {
    if (layout_of(p->type) == PACK_PLAIN)
        put_plain_row(p, src, r, panel);
    else if (p->type == DTYPE_F8)
        put_f8_row(p, src, r, panel);
    else if (dtype_has_codes(p->type))
        put_coded_row(p, src, r, panel);
    else
        put_quantised_row(p, src, r, panel);
}

/* A panel of rows that a source makes, some columns at a time: a whole number of steps. */
static void put_made_panel(const struct packed *p, const struct row_source *source, uint32_t panel,
                           uint8_t *out) {
    enum { SOME = 8, BLOCK_BYTES_MAX = 36 };
    uint8_t room[PANEL_ROWS * SOME * BLOCK_BYTES_MAX];
    const struct dtype_info *d = dtype_info(p->type);
    struct pack_info info = pack_info(p->type);
    struct packed part = *p;
    struct row_piece piece = {.first_row = panel * PANEL_ROWS, .row_count = PANEL_ROWS};
    CHECK(d->block_elems == Q8_BLOCK);
    CHECK(d->block_bytes <= BLOCK_BYTES_MAX);
    CHECK(SOME * Q8_BLOCK % info.step_elems == 0);
    if (p->rows - piece.first_row < PANEL_ROWS) piece.row_count = p->rows - piece.first_row;
    for (; piece.first_block < p->cols / Q8_BLOCK; piece.first_block += SOME) {
        uint32_t left = p->cols / Q8_BLOCK - piece.first_block;
        piece.block_count = left < SOME ? left : SOME;
        source->read(source, &piece, room);
        part.cols = piece.block_count * Q8_BLOCK;
        size_t row_bytes = (size_t)piece.block_count * d->block_bytes;
        size_t step = piece.first_block * Q8_BLOCK / info.step_elems;
        for (uint32_t r = 0; r < piece.row_count; r++)
            put_row(&part, room + r * row_bytes, r, out + step * info.step_bytes);
    }
}

static void pack_share(void *ctx, uint32_t thread_idx, uint32_t thread_count) {
    const struct pack_job *job = ctx;
    struct packed *p = job->p;
    uint64_t panels = (uint64_t)p->panel_count * p->experts;
    uint64_t end = panels * (thread_idx + 1) / thread_count;
    for (uint64_t i = panels * thread_idx / thread_count; i < end; i++) {
        uint32_t expert = (uint32_t)(i / p->panel_count), panel = (uint32_t)(i % p->panel_count);
        if (job->w->source) {
            put_made_panel(p, weight_source(job->w, expert), panel, p->data + i * p->panel_bytes);
            continue;
        }
        for (uint32_t r = 0; r < PANEL_ROWS && panel * PANEL_ROWS + r < p->rows; r++) {
            size_t row = (size_t)panel * PANEL_ROWS + r;
            const uint8_t *src = weight_data(job->w, expert) + row * job->row_bytes;
            put_row(p, src, r, p->data + i * p->panel_bytes);
        }
    }
}

/* False if the sizes wrap. */
static bool set_sizes(struct packed *p) {
    struct pack_info info = pack_info(p->type);
    size_t steps = (p->cols + info.step_elems - 1) / info.step_elems;
    size_t panels;
    p->panel_count = (p->rows + PANEL_ROWS - 1) / PANEL_ROWS;
    return size_mul(steps, info.step_bytes, &p->panel_bytes) &&
           size_mul(p->panel_count, p->experts, &panels) &&
           size_mul(p->panel_bytes, panels, &p->bytes);
}

struct packed *pack_create(const struct weight *w, struct page_arena *arena) {
    CHECK(w->experts >= 1);
    struct packed *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->name = w->name;
    p->type = w->type;
    p->rows = w->rows;
    p->cols = w->cols;
    p->experts = w->experts;
    if (set_sizes(p)) p->data = page_arena_take(arena, p->bytes);
    if (!p->data) {
        mem_free(p);
        return NULL;
    }
    return p;
}

void pack_fill(struct packed *p, const struct weight *w, struct pool *pool) {
    struct pack_job job = {.w = w, .p = p};
    CHECK(dtype_bytes(w->type, w->cols, &job.row_bytes));
    pool_run(pool, pack_share, &job);
}

void pack_clear(struct packed *p) { memset(p->data, 0, p->bytes); }

void pack_free(struct packed *p) { mem_free(p); }
