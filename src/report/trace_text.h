/* report/trace_text.h - spans as OTLP's JSON, and traceparent as bytes.
 *
 * Thread: any. Memory: nothing is kept.
 */
#ifndef REPORT_TRACE_TEXT_H
#define REPORT_TRACE_TEXT_H

#include <stdint.h>

#include "report/tracer.h"

struct buf;

enum { SPAN_TEXT_BYTES = 128 };

/* A trace_request that owns its texts. */
struct span {
    struct trace_request r; /* its pointers point below, once span_fill was called */
    char request_id[SPAN_TEXT_BYTES], model[SPAN_TEXT_BYTES], route[SPAN_TEXT_BYTES];
    char finish[32];
};
void span_fill(struct span *s, const struct trace_request *r);

/* The body of one export: the request's span and its children, for each of `count`. Every span
 * gets an id of its own from the system's random numbers. */
void spans_put(const struct span *spans, uint32_t count, const char *service_name, struct buf *out);

#endif
