/* kernels/cpu/kv_range.h - what a key or a value is stored with beside its codes
 * (graph/kv_space.h): of KV_I8 a scale in f16, rounded up; of KV_I4 a unit, and for each group a
 * step and an offset. The definition, which every table calls.
 *
 * The file that includes it includes <math.h> before.
 * Thread: any. */
#ifndef KERNELS_CPU_KV_RANGE_H
#define KERNELS_CPU_KV_RANGE_H

#include <stdint.h>

#include "base/bits.h"
#include "tensor/dtype.h"

/* For x >= 0; at most the largest f16. Positive halves are in the order of their bits. */
static inline uint16_t half_not_below(float x) {
    if (x >= F16_MAX) return f16_from_f32(F16_MAX);
    uint16_t half = f16_from_f32(x);
    return f16_to_f32(half) < x ? (uint16_t)(half + 1) : half;
}

/* KV_I4 (graph/kv_space.h). A unit's byte is the top of its float: a step of one is an eighth of a
 * power of two. */
enum { INT4_UNIT_SHIFT = 20, INT4_STEPS = 16, INT4_OFFSET_LEAST = -8, INT4_OFFSET_MOST = 7 };
static const uint32_t int4_unit_first = (uint32_t)104 << 23; /* the bits of unit 0 */
#define INT4_NUMBER_MAX 65504.0f

static inline float int4_unit(uint8_t code) {
    return float_of_bits(int4_unit_first + ((uint32_t)code << INT4_UNIT_SHIFT));
}

/* The least unit that is not below x, or the largest. */
static inline uint8_t int4_unit_above(float x) {
    if (!(x > int4_unit(0))) return 0;
    if (x > int4_unit(UINT8_MAX)) return UINT8_MAX;
    uint32_t bits = bits_of_float(x) - int4_unit_first;
    return (uint8_t)((bits + ((1U << INT4_UNIT_SHIFT) - 1)) >> INT4_UNIT_SHIFT);
}

/* The least size of a step with which numbers from lo to hi have codes. */
static inline float int4_reach(float lo, float hi) {
    float reach = (hi - lo) / 30.0f, above = hi / 22.0f, below = -lo / 23.0f;
    if (above > reach) reach = above;
    return below > reach ? below : reach;
}

/* A number that is kept: a NaN becomes 0. */
static inline float int4_limited(float x) {
    if (x > INT4_NUMBER_MAX) return INT4_NUMBER_MAX;
    if (x < -INT4_NUMBER_MAX) return -INT4_NUMBER_MAX;
    return x == x ? x : 0.0f;
}

/* A group's number with code c is unit * step * (2 c - 16 - offset). */
struct int4_group {
    int step, offset;
};
static inline uint8_t int4_group_byte(struct int4_group g) {
    return (uint8_t)((g.step - 1) | (g.offset - INT4_OFFSET_LEAST) << 4);
}
static inline struct int4_group int4_group_of(uint8_t byte) {
    return (struct int4_group){(byte & 15) + 1, (byte >> 4) + INT4_OFFSET_LEAST};
}

/* The largest step that a group tries, from what its numbers reach; and the offset in the middle of
 * those it tries, from its numbers' middle over unit * step. */
static inline int int4_largest_step(float reach, float unit) {
    float steps = ceilf(reach / unit);
    if (steps < 1.0f) return 1;
    return steps < (float)INT4_STEPS ? (int)steps : INT4_STEPS;
}
static inline int int4_middle_offset(float middle) {
    float offset = rintf(-middle - 1.0f);
    if (offset < (float)INT4_OFFSET_LEAST) return INT4_OFFSET_LEAST;
    return offset < (float)INT4_OFFSET_MOST ? (int)offset : INT4_OFFSET_MOST;
}
static inline int int4_offset_within(int offset) {
    if (offset < INT4_OFFSET_LEAST) return INT4_OFFSET_LEAST;
    return offset < INT4_OFFSET_MOST ? offset : INT4_OFFSET_MOST;
}

/* The code of x / (unit * step). */
static inline float int4_code(float x, int offset) {
    float c = fmaf(x, 0.5f, 8.0f + 0.5f * (float)offset);
    c = c > 0.0f ? c : 0.0f;
    return rintf(c < 15.0f ? c : 15.0f);
}

/* How far x / (unit * step) is from what its code c stands for. */
static inline float int4_error(float x, float c, int offset) {
    return fmaf(-2.0f, c, x + (float)(16 + offset));
}

#endif
