/* server/stored_paths.h - what the handlers of stored objects share.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_STORED_PATHS_H
#define SERVER_STORED_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct generation;
struct http_request;
struct json;
struct page_choice;
struct page_rules;

enum { STORED_AFTER_BYTES = 160 };

/* limit, order and after of the query. False: one is invalid, and the request was answered. */
bool stored_page_read(struct http_request *req, const struct page_rules *rules,
                      struct page_choice *out, char after[STORED_AFTER_BYTES]);
/* The body as an object; an empty body is {}. NULL: it is invalid, and the request was answered. */
struct json *stored_body_parse(struct http_request *req);

/* /v1/requests/ID of an answer that is not in memory. */
void stored_request_get(struct http_request *req, uint32_t after, bool is_stream);
/* The same, or of `gen`, which is durable and may be freed here. NULL: it is not in memory. */
void stored_request_delete(struct http_request *req, struct generation *gen);

#endif
