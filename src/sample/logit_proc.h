/* sample/logit_proc.h - the plug for whatever changes a model's wishes before one is drawn.
 *
 * A processor never sees or edits the logits. It says which tokens are forbidden (a bit each)
 * and gives a sparse list of edits, each for one token:
 *
 *     l' = (l > 0 ? l / scale : l * scale) + add
 *
 * so that it works as well where the logits lie on a device, and under speculation: it can
 * take back the last tokens that it was told of. Edits apply in the order of logit_procs[].
 *
 * To add one: write sample/proc_NAME.c, add a line to sample/logit_proc_list.c.
 *
 * Lifetime: create and destroy with their sampler. Thread: the sampler's owner.
 * Memory: all taken by create and fork.
 */
#ifndef SAMPLE_LOGIT_PROC_H
#define SAMPLE_LOGIT_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/sampling.h"

struct sample_bounds;
struct sample_params;

/* What all processors together say about one step. */
struct logit_edits {
    struct logit_edit *list;
    uint32_t count, cap;
    uint64_t *deny; /* one bit per token of the vocabulary; set: forbidden */
    bool any_denied;
};

void logit_edits_add(struct logit_edits *e, struct logit_edit edit); /* CHECKs that it fits */
void logit_edits_deny(struct logit_edits *e, int32_t token);

struct logit_proc {
    const char *name;

    /* *self stays NULL if `p` asks nothing of this processor; it is then not called again. */
    enum status (*create)(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err);

    /* At most one edit for each token of the vocabulary, or LOGIT_BIAS_MAX of them. */
    void (*edit)(const void *self, struct logit_edits *out);

    /* Optional, both or neither: for processors that depend on the tokens so far. rollback
     * takes back the last `count`, at most SAMPLE_ROLLBACK_MAX. */
    void (*accept)(void *self, int32_t token);
    void (*rollback)(void *self, uint32_t count);
    /* Optional: what is accepted from here on is the answer; no rollback goes behind it. */
    void (*begin_answer)(void *self);

    enum status (*fork)(const void *self, void **out);
    void (*destroy)(void *self);
};

/* NULL-terminated, in the order in which edits apply; logit_proc_list.c holds it. */
extern const struct logit_proc *const logit_procs[];
enum { LOGIT_PROCS_MAX = 8 };

#endif
