/* base/clock.c - see base/clock.h for the contract. */
#include "base/clock.h"

#include <time.h>

static int64_t real_now_us(void *self) {
    (void)self;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

const struct clock clock_real = {.name = "real", .now_us = real_now_us};

int64_t clock_now(const struct clock *clock) { return clock->now_us(clock->self); }

int64_t clock_fine_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_wall_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_wall_s(void) { return clock_wall_us() / 1000000; }
