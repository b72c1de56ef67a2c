/* report/server_metrics.h - what the server counts, under the names that dashboards know.
 *
 * vLLM's names (vllm:num_requests_waiting, ...) with the label model_name, and our own (jitney:*,
 * process_*). What happens in the server is told by the calls below; what the engines and the
 * network count themselves is handed in when somebody asks for the page.
 *
 *     server_metrics_add_model(m, &info, &model)     once a model is loaded
 *     server_metrics_tokens(m, model, ...)           for each batch of tokens of a choice
 *     server_metrics_generation(m, &generation)                  when a request has ended
 *     server_metrics_response(m, route, status, s)   when a response has
 *     server_metrics_print(m, &pull, out)            GET /metrics
 *
 * Lifetime: create, use, destroy. Thread: the io thread.
 * Memory: a model's rows are taken when it is added; a route's when it is first seen.
 */
#ifndef REPORT_SERVER_METRICS_H
#define REPORT_SERVER_METRICS_H

#include <stdint.h>

#include "base/status.h"
#include "sched/seq.h"

struct buf;
struct engine_stats;
struct http_stats;
struct server_metrics; /* opaque */

enum { METRICS_MODELS_MAX = 64 };

enum status server_metrics_create(struct server_metrics **out);
void server_metrics_destroy(struct server_metrics *m); /* NULL is fine */

/* ST_FULL: more than METRICS_MODELS_MAX; ST_NOMEM: *model then is a number under which nothing is
 * counted. `kv_blocks` 0: a model that only embeds. */
struct metrics_model {
    const char *name;
    uint32_t ctx_tokens, block_tokens, kv_blocks;
    const uint64_t *block_bytes; /* of a KV block, by group */
    uint32_t group_count;        /* of block_bytes */
};
enum status server_metrics_add_model(struct server_metrics *m, const struct metrics_model *info,
                                     uint32_t *model);

/* `count` tokens of a choice have come, `gap_us` after its last ones; below 0: they are its
 * first. */
void server_metrics_tokens(struct server_metrics *m, uint32_t model, uint32_t count,
                           int64_t gap_us);

/* A request that has ended, however. Times on one clock, in microseconds; 0: it did not get so
 * far. Tokens are those of all its choices. */
struct metrics_generation {
    uint32_t model;
    enum finish_reason finish; /* of its first choice */
    uint32_t prompt_tokens, completion_tokens, max_tokens, n;
    uint32_t longest_tokens; /* of its longest choice */
    int64_t arrived_us, started_us, first_token_us, finished_us;
};
void server_metrics_generation(struct server_metrics *m, const struct metrics_generation *r);

/* `route`: the pattern of the table of routes, never what the client sent ("other" for what is
 * in none). */
void server_metrics_response(struct server_metrics *m, const char *route, uint32_t status,
                             double took_s);

/* What others count. The members of one engine stand at the number of its model; those of models
 * that have none are NULL. */
struct metrics_pull {
    const struct engine_stats *engines[METRICS_MODELS_MAX + 1]; /* the last: of no model's */
    const struct http_stats *http;                              /* may be NULL */
    uint64_t kept_answers, kept_bytes;
    uint64_t answers; /* under way */
    uint64_t lost_log_lines, lost_spans;
};
/* About 20 KiB a model. */
void server_metrics_print(struct server_metrics *m, const struct metrics_pull *pull,
                          struct buf *out);

#endif
