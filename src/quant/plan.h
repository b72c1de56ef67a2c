/* quant/plan.h - one choice for each tensor, so that the sum of costs is small and the sum of bytes
 * is within a budget: the multiple-choice knapsack.
 *
 * Solved by dynamic programming over sizes. After each item it keeps, for each of PLAN_SIZES
 * intervals of the sizes that are possible, the cheapest choices whose size lies there. So the
 * result is exact if there are at most PLAN_SIZES different sizes. Otherwise the result may cost a
 * little more than the best choice: about what the bytes of one interval can save. The bytes of a
 * result are always exact. One run gives the answers for all budgets.
 *
 * Lifetime: create, destroy; the items are not needed afterwards. Thread: any, read-only once
 * made. Memory: 8 bytes for each item and interval.
 */
#ifndef QUANT_PLAN_H
#define QUANT_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct plan; /* opaque */

enum { PLAN_SIZES = 1 << 13, PLAN_CHOICES_MAX = 32 };

struct plan_choice {
    uint64_t bytes;
    double cost; /* finite, not negative */
};
struct plan_item {
    const struct plan_choice *choices; /* at least one */
    uint32_t count;                    /* up to PLAN_CHOICES_MAX */
};

/* A sum over all items. */
struct plan_point {
    uint64_t bytes;
    double cost;
};

/* The sums of all bytes are below 2^63. Of equally good choices the first is taken. */
enum status plan_create(const struct plan_item *items, size_t count, struct plan **out,
                        struct err *err);
void plan_destroy(struct plan *p); /* NULL is fine */

/* The sums that are worth choosing: bytes rise and costs fall. There is at least one; point 0 has
 * the fewest bytes that are possible. */
size_t plan_points(const struct plan *p);
struct plan_point plan_point_at(const struct plan *p, size_t i);

/* The last point of at most `budget` bytes. Its index; 0 also if the budget is too small. */
size_t plan_find(const struct plan *p, uint64_t budget);

/* The choice for each item, [count], that leads to point i. */
void plan_choices(const struct plan *p, size_t i, uint32_t *choices);

#endif
