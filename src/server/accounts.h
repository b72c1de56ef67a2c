/* server/accounts.h - what each tenant holds of the server's budgets.
 *
 * An account is made when its tenant is first seen and exists until the end, so its address may be
 * kept. There are as many as tenants that the key file ever named, and one for requests without a
 * key.
 *
 * Lifetime: create, find, destroy when every account holds nothing. Thread: the I/O thread.
 */
#ifndef SERVER_ACCOUNTS_H
#define SERVER_ACCOUNTS_H

#include <stdint.h>

#include "base/status.h"
#include "server/work_queue.h"

struct accounts; /* opaque */
struct key;

struct account {
    struct work_lane lane;        /* its work in libuv's pool */
    struct share embeddings;      /* memory of its requests for embeddings */
    struct share answers, kept;   /* memory of its generations; of those that are kept */
    struct list kept_generations; /* the oldest first */
};

enum status accounts_create(struct accounts **out);
void accounts_destroy(struct accounts *all); /* NULL is fine */

/* The account of the key's tenant; `key` NULL: of requests without a key. NULL: no memory. */
struct account *accounts_find(struct accounts *all, const struct key *key);
/* All that exist, by number; NULL where a tenant was never seen. For tests and `verify`. */
uint32_t accounts_count(const struct accounts *all);
struct account *accounts_at(const struct accounts *all, uint32_t i);

#endif
