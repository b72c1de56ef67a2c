/* Goal:   a finished request becomes spans that a collector accepts; a collector that is absent,
 *         slow or refuses loses spans and never delays a request.
 * Method: a collector of the test, a thread that accepts one connection after the other on a free
 *         port, keeps the bodies and answers as the test says; bodies are parsed as JSON and
 *         compared with OTLP's field names. */
#define _GNU_SOURCE /* setenv, strcasestr */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "report/tracer.h"

enum { BODY_BYTES = 1 << 20, BODIES_MAX = 16 };

struct collector {
    int listener;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock;
    const char *answer; /* NULL: none at all, the connection stays open */
    char *bodies[BODIES_MAX];
    char head[4096];
    uint32_t count;
};

/* Read one request; false when the connection is over. */
static bool read_request(struct collector *c, int fd, char *text) {
    size_t len = 0, need = SIZE_MAX;
    while (len < need && len < BODY_BYTES - 1) {
        ssize_t n = read(fd, text + len, BODY_BYTES - 1 - len);
        if (n <= 0) return false;
        text[len += (size_t)n] = 0;
        char *end = strstr(text, "\r\n\r\n");
        char *length = strcasestr(text, "\r\ncontent-length:");
        if (end && length) need = (size_t)(end + 4 - text) + strtoull(length + 17, NULL, 10);
        if (end && strcasestr(text, "expect: 100-continue") && len == (size_t)(end + 4 - text))
            (void)!write(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    }
    char *body = strstr(text, "\r\n\r\n") + 4;
    pthread_mutex_lock(&c->lock);
    snprintf(c->head, sizeof(c->head), "%.*s", (int)(body - text), text);
    if (c->count < BODIES_MAX) c->bodies[c->count++] = strdup(body);
    pthread_mutex_unlock(&c->lock);
    return true;
}

static void *collect(void *ctx) {
    struct collector *c = ctx;
    char *text = malloc(BODY_BYTES);
    for (int fd; (fd = accept(c->listener, NULL, NULL)) >= 0; close(fd))
        while (read_request(c, fd, text))
            if (c->answer) (void)!write(fd, c->answer, strlen(c->answer));
    free(text);
    return NULL;
}

static void collector_open(struct collector *c, const char *answer) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    *c = (struct collector){.answer = answer, .listener = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(c->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(c->listener, 8), 0);
    assert_int_equal(getsockname(c->listener, (struct sockaddr *)&at, &bytes), 0);
    c->port = ntohs(at.sin_port);
    pthread_mutex_init(&c->lock, NULL);
    assert_int_equal(pthread_create(&c->thread, NULL, collect, c), 0);
}

static void collector_close(struct collector *c) {
    shutdown(c->listener, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    close(c->listener);
    for (uint32_t i = 0; i < c->count; i++) free(c->bodies[i]);
    pthread_mutex_destroy(&c->lock);
}

static const char OK[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
static const char NO[] = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";

static struct tracer *tracer_to(const struct collector *c, const char *path) {
    char url[100];
    struct tracer *t = NULL;
    struct err err = {0};
    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", c->port, path);
    if (tracer_create(url, "jitney", &t, &err) != ST_OK) fail_msg("%s", err.text);
    assert_non_null(t);
    return t;
}

static struct trace_request request_of(const char *traceparent) {
    struct trace_request r = {
        .request_id = "req-\"1\"",
        .model = "smollm2",
        .route = "/v1/chat/completions",
        .finish = "stop",
        .status = 200,
        .prompt_tokens = 12,
        .completion_tokens = 34,
        .cached_tokens = 5,
        .max_tokens = 99,
        .n = 2,
        .temperature = 0.7,
        .top_p = 0.9,
        .arrived_us = 1700000000000001,
        .started_us = 1700000000100001,
        .first_token_us = 1700000000300001,
        .finished_us = 1700000001300001,
    };
    trace_id_read(str_of(traceparent), &r.id);
    return r;
}

static const char PARENT[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

static const struct json *attribute(const struct json *span, const char *key) {
    const struct json *list = json_get(span, "attributes");
    for (size_t i = 0; i < json_count(list); i++)
        if (str_is(json_str(json_get(json_at(list, i), "key")), key))
            return json_get(json_at(list, i), "value");
    fail_msg("no attribute %s", key);
    return NULL;
}

static void is_text(const struct json *v, const char *key, const char *text) {
    struct str s = json_str(json_get(v, key));
    if (!str_is(s, text)) fail_msg("%s is %.*s and not %s", key, STR_ARG(s), text);
}

static void check_root(const struct json *span) {
    is_text(span, "traceId", "0af7651916cd43dd8448eb211c80319c");
    is_text(span, "parentSpanId", "b7ad6b7169203331");
    is_text(span, "name", "llm_request");
    assert_int_equal(json_int(json_get(span, "kind"), 0), 2);
    is_text(span, "startTimeUnixNano", "1700000000000001000");
    is_text(span, "endTimeUnixNano", "1700000001300001000");
    is_text(attribute(span, "gen_ai.request.id"), "stringValue", "req-\"1\"");
    is_text(attribute(span, "gen_ai.request.model"), "stringValue", "smollm2");
    is_text(attribute(span, "gen_ai.request.max_tokens"), "intValue", "99");
    is_text(attribute(span, "gen_ai.request.n"), "intValue", "2");
    is_text(attribute(span, "gen_ai.usage.prompt_tokens"), "intValue", "12");
    is_text(attribute(span, "gen_ai.usage.completion_tokens"), "intValue", "34");
    is_text(attribute(span, "http.response.status_code"), "intValue", "200");
    const struct json *ttft = attribute(span, "gen_ai.latency.time_to_first_token");
    assert_true(json_num(json_get(ttft, "doubleValue"), 0) == 0.3);
    const struct json *top_p = attribute(span, "gen_ai.request.top_p");
    assert_true(json_num(json_get(top_p, "doubleValue"), 0) == 0.9);
    assert_null(json_get(span, "status"));
}

static void check_children(const struct json *spans) {
    static const char *const names[] = {"queue", "prefill", "decode"};
    static const char *const starts[] = {"1700000000000001000", "1700000000100001000",
                                         "1700000000300001000"};
    struct str root = json_str(json_get(json_at(spans, 0), "spanId"));
    assert_int_equal(json_count(spans), 4);
    for (uint32_t i = 0; i < 3; i++) {
        const struct json *child = json_at(spans, i + 1);
        is_text(child, "name", names[i]);
        is_text(child, "startTimeUnixNano", starts[i]);
        assert_true(str_eq(json_str(json_get(child, "parentSpanId")), root));
        assert_false(str_eq(json_str(json_get(child, "spanId")), root));
    }
}

static void test_a_request_becomes_four_spans_in_otlp(void **state) {
    (void)state;
    struct collector c;
    struct json *doc = NULL;
    collector_open(&c, OK);
    struct tracer *t = tracer_to(&c, "");
    struct trace_request r = request_of(PARENT);
    tracer_add(t, &r);
    tracer_destroy(t); /* sends what is left */
    assert_int_equal(c.count, 1);
    assert_memory_equal(c.head, "POST /v1/traces HTTP/1.1\r\n", 26);
    assert_non_null(strcasestr(c.head, "\r\ncontent-type: application/json\r\n"));
    assert_int_equal(json_parse(str_of(c.bodies[0]), &json_limits_request, &doc, NULL), ST_OK);
    const struct json *resource = json_at(json_get(doc, "resourceSpans"), 0);
    is_text(attribute(json_get(resource, "resource"), "service.name"), "stringValue", "jitney");
    const struct json *spans = json_get(json_at(json_get(resource, "scopeSpans"), 0), "spans");
    check_root(json_at(spans, 0));
    check_children(spans);
    json_destroy(doc);
    collector_close(&c);
}

static void test_a_request_that_failed_while_it_queued_has_one_child(void **state) {
    (void)state;
    struct collector c;
    struct json *doc = NULL;
    collector_open(&c, OK);
    struct tracer *t = tracer_to(&c, "/v1/traces");
    struct trace_request r = request_of("");
    r.started_us = r.first_token_us = 0;
    r.status = 503;
    tracer_add(t, &r);
    tracer_destroy(t);
    assert_memory_equal(c.head, "POST /v1/traces HTTP/1.1\r\n", 26);
    assert_int_equal(json_parse(str_of(c.bodies[0]), &json_limits_request, &doc, NULL), ST_OK);
    const struct json *resource = json_at(json_get(doc, "resourceSpans"), 0);
    const struct json *spans = json_get(json_at(json_get(resource, "scopeSpans"), 0), "spans");
    assert_int_equal(json_count(spans), 2);
    assert_null(json_get(json_at(spans, 0), "parentSpanId"));
    assert_int_equal(json_int(json_path(json_at(spans, 0), "status.code"), 0), 2);
    is_text(json_at(spans, 1), "name", "queue");
    json_destroy(doc);
    collector_close(&c);
}

static void test_spans_are_sent_in_batches_and_dropped_ones_are_counted(void **state) {
    (void)state;
    struct collector c;
    collector_open(&c, OK);
    struct tracer *t = tracer_to(&c, "/");
    struct trace_request r = request_of(PARENT);
    int64_t began_us = clock_now(&clock_real);
    for (int i = 0; i < 20000; i++) tracer_add(t, &r);
    assert_true(clock_now(&clock_real) - began_us < 20000000);
    uint64_t lost = tracer_lost(t);
    assert_true(lost > 0 && lost < 20000);
    tracer_destroy(t);
    assert_true(c.count > 1);
    collector_close(&c);
}

/* Wait until the tracer has given `count` spans up. */
static void wait_for_lost(const struct tracer *t, uint64_t count) {
    for (int i = 0; i < 500 && tracer_lost(t) < count; i++) usleep(10000);
    assert_int_equal(tracer_lost(t), count);
}

static void test_spans_that_the_collector_refuses_are_dropped(void **state) {
    (void)state;
    struct collector c;
    collector_open(&c, NO);
    struct tracer *t = tracer_to(&c, "");
    struct trace_request r = request_of(PARENT);
    tracer_add(t, &r);
    tracer_add(t, &r);
    wait_for_lost(t, 2);
    tracer_destroy(t);
    collector_close(&c);
}

static void test_a_collector_that_never_responds_delays_the_end_by_two_seconds(void **state) {
    (void)state;
    struct collector c;
    collector_open(&c, NULL);
    struct tracer *t = tracer_to(&c, "");
    struct trace_request r = request_of(PARENT);
    tracer_add(t, &r);
    int64_t began_us = clock_now(&clock_real);
    tracer_destroy(t);
    assert_true(clock_now(&clock_real) - began_us < 10000000);
    collector_close(&c);
}

static void test_a_missing_collector_is_not_an_error(void **state) {
    (void)state;
    struct tracer *t = NULL;
    struct err err = {0};
    assert_int_equal(tracer_create("http://127.0.0.1:1", "x", &t, &err), ST_OK);
    struct trace_request r = request_of(PARENT);
    tracer_add(t, &r);
    wait_for_lost(t, 1);
    tracer_destroy(t);
    assert_int_equal(tracer_create("ftp://x", "x", &t, &err), ST_BAD);
    assert_null(t);
}

static void test_without_an_endpoint_tracing_is_off(void **state) {
    (void)state;
    struct tracer *t = (struct tracer *)&t;
    struct err err = {0};
    struct trace_request r = request_of(PARENT);
    assert_int_equal(tracer_create(NULL, "x", &t, &err), ST_OK);
    assert_null(t);
    tracer_add(t, &r);
    assert_int_equal(tracer_lost(t), 0);
    tracer_destroy(t);
}

/* How many of `count` new traces the sampler lets through. */
static uint32_t sampled(const char *sampler, const char *arg, const char *parent, uint32_t count) {
    struct collector c;
    collector_open(&c, OK);
    setenv("OTEL_TRACES_SAMPLER", sampler, 1);
    if (arg) setenv("OTEL_TRACES_SAMPLER_ARG", arg, 1);
    struct tracer *t = tracer_to(&c, "");
    for (uint32_t i = 0; i < count; i++) {
        struct trace_request r = request_of(parent);
        tracer_add(t, &r);
    }
    tracer_destroy(t);
    unsetenv("OTEL_TRACES_SAMPLER");
    unsetenv("OTEL_TRACES_SAMPLER_ARG");
    uint32_t spans = 0;
    for (uint32_t i = 0; i < c.count; i++)
        for (const char *p = c.bodies[i]; (p = strstr(p, "\"llm_request\"")); p++) spans++;
    collector_close(&c);
    return spans;
}

static void test_the_sampler_is_opentelemetrys(void **state) {
    (void)state;
    const char unsampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    assert_int_equal(sampled("always_off", NULL, PARENT, 10), 0);
    assert_int_equal(sampled("always_on", NULL, unsampled, 10), 10);
    assert_int_equal(sampled("parentbased_always_on", NULL, unsampled, 10), 0);
    assert_int_equal(sampled("parentbased_always_off", NULL, PARENT, 10), 10);
    assert_int_equal(sampled("parentbased_always_off", NULL, "", 10), 0);
    uint32_t quarter = sampled("traceidratio", "0.25", "", 1000);
    assert_in_range(quarter, 180, 320);
    struct tracer *t = NULL;
    struct err err = {0};
    setenv("OTEL_TRACES_SAMPLER", "sometimes", 1);
    assert_int_equal(tracer_create("http://h", "x", &t, &err), ST_BAD);
    unsetenv("OTEL_TRACES_SAMPLER");
}

static void test_the_environment_names_endpoint_service_and_headers(void **state) {
    (void)state;
    struct collector c;
    struct tracer *t = NULL;
    struct err err = {0};
    char url[100];
    collector_open(&c, OK);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/base/", c.port);
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url, 1);
    setenv("OTEL_SERVICE_NAME", "my-service", 1);
    setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-one=1, authorization=Bearer%20abc%0d%0a,junk", 1);
    assert_int_equal(tracer_create(NULL, "jitney", &t, &err), ST_OK);
    assert_non_null(t);
    struct trace_request r = request_of(PARENT);
    tracer_add(t, &r);
    tracer_destroy(t);
    assert_memory_equal(c.head, "POST /base/v1/traces HTTP/1.1\r\n", 31);
    assert_non_null(strcasestr(c.head, "\r\nx-one: 1\r\n"));
    assert_non_null(strcasestr(c.head, "\r\nauthorization: Bearer abc\r\n"));
    assert_non_null(strstr(c.bodies[0], "my-service"));
    collector_close(&c);
    setenv("OTEL_SDK_DISABLED", "true", 1);
    assert_int_equal(tracer_create(NULL, "jitney", &t, &err), ST_OK);
    assert_null(t);
    unsetenv("OTEL_SDK_DISABLED");
    unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT");
    unsetenv("OTEL_SERVICE_NAME");
    unsetenv("OTEL_EXPORTER_OTLP_HEADERS");
}

static void test_traceparent_is_read_strictly(void **state) {
    (void)state;
    struct trace_id id, other;
    assert_true(trace_id_read(str_of(PARENT), &id));
    assert_int_equal(id.trace[0], 0x0A);
    assert_int_equal(id.parent[7], 0x31);
    assert_true(id.is_sampled);
    assert_true(
        trace_id_read(STR("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more"), &id));
    assert_false(id.is_sampled);
    const char *const bad[] = {
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
    };
    const uint8_t zero[16] = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(trace_id_read(str_of(bad[i]), &id));
        assert_false(trace_id_read(str_of(bad[i]), &other));
        assert_memory_not_equal(id.trace, zero, 16);
        assert_memory_not_equal(id.trace, other.trace, 16);
        assert_memory_equal(id.parent, zero, 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_becomes_four_spans_in_otlp),
        cmocka_unit_test(test_a_request_that_failed_while_it_queued_has_one_child),
        cmocka_unit_test(test_spans_are_sent_in_batches_and_dropped_ones_are_counted),
        cmocka_unit_test(test_spans_that_the_collector_refuses_are_dropped),
        cmocka_unit_test(test_a_collector_that_never_responds_delays_the_end_by_two_seconds),
        cmocka_unit_test(test_a_missing_collector_is_not_an_error),
        cmocka_unit_test(test_without_an_endpoint_tracing_is_off),
        cmocka_unit_test(test_the_sampler_is_opentelemetrys),
        cmocka_unit_test(test_the_environment_names_endpoint_service_and_headers),
        cmocka_unit_test(test_traceparent_is_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
