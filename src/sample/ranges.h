/* sample/ranges.h - the ranges of sampling parameters, and the one check against them.
 *
 * ranges.def has a row for each number that a user may set; its macros fill the tables of HTTP
 * fields, command-line flags and request lists. Here are the same rows at run time.
 *
 * Lifetime: static. Thread: any. Memory: none.
 */
#ifndef SAMPLE_RANGES_H
#define SAMPLE_RANGES_H

#include <stdint.h>

#include "base/status.h"
#include "sample/ranges.def"

enum sample_kind { SAMPLE_KIND_INT, SAMPLE_KIND_REAL };

struct sample_range {
    const char *name;
    enum sample_kind kind;
    double least, most; /* both included */
    double fallback;
    const char *help;
};

/* SAMPLE_AT_temperature ...: indices of sample_ranges. */
#define SAMPLE_INDEX(name, ...) SAMPLE_AT_##name,
enum sample_index { SAMPLE_RANGES(SAMPLE_INDEX) SAMPLE_RANGE_COUNT };
#undef SAMPLE_INDEX

extern const struct sample_range sample_ranges[SAMPLE_RANGE_COUNT];

/* ST_BAD: `err` names the parameter, its value and its range. A REAL is compared as a float, the
 * type in which requests keep it: 0.01f is a little less than 0.01 and still in range. */
enum status sample_range_check(enum sample_index i, double value, struct err *err);

#endif
