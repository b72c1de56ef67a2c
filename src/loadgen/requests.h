/* loadgen/requests.h - the requests of a run: request i is a function of the seed and i alone.
 *
 * Nothing is generated in advance and nothing is stored, so there is no last request, and two
 * servers get the same requests however fast they are. Lengths are in tokens as the server counts
 * them:
 *
 *   PROMPT_IDS    random token ids: exact, but only /v1/completions accepts them;
 *   PROMPT_WORDS  random words that are one token each in most vocabularies. The tokens that a chat
 *                 template or a tokenizer adds are measured (`tokens_per_word`, `fixed_tokens`)
 *                 and subtracted.
 *
 * Two prompts share only their first `shared_tokens`, so a prefix cache finds only those.
 *
 * Lifetime: a value of the caller's; texts and lengths are borrowed. Thread: any.
 */
#ifndef LOADGEN_REQUESTS_H
#define LOADGEN_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

enum prompt_form { PROMPT_WORDS, PROMPT_IDS };

struct loadgen_length {
    uint32_t prompt_tokens, output_tokens; /* at least 1 each */
};

struct loadgen_requests {
    const char *model;
    bool is_chat, streams;
    enum prompt_form form;
    uint32_t vocab; /* PROMPT_IDS: ids are below it */
    uint64_t seed;
    const struct loadgen_length *lengths; /* one of them at random */
    uint32_t length_count;
    uint32_t shared_tokens;
    struct str fields; /* further fields of the body: "\"a\":1,\"b\":2"; may be empty */
    double tokens_per_word, fixed_tokens; /* 1 and 0 until measured */
};

const char *
loadgen_path(const struct loadgen_requests *p); /* "/completions" or "/chat/completions" */
struct loadgen_length loadgen_length_at(const struct loadgen_requests *p, uint64_t i);
void loadgen_put_body(const struct loadgen_requests *p, uint64_t i, struct buf *out);

/* A body with exactly `words` words and one output token. */
void loadgen_put_probe(const struct loadgen_requests *p, uint64_t i, uint32_t words,
                       struct buf *out);

/* How many prompt tokens the server counted for a number of words. */
struct loadgen_probe {
    uint32_t words, tokens;
};
void loadgen_calibrate(struct loadgen_requests *p, struct loadgen_probe few,
                       struct loadgen_probe many);

/* The time from the arrival of request i-1 to that of request i, at `rate` a second (Poisson). */
int64_t loadgen_gap_us(const struct loadgen_requests *p, uint64_t i, double rate);

#endif
