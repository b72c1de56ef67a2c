/* server/generations.h - all generations of a server: their tables, memory and end.
 *
 * Memory is counted for each tenant and in total (base/share.h): answers_bytes for all generations,
 * of that keep_bytes for those that are kept. A tenant at its limit loses its own oldest kept
 * answers, never those of others; if it has none, its new request is refused, or the generation
 * whose log grows fails.
 *
 * Lifetime: generations_create, generations_close, then generations_destroy.
 * Thread: the I/O thread.
 */
#ifndef SERVER_GENERATIONS_H
#define SERVER_GENERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct accounts;
struct api_error;
struct err;
struct generation;
struct generations; /* opaque */
struct key;
struct keys;
struct server_metrics;
struct uv_async_s;
struct uv_loop_s;
struct work_queue;

struct generations_options {
    struct uv_loop_s *loop;
    int64_t keep_ms;
    uint64_t keep_bytes;    /* of answers_bytes */
    uint64_t answers_bytes; /* of all generations; 0: 1 GiB */
    bool is_single;         /* there is one tenant only */
    uint64_t log_bytes;     /* of one answer's events; 0: 64 MiB */
    struct accounts *accounts;
    struct work_queue *work;        /* prompts are rendered and tokenised in libuv's pool */
    struct server_metrics *metrics; /* counts tokens; may be NULL */
    struct keys *keys;              /* limits the tokens of a key; NULL: no limits */
    /* The prompt of a durable generation is rendered: store it, then call generation_stored. NULL:
     * nothing is durable. */
    void (*on_prepared)(void *ctx, struct generation *gen);
    /* Once for each generation that was started, when it has ended. */
    void (*on_ended)(void *ctx, struct generation *gen);
    void *ctx;
};

enum status generations_create(const struct generations_options *options, struct generations **out,
                               struct err *err);
/* Free the kept ones and close the timers; every generation has ended. */
void generations_close(struct generations *all);
void generations_destroy(struct generations *all); /* after the loop has run dry; NULL is fine */
void generations_set_keep(struct generations *all, int64_t keep_ms, uint64_t keep_bytes);
void generations_set_memory(struct generations *all, uint64_t answers_bytes, bool is_single);

struct generations_stats {
    uint32_t live, kept;
    uint64_t kept_bytes;
    uint64_t bytes, bytes_max; /* of all generations */
    uint64_t refused;          /* since the start, for want of memory */
};
struct generations_stats generations_stats(const struct generations *all);
void generations_verify(const struct generations *all); /* CHECK every invariant; slow */

/* By the answer's id, with or without its codec's prefix, or by x-request-id. NULL: `key` has
 * started no such generation. */
struct generation *generation_find(const struct generations *all, const struct key *key,
                                   struct str id);
/* Every generation that is under way; `each` changes none. */
void generations_each_live(const struct generations *all,
                           void (*each)(void *ctx, const struct generation *gen), void *ctx);
/* End every generation that is not done. */
void generations_fail(struct generations *all, const struct api_error *e);

/* A model's engine has tokens: take them and deliver them. `data` of the handle is the model. */
void generations_on_output(struct uv_async_s *handle);

#endif
