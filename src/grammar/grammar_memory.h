/* grammar/grammar_memory.h - the memory of the grammars that requests use: a total, and the share
 * of it that one tenant may hold (base/share.h).
 *
 * A grammar is charged while requests hold it; its tables grow and shrink meanwhile. A grammar that
 * would grow past what is left forgets first what it can compute again.
 *
 * Lifetime: create, destroy when nothing is charged. Thread: any. Memory: some bytes a tenant.
 */
#ifndef GRAMMAR_GRAMMAR_MEMORY_H
#define GRAMMAR_GRAMMAR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct grammar_memory; /* opaque */
struct grammar_tenant; /* opaque: a tenant that has grammars, or asks for one */

enum status grammar_memory_create(uint64_t bytes_max, struct grammar_memory **out);
void grammar_memory_destroy(struct grammar_memory *m); /* NULL is fine */
uint64_t grammar_memory_used(struct grammar_memory *m);

/* Enter and leave go in pairs; NULL: out of memory. has_others: other tenants exist, so the
 * total is divided; the value of the last call applies to all. */
struct grammar_tenant *grammar_memory_enter(struct grammar_memory *m, uint32_t tenant,
                                            bool has_others);
void grammar_memory_leave(struct grammar_memory *m, struct grammar_tenant *t);

/* How much more the tenant may hold. *is_share, if not NULL: the share is the limit, not the total.
 * */
uint64_t grammar_memory_room(struct grammar_memory *m, const struct grammar_tenant *t,
                             bool *is_share);
/* False: there is no room for so much, and nothing is charged. */
bool grammar_memory_take(struct grammar_memory *m, struct grammar_tenant *t, uint64_t bytes);

struct grammar_pressure {
    uint64_t room; /* as grammar_memory_room */
    bool is_high;  /* little is left: give back what can be */
};
/* Change a charge from `before` to `now` bytes. It never fails: the memory is already allocated. */
struct grammar_pressure grammar_memory_change(struct grammar_memory *m, struct grammar_tenant *t,
                                              uint64_t before, uint64_t now);

#endif
