/* hub/git_blob.h - the name that git gives to the bytes of a file: the SHA-1 of a short header and
 * the bytes. The hub lists it for files that are too small for a SHA-256 of their own.
 *
 * Thread: any. Memory: nothing is kept after a call.
 */
#ifndef HUB_GIT_BLOB_H
#define HUB_GIT_BLOB_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"

enum { GIT_HEX_BYTES = 41 }; /* 40 digits and a NUL; a commit's name has as many */

/* Whether `s` can be the name of a commit or of a file's bytes: 40 hexadecimal digits. */
bool git_hex_ok(struct str s);

enum status git_blob_file(const char *path, char out[GIT_HEX_BYTES], struct err *err);

#endif
