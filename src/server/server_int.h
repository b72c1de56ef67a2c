/* server/server_int.h - struct server: what the I/O thread owns, and what its files share of it.
 *
 * Lifetime: server_run makes it and frees it. Thread: the I/O thread; `stalled` alone is sent to
 * by others.
 */
#ifndef SERVER_SERVER_INT_H
#define SERVER_SERVER_INT_H

#include <stdatomic.h>
#include <uv.h>

#include "access/access.h"
#include "access/keys.h"
#include "base/list.h"
#include "base/share.h"
#include "config/settings.h"
#include "net/http.h"
#include "page/page.h"
#include "report/notify.h"
#include "report/server_metrics.h"
#include "server/generation.h"
#include "server/memory_plan.h"

struct accounts;
struct batch_runs;
struct engine_asks;
struct engine_watch;
struct idle_trim;
struct log;
struct offline;
struct registry;
struct retention;
struct store;
struct tls_context;
struct tracer;
struct work_queue;

enum { SERVER_ID_BYTES = 25, SIGNALS = 5, RANDOM_BYTES = 480 };
/* Bytes that wait for a slow client: above this, no further event is encoded for it. */
static const uint64_t STREAM_BACKLOG_BYTES = 256 << 10;

struct server {
    uv_loop_t loop;
    struct settings settings; /* as they are in force; SIGHUP changes some */
    struct http_server *http;
    struct tls_context *tls;
    struct registry *registry;
    struct generations *generations;
    struct keys *keys;
    struct access_rules access_rules;
    struct memory_plan memory;
    struct budget embeddings; /* memory of requests for embeddings */
    struct accounts *accounts;
    struct work_queue *work;     /* for libuv's pool */
    struct store *store;         /* NULL: without --data-dir nothing is stored */
    struct batch_runs *batches;  /* those that have not ended; NULL without a store */
    struct retention *retention; /* NULL without a store */
    struct offline *offline;     /* NULL: it listens. Else signals and the loaded model go there */
    struct idle_trim *idle_trim;
    struct log *log;
    struct tracer *tracer;
    struct server_metrics *metrics;
    struct notify notify;
    char url[512];                 /* "http://127.0.0.1:8080" */
    struct http_document *openapi; /* /openapi.json: it is constant, so all responses share it */
    struct http_document *page[PAGE_FILES_MAX]; /* likewise the files of the page, by page_at */

    bool is_loaded;          /* every model is ready or has failed */
    atomic_bool is_draining; /* no new work is accepted; the pool reads it, too */
    bool is_ending;          /* work that was left has been failed */
    bool is_http_closed, is_closed, has_handles;
    bool is_hurried;     /* by a second signal */
    bool is_stuck;       /* a thread did not stop in time: nothing is freed */
    const char *failure; /* what lifecycle_failure has found; the process ends soon */
    enum status end_status;
    struct err end_err;
    int64_t drain_until_us, http_closed_us, key_check_us;
    int64_t watchdog_sent_us, status_sent_us; /* to the service manager */

    uv_signal_t signals[SIGNALS];
    uv_timer_t tick;
    uv_async_t stalled;
    uv_async_t storage_wake;     /* operations of the store are done, or local requests */
    bool has_storage_handle;     /* storage_wake is open */
    bool is_storage_failing;     /* as was logged last */
    struct list storage_retries; /* operations that failed and are tried again */
    int64_t recovered_after;     /* the last row of an open answer that was read after the start */
    uint32_t recovered_live;     /* such answers that are being generated */
    int64_t recover_again_us;    /* when those that stayed open are read again; 0: there are none */
    bool is_recovering;          /* one is being read */
    bool is_engine_lost;         /* steps failed, and failed again when they were repeated */
    bool is_recovered;           /* all were read */
    struct list local_answered;  /* local requests with a response that was not delivered */
    uint32_t local_count;        /* local requests under way */
    uint32_t embeds;             /* requests for embeddings under way */
    uint32_t tasks;              /* waiting for libuv's pool or in it; they use models */
    struct list ws_clients;      /* open WebSockets */
    struct engine_watch *watch;
    struct engine_asks *asks;
    struct list pings; /* SSE streams; the one that was silent for longest is first */
    unsigned char random[RANDOM_BYTES];
    uint32_t random_left;
};

/* The parts of server_run before and after its event loop, for tests that run the loop
 * themselves. */
enum status server_open(const struct settings *settings, struct server **out, struct err *err);
enum status server_close(struct server *s, struct err *err);
/* Without sockets and messages to a service manager (server/offline.h). NULL: with them. */
enum status server_open_offline(const struct settings *settings, struct offline *offline,
                                struct server **out, struct err *err);

/* ST_BAD: the server is shutting down and accepts no new work; `e` says so. */
enum status server_check_draining(const struct server *s, struct api_error *e);
/* ST_BAD: too many bytes of responses wait to be read; `e` says whose. */
enum status server_check_room(enum http_room room, struct api_error *e);
/* 24 hexadecimal digits from the system's random numbers. */
void server_make_id(struct server *s, char out[SERVER_ID_BYTES]);
/* For a request that brings none: as random_seed (sample/random_seed.h). */
uint64_t server_make_seed(struct server *s);

/* Wake the engines that have got requests since the last call: once for all of them. */
void server_wake_engines(struct server *s);

/* ---- what lifecycle.c calls in files that handle requests ---- */

enum status server_make_documents(struct server *s); /* those that do not change */
void sink_streams_ping(struct server *s);            /* heartbeats of silent streams */
void ws_clients_drain(struct server *s);             /* close those without a request under way */
/* Close those whose key was removed; one with a request under way, when that has ended. */
void ws_clients_check_keys(struct server *s);
void embeddings_on_done(uv_async_t *handle);               /* a model's embedder has results */
void generation_report(void *ctx, struct generation *gen); /* one has ended; `ctx`: the server */

#endif
