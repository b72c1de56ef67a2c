/* spec/suffix_pools.h - recent answers, one pool for each tenant.
 *
 * A pool belongs to one salt (kv/prefix.h): only requests with that salt read it and add to it. It
 * has two generations of answers, each with a suffix automaton. Answers are added to the newer one;
 * when it is full it becomes the older one, and the older one is forgotten. There are pools for
 * `salt_max` salts; the least recently used pool is given to the next salt, empty.
 *
 * Adding an answer copies its tokens. The automaton takes them later, SUFFIX_POOL_BATCH for each
 * guess, so that the end of a long answer does not make a step longer.
 *
 * Lifetime: one per engine; it outlives the drafters that use it. Thread: the engine thread; create
 * and destroy from any. Memory: all taken by create, suffix_pools_bytes; touched as answers are
 * added.
 */
#ifndef SPEC_SUFFIX_POOLS_H
#define SPEC_SUFFIX_POOLS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/prefix.h"
#include "spec/suffix_automaton.h"

enum { SUFFIX_POOL_BATCH = 16 };  /* tokens that are indexed for each guess */
enum { SUFFIX_POOL_WINDOW = 32 }; /* the longest match that is looked for */

/* 16 salts with 65,536 tokens each take at most 88 MB. */
enum { SUFFIX_POOL_SALTS_DEFAULT = 16, SUFFIX_POOL_TOKENS_DEFAULT = 65536 };

struct suffix_pools; /* opaque */

/* `tokens_max` is for one salt, both generations together, at least 2. ST_NOMEM. */
enum status suffix_pools_create(struct suffix_pools **out, uint32_t salt_max, uint32_t tokens_max);
void suffix_pools_destroy(struct suffix_pools *p); /* NULL is fine */

/* Remember an answer. Of one longer than a generation, the end is kept. */
void suffix_pools_add(struct suffix_pools *p, struct kv_salt salt, const int32_t *tokens,
                      uint32_t count);

/* Where the end of a text occurs in the answers of its salt, if it does in more than
 * `longer_than` tokens. Returns the automaton for suffix_automaton_guess, or NULL; it is valid
 * until the next call. Also indexes SUFFIX_POOL_BATCH tokens of that salt. */
const struct suffix_automaton *suffix_pools_find(struct suffix_pools *p, struct kv_salt salt,
                                                 const int32_t *tokens, uint32_t count,
                                                 uint32_t longer_than, struct suffix_match *match);

/* Index everything that was added for a salt: for tests. */
void suffix_pools_index_all(struct suffix_pools *p, struct kv_salt salt);

uint32_t suffix_pools_salts(const struct suffix_pools *p); /* how many have a pool */
/* Tokens that are remembered for a salt, those between answers included. */
uint32_t suffix_pools_tokens(const struct suffix_pools *p, struct kv_salt salt);
size_t suffix_pools_bytes(const struct suffix_pools *p);
void suffix_pools_verify(const struct suffix_pools *p); /* CHECK all invariants; slow */

#endif
