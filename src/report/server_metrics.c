/* report/server_metrics.c - see report/server_metrics.h.
 *
 * Tables of names first: a metric is added with a row in a table and a line where its value is
 * counted. Names and bounds that begin with "vllm:" are vLLM's, so that its dashboards, autoscaling
 * rules and routers work with this server unchanged.
 */
#include "report/server_metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "jobs/store.h"
#include "metrics/metrics.h"
#include "net/http.h"

enum { ROUTES_MAX = 128, STATUSES_MAX = 24, LABELS_BYTES_MAX = 4096, BOUNDS_MAX = 40 };

struct row {
    const char *name, *help;
};

/* --- metrics of a model ------------------------------------------------------------------ */

enum {
    M_RUNNING,
    M_WAITING,
    M_KV_USAGE,
    M_SWAPPED,
    M_KV_FREE,
    M_KV_HELD,
    M_KV_CACHED,
    M_KV_SPILLED,
    M_KV_MEMORY,
    M_STALLED,
    M_PREDICTED_WAIT,
    M_VERIFIED,
    MODEL_GAUGES
};
static const struct row model_gauges[MODEL_GAUGES] = {
    [M_RUNNING] = {"vllm:num_requests_running", "Sequences in the batch."},
    [M_WAITING] = {"vllm:num_requests_waiting", "Sequences that wait to enter the batch."},
    [M_KV_USAGE] = {"vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1."},
    [M_SWAPPED] = {"jitney:sequences_swapped", "Sequences whose KV blocks are swapped to disk."},
    [M_KV_FREE] = {"jitney:kv_blocks_free", "KV blocks that hold nothing."},
    [M_KV_HELD] = {"jitney:kv_blocks_held", "KV blocks of sequences under way."},
    [M_KV_CACHED] = {"jitney:kv_blocks_cached", "KV blocks kept in the prefix cache."},
    [M_KV_SPILLED] = {"jitney:kv_blocks_spilled", "KV blocks on disk."},
    [M_KV_MEMORY] = {"jitney:kv_memory_bytes", "Memory of the KV blocks that were ever used."},
    [M_STALLED] = {"jitney:stalled_seconds", "How long the step under way has taken."},
    [M_PREDICTED_WAIT] = {"jitney:queue_predicted_wait_seconds",
                          "How long a prompt of 512 tokens would wait for its first token."},
    [M_VERIFIED] = {"jitney:weights_verified",
                    "1: weights that were read from an image have the right checksums."},
};

enum {
    M_PROMPT_TOKENS,
    M_GENERATION_TOKENS,
    M_PREEMPTIONS,
    M_PREFIX_QUERIES,
    M_PREFIX_HITS,
    M_STEPS,
    M_STEP_SECONDS,
    M_SCHED_SECONDS,
    M_SUBMITTED,
    M_REFUSED,
    M_RECOMPUTED,
    M_EVICTED,
    M_DRAFTS,
    M_DRAFT_TOKENS,
    M_ACCEPTED_TOKENS,
    MODEL_COUNTERS
};
static const struct row model_counters[MODEL_COUNTERS] = {
    [M_PROMPT_TOKENS] = {"vllm:prompt_tokens_total", "Tokens of prompts."},
    [M_GENERATION_TOKENS] = {"vllm:generation_tokens_total", "Tokens of answers."},
    [M_PREEMPTIONS] = {"vllm:num_preemptions_total", "Times a sequence was preempted."},
    [M_PREFIX_QUERIES] = {"vllm:prefix_cache_queries_total", "Prompt tokens looked up."},
    [M_PREFIX_HITS] = {"vllm:prefix_cache_hits_total", "Prompt tokens found in the cache."},
    [M_STEPS] = {"jitney:engine_steps_total", "Steps of the engine."},
    [M_STEP_SECONDS] = {"jitney:step_seconds_total", "Total time in steps."},
    [M_SCHED_SECONDS] = {"jitney:sched_seconds_total", "Time spent planning and applying."},
    [M_SUBMITTED] = {"jitney:requests_submitted_total", "Requests that the engine accepted."},
    [M_REFUSED] = {"jitney:requests_refused_total", "Choices that can never be served."},
    [M_RECOMPUTED] = {"jitney:recomputed_tokens_total",
                      "Tokens computed again after a preemption."},
    [M_EVICTED] = {"jitney:kv_blocks_evicted_total", "Cached KV blocks evicted."},
    [M_DRAFTS] = {"vllm:spec_decode_num_drafts_total", "Rows of steps that had draft tokens."},
    [M_DRAFT_TOKENS] = {"vllm:spec_decode_num_draft_tokens_total",
                        "Draft tokens that the model verified."},
    [M_ACCEPTED_TOKENS] = {"vllm:spec_decode_num_accepted_tokens_total",
                           "Draft tokens that were equal to what the model sampled."},
};

enum {
    M_TTFT,
    M_ITL,
    M_TPOT,
    M_E2E,
    M_QUEUE_TIME,
    M_PREFILL_TIME,
    M_DECODE_TIME,
    M_INFERENCE_TIME,
    M_REQUEST_PROMPT,
    M_REQUEST_GENERATION,
    M_REQUEST_LONGEST,
    M_REQUEST_MAX_TOKENS,
    M_REQUEST_N,
    M_STEP_TOKENS,
    MODEL_HISTOGRAMS
};

/* Bounds; 0 ends a row. TOKENS: 1, 2, 5, 10, ... up to the model's context. */
static const double FIRST_TOKEN_S[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                       0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                       20,    40,    80,   160,  640,  2560, 0};
static const double TOKEN_S[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                 0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80,  0};
static const double REQUEST_S[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,   20,
                                   30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680, 0};
static const double STEP_TOKENS[] = {1,   8,    16,   32,   64,   128,   256,
                                     512, 1024, 2048, 4096, 8192, 16384, 0};
static const double CHOICES[] = {1, 2, 5, 10, 20, 0};
static const double TOKENS[] = {0};

static const struct {
    const char *name, *help;
    const double *bounds;
} model_histograms[MODEL_HISTOGRAMS] = {
    [M_TTFT] = {"vllm:time_to_first_token_seconds", "From arrival to the first token.",
                FIRST_TOKEN_S},
    [M_ITL] = {"vllm:inter_token_latency_seconds", "Between two tokens of an answer.", TOKEN_S},
    [M_TPOT] = {"vllm:request_time_per_output_token_seconds",
                "Mean time between the tokens of a request.", TOKEN_S},
    [M_E2E] = {"vllm:e2e_request_latency_seconds", "From arrival to the end.", REQUEST_S},
    [M_QUEUE_TIME] = {"vllm:request_queue_time_seconds", "From arrival to entering the batch.",
                      REQUEST_S},
    [M_PREFILL_TIME] = {"vllm:request_prefill_time_seconds",
                        "From entering the batch to the first token.", REQUEST_S},
    [M_DECODE_TIME] = {"vllm:request_decode_time_seconds", "From the first token to the end.",
                       REQUEST_S},
    [M_INFERENCE_TIME] = {"vllm:request_inference_time_seconds",
                          "From entering the batch to the end.", REQUEST_S},
    [M_REQUEST_PROMPT] = {"vllm:request_prompt_tokens", "Tokens of a request's prompt.", TOKENS},
    [M_REQUEST_GENERATION] = {"vllm:request_generation_tokens", "Tokens of a request's answer.",
                              TOKENS},
    [M_REQUEST_LONGEST] = {"vllm:request_max_num_generation_tokens",
                           "Tokens of a request's longest choice.", TOKENS},
    [M_REQUEST_MAX_TOKENS] = {"vllm:request_params_max_tokens", "max_tokens as requested.", TOKENS},
    [M_REQUEST_N] = {"vllm:request_params_n", "n as requested.", CHOICES},
    [M_STEP_TOKENS] = {"vllm:iteration_tokens_total", "Tokens computed in a step.", STEP_TOKENS},
};

/* vLLM's names of the finish reasons. */
enum { END_STOP, END_LENGTH, END_ABORT, END_ERROR, ENDS };
static const char *const end_names[ENDS] = {"stop", "length", "abort", "error"};

struct model {
    struct gauge *gauges[MODEL_GAUGES];
    struct counter *counters[MODEL_COUNTERS];
    struct histogram *histograms[MODEL_HISTOGRAMS];
    struct counter *ends[ENDS];
    struct counter *accepted_at[DRAFT_MAX];    /* draft tokens, by their place in the row */
    uint64_t block_bytes[KV_CACHE_GROUPS_MAX]; /* of a KV block of each group; 0: no such group */
};

/* --- metrics of the server --------------------------------------------------------------- */

enum {
    S_CONNECTIONS,
    S_EXCHANGES,
    S_BODIES_BYTES,
    S_QUEUED_BYTES,
    S_ANSWERS,
    S_KEPT_ANSWERS,
    S_KEPT_BYTES,
    S_ANSWERS_BYTES,
    S_EMBEDDINGS_BYTES,
    S_WORK_ITEMS,
    S_WORK_BYTES,
    S_MEMORY_MAX,
    S_STORE_BYTES,
    S_STORE_BYTES_MAX,
    S_STORE_FAILING,
    S_STORE_COMMIT,
    S_BATCHES_OPEN,
    S_LINES_WAITING,
    S_LINES_RUNNING,
    S_RESIDENT,
    S_FDS,
    S_FDS_MAX,
    S_START,
    SERVER_GAUGES
};
static const struct row server_gauges[SERVER_GAUGES] = {
    [S_CONNECTIONS] = {"jitney:http_connections", "Open connections."},
    [S_EXCHANGES] = {"jitney:http_exchanges", "HTTP requests under way."},
    [S_BODIES_BYTES] = {"jitney:http_bodies_bytes", "Bytes of request bodies that are held."},
    [S_QUEUED_BYTES] = {"jitney:http_queued_bytes",
                        "Bytes of responses that wait for clients to read them."},
    [S_ANSWERS] = {"jitney:answers_under_way", "Answers under way."},
    [S_KEPT_ANSWERS] = {"jitney:kept_answers", "Finished answers that can be fetched again."},
    [S_KEPT_BYTES] = {"jitney:kept_answers_bytes", "Memory of the kept answers."},
    [S_ANSWERS_BYTES] = {"jitney:answers_bytes", "Memory of answers under way and kept."},
    [S_EMBEDDINGS_BYTES] = {"jitney:embeddings_bytes", "Memory of requests for embeddings."},
    [S_WORK_ITEMS] = {"jitney:work_items",
                      "Requests whose text is being prepared, or waits for that."},
    [S_WORK_BYTES] = {"jitney:work_bytes", "Memory of those requests."},
    [S_MEMORY_MAX] = {"jitney:memory_max_bytes",
                      "Memory that requests and responses may take (--memory-max)."},
    [S_STORE_BYTES] = {"jitney:store_bytes", "Size of the database in --data-dir and its log."},
    [S_STORE_BYTES_MAX] = {"jitney:store_max_bytes", "Limit of it (--data-max)."},
    [S_STORE_FAILING] = {"jitney:store_failing",
                         "1: the last write to --data-dir failed (disk full, read-only, gone)."},
    [S_STORE_COMMIT] = {"jitney:store_commit_seconds", "How long the last commit took."},
    [S_BATCHES_OPEN] = {"jitney:batches_open", "Batches that have not ended."},
    [S_LINES_WAITING] = {"jitney:batch_lines_waiting",
                         "Lines of these batches that wait to be run."},
    [S_LINES_RUNNING] = {"jitney:batch_lines_running", "Lines of batches under way."},
    [S_RESIDENT] = {"process_resident_memory_bytes", "Resident memory size in bytes."},
    [S_FDS] = {"process_open_fds", "Number of open file descriptors."},
    [S_FDS_MAX] = {"process_max_fds", "Maximum number of open file descriptors."},
    [S_START] = {"process_start_time_seconds", "Start time of the process since 1970."},
};

enum {
    S_ACCEPTED,
    S_TURNED_AWAY,
    S_PEER_REFUSED,
    S_EVICTED,
    S_SHED,
    S_SLOW,
    S_BODIES_REFUSED,
    S_FAULTS,
    S_BYTES_IN,
    S_BYTES_OUT,
    S_WRITES,
    S_LOG_LOST,
    S_SPANS_LOST,
    S_ANSWERS_REFUSED,
    S_WORK_REFUSED,
    S_STORE_COMMITS,
    S_STORE_OPERATIONS,
    S_STORE_FAILED,
    S_LINES_COMPLETED,
    S_LINES_FAILED,
    S_LINES_REPEATED,
    S_CPU,
    SERVER_COUNTERS
};
static const struct row server_counters[SERVER_COUNTERS] = {
    [S_ACCEPTED] = {"jitney:http_connections_accepted_total", "Connections accepted."},
    [S_TURNED_AWAY] = {"jitney:http_connections_refused_total", "Connections over the limit."},
    [S_PEER_REFUSED] = {"jitney:http_connections_refused_peer_total",
                        "Connections over the limit of one address."},
    [S_EVICTED] = {"jitney:http_connections_evicted_total",
                   "Idle or slow connections closed to make room for new ones."},
    [S_SHED] = {"jitney:http_connections_shed_total",
                "Connections closed because too many bytes of responses waited."},
    [S_SLOW] = {"jitney:http_slow_total",
                "Bodies, messages, streams and connections ended below the least rate."},
    [S_BODIES_REFUSED] = {"jitney:http_bodies_refused_total",
                          "Request bodies and messages over the budget or a share of it."},
    [S_FAULTS] = {"jitney:http_faults_total", "Violations of the HTTP protocol."},
    [S_BYTES_IN] = {"jitney:http_received_bytes_total", "Bytes read from clients."},
    [S_BYTES_OUT] = {"jitney:http_sent_bytes_total", "Bytes written to clients."},
    [S_WRITES] = {"jitney:http_writes_total", "Writes to sockets."},
    [S_LOG_LOST] = {"jitney:log_lines_lost_total",
                    "Log lines dropped because the reader was slow."},
    [S_SPANS_LOST] = {"jitney:trace_spans_lost_total",
                      "Spans that were not delivered to the collector."},
    [S_ANSWERS_REFUSED] = {"jitney:answers_refused_total",
                           "Requests refused because answers had no memory left."},
    [S_WORK_REFUSED] = {"jitney:work_refused_total",
                        "Requests refused because too many were being prepared."},
    [S_STORE_COMMITS] = {"jitney:store_commits_total", "Commits of the store."},
    [S_STORE_OPERATIONS] = {"jitney:store_operations_total", "Operations of the store."},
    [S_STORE_FAILED] = {"jitney:store_failed_operations_total",
                        "Operations of the store that failed."},
    [S_LINES_COMPLETED] = {"jitney:batch_lines_completed_total",
                           "Lines of batches that were answered."},
    [S_LINES_FAILED] = {"jitney:batch_lines_failed_total",
                        "Lines of batches whose result is an error."},
    [S_LINES_REPEATED] = {"jitney:batch_lines_repeated_total",
                          "How often a line was run again after an error that may pass."},
    [S_CPU] = {"process_cpu_seconds_total", "User and system CPU time in seconds."},
};

struct route {
    const char *name; /* the caller's, in a constant table */
    uint32_t statuses[STATUSES_MAX];
    struct counter *counters[STATUSES_MAX];
    uint32_t count;
};

struct server_metrics {
    struct metrics *registry;
    struct gauge *gauges[SERVER_GAUGES];
    struct counter *counters[SERVER_COUNTERS];
    struct histogram *request_seconds;
    struct route routes[ROUTES_MAX];
    uint32_t route_count;
    struct model models[METRICS_MODELS_MAX];
    uint32_t model_count;
};

/* --- create and destroy ------------------------------------------------------------------ */

static uint32_t count_bounds(const double *bounds) {
    uint32_t count = 0;
    while (bounds[count] > 0) count++;
    return count;
}

/* 1, 2, 5, 10, 20, 50, ... up to `max`. */
static uint32_t fill_bounds(uint32_t max, double out[BOUNDS_MAX]) {
    static const uint64_t steps[] = {1, 2, 5};
    uint32_t count = 0;
    for (uint64_t ten = 1; count + 3 <= BOUNDS_MAX; ten *= 10)
        for (uint32_t i = 0; i < 3; i++) {
            if (ten * steps[i] > max) return count;
            out[count++] = (double)(ten * steps[i]);
        }
    return count;
}

static bool add_server_rows(struct server_metrics *m) {
    char build[LABELS_BYTES_MAX];
    bool ok = true;
    for (uint32_t i = 0; i < SERVER_GAUGES; i++)
        ok &= !!(m->gauges[i] =
                     metrics_gauge(m->registry, server_gauges[i].name, "", server_gauges[i].help));
    for (uint32_t i = 0; i < SERVER_COUNTERS; i++)
        ok &= !!(m->counters[i] = metrics_counter(m->registry, server_counters[i].name, "",
                                                  server_counters[i].help));
    m->request_seconds = metrics_histogram(m->registry, "jitney:http_request_seconds", "",
                                           "From a request's head to the end of its response.",
                                           FIRST_TOKEN_S, count_bounds(FIRST_TOKEN_S));
    snprintf(build, sizeof(build), "version=\"%s\"", JITNEY_VERSION);
    struct gauge *info = metrics_gauge(m->registry, "jitney:build_info", build, "Always 1.");
    if (!ok || !m->request_seconds || !info) return false;
    gauge_set(info, 1);
    gauge_set(m->gauges[S_START], (double)clock_wall_us() / 1e6);
    return true;
}

enum status server_metrics_create(struct server_metrics **out) {
    struct server_metrics *m = mem_zalloc(sizeof(*m));
    if (!m) return ST_NOMEM;
    if (metrics_create(&m->registry) != ST_OK || !add_server_rows(m)) {
        server_metrics_destroy(m);
        return ST_NOMEM;
    }
    *out = m;
    return ST_OK;
}

void server_metrics_destroy(struct server_metrics *m) {
    if (!m) return;
    metrics_destroy(m->registry);
    mem_free(m);
}

static bool add_histograms(struct metrics *r, const struct metrics_model *info, const char *labels,
                           struct model *model) {
    double tokens[BOUNDS_MAX];
    uint32_t token_bounds = fill_bounds(info->ctx_tokens ? info->ctx_tokens : 1, tokens);
    bool ok = true;
    for (uint32_t i = 0; i < MODEL_HISTOGRAMS; i++) {
        const double *bounds = model_histograms[i].bounds;
        bool of_tokens = bounds == TOKENS;
        model->histograms[i] = metrics_histogram(
            r, model_histograms[i].name, labels, model_histograms[i].help,
            of_tokens ? tokens : bounds, of_tokens ? token_bounds : count_bounds(bounds));
        ok &= model->histograms[i] != NULL;
    }
    return ok;
}

static bool add_ends(struct metrics *r, struct buf *labels, struct model *model) {
    size_t plain = labels->len;
    bool ok = true;
    for (uint32_t i = 0; i < ENDS; i++) {
        labels->len = plain;
        buf_put_char(labels, ',');
        metrics_put_label(labels, "finished_reason", end_names[i]);
        model->ends[i] = metrics_counter(r, "vllm:request_success_total", buf_text(labels),
                                         "Requests that have ended, by how.");
        ok &= model->ends[i] != NULL && buf_status(labels) == ST_OK;
    }
    return ok;
}

static bool add_draft_places(struct metrics *r, struct buf *labels, struct model *model) {
    size_t plain = labels->len;
    bool ok = true;
    for (uint32_t i = 0; i < DRAFT_MAX; i++) {
        labels->len = plain;
        buf_printf(labels, ",position=\"%u\"", i);
        model->accepted_at[i] = metrics_counter(
            r, "vllm:spec_decode_num_accepted_tokens_per_pos_total", buf_text(labels),
            "Accepted draft tokens, by their place among the "
            "drafts of a row.");
        ok &= model->accepted_at[i] != NULL && buf_status(labels) == ST_OK;
    }
    return ok;
}

/* For routers: the shape of the cache, and that there are no adapters. */
static bool add_infos(struct metrics *r, const struct metrics_model *info, struct buf *labels) {
    size_t plain = labels->len;
    buf_printf(labels, ",engine=\"0\",block_size=\"%u\",num_gpu_blocks=\"%u\",max_model_len=\"%u\"",
               info->block_tokens, info->kv_blocks, info->ctx_tokens);
    struct gauge *cache = metrics_gauge(r, "vllm:cache_config_info", buf_text(labels),
                                        "Always 1; the labels describe the KV cache.");
    labels->len = plain;
    buf_put_text(labels, ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"");
    struct gauge *lora = metrics_gauge(r, "vllm:lora_requests_info", buf_text(labels),
                                       "When adapters were last looked at, since 1970.");
    if (!cache || !lora || buf_status(labels) != ST_OK) return false;
    gauge_set(cache, 1);
    gauge_set(lora, (double)clock_wall_us() / 1e6);
    return true;
}

static bool add_model_rows(struct metrics *r, const struct metrics_model *info, struct buf *labels,
                           struct model *model) {
    const char *text = buf_text(labels);
    bool ok = buf_status(labels) == ST_OK;
    for (uint32_t i = 0; i < MODEL_GAUGES; i++)
        ok &= !!(model->gauges[i] =
                     metrics_gauge(r, model_gauges[i].name, text, model_gauges[i].help));
    for (uint32_t i = 0; i < MODEL_COUNTERS; i++)
        ok &= !!(model->counters[i] =
                     metrics_counter(r, model_counters[i].name, text, model_counters[i].help));
    return ok && add_histograms(r, info, text, model);
}

enum status server_metrics_add_model(struct server_metrics *m, const struct metrics_model *info,
                                     uint32_t *model) {
    *model = METRICS_MODELS_MAX;
    if (m->model_count == METRICS_MODELS_MAX) return ST_FULL;
    struct buf labels;
    struct model made = {0};
    for (uint32_t g = 0; g < info->group_count; g++) made.block_bytes[g] = info->block_bytes[g];
    buf_init(&labels, LABELS_BYTES_MAX);
    metrics_put_label(&labels, "model_name", info->name);
    size_t plain = labels.len;
    bool ok =
        add_model_rows(m->registry, info, &labels, &made) && add_ends(m->registry, &labels, &made);
    labels.len = plain;
    ok = ok && (info->kv_blocks == 0 || add_draft_places(m->registry, &labels, &made));
    labels.len = plain;
    ok = ok && (info->kv_blocks == 0 || add_infos(m->registry, info, &labels));
    buf_deinit(&labels);
    if (!ok) return ST_NOMEM; /* rows that were added stay at zero */
    m->models[m->model_count] = made;
    *model = m->model_count++;
    return ST_OK;
}

/* --- counting ---------------------------------------------------------------------------- */

/* NULL: there was no memory for its rows. */
static struct model *model_at(struct server_metrics *m, uint32_t model) {
    CHECK(model < m->model_count || model == METRICS_MODELS_MAX);
    return model < m->model_count ? &m->models[model] : NULL;
}

static double seconds(int64_t us) { return (double)us / 1e6; }

void server_metrics_tokens(struct server_metrics *m, uint32_t model, uint32_t count,
                           int64_t gap_us) {
    struct model *row = model_at(m, model);
    if (!row) return;
    counter_add(row->counters[M_GENERATION_TOKENS], count);
    /* Tokens that arrived together share the time since the previous ones. */
    if (gap_us >= 0 && count > 0)
        histogram_observe(row->histograms[M_ITL], seconds(gap_us) / count, count);
}

static int end_of(enum finish_reason finish) {
    switch (finish) {
    case FINISH_STOP:
        return END_STOP;
    case FINISH_LENGTH:
        return END_LENGTH;
    case FINISH_ERROR:
        return END_ERROR;
    case FINISH_NONE:
    case FINISH_CANCELLED:
    case FINISH_EXPIRED:
    case FINISH_REFUSED:
        return END_ABORT;
    }
    return END_ABORT;
}

/* The time from one moment to another, if both are known. */
static void observe_span(struct histogram *h, int64_t from_us, int64_t to_us) {
    if (from_us > 0 && to_us >= from_us) histogram_observe(h, seconds(to_us - from_us), 1);
}

static void observe_times(struct histogram *const *h, const struct metrics_generation *r) {
    observe_span(h[M_TTFT], r->arrived_us, r->first_token_us);
    observe_span(h[M_E2E], r->arrived_us, r->finished_us);
    observe_span(h[M_QUEUE_TIME], r->arrived_us, r->started_us);
    observe_span(h[M_PREFILL_TIME], r->started_us, r->first_token_us);
    observe_span(h[M_DECODE_TIME], r->first_token_us, r->finished_us);
    observe_span(h[M_INFERENCE_TIME], r->started_us, r->finished_us);
    double gaps = (double)r->completion_tokens / (r->choices ? r->choices : 1) - 1;
    if (gaps > 0 && r->first_token_us > 0 && r->finished_us >= r->first_token_us)
        histogram_observe(h[M_TPOT], seconds(r->finished_us - r->first_token_us) / gaps, 1);
}

void server_metrics_generation(struct server_metrics *m, const struct metrics_generation *r) {
    struct model *row = model_at(m, r->model);
    if (!row) return;
    struct histogram **h = row->histograms;
    counter_add(row->ends[end_of(r->finish)], 1);
    counter_add(row->counters[M_PROMPT_TOKENS], r->prompt_tokens);
    if (!r->is_batch) observe_times(h, r);
    histogram_observe(h[M_REQUEST_PROMPT], r->prompt_tokens, 1);
    histogram_observe(h[M_REQUEST_GENERATION], r->completion_tokens, 1);
    histogram_observe(h[M_REQUEST_LONGEST], r->longest_tokens, 1);
    if (r->max_tokens) histogram_observe(h[M_REQUEST_MAX_TOKENS], r->max_tokens, 1);
    histogram_observe(h[M_REQUEST_N], r->n ? r->n : 1, 1);
}

void server_metrics_embedding(struct server_metrics *m, const struct metrics_generation *r) {
    struct model *row = model_at(m, r->model);
    if (!row) return;
    counter_add(row->ends[end_of(r->finish)], 1);
    counter_add(row->counters[M_PROMPT_TOKENS], r->prompt_tokens);
    observe_span(row->histograms[M_E2E], r->arrived_us, r->finished_us);
    histogram_observe(row->histograms[M_REQUEST_PROMPT], r->prompt_tokens, 1);
}

void server_metrics_verified(struct server_metrics *m, uint32_t model) {
    struct model *row = model_at(m, model);
    if (row) gauge_set(row->gauges[M_VERIFIED], 1);
}

static struct route *route_get(struct server_metrics *m, const char *name) {
    for (uint32_t i = 0; i < m->route_count; i++)
        if (m->routes[i].name == name || strcmp(m->routes[i].name, name) == 0) return &m->routes[i];
    if (m->route_count == ROUTES_MAX) return NULL;
    m->routes[m->route_count] = (struct route){.name = name};
    return &m->routes[m->route_count++];
}

static struct counter *route_counter(struct server_metrics *m, struct route *r, uint32_t status) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->statuses[i] == status) return r->counters[i];
    if (r->count == STATUSES_MAX) return NULL;
    struct buf labels;
    buf_init(&labels, LABELS_BYTES_MAX);
    metrics_put_label(&labels, "route", r->name);
    buf_printf(&labels, ",status=\"%u\"", status);
    struct counter *made =
        buf_status(&labels) == ST_OK
            ? metrics_counter(m->registry, "jitney:http_requests_total", buf_text(&labels),
                              "Responses by route and status.")
            : NULL;
    buf_deinit(&labels);
    if (!made) return NULL;
    r->statuses[r->count] = status;
    r->counters[r->count++] = made;
    return made;
}

void server_metrics_response(struct server_metrics *m, const char *route, uint32_t status,
                             double took_s) {
    struct route *r = route_get(m, route);
    struct counter *c = r ? route_counter(m, r, status) : NULL;
    if (c) counter_add(c, 1);
    histogram_observe(m->request_seconds, took_s, 1);
}

/* --- printing ----------------------------------------------------------------------------- */

static void pull_kv(struct model *row, const struct kv_cache_stats *kv) {
    uint64_t free_count = 0, held = 0, cached = 0, bytes = 0;
    double usage = 0;
    for (uint32_t i = 0; i < KV_CACHE_GROUPS_MAX; i++) {
        const struct kv_pool_stats *g = &kv->groups[i];
        uint64_t total = (uint64_t)g->free_count + g->held_count + g->cached_count;
        double share = total ? (double)g->held_count / (double)total : 0;
        if (share > usage) usage = share;
        free_count += g->free_count;
        held += g->held_count;
        cached += g->cached_count;
        bytes += g->touched_count * row->block_bytes[i];
    }
    gauge_set(row->gauges[M_KV_USAGE], usage);
    gauge_set(row->gauges[M_KV_FREE], (double)free_count);
    gauge_set(row->gauges[M_KV_HELD], (double)held);
    gauge_set(row->gauges[M_KV_CACHED], (double)cached);
    gauge_set(row->gauges[M_KV_SPILLED], kv->spilled_blocks);
    gauge_set(row->gauges[M_KV_MEMORY], (double)bytes);
    counter_set(row->counters[M_PREFIX_QUERIES], (double)kv->lookup_tokens);
    counter_set(row->counters[M_PREFIX_HITS], (double)kv->hit_tokens);
    counter_set(row->counters[M_EVICTED], (double)kv->evicted_blocks);
}

/* The engine's sizes are 1, 2, 4, 8, ...; vLLM's bounds leave 2 and 4 out. */
static void pull_steps(struct histogram *h, const struct engine_stats *s) {
    enum { LEFT_OUT = 2, BUCKETS = ENGINE_STEP_SIZES - LEFT_OUT };
    _Static_assert(sizeof(STEP_TOKENS) / sizeof(STEP_TOKENS[0]) == BUCKETS, "bounds and above");
    uint64_t counts[BUCKETS] = {s->step_sizes[0]};
    for (uint32_t i = 1; i < ENGINE_STEP_SIZES; i++)
        counts[i <= LEFT_OUT ? 1 : i - LEFT_OUT] += s->step_sizes[i];
    histogram_set(h, counts, (double)s->step_tokens);
}

static void pull_drafts(struct model *row, const struct draft_stats *s) {
    counter_set(row->counters[M_DRAFTS], (double)s->rows);
    counter_set(row->counters[M_DRAFT_TOKENS], (double)s->drafted);
    counter_set(row->counters[M_ACCEPTED_TOKENS], (double)s->accepted);
    for (uint32_t i = 0; i < DRAFT_MAX; i++)
        counter_set(row->accepted_at[i], (double)s->accepted_at[i]);
}

static void pull_engine(struct model *row, const struct engine_stats *s) {
    gauge_set(row->gauges[M_RUNNING], s->sched.running);
    gauge_set(row->gauges[M_WAITING], s->sched.waiting);
    gauge_set(row->gauges[M_SWAPPED], s->sched.swapped);
    gauge_set(row->gauges[M_STALLED], seconds(s->stalled_us));
    gauge_set(row->gauges[M_PREDICTED_WAIT], s->predicted_wait_us / 1e6);
    counter_set(row->counters[M_PREEMPTIONS], (double)s->sched.preempted);
    counter_set(row->counters[M_STEPS], (double)s->sched.steps);
    counter_set(row->counters[M_STEP_SECONDS], seconds(s->step_us));
    counter_set(row->counters[M_SCHED_SECONDS], seconds(s->sched_us));
    counter_set(row->counters[M_SUBMITTED], (double)s->submitted);
    counter_set(row->counters[M_REFUSED], (double)s->refused);
    counter_set(row->counters[M_RECOMPUTED], (double)s->sched.recomputed_tokens);
    pull_steps(row->histograms[M_STEP_TOKENS], s);
    pull_drafts(row, &s->sched.drafts);
    pull_kv(row, &s->sched.kv);
}

static void pull_http(struct server_metrics *m, const struct http_stats *s) {
    gauge_set(m->gauges[S_CONNECTIONS], s->connections);
    gauge_set(m->gauges[S_EXCHANGES], s->exchanges);
    gauge_set(m->gauges[S_BODIES_BYTES], (double)s->bodies_bytes);
    gauge_set(m->gauges[S_QUEUED_BYTES], (double)s->replies_bytes);
    counter_set(m->counters[S_ACCEPTED], (double)s->accepted);
    counter_set(m->counters[S_PEER_REFUSED], (double)s->peer_refused);
    counter_set(m->counters[S_EVICTED], (double)s->evicted);
    counter_set(m->counters[S_SHED], (double)s->shed);
    counter_set(m->counters[S_SLOW], (double)s->slow);
    counter_set(m->counters[S_BODIES_REFUSED], (double)s->bodies_refused);
    counter_set(m->counters[S_TURNED_AWAY], (double)s->refused);
    counter_set(m->counters[S_FAULTS], (double)s->protocol_errors);
    counter_set(m->counters[S_BYTES_IN], (double)s->bytes_in);
    counter_set(m->counters[S_BYTES_OUT], (double)s->bytes_out);
    counter_set(m->counters[S_WRITES], (double)s->writes);
}

static void pull_durable(struct server_metrics *m, const struct metrics_durable *d) {
    if (!d->store) return;
    gauge_set(m->gauges[S_STORE_BYTES], (double)d->store->bytes);
    gauge_set(m->gauges[S_STORE_BYTES_MAX], (double)d->store->bytes_max);
    gauge_set(m->gauges[S_STORE_FAILING], d->store->is_failing);
    gauge_set(m->gauges[S_STORE_COMMIT], seconds(d->store->commit_us_last));
    gauge_set(m->gauges[S_BATCHES_OPEN], (double)d->batches_open);
    gauge_set(m->gauges[S_LINES_WAITING], (double)d->lines_waiting);
    gauge_set(m->gauges[S_LINES_RUNNING], (double)d->lines_running);
    counter_set(m->counters[S_STORE_COMMITS], (double)d->store->commits);
    counter_set(m->counters[S_STORE_OPERATIONS], (double)d->store->operations);
    counter_set(m->counters[S_STORE_FAILED], (double)d->store->failed);
    counter_set(m->counters[S_LINES_COMPLETED], (double)d->lines_completed);
    counter_set(m->counters[S_LINES_FAILED], (double)d->lines_failed);
    counter_set(m->counters[S_LINES_REPEATED], (double)d->lines_repeated);
}

/* The second number of /proc/self/statm, in pages; 0 if it cannot be read. */
static double resident_bytes(void) {
    struct buf text;
    uint64_t pages = 0;
    buf_init(&text, LABELS_BYTES_MAX);
    if (file_read("/proc/self/statm", &text, NULL) == ST_OK) {
        const char *blank = strchr(buf_text(&text), ' ');
        struct str number = str_of(blank ? blank + 1 : "");
        number.len = strcspn(blank ? blank + 1 : "", " ");
        if (!str_to_u64(number, &pages)) pages = 0;
    }
    buf_deinit(&text);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return 0;
    int64_t count = -3; /* ".", ".." and the one that reads */
    while (readdir(dir)) count++;
    closedir(dir);
    return (double)count;
}

static void pull_process(struct server_metrics *m) {
    struct rusage use;
    struct rlimit fds;
    gauge_set(m->gauges[S_RESIDENT], resident_bytes());
    gauge_set(m->gauges[S_FDS], open_fds());
    if (getrlimit(RLIMIT_NOFILE, &fds) == 0) gauge_set(m->gauges[S_FDS_MAX], (double)fds.rlim_cur);
    if (getrusage(RUSAGE_SELF, &use) != 0) return;
    counter_set(m->counters[S_CPU], (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                                        seconds(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
}

static void pull_memory(struct server_metrics *m, const struct metrics_pull *pull) {
    gauge_set(m->gauges[S_ANSWERS_BYTES], (double)pull->answers_bytes);
    gauge_set(m->gauges[S_EMBEDDINGS_BYTES], (double)pull->embeddings_bytes);
    gauge_set(m->gauges[S_WORK_ITEMS], (double)pull->work_items);
    gauge_set(m->gauges[S_WORK_BYTES], (double)pull->work_bytes);
    gauge_set(m->gauges[S_MEMORY_MAX], (double)pull->memory_max);
    counter_set(m->counters[S_ANSWERS_REFUSED], (double)pull->answers_refused);
    counter_set(m->counters[S_WORK_REFUSED], (double)pull->work_refused);
}

void server_metrics_print(struct server_metrics *m, const struct metrics_pull *pull,
                          struct buf *out) {
    for (uint32_t i = 0; i < m->model_count; i++)
        if (pull->engines[i]) pull_engine(&m->models[i], pull->engines[i]);
    if (pull->http) pull_http(m, pull->http);
    pull_durable(m, &pull->durable);
    gauge_set(m->gauges[S_ANSWERS], (double)pull->answers);
    gauge_set(m->gauges[S_KEPT_ANSWERS], (double)pull->kept_answers);
    gauge_set(m->gauges[S_KEPT_BYTES], (double)pull->kept_bytes);
    pull_memory(m, pull);
    counter_set(m->counters[S_LOG_LOST], (double)pull->lost_log_lines);
    counter_set(m->counters[S_SPANS_LOST], (double)pull->lost_spans);
    pull_process(m);
    metrics_print(m->registry, out);
}
