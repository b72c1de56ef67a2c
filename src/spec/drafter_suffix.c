/* spec/drafter_suffix.c - the longest end of the text that occurred before, here or in an answer.
 *
 * The text has a suffix automaton of its own; recent answers to the same tenant have others
 * (spec/suffix_pools.h). The longest match wins; of equal ones, that in the text itself. A draft
 * ends where it is probably wrong. A long match is trusted more, so drafts grow with the match: one
 * that occurred once gives about 1.2 drafts for each of its tokens.
 */
#include "base/check.h"
#include "base/mem.h"
#include "spec/drafter.h"
#include "spec/suffix_automaton.h"
#include "spec/suffix_pools.h"

/* A draft ends where its chance to be right is smaller. Chosen by measurement (README.md). */
static const double chance_min = 0.2;

struct suffix {
    struct suffix_automaton *own;
    struct suffix_pools *pools; /* borrowed; or NULL */
    struct kv_salt salt;
};

static void destroy(void *self) {
    struct suffix *s = self;
    if (!s) return;
    suffix_automaton_destroy(s->own);
    mem_free(s);
}

static void index_final(struct suffix *s, const int32_t *tokens, uint32_t known) {
    uint32_t done = suffix_automaton_tokens(s->own);
    while (done < known && suffix_automaton_add(s->own, tokens[done])) done++;
}

static enum status create(const struct drafter_setup *setup, void **self, struct err *err) {
    struct suffix *s = mem_zalloc(sizeof(*s));
    if (!s || suffix_automaton_create(&s->own, setup->tokens_max) != ST_OK) {
        destroy(s);
        return err_set(err, ST_NOMEM, "out of memory for drafts of %u tokens", setup->tokens_max);
    }
    s->pools = setup->pools;
    s->salt = setup->salt;
    if (setup->prompt) index_final(s, setup->prompt, setup->prompt_tokens);
    *self = s;
    return ST_OK;
}

/* Where the end of the text occurs in its own final tokens. */
static struct suffix_match match_own(const struct suffix *s, const int32_t *tokens,
                                     uint32_t count) {
    struct suffix_match m = suffix_automaton_repeat(s->own);
    uint32_t at = suffix_automaton_tokens(s->own);
    if (count - at > SUFFIX_POOL_WINDOW) { /* the automaton was full long ago */
        at = count - SUFFIX_POOL_WINDOW;
        m = (struct suffix_match){0};
    }
    for (; at < count; at++) m = suffix_automaton_step(s->own, m, tokens[at]);
    return suffix_automaton_followed(s->own, m);
}

static uint32_t propose(void *self, const int32_t *tokens, uint32_t known, uint32_t count,
                        uint32_t max, int32_t *out) {
    struct suffix *s = self;
    CHECK(known <= count);
    index_final(s, tokens, known);
    struct suffix_match match = match_own(s, tokens, count);
    const struct suffix_automaton *found = NULL;
    if (s->pools) found = suffix_pools_find(s->pools, s->salt, tokens, count, match.tokens, &match);
    return suffix_automaton_guess(found ? found : s->own, match, chance_min, max, out);
}

static void end(void *self, const int32_t *tokens, uint32_t count, uint32_t prompt_tokens) {
    struct suffix *s = self;
    if (s->pools && count > prompt_tokens)
        suffix_pools_add(s->pools, s->salt, tokens + prompt_tokens, count - prompt_tokens);
}

static size_t bytes_for(const struct drafter_setup *setup) {
    return sizeof(struct suffix) + suffix_automaton_bytes_for(setup->tokens_max);
}

static size_t bytes_held(const void *self) {
    const struct suffix *s = self;
    return sizeof(*s) + suffix_automaton_bytes(s->own);
}

static void verify(const void *self) {
    const struct suffix *s = self;
    suffix_automaton_verify(s->own);
}

const struct drafter drafter_suffix = {
    .name = "suffix",
    .reads_answers = true,
    .summary = "what followed the longest match in the same text or in recent answers",
    .create = create,
    .destroy = destroy,
    .propose = propose,
    .end = end,
    .bytes_for = bytes_for,
    .bytes = bytes_held,
    .verify = verify,
};
