/* sched/line_pace.c - see sched/line_pace.h. */
#include "sched/line_pace.h"

#include "base/check.h"

enum { TAIL_MAX = LINE_PACE_REQUESTS / LINE_PACE_TAIL + 1 };

static uint32_t known(const struct line_pace *p) {
    return p->count < LINE_PACE_REQUESTS ? (uint32_t)p->count : LINE_PACE_REQUESTS;
}

/* The slowest so far, sorted; those behind `count` are forgotten. */
static void insert(double *slowest, uint32_t count, double us) {
    for (uint32_t i = 0; i < count; i++) {
        if (us <= slowest[i]) continue;
        double next = slowest[i];
        slowest[i] = us;
        us = next;
    }
}

void line_pace_observe(struct line_pace *p, double us, double added_us, double alone_us) {
    double slowest[TAIL_MAX] = {0};
    CHECK(alone_us > 0);
    CHECK(added_us >= 0);
    p->us[p->count++ % LINE_PACE_REQUESTS] = us * alone_us / (alone_us + added_us);
    uint32_t count = known(p), place = count / LINE_PACE_TAIL;
    if (count < LINE_PACE_MIN) return;
    for (uint32_t i = 0; i < count; i++) insert(slowest, place + 1, p->us[i]);
    p->slow_us = slowest[place];
}

double line_pace_us(const struct line_pace *p) { return p->slow_us; }

void line_pace_verify(const struct line_pace *p) {
    uint32_t slower = 0, count = known(p);
    for (uint32_t i = 0; i < count; i++) slower += p->us[i] > p->slow_us;
    if (count < LINE_PACE_MIN)
        CHECK(p->slow_us == 0);
    else
        CHECK(slower <= count / LINE_PACE_TAIL);
}
