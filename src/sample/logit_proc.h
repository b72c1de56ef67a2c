/* sample/logit_proc.h - the plug for whatever changes a model's logits before a token is drawn.
 *
 * A processor never sees the logits. It gives a sparse list of edits, each for one token, and a
 * mask of the tokens that it forbids (graph/sampling.h states what a device does with them). It
 * can take back the last tokens that it has accepted, for speculation. Edits apply in the order of
 * logit_procs[].
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

/* What all processors together say about one step, while it is written. */
struct logit_edits {
    struct sampling_tables *tables;
    struct sampling *sampling; /* ranges in the tables; the penalties' fields */
    uint32_t vocab;
    bool is_full; /* something did not fit: nothing of it will be used */
};

void logit_edits_add(struct logit_edits *e, struct logit_edit edit);

/* Forbid the tokens whose bits are set, in (vocab + 63) / 64 words. Meant for large sets: a few
 * tokens are cheaper as edits that add minus infinity. */
void logit_edits_deny(struct logit_edits *e, const uint64_t *mask);

/* The same for a mask that the caller makes in place: it fills the words, which have no value yet.
 * No other mask may have been given for this step before. NULL: it does not fit. */
uint64_t *logit_edits_new_mask(struct logit_edits *e);

/* Forbid every token except one. If that one is already forbidden, nothing changes. Only for the
 * last processor that sets a mask, because the mask is replaced. */
void logit_edits_allow_only(struct logit_edits *e, int32_t token);

struct logit_proc {
    const char *name;

    /* *self stays NULL if `p` asks nothing of this processor; it is then not called again. */
    enum status (*create)(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err);

    /* is_pending: one more token will have been accepted when the edits apply, and it is not known
     * yet which. */
    void (*edit)(void *self, bool is_pending, struct logit_edits *out);
    uint32_t (*edits_max)(const void *self); /* the most that one call adds, ever */

    /* Optional, both or neither: for processors that depend on the tokens so far. rollback
     * takes back the last `count`, at most SAMPLE_ROLLBACK_MAX. */
    void (*accept)(void *self, int32_t token);
    void (*rollback)(void *self, uint32_t count);
    /* Optional: what is accepted from here on is the answer; no rollback goes past this point. */
    void (*begin_answer)(void *self);
    /* Optional: do the work that accepted tokens have left, and that the next edit needs. is_quick:
     * only if it takes about a millisecond and waits for nobody; false: some is left. */
    bool (*settle)(void *self, bool is_quick);
    /* Optional: the answer is whole, and no token may follow. */
    bool (*is_over)(void *self);
    /* Optional: why it forbids every token, in a sentence; ST_OK: it does not know that it does.
     * has_bias: biases may forbid those that it allows. */
    enum status (*explain)(const void *self, bool has_bias, struct err *err);
    /* Optional: as sampler_forced. */
    uint32_t (*forced)(void *self, int32_t *out);

    enum status (*fork)(const void *self, void **out);
    void (*destroy)(void *self);
};

/* NULL-terminated, in the order in which edits apply; logit_proc_list.c holds it. */
extern const struct logit_proc *const logit_procs[];
enum { LOGIT_PROCS_MAX = 8 };

#endif
