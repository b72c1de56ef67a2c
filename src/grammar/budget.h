/* grammar/budget.h - what one grammar may cost, and the account that is charged.
 *
 * Every part of a grammar (expressions, rules, states of the matcher) charges its memory to one
 * account. The first charge past a limit fails the account, and it stays failed: the functions that
 * charge return an empty result from then on, and the caller asks budget_status once, at the end.
 *
 * Lifetime: the caller's storage. Thread: its owner.
 */
#ifndef GRAMMAR_BUDGET_H
#define GRAMMAR_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct clock;

struct budget {
    size_t bytes_max, bytes; /* of memory, all parts together */
    uint32_t states_max;     /* expressions and states of the matcher, each */
    int64_t deadline_us;     /* of `clock`; compiling ends there */
    const struct clock *clock;
    bool (*cancelled)(void *ctx); /* may be NULL; true: the client has left */
    void *cancelled_ctx;
    uint32_t ticks;     /* units of work */
    uint32_t ticks_max; /* 0: none; `ticks` is set to 0 before each use of a matcher */
    enum status status; /* ST_OK, ST_FULL (a limit), ST_NOMEM or ST_CANCELLED */
    const char *limit;  /* ST_FULL: "time", "states", "work" or "bytes" */
};

/* Grow an array to hold `count` elements; doubles its capacity. false: the account has failed and
 * the array is as it was. */
bool budget_grow(struct budget *b, void **array, uint32_t *cap, size_t count, size_t element_bytes);
/* Give back what an array has room for beyond twice `count` elements. */
void budget_shrink(struct budget *b, void **array, uint32_t *cap, size_t count,
                   size_t element_bytes);
/* The same for a hash table of `count` numbers, which the caller then fills again. */
void budget_shrink_slots(struct budget *b, uint32_t **slots, uint32_t *slot_count, size_t count);
/* Zeroed memory; NULL: the account has failed. Free it with mem_free. */
void *budget_zalloc(struct budget *b, size_t count, size_t element_bytes);
/* One unit of work, or several. Reads the clock and the cancel function every 256 units. */
bool budget_tick(struct budget *b);
bool budget_ticks(struct budget *b, uint32_t count);
/* Fail the account: the limit `what` is reached. Returns false. */
bool budget_spend_out(struct budget *b, const char *what);

#endif
