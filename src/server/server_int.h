/* server/server_int.h - what the files of the server share: its struct, HTTP requests, routes. */
#ifndef SERVER_SERVER_INT_H
#define SERVER_SERVER_INT_H

#include <uv.h>

#include "api/codec.h"
#include "api/error.h"
#include "config/settings.h"
#include "net/http.h"
#include "access/keys.h"
#include "report/notify.h"
#include "server/generation.h"
#include "report/server_metrics.h"

struct log;
struct registry;
struct route;
struct served_model;
struct stream_sink;
struct tls_context;
struct tracer;
struct http_request;
struct ws_client;

enum { SERVER_ID_BYTES = 25, SIGNALS = 5, RANDOM_BYTES = 480 };
static const uint64_t STREAM_BACKLOG_BYTES = 256 << 10;

struct server {
    uv_loop_t loop;
    struct settings settings; /* as they are in force; some change by SIGHUP */
    struct http_server *http;
    struct tls_context *tls;
    struct registry *registry;
    struct generations *generations;
    struct keys *keys;
    struct log *log;
    struct tracer *tracer;
    struct server_metrics *metrics;
    struct notify notify;
    char url[512]; /* "http://127.0.0.1:8080" */
    bool is_loopback;

    bool is_loaded;   /* every model that can be */
    bool is_draining; /* nothing new is taken */
    bool is_ending;   /* what was left has been told so */
    bool is_http_closed, is_closed, has_handles;
    bool is_hurried;     /* by a second signal */
    bool is_stuck;       /* a thread that does not let go, at the end */
    const char *failure; /* lifecycle_failure, once it was seen; the end is near */
    enum status end_status;
    struct err end_err;
    int64_t drain_until_us, http_closed_us, key_check_us, fed_us, told_us;

    uv_signal_t signals[SIGNALS];
    uv_timer_t tick;
    uv_async_t stalled;
    uint32_t embeds;                              /* embeddings under way */
    uint32_t tasks;                               /* in the pool: they use models */
    struct ws_client *clients;                    /* WebSockets */
    struct stream_sink *pings_first, *pings_last; /* by when they last said something */
    unsigned char random[RANDOM_BYTES];
    uint32_t random_left;
};

/* ---- http_request.c ---- */

/* A client's exchange while it is being answered. It ends with exactly one of the verbs that
 * say so, or when the client goes away; after that it is freed. */
struct http_request {
    struct server *server;
    struct http_exchange *x;
    const struct http_head *head;
    const struct route *route; /* NULL: none has this path */
    struct str arg;            /* what the route's '*' stands for, as sent; the head's */
    const struct key *key;
    const struct codec *codec; /* words its errors */
    int64_t arrived_us;
    char id[SERVER_ID_BYTES];
    char request_id[GENERATION_ID_BYTES];
    bool is_allowed_origin; /* by --cors-origin */

    /* Who answers later: is told when the client goes away, or when there is room again. */
    void *owner;
    void (*on_gone)(struct http_request *req);
    void (*on_room)(struct http_request *req);
};

void server_make_id(struct server *s, char out[SERVER_ID_BYTES]);

/* In the caller's storage, for a refusal before the body has come; or on the heap. */
void http_request_init(struct http_request *req, struct server *s, struct http_exchange *x);
void http_request_deinit(struct http_request *req);

struct response {
    uint32_t status;
    const char *type; /* NULL: application/json */
    struct str body;
    const struct http_header *headers; /* further ones */
    uint32_t header_count;
};
/* End: a whole response. */
void respond(struct http_request *req, const struct response *r);
void respond_json(struct http_request *req, struct buf *body); /* 200, or 503 if it has failed */
/* End: an error in the route's words. */
void respond_error(struct http_request *req, const struct api_error *e);
/* End: 503 for want of memory. */
void respond_out_of_memory(struct http_request *req);
/* A response in pieces; http_stream_* follow, then respond_end or respond_abort. */
void respond_begin(struct http_request *req, const struct response *r);
void respond_end(struct http_request *req);
void respond_abort(struct http_request *req);
/* End without a response: it has become a WebSocket, or the client is gone, which is counted. */
void http_request_free(struct http_request *req);
void http_request_count_gone(const struct http_request *req);

/* A parameter of the query as a number; `fallback` if absent. False: refused. */
bool http_request_query_u64(struct http_request *req, const char *name, uint64_t fallback,
                            uint64_t *out);
bool http_request_header_is(const struct http_request *req, const char *name, const char *value);

/* ---- body.c ---- */
/* Make something of a body, which becomes `self`'s, also on failure; on any thread. */
typedef enum status body_read_fn(void *self, struct json *body, struct api_error *e);
/* On the loop. `req` NULL: the client is gone. On failure `e` says what to tell it. */
typedef void body_done_fn(void *self, struct http_request *req, enum status st,
                          const struct api_error *e);
struct http_request_reader {
    void *self;
    body_read_fn *read;
    body_done_fn *done;
};
void http_request_read(struct http_request *req, const struct http_request_reader *reader);

/* ---- gate.c ---- */
/* May it come in? `req->key` and `req->is_allowed_origin` are filled. ST_BAD: `e` says why not. */
enum status gate_check(struct http_request *req, struct api_error *e);

/* ---- routes.c ---- */
enum auth_class {
    AUTH_UNDECLARED, /* of a row that forgot it: the server does not start */
    AUTH_OPEN,
    AUTH_KEY,
    AUTH_ADMIN,
};
struct route {
    enum http_method method;
    const char *path; /* a '*' at its end stands for anything, not empty */
    enum auth_class auth;
    const char *codec; /* that words its errors, and reads and writes text */
    void (*handle)(struct http_request *req);
    bool is_work; /* new work: refused while draining */
};
uint32_t routes_count(void);
const struct route *routes_at(uint32_t i);
/* The route, or NULL: *allowed has a bit (1 << enum http_method) for each method of the path;
 * 0: there is no such path. HEAD is GET's. `arg` is what the '*' stands for. */
const struct route *routes_find(enum http_method method, struct str path, struct str *arg,
                                uint32_t *allowed);
const struct codec *routes_codec(const struct route *route, struct str path);
enum status routes_check(struct err *err);

/* ---- sinks ---- */
struct sink *sink_whole_create(struct http_request *req);
struct sink *sink_stream_create(struct http_request *req, const struct generation *r,
                                uint32_t after);
struct sink *sink_async_create(struct http_request *req);
void sink_streams_ping(struct server *s);
void sink_poll(struct http_request *req, struct generation *r, uint32_t after, uint64_t wait_ms);

/* ---- ws_client.c ---- */
void ws_clients_drain(struct server *s); /* say goodbye to those that wait for nothing */

/* ---- embeddings.c ---- */
void embed_on_done(struct server *s, struct served_model *m);

#endif
