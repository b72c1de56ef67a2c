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

#define ATTEND_TYPES(queries)                                                                      \
    if (s->type == KV_F16)                                                                         \
        attend(s, queries, KV_F16, out);                                                           \
    else if (s->type == KV_I8)                                                                     \
        attend(s, queries, KV_I8, out);                                                            \
    else                                                                                           \
        attend(s, queries, KV_F32, out);                                                           \
    break

/* The kernel `name`, whose body is the file's attend(s, queries, type, out), always inlined. */
#define ATTEND_KERNEL(name)                                                                        \
    void name(const struct attn_segment *s, struct attn_part *out) {                               \
        switch (s->query_count) {                                                                  \
        case 1:                                                                                    \
            ATTEND_TYPES(1);                                                                       \
        case 2:                                                                                    \
            ATTEND_TYPES(2);                                                                       \
        case 3:                                                                                    \
            ATTEND_TYPES(3);                                                                       \
        case 4:                                                                                    \
            ATTEND_TYPES(4);                                                                       \
        case 5:                                                                                    \
            ATTEND_TYPES(5);                                                                       \
        default:                                                                                   \
            ATTEND_TYPES(6);                                                                       \
        }                                                                                          \
    }

#endif
