/* tests/gpu/emulate/kernels/cuda/device_wgmma.cuh - src/kernels/cuda/device_wgmma.cuh in plain C++:
 * each warp multiplies its own 16 rows, by mma_16x8x16. */
#ifndef KERNELS_CUDA_DEVICE_WGMMA_CUH
#define KERNELS_CUDA_DEVICE_WGMMA_CUH

#include "kernels/cuda/device_mma.cuh"

/* 21 bits each: where it begins, from a piece to the next one in k and in n. */
static inline uint64_t wgmma_operand(uint32_t at, uint32_t next_in_k, uint32_t next_in_n) {
    return at | (uint64_t)next_in_k << 21 | (uint64_t)next_in_n << 42;
}
static inline uint64_t wgmma_operand_at(uint64_t operand, uint32_t bytes) {
    return operand + bytes;
}
#define HAS_WGMMA 1
static inline void wgmma_begin() {}
static inline void wgmma_end() {}
template <int LEFT> static inline void wgmma_wait() {}
template <int PLACE> static inline void wgmma_wait_behind_branch() {}
template <int COUNT> static inline void give_registers() {}
template <int COUNT> static inline void take_registers() {}
static inline void warpgroup_barrier(uint32_t barrier) { emu_named_barrier(barrier, 128); }
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
            operand[half] =
                emu_number_at(b, IS_TURNED, k, n) | emu_number_at(b, IS_TURNED, k + 1, n) << 16;
        }
        mma_16x8x16<false>(d[i], a, operand);
    }
}
static inline void emu_begin(float (*d)[4], uint32_t count, uint32_t step, uint32_t adds) {
    for (uint32_t i = 0; i < count && !adds; i++) memset(d[i * step], 0, sizeof(d[0]));
}
/* COLS columns, then eight in `more`. */
template <int COLS, bool IS_TURNED>
static inline void emu_wgmma_more(float (*d)[4], float more[4], const uint32_t a[4], uint64_t b,
                                  uint32_t adds) {
    float out[COLS / 8 + 1][4];
    memcpy(out, d, COLS / 8 * sizeof(out[0]));
    memcpy(out[COLS / 8], more, sizeof(out[0]));
    emu_begin(out, COLS / 8 + 1, 1, adds);
    emu_wgmma<COLS + 8, IS_TURNED>(out, a, b);
    memcpy(d, out, COLS / 8 * sizeof(out[0]));
    memcpy(more, out[COLS / 8], sizeof(out[0]));
}
template <bool IS_TURNED>
static inline void wgmma_72(float d[8][4], float more[4], const uint32_t a[4], uint64_t b,
                            uint32_t adds) {
    emu_wgmma_more<64, IS_TURNED>(d, more, a, b, adds);
}
template <bool IS_TURNED>
static inline void wgmma_136(float d[16][4], float more[4], const uint32_t a[4], uint64_t b,
                             uint32_t adds) {
    emu_wgmma_more<128, IS_TURNED>(d, more, a, b, adds);
}
static inline void wgmma_32_apart(float (*d)[4], const uint32_t a[4], uint64_t b, uint32_t adds) {
    float out[4][4];
    emu_begin(d, 4, 2, adds);
    for (uint32_t i = 0; i < 4; i++) memcpy(out[i], d[2 * i], sizeof(out[i]));
    emu_wgmma<32, false>(out, a, b);
    for (uint32_t i = 0; i < 4; i++) memcpy(d[2 * i], out[i], sizeof(out[i]));
}

#endif
