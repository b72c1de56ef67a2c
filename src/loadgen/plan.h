/* loadgen/plan.h - what is asked: the i-th request of a run, as a function of the seed alone.
 *
 * Nothing is drawn ahead and nothing is kept, so a plan has no end, and two servers get the same
 * requests whatever their pace. Lengths are in tokens as the server counts them:
 *
 *   PLAN_IDS    random token ids: exact, but only /v1/completions takes them;
 *   PLAN_WORDS  random words that are one token each in most vocabularies. What a template or a
 *               tokenizer adds is measured (`tokens_per_word`, `fixed_tokens`) and left out.
 *
 * Prompts have nothing in common but the first `shared_tokens`, so a prefix cache finds only
 * those.
 *
 * Lifetime: a value of the caller's; texts and lengths are borrowed. Thread: any.
 */
#ifndef LOADGEN_PLAN_H
#define LOADGEN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

enum plan_form { PLAN_WORDS, PLAN_IDS };

struct plan_length {
    uint32_t prompt_tokens, output_tokens; /* at least 1 each */
};

struct plan {
    const char *model;
    bool is_chat, streams;
    enum plan_form form;
    uint32_t vocab; /* PLAN_IDS: ids are below */
    uint64_t seed;
    const struct plan_length *lengths; /* drawn from at random; one: fixed */
    uint32_t length_count;
    uint32_t shared_tokens;
    struct str fields;                    /* more of the body, "\"a\":1,\"b\":2"; may be empty */
    double tokens_per_word, fixed_tokens; /* 1 and 0 until measured */
};

const char *plan_path(const struct plan *p); /* "/completions" or "/chat/completions" */
struct plan_length plan_length_at(const struct plan *p, uint64_t i);
void plan_put_body(const struct plan *p, uint64_t i, struct buf *out);

/* A body with exactly so many words and one token to answer; `i` as above. */
void plan_put_probe(const struct plan *p, uint64_t i, uint32_t words, struct buf *out);

/* From two probes: how many tokens the server counted for so many words. */
struct plan_probe {
    uint32_t words, tokens;
};
void plan_calibrate(struct plan *p, struct plan_probe few, struct plan_probe many);

/* How long after request i-1 the i-th arrives, at `rate` a second (Poisson). */
int64_t plan_gap_us(const struct plan *p, uint64_t i, double rate);

#endif
