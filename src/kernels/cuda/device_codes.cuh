/* kernels/cuda/device_codes.cuh - codes of quantised weights as the bytes that products multiply.
 *
 * A word of eight codes of 4 bits (layout.h) becomes two words of four bytes: one with codes of the
 * group's first 16, one with codes of its last 16.
 *
 *     CUDA_CODE_4          the bytes are the codes: a mask, a shift
 *     CUDA_CODE_4_SIGNED   the bytes are 16 times the numbers: a code goes into the high 4 bits of
 *                          a byte, so its sign bit is the byte's. Sums are divided by 16 when they
 *                          become floats.
 *     CUDA_CODE_4_PLACE    the bytes are the table's numbers. The table has 16 bytes, and prmt
 *                          chooses one of 8: one prmt reads each half of the table, a third takes
 *                          one of the two results by the highest bit of the code.
 *
 * Sums of a group are whole numbers and exact as floats: the largest is 16 * 8 * 127 * 32, half a
 * million. On tensor cores a sum begins as the bits of the float 1.5 * 2^23. So its bits are those
 * of that float plus the sum, and one subtraction makes a float of it; with the division by 16, one
 * fused multiply-add.
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
