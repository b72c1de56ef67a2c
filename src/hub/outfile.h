/* hub/outfile.h - a file that arrives piece by piece, perhaps over several runs.
 *
 * Bytes go to PATH.part, hashed as they are written; PATH itself appears only when all of
 * them are there, their checksum is right and they are on disk. A part that is left behind
 * is picked up by the next outfile_open. PATH.part.tag keeps what the server said to tell
 * one version of the file from another.
 *
 *     open ──> write ... ──> finish ──> PATH
 *       │        └─ broken ──> close: the part stays for the next run
 *       └─ restart: the part is of no use, begin at zero
 *
 * Lifetime: open, close. Thread: its owner.
 */
#ifndef HUB_OUTFILE_H
#define HUB_OUTFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"

enum { OUTFILE_TAG_BYTES = 256 };

struct outfile; /* opaque */

/* Makes the folder if need be. Reads and hashes what an earlier run left. */
enum status outfile_open(const char *path, struct outfile **out, struct err *err);
void outfile_close(struct outfile *o); /* the part, if any, stays; NULL is fine */

uint64_t outfile_bytes(const struct outfile *o);  /* in the part, so far */
const char *outfile_tag(const struct outfile *o); /* "" if none is known */

enum status outfile_restart(struct outfile *o, struct err *err); /* back to zero bytes, no tag */
enum status outfile_set_tag(struct outfile *o, const char *tag, struct err *err);
enum status outfile_write(struct outfile *o, const void *bytes, size_t len, struct err *err);

/* Check size (UINT64_MAX: unknown) and checksum (NULL: unknown), sync, rename. When either is
 * wrong the part is removed, for its bytes can never become right, and the answer is ST_BAD.
 * `sha256` (may be NULL) gets what was found. */
enum status outfile_finish(struct outfile *o, uint64_t expected_bytes, const char *expected_sha256,
                           char sha256[SHA256_HEX_BYTES], struct err *err);
void outfile_discard(struct outfile *o); /* remove the part */

#endif
