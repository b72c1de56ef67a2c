/* tests/gpu/emulate/kernels/cuda/device_wgmma.cuh - src/kernels/cuda/device_wgmma.cuh in plain C++:
 * each warp multiplies its own 16 rows, by mma_16x8x16. */
#ifndef KERNELS_CUDA_DEVICE_WGMMA_CUH
#define KERNELS_CUDA_DEVICE_WGMMA_CUH

#include "kernels/cuda/device_mma.cuh"

/* 21 bits each: where it begins, from a piece to the next one in k and in n. */
static inline uint64_t wgmma_operand(uint32_t at, uint32_t next_in_k, uint32_t next_in_n) {
    return at | (uint64_t)next_in_k << 21 | (uint64_t)next_in_n << 42;
}
static inline void wgmma_begin() {}
static inline void wgmma_end() {}
static inline void wgmma_wait() {}
template <int N> static inline void wgmma_hold(float[N / 8][4]) {}

/* Number (k, n) of b; a piece is 8 rows of 8 numbers. */
static inline uint32_t emu_number_at(uint64_t b, bool is_turned, uint32_t k, uint32_t n) {
    uint32_t at = b & 0x1fffff, next_in_k = b >> 21 & 0x1fffff, next_in_n = b >> 42 & 0x1fffff;
    uint32_t row = is_turned ? k % 8 : n % 8, place = is_turned ? n % 8 : k % 8;
    uint16_t bits;
    memcpy(&bits, emu_shared_at(at + k / 8 * next_in_k + n / 8 * next_in_n + row * 16 + place * 2),
           2);
    return bits;
}

template <int N, bool IS_TURNED>
static inline void emu_wgmma(float d[N / 8][4], const uint32_t a[4], uint64_t b) {
    uint32_t lane = emu_lane(), operand[2];
    for (uint32_t i = 0; i < N / 8; i++) {
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t k = lane % 4 * 2 + half * 8, n = i * 8 + lane / 4;
            operand[half] = emu_number_at(b, IS_TURNED, k, n) |
                            emu_number_at(b, IS_TURNED, k + 1, n) << 16;
        }
        mma_16x8x16<false>(d[i], a, operand);
    }
}
template <bool IS_TURNED>
static inline void wgmma_64(float d[8][4], const uint32_t a[4], uint64_t b) {
    emu_wgmma<64, IS_TURNED>(d, a, b);
}
template <bool IS_TURNED>
static inline void wgmma_128(float d[16][4], const uint32_t a[4], uint64_t b) {
    emu_wgmma<128, IS_TURNED>(d, a, b);
}

#endif
