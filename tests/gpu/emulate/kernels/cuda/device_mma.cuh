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

template <bool IS_BF16>
static inline void mma_16x8x16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    double w[16][16], x[16][8];
    for (int i = 0; i < 4; i++) { /* a[i]: row lane/4 + 8 (i odd), columns 2 (lane%4) + 8 (i > 1) */
        const uint64_t *all = emu_exchange(a[i]);
        for (int n = 0; n < 64; n++)
            w[n / 8 + i % 2 * 8][n % 4 * 2 + i / 2 * 8 + n / 4 % 2] =
                emu_number<IS_BF16>(all[n / 8 * 4 + n % 4], n / 4 % 2);
    }
    for (int i = 0; i < 2; i++) {
        const uint64_t *all = emu_exchange(b[i]);
        for (int n = 0; n < 64; n++)
            x[n % 4 * 2 + i * 8 + n / 4 % 2][n / 8] =
                emu_number<IS_BF16>(all[n / 8 * 4 + n % 4], n / 4 % 2);
    }
    for (int i = 0; i < 4; i++) {
        uint32_t row = emu_lane() / 4 + i / 2 * 8, col = emu_lane() % 4 * 2 + i % 2;
        double sum = 0;
        for (int k = 0; k < 16; k++) sum += w[row][k] * x[k][col];
        c[i] = (float)(c[i] + sum);
    }
}

#endif
