/* model/rope.h - rotation frequencies, scaled for longer contexts as the model specifies. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "model/hparams.h"

/* freqs[i] for i < rot_dims / 2, rounded to float; *factor scales cosine and sine. `divisors`
 * (rot_dims / 2 floats, or NULL) are the file's divisors of the frequencies.
 * `ctx_tokens` is the longest sequence that will be run. */
void rope_freqs(const struct rope_params *r, const float *divisors, uint32_t ctx_tokens,
                float *freqs, float *factor);

/* What llama3's scaling divides each frequency by: rot_dims / 2 floats, as a GGUF has them. */
void rope_divisors(const struct rope_params *r, float *divisors);

#endif
