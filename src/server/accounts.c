/* server/accounts.c - see server/accounts.h. Tenants are numbered from 0 without gaps. */
#include "server/accounts.h"

#include "access/keys.h"
#include "base/check.h"
#include "base/mem.h"

struct accounts {
    struct account **list; /* [count], by tenant; NULL: never seen */
    uint32_t count;
};

enum status accounts_create(struct accounts **out) {
    *out = mem_zalloc(sizeof(**out));
    return *out ? ST_OK : ST_NOMEM;
}

/* What a tenant took was given back, whatever way its requests ended. */
static void check_empty(const struct account *a) {
    CHECK(a->lane.running == 0);
    CHECK(a->lane.items.held == 0);
    CHECK(a->lane.bytes.held == 0);
    CHECK(a->embeddings.held == 0);
    CHECK(a->answers.held == 0);
    CHECK(a->kept.held == 0);
    CHECK(a->kept_generations.count == 0);
}

void accounts_destroy(struct accounts *all) {
    if (!all) return;
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i]) check_empty(all->list[i]);
        mem_free(all->list[i]);
    }
    mem_free(all->list);
    mem_free(all);
}

static bool make_room(struct accounts *all, uint32_t tenant) {
    if (tenant < all->count) return true;
    uint32_t count = all->count * 2 > tenant + 1 ? all->count * 2 : tenant + 1;
    struct account **list = mem_realloc(all->list, count * sizeof(struct account *));
    if (!list) return false;
    for (uint32_t i = all->count; i < count; i++) list[i] = NULL;
    all->list = list;
    all->count = count;
    return true;
}

struct account *accounts_find(struct accounts *all, const struct key *key) {
    uint32_t tenant = key ? key->tenant : 0;
    if (!make_room(all, tenant)) return NULL;
    if (!all->list[tenant]) all->list[tenant] = mem_zalloc(sizeof(struct account));
    return all->list[tenant];
}

uint32_t accounts_count(const struct accounts *all) { return all->count; }

struct account *accounts_at(const struct accounts *all, uint32_t i) {
    CHECK(i < all->count);
    return all->list[i];
}
