/* tests/gpu/emulate/kernels/cuda/device_mma.cuh - src/kernels/cuda/device_mma.cuh in plain C++.
 *
 * Copies arrive at once. A product's 16 terms are added exactly, then to the
 * accumulator with one rounding: near the tensor cores' bits, not equal to them. */
#ifndef KERNELS_CUDA_DEVICE_MMA_CUH
#define KERNELS_CUDA_DEVICE_MMA_CUH

#include "cuda_bf16.h"
#include "cuda_fp16.h"

static inline uint8_t *emu_shared_at(uint32_t offset) {
    return (uint8_t *)emu_dynamic_shared() + offset;
}
static inline uint32_t shared_address(const void *p) {
    return (uint32_t)((const uint8_t *)p - (const uint8_t *)emu_dynamic_shared());
}
static inline void copy_16(uint32_t to, const void *from, bool is_inside) {
    if (is_inside)
        memcpy(emu_shared_at(to), from, 16);
    else
        memset(emu_shared_at(to), 0, 16);
}
static inline void copy_16_cached(uint32_t to, const void *from, bool is_inside) {
    copy_16(to, from, is_inside);
}
static inline void copy_4(uint32_t to, const void *from, bool is_inside) {
    if (is_inside)
        memcpy(emu_shared_at(to), from, 4);
    else
        memset(emu_shared_at(to), 0, 4);
}
static inline void copies_commit() {}
template <int LEFT> static inline void copies_wait() {}

/* Matrix i's row j lies where lane 8 * i + j says; a lane gets two neighbours of row lane / 4. */
static inline void emu_ldmatrix(uint32_t *r, uint32_t at, int count) {
    const uint64_t *all = emu_exchange(at);
    uint32_t lane = emu_lane();
    for (int i = 0; i < count; i++)
        memcpy(&r[i], emu_shared_at((uint32_t)all[8 * i + lane / 4]) + lane % 4 * 4, 4);
}
static inline void ldmatrix_x4(uint32_t r[4], uint32_t at) { emu_ldmatrix(r, at, 4); }
static inline void ldmatrix_x2(uint32_t r[2], uint32_t at) { emu_ldmatrix(r, at, 2); }

template <bool IS_BF16> static inline double emu_number(uint64_t pair, uint32_t second) {
    uint16_t bits = (uint16_t)(pair >> 16 * second);
    return (double)(IS_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
}

static inline void ldmatrix_x4_turned(uint32_t r[4], uint32_t at) {
    const uint64_t *all = emu_exchange(at);
    uint32_t lane = emu_lane();
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int k = 0; k < 2; k++)
            memcpy(&pair[k], emu_shared_at((uint32_t)all[8 * i + lane % 4 * 2 + k]) + lane / 4 * 2,
                   2);
        memcpy(&r[i], pair, 4);
    }
}
/* Digits of 8 and more repeat the byte's sign, as on the card. */
static inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t digits) {
    uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t byte = (uint32_t)(all >> (digits >> 4 * i & 7) * 8) & 255;
        if (digits >> 4 * i & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
static inline float exp2_fast(float x) { return exp2f(x); }
static inline uint32_t pack_halves(float low, float high) {
    return f16_from_f32(low) | (uint32_t)f16_from_f32(high) << 16;
}

/* a[i]: row lane / 4 + 8 (i odd), columns 2 (lane % 4) + 8 (i > 1) and the next; b[i]: column
 * lane / 4, rows 2 (lane % 4) + 8 i and the next. */
template <bool IS_BF16>
static inline void mma_16x8x16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    double w[2][16], x[2][16];
    uint32_t lane = emu_lane();
    for (int i = 0; i < 4; i++) {
        const uint64_t *all = emu_exchange(a[i]);
        for (int n = 0; n < 8; n++)
            w[i % 2][i / 2 * 8 + n] = emu_number<IS_BF16>(all[lane / 4 * 4 + n / 2], n % 2);
    }
    for (int i = 0; i < 2; i++) {
        const uint64_t *all = emu_exchange(b[i]);
        for (int n = 0; n < 16; n++)
            x[n / 8][i * 8 + n % 8] =
                emu_number<IS_BF16>(all[(lane % 4 * 2 + n / 8) * 4 + n % 8 / 2], n % 2);
    }
    for (int i = 0; i < 4; i++) {
        double sum = 0;
        for (int k = 0; k < 16; k++) sum += w[i / 2][k] * x[i % 2][k];
        c[i] = (float)(c[i] + sum);
    }
}

/* Bytes; a[i], b[i] as above with 4 neighbours for 2 and 16 columns for 8. */
static inline void mma_s8_16x8x32(int32_t c[4], const uint32_t a[4], const uint32_t b[2]) {
    int8_t w[2][32], x[2][32];
    uint32_t lane = emu_lane();
    for (int i = 0; i < 4; i++) {
        const uint64_t *all = emu_exchange(a[i]);
        for (int n = 0; n < 4; n++)
            memcpy(&w[i % 2][i / 2 * 16 + 4 * n], &all[lane / 4 * 4 + n], 4);
    }
    for (int i = 0; i < 2; i++) {
        const uint64_t *all = emu_exchange(b[i]);
        for (int n = 0; n < 8; n++)
            memcpy(&x[n / 4][i * 16 + n % 4 * 4], &all[(lane % 4 * 2 + n / 4) * 4 + n % 4], 4);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 32; k++) c[i] += w[i / 2][k] * x[i % 2][k];
}
static inline void mma_s8_16x8x16(int32_t c[4], const uint32_t a[2], uint32_t b) {
    uint32_t wide_a[4] = {a[0], a[1], 0, 0}, wide_b[2] = {b, 0};
    mma_s8_16x8x32(c, wide_a, wide_b);
}

#endif
