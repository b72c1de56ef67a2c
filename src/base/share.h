/* base/share.h - how much of a budget one tenant may hold.
 *
 *     struct budget bodies = {.max = 64 << 20, .least = 8 << 20};  // one for the whole server
 *     struct share of_key = {0};                                   // one for each tenant
 *     if (!share_take(&bodies, &of_key, bytes)) ...                // refuse: 429 or 503
 *     share_give(&bodies, &of_key, bytes);
 *
 * A budget counts anything that is limited in total: bytes, places in a queue. It is divided among
 * the tenants that hold some of it, the one that asks, and one more that may arrive. So a tenant
 * alone can hold one half, two tenants one third each, and n tenants 1/(n + 1) each; what a tenant
 * holds above its share when others arrive stays until it gives it back.
 *
 * Two exceptions: a tenant may always hold `least`, so that the largest single item can pass with
 * many tenants; and with `is_single`, where all requests are of one tenant, there is no division.
 * The total is never above `max`.
 *
 * Lifetime: a share that is zeroed holds nothing; it must hold nothing when it is freed.
 * Thread:   one owner at a time. Memory: never allocates. Every function takes constant time.
 */
#ifndef BASE_SHARE_H
#define BASE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint64_t max;     /* may be lowered at any time, also below what is used */
    uint64_t least;   /* that a tenant may hold, however many others hold some */
    bool is_single;   /* there is one tenant only */
    uint64_t used;    /* by all tenants */
    uint32_t holders; /* tenants that hold some */
};

struct share {
    uint64_t held;
};

/* How much the tenant may hold now, with what it holds already. */
uint64_t share_limit(const struct budget *b, const struct share *s);
/* How much a tenant may hold when no other holds any: nothing larger ever fits. */
uint64_t share_most(const struct budget *b);
/* How much more it may take now: within its limit, and within what is left of the budget. */
uint64_t share_room(const struct budget *b, const struct share *s);

/* False: it may not have so much, and nothing is taken. 0 is always taken. */
bool share_take(struct budget *b, struct share *s, uint64_t amount);
/* Without a check, for what exists already, such as usage that moves to another tenant. */
void share_add(struct budget *b, struct share *s, uint64_t amount);
void share_give(struct budget *b, struct share *s, uint64_t amount); /* at most what it holds */

/* CHECKs the budget against all `count` shares of it. Linear. */
void share_verify(const struct budget *b, const struct share *const *all, uint32_t count);

#endif
