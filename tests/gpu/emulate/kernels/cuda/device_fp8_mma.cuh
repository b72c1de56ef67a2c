/* tests/gpu/emulate/kernels/cuda/device_fp8_mma.cuh - src/kernels/cuda/device_fp8_mma.cuh in plain
 * C++: a product's 32 terms are added exactly, then to the accumulator with one rounding. Tensor
 * cores keep fewer bits. */
#ifndef KERNELS_CUDA_DEVICE_FP8_MMA_CUH
#define KERNELS_CUDA_DEVICE_FP8_MMA_CUH

#include "kernels/cuda/device_wgmma.cuh"

static inline double emu_fp8(uint8_t code) {
    static double numbers[256];
    if (numbers[8] == 0)
        for (int c = 0; c < 256; c++) {
            double size = (c & 7) + (c & 0x78 ? 8 : 0);
            int exponent = (c >> 3 & 15) > 0 ? (c >> 3 & 15) - 10 : -9;
            numbers[c] = (c & 0x80 ? -1 : 1) * ldexp(size, exponent);
        }
    return numbers[code];
}

static inline void wgmma_fp8(float d[4], const uint32_t a[4], uint64_t b) {
    uint8_t w[2][32];
    uint32_t lane = emu_lane(), at = b & 0x1fffff, next_in_k = b >> 21 & 0x1fffff;
    for (int i = 0; i < 4; i++) {
        const uint64_t *all = emu_exchange(a[i]);
        for (int n = 0; n < 4; n++)
            memcpy(&w[i % 2][i / 2 * 16 + 4 * n], &all[lane / 4 * 4 + n], 4);
    }
    for (int i = 0; i < 4; i++) {
        double sum = 0;
        uint32_t row = lane % 4 * 2 + i % 2;
        for (uint32_t k = 0; k < 32; k++)
            sum += emu_fp8(w[i / 2][k]) *
                   emu_fp8(*emu_shared_at(at + k / 16 * next_in_k + row * 16 + k % 16));
        d[i] = (float)(d[i] + sum);
    }
}

#endif
