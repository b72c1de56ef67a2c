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

static void test_figures_of_engine_and_network_are_printed(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    struct server_metrics *m = metrics_of(&model);
    struct engine_stats engine = {
        .sched = {.waiting = 3,
                  .running = 5,
                  .preempted = 7,
                  .steps = 70,
                  .kv = {.groups = {{.free_count = 20,
                                     .held_count = 60,
                                     .cached_count = 20,
                                     .touched_count = 90},
                                    {.free_count = 10, .touched_count = 4}},
                         .lookup_tokens = 1000,
                         .hit_tokens = 400}},
        .step_tokens = 999,
        .step_sizes = {1, 2, 4, 8, 16, [15] = 32},
        .step_us = 2500000,
        .sched_us = 1000,
        .stalled_us = 100000,
        .predicted_wait_us = 2e6};
    const struct http_stats http = {.connections = 4, .protocol_errors = 2, .bytes_out = 12345};
    struct metrics_pull pull = {.http = &http,
                                .kept_answers = 9,
                                .kept_bytes = 999,
                                .lost_spans = 6,
                                .answers_bytes = 5001,
                                .answers_refused = 2,
                                .work_items = 3,
                                .work_bytes = 5002,
                                .work_refused = 4,
                                .memory_max = 5003,
                                .embeddings_bytes = 5004};
    pull.engines[model] = &engine;
    const char *page = print(m, &pull, &out);
    assert_true(value(page, "vllm:num_requests_waiting") == 3);
    assert_true(value(page, "vllm:num_requests_running") == 5);
    assert_true(value(page, "vllm:num_preemptions_total") == 7);
    assert_true(value(page, "vllm:kv_cache_usage_perc") == 0.6);
    assert_true(value(page, "jitney:kv_memory_bytes") == 90.0 * (3 << 20) + 4.0 * 5);
    assert_true(value(page, "vllm:prefix_cache_hits_total") == 400);
    assert_true(value(page, "vllm:iteration_tokens_total_sum") == 999);
    assert_true(value(page, "vllm:iteration_tokens_total_count") == 63);
    assert_true(exposition_value(page, "vllm:iteration_tokens_total_bucket{model_name=\"smol\\\""
                                       "lm\",le=\"8\"}") == 15);
    assert_true(exposition_value(page, "vllm:iteration_tokens_total_bucket{model_name=\"smol\\\""
                                       "lm\",le=\"16384\"}") == 31);
    assert_true(value(page, "jitney:step_seconds_total") == 2.5);
    assert_true(value(page, "jitney:stalled_seconds") == 0.1);
    assert_true(value(page, "jitney:queue_predicted_wait_seconds") == 2);
    assert_true(exposition_value(page, "jitney:http_connections") == 4);
    assert_true(exposition_value(page, "jitney:http_sent_bytes_total") == 12345);
    assert_true(exposition_value(page, "jitney:kept_answers_bytes") == 999);
    assert_true(exposition_value(page, "jitney:trace_spans_lost_total") == 6);
    assert_true(exposition_value(page, "jitney:answers_bytes") == 5001);
    assert_true(exposition_value(page, "jitney:embeddings_bytes") == 5004);
    assert_true(exposition_value(page, "jitney:answers_refused_total") == 2);
    assert_true(exposition_value(page, "jitney:work_items") == 3);
    assert_true(exposition_value(page, "jitney:work_bytes") == 5002);
    assert_true(exposition_value(page, "jitney:work_refused_total") == 4);
    assert_true(exposition_value(page, "jitney:memory_max_bytes") == 5003);
    buf_deinit(&out);
    server_metrics_destroy(m);
}

static void test_responses_are_counted_by_route_and_status_within_bounds(void **state) {
    (void)state;
    uint32_t model;
    struct buf out;
    static char routes[100][16];
    struct server_metrics *m = metrics_of(&model);
    server_metrics_response(m, "/v1/models", 200, 0.01);
    server_metrics_response(m, "/v1/models", 200, 0.01);
    server_metrics_response(m, "/v1/models", 404, 0.01);
    for (int i = 0; i < 100; i++) {
        snprintf(routes[i], sizeof(routes[i]), "/r%d", i);
        for (uint32_t status = 200; status < 300; status++)
            server_metrics_response(m, routes[i], status, 0);
    }
    const char *page = print(m, &(struct metrics_pull){0}, &out);
    assert_true(exposition_value(
                    page, "jitney:http_requests_total{route=\"/v1/models\",status=\"200\"}") == 2);
    assert_true(exposition_value(page, "jitney:http_request_seconds_count") == 10003);
    uint32_t rows = 0;
    for (const char *p = page; (p = strstr(p, "\njitney:http_requests_total{")); p++) rows++;
    assert_true(rows <= 64 * 24);
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
        cmocka_unit_test(test_a_generation_that_never_started_has_no_times),
        cmocka_unit_test(test_figures_of_engine_and_network_are_printed),
        cmocka_unit_test(test_responses_are_counted_by_route_and_status_within_bounds),
        cmocka_unit_test(test_a_model_beyond_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
