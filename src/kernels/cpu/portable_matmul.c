/* kernels/cpu/portable_matmul.c - panels times a few rows of activations, in plain C.
 *
 * The inner loops run over the 16 rows of a panel with no dependence between them, the shape
 * that compilers turn into vectors of whatever width the processor has. fmaf rounds once
 * everywhere; where the processor has no such instruction the C library computes it, slowly.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels_portable.h"
#include "tensor/fp8.h"

enum {
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel */
    GROUPS_MAX = 2,
};

/* Sixteen f16 or f32 numbers as floats. */
static void load_numbers(const uint8_t *p, bool half, float out[PANEL_ROWS]) {
    uint16_t bits[PANEL_ROWS];
    if (!half) {
        memcpy(out, p, PANEL_ROWS * sizeof(float));
        return;
    }
    memcpy(bits, p, sizeof(bits));
    for (int r = 0; r < PANEL_ROWS; r++) out[r] = f16_to_f32(bits[r]);
}

static void nibble_sums(const uint8_t *p, const int8_t *q, int32_t start,
                        int32_t sums[PANEL_ROWS]) {
    for (int r = 0; r < PANEL_ROWS; r++) sums[r] = start;
    for (int j = 0; j < 4; j++, p += STEP_BYTES)
        for (int r = 0; r < PANEL_ROWS; r++)
            for (int c = 0; c < 4; c++) {
                int byte = p[4 * r + c];
                sums[r] += (byte & 15) * q[4 * j + c] + (byte >> 4) * q[16 + 4 * j + c];
            }
}

/* `steps` steps of 4 k. */
static void byte_sums(const uint8_t *p, const int8_t *q, uint32_t steps, int32_t sums[PANEL_ROWS]) {
    memset(sums, 0, PANEL_ROWS * sizeof(sums[0]));
    for (uint32_t j = 0; j < steps; j++, p += STEP_BYTES)
        for (int r = 0; r < PANEL_ROWS; r++)
            for (int c = 0; c < 4; c++) sums[r] += (int8_t)p[4 * r + c] * q[4 * j + (uint32_t)c];
}

/* The scales and minima of one group of a block. */
struct numbers {
    float scale[PANEL_ROWS], min[PANEL_ROWS];
};

static void add_group(const int32_t sums[PANEL_ROWS], const struct numbers *n, bool has_min,
                      float row_scale, float dsum, float acc[PANEL_ROWS]) {
    for (int r = 0; r < PANEL_ROWS; r++)
        acc[r] = fmaf((float)sums[r], n->scale[r] * row_scale, acc[r]);
    if (!has_min) return;
    for (int r = 0; r < PANEL_ROWS; r++) acc[r] = fmaf(n->min[r], dsum, acc[r]);
}

/* Sixteen zero points as minima. */
static void load_zeros(const uint8_t *p, const float scale[PANEL_ROWS], float min[PANEL_ROWS]) {
    for (int r = 0; r < PANEL_ROWS; r++) min[r] = -(scale[r] * (float)(int8_t)p[r]);
}

static void block_numbers(const struct pack_info *info, const uint8_t *p,
                          struct numbers n[GROUPS_MAX]) {
    uint32_t groups = Q8_BLOCK / info->group_elems;
    size_t bytes = PANEL_ROWS * (info->half_scales ? 2 : 4);
    for (uint32_t g = 0; g < groups; g++) {
        load_numbers(p + g * bytes, info->half_scales, n[g].scale);
        if (info->has_zero)
            load_zeros(p + bytes, n[g].scale, n[g].min);
        else if (info->has_min)
            load_numbers(p + (groups + g) * bytes, info->half_scales, n[g].min);
    }
}

static void nibble_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                         uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    const struct pack_info info = pack_info(w->type);
    const int offset = w->type == DTYPE_Q4_0 ? 8 : 0;
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++, panel += info.step_bytes) {
        struct numbers n[GROUPS_MAX];
        block_numbers(&info, panel + PACK_NIBBLE_BYTES, n);
        for (uint32_t m = 0; m < count; m++) {
            const struct q8_row *x = &rows[m].q8;
            int32_t sums[PANEL_ROWS];
            nibble_sums(panel, x->q + (size_t)b * Q8_BLOCK, -offset * x->isum[b], sums);
            add_group(sums, &n[0], info.has_min, x->scale[b], x->dsum[b], out[m]);
        }
    }
}

/* The products of block b, whose values lie at `values` as PACK_BYTES lays them. */
static void add_byte_block(const struct pack_info *info, const uint8_t *values,
                           const struct numbers n[GROUPS_MAX], uint32_t b,
                           const struct mm_row *rows, uint32_t count,
                           float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t groups = Q8_BLOCK / info->group_elems, steps = info->group_elems / 4;
    for (uint32_t i = 0; i < count * groups; i++) {
        const struct q8_row *x = &rows[i / groups].q8;
        uint32_t g = i % groups;
        const int8_t *q = x->q + (size_t)b * Q8_BLOCK + (size_t)g * info->group_elems;
        float dsum = groups == 1 ? x->dsum[b] : x->dsum16[2 * b + g];
        int32_t sums[PANEL_ROWS];
        byte_sums(values + (size_t)g * steps * STEP_BYTES, q, steps, sums);
        add_group(sums, &n[g], info->has_min, x->scale[b], dsum, out[i / groups]);
    }
}

static void byte_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                       uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    const struct pack_info info = pack_info(w->type);
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++, panel += info.step_bytes) {
        struct numbers n[GROUPS_MAX];
        block_numbers(&info, panel + VALUE_BYTES, n);
        add_byte_block(&info, panel, n, b, rows, count, out);
    }
}

/* The codes of a block become values, in the order of PACK_BYTES. */
static void open_codes(const uint8_t *p, uint32_t high_bits, const int8_t *meaning,
                       uint8_t values[VALUE_BYTES]) {
    const uint32_t half = VALUE_BYTES / 2, steps = high_bits ? 8 / high_bits : 1;
    const uint8_t *high = p + PACK_NIBBLE_BYTES;
    for (uint32_t i = 0; i < half; i++) {
        values[i] = p[i] & 15;
        values[half + i] = p[i] >> 4;
    }
    for (uint32_t i = 0; high_bits && i < VALUE_BYTES; i++) {
        uint32_t step = i / STEP_BYTES, shift = step % steps * high_bits;
        uint32_t bits = high[step / steps * STEP_BYTES + i % STEP_BYTES] >> shift;
        values[i] = (uint8_t)(values[i] | (bits & ((1u << high_bits) - 1)) << 4);
    }
    for (uint32_t i = 0; i < VALUE_BYTES; i++) values[i] = (uint8_t)meaning[values[i]];
}

/* Codes of scales or minima times what they count. */
static void open_numbers(const uint8_t *codes, const float unit[PANEL_ROWS],
                         float out[PANEL_ROWS]) {
    for (int r = 0; r < PANEL_ROWS; r++) out[r] = unit[r] * (float)(int8_t)codes[r];
}

/* The numbers of block b of a superblock. */
static void super_numbers(const struct pack_info *info, const uint8_t *super, uint32_t b,
                          struct numbers n[GROUPS_MAX]) {
    const uint32_t groups = Q8_BLOCK / info->group_elems;
    const struct pack_super s = pack_super(info->has_min, groups, info->high_bits);
    const uint8_t *codes = super + s.codes + (size_t)b * s.code_step;
    float d[PANEL_ROWS], dmin[PANEL_ROWS];
    load_numbers(super, true, d);
    if (info->has_min) load_numbers(super + PANEL_ROWS * sizeof(uint16_t), true, dmin);
    for (uint32_t g = 0; g < groups; g++) {
        open_numbers(codes + g * PANEL_ROWS, d, n[g].scale);
        if (info->has_min) open_numbers(codes + (groups + g) * PANEL_ROWS, dmin, n[g].min);
    }
}

static void super_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                        uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    const struct pack_info info = pack_info(w->type);
    const struct pack_super s =
        pack_super(info.has_min, Q8_BLOCK / info.group_elems, info.high_bits);
    const int8_t *meaning = dtype_code_values(w->type);
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++) {
        uint32_t i = b % PACK_SUPER_BLOCKS;
        uint8_t values[VALUE_BYTES];
        struct numbers n[GROUPS_MAX];
        if (b > 0 && i == 0) panel += s.bytes;
        super_numbers(&info, panel, i, n);
        open_codes(panel + s.values + (size_t)i * s.value_step, info.high_bits, meaning, values);
        add_byte_block(&info, values, n, b, rows, count, out);
    }
}

/* Nibbles that are places in a table. */
static void table_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                        uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    const struct pack_info info = pack_info(w->type);
    const int8_t *meaning = dtype_code_values(w->type);
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t b = 0; b < w->cols / Q8_BLOCK; b++, panel += info.step_bytes) {
        uint8_t values[VALUE_BYTES];
        struct numbers n[GROUPS_MAX];
        block_numbers(&info, panel + PACK_NIBBLE_BYTES, n);
        open_codes(panel, 0, meaning, values);
        add_byte_block(&info, values, n, b, rows, count, out);
    }
}

static void load_plain(const uint8_t *p, enum dtype type, float out[PANEL_ROWS]) {
    if (type != DTYPE_BF16) {
        load_numbers(p, type == DTYPE_F16, out);
        return;
    }
    uint16_t bits[PANEL_ROWS];
    memcpy(bits, p, sizeof(bits));
    for (int r = 0; r < PANEL_ROWS; r++) out[r] = bf16_to_f32(bits[r]);
}

static void plain_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                        uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t step = pack_info(w->type).step_bytes;
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t k = 0; k < w->cols; k++, panel += step) {
        float values[PANEL_ROWS];
        load_plain(panel, w->type, values);
        for (uint32_t m = 0; m < count; m++)
            for (int r = 0; r < PANEL_ROWS; r++)
                out[m][r] = fmaf(values[r], rows[m].f32[k], out[m][r]);
    }
}

/* Each value is rounded once, as dtype_dequant does, before it is multiplied. */
static void f8_panel(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                     uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    float scale[PANEL_ROWS] = {0}, values[PANEL_ROWS];
    memset(out, 0, count * sizeof(out[0]));
    for (uint32_t k = 0; k < w->cols; k++, panel += PANEL_ROWS) {
        if (k % F8_RUN == 0) {
            memcpy(scale, panel, sizeof(scale));
            panel += PACK_F8_SCALE_BYTES;
        }
        for (int r = 0; r < PANEL_ROWS; r++) values[r] = fp8_to_f32(panel[r]) * scale[r];
        for (uint32_t m = 0; m < count; m++)
            for (int r = 0; r < PANEL_ROWS; r++)
                out[m][r] = fmaf(values[r], rows[m].f32[k], out[m][r]);
    }
}

mm_panel_fn *const portable_panels[DTYPE_COUNT] = {
    [DTYPE_F32] = plain_panel,   [DTYPE_F16] = plain_panel,    [DTYPE_BF16] = plain_panel,
    [DTYPE_Q4_0] = nibble_panel, [DTYPE_Q4_1] = nibble_panel,  [DTYPE_Q4_K] = super_panel,
    [DTYPE_Q5_0] = byte_panel,   [DTYPE_Q5_1] = byte_panel,    [DTYPE_Q5_K] = super_panel,
    [DTYPE_Q8_0] = byte_panel,   [DTYPE_IQ4_NL] = table_panel, [DTYPE_IQ4_XS] = super_panel,
    [DTYPE_Q6_K] = super_panel,  [DTYPE_Q3_K] = byte_panel,    [DTYPE_Q2_K] = byte_panel,
    [DTYPE_INT4] = nibble_panel, [DTYPE_INT8] = byte_panel,    [DTYPE_INT8_Z] = byte_panel,
    [DTYPE_NF4] = table_panel,   [DTYPE_FP4] = table_panel,    [DTYPE_F8] = f8_panel,
};
