/* server/generation_keep.c - finding a generation, keeping those that have ended, and the memory
 * that all of them take. */
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "access/keys.h"
#include "server/accounts.h"
#include "server/generation_int.h"
#include "server/generations.h"
#include "server/shortage.h"

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

/* Stored work belongs to the owner of its key, which may have several keys, and others later. */
static bool is_own(const struct generation *gen, const struct key *key) {
    if (gen->key == key) return true;
    return gen->is_durable && key && gen->key && str_is(str_of(gen->key->owner), key->owner);
}

/* If an x-request-id was used twice, the later one is found; never one of another key. */
static struct generation *find_request(const struct generations *all, const struct key *key,
                                       struct str id) {
    struct generation *gen = all->by_request[bucket_of(id)];
    while (gen && (!is_own(gen, key) || !str_is(id, gen->request_id))) gen = gen->by_request;
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
    return gen && is_own(gen, key) ? gen : NULL;
}

/* ---- kept ---- */

/* Memory of a generation that is not counted: samplers, the allocator's overhead.
 * Measured: 15,000 small generations took 6.6 KiB each, of which 3.1 were counted. */
static const uint64_t WEIGHT_REST_BYTES = 4096;

static uint64_t bytes_of(const struct generation *gen) {
    return sizeof(*gen) + WEIGHT_REST_BYTES + api_request_bytes(&gen->request) + gen->engine_bytes +
           gen->stored_bytes + event_log_bytes(gen->answer.log);
}

void generation_unkeep(struct generation *gen) {
    struct generations *all = gen->all;
    CHECK(gen->is_kept);
    list_remove(&all->kept, &gen->in_kept);
    list_remove(&gen->account->kept_generations, &gen->in_own_kept);
    gen->is_kept = false;
    gen->is_findable = false;
    share_give(&all->keep, &gen->account->kept, gen->kept_bytes);
}

static struct generation *oldest(const struct generations *all) {
    return LIST_ITEM(all->kept.first, struct generation, in_kept);
}

static void drop(struct generation *gen) {
    generation_unkeep(gen);
    generation_check_end(gen);
}

void generations_drop_oldest(struct generations *all) { drop(oldest(all)); }

/* The oldest kept one of a tenant. False: it has none. */
static bool drop_own_oldest(const struct account *account) {
    struct list_link *first = account->kept_generations.first;
    if (first) drop(LIST_ITEM(first, struct generation, in_own_kept));
    return first != NULL;
}

/* ---- memory ---- */

/* The error of a charge that was refused; `e` may be NULL. */
static enum status refuse(struct generations *all, enum status st, uint64_t bytes, uint64_t most,
                          struct api_error *e) {
    all->refused++;
    if (e) shortage_put(SHORTAGE_ANSWERS, st, bytes, most, e);
    return st;
}

enum status generation_charge(struct generation *gen, uint64_t more, struct api_error *e) {
    struct generations *all = gen->all;
    struct share *share = &gen->account->answers;
    const uint64_t most = share_most(&all->answers);
    uint64_t bytes = bytes_of(gen) + more, before = gen->charged_bytes;
    if (bytes <= before) {
        share_give(&all->answers, share, before - bytes);
        gen->charged_bytes = bytes;
        return ST_OK;
    }
    if (bytes > most) return refuse(all, ST_BAD, bytes, most, e); /* and nothing is dropped */
    while (!share_take(&all->answers, share, bytes - before)) {
        if (drop_own_oldest(gen->account)) continue;
        return refuse(all, shortage_status(&all->answers, bytes, bytes - before), bytes, most, e);
    }
    gen->charged_bytes = bytes;
    return ST_OK;
}

/* A tenant within its share may go on even if others have used up the total; one above its share
 * may go on while there is room. So an arriving tenant makes no answer of another fail, and the
 * tenants that hold too much give way when memory runs out. */
enum status generation_grow(struct generation *gen, uint64_t more, struct api_error *e) {
    struct generations *all = gen->all;
    struct share *share = &gen->account->answers;
    uint64_t bytes = bytes_of(gen) + more, before = gen->charged_bytes;
    if (bytes <= before) return ST_OK;
    uint64_t added = bytes - before, most = all->answers.max;
    if (bytes > most) return refuse(all, ST_BAD, bytes, most, e);
    while (all->answers.used + added > all->answers.max &&
           share->held + added > share_limit(&all->answers, share)) {
        if (!drop_own_oldest(gen->account)) return refuse(all, ST_UNAVAILABLE, bytes, most, e);
    }
    share_add(&all->answers, share, added);
    gen->charged_bytes = bytes;
    return ST_OK;
}

void generation_discharge(struct generation *gen) {
    if (gen->account) share_give(&gen->all->answers, &gen->account->answers, gen->charged_bytes);
    gen->charged_bytes = 0;
}

void generations_set_memory(struct generations *all, uint64_t answers_bytes, bool is_single) {
    all->answers.max = answers_bytes;
    all->answers.is_single = all->keep.is_single = is_single;
}

/* ---- kept ---- */

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

/* Would it fit if its tenant kept nothing else? */
static bool may_fit(const struct generation *gen) {
    const struct budget *keep = &gen->all->keep;
    const struct share *share = &gen->account->kept;
    return gen->charged_bytes <= share_limit(keep, share) &&
           keep->used - share->held + gen->charged_bytes <= keep->max;
}

bool generation_keep(struct generation *gen) {
    struct generations *all = gen->all;
    CHECK(!gen->is_kept);
    if (generation_charge(gen, 0, NULL) != ST_OK || !may_fit(gen)) return false;
    gen->kept_bytes = gen->charged_bytes;
    while (!share_take(&all->keep, &gen->account->kept, gen->kept_bytes))
        CHECK(drop_own_oldest(gen->account));
    gen->kept_until_us = clock_now(&clock_real) + all->options.keep_ms * 1000;
    list_push_last(&all->kept, &gen->in_kept);
    list_push_last(&gen->account->kept_generations, &gen->in_own_kept);
    gen->is_kept = true;
    set_timer(all);
    return true;
}

void generations_set_keep(struct generations *all, int64_t keep_ms, uint64_t keep_bytes) {
    all->options.keep_ms = keep_ms;
    all->keep.max = keep_bytes;
    while (all->kept.first && all->keep.used > keep_bytes) generations_drop_oldest(all);
}
