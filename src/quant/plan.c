/* quant/plan.c - see quant/plan.h for the contract.
 *
 * A stage is an item. Its nodes are the sums that were kept after it, with their bytes above the
 * least that is possible so far. A node says which node of the stage before it comes from.
 */
#include "quant/plan.h"

#include <math.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/mem.h"

enum { SLOTS = PLAN_SIZES + 1 }; /* slot 0: the least size alone */

struct node {
    uint32_t before; /* in the stage before */
    uint32_t choice;
};

struct stage {
    struct node *nodes; /* heap */
};

struct plan {
    struct stage *stages; /* heap; [count] */
    size_t count;
    uint64_t least;            /* bytes */
    struct plan_point *points; /* heap; of the last stage */
    size_t point_count;
};

/* The sums after one item, in rising order of bytes, above the least. */
struct sums {
    struct plan_point *at; /* [SLOTS] */
    uint32_t count;
};

struct work {
    struct sums now, next;
    struct plan_point *slots;
    struct node *from; /* of each slot */
    uint64_t width;    /* bytes of an interval */
};

static uint64_t least_of(const struct plan_item *item) {
    uint64_t least = item->choices[0].bytes;
    for (uint32_t c = 1; c < item->count; c++)
        if (item->choices[c].bytes < least) least = item->choices[c].bytes;
    return least;
}

static uint64_t most_of(const struct plan_item *item) {
    uint64_t most = 0;
    for (uint32_t c = 0; c < item->count; c++)
        if (item->choices[c].bytes > most) most = item->choices[c].bytes;
    return most;
}

static uint32_t slot_of(const struct work *w, uint64_t above) {
    uint64_t slot = above == 0 ? 0 : 1 + (above - 1) / w->width;
    CHECK(slot < SLOTS);
    return (uint32_t)slot;
}

/* Keep the cheaper; of equal ones the smaller, then the earlier. */
static void offer(struct work *w, struct plan_point sum, struct node from) {
    struct plan_point *slot = &w->slots[slot_of(w, sum.bytes)];
    bool is_better = sum.cost < slot->cost || (!(slot->cost < sum.cost) && sum.bytes < slot->bytes);
    if (!is_better) return;
    *slot = sum;
    w->from[slot - w->slots] = from;
}

static void offer_all(struct work *w, const struct plan_item *item) {
    uint64_t least = least_of(item);
    for (uint32_t i = 0; i < SLOTS; i++) w->slots[i] = (struct plan_point){UINT64_MAX, HUGE_VAL};
    for (uint32_t i = 0; i < w->now.count; i++) {
        for (uint32_t c = 0; c < item->count; c++) {
            const struct plan_choice *choice = &item->choices[c];
            struct plan_point sum = {w->now.at[i].bytes + choice->bytes - least,
                                     w->now.at[i].cost + choice->cost};
            offer(w, sum, (struct node){i, c});
        }
    }
}

/* Drop what costs as much as something smaller. */
static enum status keep_best(struct work *w, struct stage *out) {
    double best = HUGE_VAL;
    w->next.count = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!(w->slots[i].cost < best)) continue;
        best = w->slots[i].cost;
        w->from[w->next.count] = w->from[i];
        w->next.at[w->next.count++] = w->slots[i];
    }
    out->nodes = mem_alloc_array(w->next.count, sizeof(out->nodes[0]));
    if (!out->nodes) return ST_NOMEM;
    for (uint32_t i = 0; i < w->next.count; i++) out->nodes[i] = w->from[i];
    struct sums done = w->now;
    w->now = w->next;
    w->next = done;
    return ST_OK;
}

static bool work_init(struct work *w, const struct plan_item *items, size_t count) {
    uint64_t range = 0;
    for (size_t i = 0; i < count; i++) range += most_of(&items[i]) - least_of(&items[i]);
    w->width = range / PLAN_SIZES + (range % PLAN_SIZES != 0);
    if (w->width == 0) w->width = 1;
    w->now.at = mem_zalloc_array(SLOTS, sizeof(w->now.at[0]));
    w->next.at = mem_zalloc_array(SLOTS, sizeof(w->next.at[0]));
    w->slots = mem_zalloc_array(SLOTS, sizeof(w->slots[0]));
    w->from = mem_zalloc_array(SLOTS, sizeof(w->from[0]));
    w->now.count = 1; /* nothing chosen yet: 0 bytes, no cost */
    return w->now.at && w->next.at && w->slots && w->from;
}

static void work_deinit(struct work *w) {
    mem_free(w->now.at);
    mem_free(w->next.at);
    mem_free(w->slots);
    mem_free(w->from);
}

static enum status solve(struct plan *p, const struct plan_item *items, struct work *w) {
    p->stages = mem_zalloc_array(p->count ? p->count : 1, sizeof(p->stages[0]));
    if (!p->stages || !work_init(w, items, p->count)) return ST_NOMEM;
    for (size_t i = 0; i < p->count; i++) {
        CHECK(items[i].count > 0 && items[i].count <= PLAN_CHOICES_MAX);
        p->least += least_of(&items[i]);
        offer_all(w, &items[i]);
        TRY(keep_best(w, &p->stages[i]));
    }
    p->point_count = w->now.count;
    p->points = mem_alloc_array(p->point_count, sizeof(p->points[0]));
    if (!p->points) return ST_NOMEM;
    for (size_t i = 0; i < p->point_count; i++)
        p->points[i] = (struct plan_point){w->now.at[i].bytes + p->least, w->now.at[i].cost};
    return ST_OK;
}

enum status plan_create(const struct plan_item *items, size_t count, struct plan **out,
                        struct err *err) {
    struct work w = {0};
    struct plan *p = mem_zalloc(sizeof(*p));
    if (p) p->count = count;
    enum status st = p ? solve(p, items, &w) : ST_NOMEM;
    work_deinit(&w);
    if (st == ST_OK) {
        *out = p;
        return ST_OK;
    }
    plan_destroy(p);
    return err_set(err, st, "out of memory for the plan of %zu tensors", count);
}

void plan_destroy(struct plan *p) {
    if (!p) return;
    for (size_t i = 0; p->stages && i < p->count; i++) mem_free(p->stages[i].nodes);
    mem_free(p->stages);
    mem_free(p->points);
    mem_free(p);
}

size_t plan_points(const struct plan *p) { return p->point_count; }

struct plan_point plan_point_at(const struct plan *p, size_t i) {
    CHECK(i < p->point_count);
    return p->points[i];
}

size_t plan_find(const struct plan *p, uint64_t budget) {
    size_t first = 0, end = p->point_count;
    while (end - first > 1) {
        size_t middle = first + (end - first) / 2;
        if (p->points[middle].bytes <= budget)
            first = middle;
        else
            end = middle;
    }
    return first;
}

void plan_choices(const struct plan *p, size_t i, uint32_t *choices) {
    CHECK(i < p->point_count);
    uint32_t at = (uint32_t)i;
    for (size_t stage = p->count; stage-- > 0;) {
        const struct node *node = &p->stages[stage].nodes[at];
        choices[stage] = node->choice;
        at = node->before;
    }
}
