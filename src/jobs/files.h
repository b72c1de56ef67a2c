/* jobs/files.h - files of clients: the input and output of batches.
 *
 * A file's bytes are rows of at most FILE_CHUNK_BYTES, so that a long file is written and read in
 * small operations. A file is READY once all its bytes are stored; until then it is found by nobody
 * and removed at the next start.
 *
 * Thread: the store's.
 */
#ifndef JOBS_FILES_H
#define JOBS_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct store_db;

enum { FILE_CHUNK_BYTES = 1 << 20 };

struct file_row {
    struct str id, owner, filename, purpose;
    uint64_t bytes;
    int64_t created_s, expires_s; /* expires_s 0: with --data-keep */
    bool is_ready;
    char *memory;
};
void file_row_deinit(struct file_row *row);

/* A file that is not ready, without bytes. */
enum status files_create(struct store_db *db, const struct file_row *row, struct err *err);
/* Append bytes (any number; they are cut into chunks). */
enum status files_append(struct store_db *db, struct str id, struct str bytes, struct err *err);
enum status files_set_ready(struct store_db *db, struct str id, struct err *err);
/* Delete a file that will not become ready. Without effect if there is none that is not ready. */
enum status files_abandon(struct store_db *db, struct str id, struct err *err);
/* Ready files alone. `owner` empty: any. ST_MISSING. */
enum status files_find(struct store_db *db, struct str owner, struct str id, struct file_row *out,
                       struct err *err);
/* At most `cap` bytes from `offset` on; *got is 0 at the end. */
enum status files_read(struct store_db *db, struct str id, uint64_t offset, char *out, size_t cap,
                       size_t *got, struct err *err);
/* ST_MISSING; ST_BAD: a batch that has not ended uses it. */
enum status files_delete(struct store_db *db, struct str owner, struct str id, struct err *err);

struct files_page {
    struct str owner, purpose, after; /* empty: any, from the first */
    uint32_t limit;
    bool ascending;
};
enum status files_list(struct store_db *db, const struct files_page *page,
                       bool (*each)(void *ctx, const struct file_row *row), void *ctx,
                       struct err *err);
/* Delete ready files that have expired at `now_s`, or were created before `before_s`, and that no
 * batch under way uses. */
enum status files_expire(struct store_db *db, int64_t now_s, int64_t before_s, uint32_t limit,
                         uint32_t *count, struct err *err);

#endif
