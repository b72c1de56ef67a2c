/* engine/control.c - see engine/control.h. */
#include "engine/control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kv/cache.h"

struct control {
    atomic_bool is_asked;
    pthread_mutex_t lock;
    uint64_t asked, taken, done; /* tickets */
    bool wants_map, wants_change, has_taken_change;
    struct control_rules rules, next;
    uint32_t block_count;
    uint8_t *map;
};

enum status control_create(struct control **out, const struct control_rules *rules) {
    struct control *c = mem_zalloc(sizeof(*c));
    if (!c) return ST_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    c->rules = *rules;
    c->block_count = rules->knobs.kv_blocks;
    c->map = mem_zalloc_array(c->block_count, sizeof(c->map[0]));
    if (c->map) {
        *out = c;
        return ST_OK;
    }
    control_destroy(c);
    return ST_NOMEM;
}

void control_destroy(struct control *c) {
    if (!c) return;
    pthread_mutex_destroy(&c->lock);
    mem_free(c->map);
    mem_free(c);
}

struct control_rules control_rules(struct control *c) {
    pthread_mutex_lock(&c->lock);
    struct control_rules rules = c->rules;
    pthread_mutex_unlock(&c->lock);
    return rules;
}

/* Under the lock. */
static uint64_t ask(struct control *c) {
    atomic_store(&c->is_asked, true);
    return ++c->asked;
}

uint64_t control_ask_map(struct control *c) {
    pthread_mutex_lock(&c->lock);
    c->wants_map = true;
    uint64_t ticket = ask(c);
    pthread_mutex_unlock(&c->lock);
    return ticket;
}

enum status control_ask_change(struct control *c, const struct control_rules *rules,
                               uint64_t *ticket) {
    pthread_mutex_lock(&c->lock);
    bool is_busy = c->wants_change;
    if (!is_busy) {
        c->wants_change = true;
        c->next = *rules;
        *ticket = ask(c);
    }
    pthread_mutex_unlock(&c->lock);
    return is_busy ? ST_FULL : ST_OK;
}

bool control_is_done(struct control *c, uint64_t ticket) {
    pthread_mutex_lock(&c->lock);
    bool is_done = c->done >= ticket;
    pthread_mutex_unlock(&c->lock);
    return is_done;
}

void control_map(struct control *c, uint8_t *out) {
    pthread_mutex_lock(&c->lock);
    memcpy(out, c->map, c->block_count);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the engine thread ---- */

bool control_is_asked(const struct control *c) {
    return atomic_load_explicit(&c->is_asked, memory_order_relaxed);
}

bool control_take(struct control *c, struct control_rules *rules) {
    pthread_mutex_lock(&c->lock);
    bool has_change = c->has_taken_change = c->wants_change;
    c->taken = c->asked;
    if (has_change) *rules = c->next;
    pthread_mutex_unlock(&c->lock);
    return has_change;
}

void control_finish(struct control *c, const struct kv_cache *kv) {
    pthread_mutex_lock(&c->lock);
    if (c->wants_map) kv_cache_states(kv, c->map);
    if (c->has_taken_change) {
        c->rules = c->next;
        c->wants_change = c->has_taken_change = false;
    }
    c->wants_map = false;
    c->done = c->taken;
    atomic_store(&c->is_asked, c->asked > c->taken);
    pthread_mutex_unlock(&c->lock);
}
