/* Rule broken: a sequence's mask is that of its own text. Here every ninth mask is the one that was
 * made before it, perhaps for another sequence.
 * wrap: matcher_mask */
#include "grammar/grammar.h"

void __real_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed);
void __wrap_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed);

static struct matcher last; /* of a grammar that may be gone: compared, never used, if it is */

void __wrap_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed) {
    static unsigned calls;
    struct matcher before = last;
    last = *m;
    bool is_swapped = ++calls % 9 == 0 && before.grammar == m->grammar;
    __real_matcher_mask(is_swapped ? &before : m, v, allowed);
}
