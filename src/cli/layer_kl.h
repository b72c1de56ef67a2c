/* cli/layer_kl.h - which layers of a smaller model lose most: `jitney compare --svg`.
 *
 * For each layer, A computes some windows of the text with that layer's matrices and vectors taken
 * from B, and its own in all other layers. The mean KL of A's predictions from before is the
 * layer's. The same is done for the embedding and the output matrix.
 *
 * Lifetime: init (zeroed) is the caller's; deinit. Thread: the main thread. Memory: the logits of
 * LAYER_KL_WINDOWS windows.
 */
#ifndef CLI_LAYER_KL_H
#define CLI_LAYER_KL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/window_kl.h"
#include "graph/kv_space.h"

struct buf;
struct loaded_model;

/* Windows that are measured, and the most tokens of one; the second half of them counts. */
enum { LAYER_KL_WINDOWS = 4, LAYER_KL_TOKENS = 256 };

struct layer_kl {
    double *layers; /* heap */
    uint32_t layer_count;
    bool is_tied; /* one matrix of A or B is embedding and output; output_kl is that of both */
    double embedding_kl, output_kl;
};

struct layer_kl_options {
    enum kv_type kv_type;
    uint32_t threads;
    struct window_kl_text text;
};

/* Can layers be exchanged? ST_BAD: the device is not the CPU, or the models have other shapes;
 * `err` says which. */
enum status layer_kl_check(const struct loaded_model *a, const struct loaded_model *b,
                           struct err *err);

/* Checks first. A's weights are exchanged during the call. */
enum status layer_kl_measure(struct layer_kl *k, struct loaded_model *a, struct loaded_model *b,
                             const struct layer_kl_options *options, struct err *err);
void layer_kl_deinit(struct layer_kl *k); /* a zeroed one is fine */

/* A list of {"part": "embedding" | "layer" | "output" | "embedding and output", "layer": 0, "kl"};
 * "layer" is there for layers. */
void layer_kl_put_json(const struct layer_kl *k, struct buf *out);

/* A bar chart with a title, a description and labelled axes; the names are escaped. */
void layer_kl_put_svg(const struct layer_kl *k, const char *name_a, const char *name_b,
                      struct buf *out);

#endif
