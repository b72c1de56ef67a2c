/* access/quota.h - usage in the last minute, and whether a limit allows more.
 *
 * A ring of one-second slots, so "N per minute" means at most N in any sixty seconds, with a
 * precision of one slot. The tokens that a request may use are reserved when it begins, and what it
 * has used is counted when it ends. So requests that run at the same time cannot exceed the limit
 * together.
 *
 * Lifetime: zeroed is empty. Thread: the I/O thread.
 */
#ifndef ACCESS_QUOTA_H
#define ACCESS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct key_refusal;
struct key_room;

enum { QUOTA_SLOTS = 60 };

struct quota_limits {
    uint32_t rpm, tpm, concurrent; /* 0: no limit */
};

struct quota {
    int64_t second; /* of the newest slot */
    uint32_t requests[QUOTA_SLOTS];
    uint64_t tokens[QUOTA_SLOTS];
    uint64_t request_sum, token_sum; /* of all slots */
    uint32_t under_way;              /* requests that have begun and not ended */
    uint64_t reserved;               /* tokens of these */
};

/* May a request begin, as far as this is known without its prompt? false: `why` is filled. */
bool quota_allows(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_refusal *why);
void quota_begin(struct quota *q, int64_t now_us);
/* May a request that has begun reserve so many tokens? false: `why` is filled. */
bool quota_allows_tokens(struct quota *q, const struct quota_limits *limits, uint64_t tokens,
                         int64_t now_us, struct key_refusal *why);
void quota_reserve(struct quota *q, uint64_t tokens);
/* `reserved`: what this request has reserved, `used`: what it has used of it. */
void quota_end(struct quota *q, uint64_t reserved, uint64_t used, int64_t now_us);

/* Lower `room` to what these limits leave. */
void quota_narrow(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_room *room);

#endif
