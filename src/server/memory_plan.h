/* server/memory_plan.h - how --memory-max is divided.
 *
 * The bound covers what clients can make the server hold beside weights and KV blocks. It is
 * divided into budgets, each of which is enforced where its memory is taken:
 *
 *     bodies      1/4   request bodies and messages while they arrive        net, http_limits
 *     replies     1/4   responses that wait for slow clients, heads          net, http_limits
 *     answers     1/4   requests under way, their logs, kept answers         server/generation.h
 *     work        1/8   texts that wait for libuv's pool, or are in it       server/work_queue.h
 *     embeddings  1/8   texts and vectors of embeddings                      server/embeddings.c
 *
 * The grammars of each model have --grammar-memory in addition, by default an eighth of the bound
 * (grammar/grammar_memory.h).
 *
 * Thread: any. Memory: never allocates.
 */
#ifndef SERVER_MEMORY_PLAN_H
#define SERVER_MEMORY_PLAN_H

#include <stdint.h>

#include "base/status.h"

struct settings;

struct memory_plan {
    uint64_t total;
    uint64_t bodies, replies, answers, work, embeddings;
    uint64_t grammars; /* of each model, not part of the total */
    uint64_t file_max; /* of an uploaded file, which `bodies` must hold: --file-max or less */
};

/* `machine_bytes`: the memory of the machine or of its container, for the default. ST_BAD: the
 * settings do not fit together; `err` has the numbers. */
enum status memory_plan_make(const struct settings *settings, uint64_t machine_bytes,
                             struct memory_plan *out, struct err *err);
/* What this process may use. */
uint64_t memory_plan_machine_bytes(void);

#endif
