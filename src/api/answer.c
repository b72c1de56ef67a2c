/* api/answer.c - see api/answer.h for the contract. */
#include "api/answer.h"

#include <string.h>
#include <xxhash.h>

#include "api/tools.h"
#include "base/check.h"
#include "text/tokenizer.h"

uint32_t answer_completion_tokens(const struct answer *a) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < a->choice_count; i++) tokens += a->choices[i].answer_tokens;
    return tokens;
}

uint32_t answer_thought_tokens(const struct answer *a) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < a->choice_count; i++) tokens += a->choices[i].thought_tokens;
    return tokens;
}

uint32_t answer_predicted_tokens(const struct answer *a) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < a->choice_count; i++) tokens += a->choices[i].predicted_tokens;
    return tokens;
}

uint32_t answer_rejected_tokens(const struct answer *a) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < a->choice_count; i++) tokens += a->choices[i].rejected_tokens;
    return tokens;
}

enum { ID_LETTERS = 24, ID_LETTERS_SHORT = 9 };

/* Mistral's templates refuse a conversation whose calls have ids of another length, and a client
 * sends the ids of this answer back with its next request. */
static bool wants_short_ids(const struct answer *a) {
    if (!a->tokenizer) return false;
    return tool_template_has(tokenizer_chat_template(a->tokenizer, true), STR("length != 9"));
}

void answer_call_id(const struct answer *a, uint32_t choice, uint32_t call, const char *prefix,
                    char out[CALL_ID_BYTES]) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    enum { LETTERS = sizeof(letters) - 1 };
    XXH128_hash_t hash = XXH3_128bits_withSeed(a->id, strlen(a->id), (uint64_t)choice << 32 | call);
    const bool is_short = wants_short_ids(a);
    const size_t len = is_short ? 0 : strlen(prefix);
    const size_t count = is_short ? ID_LETTERS_SHORT : ID_LETTERS;
    CHECK(len + count < CALL_ID_BYTES);
    memcpy(out, prefix, len);
    for (size_t i = 0; i < count; i++) {
        uint64_t *half = i % 2 ? &hash.low64 : &hash.high64;
        out[len + i] = letters[*half % LETTERS];
        *half /= LETTERS;
    }
    out[len + count] = 0;
}

struct api_event answer_last_event(const struct answer *a, uint32_t choice) {
    const struct api_event none = {
        .kind = EVENT_FINISH, .choice = choice, .finish = FINISH_NONE, .text = STR("")};
    const uint32_t i = event_log_last(a->log, choice);
    if (i == EVENT_NO) return none;
    const struct api_event last = event_log_at(a->log, i);
    return last.kind == EVENT_FINISH ? last : none;
}

struct token_logprob answer_token(const struct answer *a, uint32_t choice, uint32_t i) {
    CHECK(choice < a->choice_count);
    const struct choice *c = a->choices[choice].tokens;
    if (c->logprobs) return c->logprobs[i];
    return (struct token_logprob){.token = c->tokens[c->prompt_tokens + i]};
}

const struct sample_result *answer_tops(const struct answer *a, uint32_t choice, uint32_t i) {
    CHECK(choice < a->choice_count);
    const struct choice *c = a->choices[choice].tokens;
    return c->tops ? &c->tops[i] : NULL;
}

struct token_logprob answer_prompt_token(const struct answer *a, uint32_t choice, uint32_t i) {
    CHECK(choice < a->choice_count);
    const struct choice *c = a->choices[choice].tokens;
    CHECK(i < c->prompt_tokens);
    if (i > 0 && c->request->prompt_logprobs) return c->request->prompt_logprobs[i];
    return (struct token_logprob){.token = c->tokens[i]};
}

const struct sample_result *answer_prompt_tops(const struct answer *a, uint32_t choice,
                                               uint32_t i) {
    CHECK(choice < a->choice_count);
    const struct request *r = a->choices[choice].tokens->request;
    return i > 0 && r->prompt_tops ? &r->prompt_tops[i] : NULL;
}
