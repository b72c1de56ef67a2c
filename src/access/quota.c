/* access/quota.c - see access/quota.h. */
#include "access/quota.h"

#include "base/check.h"
#include "access/keys.h"

static const int64_t SECOND_US = 1000000;

/* It is not known when a request will end; try again after so long. */
static const int64_t UNKNOWN_WAIT_MS = 1000;

static uint32_t slot_of(int64_t second) { return (uint32_t)(second % QUOTA_SLOTS); }

static void drop_slot(struct quota *q, uint32_t slot) {
    q->request_sum -= q->requests[slot];
    q->token_sum -= q->tokens[slot];
    q->requests[slot] = 0;
    q->tokens[slot] = 0;
}

/* Let time pass: slots that are a minute old are empty again. A clock that steps back changes
 * nothing. */
static void move_to(struct quota *q, int64_t now_us) {
    CHECK(now_us >= 0);
    int64_t second = now_us / SECOND_US;
    if (second <= q->second) return;
    int64_t first = second - q->second >= QUOTA_SLOTS ? second - QUOTA_SLOTS + 1 : q->second + 1;
    for (int64_t s = first; s <= second; s++) drop_slot(q, slot_of(s));
    q->second = second;
}

/* Milliseconds until `needed` of what the slots hold has grown old. */
static int64_t wait_for(const struct quota *q, bool of_tokens, uint64_t needed, int64_t now_us) {
    for (int64_t s = q->second - QUOTA_SLOTS + 1; s <= q->second; s++) {
        if (s < 0) continue;
        uint64_t old = of_tokens ? q->tokens[slot_of(s)] : q->requests[slot_of(s)];
        needed -= old < needed ? old : needed;
        if (needed > 0) continue;
        int64_t wait_us = (s + QUOTA_SLOTS) * SECOND_US - now_us;
        return wait_us > 0 ? (wait_us + 999) / 1000 : 1;
    }
    return UNKNOWN_WAIT_MS;
}

/* What requests that have ended used, and what those under way may use. */
static uint64_t tokens_taken(const struct quota *q) { return q->token_sum + q->reserved; }

bool quota_allows_tokens(struct quota *q, const struct quota_limits *limits, uint64_t tokens,
                         int64_t now_us, struct key_refusal *why) {
    move_to(q, now_us);
    uint64_t taken = tokens_taken(q);
    if (!limits->tpm || taken + tokens <= limits->tpm) return true;
    *why = (struct key_refusal){.limit = "tokens per minute",
                                .max = limits->tpm,
                                .taken = taken,
                                .wanted = tokens,
                                .wait_ms = wait_for(q, true, taken + tokens - limits->tpm, now_us)};
    return false;
}

bool quota_allows(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_refusal *why) {
    move_to(q, now_us);
    if (limits->concurrent && q->under_way >= limits->concurrent) {
        *why = (struct key_refusal){.limit = "concurrent requests",
                                    .max = limits->concurrent,
                                    .taken = q->under_way,
                                    .wait_ms = UNKNOWN_WAIT_MS};
        return false;
    }
    if (limits->rpm && q->request_sum >= limits->rpm) {
        *why = (struct key_refusal){
            .limit = "requests per minute",
            .max = limits->rpm,
            .taken = q->request_sum,
            .wait_ms = wait_for(q, false, q->request_sum - limits->rpm + 1, now_us)};
        return false;
    }
    if (quota_allows_tokens(q, limits, 1, now_us, why)) return true;
    why->wanted = 0; /* its tokens are counted later */
    return false;
}

void quota_begin(struct quota *q, int64_t now_us) {
    move_to(q, now_us);
    q->requests[slot_of(q->second)]++;
    q->request_sum++;
    q->under_way++;
}

void quota_reserve(struct quota *q, uint64_t tokens) {
    CHECK(q->under_way > 0);
    q->reserved += tokens;
}

void quota_end(struct quota *q, uint64_t reserved, uint64_t used, int64_t now_us) {
    CHECK(q->under_way > 0);
    CHECK(q->reserved >= reserved);
    move_to(q, now_us);
    q->under_way--;
    q->reserved -= reserved;
    q->tokens[slot_of(q->second)] += used;
    q->token_sum += used;
}

static uint32_t left_of(uint32_t limit, uint64_t taken) {
    return taken >= limit ? 0 : (uint32_t)(limit - taken);
}

void quota_narrow(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_room *room) {
    move_to(q, now_us);
    if (limits->rpm) {
        uint32_t left = left_of(limits->rpm, q->request_sum);
        int64_t reset_ms = q->request_sum ? wait_for(q, false, q->request_sum, now_us) : 0;
        if (left < room->requests_left) room->requests_left = left;
        if (reset_ms > room->requests_reset_ms) room->requests_reset_ms = reset_ms;
    }
    if (limits->tpm) {
        uint32_t left = left_of(limits->tpm, tokens_taken(q));
        int64_t reset_ms = q->token_sum ? wait_for(q, true, q->token_sum, now_us) : 0;
        if (left < room->tokens_left) room->tokens_left = left;
        if (reset_ms > room->tokens_reset_ms) room->tokens_reset_ms = reset_ms;
    }
}
