/* kernels/cuda/upload.h - large weights to the card by several threads.
 *
 * A copy from ordinary memory goes through the driver's own pinned buffers in one thread, at a
 * fraction of what the bus carries. Here each thread copies pieces into pinned buffers of its own
 * and sends them on a stream of its own.
 *
 * Lifetime: cuda_upload_create; cuda_upload_copy as often as needed; cuda_upload_destroy.
 * Thread: one caller at a time. Memory: 96 MiB, pinned.
 */
#ifndef KERNELS_CUDA_UPLOAD_H
#define KERNELS_CUDA_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>

struct cuda_upload;

struct cuda_upload *cuda_upload_create(int card); /* NULL: no threads or no pinned memory */
void cuda_upload_destroy(struct cuda_upload *u);  /* NULL is fine */

/* Waits until everything is there. False: a copy failed, and cudaGetLastError says why. */
bool cuda_upload_copy(struct cuda_upload *u, void *to, const void *from, size_t bytes);

/* Calls `fn` on every thread, with the card chosen, and waits. False: one of them returned it. */
typedef bool cuda_upload_fn(void *ctx);
bool cuda_upload_run(struct cuda_upload *u, cuda_upload_fn *fn, void *ctx);

#endif
