/* api/file_objects.h - OpenAI's files: reading an upload, writing the file object.
 *
 * Ids of rows are complete ("file-..."). Lists are written with api/object_page.h.
 *
 * Thread: any. Memory: what is read are slices of the form.
 */
#ifndef API_FILE_OBJECTS_H
#define API_FILE_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "api/multipart.h"
#include "base/status.h"
#include "base/str.h"

struct buf;
struct file_row;

/* How long after its creation a file may be made to expire: OpenAI's range. */
enum { EXPIRES_AFTER_MIN_S = 3600, EXPIRES_AFTER_MAX_S = 2592000 };

struct file_upload {
    struct str purpose;  /* a known word: file_purpose_is_known */
    struct str filename; /* "upload" if the part has none */
    struct str data;
    int64_t expires_after_s; /* 0: not given */
};

/* The parts `file` and `purpose`, and expires_after[anchor] with expires_after[seconds]. Other
 * parts are ignored. ST_BAD. */
enum status file_upload_read(const struct multipart *form, struct file_upload *out,
                             struct api_error *e);

/* A purpose that a client may give: assistants, batch, fine-tune, vision, user_data, evals. A
 * batch takes its input only from a file of the purpose `batch`; its output has `batch_output`. */
bool file_purpose_is_known(struct str purpose);

/* {"id","object":"file","bytes","created_at","expires_at","filename","purpose","status":
 * "processed","status_details":null}. expires_at is null if the row has none. */
void file_object_put(const struct file_row *row, struct buf *out);
/* {"id","object":"file","deleted":true} */
void file_deleted_put(struct str id, struct buf *out);

#endif
