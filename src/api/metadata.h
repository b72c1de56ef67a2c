/* api/metadata.h - notes of a client that are stored with an object: at most 16 pairs of strings.
 *
 * Thread: any.
 */
#ifndef API_METADATA_H
#define API_METADATA_H

#include "api/error.h"
#include "base/buf.h"
#include "base/status.h"

struct json;

enum {
    METADATA_PAIRS_MAX = 16,
    METADATA_KEY_MAX = 64,        /* characters */
    METADATA_VALUE_MAX = 512,     /* the same */
    METADATA_BYTES_MAX = 1 << 17, /* of all pairs as JSON: more than these limits allow */
};

/* Append the pairs to `out` as a JSON object. NULL or null: nothing is written. ST_BAD: `v` is not
 * an object of strings, or a limit is exceeded; `e` names the pair by `param`. ST_NOMEM. */
enum status metadata_read(const struct json *v, const char *param, struct buf *out,
                          struct api_error *e);
/* Of a body {"metadata": {..}} that must have it, to change an object. null removes all pairs:
 * "{}" is written. */
enum status metadata_update_read(const struct json *body, struct buf *out, struct api_error *e);

/* Write ,"metadata":{..}; for an empty text, `absent` ("null", "{}"). */
void metadata_put(struct str metadata, const char *absent, struct buf *out);

#endif
