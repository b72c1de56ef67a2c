/* server/retention.h - deletes stored files, batches and answers when their time is over.
 *
 * Every minute, and after the start: files that have expired by their own expires_after, and files,
 * batches that have ended and stored answers that are older than --data-keep days (0: none). Each
 * operation deletes a limited number of rows, so that others of the store are not delayed; if it
 * has reached the limit, the next follows at once. A file that a batch under way uses stays.
 *
 * Lifetime: create, start, close, destroy. Thread: the I/O thread.
 */
#ifndef SERVER_RETENTION_H
#define SERVER_RETENTION_H

#include "base/status.h"

struct retention; /* opaque */
struct server;

enum status retention_create(struct server *s, struct retention **out);
void retention_start(struct retention *r);
void retention_close(struct retention *r);   /* its handle; NULL is fine */
void retention_destroy(struct retention *r); /* after the loop has run dry; NULL is fine */

#endif
