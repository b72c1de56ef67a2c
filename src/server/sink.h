/* server/sink.h - somebody who receives an answer, in some framing.
 *
 * A generation tells its sinks that it has begun, that there is something new, or that nothing will
 * come of it. What a sink then does - put events into a stream, answer a poller, wait for the end
 * - is its kind's business; it reads the answer through an encoder at its own pace.
 *
 *     attached --begin--> (advance)* --advance returns true--> over
 *        +-----refuse------------------------------------------> over
 *
 * Lifetime: made by whoever attaches it; the generation destroys it when it is over or taken off.
 * Thread: the io thread.
 */
#ifndef SERVER_SINK_H
#define SERVER_SINK_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct generation;
struct http_request;
struct sink;

struct sink_kind {
    const char *name;

    /* The generation has been taken on by the engine. True: it is over already. */
    bool (*begin)(struct sink *s);
    /* There are new events, or the answer is done. True: it is over. */
    bool (*advance)(struct sink *s);
    /* The generation ended before it had begun; it is over. */
    void (*refuse)(struct sink *s, const struct api_error *e);
    void (*destroy)(struct sink *s);
};

/* The first member of every kind's own struct. */
struct sink {
    const struct sink_kind *kind;
    struct generation *generation;
    struct sink *next, *prev;
    bool has_begun;
};

/* ---- sinks of an HTTP request; NULL: no memory, and the request is still the caller's ---- */

/* The whole answer, when it is done. */
struct sink *sink_whole_create(struct http_request *req);
/* Each event as it comes, from the one behind number `after` on. */
struct sink *sink_stream_create(struct http_request *req, const struct generation *gen,
                                uint32_t after);
/* "202 Accepted" with a location to poll. */
struct sink *sink_async_create(struct http_request *req);

#endif
