/* server/text_request.h - checks a request for text and makes its generation.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_TEXT_REQUEST_H
#define SERVER_TEXT_REQUEST_H

#include <stdint.h>

#include "api/error.h"
#include "base/status.h"

struct generation;
struct generation_spec;
struct http_head;
struct server;

/* A request header with a time in milliseconds; *us is unchanged if it is absent. `head` NULL:
 * none. ST_BAD: it is not a number from 0 to a day. */
enum status header_read_ms(const struct http_head *head, const char *name, int64_t *us,
                           struct api_error *e);

/* Check a request and make its generation. The caller leaves spec->model empty; it is found by its
 * name. ST_OK: the request is within all limits and may be started. ST_BAD: `e` says why not.
 * `spec->request` is empty afterwards in either case. `head` NULL: a message of a WebSocket. */
enum status text_generation_create(struct server *s, const struct http_head *head,
                                   struct generation_spec *spec, struct generation **out,
                                   struct api_error *e);

#endif
