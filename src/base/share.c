/* base/share.c - see base/share.h. */
#include "base/share.h"

#include "base/check.h"

uint64_t share_limit(const struct budget *b, const struct share *s) {
    if (b->is_single) return b->max;
    uint64_t others = b->holders - (s->held > 0), part = b->max / (others + 2);
    uint64_t least = b->least < b->max ? b->least : b->max;
    return part > least ? part : least;
}

uint64_t share_most(const struct budget *b) {
    struct budget unused = *b;
    unused.holders = 0;
    return share_limit(&unused, &(struct share){0});
}

uint64_t share_room(const struct budget *b, const struct share *s) {
    uint64_t limit = share_limit(b, s);
    uint64_t own = limit > s->held ? limit - s->held : 0;
    uint64_t all = b->max > b->used ? b->max - b->used : 0;
    return own < all ? own : all;
}

bool share_take(struct budget *b, struct share *s, uint64_t amount) {
    if (amount > share_room(b, s)) return false;
    share_add(b, s, amount);
    return true;
}

void share_add(struct budget *b, struct share *s, uint64_t amount) {
    CHECK(amount <= UINT64_MAX - b->used);
    b->holders += s->held == 0 && amount > 0;
    s->held += amount;
    b->used += amount;
}

void share_give(struct budget *b, struct share *s, uint64_t amount) {
    CHECK(s->held >= amount);
    CHECK(b->used >= amount);
    s->held -= amount;
    b->used -= amount;
    b->holders -= s->held == 0 && amount > 0;
}

void share_verify(const struct budget *b, const struct share *const *all, uint32_t count) {
    uint64_t used = 0;
    uint32_t holders = 0;
    for (uint32_t i = 0; i < count; i++) {
        used += all[i]->held;
        holders += all[i]->held > 0;
    }
    CHECK(used == b->used);
    CHECK(holders == b->holders);
}
