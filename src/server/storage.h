/* server/storage.h - the durable store of a server: opened with it, closed with it.
 *
 * Without --data-dir there is none: s->store is NULL, and requests for durable work are refused.
 *
 * Operations (jobs/store.h) are pushed by the I/O thread and come back to it; while one is under
 * way, the server does not end.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_STORAGE_H
#define SERVER_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/list.h"
#include "base/status.h"

struct http_request;
struct server;
struct store_op;

enum { STORAGE_OWNER_BYTES = 72, STORAGE_ID_BYTES = 128 }; /* of texts that name what is stored */

enum status storage_open(struct server *s, struct err *err);
/* No further operation is pushed: run those that wait, close the store and its handle. */
void storage_close(struct server *s);

/* `op->done` is called on the I/O thread. */
void storage_push(struct server *s, struct store_op *op);
/* In `done`: if the operation has failed in a way that may pass, it is pushed again in a second,
 * and for the last time when the server ends. False: it is not, and nothing refers to it. */
struct storage_retry {
    struct store_op *op;
    int64_t at_us;
    struct list_link in_retries;
};
bool storage_retry(struct server *s, struct store_op *op, struct storage_retry *t);
void storage_push_retries(struct server *s); /* those that are due; called by the server's timer */
/* No operation is under way. */
bool storage_is_idle(const struct server *s);

/* Has an operation failed in a way that may pass (a full disk, no memory)? */
bool store_may_recover(enum status st);

/* False: there is no store, and the request was answered (400). */
bool storage_require(struct http_request *req);
/* The error of an operation that failed, for the client: 507 if the disk is full or fails, 404 with
 * "no such <what>" if something is missing, 409 for a conflict (ST_BAD), 503 without memory. */
void storage_refuse(enum status st, const struct err *err, const char *what, struct api_error *e);

#endif
