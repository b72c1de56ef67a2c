/* engine/window_kl.h - how far the predictions of a model move when some of its weights change.
 *
 * create computes some windows of text with the model as it is and keeps the logits. The caller
 * then changes weights of the model (data, type and `prepared` of a struct weight), measures, and
 * changes them back. Each measurement makes a forward pass of its own, so types may change, too.
 * All tokens of a window run in one step.
 *
 * Lifetime: create, measure, destroy; the loaded model and the ids outlive it. Thread: as struct
 * loaded_model; it has threads of its own for the comparison, and the result does not depend on
 * their number. Memory: the logits that are compared; during a call keys and values of a window
 * and the scratch memory of a step.
 */
#ifndef ENGINE_WINDOW_KL_H
#define ENGINE_WINDOW_KL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/kv_space.h"

struct loaded_model;
struct window_kl; /* opaque */

struct window_kl_options {
    enum kv_type kv_type;
    uint32_t threads;   /* 0: the default of base/pool.h */
    const int32_t *ids; /* window i begins at ids + i * stride */
    size_t stride;
    uint32_t windows, window_tokens;
    uint32_t first; /* positions [first, window_tokens - 1) are compared; not empty */
};

/* Windows that follow each other. */
struct window_kl_text {
    const int32_t *ids; /* windows * window_tokens */
    uint32_t windows, window_tokens;
};
/* Take at most `windows_max` windows, spread over the text, and at most the first `tokens_max`
 * tokens of each: sets ids, stride, windows and window_tokens. */
void window_kl_spread(const struct window_kl_text *text, uint32_t windows_max, uint32_t tokens_max,
                      struct window_kl_options *out);

enum status window_kl_create(struct loaded_model *loaded, const struct window_kl_options *options,
                             struct window_kl **out, struct err *err);
void window_kl_destroy(struct window_kl *w); /* NULL is fine */

/* The mean KL, in nats, of the model as it is now from the model as it was. */
enum status window_kl_measure(struct window_kl *w, double *kl, struct err *err);

#endif
