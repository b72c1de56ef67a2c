/* server/batch_slice.h - lines of a batch that were read and are to be stored, some at a time.
 *
 * Lifetime: zeroed, it is empty; keep, store, clear. Thread: its owner, any. Memory: a copy of each
 * line.
 */
#ifndef SERVER_BATCH_SLICE_H
#define SERVER_BATCH_SLICE_H

#include <stddef.h>

#include "base/list.h"
#include "base/status.h"
#include "base/str.h"

struct batch_line;
struct store_db;

struct batch_slice {
    struct list lines;
    size_t bytes; /* of their texts */
};

enum status batch_slice_keep(struct batch_slice *s, const struct batch_line *line); /* ST_NOMEM */
/* On the store's thread. ST_BAD: a custom_id was used before. */
enum status batch_slice_store(const struct batch_slice *s, struct store_db *db, struct str batch,
                              struct err *err);
void batch_slice_clear(struct batch_slice *s);

#endif
