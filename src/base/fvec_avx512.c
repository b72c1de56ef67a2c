/* base/fvec_avx512.c - the loops of base/fvec.h for AVX-512, which can push numbers together and
 * turn floats into 64-bit whole numbers. */
#include <immintrin.h>

#include "base/fvec_int.h"

/* A chunk's weights go through the nearest cache, so that the loop that makes them works on floats
 * alone. The conversion rounds half to even. */
static uint64_t sum_whole(const float *restrict x, size_t chunks, float top, float scale,
                          uint64_t *restrict sums) {
    enum { WIDTH = 8 };
    float steps[FVEC_CHUNK];
    uint64_t all = 0;
    for (size_t c = 0; c < chunks; c++, x += FVEC_CHUNK) {
        __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0;
        for (int i = 0; i < FVEC_CHUNK; i++) steps[i] = fv_steps(x[i], top, scale);
        for (int i = 0; i < FVEC_CHUNK; i += 2 * WIDTH) {
            __m512i low = _mm512_cvtps_epi64(_mm256_loadu_ps(steps + i));
            __m512i high = _mm512_cvtps_epi64(_mm256_loadu_ps(steps + i + WIDTH));
            sum0 = _mm512_add_epi64(sum0, low);
            sum1 = _mm512_add_epi64(sum1, high);
        }
        sums[c] = (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(sum0, sum1));
        all += sums[c];
    }
    return all;
}

/* Whole registers are stored; what lies behind the packed ones is written over by the next. */
static size_t take_packed(const float *x, size_t chunks, float floor, uint32_t *restrict places,
                          float *restrict kept) {
    enum { WIDTH = 16 };
    const __m512 least = _mm512_set1_ps(floor);
    __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t count = 0;
    for (size_t i = 0; i < chunks * FVEC_CHUNK; i += WIDTH) {
        __m512 some = _mm512_loadu_ps(x + i);
        __mmask16 wanted = _mm512_cmp_ps_mask(some, least, _CMP_GE_OQ);
        if (wanted) {
            _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(wanted, place));
            _mm512_storeu_ps(kept + count, _mm512_maskz_compress_ps(wanted, some));
            count += (size_t)__builtin_popcount(wanted);
        }
        place = _mm512_add_epi32(place, _mm512_set1_epi32(WIDTH));
    }
    return count;
}

extern const struct fvec fvec_avx512;
const struct fvec fvec_avx512 = FV_TABLE("avx512", sum_whole, take_packed);
