/* identity/models.h - the models, and how many runs on each. */
#ifndef IDENTITY_MODELS_H
#define IDENTITY_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODELS_MAX = 16, MODELS_REAL_RUNS = 3, MODELS_REAL_RUNS_ALL = 60 };

struct model_runs {
    const char *name; /* under tests/golden/models */
    uint32_t first_run, run_count;
};

uint32_t models_count(void);
const struct model_runs *models_at(uint32_t i);

/* The model's file or folder. False: it is not there. */
bool models_path(const char *name, char *out, size_t out_bytes);

/* JITNEY_TEST_MODEL, or the default model in the cache. */
bool models_real_path(char *out, size_t out_bytes);

bool models_want_all(void); /* JITNEY_IDENTITY=full: every run on the real model too */
bool models_are_few(void);  /* under a sanitizer: one run in six */

#endif
