/* server/local_request.h - a request that the server makes to itself: a line of a batch.
 *
 * It has a route, a key and a body as a request of a client has, and is answered by the same
 * handler, but it has no connection. Its response is given to `done` as a status and a body.
 * Limits of keys and of the queue do not apply to it, and the engine runs it with what interactive
 * requests leave (docs/scheduling.md, "Batch lines").
 *
 * Lifetime: from local_request_start until `done` was called or local_request_cancel returned.
 * Thread: the I/O thread.
 */
#ifndef SERVER_LOCAL_REQUEST_H
#define SERVER_LOCAL_REQUEST_H

#include <stdint.h>

#include "base/str.h"

struct http_request;
struct key;
struct route;
struct server;

struct local_response {
    uint32_t status;
    struct str body; /* valid during `done` */
    const char *request_id;
    int64_t retry_after_ms; /* of 429 and 503: try again; 0: not said */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
};

struct local_request {
    struct str body; /* borrowed until `done` */
    const char *id;  /* 24 hexadecimal digits, of the request and its answer; NULL: random ones */
    uint64_t seed;   /* of a request that has none */
    int64_t created_s;
    /* The request has ended; the response is that of the route. Called by the loop, never from
     * within local_request_start. */
    void (*done)(void *ctx, const struct local_response *r);
    void *ctx;
};

/* `route` takes POST with a body and gives one response (not a stream). NULL: out of memory. */
struct http_request *local_request_start(struct server *s, const struct route *route,
                                         const struct key *key, const struct local_request *call);
/* The response is not needed any more; `done` is not called. */
void local_request_cancel(struct http_request *req);

/* Call `done` of those that have a response; storage.c calls it in the loop. */
void local_requests_deliver(struct server *s);

/* ---- for the files that answer requests; `req` is a local one ---- */

struct str local_request_body(const struct http_request *req);
uint64_t local_request_seed(const struct http_request *req);
int64_t local_request_created_s(const struct http_request *req);
void local_request_count(struct http_request *req, uint64_t prompt_tokens, uint64_t cached_tokens,
                         uint64_t answer_tokens);
/* Take its response, which is delivered later. Frees `req` then. */
void local_request_respond(struct http_request *req, uint32_t status, struct str body,
                           int64_t retry_after_ms);

#endif
