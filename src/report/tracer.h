/* report/tracer.h - sends a trace of each request to an OpenTelemetry collector.
 *
 * OTLP over HTTP with JSON bodies, in batches, by a thread of its own. If the collector is slow or
 * absent, spans are dropped and counted; requests are never delayed. A request's W3C traceparent
 * becomes the parent of its spans; the attributes are those of vLLM (gen_ai.*).
 *
 * Lifetime: create, destroy (which sends what is left, for at most two seconds). Thread: any.
 */
#ifndef REPORT_TRACER_H
#define REPORT_TRACER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct tracer; /* opaque */

struct trace_id {
    uint8_t trace[16], parent[8]; /* all zero: none was sent */
    bool is_sampled;
};
/* "00-<32 hex>-<16 hex>-<2 hex>"; false, and a new trace id, if it is invalid or empty. */
bool trace_id_read(struct str traceparent, struct trace_id *out);

/* One finished request: a span with children queue, prefill and decode. Times in microseconds of
 * the wall clock; 0: it did not get that far. */
struct trace_request {
    struct trace_id id;
    const char *request_id, *model, *route, *finish;
    uint32_t status, prompt_tokens, completion_tokens, cached_tokens, max_tokens, n;
    double temperature, top_p;
    int64_t arrived_us, started_us, first_token_us, finished_us;
};

/* `endpoint` "http://host:4318" (or with /v1/traces); NULL: from OTEL_EXPORTER_OTLP_ENDPOINT
 * or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; without these, tracing is off and *out is NULL.
 * OTEL_SERVICE_NAME has precedence over `service_name`; OTEL_TRACES_SAMPLER with its _ARG chooses
 * the traces that are sent (default: parentbased_always_on); OTEL_EXPORTER_OTLP_HEADERS adds
 * headers. */
enum status tracer_create(const char *endpoint, const char *service_name, struct tracer **out,
                          struct err *err);
void tracer_destroy(struct tracer *t);                            /* NULL is fine */
void tracer_add(struct tracer *t, const struct trace_request *r); /* NULL is fine */
uint64_t tracer_lost(const struct tracer *t);

#endif
