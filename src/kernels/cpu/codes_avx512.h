/* kernels/cpu/codes_avx512.h - codes of packed weights (PACK_NIBBLES, PACK_SUPER) in vectors of
 * 16 rows x 4 k, and their numbers; for the products and for opening panels. */
#ifndef KERNELS_CPU_CODES_AVX512_H
#define KERNELS_CPU_CODES_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/pack.h"

#define CODES_INLINE static inline __attribute__((always_inline))

/* Bits move left by `by`, or right; what crosses a byte is masked away later. */
CODES_INLINE __m512i codes_move(__m512i v, const int by) {
    if (by == 0) return v;
    return by > 0 ? _mm512_slli_epi16(v, (unsigned)by) : _mm512_srli_epi16(v, (unsigned)-by);
}

/* Step i of 8 of a block whose nibbles lie at p, with the high bits behind them. */
CODES_INLINE __m512i codes_step(const uint8_t *p, const int i, const uint32_t high_bits) {
    enum { STEP = PANEL_ROWS * 4, OR_OF_AND = 0xF8 };
    __m512i w = codes_move(_mm512_loadu_si512((const void *)(p + i % 4 * STEP)), i < 4 ? 0 : -4);
    w = _mm512_and_si512(w, _mm512_set1_epi8(15));
    if (high_bits == 0) return w;
    const int steps = high_bits == 1 ? 8 : 4, by = 4 - i % steps * (int)high_bits;
    const uint8_t *high = p + PACK_NIBBLE_BYTES + i / steps * PACK_HIGH_BYTES;
    __m512i moved = codes_move(_mm512_loadu_si512((const void *)high), by);
    const __m512i mask = _mm512_set1_epi8(high_bits == 1 ? 0x10 : 0x30);
    return _mm512_ternarylogic_epi32(w, moved, mask, OR_OF_AND);
}

/* What the codes of a format with a table stand for, four times. */
CODES_INLINE __m512i codes_table(enum dtype type) {
    const void *values = dtype_code_values(type);
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)values));
}

CODES_INLINE __m512 codes_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Sixteen scales or minima: their codes times d or -dmin. */
CODES_INLINE __m512 codes_numbers(const uint8_t *codes, const uint8_t *units) {
    __m128i code = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m512 number = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(code));
    return _mm512_mul_ps(codes_halves(units), number);
}

/* Sixteen minima: zero points, int8, times scales with the sign turned. */
CODES_INLINE __m512 codes_minima(const uint8_t *zeros, __m512 scales) {
    __m128i zero = _mm_loadu_si128((const __m128i *)(const void *)zeros);
    __m512 turned = _mm512_xor_ps(scales, _mm512_set1_ps(-0.0f));
    return _mm512_mul_ps(turned, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(zero)));
}

#endif
