/* server/stored_read.h - a request for something in the store: read or change it, then respond.
 *
 *     struct reading { struct stored_read base; ... };
 *     handler: make it, fill `run` and `reply`, stored_read_push
 *     store's thread: run          I/O thread: reply, if the client is still there
 *
 * Lifetime: from stored_read_create until after `reply`, or until the client is gone and the
 * operation is done. Thread: the I/O thread, but for `run`.
 */
#ifndef SERVER_STORED_READ_H
#define SERVER_STORED_READ_H

#include "base/buf.h"
#include "jobs/store.h"
#include "server/http_request.h"

struct stored_read {
    struct store_op op;
    struct http_request *http; /* NULL: the client is gone */
    const char *what;          /* "response", for errors */
    char owner[72];            /* of the request's key */
    char id[160];              /* what it asks for */
    const char *cursor;        /* of a list: the id that `cursor_name` of the query has, or NULL */
    const char *cursor_name;   /* "after" */
    struct buf body;           /* of the response; `run` may write it */
    struct api_error error;    /* `run` may set it: sent in place of storage_refuse's */

    /* On the store's thread; may be called twice. ST_MISSING gives 404, see storage_refuse. */
    enum status (*run)(struct stored_read *r, struct store_db *db, struct err *err);
    /* ST_OK: respond; `http` is not NULL. NULL: `body` is sent as JSON. */
    void (*reply)(struct stored_read *r);
    void (*deinit)(struct stored_read *r); /* NULL: nothing to free */
};

/* Zeroed memory of `bytes` that begins with a stored_read. NULL: the request was answered (no
 * --data-dir, no memory). */
void *stored_read_create(struct http_request *req, size_t bytes, const char *what, struct str id);
/* Respond with an error instead of pushing it; frees it. */
void stored_read_refuse(struct stored_read *r, const struct api_error *e);
/* `is_read`: it changes nothing. */
void stored_read_push(struct stored_read *r, bool is_read);

#endif
