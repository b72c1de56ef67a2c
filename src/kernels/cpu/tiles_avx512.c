/* kernels/cpu/tiles_avx512.c - see kernels/cpu/tiles.h for the contract. */
#include "kernels/cpu/tiles.h"

#include <immintrin.h>
#include <string.h>

#include "base/check.h"

enum {
    NIBBLE_BYTES = PANEL_ROWS * Q8_BLOCK / 2,
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
    STEP_BYTES = PANEL_ROWS * 4,
    NIBBLE_STEPS = NIBBLE_BYTES / STEP_BYTES,
    NUMBER_BYTES = PANEL_ROWS * 4,
    NUMBERS_MAX = 4, /* arrays of 16 scales or minima in a block */
    QUAD = 4,
};

bool tiles_take(enum dtype type) { return dtype_is_quantised(type); }

size_t tiles_row_bytes(uint32_t cols) {
    return (size_t)(cols / Q8_BLOCK) * (TILE_STEP + 2 * TILE_NUMBERS);
}

size_t tiles_open_bytes(uint32_t cols) {
    return (size_t)(cols / Q8_BLOCK) * (VALUE_BYTES + NUMBERS_MAX * NUMBER_BYTES);
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

/* 256 bytes of nibbles to 512 of signed bytes: low nibbles are the first 16 k. */
static void open_nibbles(const uint8_t *from, int offset, uint8_t *to) {
    const __m512i low = _mm512_set1_epi8(15), less = _mm512_set1_epi8((char)offset);
    for (int j = 0; j < NIBBLE_STEPS; j++) {
        __m512i w = _mm512_loadu_si512((const void *)(from + j * STEP_BYTES));
        __m512i first = _mm512_sub_epi8(_mm512_and_si512(w, low), less);
        __m512i second = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        _mm512_storeu_si512((void *)(to + j * STEP_BYTES), first);
        _mm512_storeu_si512((void *)(to + (NIBBLE_STEPS + j) * STEP_BYTES),
                            _mm512_sub_epi8(second, less));
    }
}

static void open_numbers(const uint8_t *from, uint32_t arrays, uint8_t *to) {
    for (uint32_t i = 0; i < arrays; i++) {
        const void *halves = from + (size_t)i * PANEL_ROWS * sizeof(uint16_t);
        __m512 numbers = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
        _mm512_storeu_ps((float *)(void *)(to + (size_t)i * NUMBER_BYTES), numbers);
    }
}

struct mm_open tiles_open(const struct packed *w, const uint8_t *panel, uint8_t *room) {
    struct pack_info info = pack_info(w->type);
    bool nibbles = info.layout == PACK_NIBBLES;
    uint32_t blocks = w->cols / Q8_BLOCK, value_bytes = nibbles ? NIBBLE_BYTES : VALUE_BYTES;
    uint32_t arrays = Q8_BLOCK / info.group_elems * (info.has_min ? 2 : 1);
    int offset = w->type == DTYPE_Q4_0 ? 8 : 0;
    struct mm_open open = {.values = panel,
                           .value_step = info.step_bytes,
                           .numbers = panel + value_bytes,
                           .number_step = info.step_bytes};
    if (nibbles) {
        for (uint32_t b = 0; b < blocks; b++)
            open_nibbles(panel + (size_t)b * info.step_bytes, offset,
                         room + (size_t)b * VALUE_BYTES);
        open.values = room;
        open.value_step = VALUE_BYTES;
        room += (size_t)blocks * VALUE_BYTES;
    }
    if (info.half_scales) {
        for (uint32_t b = 0; b < blocks; b++)
            open_numbers(open.numbers + (size_t)b * info.step_bytes, arrays,
                         room + (size_t)b * arrays * NUMBER_BYTES);
        open.numbers = room;
        open.number_step = (size_t)arrays * NUMBER_BYTES;
    }
    return open;
}
