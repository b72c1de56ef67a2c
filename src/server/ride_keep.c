/* server/ride_keep.c - finding a ride, and keeping those that have ended. See server/ride.h. */
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/ride_int.h"

static uint32_t bucket_of(struct str id) {
    return (uint32_t)(XXH3_64bits(id.ptr, id.len) % RIDE_BUCKETS);
}

void ride_list(struct ride *r) {
    struct rides *all = r->all;
    uint32_t i = bucket_of(str_of(r->answer.id)), j = bucket_of(str_of(r->request_id));
    r->by_id = all->by_id[i];
    all->by_id[i] = r;
    r->by_request = all->by_request[j];
    if (r->by_request) r->by_request->by_request_prev = r;
    all->by_request[j] = r;
}

void ride_unlist(struct ride *r) {
    struct ride **at = &r->all->by_id[bucket_of(str_of(r->answer.id))];
    while (*at != r) at = &(*at)->by_id;
    *at = r->by_id;
    /* Clients choose this one, so a chain may be as long as there are rides: no search. */
    if (r->by_request_prev)
        r->by_request_prev->by_request = r->by_request;
    else
        r->all->by_request[bucket_of(str_of(r->request_id))] = r->by_request;
    if (r->by_request) r->by_request->by_request_prev = r->by_request_prev;
}

static struct ride *find_id(const struct rides *all, struct str id) {
    struct ride *r = all->by_id[bucket_of(id)];
    while (r && !str_is(id, r->answer.id)) r = r->by_id;
    return r;
}

/* The same x-request-id may come twice: the later one is meant, and none of another key. */
static struct ride *find_request(const struct rides *all, const struct key *key, struct str id) {
    struct ride *r = all->by_request[bucket_of(id)];
    while (r && (r->key != key || !str_is(id, r->request_id))) r = r->by_request;
    return r;
}

static struct ride *find_any(const struct rides *all, const struct key *key, struct str id) {
    struct ride *r = find_id(all, id);
    if (!r) r = find_request(all, key, id);
    /* Ids of ours have neither of these: what stands before the last is a codec's prefix. */
    for (size_t i = id.len; !r && i-- > 0;) {
        if (id.ptr[i] != '-' && id.ptr[i] != '_') continue;
        return find_id(all, str_skip(id, i + 1));
    }
    return r;
}

struct ride *ride_find(const struct rides *all, const struct key *key, struct str id) {
    struct ride *r = find_any(all, key, id);
    return r && r->key == key ? r : NULL;
}

/* ---- kept ---- */

/* What a ride holds beside what can be counted: its parsed body, samplers, the allocator's own.
 * Measured: 15,000 small rides took 6.6 KiB each, of which 3.1 were counted. */
static const uint64_t WEIGHT_REST_BYTES = 4096;

uint64_t ride_weight(const struct ride *r) {
    uint64_t bytes = sizeof(*r) + WEIGHT_REST_BYTES;
    bytes += event_log_bytes(r->answer.log) + 2 * r->body_bytes;
    for (uint32_t i = 0; i < r->answer.choice_count; i++) {
        const struct choice *c = r->answer.choices[i].tokens;
        if (!c) continue;
        uint64_t answer = c->total_max - c->prompt_tokens;
        bytes += sizeof(*c) + c->total_max * sizeof(c->tokens[0]);
        if (c->logprobs) bytes += answer * sizeof(c->logprobs[0]);
        if (c->tops) bytes += answer * sizeof(c->tops[0]);
        if (c->index > 0) continue;
        const struct request *q = c->request;
        if (q->prompt_logprobs) bytes += c->prompt_tokens * sizeof(q->prompt_logprobs[0]);
        if (q->prompt_tops) bytes += c->prompt_tokens * sizeof(q->prompt_tops[0]);
    }
    return bytes;
}

void ride_unkeep(struct ride *r) {
    struct rides *all = r->all;
    CHECK(r->is_kept);
    if (r->kept_prev)
        r->kept_prev->kept_next = r->kept_next;
    else
        all->kept_first = r->kept_next;
    if (r->kept_next)
        r->kept_next->kept_prev = r->kept_prev;
    else
        all->kept_last = r->kept_prev;
    r->is_kept = false;
    r->is_findable = false;
    all->kept--;
    all->kept_bytes -= r->kept_bytes;
}

static void drop_oldest(struct rides *all) {
    struct ride *r = all->kept_first;
    ride_unkeep(r);
    ride_settle(r);
}

static void set_timer(struct rides *all) {
    if (!all->kept_first || all->is_closed) return;
    if (uv_is_active((uv_handle_t *)&all->keep_timer)) return;
    int64_t left_us = all->kept_first->kept_until_us - clock_now(&clock_real);
    uv_timer_start(&all->keep_timer, rides_on_keep, left_us > 0 ? (uint64_t)left_us / 1000 + 1 : 1,
                   0);
}

void rides_on_keep(uv_timer_t *timer) {
    struct rides *all = timer->data;
    int64_t now_us = clock_now(&clock_real);
    while (all->kept_first && all->kept_first->kept_until_us <= now_us) drop_oldest(all);
    set_timer(all);
}

void ride_keep(struct ride *r) {
    struct rides *all = r->all;
    CHECK(!r->is_kept);
    r->kept_bytes = ride_weight(r);
    r->kept_until_us = clock_now(&clock_real) + all->options.keep_ms * 1000;
    r->kept_prev = all->kept_last;
    r->kept_next = NULL;
    if (all->kept_last)
        all->kept_last->kept_next = r;
    else
        all->kept_first = r;
    all->kept_last = r;
    r->is_kept = true;
    all->kept++;
    all->kept_bytes += r->kept_bytes;
    while (all->kept_bytes > all->options.keep_bytes && all->kept_first != r) drop_oldest(all);
    set_timer(all);
}

void rides_set_keep(struct rides *all, int64_t keep_ms, uint64_t keep_bytes) {
    all->options.keep_ms = keep_ms;
    all->options.keep_bytes = keep_bytes;
    while (all->kept_first && all->kept_bytes > keep_bytes) drop_oldest(all);
}
