/* tests/unit/kernels/cpu/seal.h - making a changed head of an image whole again.
 *
 * With its checksum right, it gets as far as the checks behind that. Written from the words of
 * kernels/cpu/image.h rather than with its code.
 */
#ifndef TESTS_UNIT_KERNELS_CPU_SEAL_H
#define TESTS_UNIT_KERNELS_CPU_SEAL_H

#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

static inline void seal(uint8_t *head, size_t len) {
    enum { AT = 72, BEHIND = 80 };
    if (len < BEHIND) return;
    uint64_t sum = XXH3_64bits_withSeed(head + BEHIND, len - BEHIND, XXH3_64bits(head, AT));
    for (uint32_t i = 0; i < 8; i++) head[AT + i] = (uint8_t)(sum >> 8 * i);
}

#endif
