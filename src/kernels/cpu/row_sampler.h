/* kernels/cpu/row_sampler.h - samples a token from a row of logits, as its description says.
 *
 * graph/sampling.h defines the result. A row sampler is the working memory for it: a copy of the
 * logits, which edits change, and the tokens that may still be drawn. It keeps nothing between
 * calls.
 *
 * Lifetime: create for a vocabulary, destroy. Thread: its owner; one for each thread that samples.
 * Memory: 28 bytes for each token of the vocabulary, all taken by create; a run allocates nothing.
 */
#ifndef KERNELS_CPU_ROW_SAMPLER_H
#define KERNELS_CPU_ROW_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

struct row_sampler; /* opaque */
struct sample_result;
struct sampling;
struct sampling_tables;

enum status row_sampler_create(uint32_t vocab, struct row_sampler **out);
void row_sampler_destroy(struct row_sampler *c); /* NULL is fine */

/* What `s`, of kind DRAW or SCORE, makes of a row of logits. `tables` are those it was described
 * with; NULL is fine if it has no edits and denies nothing. `pending` is the token at its slot,
 * -1 if there is none; it is looked at only if s->is_pending. `logits` are not written.
 *
 * A logit that is NaN counts as minus infinity: a caller who wants the row to fail looks for NaN
 * first. ST_BAD: nothing is allowed, or the pending token is not in the vocabulary. */
enum status row_sampler_run(struct row_sampler *c, const struct sampling *s,
                            const struct sampling_tables *tables, int32_t pending,
                            const float *logits, struct sample_result *out);

#endif
