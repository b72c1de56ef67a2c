/* jobs/conversations_int.h - what answers and conversations share. */
#ifndef JOBS_CONVERSATIONS_INT_H
#define JOBS_CONVERSATIONS_INT_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct store_db;

/* Append the items of a JSON list to conversation number `conversation`. An item without an id, or
 * with one that the conversation has, gets a new one. An empty text is an empty list. ST_BAD: it is
 * not a list of objects. */
enum status conversation_extend(struct store_db *db, int64_t conversation, struct str items,
                                struct err *err);

/* What was written to `list` becomes the caller's. ST_BAD: it is longer than the buffer may be. */
enum status items_take(struct buf *list, struct str *out, struct err *err);

#endif
