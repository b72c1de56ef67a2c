/* kernels/cuda/kept.h - cuBLASLt's algorithms that were chosen by their times, kept in a file.
 *
 * Timing takes about 10 ms for a product and a range of rows, in the middle of a request. What was
 * found is therefore written when the device closes, and read when it opens. A file is for one
 * card, one version of cuBLASLt and one version of this program (`made_for`); a file that is of
 * another, or damaged, is not used.
 *
 * Thread: any; several processes may use the folder, and the last one to close writes the file.
 */
#ifndef KERNELS_CUDA_KEPT_H
#define KERNELS_CUDA_KEPT_H

#include <stdint.h>

#include "base/status.h"

enum { CUDA_KEPT_KEY = 6, CUDA_KEPT_ALGO = 8 };

/* A shape and its algorithm; what the numbers mean is the caller's business. */
struct cuda_kept {
    uint32_t key[CUDA_KEPT_KEY];
    uint64_t algo[CUDA_KEPT_ALGO];
};

/* Returns how many there are, at most `max`; 0: there is no such file, or it cannot be used. */
uint32_t cuda_kept_read(const char *dir, const char *made_for, struct cuda_kept *out, uint32_t max);

/* Makes the folder where there is none. */
enum status cuda_kept_write(const char *dir, const char *made_for, const struct cuda_kept *list,
                            uint32_t count, struct err *err);

#endif
