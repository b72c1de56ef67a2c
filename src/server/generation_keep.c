/* server/generation_keep.c - finding a generation, and keeping those that have ended. */
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/generation_int.h"

static uint32_t bucket_of(struct str id) {
    return (uint32_t)(XXH3_64bits(id.ptr, id.len) % GENERATION_BUCKETS);
}

void generation_index_add(struct generation *gen) {
    struct generations *all = gen->all;
    uint32_t i = bucket_of(str_of(gen->answer.id)), j = bucket_of(str_of(gen->request_id));
    gen->by_id = all->by_id[i];
    all->by_id[i] = gen;
    gen->by_request = all->by_request[j];
    if (gen->by_request) gen->by_request->by_request_prev = gen;
    all->by_request[j] = gen;
}

void generation_index_remove(struct generation *gen) {
    struct generation **at = &gen->all->by_id[bucket_of(str_of(gen->answer.id))];
    while (*at != gen) at = &(*at)->by_id;
    *at = gen->by_id;
    /* Clients choose these ids, so one chain may hold all generations: unlink without a search. */
    if (gen->by_request_prev)
        gen->by_request_prev->by_request = gen->by_request;
    else
        gen->all->by_request[bucket_of(str_of(gen->request_id))] = gen->by_request;
    if (gen->by_request) gen->by_request->by_request_prev = gen->by_request_prev;
}

static struct generation *find_id(const struct generations *all, struct str id) {
    struct generation *gen = all->by_id[bucket_of(id)];
    while (gen && !str_is(id, gen->answer.id)) gen = gen->by_id;
    return gen;
}

/* If an x-request-id was used twice, the later one is found; never one of another key. */
static struct generation *find_request(const struct generations *all, const struct key *key,
                                       struct str id) {
    struct generation *gen = all->by_request[bucket_of(id)];
    while (gen && (gen->key != key || !str_is(id, gen->request_id))) gen = gen->by_request;
    return gen;
}

static struct generation *find_any(const struct generations *all, const struct key *key,
                                   struct str id) {
    struct generation *gen = find_id(all, id);
    if (!gen) gen = find_request(all, key, id);
    /* The server's ids have neither '-' nor '_': a codec's prefix ends at the last of these. */
    for (size_t i = id.len; !gen && i-- > 0;) {
        if (id.ptr[i] != '-' && id.ptr[i] != '_') continue;
        return find_id(all, str_skip(id, i + 1));
    }
    return gen;
}

struct generation *generation_find(const struct generations *all, const struct key *key,
                                   struct str id) {
    struct generation *gen = find_any(all, key, id);
    return gen && gen->key == key ? gen : NULL;
}

/* ---- kept ---- */

/* Memory of a generation that is not counted: its parsed body, samplers, the allocator's overhead.
 * Measured: 15,000 small generations took 6.6 KiB each, of which 3.1 were counted. */
static const uint64_t WEIGHT_REST_BYTES = 4096;

uint64_t generation_kept_bytes(const struct generation *gen) {
    uint64_t bytes = sizeof(*gen) + WEIGHT_REST_BYTES;
    bytes += event_log_bytes(gen->answer.log) + 2 * gen->body_bytes;
    for (uint32_t i = 0; i < gen->answer.choice_count; i++) {
        const struct choice *c = gen->answer.choices[i].tokens;
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

void generation_unkeep(struct generation *gen) {
    struct generations *all = gen->all;
    CHECK(gen->is_kept);
    list_remove(&all->kept, &gen->in_kept);
    gen->is_kept = false;
    gen->is_findable = false;
    all->kept_bytes -= gen->kept_bytes;
}

static struct generation *oldest(const struct generations *all) {
    return LIST_ITEM(all->kept.first, struct generation, in_kept);
}

void generations_drop_oldest(struct generations *all) {
    struct generation *gen = oldest(all);
    generation_unkeep(gen);
    generation_check_end(gen);
}

static void set_timer(struct generations *all) {
    if (!all->kept.first || all->is_closed) return;
    if (uv_is_active((uv_handle_t *)&all->keep_timer)) return;
    int64_t left_us = oldest(all)->kept_until_us - clock_now(&clock_real);
    uv_timer_start(&all->keep_timer, generations_on_keep,
                   left_us > 0 ? (uint64_t)left_us / 1000 + 1 : 1, 0);
}

void generations_on_keep(uv_timer_t *timer) {
    struct generations *all = timer->data;
    int64_t now_us = clock_now(&clock_real);
    while (all->kept.first && oldest(all)->kept_until_us <= now_us) generations_drop_oldest(all);
    set_timer(all);
}

void generation_keep(struct generation *gen) {
    struct generations *all = gen->all;
    CHECK(!gen->is_kept);
    gen->kept_bytes = generation_kept_bytes(gen);
    gen->kept_until_us = clock_now(&clock_real) + all->options.keep_ms * 1000;
    list_push_last(&all->kept, &gen->in_kept);
    gen->is_kept = true;
    all->kept_bytes += gen->kept_bytes;
    while (all->kept_bytes > all->options.keep_bytes && oldest(all) != gen)
        generations_drop_oldest(all);
    set_timer(all);
}

void generations_set_keep(struct generations *all, int64_t keep_ms, uint64_t keep_bytes) {
    all->options.keep_ms = keep_ms;
    all->options.keep_bytes = keep_bytes;
    while (all->kept.first && all->kept_bytes > keep_bytes) generations_drop_oldest(all);
}
