/* server/shortage.h - the error for a client whose request finds no room in a budget.
 *
 * A budget of --memory-max (server/memory_plan.h) refuses for four reasons:
 *
 *     ST_BAD          the request alone is larger than its tenant can ever hold   413
 *     ST_FULL         its tenant has used up its share                            429, try again
 *     ST_UNAVAILABLE  all tenants together have used up the budget                503, try again
 *     ST_NOMEM        the allocator has no memory                                 503, try again
 *
 * Thread: any. Memory: never allocates.
 */
#ifndef SERVER_SHORTAGE_H
#define SERVER_SHORTAGE_H

#include <stdint.h>

#include "base/share.h"
#include "base/status.h"

struct api_error;

enum shortage { SHORTAGE_ANSWERS, SHORTAGE_EMBEDDINGS, SHORTAGE_WORK };

/* Why share_take refused `more` bytes for a request that needs `bytes` in all. */
enum status shortage_status(const struct budget *b, uint64_t bytes, uint64_t more);
/* Fill `e` for such a status; `most`: share_most of the budget. */
void shortage_put(enum shortage what, enum status st, uint64_t bytes, uint64_t most,
                  struct api_error *e);

#endif
