/* server/offline.h - the server's parts without sockets: one model answers lines of this process.
 *
 * A line is a request that the process makes to itself (server/local_request.h): a path, a body and
 * what makes its answer reproducible. Lines are started as long as fewer than twice max_seqs are
 * under way. A line that is refused for lack of room (429, 503) is started again when others have
 * ended.
 *
 *     load the model --> is_ready --> next .. next --> done .. done --> the end
 *                           |          a hook that fails, or a signal --^
 *
 * SIGINT, SIGTERM and SIGHUP end the run: lines under way are dropped.
 *
 * Lifetime: offline_run returns when everything has ended. Thread: the caller's, which also calls
 * the hooks.
 */
#ifndef SERVER_OFFLINE_H
#define SERVER_OFFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct offline;
struct server;
struct settings;

enum { OFFLINE_ID_BYTES = 25 };

/* The caller's buffers stay with the line until its end. */
struct offline_line {
    uint64_t number;
    const char *url; /* of a route with POST: "/v1/chat/completions" */
    struct buf body; /* JSON; empty when `next` gets it */
    struct buf tag;  /* anything that `done` needs; empty when `next` gets it */
    uint64_t seed;   /* if the body has none */
    int64_t created_s;
    char id[OFFLINE_ID_BYTES]; /* 24 hexadecimal digits */
};

struct offline_result {
    uint64_t number;
    struct str tag;
    uint32_t status; /* of HTTP */
    struct str body;
    const char *request_id;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
};

/* A hook that returns another status than those named here ends the run with it. */
struct offline_hooks {
    /* May be NULL: how much of the model is loaded, from 0 to 1. */
    void (*loading)(void *ctx, const char *stage, double share);
    /* The model is loaded. `fingerprint` stands for all that an answer depends on besides the
     * line. */
    enum status (*is_ready)(void *ctx, const char *name, const char *fingerprint, struct err *err);
    /* The next line. ST_MISSING: there is none. */
    enum status (*next)(void *ctx, struct offline_line *line, struct err *err);
    enum status (*done)(void *ctx, const struct offline_result *r, struct err *err);
    /* Ten times a second, once the model is loaded. */
    enum status (*tick)(void *ctx, struct err *err);
    void *ctx;
};

/* ST_OK: every line was answered. ST_CANCELLED: a signal. ST_DEVICE: an engine hung or failed; the
 * process must exit. Else the status of loading the model, or of a hook. */
enum status offline_run(const struct settings *settings, const struct offline_hooks *hooks,
                        struct err *err);

/* ---- called by lifecycle.c ---- */

void offline_begin(struct offline *o); /* the model is loaded */
void offline_interrupt(struct offline *o);

#endif
