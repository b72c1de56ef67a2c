/* api/answer.h - the answer to one request for text, while it is generated and afterwards: all
 * that a codec's encoder reads.
 *
 * Lifetime: the server creates it with the generation and destroys it when no client can fetch it
 * any more.
 * Thread: the I/O thread.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "api/event.h"
#include "api/request.h"
#include "base/str.h"
#include "engine/request.h"

struct tokenizer;

enum { ANSWER_ID_BYTES = 64, ANSWER_WARNING_BYTES = 256 };

struct answer_choice {
    const struct choice *tokens; /* the engine's: ids, log-probabilities, counts */
    uint32_t answer_tokens;      /* received from the engine so far */
    uint32_t thought_tokens;     /* those of them that are thoughts */
    /* Tokens guessed from the request's prediction: those of answer_tokens, and those that are not
     * part of the answer. */
    uint32_t predicted_tokens, rejected_tokens;
    uint32_t prompt; /* which of the request's prompts */
    enum finish_reason finish;
    bool has_tools; /* it made at least one call */
};

struct answer {
    const struct api_request *request;
    const struct tokenizer *tokenizer;
    char id[ANSWER_ID_BYTES];                        /* without the codec's prefix */
    struct str model;                                /* the name under which it is served */
    struct str fingerprint;                          /* "fp_..." */
    char warning[ANSWER_WARNING_BYTES];              /* the header x-jitney-warning; "": none */
    int64_t created_s;                               /* wall time */
    int64_t arrived_us, first_token_us, finished_us; /* monotonic; 0: not yet */
    struct event_log *log;
    uint32_t prompt_tokens, cached_tokens; /* of all prompts */
    uint32_t choice_count, finished_count;
    struct answer_choice *choices; /* [choice_count] */
    struct api_error failure;      /* status 0: none */
};

static inline bool answer_is_done(const struct answer *a) {
    return a->failure.status != 0 || a->finished_count == a->choice_count;
}
uint32_t answer_completion_tokens(const struct answer *a); /* of all choices */
uint32_t answer_thought_tokens(const struct answer *a);    /* the same, of thoughts alone */
uint32_t
answer_predicted_tokens(const struct answer *a);         /* the same, guessed from the prediction */
uint32_t answer_rejected_tokens(const struct answer *a); /* guessed so, but not in the answer */

/* The id of a tool call: the same in every piece and every view of the answer. `prefix` is "call_"
 * and the like. A model whose template requires ids of nine letters gets such ids, without it. */
enum { CALL_ID_BYTES = 48 };
void answer_call_id(const struct answer *a, uint32_t choice, uint32_t call, const char *prefix,
                    char out[CALL_ID_BYTES]);

/* The last event of a choice; without one, an event with FINISH_NONE. Its first_token + token_count
 * is the number of tokens that the choice's events carry. */
struct api_event answer_last_event(const struct answer *a, uint32_t choice);

/* The token at `i` of a choice's answer, its log-probability, and the likeliest ones in its place
 * (NULL if they were not requested). A token whose log-probability is not known has 0. */
struct token_logprob answer_token(const struct answer *a, uint32_t choice, uint32_t i);
const struct sample_result *answer_tops(const struct answer *a, uint32_t choice, uint32_t i);
/* The same of the prompt; the first token's log-probability is not known. */
struct token_logprob answer_prompt_token(const struct answer *a, uint32_t choice, uint32_t i);
const struct sample_result *answer_prompt_tops(const struct answer *a, uint32_t choice, uint32_t i);

#endif
