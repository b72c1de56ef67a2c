/* kernels/cuda/resident.h - the layers of a tape that resident.cu computes in one launch.
 *
 * They are consecutive layers of one kind: norm, product of queries, keys and values, rotation,
 * writing the cache, attention, product, norm, product of gates and ups, act, product; weights of
 * 16 bits, a cache of f16 or fp8. The usual kernels compute all other ops: those before and after
 * these layers, layers that differ, steps of more than CUDA_RESIDENT_ROWS rows, steps with prompts.
 *
 * Lifetime: a program's. Thread: the device's caller.
 */
#ifndef KERNELS_CUDA_RESIDENT_H
#define KERNELS_CUDA_RESIDENT_H

#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/launch_resident.h"

/* The ops of a layer, by their numbers in the tape. */
struct cuda_layer_ops {
    uint32_t norm, turn, attention; /* `turn`: norms of heads, rotations, writing the cache */
    uint32_t products[CUDA_RESIDENT_PRODUCTS];
    uint32_t end; /* behind the last one */
};

enum { CUDA_RESIDENT_LAYERS = 256 };

struct cuda_layers {
    const char *why_not; /* why the usual kernels compute the layers; NULL: resident.cu does */
    uint32_t count;
    struct cuda_layer_ops ops[CUDA_RESIDENT_LAYERS];
    uint32_t normed, widest; /* columns of products, filled up: behind norms, and the others */
    struct cuda_resident_layer *card;
    void *maps; /* CUtensorMap[layers][CUDA_RESIDENT_PRODUCTS], on the card */
    uint64_t *arrivals;
    uint64_t steps; /* so computed, for tests */
};

/* ---- resident_match.c ---- */

/* The longest run of such layers from the first one on: `ops`, `count`, `normed` and `widest`, or
 * `why_not`. */
void cuda_layers_match(const struct tape *t, const struct program_options *options,
                       struct cuda_layers *out);

/* ---- resident_host.c ---- */

/* What the card needs of them: `slab` is the tape's scratch memory. ST_NOMEM, ST_DEVICE. */
enum status cuda_layers_make(struct cuda_device *dev, const struct tape *t, uint8_t *slab,
                             struct cuda_layers *l, struct err *err);
void cuda_layers_deinit(struct cuda_device *dev, struct cuda_layers *l);

/* Op `i` of the tape is the first of them and the step is one for them: they are launched, and the
 * number of their ops is returned; else 0. */
uint32_t cuda_layers_launch(const struct cuda_run *x, struct cuda_layers *l, uint32_t i);

#endif
