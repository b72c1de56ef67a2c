/* Goal:   /metrics is well formed, and has the names that dashboards and routers read and the right
 *         numbers.
 * Method: invented generations and statistics; the page goes through the strict parser, and single
 *         samples are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "net/http.h"
#include "report/server_metrics.h"
#include "unit/metrics/exposition.h"

enum { PAGE_BYTES_MAX = 8 << 20 };

static struct server_metrics *metrics_of(uint32_t *model) {
    struct server_metrics *m = NULL;
    static const uint64_t block_bytes[] = {3 << 20, 5};
    const struct metrics_model info = {.name = "smol\"lm",
                                       .ctx_tokens = 2048,
                                       .block_tokens = 16,
                                       .kv_blocks = 1000,
                                       .block_bytes = block_bytes,
                                       .group_count = 2};
    assert_int_equal(server_metrics_create(&m), ST_OK);
    assert_int_equal(server_metrics_add_model(m, &info, model), ST_OK);
    return m;
}

static const char *print(struct server_metrics *m, const struct metrics_pull *pull,
                         struct buf *out) {
    buf_init(out, PAGE_BYTES_MAX);
    server_metrics_print(m, pull, out);
    assert_int_equal(buf_status(out), ST_OK);
    exposition_check(buf_text(out));
    return buf_text(out);
}

#define LABEL "{model_name=\"smol\\\"lm\"}"

static double value(const char *page, const char *name) {
    char sample[200];
    snprintf(sample, sizeof(sample), "%s" LABEL, name);
    return exposition_value(page, sample);
}

static void test_every_metric_that_dashboards_read_is_printed(void **state) {
    (void)state;
    static const char *const names[] = {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:num_preemptions_total",
        "vllm:iteration_tokens_total_count",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:inter_token_latency_seconds_count",
        "vllm:request_time_per_output_token_seconds_count",
        "vllm:e2e_request_latency_seconds_sum",
        "vllm:request_queue_time_seconds_sum",
        "vllm:request_prefill_time_seconds_sum",
        "vllm:request_decode_time_seconds_sum",
        "vllm:request_inference_time_seconds_sum",
        "vllm:request_prompt_tokens_sum",
        "vllm:request_generation_tokens_sum",
        "vllm:request_max_num_generation_tokens_sum",
        "vllm:request_params_max_tokens_sum",
        "vllm:request_params_n_sum",
        "jitney:step_seconds_total",
        "jitney:sched_seconds_total",
        "jitney:stalled_seconds",
        "jitney:queue_predicted_wait_seconds",
    };
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) value(page, names[i]);
    assert_non_null(strstr(page, "vllm:cache_config_info{model_name=\"smol\\\"lm\",engine=\"0\","
                                 "block_size=\"16\",num_gpu_blocks=\"1000\""));
    assert_non_null(strstr(page, "vllm:lora_requests_info{"));
    assert_non_null(strstr(page, "jitney:build_info{version=\""));
    assert_true(exposition_value(page, "process_resident_memory_bytes") > 1e5);
    assert_true(exposition_value(page, "process_open_fds") >= 3);
    assert_true(exposition_value(page, "process_cpu_seconds_total") > 0);
    assert_true(exposition_value(page, "process_start_time_seconds") > 1.6e9);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_a_generation_is_counted_once_in_each_metric(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const struct metrics_generation generation = {.model = model,
                                                  .finish = FINISH_LENGTH,
                                                  .prompt_tokens = 100,
                                                  .completion_tokens = 11,
                                                  .max_tokens = 11,
                                                  .n = 1,
                                                  .choices = 1,
                                                  .longest_tokens = 11,
                                                  .arrived_us = 1000000,
                                                  .started_us = 1200000,
                                                  .first_token_us = 1500000,
                                                  .finished_us = 2500000};
    server_metrics_tokens(m, model, 1, -1);
    server_metrics_tokens(m, model, 10, 1000000);
    server_metrics_generation(m, &generation);
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(value(page, "vllm:prompt_tokens_total") == 100);
    assert_true(value(page, "vllm:generation_tokens_total") == 11);
    assert_true(value(page, "vllm:time_to_first_token_seconds_sum") == 0.5);
    assert_true(value(page, "vllm:inter_token_latency_seconds_count") == 10);
    assert_true(value(page, "vllm:inter_token_latency_seconds_sum") == 1);
    assert_true(value(page, "vllm:request_time_per_output_token_seconds_sum") == 0.1);
    assert_true(value(page, "vllm:e2e_request_latency_seconds_sum") == 1.5);
    assert_true(value(page, "vllm:request_queue_time_seconds_sum") == 0.2);
    assert_true(value(page, "vllm:request_prefill_time_seconds_sum") == 0.3);
    assert_true(value(page, "vllm:request_decode_time_seconds_sum") == 1);
    assert_true(value(page, "vllm:request_inference_time_seconds_sum") == 1.3);
    assert_true(exposition_value(page, "vllm:request_success_total{model_name=\"smol\\\"lm\","
                                       "finished_reason=\"length\"}") == 1);
    assert_true(exposition_value(page, "vllm:request_prompt_tokens_bucket{model_name=\"smol\\\""
                                       "lm\",le=\"2000\"}") == 1);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_an_embedding_counts_its_tokens_time_and_end(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    struct metrics_generation r = {.model = model,
                                   .finish = FINISH_STOP,
                                   .prompt_tokens = 30,
                                   .arrived_us = 1000000,
                                   .finished_us = 1500000};
    server_metrics_embedding(m, &r);
    r.finish = FINISH_CANCELLED;
    r.prompt_tokens = 5;
    server_metrics_embedding(m, &r);
    r.model = METRICS_MODELS_MAX; /* without rows */
    server_metrics_embedding(m, &r);
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(value(page, "vllm:prompt_tokens_total") == 35);
    assert_true(value(page, "vllm:request_prompt_tokens_count") == 2);
    assert_true(value(page, "vllm:e2e_request_latency_seconds_sum") == 1);
    assert_true(value(page, "vllm:generation_tokens_total") == 0);
    assert_true(exposition_value(page, "vllm:request_success_total{model_name=\"smol\\\"lm\","
                                       "finished_reason=\"stop\"}") == 1);
    assert_true(exposition_value(page, "vllm:request_success_total{model_name=\"smol\\\"lm\","
                                       "finished_reason=\"abort\"}") == 1);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_a_generation_that_never_started_has_no_times(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const struct metrics_generation generation = {.model = model,
                                                  .finish = FINISH_CANCELLED,
                                                  .prompt_tokens = 3,
                                                  .arrived_us = 5,
                                                  .finished_us = 6};
    server_metrics_generation(m, &generation);
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(value(page, "vllm:time_to_first_token_seconds_count") == 0);
    assert_true(value(page, "vllm:request_queue_time_seconds_count") == 0);
    assert_true(value(page, "vllm:e2e_request_latency_seconds_count") == 1);
    assert_true(exposition_value(page, "vllm:request_success_total{model_name=\"smol\\\"lm\","
                                       "finished_reason=\"abort\"}") == 1);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

/* The times are those of the request; of its tokens each choice has its part. */
static void test_choices_share_the_time_of_their_request(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const struct metrics_generation generation = {.model = model,
                                                  .finish = FINISH_STOP,
                                                  .prompt_tokens = 30,
                                                  .completion_tokens = 66,
                                                  .max_tokens = 20,
                                                  .n = 3,
                                                  .choices = 6, /* of two prompts */
                                                  .longest_tokens = 17,
                                                  .arrived_us = 1000000,
                                                  .started_us = 1250000,
                                                  .first_token_us = 1500000,
                                                  .finished_us = 2500000};
    server_metrics_generation(m, &generation);
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(value(page, "vllm:request_time_per_output_token_seconds_sum") == 0.1);
    assert_true(value(page, "vllm:request_time_per_output_token_seconds_count") == 1);
    assert_true(value(page, "vllm:request_generation_tokens_sum") == 66);
    assert_true(value(page, "vllm:request_max_num_generation_tokens_sum") == 17);
    assert_true(value(page, "vllm:request_params_max_tokens_sum") == 20);
    assert_true(value(page, "vllm:request_params_n_sum") == 3);
    assert_true(value(page, "vllm:request_prompt_tokens_sum") == 30);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

struct figure {
    const char *name;
    double value;
};

static void check_figures(const char *page, const struct figure *list, size_t count,
                          bool of_model) {
    for (size_t i = 0; i < count; i++) {
        double found = of_model ? value(page, list[i].name) : exposition_value(page, list[i].name);
        if (found != list[i].value)
            fail_msg("%s is %g, expected %g", list[i].name, found, list[i].value);
    }
}

/* Every figure has a number of its own, so that none can stand for another. */
static void test_figures_of_an_engine_are_printed(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const struct engine_stats engine = {
        .sched = {.waiting = 3,
                  .running = 5,
                  .swapped = 6,
                  .preempted = 7,
                  .steps = 70,
                  .recomputed_tokens = 71,
                  .kv = {.groups = {{.free_count = 20,
                                     .held_count = 60,
                                     .cached_count = 20,
                                     .touched_count = 90},
                                    {.free_count = 11, .cached_count = 4, .touched_count = 4}},
                         .spilled_blocks = 8,
                         .lookup_tokens = 1000,
                         .hit_tokens = 400,
                         .evicted_blocks = 72}},
        .step_tokens = 999,
        .submitted = 73,
        .refused = 74,
        .step_us = 2500000,
        .sched_us = 1000,
        .stalled_us = 100000,
        .predicted_wait_us = 2e6};
    static const struct figure figures[] = {
        {"vllm:num_requests_waiting", 3},
        {"vllm:num_requests_running", 5},
        {"jitney:sequences_swapped", 6},
        {"vllm:num_preemptions_total", 7},
        {"jitney:engine_steps_total", 70},
        {"jitney:recomputed_tokens_total", 71},
        {"vllm:kv_cache_usage_perc", 0.6},
        {"jitney:kv_blocks_free", 31},
        {"jitney:kv_blocks_held", 60},
        {"jitney:kv_blocks_cached", 24},
        {"jitney:kv_blocks_spilled", 8},
        {"jitney:kv_memory_bytes", 90.0 * (3 << 20) + 4.0 * 5},
        {"jitney:kv_blocks_evicted_total", 72},
        {"vllm:prefix_cache_queries_total", 1000},
        {"vllm:prefix_cache_hits_total", 400},
        {"vllm:iteration_tokens_total_sum", 999},
        {"jitney:requests_submitted_total", 73},
        {"jitney:requests_refused_total", 74},
        {"jitney:step_seconds_total", 2.5},
        {"jitney:sched_seconds_total", 0.001},
        {"jitney:stalled_seconds", 0.1},
        {"jitney:queue_predicted_wait_seconds", 2},
    };
    struct metrics_pull pull = {0};
    pull.engines[model] = &engine;
    const char *page = print(m, &pull, &out);
    check_figures(page, figures, sizeof(figures) / sizeof(figures[0]), true);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

/* The engine counts steps of 1 token, of up to 2, 4, 8 ...; the page has no bounds 2 and 4. */
static void test_steps_are_counted_below_the_right_bounds(void **state) {
    (void)state;
    static const struct {
        uint32_t bound;
        uint64_t steps;
    } expected[] = {{1, 1},       {8, 15},       {16, 31},      {32, 63},     {64, 127},
                    {128, 255},   {256, 511},    {512, 1023},   {1024, 2047}, {2048, 4095},
                    {4096, 8191}, {8192, 16383}, {16384, 32767}};
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    struct engine_stats engine = {0};
    for (uint32_t i = 0; i < ENGINE_STEP_SIZES; i++) engine.step_sizes[i] = 1u << i;
    struct metrics_pull pull = {0};
    pull.engines[model] = &engine;
    const char *page = print(m, &pull, &out);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        char sample[200];
        snprintf(sample, sizeof(sample),
                 "vllm:iteration_tokens_total_bucket{model_name=\"smol\\\"lm\",le=\"%u\"}",
                 expected[i].bound);
        if (exposition_value(page, sample) != (double)expected[i].steps)
            fail_msg("%s is %g", sample, exposition_value(page, sample));
    }
    assert_true(value(page, "vllm:iteration_tokens_total_count") == 65535);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_figures_of_the_server_are_printed(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    const struct http_stats http = {.connections = 101,
                                    .exchanges = 102,
                                    .accepted = 103,
                                    .refused = 104,
                                    .peer_refused = 105,
                                    .evicted = 106,
                                    .slow = 107,
                                    .protocol_errors = 108,
                                    .bytes_in = 109,
                                    .bytes_out = 110,
                                    .writes = 111,
                                    .bodies_bytes = 112,
                                    .bodies_refused = 113,
                                    .replies_bytes = 114,
                                    .shed = 115};
    const struct metrics_pull pull = {.http = &http,
                                      .kept_answers = 116,
                                      .kept_bytes = 117,
                                      .answers = 118,
                                      .answers_bytes = 119,
                                      .answers_refused = 120,
                                      .work_items = 121,
                                      .work_bytes = 122,
                                      .work_refused = 123,
                                      .embeddings_bytes = 124,
                                      .memory_max = 125,
                                      .lost_log_lines = 126,
                                      .lost_spans = 127};
    static const struct figure figures[] = {
        {"jitney:http_connections", 101},
        {"jitney:http_exchanges", 102},
        {"jitney:http_connections_accepted_total", 103},
        {"jitney:http_connections_refused_total", 104},
        {"jitney:http_connections_refused_peer_total", 105},
        {"jitney:http_connections_evicted_total", 106},
        {"jitney:http_slow_total", 107},
        {"jitney:http_faults_total", 108},
        {"jitney:http_received_bytes_total", 109},
        {"jitney:http_sent_bytes_total", 110},
        {"jitney:http_writes_total", 111},
        {"jitney:http_bodies_bytes", 112},
        {"jitney:http_bodies_refused_total", 113},
        {"jitney:http_queued_bytes", 114},
        {"jitney:http_connections_shed_total", 115},
        {"jitney:kept_answers", 116},
        {"jitney:kept_answers_bytes", 117},
        {"jitney:answers_under_way", 118},
        {"jitney:answers_bytes", 119},
        {"jitney:answers_refused_total", 120},
        {"jitney:work_items", 121},
        {"jitney:work_bytes", 122},
        {"jitney:work_refused_total", 123},
        {"jitney:embeddings_bytes", 124},
        {"jitney:memory_max_bytes", 125},
        {"jitney:log_lines_lost_total", 126},
        {"jitney:trace_spans_lost_total", 127},
    };
    const char *page = print(m, &pull, &out);
    check_figures(page, figures, sizeof(figures) / sizeof(figures[0]), false);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_responses_are_counted_by_route_and_status_within_bounds(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    static char routes[200][16];
    struct server_metrics *m = metrics_of(&model);
    server_metrics_response(m, "/v1/models", 200, 0.01);
    server_metrics_response(m, "/v1/models", 200, 0.01);
    server_metrics_response(m, "/v1/models", 404, 0.01);
    for (int i = 0; i < 200; i++) {
        snprintf(routes[i], sizeof(routes[i]), "/r%d", i);
        for (uint32_t status = 200; status < 300; status++)
            server_metrics_response(m, routes[i], status, 0);
    }
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(exposition_value(
                    page, "jitney:http_requests_total{route=\"/v1/models\",status=\"200\"}") == 2);
    assert_true(exposition_value(page, "jitney:http_request_seconds_count") == 20003);
    uint32_t rows = 0;
    for (const char *p = page; (p = strstr(p, "\njitney:http_requests_total{")); p++) rows++;
    assert_true(rows <= 128 * 24);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_a_model_beyond_the_limit_is_refused(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    char name[16];
    struct server_metrics *m = metrics_of(&model);
    const struct metrics_model info = {.name = name, .ctx_tokens = 512};
    for (uint32_t i = 1; i < METRICS_MODELS_MAX; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        assert_int_equal(server_metrics_add_model(m, &info, &model), ST_OK);
        assert_int_equal(model, i);
    }
    assert_int_equal(server_metrics_add_model(m, &info, &model), ST_FULL);
    print(m, &(struct metrics_pull){0}, &out);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_metric_that_dashboards_read_is_printed),
        cmocka_unit_test(test_a_generation_is_counted_once_in_each_metric),
        cmocka_unit_test(test_an_embedding_counts_its_tokens_time_and_end),
        cmocka_unit_test(test_a_generation_that_never_started_has_no_times),
        cmocka_unit_test(test_choices_share_the_time_of_their_request),
        cmocka_unit_test(test_figures_of_an_engine_are_printed),
        cmocka_unit_test(test_steps_are_counted_below_the_right_bounds),
        cmocka_unit_test(test_figures_of_the_server_are_printed),
        cmocka_unit_test(test_responses_are_counted_by_route_and_status_within_bounds),
        cmocka_unit_test(test_a_model_beyond_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
