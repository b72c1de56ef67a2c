/* unit/embed/embed_rig.h - what the tests of the embedding API share: a tiny open model, and the
 * whole of an answer put together from its events. */
#ifndef UNIT_EMBED_RIG_H
#define UNIT_EMBED_RIG_H

#include <jitney.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LLAMA TEST_SOURCE_DIR "/golden/models/llama"
#define QWEN2 TEST_SOURCE_DIR "/golden/models/qwen2"

enum { RIG_TOKENS_MAX = 512, RIG_TEXT_MAX = 8192, RIG_TOPS = 3 };

/* One answer so far. */
struct received {
    int32_t tokens[RIG_TOKENS_MAX];
    float logprobs[RIG_TOKENS_MAX];
    struct jitney_logprob tops[RIG_TOKENS_MAX][RIG_TOPS];
    uint32_t count;
    char text[RIG_TEXT_MAX];
    size_t text_bytes;
    enum jitney_finish finish;
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    uint32_t event_count, last_count; /* events; those with a finish */
};

static inline void received_add(struct received *a, const struct jitney_event *ev) {
    for (uint32_t i = 0; i < ev->token_count && a->count < RIG_TOKENS_MAX; i++) {
        a->tokens[a->count] = ev->tokens[i];
        if (ev->logprobs) a->logprobs[a->count] = ev->logprobs[i].logprob;
        for (uint32_t t = 0; t < ev->top_count && t < RIG_TOPS; t++)
            a->tops[a->count][t] = ev->top_logprobs[(size_t)i * ev->top_count + t];
        a->count++;
    }
    if (a->text_bytes + ev->text_bytes < RIG_TEXT_MAX) {
        memcpy(a->text + a->text_bytes, ev->text, ev->text_bytes);
        a->text_bytes += ev->text_bytes;
    }
    a->finish = ev->finish;
    a->prompt_tokens = ev->prompt_tokens;
    a->completion_tokens = ev->completion_tokens;
    a->cached_tokens = ev->cached_tokens;
    a->event_count++;
    a->last_count += ev->finish != JITNEY_MORE;
}

/* The same bits: tokens and log-probabilities. */
static inline int received_same(const struct received *a, const struct received *b) {
    return a->count == b->count && a->finish == b->finish &&
           memcmp(a->tokens, b->tokens, a->count * sizeof(a->tokens[0])) == 0 &&
           memcmp(a->logprobs, b->logprobs, a->count * sizeof(a->logprobs[0])) == 0 &&
           a->text_bytes == b->text_bytes && memcmp(a->text, b->text, a->text_bytes) == 0;
}

static inline struct jitney *open_with(const char *model, const char *const *set) {
    struct jitney *j = NULL;
    char why[JITNEY_ERROR_BYTES];
    struct jitney_options o = jitney_options_default();
    o.set = set;
    o.threads = 2;
    if (jitney_open(model, &o, &j, why) != JITNEY_OK) fprintf(stderr, "%s: %s\n", model, why);
    return j;
}

/* A request for `max_tokens` of anything, with log-probabilities. */
static inline struct jitney_request steady(const char *text, uint32_t max_tokens, uint64_t seed) {
    struct jitney_request r = jitney_request_default();
    r.text = text;
    r.max_tokens = max_tokens;
    r.seed = seed;
    r.ignore_end = true;
    r.logprobs = true;
    return r;
}

/* All answers of request `id`, by choice; the status that ended it. */
static inline enum jitney_status read_all_of(struct jitney *j, uint64_t id, struct received *out) {
    struct jitney_event ev = jitney_event_default();
    enum jitney_status st;
    while ((st = jitney_next_of(j, id, &ev, -1)) == JITNEY_OK) received_add(&out[ev.choice], &ev);
    jitney_event_clear(&ev);
    return st;
}

#endif
