/* api/batch_objects.h - OpenAI's batches: reading the body that creates one, writing the object.
 *
 * The lines of its files are in api/batch_lines.h. Ids of rows are complete ("batch_...").
 *
 * Thread: any.
 */
#ifndef API_BATCH_OBJECTS_H
#define API_BATCH_OBJECTS_H

#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct batch_row;
struct json;

/* The window in which a batch must be done: a whole number and s, m, h or d. OpenAI's clients send
 * "24h"; this server takes others as well, from BATCH_WINDOW_MIN_S to BATCH_WINDOW_MAX_S. */
enum { BATCH_WINDOW_MIN_S = 1, BATCH_WINDOW_MAX_S = 30 * 86400 };

/* Strings are borrowed from the body. */
struct batch_create {
    struct str input_file;  /* its id; the caller checks that it exists with the purpose `batch` */
    struct str endpoint;    /* one of batch_endpoints */
    struct str window;      /* as given */
    int64_t window_s;       /* the same in seconds */
    int64_t output_after_s; /* output_expires_after.seconds; 0: not given */
    struct buf metadata;    /* JSON object, or empty; owned */
};

/* "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"; NULL-terminated. */
extern const char *const batch_endpoints[];

/* ST_BAD, ST_NOMEM. `out` is to be deinitialised in any case. */
enum status batch_create_read(const struct json *body, struct batch_create *out,
                              struct api_error *e);
void batch_create_deinit(struct batch_create *c);

/* The object, as openai.types.Batch reads it. */
void batch_object_put(const struct batch_row *row, struct buf *out);

#endif
