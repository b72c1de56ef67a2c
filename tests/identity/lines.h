/* identity/lines.h - which models the crowds run on, and how many crowds on each. */
#ifndef IDENTITY_LINES_H
#define IDENTITY_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINES_MAX = 16, LINES_REAL_RIDES = 3, LINES_REAL_RIDES_ALL = 60 };

struct line_plan {
    const char *name; /* under tests/golden/models */
    uint32_t first_crowd, crowd_count;
};

uint32_t lines_count(void);
const struct line_plan *lines_at(uint32_t i);

/* The model's file or folder. False: it is not there. */
bool lines_path(const char *name, char *out, size_t out_bytes);

/* JITNEY_TEST_MODEL, or the default model in the cache. */
bool lines_real_path(char *out, size_t out_bytes);

bool lines_want_all(void); /* JITNEY_IDENTITY=full: every crowd on the real model too */
bool lines_are_few(void);  /* under a sanitizer: one crowd in six */

#endif
