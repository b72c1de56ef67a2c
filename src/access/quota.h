/* access/quota.h - how much was used in the last minute, and whether more may be.
 *
 * A ring of one-second slots, so "N a minute" means at most N in any sixty seconds, give or take
 * a slot. Tokens of answers are known only at their end; until then each request under way counts
 * as what the answers before it took on average.
 *
 * Lifetime: zeroed is empty. Thread: the io thread.
 */
#ifndef ACCESS_QUOTA_H
#define ACCESS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct key_room;

enum { QUOTA_SLOTS = 60 };

struct quota_limits {
    uint32_t rpm, tpm, concurrent; /* 0: no limit */
};

struct quota {
    int64_t second; /* the newest slot is of this one */
    uint32_t requests[QUOTA_SLOTS];
    uint64_t tokens[QUOTA_SLOTS];
    uint64_t request_sum, token_sum; /* of all slots */
    uint32_t under_way;
    double answer_tokens; /* of one answer, on average */
};

/* May a request with such a prompt begin? Otherwise which limit says no and when to ask again. */
bool quota_allows(struct quota *q, const struct quota_limits *limits, uint32_t prompt_tokens,
                  int64_t now_us, int64_t *wait_ms, const char **limit);
void quota_begin(struct quota *q, uint32_t prompt_tokens, int64_t now_us);
void quota_end(struct quota *q, uint32_t completion_tokens, int64_t now_us);

/* Lower what `room` says to what is left here. */
void quota_narrow(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_room *room);

#endif
