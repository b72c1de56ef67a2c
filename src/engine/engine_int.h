/* engine/engine_int.h - the inside of an engine, shared by the files of this folder only. */
#ifndef ENGINE_ENGINE_INT_H
#define ENGINE_ENGINE_INT_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "graph/device.h"
#include "graph/kv_space.h"
#include "graph/step.h"

/* A tape with the scratch memory to run it in. */
struct engine_pass {
    struct tape *tape;
    uint8_t *slab; /* the device's */
};

struct engine {
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct model *model;
    struct device device;
    bool device_open;
    struct engine_pass logits;         /* or the pooled pass of an encoder */
    struct engine_pass hidden;         /* made when a decoder is first asked for an embedding */
    struct kv_space kv[KV_GROUPS_MAX]; /* by group; base NULL: not there */
    uint32_t threads, ctx_tokens, chunk_tokens;

    /* Step tables: one sequence, its blocks in order. */
    int32_t *token, *pos;       /* chunk_tokens */
    uint32_t *seq, *output_row; /* chunk_tokens */
    uint32_t *blocks;           /* ctx_tokens / KV_BLOCK_TOKENS, rounded up */

    /* What the KV cache holds: these tokens from position 0 on. */
    int32_t *cached; /* ctx_tokens */
    uint32_t cached_count;

    atomic_bool stopping;
};

enum row_choice { ROWS_NONE, ROWS_LAST, ROWS_ALL };

/* Run `count` tokens (at most chunk_tokens) at positions first_pos and up through `pass`; the
 * cache must hold everything before them. Returns the output's first row; rows of it follow
 * each other at *row_floats. */
const float *engine_run(struct engine *e, const struct engine_pass *pass, const int32_t *ids,
                        uint32_t count, uint32_t first_pos, enum row_choice rows,
                        size_t *row_floats);

/* Build and plan a pass, and take its memory. */
enum status engine_make_pass(struct engine *e, int goal, struct engine_pass *out, struct err *err);

/* ST_BAD if `count` tokens do not fit the context or one is outside the vocabulary. */
enum status engine_check_ids(const struct engine *e, const int32_t *ids, uint32_t count,
                             struct err *err);

#endif
