/* unit/spec/walk.h - a seeded text with repeats, as a sequence with drafts under way sees it.
 *
 * A text grows by a few tokens a step. Some are copied from further up, some repeat the last few
 * tokens, so that long matches and loops occur. In each step those from `known` on are guesses:
 * the next step replaces some of them.
 */
#ifndef UNIT_SPEC_WALK_H
#define UNIT_SPEC_WALK_H

#include <stdint.h>

#include "base/rng.h"

enum { WALK_TOKENS_MAX = 4096, WALK_GUESSES_MAX = 12 };

struct walk {
    struct rng rng;
    uint32_t alphabet;
    uint32_t known, count;
    uint32_t copy_from, copy_left; /* a copy under way */
    int32_t tokens[WALK_TOKENS_MAX + WALK_GUESSES_MAX];
};

static inline int32_t walk_draw(struct walk *w, uint32_t at) {
    if (w->copy_left == 0 && at > 0 && rng_below(&w->rng, 8) == 0) {
        uint64_t back = rng_below(&w->rng, 2) ? 1 + rng_below(&w->rng, at < 5 ? at : 5)
                                              : 1 + rng_below(&w->rng, at);
        w->copy_from = at - (uint32_t)back;
        w->copy_left = (uint32_t)rng_below(&w->rng, 40);
    }
    if (w->copy_left > 0) {
        w->copy_left--;
        if (w->copy_from < at) return w->tokens[w->copy_from++];
    }
    return (int32_t)rng_below(&w->rng, w->alphabet);
}

/* Make 0 to 7 more tokens final, and put 0 to WALK_GUESSES_MAX others behind them. False: the text
 * has reached `tokens_max`. */
static inline int walk_step(struct walk *w, uint32_t tokens_max) {
    uint32_t more = (uint32_t)rng_below(&w->rng, 8);
    for (; more > 0 && w->known < tokens_max; more--, w->known++) /* A guess may have been right. */
        if (w->known >= w->count || rng_below(&w->rng, 3) == 0)
            w->tokens[w->known] = walk_draw(w, w->known);
    w->count = w->known + (uint32_t)rng_below(&w->rng, 3) * (uint32_t)rng_below(&w->rng, 7);
    if (w->count > tokens_max) w->count = tokens_max;
    for (uint32_t i = w->known; i < w->count; i++) w->tokens[i] = walk_draw(w, i);
    return w->known < tokens_max;
}

#endif
