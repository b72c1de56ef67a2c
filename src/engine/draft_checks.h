/* engine/draft_checks.h - can this file be a draft model, and how much memory does it get?
 *
 * Before any weight is read it checks the kind of model, the vocabulary and the memory.
 *
 * Thread: pure, but for the device that it opens and closes. Memory: none is kept.
 */
#ifndef ENGINE_DRAFT_CHECKS_H
#define ENGINE_DRAFT_CHECKS_H

#include <stdint.h>

#include "base/status.h"

struct draft_model_options;
struct loaded_model;
struct tokenizer;

struct draft_needs {
    uint32_t ctx_tokens;   /* the longest text with drafts */
    uint32_t lanes;        /* sequences that fit the memory, at most those asked for */
    uint32_t lane_blocks;  /* KV blocks of one, in each group */
    uint64_t weight_bytes; /* all */
    uint64_t lane_bytes;   /* keys and values of one sequence */
};

/* ST_BAD, ST_NOMEM: as draft_model_open. */
enum status draft_checks_run(const char *path, const struct loaded_model *target,
                             const struct draft_model_options *options, struct draft_needs *out,
                             struct err *err);

/* Do two tokenizers have the same tokens? One may have more of them at its end: rows that only fill
 * up a table. ST_BAD names the first that differs. */
enum status draft_checks_vocab(const struct tokenizer *target, const struct tokenizer *draft,
                               struct err *err);

/* What is free: /proc/meminfo's MemAvailable, or what the container's limit leaves, if that is
 * less; UINT64_MAX: not known. */
uint64_t draft_checks_free_bytes(void);

#endif
