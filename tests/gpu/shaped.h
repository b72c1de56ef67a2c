/* tests/gpu/shaped.h - a model of a real shape with random weights, on any device.
 *
 * A plain transformer (norm, queries, keys and values, rotation, attention, gates and ups), as a
 * tape that is built here, so that neither a model file nor an engine is needed.
 */
#ifndef TESTS_GPU_SHAPED_H
#define TESTS_GPU_SHAPED_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "graph/weight.h"

enum { SHAPED_LAYERS_MAX = 32, SHAPED_MATRICES = 7, SHAPED_VECTORS = 9 };

struct shape {
    const char *name;
    enum dtype type;
    uint32_t layers, dim, heads, kv_heads, head_dim, ffn, vocab;
    bool is_fp8; /* weights of the layers become e4m3 on the device */
};

/* The largest step, the longest sequence, and how many tokens the cache holds in all. Where that is
 * less than all sequences at their longest, some share blocks. */
struct shaped_sizes {
    uint32_t rows, seqs, tokens, kv_tokens;
    enum kv_type kv_type;
    enum rope_style style;
    bool is_rich; /* norms of heads, biases, norms that differ from layer to layer */
};

struct shaped {
    const struct shape *shape;
    enum rope_style style;
    bool is_rich;
    struct device dev;
    struct weight mats[SHAPED_LAYERS_MAX][SHAPED_MATRICES], embed, head, norm, freqs;
    struct weight vectors[SHAPED_LAYERS_MAX][SHAPED_VECTORS]; /* where it is rich */
    void *numbers;                                            /* that all matrices are made of */
    float *ones;
    struct tape *tape;
    struct kv_space kv;
    struct device_program *program;
    struct step *step;
    struct device_result result; /* of the last step */
};

const struct shape *shape_find(const char *name); /* of real shapes, as "8B-fp8"; NULL: unknown */

/* False: it cannot be run there; why is printed. */
bool shaped_open(struct shaped *m, const struct shape *s, const char *device,
                 const struct shaped_sizes *sizes);
void shaped_close(struct shaped *m);

/* `seqs` sequences, `rows` rows each, from position `first` on; sampled at random. */
void shaped_set_step(struct shaped *m, uint32_t seqs, uint32_t rows, uint32_t first);
/* The step `count` times; the mean time of one in us, 0: one failed, and why is printed. */
double shaped_run(struct shaped *m, uint32_t count);

#endif
