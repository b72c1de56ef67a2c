/* graph/work.c - see graph/work.h for the contract. */
#include "graph/work.h"

#include <stddef.h>

#include "base/check.h"

void work_add(struct work *to, const struct work *more) {
    to->memory_bytes += more->memory_bytes;
    to->cache_bytes += more->cache_bytes;
    to->int8_ops += more->int8_ops;
    to->f32_ops += more->f32_ops;
}

const char *bound_name(enum bound b) {
    static const char *const names[] = {"none", "memory", "cache", "int8", "f32"};
    CHECK((size_t)b < sizeof(names) / sizeof(names[0]));
    return names[b];
}

struct least_time work_least(const struct work *w, const struct peaks *peaks) {
    const struct {
        enum bound bound;
        double amount, rate; /* bytes or operations; 10^9 of them a second */
    } all[] = {{BOUND_MEMORY, w->memory_bytes, peaks->read_gbs},
               {BOUND_CACHE, w->cache_bytes, peaks->cache_gbs},
               {BOUND_INT8, w->int8_ops, peaks->int8_gops},
               {BOUND_F32, w->f32_ops, peaks->f32_gops}};
    struct least_time least = {BOUND_NONE, 0};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        double us = all[i].rate > 0 ? all[i].amount / all[i].rate / 1e3 : 0;
        if (us > least.us) least = (struct least_time){all[i].bound, us};
    }
    return least;
}
