/* grammar/grammar_cache.h - compiled grammars, shared between requests of a tenant.
 *
 * A grammar is found by its tenant, kind, source, options and vocabulary. The first request that
 * asks for one compiles it; those that ask meanwhile wait for the result. Everything that matching
 * has computed (states, masks) serves the next requests, too. A source that was refused is
 * remembered with its refusal.
 *
 *     grammar_cache_take --> lease.grammar --matcher_init--> ... --> grammar_cache_give
 *
 * A lease says that matchers of the grammar may be in use: it is not destroyed until the lease is
 * given back. Every matcher is released before that. Grammars without a lease are kept as far as
 * the bytes allow; the least recently used are removed first.
 *
 * Lifetime: create, use, destroy after the last lease was given back. Thread: any.
 */
#ifndef GRAMMAR_GRAMMAR_CACHE_H
#define GRAMMAR_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

struct grammar_cache; /* opaque */
struct grammar_entry; /* opaque */

struct grammar_lease {
    struct grammar *grammar;
    struct grammar_entry *entry;
};

/* used_max: byte limit of grammars in use. kept_max: while the bytes of all grammars exceed it,
 * unused ones are removed.
 * 0: the defaults, 512 MiB and 256 MiB. */
enum status grammar_cache_create(size_t used_max, size_t kept_max, struct grammar_cache **out);
void grammar_cache_destroy(struct grammar_cache *c); /* NULL is fine */

/* Find or compile; returns and fails as grammar_compile does. ST_UNAVAILABLE: too much memory is in
 * use, by all or by the options' tenant. It may wait for another thread that
 * compiles the same. options->cancelled is called by this thread only: a request that is cancelled
 * while it waits returns ST_CANCELLED, and a compile ends when nobody waits for it any more.
 * `vocabulary` is the one that masks are made for; NULL: none. It outlives the cache. */
enum status grammar_cache_take(struct grammar_cache *c, struct str source,
                               const struct grammar_options *options,
                               const struct vocabulary *vocabulary, struct grammar_lease *out,
                               struct grammar_refusal *why);
void grammar_cache_give(struct grammar_cache *c, struct grammar_lease *lease); /* zeroed is fine */

struct grammar_cache_counts {
    uint32_t entries; /* grammars and refusals that are remembered */
    uint32_t leases;
    size_t used_bytes;        /* of those that are in use, now */
    size_t bytes;             /* of the entries; of one in use as when it was last taken or given */
    uint64_t takes, compiles; /* since the start */
};
struct grammar_cache_counts grammar_cache_count(struct grammar_cache *c);
void grammar_cache_verify(struct grammar_cache *c);

#endif
