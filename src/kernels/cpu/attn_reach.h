/* kernels/cpu/attn_reach.h - what the vector kernels of attention share: which tokens of a segment
 * the queries attend to, all or some; and the entry to a body that is compiled for each number of
 * queries and each type of the cache.
 *
 * A query takes its tokens in rising order. Those that all queries attend to are weighed for
 * all at once; a query has its own before them and after them. Where there is no token that
 * all attend to, each has all of its own before.
 */
#ifndef KERNELS_CPU_ATTN_REACH_H
#define KERNELS_CPU_ATTN_REACH_H

#include "kernels/cpu/cpu_int.h"

struct attn_reach {
    struct span any, all;
};

static inline struct attn_reach attn_reach(const struct attn_segment *s) {
    struct attn_reach r = {{s->query[0].first, s->query[0].end},
                           {s->query[0].first, s->query[0].end}};
    for (uint32_t i = 1; i < s->query_count; i++) {
        uint32_t first = s->query[i].first, end = s->query[i].end;
        if (first < r.any.first) r.any.first = first;
        if (first > r.all.first) r.all.first = first;
        if (end > r.any.end) r.any.end = end;
        if (end < r.all.end) r.all.end = end;
    }
    if (r.all.first >= r.all.end) r.all.first = r.all.end = r.any.end;
    return r;
}

static inline struct span attn_before(const struct attn_query *q, const struct attn_reach *r) {
    return (struct span){q->first, q->end < r->all.first ? q->end : r->all.first};
}

static inline struct span attn_after(const struct attn_query *q, const struct attn_reach *r) {
    return (struct span){r->all.end, q->end};
}

/* The file's attend(s, queries, type, out), which is always inlined, as functions of their own:
 * in one large function the compiler would not keep the loops of each in registers. */
#define ATTEND_FUNCTION(queries, type)                                                             \
    static __attribute__((noinline)) void attend_##queries##_##type(const struct attn_segment *s,  \
                                                                    struct attn_part *out) {       \
        attend(s, queries, type, out);                                                             \
    }
#define ATTEND_FUNCTIONS(queries)                                                                  \
    ATTEND_FUNCTION(queries, KV_F16)                                                               \
    ATTEND_FUNCTION(queries, KV_F32)                                                               \
    ATTEND_FUNCTION(queries, KV_I8)
#define ATTEND_ENTRIES(queries)                                                                    \
    [queries] = {[KV_F16] = attend_##queries##_KV_F16,                                             \
                 [KV_F32] = attend_##queries##_KV_F32,                                             \
                 [KV_I8] = attend_##queries##_KV_I8}

/* The kernel `name`. */
#define ATTEND_KERNEL(name)                                                                        \
    ATTEND_FUNCTIONS(1)                                                                            \
    ATTEND_FUNCTIONS(2)                                                                            \
    ATTEND_FUNCTIONS(3)                                                                            \
    ATTEND_FUNCTIONS(4)                                                                            \
    ATTEND_FUNCTIONS(5)                                                                            \
    ATTEND_FUNCTIONS(6)                                                                            \
    void name(const struct attn_segment *s, struct attn_part *out) {                               \
        typedef void attend_fn(const struct attn_segment *, struct attn_part *);                   \
        static attend_fn *const functions[ATTN_QUERIES + 1][KV_I8 + 1] = {                         \
            ATTEND_ENTRIES(1), ATTEND_ENTRIES(2), ATTEND_ENTRIES(3),                               \
            ATTEND_ENTRIES(4), ATTEND_ENTRIES(5), ATTEND_ENTRIES(6),                               \
        };                                                                                         \
        functions[s->query_count][s->type](s, out);                                                \
    }

#endif
