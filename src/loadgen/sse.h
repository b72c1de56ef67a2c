/* loadgen/sse.h - server-sent events from the bytes of a body.
 *
 * Lines end with LF, CR LF or CR; the lines "data:" of an event are joined by a newline; an empty
 * line ends it. Comments, other fields and events without data are skipped. The events do
 * not depend on how the bytes are cut into pieces.
 *
 * Lifetime: the caller's storage; init, reset before each stream, deinit. Thread: its owner.
 * Memory:   one event, at most SSE_EVENT_BYTES.
 */
#ifndef LOADGEN_SSE_H
#define LOADGEN_SSE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

enum { SSE_EVENT_BYTES = 1 << 22 };

struct sse {
    struct buf line, data;
    bool has_data, after_cr;
};

/* The data of an event, borrowed. Any status but ST_OK ends sse_feed. */
typedef enum status sse_event_fn(void *ctx, struct str data);

void sse_init(struct sse *s);
void sse_deinit(struct sse *s);
void sse_reset(struct sse *s);

/* ST_BAD: a line or an event is too long. */
enum status sse_feed(struct sse *s, struct str bytes, struct err *err, sse_event_fn *on_event,
                     void *ctx);

#endif
