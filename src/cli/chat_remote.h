/* cli/chat_remote.h - the other side of a conversation when it is a server: asking by HTTP.
 *
 * POST URL/v1/chat/completions with "stream": true, through libcurl; text is given to the answer
 * as it comes. Ctrl-C closes the connection, which is how a server learns that nobody listens.
 *
 *     no connection, 429, 5xx .............. ST_UNAVAILABLE
 *     401, 403, 404 ........................ ST_MISSING
 *     other refusals ....................... ST_BAD, with the server's own sentence
 *
 * Lifetime: open, ask as often as needed, close. Thread: the main thread.
 */
#ifndef CLI_CHAT_REMOTE_H
#define CLI_CHAT_REMOTE_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct generated;
struct request_usage;
struct interrupt;
struct remote; /* opaque */
struct sample_params;

struct remote_options {
    const char *url;             /* "http://127.0.0.1:8080", with or without /v1 */
    const char *model;           /* NULL: the first that the server lists */
    const char *key;             /* sent as a bearer token; or NULL */
    const char *ca_file;         /* certificates to trust; NULL for the system's */
    struct interrupt *interrupt; /* borrowed */
};

/* Asks the server which models it has, so that a wrong address shows at once. */
enum status remote_open(const struct remote_options *options, struct remote **out, struct err *err);
void remote_close(struct remote *r); /* NULL is fine */

const char *remote_model(const struct remote *r);

struct remote_request {
    struct str messages; /* a JSON list */
    const struct sample_params *sample;
    uint32_t max_tokens; /* 0: as many as fit */
};

/* One answer. Interrupted, it is what came so far, with finish FINISH_CANCELLED. */
enum status remote_ask(struct remote *r, const struct remote_request *request,
                       struct generated *generated, struct request_usage *usage, struct err *err);

#endif
