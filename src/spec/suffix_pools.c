/* spec/suffix_pools.c - see spec/suffix_pools.h for the contract. */
#include "spec/suffix_pools.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

enum { GENERATIONS = 2 };

struct generation {
    struct suffix_automaton *automaton; /* of the first tokens; the others wait to be indexed */
    int32_t *tokens;                    /* answers, each with a SUFFIX_END behind it */
    uint32_t count;
};

struct pool {
    struct kv_salt salt;
    uint64_t used;  /* when, in calls; 0: the pool has no salt */
    uint32_t newer; /* which generation */
    struct generation generations[GENERATIONS];
};

struct suffix_pools {
    uint32_t salt_max;
    uint32_t generation_tokens; /* of one generation */
    uint64_t calls;
    struct pool pools[];
};

/* ---- life ---- */

static enum status create_generation(struct generation *g, uint32_t tokens) {
    g->tokens = mem_alloc_array(tokens, sizeof(*g->tokens));
    if (!g->tokens) return ST_NOMEM;
    return suffix_automaton_create(&g->automaton, tokens);
}

enum status suffix_pools_create(struct suffix_pools **out, uint32_t salt_max, uint32_t tokens_max) {
    CHECK(salt_max > 0);
    CHECK(tokens_max >= GENERATIONS);
    struct suffix_pools *p = mem_zalloc(sizeof(*p) + salt_max * sizeof(p->pools[0]));
    if (!p) return ST_NOMEM;
    p->salt_max = salt_max;
    p->generation_tokens = tokens_max / GENERATIONS;
    for (uint32_t i = 0; i < salt_max * GENERATIONS; i++) {
        struct generation *g = &p->pools[i / GENERATIONS].generations[i % GENERATIONS];
        if (create_generation(g, p->generation_tokens) == ST_OK) continue;
        suffix_pools_destroy(p);
        return ST_NOMEM;
    }
    *out = p;
    return ST_OK;
}

void suffix_pools_destroy(struct suffix_pools *p) {
    if (!p) return;
    for (uint32_t i = 0; i < p->salt_max * GENERATIONS; i++) {
        struct generation *g = &p->pools[i / GENERATIONS].generations[i % GENERATIONS];
        suffix_automaton_destroy(g->automaton);
        mem_free(g->tokens);
    }
    mem_free(p);
}

/* ---- pools of salts ---- */

static const struct pool *find_pool(const struct suffix_pools *p, struct kv_salt salt) {
    for (uint32_t i = 0; i < p->salt_max; i++)
        if (p->pools[i].used && kv_salt_eq(p->pools[i].salt, salt)) return &p->pools[i];
    return NULL;
}

/* The pool of a salt that is used now; NULL if it has none. */
static struct pool *use_pool(struct suffix_pools *p, struct kv_salt salt) {
    struct pool *pool = (struct pool *)find_pool(p, salt);
    if (pool) pool->used = ++p->calls;
    return pool;
}

static void clear_generation(struct generation *g) {
    suffix_automaton_clear(g->automaton);
    g->count = 0;
}

/* Give a salt a pool that no salt has, or else the least recently used one. */
static struct pool *take_pool(struct suffix_pools *p, struct kv_salt salt) {
    struct pool *oldest = &p->pools[0];
    for (uint32_t i = 1; i < p->salt_max; i++)
        if (p->pools[i].used < oldest->used) oldest = &p->pools[i];
    for (uint32_t i = 0; i < GENERATIONS; i++) clear_generation(&oldest->generations[i]);
    oldest->salt = salt;
    oldest->used = ++p->calls;
    return oldest;
}

/* ---- answers ---- */

void suffix_pools_add(struct suffix_pools *p, struct kv_salt salt, const int32_t *tokens,
                      uint32_t count) {
    uint32_t room = p->generation_tokens;
    if (count == 0) return;
    struct pool *pool = use_pool(p, salt);
    if (!pool) pool = take_pool(p, salt);
    if (count > room - 1) {
        tokens += count - (room - 1);
        count = room - 1;
    }
    struct generation *g = &pool->generations[pool->newer];
    if (room - g->count < count + 1) {
        pool->newer = (pool->newer + 1) % GENERATIONS;
        g = &pool->generations[pool->newer];
        clear_generation(g);
    }
    if (count > 0) memcpy(g->tokens + g->count, tokens, count * sizeof(*tokens));
    g->count += count;
    g->tokens[g->count++] = SUFFIX_END;
}

/* Index at most `max` tokens, the oldest first. */
static void index_some(struct pool *pool, uint32_t max) {
    for (uint32_t i = 1; i <= GENERATIONS; i++) {
        struct generation *g = &pool->generations[(pool->newer + i) % GENERATIONS];
        uint32_t done = suffix_automaton_tokens(g->automaton);
        while (max > 0 && done < g->count && suffix_automaton_add(g->automaton, g->tokens[done])) {
            done++;
            max--;
        }
    }
}

const struct suffix_automaton *suffix_pools_find(struct suffix_pools *p, struct kv_salt salt,
                                                 const int32_t *tokens, uint32_t count,
                                                 uint32_t longer_than, struct suffix_match *match) {
    const struct suffix_automaton *found = NULL;
    struct pool *pool = use_pool(p, salt);
    if (!pool) return NULL;
    index_some(pool, SUFFIX_POOL_BATCH);
    uint32_t window = count < SUFFIX_POOL_WINDOW ? count : SUFFIX_POOL_WINDOW;
    for (uint32_t i = 0; i < GENERATIONS; i++) { /* the newer one first: it wins a tie */
        const struct suffix_automaton *a =
            pool->generations[(pool->newer + i) % GENERATIONS].automaton;
        struct suffix_match m = {0};
        for (uint32_t j = count - window; j < count; j++)
            m = suffix_automaton_step(a, m, tokens[j]);
        m = suffix_automaton_followed(a, m);
        if (m.tokens <= longer_than) continue;
        longer_than = m.tokens;
        *match = m;
        found = a;
    }
    return found;
}

void suffix_pools_index_all(struct suffix_pools *p, struct kv_salt salt) {
    struct pool *pool = use_pool(p, salt);
    if (pool) index_some(pool, UINT32_MAX);
}

/* ---- facts ---- */

uint32_t suffix_pools_salts(const struct suffix_pools *p) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->salt_max; i++) count += p->pools[i].used > 0;
    return count;
}

uint32_t suffix_pools_tokens(const struct suffix_pools *p, struct kv_salt salt) {
    const struct pool *pool = find_pool(p, salt);
    return pool ? pool->generations[0].count + pool->generations[1].count : 0;
}

size_t suffix_pools_bytes(const struct suffix_pools *p) {
    size_t generation = suffix_automaton_bytes(p->pools[0].generations[0].automaton) +
                        p->generation_tokens * sizeof(int32_t);
    return sizeof(*p) + p->salt_max * (sizeof(p->pools[0]) + GENERATIONS * generation);
}

static void verify_generation(const struct suffix_pools *p, const struct generation *g) {
    CHECK(g->count <= p->generation_tokens);
    CHECK(suffix_automaton_tokens(g->automaton) <= g->count);
    CHECK(g->count == 0 || g->tokens[g->count - 1] == SUFFIX_END);
    suffix_automaton_verify(g->automaton);
}

void suffix_pools_verify(const struct suffix_pools *p) {
    for (uint32_t i = 0; i < p->salt_max; i++) {
        const struct pool *pool = &p->pools[i];
        CHECK(pool->newer < GENERATIONS);
        CHECK(pool->used <= p->calls);
        CHECK(pool->used == 0 || find_pool(p, pool->salt) == pool);
        for (uint32_t j = 0; j < GENERATIONS; j++) verify_generation(p, &pool->generations[j]);
    }
}
