/* kernels/cpu/choose.h - carries out a description of sampling: from logits to a token.
 *
 * graph/sampling.h defines the result. A chooser is the working memory for it: a copy of the
 * logits, which edits change, and the tokens that may still be drawn. It keeps nothing between
 * calls.
 *
 * Lifetime: create for a vocabulary, destroy. Thread: its owner; one per thread that chooses.
 * Memory: 28 bytes for each token of the vocabulary, all taken by create; choose allocates nothing.
 */
#ifndef KERNELS_CPU_CHOOSE_H
#define KERNELS_CPU_CHOOSE_H

#include <stdint.h>

#include "base/status.h"

struct chooser; /* opaque */
struct sample_result;
struct sampling;
struct sampling_tables;

enum status chooser_create(uint32_t vocab, struct chooser **out);
void chooser_destroy(struct chooser *c); /* NULL is fine */

/* What `s`, of kind DRAW or SCORE, makes of a row of logits. `tables` are those it was described
 * with; NULL is fine if it has no edits and denies nothing. `pending` is the token at its slot,
 * -1 if there is none; it is looked at only if s->is_pending. `logits` are not written.
 *
 * A logit that is NaN counts as minus infinity: a caller who wants the row to fail looks for NaN
 * first. ST_BAD: nothing is allowed, or the pending token is not in the vocabulary. */
enum status choose(struct chooser *c, const struct sampling *s,
                   const struct sampling_tables *tables, int32_t pending, const float *logits,
                   struct sample_result *out);

#endif
