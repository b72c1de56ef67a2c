/* kernels/cpu/attn_ranges.h - what the vector kernels of attention share: which tokens of a segment
 * the queries attend to, all or some; and the entry to a body that is compiled for each number of
 * queries and each type of the cache.
 *
 * A query takes its tokens in rising order. Those that all queries attend to are weighed for
 * all at once; a query has its own before them and after them. Where there is no token that
 * all attend to, each has all of its own before.
 */
#ifndef KERNELS_CPU_ATTN_RANGES_H
#define KERNELS_CPU_ATTN_RANGES_H

#include "kernels/cpu/cpu_int.h"

struct attn_ranges {
    struct range any, all;
};

static inline struct attn_ranges attn_ranges(const struct attn_segment *s) {
    struct attn_ranges r = {{s->query[0].first, s->query[0].end},
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

static inline struct range attn_before(const struct attn_query *q, const struct attn_ranges *r) {
    return (struct range){q->first, q->end < r->all.first ? q->end : r->all.first};
}

static inline struct range attn_after(const struct attn_query *q, const struct attn_ranges *r) {
    return (struct range){r->all.end, q->end};
}

/* A segment with only a few of its queries, from `first` on. */
static inline struct attn_segment attn_few(const struct attn_segment *s, uint32_t first) {
    struct attn_segment few = *s;
    few.query_count = s->query_count - first < ATTN_FEW ? s->query_count - first : ATTN_FEW;
    for (uint32_t i = 0; i < few.query_count; i++) few.query[i] = s->query[first + i];
    return few;
}

/* Bodies that are always inlined become functions of their own, one for each number of queries up
 * to ATTN_FEW and type of the cache: in a larger function the compiler does not keep their loops in
 * registers. `x` is a macro of (queries, type). */
#define ATTN_EACH_TYPE(x, queries)                                                                 \
    x(queries, KV_F16) x(queries, KV_F32) x(queries, KV_I8) x(queries, KV_F8) x(queries, KV_I4)
#define ATTN_EACH(x)                                                                               \
    ATTN_EACH_TYPE(x, 1)                                                                           \
    ATTN_EACH_TYPE(x, 2)                                                                           \
    ATTN_EACH_TYPE(x, 3)                                                                           \
    ATTN_EACH_TYPE(x, 4)                                                                           \
    ATTN_EACH_TYPE(x, 5)                                                                           \
    ATTN_EACH_TYPE(x, 6)
_Static_assert((int)ATTN_FEW == 6, "there is a function for each number of queries");

#define ATTEND_FUNCTION(queries, type)                                                             \
    static __attribute__((noinline)) void attend_##queries##_##type(const struct attn_segment *s,  \
                                                                    struct attn_part *out) {       \
        attend(s, queries, type, out);                                                             \
    }
#define ATTEND_ENTRY(queries, type) [queries][type] = attend_##queries##_##type,

/* The kernel `name`, whose body is the file's attend(s, queries, type, out). Takes more queries a
 * few at a time. */
#define ATTEND_KERNEL(name)                                                                        \
    ATTN_EACH(ATTEND_FUNCTION)                                                                     \
    void name(const struct attn_segment *s, struct attn_part *out) {                               \
        typedef void attend_fn(const struct attn_segment *, struct attn_part *);                   \
        static attend_fn *const functions[ATTN_FEW + 1][KV_TYPE_COUNT] = {                         \
            ATTN_EACH(ATTEND_ENTRY)};                                                              \
        if (s->query_count <= ATTN_FEW) {                                                          \
            functions[s->query_count][s->type](s, out);                                            \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t i = 0; i < s->query_count; i += ATTN_FEW) {                                  \
            struct attn_segment few = attn_few(s, i);                                              \
            functions[few.query_count][few.type](&few, out + i);                                   \
        }                                                                                          \
    }

#endif
