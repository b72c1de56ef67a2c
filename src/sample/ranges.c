/* sample/ranges.c - see sample/ranges.h for the contract. */
#include "sample/ranges.h"

#include <stdbool.h>

#include "base/check.h"

#define ROW(name, kind, least, most, fallback, help)                                               \
    {#name, SAMPLE_KIND_##kind, (double)(least), (double)(most), (double)(fallback), help},
const struct sample_range sample_ranges[SAMPLE_RANGE_COUNT] = {SAMPLE_RANGES(ROW)};
#undef ROW

enum status sample_range_check(enum sample_index i, double value, struct err *err) {
    CHECK(i < SAMPLE_RANGE_COUNT);
    const struct sample_range *r = &sample_ranges[i];
    bool is_real = r->kind == SAMPLE_KIND_REAL;
    /* False for NaN. */
    bool fits = is_real ? (float)value >= (float)r->least && (float)value <= (float)r->most
                        : value >= r->least && value <= r->most;
    if (fits) return ST_OK;
    return err_set(err, ST_BAD, "%s is %.9g; it must be a %s from %.10g to %.10g", r->name, value,
                   is_real ? "number" : "whole number", r->least, r->most);
}
