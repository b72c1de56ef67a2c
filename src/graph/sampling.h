/* graph/sampling.h - what a device does with the logits of one output row, and the result.
 *
 * The description is plain numbers, so it can be copied to any device. From the same logits every
 * device computes the same result, bit for bit: exp and log are those of base/fmath.h, sums are of
 * integers and so exact in any order, and the steps below define everything else.
 * kernels/cpu/row_sampler.h is the reference.
 *
 * 1. Read. A row that holds a NaN fails. Plus infinity becomes FLT_MAX. A number whose absolute
 *    value is below FLT_MIN becomes +0; so does every such number that is computed below.
 *
 * 2. Logprobs, of the model's own distribution: before edits, deny and temperature. With l the
 *    logits and e as below for a temperature of 1,
 *    logprob = (float)((double)l - (double)max l - fm_log_d((double)sum e / 2^39)); minus infinity
 *    where l is. The top logprobs are the first in rank, without those of minus infinity.
 *
 * 3. Edits, in the order of the list, each for one token: l = (l > 0 ? l / scale : l * scale)
 *    + add, then as in 1, and a NaN becomes minus infinity. An `add` of minus infinity forbids the
 *    token. Then deny: tokens whose bit is set become minus infinity. A row without a token above
 *    minus infinity fails.
 *
 * 4. Draw. T is the temperature, x = (l - max l) * (1 / T) in float, e = exp(x) in 2^-39ths,
 *    rounded to a whole number, half to even (base/fvec.h). Rank is: larger l first, then lower
 *    id. Each line works on what the one before has left; a line that is off changes nothing.
 *
 *      T = 0      the first in rank, and nothing below applies
 *      top-k      keep the first k in rank; then those with e > 0
 *      typical    m = -(sum of floor(e * -x) / sum e): each product and the quotient in double,
 *                 the sum in whole numbers, m rounded to float. Order by |x - m| in float, which
 *                 is |-log p - H| for p = e / sum e, then by id; keep the shortest prefix whose e
 *                 add up to typical_p * sum e
 *      top-p      keep the shortest prefix in rank whose e add up to top_p * sum e
 *      min-p      keep those with e >= min_p * the largest e
 *      draw       the first, by id, where the running sum of e exceeds floor(r * sum e / 2^64) for
 *                 r = rng_at(seed, SAMPLING_RNG_STREAM, position)
 *
 *    A prefix holds at least one token; products of a share and a sum are taken in double. e * -x
 *    is less than 2^38, so the sums of 2^24 tokens fit into 64 bits.
 *
 * A row's result depends on its logits, its description and the pending token, on nothing else.
 *
 * Pending token: a step may be described before the previous step has sampled. The device then
 * reads the missing token from `pending_slot`, where that step keeps it, and applies the penalties
 * to it. If one of the first `seen_count` edits is for this token, that edit uses
 * `add_again` instead of `add`. If none is, the device applies an extra edit (fresh_scale,
 * fresh_add) to this token, after the first `seen_count` edits and before the others. If the row
 * that should have sampled the token failed, the slot is empty, and a row with is_pending fails. A
 * row without it that takes the slot's token as its input has an undefined result, which the caller
 * ignores.
 */
#ifndef GRAPH_SAMPLING_H
#define GRAPH_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

enum { TOP_LOGPROBS_MAX = 20, SAMPLING_VOCAB_MAX = 1 << 24 };
enum { SAMPLING_RNG_STREAM = 1 }; /* other uses of a request's seed draw from other streams */
#define SAMPLING_NONE UINT32_MAX

struct logit_edit {
    int32_t token;
    float scale;     /* > 0; 1: none */
    float add;       /* minus infinity: never this token */
    float add_again; /* instead of `add` if the pending token is this one */
};

enum sampling_kind {
    SAMPLING_DRAW,      /* choose a token; it is kept at `slot` for the rows of the next step */
    SAMPLING_SCORE,     /* a token is given: how likely is it? */
    SAMPLING_HAND_OVER, /* no sampling: the raw output row is the result */
};

struct sampling {
    enum sampling_kind kind;
    uint32_t slot; /* DRAW: where the device keeps the token */
    /* DRAW: the token at `pending_slot`, from the step before, counts in the edits. */
    bool is_pending;
    uint32_t pending_slot; /* `slot` of the row that has sampled it; may be this one's own */
    int32_t token;         /* SCORE: the one that is given */

    float temperature; /* DRAW: 0: the most likely token, and the cuts below do not apply */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float typical_p;   /* 1: off */
    uint64_t seed, position;

    uint32_t edit_first, edit_count, seen_count; /* of the step's edits */
    float fresh_scale, fresh_add;
    uint32_t deny_first; /* word of the step's deny masks; SAMPLING_NONE: nothing is denied */

    bool wants_logprob; /* of the token, and of the `top_count` most likely */
    uint32_t top_count; /* at most TOP_LOGPROBS_MAX */
};

struct token_logprob {
    int32_t token;
    float logprob; /* natural logarithm, of the model's own distribution: before penalties,
                      bias and temperature */
};

struct sample_result {
    struct token_logprob chosen;
    uint32_t top_count; /* the most likely first */
    struct token_logprob top[TOP_LOGPROBS_MAX];
};

/* The result of one output row. */
struct row_output {
    bool failed; /* the logits hold a NaN, or nothing was allowed: `sample` means nothing */
    struct sample_result sample;
};

/* The step's edits and deny masks, while it is filled. A mask has (vocab + 63) / 64 words. */
struct sampling_tables {
    struct logit_edit *edits;
    uint32_t edit_count, edit_cap;
    uint64_t *deny;
    uint32_t deny_count, deny_cap; /* words */
};

#endif
