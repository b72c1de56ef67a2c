/* server/generation_keep.c - finding a generation, and keeping those that have ended. See
 * server/generation.h. */
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/generation_int.h"

static uint32_t bucket_of(struct str id) {
    return (uint32_t)(XXH3_64bits(id.ptr, id.len) % GENERATION_BUCKETS);
}

void generation_list(struct generation *r) {
    struct generations *all = r->all;
    uint32_t i = bucket_of(str_of(r->answer.id)), j = bucket_of(str_of(r->request_id));
    r->by_id = all->by_id[i];
    all->by_id[i] = r;
    r->by_request = all->by_request[j];
    if (r->by_request) r->by_request->by_request_prev = r;
    all->by_request[j] = r;
}

void generation_unlist(struct generation *r) {
    struct generation **at = &r->all->by_id[bucket_of(str_of(r->answer.id))];
    while (*at != r) at = &(*at)->by_id;
    *at = r->by_id;
    /* Clients choose this one, so a chain may be as long as there are generations: no search. */
    if (r->by_request_prev)
        r->by_request_prev->by_request = r->by_request;
    else
        r->all->by_request[bucket_of(str_of(r->request_id))] = r->by_request;
    if (r->by_request) r->by_request->by_request_prev = r->by_request_prev;
}

static struct generation *find_id(const struct generations *all, struct str id) {
    struct generation *r = all->by_id[bucket_of(id)];
    while (r && !str_is(id, r->answer.id)) r = r->by_id;
    return r;
}

/* The same x-request-id may come twice: the later one is meant, and none of another key. */
static struct generation *find_request(const struct generations *all, const struct key *key,
                                       struct str id) {
    struct generation *r = all->by_request[bucket_of(id)];
    while (r && (r->key != key || !str_is(id, r->request_id))) r = r->by_request;
    return r;
}

static struct generation *find_any(const struct generations *all, const struct key *key,
                                   struct str id) {
    struct generation *r = find_id(all, id);
    if (!r) r = find_request(all, key, id);
    /* Ids of ours have neither of these: what stands before the last is a codec's prefix. */
    for (size_t i = id.len; !r && i-- > 0;) {
        if (id.ptr[i] != '-' && id.ptr[i] != '_') continue;
        return find_id(all, str_skip(id, i + 1));
    }
    return r;
}

struct generation *generation_find(const struct generations *all, const struct key *key,
                                   struct str id) {
    struct generation *r = find_any(all, key, id);
    return r && r->key == key ? r : NULL;
}

/* ---- kept ---- */

/* What a generation holds beside what can be counted: its parsed body, samplers, the allocator's
 * own.
 * Measured: 15,000 small generations took 6.6 KiB each, of which 3.1 were counted. */
static const uint64_t WEIGHT_REST_BYTES = 4096;

uint64_t generation_weight(const struct generation *r) {
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

void generation_unkeep(struct generation *r) {
    struct generations *all = r->all;
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

static void drop_oldest(struct generations *all) {
    struct generation *r = all->kept_first;
    generation_unkeep(r);
    generation_settle(r);
}

static void set_timer(struct generations *all) {
    if (!all->kept_first || all->is_closed) return;
    if (uv_is_active((uv_handle_t *)&all->keep_timer)) return;
    int64_t left_us = all->kept_first->kept_until_us - clock_now(&clock_real);
    uv_timer_start(&all->keep_timer, generations_on_keep,
                   left_us > 0 ? (uint64_t)left_us / 1000 + 1 : 1, 0);
}

void generations_on_keep(uv_timer_t *timer) {
    struct generations *all = timer->data;
    int64_t now_us = clock_now(&clock_real);
    while (all->kept_first && all->kept_first->kept_until_us <= now_us) drop_oldest(all);
    set_timer(all);
}

void generation_keep(struct generation *r) {
    struct generations *all = r->all;
    CHECK(!r->is_kept);
    r->kept_bytes = generation_weight(r);
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

void generations_set_keep(struct generations *all, int64_t keep_ms, uint64_t keep_bytes) {
    all->options.keep_ms = keep_ms;
    all->options.keep_bytes = keep_bytes;
    while (all->kept_first && all->kept_bytes > keep_bytes) drop_oldest(all);
}
