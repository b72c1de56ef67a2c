/* hub/partial_file.h - a file that is written piece by piece, perhaps over several runs.
 *
 * Bytes go to PATH.part and are hashed as they are written. PATH itself appears only when the file
 * is complete, its checksum is right and it is on disk. The next partial_file_open continues a part
 * that an earlier run left. PATH.part.tag holds the server's name for the version of the file (its
 * ETag or Last-Modified).
 *
 *     open ──> write ... ──> finish ──> PATH
 *       │        └─ interrupted ──> close: the part stays for the next run
 *       └─ restart: the part cannot be used, begin at byte 0
 *
 * Lifetime: open, close. Thread: its owner.
 */
#ifndef HUB_PARTIAL_FILE_H
#define HUB_PARTIAL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"

enum { PARTIAL_FILE_TAG_BYTES = 256 };

struct partial_file; /* opaque */

/* Creates the folder if needed. Reads and hashes what an earlier run left. */
enum status partial_file_open(const char *path, struct partial_file **out, struct err *err);
void partial_file_close(struct partial_file *o); /* the part, if any, stays; NULL is fine */

uint64_t partial_file_bytes(const struct partial_file *o);  /* in the part, so far */
const char *partial_file_tag(const struct partial_file *o); /* "" if not known */

enum status partial_file_restart(struct partial_file *o,
                                 struct err *err); /* back to zero bytes, no tag */
enum status partial_file_set_tag(struct partial_file *o, const char *tag, struct err *err);
enum status partial_file_write(struct partial_file *o, const void *bytes, size_t len,
                               struct err *err);

/* Check size (UINT64_MAX: unknown) and checksum (NULL: unknown), sync, rename. If either is wrong,
 * the part is deleted, because more bytes cannot make it right, and the result is ST_BAD. `sha256`
 * (may be NULL) gets the checksum of the file. */
enum status partial_file_finish(struct partial_file *o, uint64_t expected_bytes,
                                const char *expected_sha256, char sha256[SHA256_HEX_BYTES],
                                struct err *err);
void partial_file_discard(struct partial_file *o); /* remove the part */

#endif
