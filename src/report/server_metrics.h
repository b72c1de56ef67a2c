/* report/server_metrics.h - Prometheus metrics of the server.
 *
 * vLLM's names (vllm:num_requests_waiting, ...) with the label model_name, and our own (jitney:*,
 * process_*). The functions below count events as they happen; figures that the engines and the
 * network count themselves are passed in when the page is printed.
 *
 *     server_metrics_add_model(m, &info, &model)     when a model is loaded
 *     server_metrics_tokens(m, model, ...)           when tokens of a choice arrive
 *     server_metrics_generation(m, &generation)      when a generation has ended
 *     server_metrics_response(m, route, status, s)   when a response has ended
 *     server_metrics_print(m, &pull, out)            GET /metrics
 *
 * Lifetime: create, use, destroy. Thread: the I/O thread.
 * Memory: a model's rows are allocated when it is added; a route's when it is first used.
 */
#ifndef REPORT_SERVER_METRICS_H
#define REPORT_SERVER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/seq.h"

struct buf;
struct engine_stats;
struct http_stats;
struct server_metrics; /* opaque */
struct store_stats;

enum { METRICS_MODELS_MAX = 64 };

enum status server_metrics_create(struct server_metrics **out);
void server_metrics_destroy(struct server_metrics *m); /* NULL is fine */

/* ST_FULL: more than METRICS_MODELS_MAX. On ST_FULL and ST_NOMEM, *model is an index whose counts
 * are dropped. `kv_blocks` 0: a model that only gives embeddings. */
struct metrics_model {
    const char *name;
    uint32_t ctx_tokens, block_tokens, kv_blocks;
    const uint64_t *block_bytes; /* of a KV block, by group */
    uint32_t group_count;        /* of block_bytes */
};
enum status server_metrics_add_model(struct server_metrics *m, const struct metrics_model *info,
                                     uint32_t *model);

/* `count` tokens of a choice have arrived, `gap_us` after its previous ones; below 0: they are its
 * first. */
void server_metrics_tokens(struct server_metrics *m, uint32_t model, uint32_t count,
                           int64_t gap_us);

/* A generation that has ended, with or without success. Times on one clock; 0: it did not get that
 * far. Tokens are those of all its choices. */
struct metrics_generation {
    uint32_t model;
    enum finish_reason finish; /* of its first choice */
    uint32_t prompt_tokens, completion_tokens, max_tokens, n;
    uint32_t choices;        /* n for each of its prompts */
    uint32_t longest_tokens; /* of its longest choice */
    int64_t arrived_us, started_us, first_token_us, finished_us;
    bool is_batch; /* a line of a batch: its times tell nothing of what clients wait for */
};
void server_metrics_generation(struct server_metrics *m, const struct metrics_generation *r);
/* A request for embeddings that has ended: `prompt_tokens` were computed. Of the other fields
 * `model`, `finish` and the times of arrival and end are used. */
void server_metrics_embedding(struct server_metrics *m, const struct metrics_generation *r);

/* Its weights were packed from the model file, or their checksums were compared. */
void server_metrics_verified(struct server_metrics *m, uint32_t model);

/* `route`: the pattern of the table of routes, or "other"; never the path that the client sent. */
void server_metrics_response(struct server_metrics *m, const char *route, uint32_t status,
                             double took_s);

/* Durable work; `store` NULL: there is none. */
struct metrics_durable {
    const struct store_stats *store;
    uint64_t batches_open, lines_waiting, lines_running;
    uint64_t lines_completed, lines_failed, lines_repeated; /* since the start */
};

/* Figures that are counted elsewhere. engines[i]: of the model with index i; NULL: it has none. */
struct metrics_pull {
    const struct engine_stats *engines[METRICS_MODELS_MAX + 1]; /* the last: unused index */
    const struct http_stats *http;                              /* may be NULL */
    uint64_t kept_answers, kept_bytes;
    uint64_t answers; /* under way */
    uint64_t answers_bytes,
        answers_refused; /* memory of answers; requests refused for want of it */
    uint64_t work_items, work_bytes, work_refused; /* for libuv's pool */
    uint64_t embeddings_bytes;
    uint64_t memory_max; /* --memory-max */
    uint64_t lost_log_lines, lost_spans;
    struct metrics_durable durable;
};
/* About 20 KiB for each model. */
void server_metrics_print(struct server_metrics *m, const struct metrics_pull *pull,
                          struct buf *out);

#endif
