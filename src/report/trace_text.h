/* report/trace_text.h - spans as JSON for OTLP, and parsing of traceparent.
 *
 * Thread: any. Memory: allocates nothing but what `out` needs.
 */
#ifndef REPORT_TRACE_TEXT_H
#define REPORT_TRACE_TEXT_H

#include <stdint.h>

#include "report/tracer.h"

struct buf;

enum { SPAN_TEXT_BYTES = 128 };

/* A trace_request with its own copies of the texts. */
struct span {
    struct trace_request r; /* span_fill makes its pointers point below */
    char request_id[SPAN_TEXT_BYTES], model[SPAN_TEXT_BYTES], route[SPAN_TEXT_BYTES];
    char finish[32];
};
void span_fill(struct span *s, const struct trace_request *r);

/* The body of one export: each request's span and its children. Every span gets a random id. */
void spans_put(const struct span *spans, uint32_t count, const char *service_name, struct buf *out);

#endif
