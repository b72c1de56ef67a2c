/* api/multipart.h - reads a body of the type multipart/form-data (RFC 7578) that is in memory.
 *
 *     content-type: multipart/form-data; boundary=XYZ
 *
 *     --XYZ\r\n
 *     Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n
 *     Content-Type: application/jsonl\r\n
 *     \r\n
 *     DATA\r\n
 *     --XYZ--\r\n
 *
 * Text before the first boundary and after the last one is ignored. A boundary is a whole line: a
 * line of the data that only begins like one is data. Lines end with CR LF; a body with LF alone
 * is refused, because it cannot be said where its data end.
 *
 * File names: \" and \\ and %22 are decoded, as browsers, curl and HTTP libraries write them; other
 * percent signs are part of the name. filename* (UTF-8, percent-encoded) wins over filename.
 * Folders before the name are left out.
 *
 * Lifetime: data and types are slices of the body. Thread: any. Memory: nothing is allocated.
 */
#ifndef API_MULTIPART_H
#define API_MULTIPART_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

enum {
    MULTIPART_PARTS_MAX = 32,
    MULTIPART_HEADER_BYTES_MAX = 8192, /* the headers of one part */
    MULTIPART_BOUNDARY_BYTES_MAX = 70, /* of RFC 2046 */
    MULTIPART_NAME_BYTES = 128,        /* with the NUL */
    MULTIPART_FILENAME_BYTES = 512,    /* the same */
};

struct multipart_part {
    char name[MULTIPART_NAME_BYTES];
    char filename[MULTIPART_FILENAME_BYTES]; /* "": none was given */
    struct str type;                         /* "" if it has none, which means text/plain */
    struct str data;
};

struct multipart {
    struct multipart_part parts[MULTIPART_PARTS_MAX];
    uint32_t count;
};

/* Whether a Content-Type names a form. */
bool multipart_is_form(struct str content_type);

/* ST_BAD: `e` (400) says what was found and what is expected. */
enum status multipart_read(struct str content_type, struct str body, struct multipart *out,
                           struct api_error *e);

/* The first part of this name; NULL: there is none. */
const struct multipart_part *multipart_find(const struct multipart *form, const char *name);

#endif
