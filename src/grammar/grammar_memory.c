/* grammar/grammar_memory.c - see grammar/grammar_memory.h for the contract. */
#include "grammar/grammar_memory.h"

#include <pthread.h>

#include "base/check.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/share.h"

enum { LEAST_PARTS = 16 }; /* a tenant may always hold so much of the total */

struct grammar_tenant {
    struct list_link in_tenants;
    uint32_t id, entered;
    struct share share;
};

struct grammar_memory {
    pthread_mutex_t lock; /* of everything below */
    struct budget all;
    struct list tenants;
};

enum status grammar_memory_create(uint64_t bytes_max, struct grammar_memory **out) {
    struct grammar_memory *m = mem_zalloc(sizeof(*m));
    if (!m) return ST_NOMEM;
    pthread_mutex_init(&m->lock, NULL);
    m->all = (struct budget){.max = bytes_max, .least = bytes_max / LEAST_PARTS};
    *out = m;
    return ST_OK;
}

void grammar_memory_destroy(struct grammar_memory *m) {
    if (!m) return;
    CHECK(m->tenants.count == 0);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

uint64_t grammar_memory_used(struct grammar_memory *m) {
    pthread_mutex_lock(&m->lock);
    uint64_t used = m->all.used;
    pthread_mutex_unlock(&m->lock);
    return used;
}

static struct grammar_tenant *find(const struct grammar_memory *m, uint32_t id) {
    for (struct list_link *l = m->tenants.first; l; l = l->next) {
        struct grammar_tenant *t = LIST_ITEM(l, struct grammar_tenant, in_tenants);
        if (t->id == id) return t;
    }
    return NULL;
}

struct grammar_tenant *grammar_memory_enter(struct grammar_memory *m, uint32_t tenant,
                                            bool has_others) {
    pthread_mutex_lock(&m->lock);
    m->all.is_single = !has_others;
    struct grammar_tenant *t = find(m, tenant);
    if (!t) {
        t = mem_zalloc(sizeof(*t));
        if (t) {
            t->id = tenant;
            list_push_last(&m->tenants, &t->in_tenants);
        }
    }
    if (t) t->entered++;
    pthread_mutex_unlock(&m->lock);
    return t;
}

void grammar_memory_leave(struct grammar_memory *m, struct grammar_tenant *t) {
    pthread_mutex_lock(&m->lock);
    CHECK(t->entered > 0);
    bool is_last = --t->entered == 0;
    if (is_last) {
        CHECK(t->share.held == 0);
        list_remove(&m->tenants, &t->in_tenants);
    }
    pthread_mutex_unlock(&m->lock);
    if (is_last) mem_free(t);
}

uint64_t grammar_memory_room(struct grammar_memory *m, const struct grammar_tenant *t,
                             bool *is_share) {
    pthread_mutex_lock(&m->lock);
    uint64_t room = share_room(&m->all, &t->share);
    if (is_share) *is_share = m->all.used + room < m->all.max;
    pthread_mutex_unlock(&m->lock);
    return room;
}

bool grammar_memory_take(struct grammar_memory *m, struct grammar_tenant *t, uint64_t bytes) {
    pthread_mutex_lock(&m->lock);
    bool is_taken = share_take(&m->all, &t->share, bytes);
    pthread_mutex_unlock(&m->lock);
    return is_taken;
}

struct grammar_pressure grammar_memory_change(struct grammar_memory *m, struct grammar_tenant *t,
                                              uint64_t before, uint64_t now) {
    pthread_mutex_lock(&m->lock);
    if (now > before)
        share_add(&m->all, &t->share, now - before);
    else
        share_give(&m->all, &t->share, before - now);
    const uint64_t limit = share_limit(&m->all, &t->share);
    const struct grammar_pressure p = {.room = share_room(&m->all, &t->share),
                                       .is_high = m->all.used > m->all.max / 4 * 3 ||
                                                  t->share.held > limit / 4 * 3};
    pthread_mutex_unlock(&m->lock);
    return p;
}
