/* server/batch_create.h - what creating a batch of OpenAI's and one of Anthropic's have in common.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_BATCH_CREATE_H
#define SERVER_BATCH_CREATE_H

#include "api/error.h"
#include "base/status.h"
#include "server/storage.h"

struct http_request;
struct server;

enum { BATCH_RETRY_MS = 10000 };

/* ST_BAD: the owner has too many open batches; `e` says so (429). */
enum status batch_check_room(struct http_request *req, struct api_error *e);
void batch_make_id(struct server *s, const char *prefix, char out[STORAGE_ID_BYTES]);

#endif
