/* spec/spec.h - the drafts of an engine: which sequence has which drafter.
 *
 *     spec_seq_create    with the request: the drafter of one sequence, with all its memory
 *     spec_begin, end    the sequence is known to the scheduler by this index
 *     spec_source        what the scheduler asks for drafts (sched/drafts.h)
 *
 * Most drafters guess from the text of one sequence (spec/drafter.h). A draft model guesses for
 * many sequences at once; it is plugged in from above (struct draft_model).
 *
 * Lifetime: one per engine. Thread: spec_seq_create and _destroy from any thread, the rest on the
 * engine thread. Memory: taken by create and spec_seq_create; asking for drafts allocates nothing.
 */
#ifndef SPEC_SPEC_H
#define SPEC_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/sampling.h"
#include "kv/prefix.h"
#include "sched/drafts.h"
#include "spec/speculate_option.h"

struct spec;     /* opaque */
struct spec_seq; /* opaque: the drafter of one sequence */

/* A small model of the same vocabulary that drafts for several sequences in one step of its own. It
 * keeps a KV cache of the texts that it has seen. */
struct draft_model {
    /* The sequence with this index begins, or has ended. `draw` says how it is sampled, but for
     * its position. */
    void (*begin)(void *self, seq_idx seq, const struct sampling *draw);
    void (*end)(void *self, seq_idx seq);
    void (*propose)(void *self, struct draft_ask *const *asks, uint32_t count);
    double (*cost_us)(void *self, uint32_t seqs, uint32_t tokens);
    void (*close)(void *self);
    void *self;
};

struct spec_options {
    struct speculate_option fallback; /* of requests that do not choose; `path` is not used */
    uint32_t vocab;
    uint32_t seq_max; /* every seq_idx is below this */
};

enum status spec_create(struct spec **out, const struct spec_options *options, struct err *err);
void spec_destroy(struct spec *s); /* NULL is fine; closes the draft model */
/* Before the first request. */
void spec_plug_model(struct spec *s, const struct draft_model *model);
struct draft_source spec_source(struct spec *s);

/* What a request asks for. */
struct speculation {
    bool is_chosen;                 /* false: the engine's fallback */
    struct speculate_option choice; /* if it is chosen */
    uint32_t max;                   /* drafts in a step; 0: as the knob draft_max says */
    const int32_t *prediction;      /* what the client expects; borrowed; NULL: nothing */
    uint32_t prediction_tokens;
};

/* The text of a sequence. */
struct spec_text {
    const int32_t *prompt;              /* as in struct drafter_setup */
    uint32_t prompt_tokens, tokens_max; /* where the answer begins; the longest text */
    struct kv_salt salt;
};

/* How many drafts a sequence of such a request may have in a step; 0: none. */
uint32_t spec_draft_max(const struct spec *s, const struct speculation *wanted);

bool spec_has_model(const struct spec *s); /* a draft model is plugged in */
/* The drafts of such a request are guessed from its prediction. */
bool spec_follows_prediction(const struct spec *s, const struct speculation *wanted);

/* What spec_seq_create would take, without the draft model and recent answers. */
size_t spec_seq_bytes_for(const struct spec *s, const struct speculation *wanted,
                          uint32_t tokens_max);
/* ST_OK with *out NULL: the sequence has no drafts. A request with a prediction gets the drafter
 * `predicted`, unless it has chosen another one. ST_BAD: it wants a draft model, and there is none.
 * ST_NOMEM. */
enum status spec_seq_create(struct spec *s, const struct speculation *wanted,
                            const struct spec_text *text, struct spec_seq **out, struct err *err);
void spec_seq_destroy(struct spec_seq *seq); /* NULL is fine */
size_t spec_seq_bytes(const struct spec_seq *seq);

/* `draw`: how the sequence is sampled, for a draft model. `seq` NULL: does nothing. */
void spec_begin(struct spec *s, seq_idx i, struct spec_seq *seq, const struct sampling *draw);
/* The sequence has ended with this text. */
void spec_end(struct spec *s, seq_idx i, const int32_t *tokens, uint32_t count,
              uint32_t prompt_tokens);

#endif
