/* kernels/cuda/device_stage.cuh - a stage of a product of 16-bit numbers in shared memory.
 *
 * 64 columns of some rows, 128 bytes each. The 16-byte piece p of a row lies at p ^ (row & 7), so
 * that ldmatrix, which reads one piece of eight rows at once, uses no bank twice.
 */
#ifndef KERNELS_CUDA_DEVICE_STAGE_CUH
#define KERNELS_CUDA_DEVICE_STAGE_CUH

#include <stdint.h>

static constexpr uint32_t STAGE_COLS = 64, STAGE_ROW_BYTES = STAGE_COLS * 2;
static constexpr uint32_t PIECES = STAGE_ROW_BYTES / 16; /* of a row */

static __device__ inline uint32_t swizzle(uint32_t row, uint32_t piece) {
    return row * STAGE_ROW_BYTES + (piece ^ (row & 7)) * 16;
}

#endif
