/* base/bits.h - floats and their bits. Thread: any. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdint.h>

/* Always inlined: callers are compiled for several processors, and their loops become vectors. */
#define BITS_INLINE static inline __attribute__((always_inline))

BITS_INLINE uint32_t bits_of_float(float x) {
    union {
        float number;
        uint32_t bits;
    } u = {.number = x};
    return u.bits;
}

BITS_INLINE float float_of_bits(uint32_t bits) {
    union {
        uint32_t bits;
        float number;
    } u = {.bits = bits};
    return u.number;
}

#endif
