/* base/clock.h - time as an argument. Real in the program, simulated in tests. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    const char *name;
    int64_t (*now_us)(void *self); /* monotonic */
    void *self;
};

extern const struct clock clock_real; /* the machine's monotonic clock */

int64_t clock_now(const struct clock *clock);
int64_t clock_fine_ns(void); /* monotonic, for measuring pieces of work far below a millisecond */
int64_t clock_wall_s(void);  /* seconds since 1970, for people and templates only */
int64_t clock_wall_us(void); /* the same in microseconds, for logs and traces */

#endif
