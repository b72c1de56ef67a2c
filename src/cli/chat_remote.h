/* cli/chat_remote.h - `jitney chat --url`: a conversation with a server, over HTTP.
 *
 * POST URL/v1/chat/completions with "stream": true, through libcurl; text is given to the answer
 * as it comes. Ctrl-C closes the connection, and the server cancels the request.
 *
 *     no connection, 429, 5xx .............. ST_UNAVAILABLE
 *     401, 403, 404 ........................ ST_MISSING
 *     other refusals ....................... ST_BAD, with the server's own sentence
 *
 * Lifetime: open, generate as often as needed, close. Thread: the main thread.
 */
#ifndef CLI_CHAT_REMOTE_H
#define CLI_CHAT_REMOTE_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct chat_answer;
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

/* Requests the list of models, so that a wrong address is reported at once. */
enum status remote_open(const struct remote_options *options, struct remote **out, struct err *err);
void remote_close(struct remote *r); /* NULL is fine */

const char *remote_model(const struct remote *r);

struct remote_request {
    struct str messages; /* a JSON list */
    struct str tools;    /* a JSON list; empty: none */
    const struct sample_params *sample;
    uint32_t max_tokens; /* 0: as many as fit */
};

/* Send one request and receive the answer. After Ctrl-C it is the answer so far, with
 * FINISH_CANCELLED. */
enum status remote_generate(struct remote *r, const struct remote_request *request,
                            struct chat_answer *answer, struct request_usage *usage,
                            struct err *err);

#endif
