/* server/text_request.h - admission of a request for text, from HTTP or from a WebSocket.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_TEXT_REQUEST_H
#define SERVER_TEXT_REQUEST_H

#include "api/error.h"
#include "base/status.h"

struct generation;
struct generation_spec;
struct http_head;
struct server;

/* Make a generation of a decoded request. `spec` lacks its model, which is found by its name.
 * ST_OK: the request is within its key's limits and may be started. ST_BAD: `e` says why not.
 * `spec->request` is moved out of in any case. `head` NULL: a message of a WebSocket. */
enum status text_admit(struct server *s, const struct http_head *head, struct generation_spec *spec,
                       struct generation **out, struct api_error *e);

#endif
