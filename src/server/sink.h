/* server/sink.h - one receiver of an answer: an HTTP response, a poll, a WebSocket.
 *
 * A generation calls its sinks when the engine has accepted it and whenever there are new events.
 * A sink reads the answer through an encoder at its own pace: it may take nothing while its client
 * is slow, and the events wait in the generation's log.
 *
 *     added --(advance)*--> advance returns true: removed
 *       +-----refuse------> removed
 *
 * Lifetime: the caller creates it; the generation destroys it when it is removed.
 * Thread: the I/O thread.
 */
#ifndef SERVER_SINK_H
#define SERVER_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct api_error;
struct generation;
struct http_request;
struct sink;

struct sink_kind {
    const char *name;

    /* The engine has accepted the generation (the first call), there are new events, or the
     * answer is done. True: the sink needs no more calls and is removed. */
    bool (*advance)(struct sink *s);
    /* Instead of the first advance: the generation has failed. The sink is removed. */
    void (*refuse)(struct sink *s, const struct api_error *e);
    void (*destroy)(struct sink *s);
};

/* The first member of every kind's own struct. */
struct sink {
    const struct sink_kind *kind;
    struct generation *generation;
    struct list_link in_generation;
    bool has_begun; /* advance was called */
};

/* ---- sinks of an HTTP request; NULL: no memory, and the request is still the caller's ---- */

/* The whole answer, when it is done. */
struct sink *sink_whole_create(struct http_request *req);
/* Each event as it comes, beginning after event number `after`. */
struct sink *sink_stream_create(struct http_request *req, const struct generation *gen,
                                uint32_t after);
/* "202 Accepted" with a location to poll. */
struct sink *sink_async_create(struct http_request *req);
/* The answer's object as it is when the engine has accepted it (codec->state: "queued"). */
struct sink *sink_queued_create(struct http_request *req);

#endif
