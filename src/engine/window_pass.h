/* engine/window_pass.h - the logits of one window of text after another, without an engine.
 *
 * For measurements that change weights between two runs: the pass is made of the model's weights as
 * they are at the time of create, so a caller that changes one destroys the pass and makes a new
 * one. All tokens of a window run in one step.
 *
 * Lifetime: create, run, destroy; the loaded model outlives it. Thread: as struct loaded_model.
 * Memory: keys and values of a window, the scratch memory of a step, the logits that are wanted.
 */
#ifndef ENGINE_WINDOW_PASS_H
#define ENGINE_WINDOW_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/kv_space.h"

struct loaded_model;
struct window_pass; /* opaque */

struct window_pass_options {
    enum kv_type kv_type;
    uint32_t window_tokens;
    uint32_t first; /* logits of positions [first, window_tokens - 1) are wanted; not empty */
};
enum status window_pass_create(struct loaded_model *loaded,
                               const struct window_pass_options *options, struct window_pass **out,
                               struct err *err);
void window_pass_destroy(struct window_pass *w); /* NULL is fine */

struct window_logits {
    const float *rows; /* row i, of position first + i, at rows + i * row_floats */
    size_t row_floats;
    uint32_t count;
};
/* ids: [window_tokens]. The logits are valid until the next run. */
enum status window_pass_run(struct window_pass *w, const int32_t *ids, struct window_logits *out,
                            struct err *err);

#endif
