/* access/quota.c - see access/quota.h. */
#include "access/quota.h"

#include "base/check.h"
#include "access/keys.h"

static const int64_t SECOND_US = 1000000;

/* It is not known when a request will end; try again after so long. */
static const int64_t UNKNOWN_WAIT_MS = 1000;

/* Weight of the newest answer in the average. */
static const double ANSWER_SHARE = 0.1;

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
static int64_t wait_for(const struct quota *q, bool of_tokens, double needed, int64_t now_us) {
    for (int64_t s = q->second - QUOTA_SLOTS + 1; s <= q->second; s++) {
        if (s < 0) continue;
        needed -= of_tokens ? (double)q->tokens[slot_of(s)] : (double)q->requests[slot_of(s)];
        if (needed > 0) continue;
        int64_t wait_us = (s + QUOTA_SLOTS) * SECOND_US - now_us;
        return wait_us > 0 ? (wait_us + 999) / 1000 : 1;
    }
    return UNKNOWN_WAIT_MS;
}

static double tokens_used(const struct quota *q) {
    return (double)q->token_sum + q->under_way * q->answer_tokens;
}

bool quota_allows(struct quota *q, const struct quota_limits *limits, uint32_t prompt_tokens,
                  int64_t now_us, int64_t *wait_ms, const char **limit) {
    move_to(q, now_us);
    if (limits->concurrent && q->under_way >= limits->concurrent) {
        *limit = "concurrent requests";
        *wait_ms = UNKNOWN_WAIT_MS;
        return false;
    }
    if (limits->rpm && q->request_sum >= limits->rpm) {
        *limit = "requests per minute";
        *wait_ms = wait_for(q, false, (double)(q->request_sum - limits->rpm) + 1, now_us);
        return false;
    }
    double used = tokens_used(q), wanted = prompt_tokens + q->answer_tokens;
    if (limits->tpm && used > 0 && used + wanted > limits->tpm) {
        *limit = "tokens per minute";
        *wait_ms = wait_for(q, true, used + wanted - limits->tpm, now_us);
        return false;
    }
    return true;
}

void quota_begin(struct quota *q, uint32_t prompt_tokens, int64_t now_us) {
    move_to(q, now_us);
    uint32_t slot = slot_of(q->second);
    q->requests[slot]++;
    q->request_sum++;
    q->tokens[slot] += prompt_tokens;
    q->token_sum += prompt_tokens;
    q->under_way++;
}

void quota_end(struct quota *q, uint32_t completion_tokens, int64_t now_us) {
    CHECK(q->under_way > 0);
    move_to(q, now_us);
    q->under_way--;
    q->tokens[slot_of(q->second)] += completion_tokens;
    q->token_sum += completion_tokens;
    q->answer_tokens += ANSWER_SHARE * (completion_tokens - q->answer_tokens);
}

static uint32_t left_of(double limit, double used) {
    return used >= limit ? 0 : (uint32_t)(limit - used);
}

void quota_narrow(struct quota *q, const struct quota_limits *limits, int64_t now_us,
                  struct key_room *room) {
    move_to(q, now_us);
    if (limits->rpm) {
        uint32_t left = left_of(limits->rpm, (double)q->request_sum);
        int64_t reset_ms = q->request_sum ? wait_for(q, false, (double)q->request_sum, now_us) : 0;
        if (left < room->requests_left) room->requests_left = left;
        if (reset_ms > room->requests_reset_ms) room->requests_reset_ms = reset_ms;
    }
    if (limits->tpm) {
        uint32_t left = left_of(limits->tpm, tokens_used(q));
        int64_t reset_ms = q->token_sum ? wait_for(q, true, (double)q->token_sum, now_us) : 0;
        if (left < room->tokens_left) room->tokens_left = left;
        if (reset_ms > room->tokens_reset_ms) room->tokens_reset_ms = reset_ms;
    }
}
