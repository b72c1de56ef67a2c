/* base/size.h - arithmetic on sizes that reports overflow.
 *
 * Whatever multiplies or adds numbers that came from a file or a client does it here. Each
 * returns false, leaving *out alone, when the true result does not fit.
 */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* The next multiple of `step` (a power of two) that is at least `a`. */
static inline bool size_round_up(size_t a, size_t step, size_t *out) {
    size_t r;
    if (!size_add(a, step - 1, &r)) return false;
    *out = r & ~(step - 1);
    return true;
}

#endif
