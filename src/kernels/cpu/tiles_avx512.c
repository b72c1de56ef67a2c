/* kernels/cpu/tiles_avx512.c - see kernels/cpu/tiles.h for the contract. */
#include "kernels/cpu/tiles.h"

#include <immintrin.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/kernels_avx512.h"

enum {
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4,
    NUMBER_BYTES = PANEL_ROWS * 4,
    QUAD = 4,
};

bool tiles_take(enum dtype type) { return dtype_has_integers(type); }

size_t tiles_row_bytes(uint32_t cols) {
    return (size_t)(cols / Q8_BLOCK) * (TILE_STEP + 2 * TILE_NUMBERS);
}

/* Numbers [i, i + 4) of rows m .. m + 3 become numbers [m, m + 4) of the steps i .. i + 3. */
static void turn_quad(const float *const *from, uint32_t m, uint32_t i, size_t step, uint8_t *to) {
    __m128 a = _mm_loadu_ps(from[m] + i), b = _mm_loadu_ps(from[m + 1] + i);
    __m128 c = _mm_loadu_ps(from[m + 2] + i), d = _mm_loadu_ps(from[m + 3] + i);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    uint8_t *at = to + i * step + m * sizeof(float);
    _mm_storeu_ps((float *)(void *)at, a);
    _mm_storeu_ps((float *)(void *)(at + step), b);
    _mm_storeu_ps((float *)(void *)(at + 2 * step), c);
    _mm_storeu_ps((float *)(void *)(at + 3 * step), d);
}

/* `count` numbers of each of 16 rows: number i of row m goes to to[i * step], place m. A row
 * that is missing is NULL. */
static void turn(const float *const *from, uint32_t count, size_t step, uint8_t *to) {
    for (uint32_t m = 0; m < MM_WIDE; m += QUAD) {
        bool whole = from[m] && from[m + 1] && from[m + 2] && from[m + 3];
        uint32_t quads = whole ? count / QUAD * QUAD : 0;
        for (uint32_t i = 0; i < quads; i += QUAD) turn_quad(from, m, i, step, to);
        for (uint32_t i = quads; i < count; i++)
            for (uint32_t r = m; r < m + QUAD; r++) {
                float value = from[r] ? from[r][i] : 0.0f;
                memcpy(to + i * step + r * sizeof(float), &value, sizeof(value));
            }
    }
}

static void gather_values(const struct mm_row *rows, uint32_t count, uint32_t blocks,
                          uint8_t *tile) {
    for (uint32_t m = 0; m < MM_WIDE; m++) {
        uint8_t *to = tile + (size_t)m * Q8_BLOCK;
        for (uint32_t b = 0; b < blocks; b++, to += TILE_STEP) {
            __m256i q = _mm256_setzero_si256();
            if (m < count)
                q = _mm256_loadu_si256(
                    (const __m256i *)(const void *)(rows[m].q8.q + (size_t)b * Q8_BLOCK));
            _mm256_storeu_si256((__m256i *)(void *)to, q);
        }
    }
}

void tiles_gather(const struct mm_row *rows, uint32_t count, uint32_t cols, bool halves,
                  uint8_t *tile) {
    const float *scale[MM_WIDE] = {NULL}, *dsum[MM_WIDE] = {NULL}, *dsum16[MM_WIDE] = {NULL};
    uint32_t blocks = cols / Q8_BLOCK;
    DCHECK(count <= MM_WIDE);
    for (uint32_t m = 0; m < count; m++) {
        scale[m] = rows[m].q8.scale;
        dsum[m] = rows[m].q8.dsum;
        dsum16[m] = rows[m].q8.dsum16;
    }
    gather_values(rows, count, blocks, tile);
    turn(scale, blocks, TILE_STEP, tile + TILE_Q_BYTES);
    turn(dsum, blocks, TILE_STEP, tile + TILE_Q_BYTES + TILE_NUMBERS);
    if (halves) turn(dsum16, 2 * blocks, TILE_NUMBERS, tile + (size_t)blocks * TILE_STEP);
}

/* What is done to the codes of a format: constants, but for the table. */
struct opening {
    uint32_t high_bits;
    bool table;
    __m512i less, values; /* what codes hold more than weights; what they stand for */
};

/* The codes of a block at `from` become 512 signed bytes. */
static inline __attribute__((always_inline)) void
open_codes(const uint8_t *from, uint32_t high_bits, const struct opening *o, uint8_t *to) {
#pragma GCC unroll 8
    for (int i = 0; i < Q8_BLOCK / QUAD; i++) {
        __m512i w = codes_step(from, i, high_bits);
        w = o->table ? _mm512_shuffle_epi8(o->values, w) : _mm512_sub_epi8(w, o->less);
        _mm512_storeu_si512((void *)(to + i * STEP_BYTES), w);
    }
}

static void open_values(const uint8_t *from, const struct opening *o, uint8_t *to) {
    if (o->high_bits == 2)
        open_codes(from, 2, o, to);
    else if (o->high_bits == 1)
        open_codes(from, 1, o, to);
    else
        open_codes(from, 0, o, to);
}

static struct opening opening_of(enum dtype type) {
    int less = type == DTYPE_Q4_0 ? 8 : type == DTYPE_Q6_K ? 32 : 0;
    struct opening o = {.high_bits = pack_info(type).high_bits,
                        .table = type == DTYPE_IQ4_NL || type == DTYPE_IQ4_XS ||
                                 type == DTYPE_NF4 || type == DTYPE_FP4,
                        .less = _mm512_set1_epi8((char)less)};
    if (o.table) o.values = codes_table(type);
    return o;
}

static void put_floats(__m512 numbers, uint8_t *to, uint32_t i) {
    _mm512_storeu_ps((float *)(void *)(to + (size_t)i * NUMBER_BYTES), numbers);
}

/* A superblock becomes blocks of PACK_BYTES with f32 numbers. */
static void open_super(const uint8_t *super, const struct pack_info *info, const struct opening *o,
                       uint8_t *to) {
    uint32_t groups = Q8_BLOCK / info->group_elems, arrays = groups * (info->has_min ? 2 : 1);
    struct pack_super s = pack_super(info->has_min, groups, info->high_bits);
    for (uint32_t b = 0; b < PACK_SUPER_BLOCKS; b++) {
        const uint8_t *codes = super + s.codes + (size_t)b * s.code_step;
        open_values(super + s.values + (size_t)b * s.value_step, o, to);
        to += VALUE_BYTES;
        for (uint32_t i = 0; i < arrays; i++) {
            const uint8_t *units = super + (i < groups ? 0 : PANEL_ROWS * sizeof(uint16_t));
            put_floats(codes_numbers(codes + (size_t)i * PANEL_ROWS, units), to, i);
        }
        to += (size_t)arrays * NUMBER_BYTES;
    }
}

/* A block of nibbles likewise. */
static void open_nibbles(const uint8_t *block, const struct pack_info *info,
                         const struct opening *o, uint8_t *to) {
    const uint8_t *numbers = block + PACK_NIBBLE_BYTES;
    open_values(block, o, to);
    __m512 scales = info->half_scales ? codes_halves(numbers)
                                      : _mm512_loadu_ps((const float *)(const void *)numbers);
    put_floats(scales, to + VALUE_BYTES, 0);
    if (!info->has_min) return;
    numbers += (size_t)PANEL_ROWS * 2; /* formats of f32 scales have no minima */
    put_floats(info->has_zero ? codes_minima(numbers, scales) : codes_halves(numbers),
               to + VALUE_BYTES, 1);
}

void avx512_open(const struct packed *w, const uint8_t *panel, uint8_t *room) {
    struct pack_info info = pack_info(w->type);
    struct opening o = opening_of(w->type);
    uint32_t arrays = Q8_BLOCK / info.group_elems * (info.has_min ? 2 : 1);
    size_t to_step = (size_t)(VALUE_BYTES + arrays * NUMBER_BYTES) * (info.step_elems / Q8_BLOCK);
    for (uint32_t k = 0; k < w->cols; k += info.step_elems) {
        if (info.layout == PACK_SUPER)
            open_super(panel, &info, &o, room);
        else
            open_nibbles(panel, &info, &o, room);
        panel += info.step_bytes;
        room += to_step;
    }
}

/* Only the numbers of a panel of bytes are opened, where they are f16. */
static struct mm_open open_bytes(const struct packed *w, const uint8_t *panel, uint8_t *room) {
    struct pack_info info = pack_info(w->type);
    uint32_t blocks = w->cols / Q8_BLOCK;
    uint32_t arrays = Q8_BLOCK / info.group_elems * (info.has_min ? 2 : 1);
    struct mm_open open = {panel, panel + VALUE_BYTES, info.step_bytes, info.step_bytes};
    if (!info.half_scales) return open;
    for (uint32_t b = 0; b < blocks; b++)
        for (uint32_t i = 0; i < arrays; i++)
            put_floats(codes_halves(open.numbers + (size_t)b * info.step_bytes +
                                    (size_t)i * PANEL_ROWS * 2),
                       room, b * arrays + i);
    open.numbers = room;
    open.number_step = (size_t)arrays * NUMBER_BYTES;
    return open;
}

struct mm_open tiles_open(const struct packed *w, const uint8_t *panel, uint8_t *room) {
    struct pack_info info = pack_info(w->type);
    if (info.layout == PACK_BYTES) return open_bytes(w, panel, room);
    uint32_t arrays = Q8_BLOCK / info.group_elems * (info.has_min ? 2 : 1);
    size_t step = (size_t)VALUE_BYTES + (size_t)arrays * NUMBER_BYTES;
    avx512_open(w, panel, room);
    return (struct mm_open){room, room + VALUE_BYTES, step, step};
}
