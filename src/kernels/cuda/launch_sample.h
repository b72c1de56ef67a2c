/* kernels/cuda/launch_sample.h - the kernels of sampling, as the host calls them.
 *
 * As in kernels/cuda/launch.h.
 */
#ifndef KERNELS_CUDA_LAUNCH_SAMPLE_H
#define KERNELS_CUDA_LAUNCH_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "graph/sampling.h"
#include "kernels/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_SLOT_EMPTY = -1 };    /* no token was sampled into the slot */
enum { CUDA_SCAN_TOKENS = 4096 }; /* of a row, whose best logit one block finds */
struct cuda_sample {
    float *logits; /* rows of row_floats; edits change them */
    size_t row_floats;
    uint32_t vocab, output_count;
    const struct sampling *samplings;
    const struct logit_edit *edits;
    const uint64_t *deny;
    float *saved;    /* [edits]: logits before they were edited */
    uint64_t *scans; /* [output_count][parts of CUDA_SCAN_TOKENS]: the best of each */
    int32_t *slots;
    struct row_output *outputs;
};
void cuda_sample(const struct cuda_sample *a, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
