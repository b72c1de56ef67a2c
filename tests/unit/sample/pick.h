/* unit/sample/pick.h - a description and what comes of it in one call, for tests.
 *
 * Tables are taken from the heap for each call, exactly as large as a sampler says that it needs,
 * so that a sanitizer sees what goes beyond.
 */
#ifndef UNIT_SAMPLE_PICK_H
#define UNIT_SAMPLE_PICK_H

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/row_sampler.h"
#include "sample/sampler.h"

enum { PICK_MASK_WORDS = 4096 }; /* of the largest vocabulary of a test */

/* The token for `position`; `pending`, if not -1, is the one before it, not accepted yet. */
static inline enum status pick_behind(const struct sampler *s, struct row_sampler *c,
                                      const float *logits, uint64_t position, int32_t pending,
                                      struct sample_result *out) {
    struct sampling_tables tables = {.edit_cap = sampler_edits_max(s), .deny_cap = PICK_MASK_WORDS};
    struct sampling sampling;
    tables.edits = mem_alloc_array(tables.edit_cap + (size_t)1, sizeof(tables.edits[0]));
    tables.deny = mem_alloc_array(tables.deny_cap, sizeof(tables.deny[0]));
    CHECK(tables.edits && tables.deny);
    CHECK(sampler_describe(s, position, pending >= 0, &tables, &sampling) == ST_OK);
    enum status st = row_sampler_run(c, &sampling, &tables, pending, logits, out);
    mem_free(tables.edits);
    mem_free(tables.deny);
    return st;
}

static inline enum status pick(const struct sampler *s, struct row_sampler *c, const float *logits,
                               uint64_t position, struct sample_result *out) {
    return pick_behind(s, c, logits, position, -1, out);
}

static inline void pick_score(const struct sampler *s, struct row_sampler *c, const float *logits,
                              int32_t token, struct sample_result *out) {
    struct sampling sampling;
    sampler_describe_score(s, token, &sampling);
    CHECK(row_sampler_run(c, &sampling, NULL, -1, logits, out) == ST_OK);
}

#endif
