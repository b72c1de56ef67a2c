/* server/http_request.h - one HTTP request while it is being answered, and how to respond to it.
 *
 *     head arrives: routed, checked --> body arrives: the route's handler --> respond*
 *
 * dispatch.c creates it when the head has arrived, and passes it to the route's handler when the
 * body is complete. The handler responds at once, or sets `owner` and responds later.
 *
 * Lifetime: it belongs to the exchange. dispatch.c frees it when the response has ended, or when
 * the client disconnects, after on_gone. A handler must not use it after one of the functions
 * marked "End", nor after on_gone. Memory: 272 bytes, also while a slow body arrives.
 * Thread: the I/O thread.
 */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include "api/codec.h"
#include "api/error.h"
#include "server/server_int.h"

struct route;

struct http_request {
    struct server *server;
    struct http_exchange *x;
    const struct http_head *head;
    const struct route *route; /* NULL: the path or its method is unknown */
    uint32_t allowed_methods;  /* of the path, where `route` is NULL: see routes_find */
    struct str arg;            /* what the route's '*' stands for, as sent; the head's */
    struct access_grant grant; /* its key; NULL: an open route */
    const struct codec *codec; /* writes its errors */
    int64_t arrived_us;        /* the head, then the body: latencies begin with the last byte */
    char id[SERVER_ID_BYTES];
    char request_id[GENERATION_ID_BYTES];
    const char *warning; /* of the header x-jitney-warning; NULL or "": none; borrowed */
    bool is_aborted;     /* by respond_abort: counted as 500 */
    bool is_local;       /* of the server itself: `x` is NULL (server/local_request.h) */

    /* Of a handler that responds later. */
    void *owner;
    void (*on_gone)(struct http_request *req);     /* the client has disconnected */
    void (*on_writable)(struct http_request *req); /* it has read enough to be sent more */
};

/* Metrics and log of a response that has ended. */
void http_request_count(const struct http_request *req, uint32_t status);

struct response {
    uint32_t status;
    const char *type; /* NULL: application/json */
    struct str body;
    struct http_document *document;    /* not NULL: the body, which many responses share */
    const struct http_header *headers; /* beside the common ones */
    uint32_t header_count;
};
/* End: a whole response. */
void respond(struct http_request *req, const struct response *r);
/* End: 200 with `body`, or 503 if memory for it ran out. */
void respond_json(struct http_request *req, struct buf *body);
/* End: an error, as the route's codec writes it. */
void respond_error(struct http_request *req, const struct api_error *e);
/* End: 503, out of memory. */
void respond_out_of_memory(struct http_request *req);
/* A response in pieces: http_stream_* follow, then respond_end or respond_abort, which End. */
void respond_begin(struct http_request *req, const struct response *r);
void respond_end(struct http_request *req);
void respond_abort(struct http_request *req);

/* The body, until it is dropped. */
struct str http_request_body(const struct http_request *req);
void http_request_drop_body(struct http_request *req);
/* A parameter of the query as a number; `fallback` if absent. False: it was answered with 400. */
bool http_request_query_u64(struct http_request *req, const char *name, uint64_t fallback,
                            uint64_t *out);
bool http_request_header_is(const struct http_request *req, const char *name, const char *value);

#endif
