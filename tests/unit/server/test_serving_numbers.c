/* Goal:   what is reported of a request is exact, however it ends: usage, log line, metrics, trace,
 *         headers, and what its key has used.
 * Method: the whole server on a loop that the test turns, with a stopped clock and an engine that
 *         is stepped by hand, so that every number is known.
 * wrap: clock_now engine_start log_line tracer_add uv_now uv_timer_start */
#include <math.h>

#include "server/generations.h"
#include "unit/server/server_rig.h"

#define KEYS "k1 name=alice tenant=a rpm=10 tpm=1000\nk2 name=bob tenant=b admin\n"
#define ALICE "authorization: Bearer k1\r\n"
#define BOB "authorization: Bearer k2\r\n"

static const char *const traced[] = {"otlp-endpoint", "http://127.0.0.1:9", NULL};

/* How many requests have ended in each of the ways that the metrics know. */
static void assert_ends(struct server_rig *g, const char *which, double value) {
    char name[128];
    snprintf(name, sizeof(name),
             "vllm:request_success_total{model_name=\"llama\",finished_reason=\"%s\"}", which);
    assert_metric(g, BOB, name, value);
}

/* Of the key's minute; by a request that takes none of it. */
static void assert_left(struct server_rig *g, uint32_t requests, uint32_t tokens) {
    const struct key *key = keys_find(g->server->keys, STR("k1"));
    const struct key_room room = keys_room(g->server->keys, key, clock_now(&clock_real));
    assert_int_equal(room.requests_left, requests);
    assert_int_equal(room.tokens_left, tokens);
}

/* ---- a request that succeeds ---- */

static const struct {
    const char *name;
    double value;
} sums[] = {
    {"vllm:prompt_tokens_total", 5},
    {"vllm:generation_tokens_total", 16},
    {"vllm:time_to_first_token_seconds_sum", 0.25},
    {"vllm:time_to_first_token_seconds_count", 1},
    {"vllm:inter_token_latency_seconds_sum", 1.2}, /* of 4 choices, 3 times 0.1 */
    {"vllm:inter_token_latency_seconds_count", 12},
    {"vllm:request_time_per_output_token_seconds_sum", 0.4 / 3},
    {"vllm:e2e_request_latency_seconds_sum", 0.65},
    {"vllm:request_queue_time_seconds_sum", 0.25},
    {"vllm:request_prefill_time_seconds_sum", 0},
    {"vllm:request_decode_time_seconds_sum", 0.4},
    {"vllm:request_inference_time_seconds_sum", 0.4},
    {"vllm:request_prompt_tokens_sum", 5},
    {"vllm:request_generation_tokens_sum", 16},
    {"vllm:request_max_num_generation_tokens_sum", 4},
    {"vllm:request_params_max_tokens_sum", 4},
    {"vllm:request_params_n_sum", 2},
    {"jitney:engine_steps_total", 5},
    {"jitney:requests_submitted_total", 2}, /* one for each prompt */
    {"jitney:requests_refused_total", 0},
    {"jitney:answers_under_way", 0},
    {"jitney:answers_bytes", 0},
    {"jitney:kept_answers", 0},
    {"jitney:work_items", 0},
    {"jitney:work_bytes", 0},
    {"jitney:http_exchanges", 1},
};

#define TRACE "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static void assert_traced(void) {
    const int64_t arrived_us = rig_trace.arrived_us;
    struct trace_id id = {0};
    trace_id_read(STR(TRACE), &id);
    assert_int_equal(rig_trace_count, 1);
    assert_string_equal(rig_trace_finish, "length");
    assert_string_equal(rig_trace_model, "llama");
    assert_string_equal(rig_trace_request, "my-id");
    assert_memory_equal(&rig_trace.id, &id, sizeof(id));
    assert_int_equal(rig_trace.status, 200);
    assert_int_equal(rig_trace.prompt_tokens, 5);
    assert_int_equal(rig_trace.completion_tokens, 16);
    assert_int_equal(rig_trace.cached_tokens, 0);
    assert_int_equal(rig_trace.max_tokens, 4);
    assert_int_equal(rig_trace.n, 2);
    assert_true(fabs(rig_trace.temperature - 0.5) < 1e-6);
    assert_true(fabs(rig_trace.top_p - 0.75) < 1e-6);
    assert_int_equal(rig_trace.started_us - arrived_us, 250000);
    assert_int_equal(rig_trace.first_token_us - arrived_us, 250000);
    assert_int_equal(rig_trace.finished_us - arrived_us, 650000);
}

static void test_a_request_has_the_same_numbers_everywhere(void **state) {
    (void)state;
    struct server_rig g;
    struct client c;
    struct reply r;
    int64_t before_us = 0;
    rig_open(&g, KEYS, traced);
    rig_stop_clock_at_second();
    client_send(&g, &c, "POST /v1/completions",
                ALICE "x-request-id: my-id\r\ntraceparent: " TRACE "\r\n",
                "{\"prompt\":[[5,6,7],[8,9]],\"n\":2,\"max_tokens\":4,\"temperature\":0.5,"
                "\"top_p\":0.75}");
    while (!g.server->generations->items.first) rig_turn(&g);
    rig_until(&g, rig_is_prepared);
    rig_pass_us(250000);
    for (uint32_t i = 0; i < 5; i++) { /* the second choice begins when the first has its prompt */
        if (i > 0) rig_pass_us(100000);
        before_us = clock_wall_us();
        assert_int_equal(rig_step(&g, 1), 1);
    }
    reply_take(&g, &c, &r);
    assert_int_equal(r.status, 200);
    assert_json_int(&r, "usage.prompt_tokens", 5);
    assert_json_int(&r, "usage.completion_tokens", 16);
    assert_json_int(&r, "usage.total_tokens", 21);
    assert_header(&r, "x-request-id", "my-id");
    assert_header(&r, "openai-processing-ms", "650");
    assert_header(&r, "x-ratelimit-limit-requests", "10");
    assert_header(&r, "x-ratelimit-remaining-requests", "9");
    assert_header(&r, "x-ratelimit-reset-requests", "59350ms");
    assert_header(&r, "x-ratelimit-limit-tokens", "1000");
    assert_header(&r, "x-ratelimit-remaining-tokens", "979");
    reply_free(&r);
    rig_until(&g, rig_is_quiet);
    static const char *const fields[] = {"id=my-id",
                                         "route=/v1/completions",
                                         "model=llama",
                                         "key=alice",
                                         "status=200",
                                         "finish=length",
                                         "prompt_tokens=5",
                                         "cached_tokens=0",
                                         "completion_tokens=16",
                                         "ttft_ms=250.000",
                                         "total_ms=650.000"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        rig_assert_logged("request", fields[i]);
    assert_int_equal(rig_last_line("request")->level, LOG_INFO);
    assert_null(strstr(rig_last_line("request")->text, "error="));
    rig_assert_logged("response", "status=200");
    rig_assert_logged("response", "ms=650.000");
    rig_assert_logged("response", "method=POST");
    rig_assert_logged("response", "path=/v1/completions");
    assert_int_equal(rig_last_line("response")->level, LOG_DEBUG);
    assert_traced();
    /* In time since 1970; the clock stands still where the request ended. */
    assert_true(before_us <= rig_trace.finished_us);
    assert_true(rig_trace.finished_us <= clock_wall_us());
    assert_left(&g, 9, 979);
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
        assert_metric(&g, BOB, sums[i].name, sums[i].value);
    assert_ends(&g, "length", 1);
    rig_close(&g);
}

/* The tokens of a prompt that the cache has. */
static void test_cached_tokens_are_logged_and_traced(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, KEYS, traced);
    struct buf body;
    buf_init(&body, 1 << 16);
    buf_put_text(&body, "{\"max_tokens\":1,\"prompt\":[1");
    for (uint32_t i = 0; i < 63; i++) buf_printf(&body, ",%u", 10 + i);
    buf_put_text(&body, "]}");
    for (uint32_t i = 0; i < 2; i++) {
        ask(&g, &r, "POST /v1/completions", ALICE, buf_text(&body));
        const int64_t cached =
            json_int(reply_path(r.json, "usage.prompt_tokens_details.cached_tokens"), -1);
        assert_true(i == 0 ? cached == 0 : cached > 0);
        char field[64];
        snprintf(field, sizeof(field), "cached_tokens=%lld", (long long)cached);
        rig_until(&g, rig_is_quiet);
        rig_assert_logged("request", field);
        assert_int_equal(rig_trace.cached_tokens, cached);
        reply_free(&r);
    }
    buf_deinit(&body);
    rig_close(&g);
}

/* A prompt of so many tokens, all of them `token` but the first. */
static void put_prompt(struct buf *out, uint32_t token, uint32_t count) {
    buf_printf(out, "[%u", 10 + token);
    for (uint32_t i = 1; i < count; i++) buf_printf(out, ",%u", token);
    buf_put_char(out, ']');
}

static int64_t cached_of(struct server_rig *g, const char *prompts, uint32_t n) {
    struct reply r;
    char body[2048];
    snprintf(body, sizeof(body), "{\"max_tokens\":1,\"n\":%u,\"prompt\":%s}", n, prompts);
    ask(g, &r, "POST /v1/completions", ALICE, body);
    const int64_t cached =
        json_int(reply_path(r.json, "usage.prompt_tokens_details.cached_tokens"), -1);
    reply_free(&r);
    return cached;
}

/* The response is written before the engine knows of the end. */
static void test_an_answer_that_a_stop_string_ends_has_its_cached_tokens(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    struct buf prompt, body;
    rig_open(&g, KEYS, NULL);
    buf_init(&prompt, 1 << 16);
    buf_init(&body, 1 << 16);
    put_prompt(&prompt, 7, 100);
    buf_printf(&body, "{\"max_tokens\":8,\"seed\":3,\"prompt\":%s}", buf_text(&prompt));
    ask(&g, &r, "POST /v1/completions", ALICE, buf_text(&body));
    buf_clear(&body);
    buf_printf(&body, "{\"max_tokens\":40,\"seed\":3,\"prompt\":%s,\"stop\":", buf_text(&prompt));
    buf_put_json_string(&body, json_str(reply_path(r.json, "choices.0.text")));
    buf_put_char(&body, '}');
    reply_free(&r);
    ask(&g, &r, "POST /v1/completions", ALICE, buf_text(&body));
    assert_json_text(&r, "choices.0.finish_reason", "stop");
    assert_json_int(&r, "usage.prompt_tokens_details.cached_tokens",
                    cached_of(&g, buf_text(&prompt), 1));
    reply_free(&r);
    buf_deinit(&prompt);
    buf_deinit(&body);
    rig_close(&g);
}

/* Each prompt counts, and once, however many choices it has and whichever ends last. */
static void test_cached_tokens_of_several_prompts_are_added(void **state) {
    (void)state;
    struct server_rig g;
    struct buf one, two, both;
    rig_open(&g, KEYS, NULL);
    buf_init(&one, 1 << 16);
    buf_init(&two, 1 << 16);
    buf_init(&both, 1 << 16);
    put_prompt(&one, 7, 100);
    put_prompt(&two, 8, 40);
    assert_int_equal(cached_of(&g, buf_text(&one), 1), 0);
    assert_int_equal(cached_of(&g, buf_text(&two), 1), 0);
    const int64_t of_one = cached_of(&g, buf_text(&one), 1);
    const int64_t of_two = cached_of(&g, buf_text(&two), 1);
    assert_true(of_one > of_two && of_two > 0);
    for (uint32_t n = 1; n <= 2; n++) {
        buf_clear(&both);
        buf_printf(&both, "[%s,%s]", buf_text(&one), buf_text(&two));
        assert_int_equal(cached_of(&g, buf_text(&both), n), of_one + of_two);
        buf_clear(&both);
        buf_printf(&both, "[%s,%s]", buf_text(&two), buf_text(&one));
        assert_int_equal(cached_of(&g, buf_text(&both), n), of_one + of_two);
    }
    buf_deinit(&one);
    buf_deinit(&two);
    buf_deinit(&both);
    rig_close(&g);
}

/* A request has waited until its first choice begins, also if the others wait longer. */
static void test_the_first_choice_to_begin_ends_the_wait(void **state) {
    (void)state;
    static const char *const flags[] = {"set",           "max_seqs=1",         "set", "queue_max=8",
                                        "otlp-endpoint", "http://127.0.0.1:9", NULL};
    static const char *const bodies[] = {"{\"prompt\":[[5,6,7],[8,9]],\"max_tokens\":2}",
                                         "{\"prompt\":[5,6,7],\"n\":2,\"max_tokens\":2}"};
    for (uint32_t i = 0; i < 2; i++) {
        struct server_rig g;
        struct client c;
        struct reply r;
        rig_open(&g, KEYS, flags);
        rig_stop_clock_at_second();
        client_queue(&g, &c, "POST /v1/completions", ALICE, bodies[i]);
        rig_pass_us(250000);
        while (rig_step(&g, 1) > 0) rig_pass_us(100000);
        reply_take(&g, &c, &r);
        assert_int_equal(r.status, 200);
        rig_until(&g, rig_is_quiet);
        assert_int_equal(rig_trace.started_us - rig_trace.arrived_us, 250000);
        assert_int_equal(rig_trace.first_token_us - rig_trace.arrived_us, 250000);
        assert_true(rig_trace.finished_us - rig_trace.arrived_us >= 550000); /* one by one */
        rig_assert_logged("request", "ttft_ms=250.000");
        assert_metric(&g, BOB, "vllm:request_queue_time_seconds_sum", 0.25);
        assert_metric(&g, BOB, "vllm:request_prefill_time_seconds_sum", 0);
        reply_free(&r);
        rig_close(&g);
    }
}

static bool has_head(struct server_rig *g) { return http_stats(g->server->http).exchanges == 1; }

/* A request arrives when its body is complete: what a slow client takes to send it is neither its
 * deadline's nor the server's time. */
static void test_the_time_of_a_slow_body_is_not_counted(void **state) {
    (void)state;
    static const char body[] = "{\"prompt\":[5,6,7],\"max_tokens\":2}";
    struct server_rig g;
    struct client c;
    struct reply r;
    char head[512];
    rig_open(&g, KEYS, NULL);
    rig_stop_clock_at_second();
    client_open(&g, &c);
    snprintf(head, sizeof(head),
             "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" ALICE
             "x-jitney-deadline-ms: 1000\r\ncontent-length: %zu\r\n\r\n%.10s",
             strlen(body), body);
    client_write(&g, &c, str_of(head));
    rig_until(&g, has_head);
    rig_pass_us(5000000);
    client_write(&g, &c, str_of(body + 10));
    while (!g.server->generations->items.first) rig_turn(&g);
    rig_until(&g, rig_is_prepared);
    rig_pass_us(250000);
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    reply_take(&g, &c, &r);
    assert_int_equal(r.status, 200);
    assert_header(&r, "openai-processing-ms", "250");
    rig_assert_logged("request", "ttft_ms=250.000");
    rig_assert_logged("request", "total_ms=250.000");
    rig_assert_logged("response", "ms=250.000");
    assert_metric(&g, BOB, "vllm:e2e_request_latency_seconds_sum", 0.25);
    reply_free(&r);
    rig_close(&g);
}

/* Without max_tokens none is counted as requested. */
static void test_a_limit_that_was_not_requested_is_not_counted(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    expect(&g, "POST /api/generate", NULL,
           "{\"model\":\"llama\",\"prompt\":\"a\",\"raw\":true,\"stream\":false}", 200, NULL, NULL);
    rig_until(&g, rig_is_quiet);
    assert_true(metric(&g, NULL, "vllm:request_generation_tokens_count") == 1);
    assert_true(metric(&g, NULL, "vllm:request_params_max_tokens_count") == 0);
    rig_close(&g);
}

/* Whichever choice is the longest. */
static void test_the_longest_choice_is_counted(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct server_rig g;
        struct buf body;
        rig_open(&g, NULL, NULL);
        buf_init(&body, 1 << 16);
        buf_put_text(&body, "{\"max_tokens\":28,\"prompt\":[");
        for (uint32_t p = 0; p < 2; p++) {
            buf_put_text(&body, p ? ",[5" : "[5");
            for (uint32_t n = 1; n < (p == i ? 126 : 100); n++) buf_put_text(&body, ",6");
            buf_put_char(&body, ']');
        }
        buf_put_text(&body, "]}");
        expect(&g, "POST /v1/completions", NULL, buf_text(&body), 200, NULL, NULL);
        rig_until(&g, rig_is_quiet);
        assert_metric(&g, NULL, "vllm:request_max_num_generation_tokens_sum", 28);
        assert_metric(&g, NULL, "vllm:request_generation_tokens_sum", 30);
        buf_deinit(&body);
        rig_close(&g);
    }
}

/* Two models: each has its own numbers. */
static void test_a_model_has_the_numbers_of_its_own_requests(void **state) {
    (void)state;
    static const char *const flags[] = {
        "model", RIG_MODELS "llama",  "model", RIG_MODELS "llama", "served-model-name",
        "one",   "served-model-name", "two",   "runner",           "sim:0",
        NULL};
    struct server_rig g;
    rig_open(&g, NULL, flags);
    expect(&g, "POST /v1/completions", NULL,
           "{\"model\":\"two\",\"prompt\":[5,6,7],\"max_tokens\":4}", 200, NULL, NULL);
    rig_until(&g, rig_is_quiet);
    rig_assert_logged("request", "model=two");
    static const struct {
        const char *name;
        double value;
    } rows[] = {{"vllm:prompt_tokens_total", 3},  {"vllm:generation_tokens_total", 4},
                {"vllm:request_params_n_sum", 1}, {"vllm:inter_token_latency_seconds_count", 3},
                {"jitney:engine_steps_total", 4}, {"jitney:requests_submitted_total", 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s{model_name=\"one\"}", rows[i].name);
        assert_metric(&g, NULL, name, 0);
        snprintf(name, sizeof(name), "%s{model_name=\"two\"}", rows[i].name);
        assert_metric(&g, NULL, name, rows[i].value);
    }
    rig_close(&g);
}

/* Only with --log-prompts, and only where the level is logged. */
static void test_prompts_are_logged_on_request_only(void **state) {
    (void)state;
    static const char *const flags[][5] = {{"log-prompts", "true", NULL},
                                           {"log-prompts", "false", NULL},
                                           {"log-prompts", "true", "log-level", "warn", NULL}};
    for (size_t i = 0; i < 3; i++) {
        struct server_rig g;
        struct reply r;
        rig_open(&g, NULL, flags[i]);
        ask(&g, &r, "POST /v1/completions", "x-request-id: my-id\r\n",
            "{\"prompt\":[5,6,7],\"max_tokens\":4,\"seed\":11}");
        rig_until(&g, rig_is_quiet);
        if (i == 0) {
            const struct str text = json_str(reply_path(r.json, "choices.0.text"));
            char field[128];
            rig_assert_logged("prompt", "id=my-id");
            rig_assert_logged("prompt", "body={\"prompt\":[5,6,7],\"max_tokens\":4,\"seed\":11}");
            rig_assert_logged("answer", "id=my-id");
            snprintf(field, sizeof(field), "text=%.*s", STR_ARG(text));
            rig_assert_logged("answer", field);
        } else {
            assert_null(rig_last_line("prompt"));
            assert_null(rig_last_line("answer"));
        }
        reply_free(&r);
        rig_close(&g);
    }
}

/* ---- a request that fails ---- */

struct ending {
    const char *name, *headers, *body;
    void (*end)(struct server_rig *g, struct client *c); /* a request that the engine has */
    uint32_t status;
    const char *finish, *counted;
    enum log_level level;
    uint32_t prompt_tokens, completion_tokens;
};

static void nothing(struct server_rig *g, struct client *c) {
    (void)g;
    (void)c;
}

static void delete_it(struct server_rig *g, struct client *c) {
    (void)c;
    expect(g, "DELETE /v1/requests/my-id", ALICE, NULL, 200, NULL, NULL);
}

static void go_away(struct server_rig *g, struct client *c) {
    (void)g;
    shutdown(c->fd, SHUT_RDWR);
    while (rig_newest(g)->answer.failure.status == 0) rig_turn(g);
}

static void step_and_delete(struct server_rig *g, struct client *c) {
    (void)c;
    rig_step(g, 3);
    expect(g, "DELETE /v1/requests/my-id", ALICE, NULL, 200, NULL, NULL);
}

static void wait_long(struct server_rig *g, struct client *c) {
    (void)g;
    (void)c;
    rig_pass_us(50000);
}

static void lose_engine(struct server_rig *g, struct client *c) {
    struct api_error e = {0};
    (void)c;
    api_refuse(&e, 500, NULL, "engine_lost", "the engine does not respond");
    generations_fail(g->server->generations, &e);
}

static void run_out(struct server_rig *g, struct client *c) {
    struct api_error e = {0};
    (void)c;
    api_refuse(&e, 503, NULL, "memory_full", "no memory");
    generations_fail(g->server->generations, &e);
}

#define LONG_ASK "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}"

static const struct ending endings[] = {
    {"deleted in the queue", "", LONG_ASK, delete_it, 499, "cancelled", "abort", LOG_INFO, 3, 0},
    {"gone in the queue", "", LONG_ASK, go_away, 499, "cancelled", "abort", LOG_INFO, 3, 0},
    {"deleted in the batch", "", LONG_ASK, step_and_delete, 499, "cancelled", "abort", LOG_INFO, 3,
     5},
    {"expired", "x-jitney-deadline-ms: 50\r\n", LONG_ASK, wait_long, 504, "expired", "abort",
     LOG_WARN, 3, 0},
    {"engine lost", "", LONG_ASK, lose_engine, 500, "error", "error", LOG_WARN, 3, 0},
    {"out of memory", "", LONG_ASK, run_out, 503, "error", "error", LOG_WARN, 3, 0},
    {"refused", "", "{\"prompt\":[5,6,7,300],\"max_tokens\":3}", nothing, 400, "refused", "abort",
     LOG_INFO, 0, 0},
};

/* 503 is what a server that is full or ends says; other failures are worth a look. */
static void assert_response_level(uint32_t status) {
    char field[64];
    snprintf(field, sizeof(field), " status=%u ", status);
    for (uint32_t i = 0; i < rig_line_count && i < RIG_LINES; i++) {
        if (strcmp(rig_lines[i].event, "response") != 0 || !strstr(rig_lines[i].text, field))
            continue;
        const bool is_warned = status == 500 || status == 504;
        assert_int_equal(rig_lines[i].level, is_warned ? LOG_WARN : LOG_DEBUG);
        return;
    }
    fail_msg("no response was logged with%s", field);
}

/* Whatever a request reserved of its key's tokens is given back; what was computed is charged. */
static void test_each_way_to_end_is_reported_and_charged(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const struct ending *e = &endings[i];
        struct server_rig g;
        struct client c;
        struct reply r;
        char headers[256], field[64];
        print_message("%s\n", e->name);
        rig_open(&g, KEYS, traced);
        rig_stop_clock_at_second();
        rig_is_held = true;
        snprintf(headers, sizeof(headers), "%s%sx-request-id: my-id\r\n", ALICE, e->headers);
        client_send(&g, &c, "POST /v1/completions", headers, e->body);
        while (rig_last_line("request") == NULL && !g.server->generations->items.first)
            rig_turn(&g);
        rig_until(&g, rig_is_prepared);
        if (e->end != nothing) {
            assert_left(&g, 9, 1000 - 3 - 200); /* prompt and two answers of 100 */
            assert_metric(&g, BOB, "jitney:answers_under_way", 1);
            assert_int_equal(g.model->live_choices, 2);
        }
        e->end(&g, &c);
        rig_is_held = false;
        while (!rig_is_quiet(&g)) rig_step(&g, 1);
        snprintf(field, sizeof(field), "status=%u", e->status);
        rig_assert_logged("request", field);
        snprintf(field, sizeof(field), "finish=%s", e->finish);
        rig_assert_logged("request", field);
        snprintf(field, sizeof(field), "prompt_tokens=%u", e->prompt_tokens);
        rig_assert_logged("request", field);
        snprintf(field, sizeof(field), "completion_tokens=%u", e->completion_tokens);
        rig_assert_logged("request", field);
        assert_non_null(strstr(rig_last_line("request")->text, " error="));
        assert_int_equal(rig_last_line("request")->level, e->level);
        assert_int_equal(rig_trace.status, e->status);
        assert_string_equal(rig_trace_finish, e->finish);
        assert_int_equal(rig_trace_count, 1);
        assert_left(&g, 9, 1000 - e->prompt_tokens - e->completion_tokens);
        assert_int_equal(g.model->live_choices, 0);
        rig_assert_logged("request", "ttft_ms=0.000");
        if (e->completion_tokens == 0) {
            assert_int_equal(rig_trace.started_us, 0);
            assert_int_equal(rig_trace.first_token_us, 0);
            assert_metric(&g, BOB, "vllm:request_max_num_generation_tokens_sum", 0);
            assert_metric(&g, BOB, "vllm:time_to_first_token_seconds_count", 0);
        }
        assert_ends(&g, e->counted, 1);
        assert_metric(&g, BOB, "jitney:answers_under_way", 0);
        assert_metric(&g, BOB, "vllm:generation_tokens_total", e->completion_tokens);
        if (e->end == go_away)
            client_close(&c);
        else {
            reply_take(&g, &c, &r);
            assert_int_equal(r.status, e->status);
            reply_free(&r);
            assert_response_level(e->status);
        }
        rig_close(&g);
    }
}

/* ---- responses ---- */

static void test_every_response_is_counted_by_its_route_and_status(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, KEYS, NULL);
    rig_stop_clock();
    expect(&g, "GET /v1/models", ALICE, NULL, 200, NULL, NULL);
    expect(&g, "GET /v1/models/none", ALICE, NULL, 404, "model_not_found",
           "unknown model \"none\"");
    expect(&g, "GET /v1/models", NULL, NULL, 401, NULL, NULL);
    expect(&g, "GET /nowhere", ALICE, NULL, 404, "unknown_url", "GET /nowhere");
    expect(&g, "GET /nowhere", ALICE, NULL, 404, "unknown_url", NULL);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/models\",status=\"200\"}", 1);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/models\",status=\"401\"}", 1);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/models/*\",status=\"404\"}", 1);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"other\",status=\"404\"}", 2);
    assert_metric(&g, BOB, "jitney:http_request_seconds_count", 9);
    rig_close(&g);
}

/* As if there were no memory for an event. */
static void lose_event(struct encoder *e, const struct api_event *ev) {
    (void)ev;
    e->status = ST_NOMEM;
}

/* A stream that ends before its last event: its client sees no end, and it counts as a failure
 * although its head said 200. */
static void test_a_stream_that_is_cut_off_counts_as_failed(void **state) {
    (void)state;
    struct server_rig g;
    struct client c, later;
    struct reply r;
    rig_open(&g, KEYS, NULL);
    client_queue(&g, &c, "POST /v1/completions", ALICE "x-request-id: my-id\r\n",
                 "{\"prompt\":[5,6,7],\"max_tokens\":4,\"stream\":true}");
    struct api_request *q = &rig_newest(&g)->request;
    const struct codec *codec = q->codec;
    struct codec failing = *codec;
    failing.event = lose_event;
    q->codec = &failing; /* of the sinks that come */
    client_send(&g, &later, "GET /v1/requests/my-id", ALICE "accept: text/event-stream\r\n", NULL);
    while (rig_newest(&g)->sinks.count < 2) rig_turn(&g);
    q->codec = codec;
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    while (client_read(&later), !later.is_closed) rig_turn(&g);
    assert_non_null(strstr(buf_text(&later.in), "HTTP/1.1 200"));
    assert_null(strstr(buf_text(&later.in), "\r\n0\r\n\r\n"));
    client_close(&later);
    reply_take(&g, &c, &r);
    assert_non_null(strstr(buf_text(&r.body), "[DONE]"));
    reply_free(&r);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/requests/*\",status=\"500\"}",
                  1);
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/requests/*\",status=\"200\"}",
                  -1); /* no such row */
    assert_metric(&g, BOB, "jitney:http_requests_total{route=\"/v1/completions\",status=\"200\"}",
                  1);
    assert_response_level(500);
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_has_the_same_numbers_everywhere),
        cmocka_unit_test(test_cached_tokens_are_logged_and_traced),
        cmocka_unit_test(test_an_answer_that_a_stop_string_ends_has_its_cached_tokens),
        cmocka_unit_test(test_cached_tokens_of_several_prompts_are_added),
        cmocka_unit_test(test_the_first_choice_to_begin_ends_the_wait),
        cmocka_unit_test(test_the_time_of_a_slow_body_is_not_counted),
        cmocka_unit_test(test_a_limit_that_was_not_requested_is_not_counted),
        cmocka_unit_test(test_the_longest_choice_is_counted),
        cmocka_unit_test(test_a_model_has_the_numbers_of_its_own_requests),
        cmocka_unit_test(test_prompts_are_logged_on_request_only),
        cmocka_unit_test(test_each_way_to_end_is_reported_and_charged),
        cmocka_unit_test(test_every_response_is_counted_by_its_route_and_status),
        cmocka_unit_test(test_a_stream_that_is_cut_off_counts_as_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
