/* kernels/cpu/sample_select.c - see kernels/cpu/sample_select.h. */
#include "kernels/cpu/sample_select.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/fvec.h"
#include "base/mem.h"

enum status select_init(struct select *s, uint32_t cap) {
    s->cap = cap;
    s->active = mem_alloc_array(cap, sizeof(s->active[0]));
    return s->active ? ST_OK : ST_NOMEM;
}

void select_deinit(struct select *s) {
    mem_free(s->active);
    s->active = NULL;
}

/* Buckets come by two orders that agree: equal widths from `first` to `last`, which spread
 * logits evenly, and the numbers' bits, which tell any two apart. */
static float factor_of(const struct select_things *things) {
    float span = things->first - things->last;
    bool usable = span > FLT_MIN && span <= FLT_MAX;
    return usable ? -(float)(SELECT_BUCKETS - 1) / span : 0.0f;
}

/* As bits, positive numbers stand in their order and negative ones in the reverse of it. */
static uint32_t key_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits & 0x80000000u ? bits : 0x7fffffffu - bits;
}

/* Keys from `least` to `most`. */
struct range {
    uint32_t least, most;
    uint32_t shift; /* from a key's distance to `least` to its bucket */
};

static struct range range_of(const struct select *s, const float *number, uint32_t count) {
    struct range r = {UINT32_MAX, 0, 0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = key_of(number[s->active[i]]);
        r.least = key < r.least ? key : r.least;
        r.most = key > r.most ? key : r.most;
    }
    while ((r.most - r.least) >> r.shift >= SELECT_BUCKETS) r.shift++;
    return r;
}

static uint32_t fine_bucket(struct range r, float number) {
    return (key_of(number) - r.least) >> r.shift;
}

/* The bucket in which *before reaches `wanted`, or the last; *before grows by what it passes. */
static uint32_t find_bucket(const struct select *s, uint32_t last, uint64_t wanted,
                            uint64_t *before) {
    uint32_t b = 0;
    for (; b < last && *before + s->mass[b] < wanted; b++) *before += s->mass[b];
    return b;
}

/* The numbers in `list` make room for the places of those that are `value`; returns how many. */
static uint32_t keep_equal(uint32_t *list, uint32_t count, uint32_t value) {
    enum { GROUP = 64 };
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i += GROUP) {
        uint32_t any = 0, end = count - i < GROUP ? count : i + GROUP;
        for (uint32_t j = i; j < end; j++) any |= list[j] == value;
        for (uint32_t j = any ? i : end; j < end; j++) {
            bool is_equal = list[j] == value;
            list[kept] = j;
            kept += is_equal;
        }
    }
    return kept;
}

/* Divide everything; the places of the bucket that holds the end become active. They take the
 * room of the buckets' numbers as these are read. */
static uint32_t divide_all(struct select *s, const struct select_things *things, uint64_t wanted,
                           uint64_t *before) {
    uint32_t *active = s->active, count = things->count;
    const uint64_t *mass = things->mass;
    fvec_at(0)->bucket(things->number, count, things->first, factor_of(things), SELECT_BUCKETS - 1,
                       active);
    memset(s->mass, 0, sizeof(s->mass));
    if (mass)
        for (uint32_t i = 0; i < count; i++) s->mass[active[i]] += mass[i];
    else
        for (uint32_t i = 0; i < count; i++) s->mass[active[i]]++;
    uint32_t end = find_bucket(s, SELECT_BUCKETS - 1, wanted, before);
    return keep_equal(active, count, end);
}

/* The same among those that are active already. */
static uint32_t divide_active(struct select *s, const struct select_things *things,
                              struct range range, uint32_t count, uint64_t wanted,
                              uint64_t *before) {
    const float *number = things->number;
    const uint64_t *mass = things->mass;
    uint32_t *active = s->active, kept = 0;
    memset(s->mass, 0, sizeof(s->mass));
    for (uint32_t i = 0; i < count; i++)
        s->mass[fine_bucket(range, number[active[i]])] += mass ? mass[active[i]] : 1;
    uint32_t last = (range.most - range.least) >> range.shift;
    uint32_t bucket = find_bucket(s, last, wanted, before);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = active[i];
        active[kept] = at;
        kept += fine_bucket(range, number[at]) == bucket;
    }
    return kept;
}

/* Leaves as active those that have the number at the end; returns how many. */
static uint32_t find_end(struct select *s, const struct select_things *things, uint64_t wanted,
                         uint64_t *before) {
    CHECK(things->count > 0 && things->count <= s->cap);
    *before = 0;
    uint32_t active = divide_all(s, things, wanted, before);
    for (;;) {
        CHECK(active > 0);
        struct range range = range_of(s, things->number, active);
        if (range.least == range.most) return active;
        active = divide_active(s, things, range, active, wanted, before);
    }
}

struct select_end select_prefix(struct select *s, const struct select_things *things,
                                uint64_t wanted) {
    uint64_t held;
    uint32_t ties = find_end(s, things, wanted, &held), inside = 0;
    do {
        held += things->mass ? things->mass[s->active[inside]] : 1;
        inside++;
    } while (held < wanted && inside < ties);
    uint32_t last = s->active[inside - 1];
    return (struct select_end){things->number[last], last};
}
