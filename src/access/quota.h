/* access/quota.h - usage in the last minute, and whether a limit allows more.
 *
 * A ring of one-second slots, so "N per minute" means at most N in any sixty seconds, with a
 * precision of one slot. The tokens of an answer are known only at its end; until then a request
 * under way is charged the average of the answers before it.
 *
 * Lifetime: zeroed is empty. Thread: the I/O thread.
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
    int64_t second; /* of the newest slot */
    uint32_t requests[QUOTA_SLOTS];
    uint64_t tokens[QUOTA_SLOTS];
    uint64_t request_sum, token_sum; /* of all slots */
    uint32_t under_way;
    double answer_tokens; /* of one answer, on average */
};

/* May a request with such a prompt begin? false: *limit is the limit that is reached, *wait_ms when
 * to try again. */
bool quota_allows(struct quota *q, const struct quota_limits *limits, uint32_t prompt_tokens,
                  int64_t now_us, int64_t *wait_ms, const char **limit);
void quota_begin(struct quota *q, uint32_t prompt_tokens, int64_t now_us);
void quota_end(struct quota *q, uint32_t completion_tokens, int64_t now_us);

/* Lower `room` to what these limits leave. */
void quota_narrow(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_room *room);

#endif
