/* kernels/cuda/device_codes.cuh - codes of quantised weights as the bytes that products multiply.
 *
 * A word of eight codes of 4 bits (layout.h) becomes two words of four bytes: of the group's first
 * 16 codes, and of its last 16.
 *
 *     CUDA_CODE_4          the codes: a mask, a shift
 *     CUDA_CODE_4_SIGNED   16 times the numbers: a code goes into the high half of a byte, whose
 *                          sign is then its own. Sums that become floats are divided by 16.
 *     CUDA_CODE_4_PLACE    prmt names one of 8 bytes: one looks into each half of the table, and a
 *                          third chooses by the place's highest bit
 *
 * Sums of a group stay whole numbers, exact as floats: the largest is 16 * 8 * 127 * 32, half a
 * million. On tensor cores they begin as the bits of 1.5 * 2^23, so that a subtraction makes a
 * float of them, or with the division a fused multiply-add.
 */
#ifndef KERNELS_CUDA_DEVICE_CODES_CUH
#define KERNELS_CUDA_DEVICE_CODES_CUH

#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/operands.h"

static constexpr int32_t SUM_BEGINS = 0x4B400000; /* the bits of the next number */
static constexpr float SUM_BEGINS_AT = 12582912.0f, SIGNED_CODES_DIVISOR = 16.0f;

/* cuda_code_bits where the compiler knows the code. */
template <enum cuda_code CODE> static constexpr uint32_t code_bits = CODE == CUDA_CODE_8 ? 8 : 4;

/* ---- four codes of eight ---- */

/* The numbers at four places, the digits of `places` below 8 and the digits of `halves` of the
 * table. */
static __device__ inline uint32_t numbers_at(const uint32_t table[4], uint32_t places,
                                             uint32_t halves) {
    uint32_t first = pick_bytes(table[0], table[1], places);
    uint32_t second = pick_bytes(table[2], table[3], places);
    return pick_bytes(first, second, halves);
}

static __device__ inline uint32_t places_of(uint32_t eight) { return eight & 0x77777777u; }
/* Digit i is i, or i + 4 where the place lies in the table's second half. */
static __device__ inline uint32_t halves_of(uint32_t eight) {
    return (eight >> 1 & 0x44444444u) | 0x32103210u;
}

/* The upper four of eight digits. A shift would be moved before the masks, which are then two. */
static __device__ inline uint32_t upper_digits(uint32_t eight) {
    return pick_bytes(eight, 0, 0x4432);
}

/* Of a group's first 16 codes. */
template <enum cuda_code CODE>
static __device__ inline uint32_t first_codes(uint32_t eight, const uint32_t table[4]) {
    if (CODE == CUDA_CODE_4_PLACE) return numbers_at(table, places_of(eight), halves_of(eight));
    return CODE == CUDA_CODE_4_SIGNED ? eight << 4 & 0xf0f0f0f0u : eight & 0x0f0f0f0fu;
}

/* Of its last 16. */
template <enum cuda_code CODE>
static __device__ inline uint32_t last_codes(uint32_t eight, const uint32_t table[4]) {
    if (CODE == CUDA_CODE_4_PLACE)
        return numbers_at(table, upper_digits(places_of(eight)), upper_digits(halves_of(eight)));
    return CODE == CUDA_CODE_4_SIGNED ? eight & 0xf0f0f0f0u : eight >> 4 & 0x0f0f0f0fu;
}

template <enum cuda_code CODE>
static __device__ inline int4 first_codes(int4 w, const uint32_t table[4]) {
    return {
        (int)first_codes<CODE>((uint32_t)w.x, table), (int)first_codes<CODE>((uint32_t)w.y, table),
        (int)first_codes<CODE>((uint32_t)w.z, table), (int)first_codes<CODE>((uint32_t)w.w, table)};
}

template <enum cuda_code CODE>
static __device__ inline int4 last_codes(int4 w, const uint32_t table[4]) {
    return {
        (int)last_codes<CODE>((uint32_t)w.x, table), (int)last_codes<CODE>((uint32_t)w.y, table),
        (int)last_codes<CODE>((uint32_t)w.z, table), (int)last_codes<CODE>((uint32_t)w.w, table)};
}

/* ---- sums of a group ---- */

/* A sum of products with such bytes. */
template <enum cuda_code CODE> static __device__ inline float float_of_sum(int32_t sum) {
    return CODE == CUDA_CODE_4_SIGNED ? (float)sum * (1.0f / SIGNED_CODES_DIVISOR) : (float)sum;
}

/* The same of one that began as SUM_BEGINS. */
template <enum cuda_code CODE> static __device__ inline float float_of_begun(int32_t sum) {
    float begun = __int_as_float(sum);
    if (CODE != CUDA_CODE_4_SIGNED) return begun - SUM_BEGINS_AT;
    return fmaf(begun, 1.0f / SIGNED_CODES_DIVISOR, -SUM_BEGINS_AT / SIGNED_CODES_DIVISOR);
}

#endif
